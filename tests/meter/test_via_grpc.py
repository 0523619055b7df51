"""gRPC calls to model services are counted, blocking and asyncio, whole and streamed; the rest is noticed."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.struct_pb2 import Struct
from metering import Tape, metering, run_task
from rpc_server import Heard, RpcServer, chunks, completion, pack

from pytest_fanout.meter import via_grpc
from pytest_fanout.meter.rpc import rpc_url
from pytest_fanout.records import Caps, MeasureRules
from pytest_fanout.wire.hosts import KEY_VARIABLES

ONE, MANY = "/xai_api.Chat/GetCompletion", "/xai_api.Chat/GetCompletionChunk"
CODED: dict[str, Any] = {
    "request_serializer": Struct.SerializeToString,
    "response_deserializer": Struct.FromString,
}
PLAIN = pack({"model": "grok-x", "messages": [{"role": "ROLE_SYSTEM", "content": [{"text": "Be kind."}]}]})
Metadata = tuple[tuple[str, str], ...]


@pytest.fixture(autouse=True)
def one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XAI_API_KEY", "xai-real")


@pytest.fixture
def server() -> Iterator[RpcServer]:
    with RpcServer() as made:
        yield made


def blocking(target: str, *, metadata: Metadata | None = None) -> None:
    """One call in each of the five ways of the blocking stack."""
    with grpc.insecure_channel(target) as channel:
        ask = channel.unary_unary(ONE, **CODED)
        ask(PLAIN, metadata=metadata)
        ask.with_call(PLAIN, metadata=metadata)
        ask.future(PLAIN, metadata=metadata).result()
        assert len(list(channel.unary_stream(MANY, **CODED)(PLAIN, metadata=metadata))) == 2
    options = [(grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1)]
    with grpc.insecure_channel(target, options) as channel:
        assert len(list(channel.unary_stream(MANY, **CODED)(PLAIN, metadata=metadata))) == 2


async def asynchronous(target: str, *, metadata: Metadata | None = None) -> None:
    """One call in each of the three ways of the asyncio stack."""
    async with grpc.aio.insecure_channel(target) as channel:
        await channel.unary_unary(ONE, **CODED)(PLAIN, metadata=metadata)
        assert len([m async for m in channel.unary_stream(MANY, **CODED)(PLAIN, metadata=metadata)]) == 2
        call = channel.unary_stream(MANY, **CODED)(PLAIN, metadata=metadata)
        while await call.read() is not grpc.aio.EOF:
            pass


STACKS = pytest.mark.parametrize(
    ("stack", "calls", "streams"), [(blocking, 5, 2), (asynchronous, 3, 2)], ids=["blocking", "asyncio"]
)


@STACKS
def test_each_call_is_counted(stack: Callable[..., Any], calls: int, streams: int, server: RpcServer) -> None:
    """Each way to call is one model call of 5 and 2 tokens, as the server counted; a stream is kept line by line."""
    with metering() as meter:
        result = run_task(meter, lambda: stack(server.target))

    assert (result.error, len(server.log)) == (None, calls)
    assert (result.fanout, result.measured.samples["attempts"], result.trace.spent_calls) == (calls, calls, calls)
    assert (result.measured.samples["input_tokens"], result.measured.samples["output_tokens"]) == (5 * calls, 2 * calls)
    assert {(c.last.api, c.last.status, c.last.finish) for c in result.measured.calls} == {("xai.chat", "ok", "stop")}
    assert list(result.measured.sites.values()) == [calls]
    first, last = result.trace.exchanges[0], result.trace.exchanges[-1]
    assert (first.layer, first.request.method) == ("grpc", "GRPC")
    assert first.request.url == f"grpc://localhost:{server.port}{ONE}"
    assert json.loads(first.request.body)["model"] == "grok-x"
    assert json.loads(first.answer.body)["model"] == "grok-x"
    assert [json.loads(line)["id"] for line in last.answer.body.splitlines()] == ["r", "r"]
    assert sum(len(exchange.answer.chunks) == 2 for exchange in result.trace.exchanges) == streams
    assert (result.trace.problems, result.measured.problems) == ((), ())


@STACKS
def test_keys(stack: Callable[..., Any], calls: int, streams: int) -> None:
    """The server gets the real key from the metadata of a call; the agent holds a dummy, and so does what is kept."""

    def agent(target: str) -> Any:
        return stack(target, metadata=(("authorization", f"Bearer {os.environ['XAI_API_KEY']}"), ("x-other", "1")))

    with RpcServer(key="xai-real") as server, metering() as meter:
        result = run_task(meter, lambda: agent(server.target))

    assert (result.error, result.fanout) == (None, calls)
    assert {heard.metadata["x-other"] for heard in server.log} == {"1"}
    assert "xai-real" not in repr(result.trace.exchanges)
    assert ("authorization", "Bearer fanout-sealed-XAI_API_KEY") in result.trace.exchanges[0].request.headers


def test_missing_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key a call to a provider is refused unsent, whether the key is in its metadata or in the channel's
    credentials; the text names the variable."""
    monkeypatch.delenv("XAI_API_KEY")
    told: list[Any] = []

    class Plugin(grpc.AuthMetadataPlugin):  # type: ignore[misc]
        def __call__(self, context: Any, callback: Any) -> None:
            callback((("authorization", f"Bearer {os.environ['XAI_API_KEY']}"),), None)

    def agent() -> None:
        with grpc.insecure_channel("api.x.ai:443") as channel:
            channel.unary_unary(ONE, **CODED)(
                PLAIN, metadata=(("authorization", f"Bearer {os.environ['XAI_API_KEY']}"),)
            )

    with metering() as meter:
        result = run_task(meter, agent)
        from grpc import _plugin_wrapping

        _plugin_wrapping._Plugin(Plugin())(
            b"https://api.x.ai/xai_api.Chat", b"GetCompletion", lambda *a: told.append(a)
        )
        facts = meter.finish()

    text = "XAI_API_KEY is not set, and GRPC api.x.ai needs it: nothing was sent"
    assert isinstance(result.error, grpc.RpcError)
    assert (result.error.code(), result.slugs) == (grpc.StatusCode.UNAUTHENTICATED, ["missing-key"])
    assert [(metadata, details) for metadata, _, details in told] == [(None, text.encode())]
    assert [p.text for p in facts.problems] == [f"{text}\n  mend: export XAI_API_KEY=... before pytest starts"]


@STACKS
def test_replay_refuses(stack: Callable[..., Any], calls: int, streams: int, server: RpcServer) -> None:
    """What is not on the recording fails with the library's own error, and nothing is sent."""
    tape = Tape(())
    with metering("replay") as meter:
        result = run_task(meter, lambda: stack(server.target), source=tape)

    assert isinstance(result.error, grpc.RpcError)
    assert result.error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "messages.md#request-not-recorded" in result.error.details()
    assert (tape.missed, server.log, result.fanout) == (["model"], [], 0)


def test_replay_refuses_streams(server: RpcServer) -> None:
    """A refused stream of the asyncio stack fails when it is read, as any failed stream of the library does."""

    async def agent() -> list[Any]:
        async with grpc.aio.insecure_channel(server.target) as channel:
            return [message async for message in channel.unary_stream(MANY, **CODED)(PLAIN)]

    with metering("replay") as meter:
        result = run_task(meter, agent, source=Tape(()))

    assert isinstance(result.error, grpc.aio.AioRpcError)
    assert (result.error.code(), server.log) == (grpc.StatusCode.FAILED_PRECONDITION, [])


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "asyncio"])
def test_streams_of_requests_are_not_replayed(is_async: bool, server: RpcServer) -> None:
    """Nobody reads what a stream of requests says: in replay it is refused, and the task is invalid."""

    def agent() -> None:
        with grpc.insecure_channel(server.target) as channel:
            channel.stream_unary("/live.Model/Talk", **CODED)(iter([PLAIN]))

    async def agent_async() -> None:
        async with grpc.aio.insecure_channel(server.target) as channel:
            await channel.stream_unary("/live.Model/Talk", **CODED)(iter([PLAIN]))

    with metering("replay", measure=MeasureRules(model_hosts=(server.target,))) as meter:
        result = run_task(meter, agent_async if is_async else agent, source=Tape(()))

    assert isinstance(result.error, grpc.RpcError)
    assert (result.slugs, server.log) == (["stack-not-replayed"], [])
    (problem,) = result.trace.problems
    assert problem.text == (
        f"GRPC grpc://{server.target}/live.Model/Talk was refused: calls by gRPC with a stream of requests are counted,"
        " but not replayed yet\n  mend: measure this agent with --fanout-mode=live"
    )


def status(code: grpc.StatusCode, after: int = 0) -> Callable[..., Iterator[dict[str, Any]]]:
    """A script that ends each call with a status, after so many messages."""

    def script(heard: Heard, context: grpc.ServicerContext) -> Iterator[dict[str, Any]]:
        yield from chunks()[:after]
        context.abort(code, "no luck")

    return script


@pytest.mark.parametrize(
    ("code", "http"),
    [
        (grpc.StatusCode.UNAVAILABLE, 503),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 429),
        (grpc.StatusCode.UNAUTHENTICATED, 401),
        (grpc.StatusCode.INVALID_ARGUMENT, 400),
        (grpc.StatusCode.INTERNAL, 500),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_status(code: grpc.StatusCode, http: int) -> None:
    """A gRPC status is a failed attempt, and no model call."""

    def agent(target: str) -> None:
        with grpc.insecure_channel(target) as channel, pytest.raises(grpc.RpcError, match="no luck"):
            channel.unary_unary(ONE, **CODED)(PLAIN)

    with RpcServer(status(code)) as server, metering() as meter:
        result = run_task(meter, lambda: agent(server.target))

    (call,) = result.measured.calls
    assert (call.last.status, call.last.http_status, call.last.error_type) == ("error", http, code.name)
    assert (result.fanout, result.measured.samples["attempts"], call.last.usage_source) == (0, 1, "none")


def test_agent_that_asks_again() -> None:
    """The same request after UNAVAILABLE is the same call: two attempts, one call."""

    def script(heard: Heard, context: grpc.ServicerContext) -> Iterator[dict[str, Any]]:
        if heard.number == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        yield completion()

    async def agent(target: str) -> None:
        async with grpc.aio.insecure_channel(target) as channel:
            ask = channel.unary_unary(ONE, **CODED)
            with pytest.raises(grpc.aio.AioRpcError):
                await ask(PLAIN)
            await ask(PLAIN)

    with RpcServer(script) as server, metering() as meter:
        result = run_task(meter, lambda: agent(server.target))

    assert [attempt.status for attempt in result.measured.calls[0].attempts] == ["error", "ok"]
    assert (result.fanout, result.measured.samples["input_tokens"]) == (1, 5)


def stop_blocking(target: str, how: str) -> None:
    with grpc.insecure_channel(target) as channel:
        stream = channel.unary_stream(MANY, **CODED)(PLAIN)
        next(stream)
        if how == "cancelled":
            stream.cancel()
        del stream


async def stop_asynchronous(target: str, how: str) -> None:
    async with grpc.aio.insecure_channel(target) as channel:
        stream = channel.unary_stream(MANY, **CODED)(PLAIN)
        await stream.read()
        if how == "cancelled":
            stream.cancel()
        del stream


@pytest.mark.parametrize("how", ["cancelled", "dropped"])
@pytest.mark.parametrize("stop", [stop_blocking, stop_asynchronous], ids=["blocking", "asyncio"])
def test_stream_that_is_stopped(stop: Callable[..., Any], how: str) -> None:
    """A stream that the agent cancels or drops is an incomplete call; what usage came is a lower bound. It is
    cancelled at the server as it would be without us."""
    gone = threading.Event()

    def script(heard: Heard, context: grpc.ServicerContext) -> Iterator[dict[str, Any]]:
        context.add_callback(gone.set)
        yield chunks()[0]
        assert gone.wait(30)

    with RpcServer(script) as server, metering() as meter:
        result = run_task(meter, lambda: stop(server.target, how))
        assert gone.wait(30)

    (call,) = result.measured.calls
    assert (call.last.status, call.last.usage_source, call.last.output_tokens) == ("incomplete", "partial", 1)
    assert (result.fanout, result.measured.samples["output_tokens"], result.error) == (1, None, None)


def test_stream_that_fails() -> None:
    """A status after the first messages is a call whose usage is a lower bound."""

    def agent(target: str) -> None:
        with grpc.insecure_channel(target) as channel, pytest.raises(grpc.RpcError, match="no luck"):
            list(channel.unary_stream(MANY, **CODED)(PLAIN))

    with RpcServer(status(grpc.StatusCode.INTERNAL, after=1)) as server, metering() as meter:
        result = run_task(meter, lambda: agent(server.target))

    (call,) = result.measured.calls
    assert (call.last.status, call.last.error_type, call.last.input_tokens) == ("error", "INTERNAL", 5)
    assert (result.fanout, result.trace.exchanges[0].answer.outcome) == (1, "error")


def test_nobody_answers() -> None:
    """A deadline that passes is a failed attempt of which no response began."""

    def script(heard: Heard, context: grpc.ServicerContext) -> Iterator[dict[str, Any]]:
        gone = threading.Event()
        context.add_callback(gone.set)
        gone.wait(30)
        yield completion()

    def agent(target: str) -> None:
        with grpc.insecure_channel(target) as channel, pytest.raises(grpc.RpcError, match="DEADLINE"):
            channel.unary_unary(ONE, **CODED)(PLAIN, timeout=0.05)

    with RpcServer(script) as server, metering() as meter:
        result = run_task(meter, lambda: agent(server.target))

    (call,) = result.measured.calls
    assert (call.last.status, call.last.http_status, result.fanout) == ("error", None, 0)
    assert result.trace.exchanges[0].answer.error == "DEADLINE_EXCEEDED"


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "asyncio"])
def test_cap(is_async: bool, server: RpcServer) -> None:
    """A call beyond a cap is refused before it is sent, whatever the agent swallows."""

    def agent() -> None:
        with grpc.insecure_channel(server.target) as channel:
            for _ in range(5):
                try:
                    channel.unary_unary(ONE, **CODED)(PLAIN)
                except Exception:
                    continue

    async def agent_async() -> None:
        async with grpc.aio.insecure_channel(server.target) as channel:
            for _ in range(5):
                try:
                    await channel.unary_unary(ONE, **CODED)(PLAIN)
                except Exception:
                    continue

    with metering() as meter:
        result = run_task(meter, agent_async if is_async else agent, caps=Caps(fanout=2))

    assert (type(result.error).__name__, result.trace.capped) == ("TaskStopped", "fanout")
    assert (len(server.log), result.fanout) == (2, 2)


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "asyncio"])
def test_cap_of_tokens(is_async: bool, server: RpcServer) -> None:
    """What a call has cost is known when it ends: 7 tokens each, so that the third goes beyond 10 and is not sent."""

    def agent() -> None:
        with grpc.insecure_channel(server.target) as channel:
            for _ in range(5):
                channel.unary_unary(ONE, **CODED)(PLAIN)

    async def agent_async() -> None:
        async with grpc.aio.insecure_channel(server.target) as channel:
            for _ in range(5):
                await channel.unary_unary(ONE, **CODED)(PLAIN)

    with metering() as meter:
        result = run_task(meter, agent_async if is_async else agent, caps=Caps(tokens=10))

    assert (len(server.log), result.trace.capped) == (2, "tokens")


def test_calls_from_interceptors(server: RpcServer) -> None:
    """What an interceptor repeats is seen each time: it goes over the wire each time."""

    class Twice(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
        def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:
            go_on(details, request).result()
            return go_on(details, request)

    class TwiceAsync(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
        async def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:
            await (await go_on(details, request))
            return await go_on(details, request)

    async def asyncio_agent() -> None:
        async with grpc.aio.insecure_channel(server.target, interceptors=[TwiceAsync()]) as channel:
            await channel.unary_unary(ONE, **CODED)(PLAIN)

    def agent() -> None:
        with grpc.insecure_channel(server.target) as channel:
            grpc.intercept_channel(channel, Twice()).unary_unary(ONE, **CODED)(PLAIN)
        asyncio.run(asyncio_agent())

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.error, len(server.log), result.fanout) == (None, 4, 4)


def test_retries_below_the_hook_are_said() -> None:
    """gRPC's core repeats calls by a policy of the channel where nobody sees it: a notice says so."""

    def script(heard: Heard, context: grpc.ServicerContext) -> Iterator[dict[str, Any]]:
        if heard.number < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        yield completion()

    policy = {"maxAttempts": 5, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1,
              "retryableStatusCodes": ["UNAVAILABLE"]}  # fmt: skip
    config = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": policy}]})

    def agent(target: str) -> None:
        with grpc.insecure_channel(target, [("grpc.service_config", config)]) as channel:
            channel.unary_unary(ONE, **CODED)(PLAIN)

    with RpcServer(script) as server, metering() as meter:
        result = run_task(meter, lambda: agent(server.target))

    text = f"the client's transport retries GRPC localhost:{server.port} by itself: attempts holds one for all of them"
    assert (len(server.log), result.fanout, result.measured.samples["attempts"]) == (3, 1, 1)
    assert [(p.slug, p.text, p.verdict) for p in result.trace.problems] == [("retried-by-transport", text, "notice")]


def test_other_methods(server: RpcServer) -> None:
    """A method that no rule names is unclassified at a model host; at any other server it is left alone and listed."""
    name = "/vectors.Index/Search"

    def agent() -> None:
        with grpc.insecure_channel(server.target) as channel:
            for _ in range(2):
                channel.unary_unary(name, **CODED)(PLAIN)

    with metering() as meter:
        tool = run_task(meter, agent)
    with metering(measure=MeasureRules(strict_egress=True)) as meter:
        strict = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(()))
    with metering(measure=MeasureRules(model_hosts=(server.target,))) as meter:
        scope = meter.open_task("shop", "t", 1, Caps())
        agent()
        hosted = scope.measured()
        meter.close_task(scope)

    text = f"gRPC called vectors.Index/Search at localhost:{server.port}, which is not recorded"
    assert [(p.slug, p.text, p.verdict) for p in tool.trace.problems] == [("unhooked-peer", text, "notice")]
    assert [(p.slug, p.verdict) for p in strict.trace.problems] == [("unhooked-peer", "invalid")]
    assert [tool.trace.exchanges, replayed.slugs, len(server.log)] == [(), [], 8]
    assert [p.slug for p in hosted.problems] == ["unclassified-request"]
    assert hosted.unclassified == 2


def test_streams_of_requests_are_noticed(server: RpcServer) -> None:
    """A call with a stream of requests to a model host is not read, and is not silent."""

    def agent() -> None:
        with grpc.insecure_channel(server.target) as channel:
            channel.stream_unary("/live.Model/Talk", **CODED)(iter([PLAIN]))
            asyncio.run(agent_async())

    async def agent_async() -> None:
        async with grpc.aio.insecure_channel(server.target) as channel:
            await channel.stream_unary("/live.Model/Talk", **CODED)(iter([PLAIN]))

    with metering(measure=MeasureRules(model_hosts=(server.target,))) as meter:
        scope = meter.open_task("shop", "t", 1, Caps())
        agent()
        measured = scope.measured()
        meter.close_task(scope)

    assert (measured.unclassified, [problem.slug for problem in measured.problems]) == (2, ["unclassified-request"])


def test_vertex_by_grpc() -> None:
    """Vertex by gRPC is asked and answers in the JSON of Gemini's API, whole and streamed: 20 tokens in, 50 out."""
    service = "/google.cloud.aiplatform.v1.PredictionService/"
    question = pack({"model": "projects/p/locations/l/publishers/google/models/gemini-x", "contents": []})
    usage = {"promptTokenCount": 20, "candidatesTokenCount": 5, "thoughtsTokenCount": 45, "totalTokenCount": 70}
    said = {"content": {"role": "model", "parts": [{"text": "ok"}]}}

    def script(heard: Heard, context: grpc.ServicerContext) -> Iterator[dict[str, Any]]:
        if "Stream" in heard.method:
            yield {"candidates": [said], "usageMetadata": {"promptTokenCount": 20, "totalTokenCount": 20}}
        yield {"candidates": [{**said, "finishReason": "STOP"}], "usageMetadata": usage, "modelVersion": "gemini-x-1"}

    def agent(target: str) -> None:
        with grpc.insecure_channel(target) as channel:
            channel.unary_unary(service + "GenerateContent", **CODED)(question)
            list(channel.unary_stream(service + "StreamGenerateContent", **CODED)(question))

    with RpcServer(script) as server, metering() as meter:
        result = run_task(meter, lambda: agent(server.target))

    last = [call.last for call in result.measured.calls]
    assert [(a.api, a.status, a.input_tokens, a.output_tokens, a.stream) for a in last] == [
        ("gemini.generate", "ok", 20, 50, False),
        ("gemini.generate", "ok", 20, 50, True),
    ]
    assert result.measured.models_requested == ("gemini-x",)
    assert result.measured.models_served == ("gemini-x-1",)
    assert result.slugs == []


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "asyncio"])
def test_streams_side_by_side(is_async: bool, server: RpcServer) -> None:
    """Streams of one method object that run at once keep their messages apart."""

    def agent() -> None:
        with grpc.insecure_channel(server.target) as channel:
            ask = channel.unary_stream(MANY, **CODED)
            streams = [ask(PLAIN) for _ in range(3)]
            for _ in range(2):
                for stream in streams:
                    next(stream)
            assert [list(stream) for stream in streams] == [[], [], []]

    async def agent_async() -> None:
        async with grpc.aio.insecure_channel(server.target) as channel:
            ask = channel.unary_stream(MANY, **CODED)
            streams = [ask(PLAIN) for _ in range(3)]
            for _ in range(3):
                for stream in streams:
                    await stream.read()

    with metering() as meter:
        result = run_task(meter, agent_async if is_async else agent)

    assert (result.error, result.fanout) == (None, 3)
    assert [len(exchange.answer.chunks) for exchange in result.trace.exchanges] == [2, 2, 2]
    assert [call.last.total_tokens for call in result.measured.calls] == [7, 7, 7]


def test_messages_that_are_no_protobuf(server: RpcServer) -> None:
    """Bytes without a message class are counted; what they say is not known, which is said."""

    def agent(target: str) -> None:
        with grpc.insecure_channel(target) as channel:
            channel.unary_unary(ONE)(b"\x0a\x01x")

    with RpcServer(lambda heard, context: iter([b"\x00\xff"]), raw=True) as raw, metering() as meter:  # type: ignore[arg-type,return-value]
        result = run_task(meter, lambda: agent(raw.target))

    assert (result.error, result.fanout, result.measured.unknown_usage) == (None, 1, 1)
    assert json.loads(result.trace.exchanges[0].request.body) == {"base64": "CgF4"}


def test_threads_of_the_agent(server: RpcServer) -> None:
    """Calls from the agent's threads are the agent's: 32 calls from 8 threads are 32."""

    def agent() -> None:
        with grpc.insecure_channel(server.target) as channel:
            ask = channel.unary_unary(ONE, **CODED)
            threads = [threading.Thread(target=lambda: [ask(PLAIN) for _ in range(4)]) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.fanout, result.measured.samples["input_tokens"], len(server.log)) == (32, 160, 32)


@pytest.mark.parametrize(
    ("target", "where"),
    [
        ("api.x.ai:443", "api.x.ai:443"),
        ("api.x.ai", "api.x.ai:443"),
        ("dns:///api.x.ai:8443", "api.x.ai:8443"),
        ("dns://1.1.1.1/api.x.ai", "api.x.ai:443"),
        ("dns:api.x.ai:50051", "api.x.ai:50051"),
        ("localhost:50051", "localhost:50051"),
        ("ipv4:127.0.0.1:50051,10.0.0.1:50051", "127.0.0.1:50051"),
        ("ipv6:[::1]:50051", "[::1]:50051"),
        ("unix:/run/model.sock", "localhost"),
    ],
)
def test_targets(target: str, where: str) -> None:
    """A channel's target is read as gRPC reads it; without a port it is 443."""
    assert rpc_url(target, ONE) == f"grpc://{where}{ONE}"


def test_prove_finds_a_patch_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-check names each hook that no longer sees what passes."""
    from grpc import _channel

    with metering() as meter:
        assert [via_grpc.prove(module, meter._seam) for module in (_channel, grpc.aio._call)] == [[], []]
        with monkeypatch.context() as patch:
            patch.setattr(_channel._UnaryUnaryMultiCallable, "with_call", lambda *_: None)
            assert via_grpc.prove(_channel, meter._seam) == ["grpc._channel._UnaryUnaryMultiCallable.with_call"]
