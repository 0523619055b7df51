"""What an agent that stands on urllib3 sends and sees: bodies, objects and heads are what they are without us."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
import requests
import urllib3
from byte_server import RawServer, plain
from metering import Tape, chat, metering, run_task
from urllib3.util import Retry

PATH = "/v1/chat/completions"


def bodies() -> dict[str, Callable[[], dict[str, Any]]]:
    text = json.dumps(chat("ö")).encode()
    return {
        "bytes": lambda: {"data": text},
        "text": lambda: {"data": text.decode()},
        "bytearray": lambda: {"data": bytearray(text)},
        "file": lambda: {"data": io.BytesIO(text)},
        "file-read-on": lambda: {"data": _after(io.BytesIO(b"skip" + text), 4)},
        "generator": lambda: {"data": (text[at : at + 9] for at in range(0, len(text), 9))},
        "multipart": lambda: {"files": {"f": ("n.json", io.BytesIO(text))}},
        "form": lambda: {"data": {"a": "1", "b": "ö"}},
        "none": dict,
    }


def _after(file: io.BytesIO, at: int) -> io.BytesIO:
    file.seek(at)
    return file


@pytest.mark.parametrize("kind", bodies())
def test_bodies_go_out_as_without_us(kind: str) -> None:
    """Whatever a body is made of, the server gets the bytes and framing that it gets without us, and we keep them."""
    with RawServer(lambda asked: plain(b"{}")) as server:

        def agent() -> None:
            requests.post(server.base_url + PATH, **bodies()[kind]())

        agent()
        with metering() as meter:
            result = run_task(meter, agent)
    bare, counted = server.log

    boundary = bare.headers.get("content-type", "").rpartition("boundary=")[2].encode()
    other = counted.headers.get("content-type", "").rpartition("boundary=")[2].encode()
    assert (counted.method, counted.chunked) == (bare.method, bare.chunked)
    assert counted.body == (bare.body.replace(boundary, other) if kind == "multipart" else bare.body)
    assert {n: v for n, v in counted.headers.items() if n != "content-type"} == {
        n: v for n, v in bare.headers.items() if n != "content-type"
    }
    assert result.trace.exchanges[0].request.body == counted.body


def test_a_file_is_sent_again_after_a_failure() -> None:
    """urllib3 rewinds a file before its own retry: each attempt carries the whole of it."""
    statuses = iter([503, 200])
    with RawServer(lambda asked: plain(b"{}", next(statuses))) as server, urllib3.PoolManager() as pools:

        def agent() -> int:
            retry = Retry(2, status_forcelist=[503], allowed_methods=None)
            return pools.request("POST", server.base_url + PATH, body=io.BytesIO(b"{} " * 9), retries=retry).status

        with metering() as meter:
            result = run_task(meter, agent)

    assert [asked.body for asked in server.log] == [b"{} " * 9] * 2
    assert (result.value, result.measured.samples["attempts"]) == (200, 2)


def test_the_agent_sees_its_own_objects() -> None:
    """Types, attributes and headers of an answer are those of the library, live and replayed."""
    packed = gzip.compress(json.dumps({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}).encode())
    answer = plain(packed, content_encoding="gzip", x_request_id="r-1", set_cookie="a=b")

    def agent(url: str) -> Any:
        with requests.Session() as session:
            got = session.post(url + PATH, json=chat(), hooks={"response": lambda r, **_: seen.append(r.status_code)})
            assert isinstance(got.raw, urllib3.HTTPResponse)
            assert type(got.raw).__name__ == "HTTPResponse"
            assert got.elapsed.total_seconds() >= 0
            headers = {name: got.headers[name] for name in ("content-type", "x-request-id", "content-encoding")}
            return got.json(), headers, session.cookies.get_dict(), got.reason, got.ok, got.raw.version

    seen: list[int] = []
    with RawServer(lambda asked: answer) as server:
        with metering("record") as meter:
            recorded = run_task(meter, lambda: agent(server.base_url))
        with metering("replay") as meter:
            replayed = run_task(meter, lambda: agent(server.base_url), source=Tape(recorded.trace.exchanges))

    assert recorded.error is None
    assert (
        recorded.value[:3] == replayed.value[:3] == (json.loads(gzip.decompress(packed)), recorded.value[1], {"a": "b"})
    )
    assert (recorded.value[3], replayed.value[3:]) == ("Said", ("OK", True, 11))
    assert recorded.trace.exchanges[0].answer.body == packed
    assert recorded.measured.samples["input_tokens"] == replayed.measured.samples["input_tokens"] == 7
    assert (seen, len(server.log)) == ([200, 200], 1)


def test_a_tool_is_replayed_with_its_head() -> None:
    """A tool's HEAD, 204 and error answers come back as they came."""
    answers = {"/gone": plain(b'{"no": 1}', 404), "/done": [b"HTTP/1.1 204 Done\r\n\r\n"], "/size": plain(b"")}

    def agent(url: str) -> Any:
        got = [requests.get(url + "/gone"), requests.delete(url + "/done"), requests.head(url + "/size")]
        return [(one.status_code, one.content) for one in got]

    with RawServer(lambda asked: answers[asked.target]) as server:
        with metering("record") as meter:
            recorded = run_task(meter, lambda: agent(server.base_url))
        with metering("replay") as meter:
            replayed = run_task(meter, lambda: agent(server.base_url), source=Tape(recorded.trace.exchanges))

    assert recorded.value == replayed.value == [(404, b'{"no": 1}'), (204, b""), (200, b"")]
    assert len(server.log) == 3
