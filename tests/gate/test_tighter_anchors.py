"""HEAD's own anchor bounds the run as well, where it is the tighter one; digests are only ever the same or not."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path

import pytest
from gate_world import TWENTY, World, make_run, redrawn, started

from pytest_fanout.records import Run
from pytest_fanout.store.baselines import build_baseline


@pytest.fixture
def world(tmp_path: Path) -> World:
    return started(tmp_path / "project")


def digest(run: Run) -> str:
    return build_baseline(run, "support").digest


def variant(fits: Callable[[str, str], bool], **tasks: list[int]) -> Run:
    """A run with these tasks whose digest stands so to that of TWENTY: other tasks differ in what no limit sees."""
    made = (make_run({**TWENTY, **tasks, "t01": [number]}) for number in range(1, 16))
    return next(run for run in made if fits(digest(run), digest(make_run())))


@pytest.mark.parametrize("fits", [operator.lt, operator.gt])
def test_a_tighter_anchor_at_head_bounds_the_run(world: World, fits: Callable[[str, str], bool]) -> None:
    """p95 15 at HEAD: its limit is 16 (by at least one more call), and that is below the 20 of the base's 19."""
    world.anchor(variant(fits, t16=[15], t17=[15], t18=[15], t19=[15]))
    world.commit()

    (result,) = world.judge(redrawn(make_run())).classes

    bounds = {metric.name: (metric.base, metric.run, metric.limit) for metric in result.metrics if metric.gated}
    assert bounds["fanout.p95"] == (19, 19, 16)
