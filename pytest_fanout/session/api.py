"""Measuring from code: ``measure()`` outside pytest, ``aside()`` and ``call_site()`` anywhere."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pytest_fanout.errors import MeasurementWarning, UsageError
from pytest_fanout.records import Caps, MeasureRules, ModelCall, Problem

if TYPE_CHECKING:
    from pytest_fanout.meter import Meter

#: The meter that is on in this process, if any: there is at most one.
_active: Meter | None = None


def activate(meter: Meter | None) -> None:
    """Make ``meter`` the one that ``aside()`` speaks to; None when it is off."""
    global _active
    _active = meter


def active() -> Meter | None:
    """The meter that is on in this process, if any."""
    return _active


class TaskMeter:
    """Live counts of one task, by the same rules as its final samples."""

    def __init__(self, scope: Callable[[], Any]) -> None:
        self._scope = scope
        self.problems: tuple[Problem, ...] = ()

    @property
    def fanout(self) -> int:
        """Model calls that reached a model."""
        return int(self._scope().fanout)

    @property
    def attempts(self) -> int:
        """Requests to model endpoints, failed and retried ones included."""
        return int(self._scope().attempts)

    @property
    def tokens(self) -> int | None:
        """Input plus output tokens so far; None where the usage of a call is not known."""
        tokens = self._scope().tokens
        return None if tokens is None else int(tokens)

    @property
    def tool_calls(self) -> int:
        """Client tool calls that model answers asked for."""
        return int(self._scope().tool_calls)

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """The model calls so far, each with its ``.attempts``."""
        return tuple(self._scope().calls)


@contextlib.contextmanager
def measure(*, agent: str, task: str, caps: Caps | None = None) -> Iterator[TaskMeter]:
    """Count what an agent does inside the block, live. Nothing is judged or stored; keys are not sealed.

    After the block ``problems`` of the meter says what stands against its numbers; where any of it makes them
    untrustworthy (verdict ``invalid``), a ``MeasurementWarning`` says so too.

    Args:
        caps: hard limits; those of a budget.toml that says nothing by default.

    Raises:
        UsageError: something is being measured in this process already.
        TaskStopped: a cap was reached. It is no ``Exception``: what does not catch it by name ends.
    """
    from pytest_fanout.meter import Meter

    if _active is not None:
        raise UsageError(
            "already-measuring",
            "measure() was called while this process is measuring a task",
            mend="use the fanout_meter fixture inside a measured test",
        )
    meter = Meter(mode="live", measure=MeasureRules(seal_keys=False))
    problems = list(meter.start())
    activate(meter)
    try:
        scope = meter.open_task(agent, task, 1, caps or Caps())
        task_meter = TaskMeter(lambda: scope)
        try:
            yield task_meter
        finally:
            trace = meter.close_task(scope)
            problems += trace.problems
            problems += scope.measured().problems
            task_meter.problems = tuple(problems)
    finally:
        activate(None)
        problems += meter.finish().problems
        meter.stop()
    task_meter.problems = tuple(dict.fromkeys(problems))
    against = [f"{problem.text} [{problem.slug}]" for problem in task_meter.problems if problem.verdict == "invalid"]
    if trace.capped is not None:  # and what the block has run has swallowed it
        against.append(str(scope.stopped()))
    if against:
        more = f" (and {len(against) - 1} more)" if len(against) > 1 else ""
        warnings.warn(
            f"the numbers of {task!r} cannot be trusted: {against[0]}{more}",
            MeasurementWarning,
            stacklevel=3,  # the with statement: between are this generator and its context manager
        )


@contextlib.contextmanager
def aside(name: str) -> Iterator[None]:
    """Calls inside are not the agent's (a judge, a grader): recorded, capped and counted apart under ``name``.

    Does nothing where nothing is measured.
    """
    if _active is None:
        yield
    else:
        with _active.aside(name):
            yield


@contextlib.contextmanager
def call_site(name: str) -> Iterator[None]:
    """Calls inside are of the call site ``name``, however their prompts read: explanations go by that name.

    Counts and verdicts do not change. Inside another one the inner name holds. Does nothing where nothing is measured.

    Raises:
        UsageError: the name is empty, longer than 64 characters, or no text of one line.
    """
    if not isinstance(name, str) or not 0 < len(name) <= 64 or not name.isprintable():
        raise UsageError(
            "bad-call-site",
            f"call_site() takes a name of 1 to 64 printable characters, not {name!r:.80}",
            mend='with pytest_fanout.call_site("planner"): ...',
        )
    if _active is None:
        yield
    else:
        with _active.call_site(name):
            yield
