"""Names of things in a sentence."""

from __future__ import annotations

import pytest

from pytest_fanout.gate.listing import listed


@pytest.mark.parametrize(
    ("names", "most", "told"),
    [
        ("", (), ""),
        ("a", (), "a"),
        ("abcde", (), "a, b, c, d, e"),
        ("abcdef", (), "a, b, c, d, e and 1 more"),
        ("abcdefg", (), "a, b, c, d, e and 2 more"),
        ("abc", (3,), "a, b, c"),
        ("abcd", (3,), "a, b, c and 1 more"),
    ],
)
def test_names_beyond_the_most_are_counted(names: str, most: tuple[int, ...], told: str) -> None:
    """Up to the most, five where nothing else is said, all are named; of the others it says how many."""
    assert listed(iter(names), *most) == told
