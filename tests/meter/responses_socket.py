"""A scripted server of the Responses API's WebSocket mode, on loopback; its log is the ground truth."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

#: ``(message, its number from 1, send)``: what the server does when the client sent a message.
Script = Callable[[dict[str, Any], int, "Send"], None]
Send = Callable[[dict[str, Any]], None]


def response(number: int, status: str, usage: tuple[int, int] | None = None, **more: Any) -> dict[str, Any]:
    """A response object; ``usage`` is (input, output) in tokens."""
    made = {"id": f"resp_{number}", "object": "response", "model": "m-x", "status": status, "output": [], **more}
    if usage is not None:
        made["usage"] = {"input_tokens": usage[0], "output_tokens": usage[1], "total_tokens": sum(usage)}
    return made


def events(
    number: int, usage: tuple[int, int] = (5, 2), *, previous: Any = None, **lane: Any
) -> Iterator[dict[str, Any]]:
    """The events of one whole answer; ``lane`` is ``stream_id=...`` or nothing."""
    started = response(number, "in_progress", usage=None, previous_response_id=previous)
    yield {"type": "response.created", "response": started, **lane}
    yield {"type": "response.output_text.delta", "delta": "ok", "output_index": 0, "item_id": "i", **lane}
    yield {"type": "response.completed", "response": response(number, "completed", usage), **lane}


def answer(message: dict[str, Any], number: int, send: Send) -> None:
    """5 tokens in, 2 out."""
    lane = {"stream_id": message["stream_id"]} if "stream_id" in message else {}
    for event in events(number, previous=message.get("previous_response_id"), **lane):
        send(event)


class ResponsesSocket:
    """The server; ``url`` is the base URL of an OpenAI client."""

    def __init__(self, script: Script = answer, *, key: str | None = None) -> None:
        self.script = script
        self.key = key  # the one that is let in; None: everybody
        self.handshakes: list[dict[str, str]] = []  # headers, names in lower case
        self.paths: list[str] = []
        self.got: list[dict[str, Any]] = []
        self._server: Server = serve(self._talk, "127.0.0.1", 0, process_request=self._greet)
        self.port = self._server.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, name="responses-socket", daemon=True)

    @property
    def creates(self) -> list[dict[str, Any]]:
        return [message for message in self.got if message["type"] == "response.create"]

    def __enter__(self) -> ResponsesSocket:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()

    def _greet(self, connection: ServerConnection, request: Request) -> Response | None:
        self.paths.append(request.path)
        self.handshakes.append({name.lower(): value for name, value in request.headers.raw_items()})
        if self.key is not None and request.headers.get("Authorization") != f"Bearer {self.key}":
            return connection.respond(401, "wrong key\n")
        return None

    def _talk(self, connection: ServerConnection) -> None:
        def send(event: dict[str, Any]) -> None:
            if event.get("type") == "hang up":
                connection.socket.shutdown(2)
            else:
                connection.send(json.dumps(event))

        try:
            for message in connection:
                self.got.append(json.loads(message))
                self.script(self.got[-1], len(self.got), send)
        except ConnectionClosed:
            return
