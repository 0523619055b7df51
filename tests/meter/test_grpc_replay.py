"""gRPC calls are replayed by the library's own objects: results, errors, metadata and cancellation as recorded."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.struct_pb2 import Struct
from metering import Result, metering, run_task
from rpc_server import Heard, RpcServer, chunks, completion, pack

from pytest_fanout.records import Recording
from pytest_fanout.store.replay import ReplaySource
from pytest_fanout.store.tape import decode, encode

ONE, MANY = "/xai_api.Chat/GetCompletion", "/xai_api.Chat/GetCompletionChunk"
CODED: dict[str, Any] = {
    "request_serializer": Struct.SerializeToString,
    "response_deserializer": Struct.FromString,
}
PLAIN = pack({"model": "grok-x", "messages": [{"role": "ROLE_SYSTEM", "content": [{"text": "Be kind."}]}]})
BRIEF = (("x-request-id", "r1"),)
DETAILS = (("grpc-status-details-bin", b"\x08\x0e\xff"),)


def taped(
    agent: Callable[[str], Any], script: Callable[..., Iterator[Any]], **server: Any
) -> tuple[Result, Result, ReplaySource]:
    """One trial against a server, and the same from the file of its recording, with the server gone."""
    with RpcServer(script, **server) as made, metering("record") as meter:
        target = made.target
        live = run_task(meter, lambda: agent(target))
    recording = Recording("shop", "t", 1, "d", 0, live.trace.duration_ms, "ok", True, live.trace.exchanges)
    source: Any = ReplaySource(decode(encode(recording), "t.jsonl", ""))
    with metering("replay") as meter:
        replayed = run_task(meter, lambda: agent(target), source=source)
    return live, replayed, source


def both(agent: Callable[[str], Any], script: Callable[..., Iterator[Any]], **server: Any) -> tuple[Result, Result]:
    """The same, where each request finds its answer."""
    live, replayed, source = taped(agent, script, **server)
    assert (source.note(), source.leftover) == (None, 0)
    return live, replayed


def same(live: Result, replayed: Result) -> None:
    assert (live.error, replayed.error, replayed.slugs) == (None, None, [])
    assert replayed.value == live.value
    samples = dict(live.measured.samples)
    assert {name: replayed.measured.samples[name] for name in samples if not name.endswith("_ms")} == {
        name: value for name, value in samples.items() if not name.endswith("_ms")
    }
    assert replayed.trace.spent_calls == 0


def well(heard: Heard, context: grpc.ServicerContext) -> Iterator[dict[str, Any]]:
    context.send_initial_metadata(BRIEF)
    yield from chunks() if "Chunk" in heard.method else [completion()]


def told(call: Any) -> tuple[Any, ...]:
    """What a call of the blocking stack says of its end."""
    return call.code(), call.details(), tuple(call.initial_metadata()), tuple(call.trailing_metadata())


def blocking(target: str) -> list[Any]:
    said: list[Any] = []
    with grpc.insecure_channel(target) as channel:
        ask = channel.unary_unary(ONE, **CODED)
        said.append(ask(PLAIN))
        answer, call = ask.with_call(PLAIN)
        said += [answer, told(call)]
        future = ask.future(PLAIN)
        said += [future.result(), future.done(), future.cancelled(), future.exception(), told(future)]
        stream = channel.unary_stream(MANY, **CODED)(PLAIN)
        said += [tuple(stream.initial_metadata()), next(stream), list(stream), told(stream)]
    options = [(grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1)]
    with grpc.insecure_channel(target, options) as channel:
        stream = channel.unary_stream(MANY, **CODED)(PLAIN)
        said += [tuple(stream.initial_metadata()), list(stream), told(stream)]
    return said


async def told_async(call: Any) -> tuple[Any, ...]:
    return (
        await call.code(),
        await call.details(),
        tuple(await call.initial_metadata()),
        tuple(await call.trailing_metadata()),
        call.done(),
        call.cancelled(),
    )


async def asynchronous(target: str) -> list[Any]:
    said: list[Any] = []
    async with grpc.aio.insecure_channel(target) as channel:
        call = channel.unary_unary(ONE, **CODED)(PLAIN)
        said += [await call, await told_async(call)]
        stream = channel.unary_stream(MANY, **CODED)(PLAIN)
        said += [[message async for message in stream], await told_async(stream)]
        stream = channel.unary_stream(MANY, **CODED)(PLAIN)
        while (message := await stream.read()) is not grpc.aio.EOF:
            said.append(message)
        said.append(await told_async(stream))
        stream = channel.unary_stream(MANY, **CODED)(PLAIN)  # whose end is asked for without reading up to it
        said += [await stream.read(), await stream.read(), await told_async(stream)]
    return said


STACKS = pytest.mark.parametrize("stack", [blocking, asynchronous], ids=["blocking", "asyncio"])


@STACKS
def test_replay_equals_recording(stack: Callable[[str], Any]) -> None:
    """Each way to call gives the same messages, status and metadata as live, and the same samples; nobody listens."""
    live, replayed = both(stack, well)

    same(live, replayed)
    assert live.fanout == replayed.fanout == {blocking: 5, asynchronous: 4}[stack]
    assert replayed.measured.samples["input_tokens"] == 5 * live.fanout
    assert all(exchange.replayed for exchange in replayed.trace.exchanges)


def unlucky(heard: Heard, context: grpc.ServicerContext) -> Iterator[dict[str, Any]]:
    """UNAVAILABLE to the first request, then answers; a stream breaks after its first message."""
    context.set_trailing_metadata(DETAILS)
    if "Chunk" in heard.method:
        yield chunks()[0]
        context.abort(grpc.StatusCode.INTERNAL, "broke")
    if heard.number == 1:
        context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
    yield completion()


def failing(target: str) -> list[Any]:
    said: list[Any] = []
    with grpc.insecure_channel(target) as channel:
        ask, stream = channel.unary_unary(ONE, **CODED), channel.unary_stream(MANY, **CODED)(PLAIN)
        try:
            ask(PLAIN)
        except grpc.RpcError as error:
            said += [type(error).__name__, told(error)]
        said += [ask(PLAIN), next(stream)]
        try:
            next(stream)
        except grpc.RpcError as error:
            said += [type(error).__name__, error is stream, told(error)]
    return said


async def failing_async(target: str) -> list[Any]:
    said: list[Any] = []
    async with grpc.aio.insecure_channel(target) as channel:
        ask, stream = channel.unary_unary(ONE, **CODED), channel.unary_stream(MANY, **CODED)(PLAIN)
        try:
            await ask(PLAIN)
        except grpc.aio.AioRpcError as error:
            said += [type(error), told(error)]
        said += [await ask(PLAIN)]
        try:
            async for message in stream:
                said.append(message)
        except grpc.aio.AioRpcError as error:
            said += [type(error), told(error)]
    return said


@pytest.mark.parametrize("stack", [failing, failing_async], ids=["blocking", "asyncio"])
def test_failures(stack: Callable[[str], Any]) -> None:
    """A status comes back as the library's own error with code, text and details, also after the first message; the
    same request asked again gets the next recorded answer."""

    def script(heard: Heard, context: grpc.ServicerContext) -> Iterator[dict[str, Any]]:
        # the stream was sent first by the one stack, and last by the other
        heard.number -= sum("Chunk" in other.method for other in server[:1]) if heard.method == ONE else 0
        server.append(heard)
        yield from unlucky(heard, context)

    server: list[Heard] = []
    live, replayed = both(stack, script)

    same(live, replayed)
    codes = [part[0].name for part in live.value if isinstance(part, tuple)]
    assert codes == ["UNAVAILABLE", "INTERNAL"]
    assert all(part[3] == DETAILS for part in live.value if isinstance(part, tuple))


def slow(heard: Heard, context: grpc.ServicerContext) -> Iterator[dict[str, Any]]:
    gone = threading.Event()
    is_active = context.add_callback(gone.set)
    if "Chunk" in heard.method:
        yield chunks()[0]
    assert not is_active or gone.wait(30)
    yield completion()


def waiting(target: str) -> list[Any]:
    with grpc.insecure_channel(target) as channel:
        with pytest.raises(grpc.RpcError) as late:
            channel.unary_unary(ONE, **CODED)(PLAIN, timeout=0.05)
        future = channel.unary_unary(ONE, **CODED).future(PLAIN)
        stream = channel.unary_stream(MANY, **CODED)(PLAIN)
        said = [late.value.code(), future.running(), next(stream)]
        return [*said, future.cancel(), future.cancelled(), stream.cancel(), stream.code(), stream.cancelled()]


async def waiting_async(target: str) -> list[Any]:
    async with grpc.aio.insecure_channel(target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await channel.unary_unary(ONE, **CODED)(PLAIN, timeout=0.05)
        call = channel.unary_unary(ONE, **CODED)(PLAIN)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call, 0.05)
        stream = channel.unary_stream(MANY, **CODED)(PLAIN)
        said = [late.value.code(), call.cancelled(), await stream.read()]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stream.read(), 0.05)
        return [*said, stream.cancelled(), await stream.code()]


@pytest.mark.parametrize("stack", [waiting, waiting_async], ids=["blocking", "asyncio"])
def test_calls_that_the_agent_gives_up(stack: Callable[[str], Any]) -> None:
    """A deadline passes at once, without its wait; a call that the agent cancelled waits to be cancelled again."""
    live, replayed = both(stack, slow)

    same(live, replayed)
    answers = [(e.answer.outcome, e.answer.error) for e in live.trace.exchanges]
    assert answers == [("error", "DEADLINE_EXCEEDED"), ("error", "Cancelled"), ("closed_early", None)]


@STACKS
def test_a_cancelled_call_that_is_awaited_now(stack: Callable[[str], Any]) -> None:
    """What the recorded run cancelled has no answer: an agent that waits for it now hears CANCELLED and never hangs."""
    is_replay = False

    def agent(target: str) -> Any:
        with grpc.insecure_channel(target) as channel:
            future = channel.unary_unary(ONE, **CODED).future(PLAIN)
            return future.exception().code() if is_replay else future.cancel()

    async def agent_async(target: str) -> Any:
        async with grpc.aio.insecure_channel(target) as channel:
            call = channel.unary_unary(ONE, **CODED)(PLAIN)
            if is_replay:
                return await call.code()
            await asyncio.sleep(0)
            return call.cancel()

    def once(target: str) -> Any:
        nonlocal is_replay
        value = agent(target) if stack is blocking else asyncio.run(agent_async(target))
        is_replay = True
        return value

    live, replayed = both(once, slow)

    assert (live.value, replayed.value, replayed.error) == (True, grpc.StatusCode.CANCELLED, None)


@STACKS
def test_reading_on_where_the_recorded_run_stopped(stack: Callable[[str], Any]) -> None:
    """Of a stream that the recorded run dropped only the first messages are known: who reads on is stale."""
    wanted = [1, 2]

    def agent(target: str) -> None:
        with grpc.insecure_channel(target) as channel:
            stream = channel.unary_stream(MANY, **CODED)(PLAIN)
            for _ in range(wanted.pop(0)):
                next(stream)

    async def agent_async(target: str) -> None:
        async with grpc.aio.insecure_channel(target) as channel:
            stream = channel.unary_stream(MANY, **CODED)(PLAIN)
            for _ in range(wanted.pop(0)):
                await stream.read()

    live, replayed = both(agent if stack is blocking else agent_async, slow)

    assert (live.error, replayed.slugs) == (None, ["recording-prefix"])
    assert isinstance(replayed.error, grpc.RpcError)
    assert replayed.error.code() is grpc.StatusCode.UNAVAILABLE


def test_a_changed_prompt_is_stale() -> None:
    """A changed prompt is no recorded request: the call fails with a status that no client retries, and is told."""
    changed = pack({"model": "grok-x", "messages": [{"role": "ROLE_SYSTEM", "content": [{"text": "Be brief."}]}]})
    asked = [PLAIN, changed]

    def agent(target: str) -> Any:
        with grpc.insecure_channel(target) as channel:
            return channel.unary_unary(ONE, **CODED)(asked.pop(0))

    _, replayed, source = taped(agent, well)

    assert isinstance(replayed.error, grpc.RpcError)
    assert replayed.error.code() is grpc.StatusCode.FAILED_PRECONDITION
    note = source.note()
    assert note is not None
    assert note.changes == ('messages[0] (ROLE_SYSTEM): "Be kind." -> "Be brief."',)


def test_messages_without_a_json_form() -> None:
    """What JSON cannot say comes back as it was: bytes that no class reads, and a message that holds NaN."""
    nan = Struct()
    nan["x"] = float("nan")

    def agent(target: str) -> list[Any]:
        with grpc.insecure_channel(target) as channel:
            whole = channel.unary_unary(ONE)(b"\x0a\x01x")
            odd = channel.unary_unary(ONE, response_deserializer=Struct.FromString)(b"\x0a\x01y").SerializeToString()
            return [whole, odd, list(channel.unary_stream(MANY, response_deserializer=bytes.hex)(b"\x0a\x01x"))]

    def script(heard: Heard, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield nan.SerializeToString() if heard.request == b"\x0a\x01y" else b"\x00\xff"
        yield b""

    live, replayed = both(agent, script, raw=True)

    assert live.value == replayed.value == [b"\x00\xff", nan.SerializeToString(), ["00ff", ""]]


def test_secrets_in_answers() -> None:
    """What of an answer is a credential is redacted before it is stored, and the message is made of what is left."""

    def agent(target: str) -> Any:
        with grpc.insecure_channel(target) as channel:
            return channel.unary_unary(ONE, **CODED)(PLAIN)["password"]

    live, replayed = both(agent, lambda heard, context: iter([completion(password="hunter2 hunter2")]))

    assert (live.value, replayed.value) == ("hunter2 hunter2", "[redacted]")


def test_a_message_type_that_nobody_can_look_up() -> None:
    """The JSON of a message whose type stands in a pool of its own is kept to be read, and its bytes to come back."""
    file = descriptor_pb2.FileDescriptorProto(name="own.proto", package="own", syntax="proto3")
    file.message_type.add(name="Answer").field.add(name="id", number=1, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("own.Answer"))

    def agent(target: str) -> Any:
        with grpc.insecure_channel(target) as channel:
            return channel.unary_unary(ONE, response_deserializer=kind.FromString)(b"\x0a\x01x").id

    live, replayed = both(agent, lambda heard, context: iter([kind(id="r1").SerializeToString()]), raw=True)

    assert live.value == replayed.value == "r1"
    assert json.loads(live.trace.exchanges[0].answer.body) == {"id": "r1", "@base64": "CgJyMQ=="}
