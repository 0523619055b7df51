"""A long streamed answer: every chunk reaches the agent, the numbers are exact, and what is held stays small."""

from __future__ import annotations

import httpx2
import openai
from metering import Tape, chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.records import Exchange

WORDS = 4_000


def held(exchanges: tuple[Exchange, ...]) -> int:
    return sum(len(exchange.answer.body) for exchange in exchanges)


def ask(server: ModelServer) -> int:
    """Words that the agent hears."""
    with openai.OpenAI(base_url=server.base_url + "/v1", api_key="k") as client:
        stream = client.chat.completions.create(**chat(stream=True, stream_options={"include_usage": True}))
        return sum(bool(chunk.choices and chunk.choices[0].delta.content) for chunk in stream)


def test_live_only_the_frame_of_a_long_stream_is_held() -> None:
    """Of some 700 KB in 4,000 chunks at most 130 KB are held (the window is 64 KB), and the usage is exact."""
    with ModelServer([{"text": " ".join(["word"] * WORDS)}]) as server, metering("live") as meter:
        result = run_task(meter, lambda: ask(server))

    assert result.value == WORDS
    assert held(result.trace.exchanges) < 130_000
    assert result.measured.samples["output_tokens"] == WORDS
    assert result.measured.calls[0].last.finish == "stop"
    assert result.slugs == []


def test_what_a_long_stream_does_not_tell_stays_unknown() -> None:
    """Without its usage nothing is estimated from what is still held of a long stream; of a short one all is held."""

    def agent(server: ModelServer) -> None:
        httpx2.post(server.base_url + "/v1/chat/completions", json=chat(stream=True))

    script = [{"text": " ".join(["word"] * words), "usage": False} for words in (WORDS, 10)]
    with ModelServer(script) as server, metering("live") as meter:
        long, short = (run_task(meter, lambda: agent(server)) for _ in script)

    assert (long.measured.samples["output_tokens"], long.measured.calls[0].last.usage_source) == (None, "missing")
    assert short.measured.calls[0].last.usage_source in ("estimated", "missing"), "the tokenizer is an extra"
    assert (long.fanout, long.measured.unknown_usage) == (1, 1)


def test_in_record_mode_every_chunk_is_kept() -> None:
    """What is recorded is the whole answer, so that its replay says the same words."""
    with ModelServer([{"text": " ".join(["word"] * WORDS)}]) as server:
        with metering("record") as meter:
            recorded = run_task(meter, lambda: ask(server))
        with metering("replay") as meter:
            replayed = run_task(meter, lambda: ask(server), source=Tape(recorded.trace.exchanges))

    assert held(recorded.trace.exchanges) > 500_000
    assert replayed.value == WORDS
    assert replayed.measured.samples == {
        **recorded.measured.samples,
        "duration_ms": replayed.measured.samples["duration_ms"],
    }


def test_a_stream_of_another_kind_is_held_whole() -> None:
    """Of a tool's long answer nothing is known, so nothing of it is left out."""
    with ModelServer([{"json": {"rows": ["x" * 100] * 2_000}}]) as server, metering("live") as meter:
        result = run_task(meter, lambda: httpx2.post(server.base_url + "/tool/search", json={}).read())

    assert held(result.trace.exchanges) == len(result.value) > 200_000
