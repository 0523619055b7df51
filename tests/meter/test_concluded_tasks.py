"""What a task sent and heard is let go when its numbers are taken, so that memory is that of one trial."""

from __future__ import annotations

import gc
import weakref

import httpx
from metering import Tape, chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.meter import measure_trial
from pytest_fanout.records import Caps


def test_a_concluded_task_keeps_its_numbers_alone(model: ModelServer) -> None:
    """Without the collector's help the recording is gone; the task's meter, and what asks late, still get an answer."""

    def agent() -> None:
        with httpx.Client(base_url=model.base_url, verify=False) as client:
            client.post("/v1/chat/completions", json=chat("one two"))

    with metering() as meter:
        recorded = run_task(meter, agent).trace.exchanges
    with metering("replay") as meter:
        source = Tape(recorded)
        kept = weakref.ref(source)
        scope = meter.open_task("shop", "t", 1, Caps(), source)
        gc.disable()
        try:
            agent()
            trace = meter.close_task(scope)
            numbers = measure_trial(trace.exchanges, trace.duration_ms)
            scope.conclude(numbers)
            del source, trace
            assert kept() is None
        finally:
            gc.enable()

        assert scope.flights == []
        assert (scope.fanout, scope.tokens) == (1, numbers.samples["input_tokens"] + numbers.samples["output_tokens"])  # type: ignore[operator]
        assert scope.source is not None  # it was replayed: what it still does goes to no network
        assert scope.source.answer(recorded[0].request, "model") is None
