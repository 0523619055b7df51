"""xAI's own SDK, blocking and asyncio, over both ways in which it sends its key."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

pytest.importorskip("xai_sdk", reason="its own environment: the matrix of SDKs runs it")

from google.protobuf import json_format
from metering import Tape, metering, run_task
from rpc_server import Heard, RpcServer, chunks, completion
from xai_sdk import AsyncClient, Client
from xai_sdk.chat import system, tool, user
from xai_sdk.proto import chat_pb2

from pytest_fanout.wire.hosts import KEY_VARIABLES


@pytest.fixture(autouse=True)
def one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XAI_API_KEY", "xai-real")


def script(heard: Heard, context: grpc.ServicerContext) -> Iterator[Any]:
    """SDK messages: 5 tokens in, 2 out; a whole answer asks for a tool."""
    if heard.method.endswith("Chunk"):
        for chunk in chunks():
            yield json_format.ParseDict(chunk, chat_pb2.GetChatCompletionChunk()).SerializeToString()
        return
    call = {"id": "c1", "type": "TOOL_CALL_TYPE_CLIENT_SIDE_TOOL", "function": {"name": "find", "arguments": "{}"}}
    answer = completion()
    answer["outputs"][0]["message"]["toolCalls"] = [call]
    yield json_format.ParseDict(answer, chat_pb2.GetChatCompletionResponse()).SerializeToString()


def busy_first(heard: Heard, context: grpc.ServicerContext) -> Iterator[Any]:
    if heard.number == 1:
        context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
    yield from script(heard, context)


def ask(target: str, plain: bool) -> Any:
    client = Client(api_host=target, use_insecure_channel=plain)
    chat = client.chat.create(
        model="grok-x", messages=[system("Be kind."), user("hi")], tools=[tool("find", "finds", {"type": "object"})]
    )
    whole = chat.sample()
    for response, _ in chat.stream():
        last = response
    client.close()
    return whole, last, os.environ["XAI_API_KEY"]


async def ask_async(target: str, plain: bool) -> Any:
    client = AsyncClient(api_host=target, use_insecure_channel=plain)
    chat = client.chat.create(
        model="grok-x", messages=[system("Be kind."), user("hi")], tools=[tool("find", "finds", {"type": "object"})]
    )
    whole = await chat.sample()
    async for response, _ in chat.stream():
        last = response
    await client.close()
    return whole, last, os.environ["XAI_API_KEY"]


@pytest.mark.parametrize("plain", [True, False], ids=["metadata", "credentials"])
@pytest.mark.parametrize("agent", [ask, ask_async], ids=["blocking", "asyncio"])
def test_sdk(agent: Callable[..., Any], plain: bool) -> None:
    """Whole and streamed answers are two calls with the tokens and tools that the SDK's own objects show; the real key
    reaches the server as metadata of a call or through the channel's credentials, and the agent holds a dummy."""
    with RpcServer(script, key="xai-real", raw=True, secure=not plain) as server, metering() as meter:
        result = run_task(meter, lambda: agent(server.target, plain))

    assert result.error is None
    whole, streamed, key = result.value
    first, second = (call.last for call in result.measured.calls)
    assert [heard.metadata["authorization"] for heard in server.log] == ["Bearer xai-real"] * 2
    assert key.startswith("fanout-sealed-XAI_API_KEY-")
    for attempt, shown in ((first, whole), (second, streamed)):
        assert (attempt.input_tokens, attempt.output_tokens) == (
            shown.usage.prompt_tokens,
            shown.usage.completion_tokens,
        )
    assert [(call.id, call.name) for call in first.tool_calls] == [("c1", whole.tool_calls[0].function.name)]
    assert (result.fanout, first.model_requested, first.model_served) == (2, "grok-x", "grok-x")
    assert first.site is not None
    assert (first.site.label, first.site.tools) == ("Be kind.", ("find",))
    assert result.slugs == []


def test_retries_of_the_core() -> None:
    """The SDK lets gRPC's core repeat what was UNAVAILABLE: two calls, three requests at the server, and a notice."""
    with RpcServer(busy_first, raw=True) as server, metering() as meter:
        result = run_task(meter, lambda: ask(server.target, True))

    assert (len(server.log), result.fanout, result.measured.samples["attempts"]) == (3, 2, 2)
    assert [problem.slug for problem in result.trace.problems] == ["retried-by-transport"]


@pytest.mark.parametrize("agent", [ask, ask_async], ids=["blocking", "asyncio"])
def test_replay(agent: Callable[..., Any]) -> None:
    """From a recording the SDK's own objects say the same, with no server there."""
    with RpcServer(script, raw=True) as server, metering("record") as meter:
        target = server.target
        live = run_task(meter, lambda: agent(target, True))
    with metering("replay") as meter:
        replayed = run_task(meter, lambda: agent(target, True), source=Tape(live.trace.exchanges))

    assert (live.error, replayed.error, replayed.slugs, replayed.trace.spent_calls) == (None, None, [], 0)
    assert [part.proto for part in replayed.value[:2]] == [part.proto for part in live.value[:2]]
    assert (replayed.fanout, replayed.measured.samples["input_tokens"]) == (2, 10)
