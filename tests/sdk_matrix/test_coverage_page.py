"""The page about the matrix says what its results say, and the results are of the whole matrix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sdk_matrix import coverage
from sdk_matrix.matrix import CELLS, Cell, pairs_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
REGENERATE = "run_matrix.py --save docs/coverage.json, then coverage.py docs/coverage.json > docs/coverage.md"


def results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "coverage.json").read_text(encoding="utf-8"))
    return found


def test_the_page_says_what_the_results_say() -> None:
    """docs/coverage.md is what coverage.py makes of docs/coverage.json."""
    assert (DOCS / "coverage.md").read_text(encoding="utf-8") == coverage.page(results()), REGENERATE


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_the_results_hold_every_pair(cell: Cell) -> None:
    """What the table covers was run, what it leaves out is told with its reason, and every number was exact."""
    found = [one for one in results()["cells"] if one["name"] == cell.name]
    assert len(found) == 1, REGENERATE
    pairs = list(pairs_of(cell))

    assert [(run["form"], run["story"]) for run in found[0]["runs"]] == [
        (pair.form, pair.story) for pair, why in pairs if why is None
    ]
    assert found[0]["uncovered"] == [
        {"form": pair.form, "story": pair.story, "why": why} for pair, why in pairs if why is not None
    ]
    assert found[0]["problems"] == []
    assert [run["faults"] for run in found[0]["runs"] if run["faults"]] == []
    assert all(all(run["exact"].values()) for run in found[0]["runs"])
