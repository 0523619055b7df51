"""One way to write a figure, wherever it stands."""

from __future__ import annotations

import pytest

from pytest_fanout.capacity.figures import band, counted, exact, interval, listed, number, signed


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"), (0, "0"), (0.0, "0"), (7, "7"), (1_234, "1,234"), (1_234.6, "1,235"), (99.996, "100"),
        (99.99, "99.99"), (19.1108, "19.11"), (1.0, "1.00"), (0.99996, "1.00"), (0.01478, "0.0148"), (0.5, "0.5"),
        (0.00001234, "1.2e-05"),
    ],
)  # fmt: skip
def test_a_figure(value: float | None, shown: str) -> None:
    """Whole from 100 up, two decimals from 1 up, three digits below; unknown is no zero."""
    assert number(value) == shown


def test_what_figures_are_made_into() -> None:
    """Differences have a sign, intervals two ends, bands the smaller end first, counts their noun."""
    assert (signed(12.345), signed(-1_500.0), signed(0.0)) == ("+12.35", "-1,500", "+0")
    assert interval((7.851, 1_111.0)) == "7.85 to 1,111"
    assert (band(4.162, 2.311), band(1.0, 1.001), band(2.0, None)) == ("2.31 to 4.16", "1.00", "2.00")
    assert (counted(1, "spare replica"), counted(2_000, "GPU")) == ("1 spare replica", "2,000 GPUs")


def test_one_thing_is_no_things() -> None:
    """None and several take the plural, with an s or as it is given; a count of any size is exact."""
    assert [counted(count, "task") for count in range(3)] == ["0 tasks", "1 task", "2 tasks"]
    assert [counted(count, "class", "classes") for count in (1, 1_200)] == ["1 class", "1,200 classes"]
    assert number(2**53 + 1) == "9,007,199,254,740,993"


def test_of_many_names_some_are_told() -> None:
    """Five and how many more; six are told whole, for "1 more" is no shorter than a name."""
    assert listed([f"c{n}" for n in range(6)], ", ") == "c0, c1, c2, c3, c4, c5"
    assert listed([f"c{n}" for n in range(1_005)], " or ") == "c0 or c1 or c2 or c3 or c4 or 1,000 more"


def test_an_operand_has_seven_digits() -> None:
    """What a formula prints is enough to work its value out to six."""
    assert [exact(v) for v in (16.6666667, 1_234_567.8, 4.136679e-8, 0.7, 100, 0.000123456789)] == [
        "16.66667", "1,234,568", "4.136679e-08", "0.7", "100", "0.0001234568",
    ]  # fmt: skip
