"""docs/threat-model.md names tests that are there, and enough of them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(test_\w+\.py)::(\w+)`", PAGE)


def test_every_test_that_the_page_names_is_there() -> None:
    """By its file and function: a scenario of test_verdicts.py is a function that its one test runs."""
    missing = []
    for name, function in NAMED:
        (path,) = ROOT.glob(f"tests/*/{name}")
        if f"\ndef {function}(" not in path.read_text(encoding="utf-8"):
            missing.append(f"{name}::{function}")

    assert missing == []


def test_every_row_has_its_test() -> None:
    """Each line of the tables below "Each way, and its test" ends with one."""
    section = PAGE.split("## Each way, and its test")[1].split("\n## ")[0]
    rows = [row for row in section.splitlines() if row.startswith("| ") and not row.startswith("| way")]

    assert len(rows) >= 45
    assert [row for row in rows if not re.search(r"`test_\w+\.py::\w+` \|$", row)] == []
