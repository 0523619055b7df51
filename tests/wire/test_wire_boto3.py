"""The worked examples of Bedrock against boto3 itself: its parser reads our bytes, and its numbers are ours.

The client is real up to the point where it would send; there the answer is handed to it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anthropic
import boto3
import httpx2
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.eventstream import EventStreamBuffer
from botocore.exceptions import ClientError, EventStreamError
from wire_examples import EXAMPLES, Example

from pytest_fanout.records import Attempt
from pytest_fanout.wire import read_call
from pytest_fanout.wire.endpoints import model_in_url
from pytest_fanout.wire.eventstream import parse_frames

BEDROCK = [example for example in EXAMPLES.values() if "/model/" in example.url]
FRAMED = [example for example in BEDROCK if example.form in ("frames", "chunks")]
CONVERSED = [example for example in BEDROCK if "/converse" in example.url]
by_id = {"ids": lambda example: example.id}


class _Body(io.BytesIO):
    def stream(self, size: int = 1024) -> Iterator[bytes]:
        while piece := self.read(size):
            yield piece


class Bedrock:
    """A boto3 client that hears what it is told; ``sent`` are its requests."""

    def __init__(self) -> None:
        self.sent: list[AWSPreparedRequest] = []
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, b"")
        self.client = boto3.client(
            "bedrock-runtime",
            region_name="us-east-1",
            aws_access_key_id="none",
            aws_secret_access_key="none",
            config=Config(retries={"total_max_attempts": 1}),
        )
        self.client.meta.events.register("before-send.bedrock-runtime", self._send)

    def _send(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        self.sent.append(request)
        status, headers, body = self.answer
        return AWSResponse(request.url, status, headers, _Body(body))

    def ask(self, example: Example, status: int = 200) -> Any:
        """What the client makes of the example's answer."""
        self.answer = (status, example.headers, example.body)
        model = model_in_url(example.url)
        operation = example.url.rpartition("/")[2]
        if operation.startswith("converse"):
            call = self.client.converse_stream if operation.endswith("-stream") else self.client.converse
            return call(modelId=model, messages=[{"role": "user", "content": [{"text": "Hi"}]}])
        is_streamed = operation.endswith("stream")
        call = self.client.invoke_model_with_response_stream if is_streamed else self.client.invoke_model
        return call(modelId=model, body=b"{}")


@pytest.fixture(scope="module")
def bedrock() -> Bedrock:
    return Bedrock()


def read(bedrock: Bedrock, example: Example) -> Attempt:
    """Our reading of the exchange that boto3 has just had."""
    request = bedrock.sent[-1]
    attempt = read_call("POST", request.url, request.body or b"", 200, example.headers, example.body)
    assert attempt is not None
    return attempt


class Heard(NamedTuple):
    """What boto3 says of an answer: total usage, stop reason, tools."""

    usage: dict[str, int] | None
    stop: str | None
    tools: list[tuple[str, str]]


def hear(answer: Any) -> Heard:
    """The answer as an application takes it from boto3's objects."""
    if "stream" not in answer:
        content = answer["output"]["message"]["content"]
        tools = [block["toolUse"] for block in content if "toolUse" in block]
        return Heard(
            answer["usage"],
            answer["stopReason"],
            [(tool["name"], json.dumps(tool["input"])) for tool in tools if "type" not in tool],
        )
    usage, stop = None, None
    opened: dict[int, Any] = {}
    for event in answer["stream"]:
        if start := event.get("contentBlockStart", {}).get("start", {}).get("toolUse"):
            opened[event["contentBlockStart"]["contentBlockIndex"]] = [start, ""]
        if piece := event.get("contentBlockDelta", {}).get("delta", {}).get("toolUse"):
            opened[event["contentBlockDelta"]["contentBlockIndex"]][1] += piece["input"]
        stop = event.get("messageStop", {}).get("stopReason", stop)
        usage = event.get("metadata", {}).get("usage", usage)
    pieces = [(tool["name"], text or "{}") for tool, text in opened.values() if "type" not in tool]
    return Heard(usage, stop, pieces)


@pytest.mark.parametrize("example", FRAMED, **by_id)
def test_botocore_frames_as_we_do(example: Example) -> None:
    """botocore's own buffer takes the same events out of the same bytes, and finds every checksum right."""
    buffer = EventStreamBuffer()
    buffer.add_data(example.body)
    theirs = [(message.headers[":message-type"], message.payload) for message in buffer]

    assert [(frame.kind, frame.payload) for frame in parse_frames(example.body)] == theirs
    assert theirs


@pytest.mark.parametrize("example", [e for e in CONVERSED if e.id != "BR3"], **by_id)
def test_boto3_hears_what_we_read(bedrock: Bedrock, example: Example) -> None:
    """Usage, reason to stop and client tools of boto3's objects are those of our record, for the URL that it asks."""
    heard = hear(bedrock.ask(example))
    attempt = read(bedrock, example)

    assert urlsplit(bedrock.sent[-1].url).path == urlsplit(example.url).path
    assert attempt.model_requested == model_in_url(example.url)
    assert attempt.finish_raw == heard.stop
    assert [(call.name, json.loads(call.arguments)) for call in attempt.tool_calls] == [
        (name, json.loads(text)) for name, text in heard.tools
    ]
    if heard.usage is None:
        assert attempt.usage_source == "missing"
        return
    parts = ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
    assert attempt.input_tokens == sum(heard.usage.get(part, 0) for part in parts)
    assert attempt.output_tokens == heard.usage["outputTokens"]
    assert attempt.total_tokens == heard.usage["totalTokens"]


@pytest.mark.parametrize("name", ["BR3", "BI12"])
def test_boto3_raises_where_we_read_a_failure(bedrock: Bedrock, name: str) -> None:
    """An exception frame is an error in the client, and a failed call here, by the same name."""
    answer = bedrock.ask(EXAMPLES[name])
    with pytest.raises(EventStreamError) as raised:
        list(answer.get("stream") or answer.get("body"))

    assert raised.value.response["Error"]["Code"] == read(bedrock, EXAMPLES[name]).error_type


@pytest.mark.parametrize("example", [e for e in BEDROCK if "/invoke" in e.url and e.id != "BI12"], **by_id)
def test_boto3_hands_on_the_body_that_we_read(bedrock: Bedrock, example: Example) -> None:
    """What the application gets of Invoke is the model's own body, whole or in chunks, and reads as the answer does."""
    answer = bedrock.ask(example)
    attempt = read(bedrock, example)
    if example.form == "document":
        assert answer["body"].read() == example.body
        return
    events = [json.loads(event["chunk"]["bytes"]) for event in answer["body"]]

    assert attempt.status == "ok"
    assert "amazon-bedrock-invocationMetrics" in events[-1]


@pytest.mark.parametrize("name", ["BI1", "BI2"])
def test_anthropics_client_for_bedrock_hears_what_we_read(name: str) -> None:
    """Anthropic's own client speaks Invoke, over httpx2 and without boto3's parser; its usage is ours."""
    example = EXAMPLES[name]
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=example.headers, content=example.body))
    client = anthropic.AnthropicBedrock(
        aws_region="us-east-1",
        aws_access_key="none",
        aws_secret_key="none",
        http_client=httpx2.Client(transport=transport),
    )
    is_streamed = name == "BI2"
    model = "anthropic.claude-x-v1:0"
    asked: Any = {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    if is_streamed:
        usage: dict[str, int] = {}
        for event in client.messages.create(**asked, stream=True):
            told = getattr(getattr(event, "message", event), "usage", None)
            usage |= {key: value for key, value in (told.to_dict() if told else {}).items() if value is not None}
    else:
        usage = client.messages.create(**asked).usage.to_dict()
    attempt = read_call("POST", example.url, b"{}", 200, example.headers, example.body)

    parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    assert attempt is not None
    assert attempt.input_tokens == sum(usage[part] for part in parts)
    assert attempt.output_tokens == usage["output_tokens"]


def test_boto3_stops_where_a_checksum_does_not_hold(bedrock: Bedrock) -> None:
    """A damaged frame ends the stream for the client as for us."""
    example = EXAMPLES["BR2"]
    body = bytearray(example.body)
    body[-5] ^= 1
    bedrock.answer = (200, example.headers, bytes(body))
    answer = bedrock.client.converse_stream(modelId="m", messages=[{"role": "user", "content": [{"text": "Hi"}]}])
    events = iter(answer["stream"])
    heard = [next(events) for _ in range(6)]

    with pytest.raises(Exception, match=r"[Cc]hecksum"):
        next(events)
    assert list(heard[-1]) == ["messageStop"]


@pytest.mark.parametrize(
    ("status", "headers", "body", "name"),
    [
        (429, {"x-amzn-ErrorType": "ThrottlingException"}, b'{"message":"slow down"}', "ThrottlingException"),
        (
            424,
            {"x-amzn-errortype": "ModelErrorException:http://internal.amazon.com/coral/com.amazon.bedrock/"},
            b'{"message":"m","originalStatusCode":500}',
            "ModelErrorException",
        ),
        (400, {}, b'{"__type":"com.amazon.bedrock#ValidationException","message":"m"}', "ValidationException"),
        (503, {"x-amzn-errortype": "ServiceUnavailableException"}, b"{}", "ServiceUnavailableException"),
    ],
)
def test_a_refusal_has_the_name_that_boto3_gives_it(
    bedrock: Bedrock, status: int, headers: dict[str, str], body: bytes, name: str
) -> None:
    """The name of an error comes from its header, or from the body; nothing was used; the request id is kept."""
    headers = {**headers, "x-amzn-RequestId": "req-1", "retry-after": "3"}
    bedrock.answer = (status, headers, body)
    with pytest.raises(ClientError) as raised:
        bedrock.client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "Hi"}]}])
    attempt = read_call("POST", bedrock.sent[-1].url, b"{}", status, headers, body)

    assert raised.value.response["Error"]["Code"] == name
    assert raised.value.response["ResponseMetadata"]["RequestId"] == "req-1"
    assert attempt is not None
    assert (attempt.status, attempt.usage_source, attempt.error_type) == ("error", "none", name)
    assert (attempt.request_id, attempt.retry_after_s) == ("req-1", 3.0)
