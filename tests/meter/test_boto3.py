"""boto3 with a server that speaks Bedrock's Converse: calls, retries and event streams, counted and replayed."""

from __future__ import annotations

import json
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.stub import Stubber
from byte_server import CUT, Asked, RawServer, chunked, plain
from metering import Result, Tape, metering, run_task

MODEL = "anthropic.claude-x"
ASKED = [{"role": "user", "content": [{"text": "hi"}]}]
USAGE = {"inputTokens": 7, "outputTokens": 2, "totalTokens": 9}
ANSWER = json.dumps(
    {
        "output": {"message": {"role": "assistant", "content": [{"text": "hello you"}]}},
        "stopReason": "end_turn",
        "usage": USAGE,
        "metrics": {"latencyMs": 1},
    }
).encode()


def event(kind: str, **body: Any) -> bytes:
    """A frame of the event stream: two lengths and their checksum, headers, body, checksum of all."""
    headers = b""
    for name, value in ((":event-type", kind), (":content-type", "application/json"), (":message-type", "event")):
        headers += bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    data = json.dumps(body).encode()
    head = struct.pack(">II", 16 + len(headers) + len(data), len(headers))
    frame = head + struct.pack(">I", zlib.crc32(head)) + headers + data
    return frame + struct.pack(">I", zlib.crc32(frame))


EVENTS = [
    event("messageStart", role="assistant"),
    event("contentBlockDelta", contentBlockIndex=0, delta={"text": "hello"}),
    event("contentBlockDelta", contentBlockIndex=0, delta={"text": " you"}),
    event("contentBlockStop", contentBlockIndex=0),
    event("messageStop", stopReason="end_turn"),
    event("metadata", usage=USAGE, metrics={"latencyMs": 1}),
]


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def client(url: str, **retries: Any) -> Any:
    config = Config(retries={"mode": "standard", "max_attempts": 3} | retries, parameter_validation=False)
    return boto3.client("bedrock-runtime", endpoint_url=url, region_name="us-east-1", config=config)


def converse(made: Any) -> str:
    return str(made.converse(modelId=MODEL, messages=ASKED)["output"]["message"]["content"][0]["text"])


def both(agent: Any, answer: Any) -> tuple[Result, Result, list[Asked]]:
    """Recorded and replayed, and what the server was asked."""
    with RawServer(answer) as server:
        with metering("record") as meter:
            recorded = run_task(meter, lambda: agent(server.base_url))
        asked = len(server.log)
        with metering("replay") as meter:
            replayed = run_task(meter, lambda: agent(server.base_url), source=Tape(recorded.trace.exchanges))
        assert len(server.log) == asked
        return recorded, replayed, server.log


def numbers(result: Result) -> tuple[Any, ...]:
    return result.fanout, result.measured.samples["attempts"]


def test_two_failures_and_an_answer() -> None:
    """S1: 503, 503, 200 of botocore's own retries are one call of three attempts, by the invocation id."""
    statuses = iter([503, 503, 200])
    recorded, replayed, asked = both(lambda url: converse(client(url)), lambda asked: plain(ANSWER, next(statuses)))

    assert len({one.headers["amz-sdk-invocation-id"] for one in asked}) == 1
    assert [one.headers["amz-sdk-request"].split(";")[0] for one in asked] == ["attempt=1", "attempt=2", "attempt=3"]
    for result in (recorded, replayed):
        assert (numbers(result), result.value) == ((1, 3), "hello you")
        assert [exchange.answer.status for exchange in result.trace.exchanges] == [503, 503, 200]


def test_event_stream() -> None:
    """The frames of a streamed answer pass one by one, and come back one by one."""

    def agent(url: str) -> list[Any]:
        return list(client(url).converse_stream(modelId=MODEL, messages=ASKED)["stream"])

    pieces = chunked(EVENTS, "application/vnd.amazon.eventstream")
    recorded, replayed, asked = both(agent, lambda asked: pieces)

    assert [list(one) for one in recorded.value] == [
        ["messageStart"],
        ["contentBlockDelta"],
        ["contentBlockDelta"],
        ["contentBlockStop"],
        ["messageStop"],
        ["metadata"],
    ]
    assert recorded.value == replayed.value
    assert recorded.trace.exchanges[0].answer.chunks == tuple(EVENTS)
    assert (numbers(recorded), numbers(replayed), len(asked)) == ((1, 1), (1, 1), 1)
    assert asked[0].target == f"/model/{MODEL}/converse-stream"


def test_event_stream_closed_early_and_cut() -> None:
    """A stream that the agent closes, and one that breaks off, end as they do without us, live and replayed."""

    def leaving(url: str) -> Any:
        stream = client(url).converse_stream(modelId=MODEL, messages=ASKED)["stream"]
        said = next(iter(stream))
        stream.close()
        return said

    def to_the_end(url: str) -> Any:
        said: list[Any] = []
        try:
            said += client(url).converse_stream(modelId=MODEL, messages=ASKED)["stream"]
        except Exception as error:
            said.append(type(error))
        return said

    whole = chunked(EVENTS, "application/vnd.amazon.eventstream")
    left = both(leaving, lambda asked: whole)
    cut = both(to_the_end, lambda asked: [*whole[:3], CUT])
    with RawServer(lambda asked: [*whole[:3], CUT]) as server:
        bare = to_the_end(server.base_url)

    assert left[0].value == left[1].value == {"messageStart": {"role": "assistant"}}
    assert [one.trace.exchanges[0].answer.chunks for one in left[:2]] == [(EVENTS[0],)] * 2
    assert cut[0].value == cut[1].value == bare
    assert [one.trace.exchanges[0].answer.outcome for one in cut[:2]] == ["error"] * 2


def test_streaming_body() -> None:
    """A body that boto3 hands out unread is read as ever: whole, in parts, by lines."""

    def agent(url: str) -> Any:
        made, said = client(url), []
        for read in (lambda b: b.read(), lambda b: [b.read(5), b.read()], lambda b: list(b.iter_lines()), list):
            said.append(read(made.invoke_model(modelId=MODEL, body=b"{}")["body"]))
        return said

    recorded, replayed, asked = both(agent, lambda asked: plain(ANSWER))

    assert recorded.value == replayed.value
    assert recorded.value[0] == b"".join(recorded.value[1]) == ANSWER
    assert (numbers(recorded), len(asked)) == ((4, 4), 4)


def test_clients_of_the_module_and_of_threads() -> None:
    """A client made before anything is measured, asked by 4 threads 20 times, makes 20 calls, each heard right."""

    def answer(asked: Asked) -> list[bytes]:
        text = json.loads(asked.body)["messages"][0]["content"][0]["text"]
        return plain(ANSWER.replace(b"hello you", text.encode()))

    with RawServer(answer) as server:
        made = client(server.base_url)

        def ask(number: int) -> str:
            asked = [{"role": "user", "content": [{"text": f"n{number}"}]}]
            return str(made.converse(modelId=MODEL, messages=asked)["output"]["message"]["content"][0]["text"])

        def agent() -> list[str]:
            with ThreadPoolExecutor(4) as pool:
                return list(pool.map(ask, range(20)))

        with metering("record") as meter:
            recorded = run_task(meter, agent)
            facts = meter.finish()
        with metering("replay") as meter:
            replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))

    assert recorded.value == replayed.value == [f"n{number}" for number in range(20)]
    assert (numbers(recorded), numbers(replayed), facts.unattributed, len(server.log)) == ((20, 20), (20, 20), 0, 20)


def test_errors_as_botocore_tells_them() -> None:
    """A refusal of the service, and no service at all, raise what they raise without us, live and replayed."""

    def agent(url: str) -> Any:
        kinds: list[Any] = []
        for where in (url, "http://127.0.0.1:1"):
            try:
                converse(client(where, max_attempts=1))
            except ClientError as error:
                kinds.append(error.response["Error"]["Code"])
            except EndpointConnectionError as error:
                kinds.append(type(error))
        return kinds

    refusal = plain(b'{"message": "no"}', 403, x_amzn_ErrorType="AccessDeniedException")
    recorded, replayed, _ = both(agent, lambda asked: refusal)

    assert recorded.value == replayed.value == ["AccessDeniedException", EndpointConnectionError]


def test_a_miss_is_not_retried() -> None:
    """A request that is not on the recording hears one 400, whatever botocore's retry mode."""
    for mode in ("legacy", "standard"):
        with metering("replay") as meter:
            result = run_task(meter, lambda m=mode: converse(client("http://127.0.0.1:1", mode=m)), source=Tape(()))
        assert isinstance(result.error, ClientError)
        assert (result.trace.misses, len(result.trace.exchanges)) == (1, 1)


def test_stubbed_clients_send_nothing() -> None:
    """What botocore's Stubber answers is no HTTP: nothing is counted, and nothing reaches a network."""
    made = client("http://127.0.0.1:1")

    def agent() -> str:
        with Stubber(made) as stubbed:
            stubbed.add_response("converse", json.loads(ANSWER), {"modelId": MODEL, "messages": ASKED})
            return converse(made)

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.value, result.fanout, result.trace.exchanges, result.slugs) == ("hello you", 0, (), [])
