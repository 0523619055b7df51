"""Background runs of the real SDK: what the caps know of them once a poll has told."""

from __future__ import annotations

from typing import Any

import openai
from metering import Tape, metering, run_task
from model_server import Logged, ModelServer

from pytest_fanout.errors import TaskStopped
from pytest_fanout.records import Caps

RUN = {
    "object": "response", "created_at": 1, "model": "gpt-x", "output": [], "parallel_tool_calls": True,
    "tool_choice": "auto", "tools": [], "error": None, "usage": None,
}  # fmt: skip
USAGE = {
    "input_tokens": 70, "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 30, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 100,
}  # fmt: skip


def runs_of_100_tokens(entry: Logged) -> dict[str, Any]:
    """Each POST begins a run; the second poll of a run says that it has ended."""
    if entry.method == "POST":
        number = entry.json["input"]
        return {"json": {**RUN, "id": f"resp_{number}", "status": "queued"}}
    run_id, polls = entry.path.rpartition("/")[2], seen.setdefault(entry.path, [])
    polls.append(entry)
    if len(polls) == 1:
        return {"json": {**RUN, "id": run_id, "status": "in_progress"}}
    return {"json": {**RUN, "id": run_id, "status": "completed", "usage": USAGE}}


seen: dict[str, list[Logged]] = {}


def agent_with(base_url: str) -> None:
    with openai.OpenAI(base_url=base_url + "/v1", api_key="k") as client:
        for number in range(9):
            run = client.responses.create(model="gpt-x", input=str(number), background=True)
            while run.status != "completed":
                run = client.responses.retrieve(run.id)
            client.responses.retrieve(run.id)  # asking again costs nothing


def test_tokens_of_background_runs_count_toward_the_cap(model: ModelServer) -> None:
    """Runs of 100 tokens under a cap of 250 are stopped after the third; polls are no calls, live and in replay."""
    seen.clear()
    model.restart(runs_of_100_tokens)
    with metering() as meter:
        live = run_task(meter, lambda: agent_with(model.base_url), caps=Caps(tokens=250))
    tape = Tape(live.trace.exchanges)
    with metering("replay") as meter:
        again = run_task(meter, lambda: agent_with("http://localhost:1"), caps=Caps(tokens=250), source=tape)

    assert [entry.method for entry in model.log] == ["POST", "GET", "GET", "GET"] * 3
    for result in (live, again):
        assert isinstance(result.error, TaskStopped)
        assert result.trace.capped == "tokens"
        samples = result.measured.samples
        assert [samples[name] for name in ("fanout", "attempts", "input_tokens", "output_tokens")] == [3, 3, 210, 90]
        assert (result.measured.other, result.measured.unknown_usage, result.slugs) == (9, 0, [])
