"""What the tests of ``http.client`` share: its connections, and what an agent gets in three runs."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import closing
from typing import Any

from byte_server import RawServer
from metering import Result, Tape, chat, metering, run_task

PATH = "/v1/chat/completions"
BODY = json.dumps(chat("one two")).encode()
EVENTS = [b'data: {"choices": [{"delta": {"content": "%d"}}]}\n\n' % n for n in range(4)]
EVENTS += [b'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 4}}\n\n', b"data: [DONE]\n\n"]
SAID = b"".join(EVENTS)


def connection(url: str, timeout: float = 20) -> Any:
    return closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=timeout))


def by_urlopen(url: str) -> Any:
    with urllib.request.urlopen(url + PATH, data=BODY) as answer:
        return answer.status, answer.msg, answer.geturl(), answer.read()


def three(agent: Callable[[str], Any], pieces: Any) -> tuple[Any, Result, Result]:
    """What the agent gets without us, recorded, and replayed; the server is asked twice."""
    with RawServer(pieces if callable(pieces) else lambda asked: pieces) as server:
        bare = agent(server.base_url)
        with metering("record") as meter:
            recorded = run_task(meter, lambda: agent(server.base_url))
        with metering("replay") as meter:
            replayed = run_task(meter, lambda: agent(server.base_url), source=Tape(recorded.trace.exchanges))
        assert len(server.log) == 2
        assert server.log[0] == server.log[1]
    return bare, recorded, replayed


def ask(url: str, read: Callable[[Any], Any]) -> Any:
    with connection(url) as conn:
        conn.request("POST", PATH, BODY)
        answer = conn.getresponse()
        assert isinstance(answer, http.client.HTTPResponse)
        assert type(answer).__name__ == "HTTPResponse"
        try:
            return read(answer)
        finally:
            conn.close()
