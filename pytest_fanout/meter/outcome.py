"""From what a task said and heard to its TaskRun, where no eval set and no recording stand behind it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytest_fanout.meter.samples import measure_trial
from pytest_fanout.meter.task import TaskScope, Trace
from pytest_fanout.records import TaskRun


def live_run(scope: TaskScope, trace: Trace, codecs: Iterable[Any] = ()) -> TaskRun:
    """One live execution as a record; its status is ``ok``, or says which kind of cap ended it."""
    measured = measure_trial(trace.exchanges, trace.duration_ms, codecs, scope.model_hosts)
    status = "ok" if trace.capped is None else "timeout" if trace.capped == "wall_seconds" else "capped"
    return TaskRun(
        agent=scope.agent,
        task=scope.task,
        trial=scope.trial,
        status=status,
        passed=status == "ok",
        samples=dict(measured.samples),
        calls=measured.calls,
        aside=dict(measured.aside),
        problems=(*measured.problems, *trace.problems),
        new_draw=True,
        begun_at=trace.begun_at,
        models_requested=measured.models_requested,
        models_served=measured.models_served,
        unknown_usage=measured.unknown_usage,
        capped=trace.capped,
        sites=dict(measured.sites),
        site_tokens=dict(measured.site_tokens),
        call_sites=measured.call_sites,
        hosts=measured.hosts,
        other=measured.other,
        unclassified=measured.unclassified,
        spent_calls=trace.spent_calls,
    )
