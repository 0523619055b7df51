"""Runs the agents of one cell under our meter, in the environment of their SDK, and writes our numbers as JSON.

``python run_cell.py JOB RESULT``: JOB is a file with ``{"cell": module, "variable": name or null, "at_import": bool,
"distributions": […], "runs": [{"form", "story", "url"}, …]}``. RESULT gets ``{"problems": […], "versions": {…}, "runs":
[{"form", "story", "samples", "logical_calls", "problems", "layers", "error"}, …]}``. Each run is a task of its own.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import traceback
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
# The package of this checkout is measured, whichever one its environment was built for.
sys.path[0:1] = [str(TESTS), str(TESTS.parent)]

from pytest_fanout.errors import TaskStopped  # noqa: E402
from pytest_fanout.meter import Meter, measure_trial  # noqa: E402
from pytest_fanout.records import Caps, MeasureRules, Problem  # noqa: E402
from pytest_fanout.wire import estimate  # noqa: E402

#: form -> the cell's function, and the one that closes its stream early
FUNCTIONS = {
    "sync": ("sync", None),
    "async": ("async_", None),
    "streamed": ("streamed", "early"),
    "async streamed": ("async_streamed", "async_early"),
}
#: Stops an agent that asks without end, long before the test gives up on it.
CAPS = Caps(fanout=12, attempts=24, wall_seconds=60)


def main() -> None:
    estimate.tokenizer = lambda: None  # what is compared is what the server told
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    meter = Meter(mode="live", measure=MeasureRules())
    problems = list(meter.start())
    if job["at_import"]:
        os.environ[job["variable"]] = next(run["url"] for run in job["runs"] if run["story"] == "variable")
    try:
        cell = import_module(f"sdk_matrix.cells.{job['cell']}")
        runs = [run(meter, cell, job["variable"], one) for one in job["runs"]]
        problems += meter.finish().problems
    finally:
        meter.stop()
    versions = {name: metadata.version(name) for name in job["distributions"]}
    result = {"problems": _told(problems), "runs": runs, "versions": versions}
    Path(sys.argv[2]).write_text(json.dumps(result, indent=1), encoding="utf-8")


def run(meter: Meter, cell: Any, variable: str, asked: dict[str, str]) -> dict[str, Any]:
    """One task: one form of the cell's agent in one story."""
    url: str | None = asked["url"]
    if asked["story"] == "variable":
        os.environ[variable], url = asked["url"], None
    scope = meter.open_task("matrix", f"{asked['form']} {asked['story']}", 1, CAPS)
    error = None
    try:
        name, early = FUNCTIONS[asked["form"]]
        value = getattr(cell, early if asked["story"] == "early" and early else name)(url)
        if inspect.iscoroutine(value):
            asyncio.run(value)
    except (Exception, TaskStopped):
        error = traceback.format_exc()[-2000:]
    trace = meter.close_task(scope)
    if asked["story"] == "variable":
        del os.environ[variable]
    measured = measure_trial(trace.exchanges, trace.duration_ms)
    return {
        "form": asked["form"],
        "story": asked["story"],
        "samples": dict(measured.samples),
        "logical_calls": len(measured.calls),
        "problems": _told([*trace.problems, *measured.problems]),
        "layers": sorted({one.layer for one in trace.exchanges if one.role == "model"}),
        "error": error,
    }


def _told(problems: list[Problem]) -> list[str]:
    return [f"{one.slug}: {one.text}" for one in problems if one.verdict != "notice"]


if __name__ == "__main__":
    main()
