"""A task that keeps the recorded answers up to its first changed request, and goes on live from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fanout.meter.flight import Flight
    from pytest_fanout.meter.task import TaskScope


def goes_live(scope: TaskScope, missed: Flight) -> bool:
    """Whether a request that its recording does not hold goes out, and from here on all others with it.

    The task's clock goes on from where the recorded one stood: a replay takes no time, and what follows would else seem
    to have been sent while the beginning was still going on. Calls that run side by side may come here together.
    """
    if scope.resumes_ms is None:
        return False
    with scope.lock:
        if scope.source is not None:
            answered = [flight.started_ns for flight in scope.flights if flight.replayed is not None]
            if answered:
                idle_ns = max(0, missed.started_ns - max(answered))
                resumes_ns = scope.resumes_ms(idle_ns // 1_000_000) * 1_000_000
                scope.t0 = missed.started_ns - scope.paused_ns - resumes_ns
            scope.source = None
            scope.on_stop()  # who watches its wall clock looks at it again
        missed.starts()
    return True
