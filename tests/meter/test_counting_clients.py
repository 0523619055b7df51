"""Every client, streamed or not, is counted as the server counted it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from metering import chat, metering, raw_post, run_task
from model_server import ModelServer

from pytest_fanout.records import Caps

Agent = Callable[[str], Any]


def openai_chat(url: str) -> None:
    with openai.OpenAI(base_url=url + "/v1", api_key="k") as client:
        client.chat.completions.create(**chat("one two"))


def openai_chat_stream(url: str) -> None:
    with openai.OpenAI(base_url=url + "/v1", api_key="k") as client:
        asked = chat("one two three", stream=True, stream_options={"include_usage": True})
        for _ in client.chat.completions.create(**asked):
            pass


def openai_responses_stream(url: str) -> None:
    with openai.OpenAI(base_url=url + "/v1", api_key="k") as client:
        with client.responses.stream(model="m", input="one two three four") as stream:
            stream.get_final_response()


def openai_over_httpx(url: str) -> None:
    with httpx.Client() as plain, openai.OpenAI(base_url=url + "/v1", api_key="k", http_client=plain) as client:
        client.chat.completions.create(**chat("one"))


def anthropic_messages(url: str) -> None:
    with anthropic.Anthropic(base_url=url, api_key="k") as client:
        client.messages.create(max_tokens=9, **chat("one two"))


def anthropic_stream(url: str) -> None:
    with anthropic.Anthropic(base_url=url, api_key="k") as client:
        with client.messages.stream(max_tokens=9, **chat("one two")) as stream:
            stream.get_final_message()


async def async_openai_stream(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="k") as client:
        asked = chat("one two", stream=True, stream_options={"include_usage": True})
        async for _ in await client.chat.completions.create(**asked):
            pass


async def async_anthropic_stream(url: str) -> None:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k") as client:
        async with client.messages.stream(max_tokens=9, **chat("one two")) as stream:
            await stream.get_final_message()


def plain_httpx(url: str) -> None:
    with httpx.Client() as client:
        client.post(url + "/v1/chat/completions", json=chat("a b c"))


def plain_httpx2(url: str) -> None:
    with httpx2.Client() as client:
        client.post(url + "/v1/messages", json=chat("a b c"))


async def async_httpx_gather(url: str) -> None:
    async with httpx.AsyncClient() as client:
        await asyncio.gather(*(client.post(url + "/v1/chat/completions", json=chat(f"q {n}")) for n in range(5)))


AGENTS: list[Agent] = [
    openai_chat,
    openai_chat_stream,
    openai_responses_stream,
    openai_over_httpx,
    anthropic_messages,
    anthropic_stream,
    async_openai_stream,
    async_anthropic_stream,
    plain_httpx,
    plain_httpx2,
    async_httpx_gather,
]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.__name__)
def test_numbers_are_the_servers(agent: Agent, model: ModelServer) -> None:
    """A6: calls, attempts and tokens of each client library equal what the server's own log says."""
    with metering() as meter:
        result = run_task(meter, lambda: agent(model.base_url))

    samples = result.measured.samples
    sent = [entry.usage for entry in model.generated if entry.usage]
    assert result.error is None
    assert (samples["fanout"], samples["attempts"]) == (len(model.generated), len(model.generated))
    assert samples["input_tokens"] == sum(usage["input"] for usage in sent)
    assert samples["output_tokens"] == sum(usage["output"] for usage in sent)
    assert result.trace.spent_calls == len(model.generated) > 0
    assert [exchange.answer.outcome for exchange in result.trace.exchanges] == ["complete"] * len(model.generated)
    assert result.slugs == []


def test_three_calls_of_three_libraries(model: ModelServer) -> None:
    """A6: three calls are three over httpx and httpx2; over a raw socket they are zero and named."""

    def with_library(library: Any) -> Callable[[], None]:
        def agent() -> None:
            with library.Client() as client:
                for number in range(3):
                    client.post(model.base_url + "/v1/chat/completions", json=chat(str(number)))

        return agent

    def raw() -> None:
        for _ in range(3):
            raw_post(model.base_url + "/v1/chat/completions")

    with metering(hosts=[f"127.0.0.1:{model.port}"]) as meter:
        results = [run_task(meter, agent) for agent in (with_library(httpx), with_library(httpx2), raw)]

    assert [result.fanout for result in results] == [3, 3, 0]
    assert [result.slugs for result in results] == [[], [], ["unhooked-model-traffic"]]


def test_client_made_before_the_meter(model: ModelServer) -> None:
    """Clients, and bound methods of them, that were made before the hooks were set are counted."""
    with httpx.Client() as old, httpx2.Client() as newer:
        send = old.send
        with metering() as meter:

            def agent() -> None:
                send(old.build_request("POST", model.base_url + "/v1/chat/completions", json=chat()))
                newer.post(model.base_url + "/v1/chat/completions", json=chat())

            result = run_task(meter, agent)

    assert result.fanout == len(model.generated) == 2


def test_first_chunk_is_not_held(model: ModelServer) -> None:
    """The first event reaches the agent long before the last one is sent."""
    model.restart([{"text": "one two three four", "chunk_delay_s": 0.08}])
    seen: list[float] = []

    def agent() -> None:
        with openai.OpenAI(base_url=model.base_url + "/v1", api_key="k") as client:
            for _ in client.chat.completions.create(**chat(stream=True)):
                seen.append(time.monotonic())

    with metering() as meter:
        result = run_task(meter, agent)

    answer = result.trace.exchanges[0].answer
    assert seen[-1] - seen[0] > 0.3
    assert len(answer.chunks) == 7 or len(answer.chunks) == 8
    assert answer.chunk_ms[-1] - answer.chunk_ms[0] > 300
    assert result.measured.unknown_usage == 1  # no stream_options: the server sent no usage, and that is not 0
    assert result.measured.samples["output_tokens"] is None


def test_stream_left_early(model: ModelServer) -> None:
    """A client that stops reading is told apart from a whole answer; its usage is unknown, its call counts."""
    model.restart([{"text": "one two three four five six", "chunk_delay_s": 0.02}])

    def agent() -> None:
        with openai.OpenAI(base_url=model.base_url + "/v1", api_key="k") as client:
            with client.chat.completions.create(**chat(stream=True)) as stream:
                next(iter(stream))

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.fanout, result.measured.unknown_usage) == (1, 1)
    assert result.trace.exchanges[0].answer.outcome == "closed_early"


def test_stream_never_read(model: ModelServer) -> None:
    """A stream that nobody reads is flushed as unread when the task ends."""
    with httpx2.Client() as client, metering() as meter:
        kept: list[Any] = []

        def agent() -> None:
            request = client.build_request("POST", model.base_url + "/v1/chat/completions", json=chat(stream=True))
            kept.append(client.send(request, stream=True))

        result = run_task(meter, agent)
        kept[0].close()

    assert result.fanout == 1
    assert result.trace.exchanges[0].answer.outcome == "unread"


def test_server_dies_in_the_stream(model: ModelServer) -> None:
    """An answer that breaks off counts as a call with unknown usage, and its outcome names the error."""
    model.restart([{"text": "one two three", "break_after": 2}])

    def agent() -> None:
        with openai.OpenAI(base_url=model.base_url + "/v1", api_key="k", max_retries=0) as client:
            for _ in client.chat.completions.create(**chat(stream=True)):
                pass

    with metering() as meter:
        result = run_task(meter, agent)

    answer = result.trace.exchanges[0].answer
    assert result.error is not None
    assert (answer.outcome, answer.error) == ("error", "RemoteProtocolError")
    assert (result.fanout, result.measured.unknown_usage) == (1, 1)


def test_sdk_retries_are_one_call(model: ModelServer) -> None:
    """Two 503s and an answer are three attempts of one call, with both SDK styles."""
    failing = {"status": 503, "headers": {"retry-after-ms": "1"}}

    def with_openai() -> None:
        with openai.OpenAI(base_url=model.base_url + "/v1", api_key="k") as client:
            client.chat.completions.create(**chat())

    def with_anthropic() -> None:
        with anthropic.Anthropic(base_url=model.base_url, api_key="k") as client:
            client.messages.create(max_tokens=9, **chat())

    with metering() as meter:
        model.restart([failing, failing, {}])
        first = run_task(meter, with_openai)
        model.restart([failing, failing, {}])
        second = run_task(meter, with_anthropic)

    for result in (first, second):
        assert (result.fanout, result.measured.samples["attempts"]) == (1, 3)
        assert result.slugs == []


def test_a_repeated_request_is_another_call(model: ModelServer) -> None:
    """An agent that sends the very same request three times has made three calls."""

    def agent() -> None:
        with openai.OpenAI(base_url=model.base_url + "/v1", api_key="k") as client:
            for _ in range(3):
                client.chat.completions.create(**chat())

    with metering() as meter:
        result = run_task(meter, agent)

    assert result.fanout == len(model.generated) == 3


def test_what_is_no_model_call(model: ModelServer) -> None:
    """A5: token counting, model lists, embeddings and tools are `other`; an unknown POST to a model host is named."""

    def agent() -> None:
        with httpx2.Client(base_url=model.base_url) as client:
            for _ in range(2):
                client.post("/v1/messages", json=chat())
                client.post("/v1/messages/count_tokens", json=chat())
            client.get("/v1/models")
            client.post("/v1/embeddings", json={"input": "a"})
            client.post("/tool/search", json={"q": 1})

    def unknown() -> None:
        transport = httpx2.MockTransport(lambda request: httpx2.Response(200, json={}))
        with httpx2.Client(transport=transport) as client:
            client.post("https://api.openai.com/v1/brains", json={})

    with metering() as meter:
        result, odd = run_task(meter, agent), run_task(meter, unknown)

    assert (result.fanout, result.measured.other, result.slugs) == (2, 5, [])
    assert (odd.fanout, odd.measured.unclassified, odd.slugs) == (0, 1, ["unclassified-request"])


def test_tool_conversation(model: ModelServer) -> None:
    """Tool calls are counted by name, and the time between asking and answering is the tool's."""
    model.restart({"rules": [{"when": {"results": 0}, "tool_calls": [{"name": "look", "id": "c1"}]}]})

    def agent() -> None:
        with openai.OpenAI(base_url=model.base_url + "/v1", api_key="k") as client:
            messages: list[Any] = [{"role": "user", "content": "hi"}]
            answer = client.chat.completions.create(model="m", messages=messages).choices[0].message
            time.sleep(0.05)
            messages += [answer.model_dump(exclude_none=True)]
            messages += [{"role": "tool", "tool_call_id": "c1", "content": "found"}]
            client.chat.completions.create(model="m", messages=messages)

    with metering() as meter:
        result = run_task(meter, agent)

    samples = result.measured.samples
    asked = [name for entry in model.generated for name in entry.tool_calls]
    assert samples["tool_calls"] == samples["tool_calls[look]"] == len(asked) == 1
    assert 50 <= (samples["tool_ms"] or 0) < 1000
    assert samples["tool_ms[look]"] == samples["tool_ms"]
    assert samples["rounds"] == 2


def test_live_counters(model: ModelServer) -> None:
    """What a test asks the running meter is what the samples will say."""
    with metering() as meter:
        scope = meter.open_task("shop", "t", 1, Caps())
        openai_chat(model.base_url)
        seen = (scope.fanout, scope.attempts, scope.tokens, scope.tool_calls, len(scope.calls))
        meter.close_task(scope)

    usage = model.generated[0].usage or {}
    assert seen == (1, 1, usage["input"] + usage["output"], 0, 1)
