"""Helpers of the meter's tests: a meter around an agent, and a recording in memory."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter import Measured, Meter, Trace, measure_trial
from pytest_fanout.records import Caps, Exchange, HttpRequest, MeasureRules, Replayed

Key = tuple[str, str, bytes]


class Tape:
    """A recording in memory: a queue of answers for each method, path and body."""

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self.queues: dict[Key, deque[Replayed]] = defaultdict(deque)
        self.missed: list[str] = []
        for exchange in exchanges:
            if exchange.role != "refused" and not exchange.live_input:
                self.queues[self._key(exchange.request)].append(Replayed(exchange.answer, exchange.started_ms))

    def answer(self, request: HttpRequest, role: str) -> Replayed | None:
        queue = self.queues[self._key(request)]
        if not queue:
            self.missed.append(role)
            return None
        return queue.popleft()

    @staticmethod
    def _key(request: HttpRequest) -> Key:
        return request.method, "/" + request.url.split("/", 3)[3], request.body


@dataclass
class Result:
    trace: Trace
    measured: Measured
    value: Any = None
    error: BaseException | None = None

    @property
    def fanout(self) -> int | None:
        return self.measured.samples["fanout"]

    @property
    def slugs(self) -> list[str]:
        found = [*self.trace.problems, *self.measured.problems]
        return [problem.slug for problem in found if problem.verdict != "notice"]


@contextmanager
def metering(mode: str = "live", **settings: Any) -> Iterator[Meter]:
    """A started meter; ``measure`` and the other arguments as for Meter."""
    settings.setdefault("measure", MeasureRules())
    meter = Meter(mode=mode, **settings)
    assert meter.start() == ()
    try:
        yield meter
    finally:
        meter.stop()


def run_task(
    meter: Meter, agent: Callable[[], Any], *, caps: Caps | None = None, source: Tape | None = None, task: str = "t"
) -> Result:
    """Measure one trial of ``agent`` (sync or async); what it raises is kept."""
    scope = meter.open_task("shop", task, 1, caps or Caps(), source)
    value, error = None, None
    try:
        value = agent()
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
    except (Exception, TaskStopped, BaseExceptionGroup) as raised:
        # as the session does: with its traceback an error would keep alive what a stopped agent has left half done
        error = TaskStopped(str(scope.stopped())) if scope.overdue else raised
    trace = meter.close_task(scope)
    return Result(trace, measure_trial(trace.exchanges, trace.duration_ms), value, error)


def raw_post(url: str, **headers: str) -> int:
    """POST ``{}`` past every library that has a hook, on a socket; the status of the answer."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 80)) as raw:  # raw call
        lines = [
            f"{name}: {value}" for name, value in ({"host": parts.netloc, "content-length": "2"} | headers).items()
        ]
        raw.sendall("\r\n".join((f"POST {parts.path} HTTP/1.0", *lines, "", "{}")).encode())
        with raw.makefile("rb") as answer:
            return int(answer.read().split()[1])


def chat(text: str = "hi", **more: Any) -> dict[str, Any]:
    """The body of a chat request."""
    return {"model": "m", "messages": [{"role": "user", "content": text}], **more}
