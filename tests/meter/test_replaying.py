"""Replay at the seam: same bytes, same numbers, no network, and misses that no SDK retries."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from metering import Result, Tape, chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.records import Caps, Exchange, MeasureRules


def record(agent: Any, **settings: Any) -> Result:
    with metering("record", **settings) as meter:
        return run_task(meter, agent)


def replay(agent: Any, tape: Tape, **settings: Any) -> Result:
    with metering("replay", **settings) as meter:
        return run_task(meter, agent, source=tape)


def heard(exchange: Exchange) -> tuple[Any, ...]:
    return exchange.request.body, exchange.answer, exchange.started_ms, exchange.role, exchange.bucket


def mixed_agent(url: str) -> list[str]:
    said = []
    with openai.OpenAI(base_url=url + "/v1") as one, anthropic.Anthropic(base_url=url) as other:
        said.append(str(one.chat.completions.create(**chat("a b")).choices[0].message.content))
        asked = chat("c d e", stream=True, stream_options={"include_usage": True})
        said += [c.choices[0].delta.content or "" for c in one.chat.completions.create(**asked) if c.choices]
        with one.responses.stream(model="m", input="f g") as stream:
            said.append(stream.get_final_response().output_text)
        with other.messages.stream(max_tokens=9, **chat("h i")) as talk:
            said += list(talk.text_stream)
        with httpx2.Client() as client:
            said.append(client.get(url + "/tool/look?q=1").text)
    return said


async def parallel_agent(url: str) -> list[str]:
    async with openai.AsyncOpenAI(base_url=url + "/v1") as client:
        jobs = (client.chat.completions.create(**chat(f"question {number}")) for number in range(4))
        return [str(answer.choices[0].message.content) for answer in await asyncio.gather(*jobs)]


@pytest.mark.parametrize("agent", [mixed_agent, parallel_agent], ids=lambda agent: agent.__name__)
def test_replay_equals_recording(agent: Any, model: ModelServer) -> None:
    """The agent hears the same, the samples are equal in every field, and nothing reaches the server."""
    recorded = record(lambda: agent(model.base_url))
    before = len(model.log)
    tape = Tape(recorded.trace.exchanges)
    replayed = replay(lambda: agent(model.base_url), tape)

    assert recorded.error is None
    assert replayed.error is None
    assert before == len(recorded.trace.exchanges) == len(model.log)
    assert replayed.value == recorded.value
    # Calls made at once may be sent in another order; what each said and heard, and when, is the same.
    assert sorted(map(heard, replayed.trace.exchanges), key=repr) == sorted(
        map(heard, recorded.trace.exchanges), key=repr
    )
    assert {exchange.replayed for exchange in replayed.trace.exchanges} == {True}
    same = dict(recorded.measured.samples), dict(replayed.measured.samples)
    for samples in same:
        samples.pop("duration_ms")
    assert same[0] == same[1]
    assert replayed.slugs == []
    assert (replayed.trace.misses, replayed.trace.spent_calls, recorded.trace.spent_calls) == (0, 0, 4)


def test_parallel_calls_stay_parallel(model: ModelServer) -> None:
    """Calls that an agent makes at once are in flight at once in replay too, so that the cap on them holds there."""

    async def agent() -> None:
        async with httpx2.AsyncClient(base_url=model.base_url) as client:
            await asyncio.gather(*(client.post("/v1/chat/completions", json=chat(str(n))) for n in range(4)))

    recorded = record(agent)
    tape = Tape(recorded.trace.exchanges)
    with metering("replay") as meter:
        capped = run_task(meter, agent, source=tape, caps=Caps(parallel_calls=3))

    assert recorded.trace.capped is None
    assert capped.trace.capped == "parallel_calls"


def test_miss_is_not_retried(model: ModelServer) -> None:
    """A request that is not on the recording gets one 400 from both SDKs, without waiting; the miss is counted."""

    def agent() -> list[tuple[str, str]]:
        errors = []
        with openai.OpenAI(base_url=model.base_url + "/v1") as one, anthropic.Anthropic(base_url=model.base_url) as two:
            for ask in (
                lambda: one.chat.completions.create(**chat()),
                lambda: two.messages.create(max_tokens=9, **chat()),
            ):
                try:
                    ask()
                except (openai.BadRequestError, anthropic.BadRequestError) as error:
                    errors.append((type(error).__name__, error.response.json()["error"]["message"]))
        return errors

    begun = time.monotonic()
    result = replay(agent, Tape(()))

    text = (
        "pytest-fanout: this model request is not on the recording of task 't', and replay goes to no network;"
        " see docs/messages.md#request-not-recorded"
    )
    assert result.value == [("BadRequestError", text)] * 2
    assert (result.trace.misses, len(model.log), result.fanout) == (2, 0, 0)
    assert [exchange.role for exchange in result.trace.exchanges] == ["refused", "refused"]
    assert time.monotonic() - begun < 5


def test_replay_without_a_recording_sends_nothing(model: ModelServer) -> None:
    """In replay a task that has no source at all still goes to no network, tools included."""

    def agent() -> list[int]:
        with httpx2.Client() as client:
            asked = client.post(model.base_url + "/v1/chat/completions", json=chat())
            return [asked.status_code, client.get(model.base_url + "/tool/x").status_code]

    with metering("replay") as meter:
        result = run_task(meter, agent)

    assert (result.value, model.log, result.trace.misses) == ([400, 400], [], 2)


def test_waits_before_retries_are_cut(model: ModelServer) -> None:
    """Recorded failures are retried at once, whatever retry-after says; counts stay, the record keeps the header."""
    model.restart([{"status": 503}, {"status": 429, "retry_after": 1}, {}])

    def agent() -> str:
        with openai.OpenAI(base_url=model.base_url + "/v1") as client:
            return str(client.chat.completions.create(**chat()).choices[0].message.content)

    recorded = record(agent)
    begun = time.monotonic()
    replayed = replay(agent, Tape(recorded.trace.exchanges))
    took = time.monotonic() - begun

    assert recorded.trace.duration_ms > 1000
    assert took < 1
    assert (replayed.fanout, replayed.measured.samples["attempts"], replayed.value) == (1, 3, "echo: hi")
    assert ("retry-after", "1") in replayed.trace.exchanges[1].answer.headers


def test_errors_are_replayed(model: ModelServer) -> None:
    """A connection that failed and a stream that broke fail again, by the same exceptions, in the same places."""
    model.restart([{"text": "one two three", "break_after": 2}])

    def agent() -> list[str]:
        names = []
        with httpx2.Client() as client:
            try:
                client.post("http://127.0.0.1:1/v1/chat/completions", json=chat())
            except httpx2.TransportError as error:
                names.append(type(error).__name__)
            try:
                with client.stream("POST", model.base_url + "/v1/chat/completions", json=chat(stream=True)) as answer:
                    for chunk in answer.iter_raw():
                        names.append(chunk.decode()[:5])
            except httpx2.TransportError as error:
                names.append(type(error).__name__)
        return names

    recorded = record(agent)
    replayed = replay(agent, Tape(recorded.trace.exchanges))

    assert recorded.value[0] == "ConnectError"
    assert recorded.value[-1] == "RemoteProtocolError"
    assert replayed.value == recorded.value
    assert replayed.fanout == recorded.fanout == 1


def test_given_up_call_is_given_up_again(model: ModelServer) -> None:
    """A call that the agent stopped waiting for times out in replay as well."""
    model.restart([{"delay_s": 0.5}])

    async def agent() -> str:
        async with httpx2.AsyncClient() as client:
            try:
                await asyncio.wait_for(client.post(model.base_url + "/v1/chat/completions", json=chat()), 0.1)
            except TimeoutError:
                return "gave up"
        return "answered"

    recorded = record(agent)
    replayed = replay(agent, Tape(recorded.trace.exchanges))

    assert (recorded.value, replayed.value) == ("gave up", "gave up")
    assert replayed.measured.samples["attempts"] == recorded.measured.samples["attempts"] == 1


def test_reading_beyond_the_recorded_prefix(model: ModelServer) -> None:
    """An agent that reads on where the recorded run stopped gets an error, and the trial is stale, not short."""
    model.restart([{"text": "one two three four five six", "chunk_delay_s": 0.05}])

    def reading(chunks: int) -> Any:
        def agent() -> int:
            read = 0
            with httpx2.Client() as client:
                with client.stream("POST", model.base_url + "/v1/chat/completions", json=chat(stream=True)) as answer:
                    for _ in answer.iter_raw():
                        read += 1
                        if read == chunks:
                            break
            return read

        return agent

    tape = record(reading(2)).trace.exchanges
    same, more = replay(reading(2), Tape(tape)), replay(reading(99), Tape(tape))

    assert (same.value, same.slugs) == (2, [])
    assert isinstance(more.error, httpx2.ReadError)
    assert [(p.slug, p.text, p.verdict) for p in more.trace.problems] == [
        (
            "recording-prefix",
            "task 't' reads on where the recorded run stopped reading (request 1): only the first part of that answer"
            " is known\n  mend: record the task anew",
            "stale",
        )
    ]


def test_gzip_is_kept_as_it_came() -> None:
    """A compressed answer is recorded with its coding, read for its usage, and decoded by the client in replay."""
    import gzip
    import json

    body = {"choices": [], "model": "x", "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}}
    packed = gzip.compress(json.dumps(body).encode())

    def serve(request: httpx2.Request) -> httpx2.Response:
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        return httpx2.Response(200, headers=headers, content=packed)

    def agent() -> Any:
        with httpx2.Client(transport=httpx2.MockTransport(serve)) as client:
            return client.post("http://localhost:9/v1/chat/completions", json=chat()).json()

    recorded = record(agent)
    replayed = replay(agent, Tape(recorded.trace.exchanges))

    assert recorded.trace.exchanges[0].answer.body == packed
    assert recorded.value == replayed.value == body
    assert replayed.measured.samples["input_tokens"] == recorded.measured.samples["input_tokens"] == 7


def test_hosts_with_a_rule(model: ModelServer) -> None:
    """Ignored hosts hear nothing and answer 204; passthrough and live inputs stay live in replay, the latter marked."""
    port = model.port
    with ModelServer() as other, ModelServer() as prompts:
        rules = MeasureRules(
            ignore=("traces.example",),
            passthrough=(f"127.0.0.1:{other.port}",),
            live_inputs=(f"127.0.0.1:{prompts.port}",),
        )

        def agent() -> list[int]:
            with httpx2.Client() as client:
                return [
                    client.post("http://traces.example/v1/traces", content=b"x").status_code,
                    client.get(other.base_url + "/tool/a").status_code,
                    client.get(prompts.base_url + "/tool/prompt").status_code,
                    client.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=chat()).status_code,
                ]

        recorded = record(agent, measure=rules)
        replayed = replay(agent, Tape(recorded.trace.exchanges), measure=rules)

        assert recorded.value == replayed.value == [204, 200, 200, 200]
        assert (len(other.log), len(prompts.log), len(model.log)) == (2, 2, 1)
        kept = [(exchange.role, exchange.live_input) for exchange in replayed.trace.exchanges]
        assert kept == [("tool", True), ("model", False)]


def test_model_endpoint_is_never_let_by(model: ModelServer) -> None:
    """No rule opens a hole: a generation path on an ignored or passthrough host is counted, and refused in replay."""
    peer = f"127.0.0.1:{model.port}"

    def agent() -> int:
        with httpx2.Client() as client:
            return client.post(model.base_url + "/v1/chat/completions", json=chat()).status_code

    for rules in (MeasureRules(passthrough=(peer,)), MeasureRules(ignore=(peer,)), MeasureRules(live_inputs=(peer,))):
        model.restart()
        with metering(measure=rules) as meter:
            live = run_task(meter, agent)
        missed = replay(agent, Tape(()), measure=rules)

        assert (live.fanout, live.value, missed.value, len(model.log)) == (1, 200, 400, 1)


def test_redaction_before_keeping_and_looking(model: ModelServer) -> None:
    """What the redact hook changes is kept changed, and looked up changed, so that a replay still fits."""
    from dataclasses import replace

    def redact(request: Any, answer: Any) -> Any:
        return replace(request, body=request.body.replace(b"4711", b"****")), answer

    def agent() -> int:
        with httpx2.Client() as client:
            return client.post(model.base_url + "/v1/chat/completions", json=chat("card 4711")).status_code

    recorded = record(agent, redact=redact)
    replayed = replay(agent, Tape(recorded.trace.exchanges), redact=redact)

    assert b"4711" in model.generated[0].body
    assert b"4711" not in recorded.trace.exchanges[0].request.body
    assert (replayed.value, replayed.trace.misses) == (200, 0)
