"""Every number of the page stands in it as JSON, and each table names the place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from page_world import Told, data, made_red, tree, words

from pytest_fanout.report.page.render import render
from pytest_fanout.report.why import figure
from pytest_fanout.store import schemas


@pytest.fixture(scope="module")
def red(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return made_red(tmp_path_factory.mktemp("numbers") / "world")


@pytest.fixture(scope="module")
def text(red: Told) -> str:
    return render(red.run, red.verdict, red.past)


def test_every_number_is_in_the_page_as_json(red: Told, text: str) -> None:
    """The report fits its schema but for its digest; the trials of both sides stand in columns, and equal the run's."""
    found = data(text)
    report, support = found["report"], found["trials"]["support"]

    assert schemas.fault(report | {"digest": "sha256:" + "0" * 64}, "report") is None
    assert (report["verdict"], report["headline"].partition(" (")[0]) == ("inconclusive", "over budget")
    assert report["capacity"]["fleet"]["run"]["cliffs"]["cells"][0]["fits"] is True
    assert support["run"]["task"] == sorted({each.task for each in red.run.tasks})
    assert support["run"]["samples"]["fanout"] == [[each.samples["fanout"]] for each in red.run.tasks]
    assert support["run"]["status"] == "ok"
    assert support["base"]["samples"]["fanout"][0] == [4]
    assert [step["value"] for step in found["trends"][0]["steps"]] == [5, 7]


def test_each_table_names_the_place_of_its_numbers(text: str) -> None:
    """A JSON pointer in `data-json`: below it stands every figure of the table, but for changes in percent, which are
    quotients of two of them."""
    page, found = tree(text), data(text)
    tables = page.xpath("//table")
    derived = {"change", "of the change"}

    assert len(tables) >= 15
    for table in tables:
        held = found
        for step in table.get("data-json").split("/")[1:]:
            held = held[int(step)] if isinstance(held, list) else held[step]
        known = set(forms(held))
        headers = [words(each) for each in table.xpath("./thead//th")]
        for row in table.xpath("./tbody/tr"):
            for header, cell in zip(headers[1:], row[1:], strict=True):
                if header not in derived and cell.get("class") not in ("w", None):
                    figures = re.findall(r"(?<![\w.])[\d,]+(?:\.\d+)?", words(cell))
                    assert set(figures) - known == set(), (table.get("data-json"), header, words(cell))
                for small in cell.xpath(".//small"):
                    assert re.findall("[\\d,]+", words(small))[0] in known


def forms(held: Any) -> Iterator[str]:
    """Each number below a place as the page may write it: whole, rounded, as a percentage; lists by their mean."""
    if isinstance(held, dict) and set(held) == {"value", "exact"}:
        yield figure(abs(Fraction(held["exact"])))
    elif isinstance(held, dict | list):
        values = list(held.values()) if isinstance(held, dict) else held
        numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        if numbers and isinstance(held, list):
            yield f"{sum(numbers) / len(numbers):,.1f}".removesuffix(".0")
            yield f"{len(held):,}"
        for value in values:
            yield from forms(value)
    elif isinstance(held, int | float) and not isinstance(held, bool):
        yield from (f"{held:,}", f"{held:,.0f}", f"{held:,.1f}", f"{held:,.2f}", f"{held * 100:.0f}")
