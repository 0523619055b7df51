"""``--plot FILE.svg`` of `fanout-capacity plan` and `compare`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pytest_fanout.capacity.plan import Planned
from pytest_fanout.capacity.side import GpuWindows
from pytest_fanout.errors import UsageError
from pytest_fanout.records import Fleet
from pytest_fanout.report.plots import SHARES, DemandCurve, plan_svg
from pytest_fanout.store.files import write_atomically


def check(path: str | None) -> None:
    """Refuse a picture that could not be drawn, before anything is worked out.

    Raises:
        UsageError: no plotting library, or a suffix that is none.
    """
    if path is None:
        return
    if Path(path).suffix != ".svg":
        raise UsageError("bad-plot-file", "pictures are SVG only", where=path, mend="name a file that ends with .svg")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(
            "no-plot-extra",
            "drawing stands on matplotlib, which is not installed",
            mend="pip install 'pytest-fanout[plot]'",
        )


def draw(path: str, planned: Planned, fleet: Fleet) -> None:
    """Write the picture of a plan.

    Raises:
        UsageError: there are no GPUs to draw.
        StorageError: it cannot be written.
    """
    if planned.fleet is None or planned.whole is None:
        raise UsageError(
            "nothing-to-plot",
            "there are no GPUs to draw: a class has no demand, its tokens are unknown, a provider serves the model, or "
            "the fleet is saturated",
            where=fleet.source,
            mend="fanout-capacity plan says which; [demand.CLASS] in fleet.toml gives demand",
        )
    base, run = planned.whole
    available = None if fleet.gpus_reserved is None else float(fleet.gpus_reserved + fleet.gpus_burst)
    text = plan_svg(
        _curve("run" if base else "anchors", run),
        _curve("base", base) if base else None,
        available,
        planned.fleet.run.cliffs,
    )
    write_atomically(Path(path).absolute(), text.encode("utf-8"))


def _curve(name: str, windows: GpuWindows) -> DemandCurve:
    import numpy as np

    ends = [np.quantile(windows.at(share), (0.05, 0.50, 0.95)).tolist() for share in SHARES]
    low, middle, high = zip(*ends, strict=True)
    return DemandCurve(name, middle, low, high, windows.spread().p95)
