"""Where in a diff a changed text stands."""

from __future__ import annotations

import pytest

from pytest_fanout.explain.places import added_lines, places_of

DIFF = """diff --git a/shop/agents.py b/shop/agents.py
index 1111111..2222222 100644
--- a/shop/agents.py
+++ b/shop/agents.py
@@ -3,2 +3,3 @@ import os
-PLAN = "List what to look up."
+PLAN = ("List six words to look up, one a line.\\nSay "
+        "what each of them is good for.")
+effort = "high"
diff --git a/shop/tools.json b/shop/tools.json
--- a/shop/tools.json
+++ b/shop/tools.json
@@ -10 +11,2 @@
+  {"name": "deep_search", "description": "Looks everywhere at once."},
++++ not a header
"""


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("List six words to look up, one a line.", ("shop/agents.py:3",)),
        ("Say what each of them is good for.", ("shop/agents.py:4",)),  # broken over two lines
        ("deep_search", ("shop/tools.json:11",)),
        ("effort\0\"high\"", ("shop/agents.py:5",)),
        ("effort\0\"low\"", ()),
        ("List what to look up.", ()),  # taken away, not added
        ("a", ()),
    ],
)  # fmt: skip
def test_a_text_is_found_where_it_was_added(text: str, places: tuple[str, ...]) -> None:
    """Whole, broken over lines, or as name and value; what is too short to tell is not looked for."""
    assert places_of([text], added_lines(DIFF)) == places


def test_a_line_that_looks_like_a_header_is_a_line() -> None:
    """Inside a hunk everything that begins with a plus was added."""
    assert added_lines(DIFF)[-1].text == "+++ not a header"


def test_at_most_five_places() -> None:
    """A text that stands everywhere is no place."""
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1,9 @@\n" + "+the same words here\n" * 9

    assert len(places_of(["the same words here"], added_lines(diff))) == 5
