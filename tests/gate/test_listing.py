"""Names and numbers of things in a sentence."""

from __future__ import annotations

import pytest

from pytest_fanout.gate.listing import counted, listed


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


def test_one_thing_is_no_things() -> None:
    """None and several take the plural."""
    assert [counted(number, "task") for number in range(4)] == ["0 tasks", "1 task", "2 tasks", "3 tasks"]
