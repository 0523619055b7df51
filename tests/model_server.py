"""A scripted model server for tests and demos: stdlib only, on 127.0.0.1, with its own log as the ground truth.

In a test: ``with ModelServer(script) as server: ... server.base_url ... server.log``.
As a process: ``python tests/model_server.py --port-file F [--script S.json] [--log-file L.jsonl]``.

Paths: POST /v1/chat/completions, /v1/responses, /v1/messages (streamed or not), /v1/messages/count_tokens,
/v1/embeddings, GET /v1/models, any method /tool/<name> (echo), any method /redirect/<path> (307 to /<path>).

A *rule* says how one request is answered; all keys are optional:
  text           answer text; default "echo: " and the last user text
  tool_calls     [{"name": ..., "arguments": {...}, "id": ...}]
  usage          {"input", "cached", "cache_write", "output", "reasoning"}; False: none at all
                 default: input = words of the messages, output = words of the answer
  status         HTTP status of an error (429, 500, 503, 529, ...); ``retry_after``: seconds for its header
  break_after    stream: cut the connection after that many events; plain: after that many bytes of the body
  delay_s        before the response begins;  chunk_delay_s  before each event after the first
  model          the model served; default the one asked for
  headers        further response headers
  json           the whole body of a /tool/ answer, or of any plain answer
A *script* is None (echo), a list of rules (one a request to a model endpoint or tool, then echo), a callable
``(Logged) -> rule | None``, or {"rules": [rule with "when", ...], "default": rule} where ``when`` holds any of
``path`` (prefix), ``contains`` (text in the body), ``results`` (tool results in the request), ``times`` (uses left).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Rule = Mapping[str, Any]
GENERATE = {"/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "messages"}


@dataclass
class Logged:
    """One request that reached the server. ``usage`` is what was sent back (None: none), ``status`` None: cut off."""

    method: str
    path: str  # without query
    query: str
    headers: dict[str, str]  # lower-case names
    body: bytes
    started: float
    json: Any = None
    status: int | None = None
    usage: dict[str, int] | None = None
    tool_calls: list[str] = field(default_factory=list)
    ended: float | None = None

    @property
    def dialect(self) -> str | None:
        return GENERATE.get(self.path)


class ModelServer:
    """The server; ``base_url`` has no path (add ``/v1`` for OpenAI clients)."""

    def __init__(self, script: Any = None, *, host: str = "127.0.0.1", log_file: str | None = None) -> None:
        self.log: list[Logged] = []
        self._script = script
        self._taken = 0
        self._uses: dict[int, int] = {}
        self._lock = threading.Lock()
        self._log_file = log_file
        handler = type("Handler", (_Handler,), {"model": self})
        self._server = _Server((host, 0), handler)
        self.port = self._server.server_address[1]
        self.base_url = f"http://{host}:{self.port}"
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ModelServer:
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, name="model-server", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.drop_connections()
        self._server.server_close()
        if self._thread is not None:
            self._thread.join()

    @property
    def generated(self) -> list[Logged]:
        """Requests to generation endpoints only."""
        return [entry for entry in self.log if entry.dialect]

    def restart(self, script: Any = None) -> None:
        """Empty the log and take another script."""
        with self._lock:
            self.log.clear()
            self._script, self._taken, self._uses = script, 0, {}

    def serve_forever(self) -> None:
        self._server.serve_forever(poll_interval=0.1)

    def rule_for(self, entry: Logged) -> Rule:
        script = self._script
        with self._lock:
            if callable(script):
                return script(entry) or {}
            if isinstance(script, list | tuple):
                index, self._taken = self._taken, self._taken + 1
                return script[index] if index < len(script) else {}
            if isinstance(script, Mapping):
                for number, rule in enumerate(script.get("rules", ())):
                    if self._fits(number, rule.get("when", {}), entry):
                        self._uses[number] = self._uses.get(number, 0) + 1
                        return rule
                return script.get("default", {})
        return {}

    def _fits(self, number: int, when: Mapping[str, Any], entry: Logged) -> bool:
        if not entry.path.startswith(when.get("path", "")):
            return False
        if when.get("contains", "") not in entry.body.decode("utf-8", "replace"):
            return False
        if "results" in when and when["results"] != count_results(entry.json):
            return False
        return self._uses.get(number, 0) < when.get("times", 1 << 60)

    def note(self, entry: Logged) -> None:
        if self._log_file is None:
            return
        line = {"method": entry.method, "path": entry.path, "status": entry.status, "usage": entry.usage,
                "headers": entry.headers, "body": entry.body.decode("utf-8", "replace")}  # fmt: skip
        with self._lock, open(self._log_file, "a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")


def text_of(part: Any) -> str:
    """All words of a message, an input item or a list of them."""
    if isinstance(part, str):
        return part
    if isinstance(part, list):
        return " ".join(filter(None, map(text_of, part)))
    if isinstance(part, Mapping):
        return " ".join(filter(None, (text_of(part.get(key)) for key in ("text", "content", "output"))))
    return ""


def words_in(body: Any) -> int:
    """Whitespace words of system prompt and messages: the default ``input`` of usage."""
    if not isinstance(body, Mapping):
        return 0
    return sum(len(text_of(body.get(key)).split()) for key in ("system", "instructions", "messages", "input"))


def count_results(body: Any) -> int:
    """Tool results that a request carries, in any of the three dialects."""
    if isinstance(body, list):
        return sum(map(count_results, body))
    if not isinstance(body, Mapping):
        return 0
    own = body.get("role") == "tool" or body.get("type") in ("tool_result", "function_call_output")
    return int(own) + sum(count_results(body[key]) for key in ("messages", "input", "content") if key in body)


def last_user_text(body: Any) -> str:
    if not isinstance(body, Mapping):
        return ""
    items = body.get("messages", body.get("input", ""))
    if isinstance(items, list):
        users = [item for item in items if isinstance(item, Mapping) and item.get("role") == "user"]
        return text_of(users[-1]) if users else ""
    return text_of(items)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def drop_connections(self) -> None:
        for connection in list(self._open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is part of many tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: ModelServer

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: the log is ``ModelServer.log``."""

    def _serve(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length) if length else b""
        if "chunked" in (self.headers.get("transfer-encoding") or ""):
            body = b"".join(self._read_chunks())
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        entry = Logged(self.command, path, query, headers, body, time.monotonic())
        try:
            entry.json = json.loads(body) if body else None
        except ValueError:
            entry.json = None
        self.model.log.append(entry)
        try:
            self._answer(entry)
        finally:
            entry.ended = time.monotonic()
            self.model.note(entry)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = _serve

    def _read_chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _answer(self, entry: Logged) -> None:
        if entry.path.startswith("/redirect/"):
            target = "/" + entry.path.removeprefix("/redirect/")
            return self._plain(entry, 307, b"", {"location": target})
        if entry.path == "/v1/models":
            return self._json(entry, 200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})
        if entry.path == "/v1/messages/count_tokens":
            return self._json(entry, 200, {"input_tokens": words_in(entry.json)})
        if entry.path == "/v1/embeddings":
            used = words_in(entry.json)
            return self._json(entry, 200, {
                "object": "list", "model": "scripted-embedding",
                "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}],
                "usage": {"prompt_tokens": used, "total_tokens": used},
            })  # fmt: skip
        rule = self.model.rule_for(entry)
        if rule.get("delay_s"):
            time.sleep(rule["delay_s"])
        if rule.get("status", 200) >= 400:
            return self._error(entry, rule)
        if "json" in rule:
            return self._json(entry, rule.get("status", 200), rule["json"], rule)
        if entry.path.startswith("/tool/"):
            name = entry.path.removeprefix("/tool/")
            return self._json(entry, 200, {"tool": name, "query": entry.query, "got": entry.json}, rule)
        if entry.dialect is None:
            return self._json(entry, 404, {"error": {"message": f"no such path: {entry.path}"}})
        return self._generate(entry, rule)

    def _generate(self, entry: Logged, rule: Rule) -> None:
        dialect, body = entry.dialect or "", entry.json if isinstance(entry.json, Mapping) else {}
        text = rule.get("text")
        calls = [dict(call) for call in rule.get("tool_calls", ())]
        if text is None:
            text = "" if calls else f"echo: {last_user_text(body)}"
        number = len(self.model.log)
        for index, call in enumerate(calls):
            call.setdefault("id", f"call_{number}_{index}")
            call.setdefault("arguments", {})
        entry.tool_calls = [call["name"] for call in calls]
        usage: dict[str, int] | None = None
        if rule.get("usage") is not False:
            usage = {
                "input": words_in(body),
                "cached": 0,
                "cache_write": 0,
                "output": len(text.split()),
                "reasoning": 0,
            }
            usage.update(rule.get("usage") or {})
        entry.usage = usage
        model = rule.get("model") or body.get("model") or "scripted"
        answer = Answer(f"{number}", model, text, calls, usage)
        if not body.get("stream"):
            return self._json(entry, 200, PLAIN[dialect](answer), rule)
        options = body.get("stream_options") or {}
        if dialect == "chat" and not options.get("include_usage"):
            answer.usage = entry.usage = None
        return self._stream(entry, list(STREAMED[dialect](answer)), rule)

    def _json(self, entry: Logged, status: int, document: Any, rule: Rule = {}) -> None:  # noqa: B006
        headers = {"content-type": "application/json", **rule.get("headers", {})}
        self._plain(entry, status, json.dumps(document).encode(), headers, rule.get("break_after"))

    def _plain(
        self, entry: Logged, status: int, body: bytes, headers: Mapping[str, str], cut: int | None = None
    ) -> None:
        self._head(status, {**headers, "content-length": str(len(body))})
        if cut is not None:
            self.wfile.write(body[:cut])
            return self._hang_up()
        entry.status = status
        if self.command != "HEAD":
            self.wfile.write(body)
        return None

    def _error(self, entry: Logged, rule: Rule) -> None:
        status = rule["status"]
        kind = {429: "rate_limit_error", 529: "overloaded_error"}.get(status, "api_error")
        headers = {"content-type": "application/json", **rule.get("headers", {})}
        if "retry_after" in rule:
            headers["retry-after"] = str(rule["retry_after"])
        document = {"type": "error", "error": {"type": kind, "code": kind, "message": f"scripted {status}"}}
        self._plain(entry, status, json.dumps(document).encode(), headers)

    def _stream(self, entry: Logged, events: list[str], rule: Rule) -> None:
        headers = {"content-type": "text/event-stream", "transfer-encoding": "chunked", **rule.get("headers", {})}
        self._head(200, headers)
        cut = rule.get("break_after", len(events) + 1)
        for index, event in enumerate(events):
            if index >= cut:
                entry.usage = None
                return self._hang_up()
            if index and rule.get("chunk_delay_s"):
                time.sleep(rule["chunk_delay_s"])
            data = event.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        entry.status = 200
        self.wfile.write(b"0\r\n\r\n")
        return None

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        self.send_header("x-request-id", f"req_{len(self.model.log)}")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


@dataclass
class Answer:
    """What the model says, before it is put into a dialect."""

    id: str
    model: str
    text: str
    calls: list[dict[str, Any]]
    usage: dict[str, int] | None

    def pieces(self) -> list[str]:
        """The text as it is streamed: word by word."""
        words = self.text.split(" ")
        return [word if not index else " " + word for index, word in enumerate(words)] if self.text else []


def _sse(document: Any, event: str | None = None) -> str:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(document)}\n\n"


def _chat_usage(usage: Mapping[str, int]) -> dict[str, Any]:
    return {
        "prompt_tokens": usage["input"],
        "completion_tokens": usage["output"],
        "total_tokens": usage["input"] + usage["output"],
        "prompt_tokens_details": {"cached_tokens": usage["cached"]},
        "completion_tokens_details": {"reasoning_tokens": usage["reasoning"]},
    }


def _chat_calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": json.dumps(c["arguments"])}}
        for c in answer.calls
    ]


def chat_plain(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.calls:
        message["tool_calls"] = _chat_calls(answer)
    document: dict[str, Any] = {
        "id": f"chatcmpl-{answer.id}", "object": "chat.completion", "created": 1, "model": answer.model,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if answer.calls else "stop"}],
    }  # fmt: skip
    if answer.usage is not None:
        document["usage"] = _chat_usage(answer.usage)
    return document


def chat_streamed(answer: Answer) -> Iterator[str]:
    base = {"id": f"chatcmpl-{answer.id}", "object": "chat.completion.chunk", "created": 1, "model": answer.model}

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> str:
        return _sse({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in answer.pieces():
        yield chunk({"content": piece})
    for index, call in enumerate(_chat_calls(answer)):
        yield chunk({"tool_calls": [{"index": index, **call}]})
    yield chunk({}, "tool_calls" if answer.calls else "stop")
    if answer.usage is not None:
        yield _sse({**base, "choices": [], "usage": _chat_usage(answer.usage)})
    yield "data: [DONE]\n\n"


def _responses_items(answer: Answer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.text:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        items.append({"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "status": "completed",
                      "content": content})  # fmt: skip
    for call in answer.calls:
        items.append({"id": f"fc_{call['id']}", "type": "function_call", "status": "completed", "call_id": call["id"],
                      "name": call["name"], "arguments": json.dumps(call["arguments"])})  # fmt: skip
    return items


def responses_plain(answer: Answer, status: str = "completed") -> dict[str, Any]:
    done = status == "completed"
    document: dict[str, Any] = {
        "id": f"resp_{answer.id}", "object": "response", "created_at": 1, "status": status, "model": answer.model,
        "output": _responses_items(answer) if done else [], "parallel_tool_calls": True, "tool_choice": "auto",
        "tools": [], "error": None, "incomplete_details": None, "instructions": None, "metadata": {},
    }  # fmt: skip
    if answer.usage is not None and done:
        u = answer.usage
        document["usage"] = {
            "input_tokens": u["input"], "input_tokens_details": {"cached_tokens": u["cached"]},
            "output_tokens": u["output"], "output_tokens_details": {"reasoning_tokens": u["reasoning"]},
            "total_tokens": u["input"] + u["output"],
        }  # fmt: skip
    return document


def responses_streamed(answer: Answer) -> Iterator[str]:
    number = 0

    def event(kind: str, **fields: Any) -> str:
        nonlocal number
        number += 1
        return _sse({"type": kind, "sequence_number": number - 1, **fields}, kind)

    yield event("response.created", response=responses_plain(answer, "in_progress"))
    for index, item in enumerate(_responses_items(answer)):
        begun = {**item, "status": "in_progress", **({"content": []} if "content" in item else {"arguments": ""})}
        yield event("response.output_item.added", output_index=index, item=begun)
        at = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            empty = {"type": "output_text", "text": "", "annotations": []}
            yield event("response.content_part.added", **at, content_index=0, part=empty)
            for piece in answer.pieces():
                yield event("response.output_text.delta", **at, content_index=0, delta=piece, logprobs=[])
            yield event("response.output_text.done", **at, content_index=0, text=answer.text, logprobs=[])
            yield event("response.content_part.done", **at, content_index=0, part=item["content"][0])
        else:
            yield event("response.function_call_arguments.delta", **at, delta=item["arguments"])
            yield event("response.function_call_arguments.done", **at, name=item["name"], arguments=item["arguments"])
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=responses_plain(answer))


def _messages_usage(usage: Mapping[str, int]) -> dict[str, Any]:
    """Anthropic's ``input_tokens`` leaves the cached and the cache-written ones out."""
    return {
        "input_tokens": usage["input"] - usage["cached"] - usage["cache_write"],
        "cache_read_input_tokens": usage["cached"],
        "cache_creation_input_tokens": usage["cache_write"],
        "output_tokens": usage["output"],
    }


def messages_plain(answer: Answer) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text else []
    content += [{"type": "tool_use", "id": c["id"], "name": c["name"], "input": c["arguments"]} for c in answer.calls]
    document: dict[str, Any] = {
        "id": f"msg_{answer.id}", "type": "message", "role": "assistant", "model": answer.model, "content": content,
        "stop_reason": "tool_use" if answer.calls else "end_turn", "stop_sequence": None,
    }  # fmt: skip
    if answer.usage is not None:
        document["usage"] = _messages_usage(answer.usage)
    return document


def messages_streamed(answer: Answer) -> Iterator[str]:
    whole = messages_plain(answer)
    begun = {**whole, "content": [], "stop_reason": None}
    if answer.usage is not None:
        begun["usage"] = {**_messages_usage(answer.usage), "output_tokens": 1}
    yield _sse({"type": "message_start", "message": begun}, "message_start")
    for index, block in enumerate(whole["content"]):
        empty = {**block, "text": ""} if block["type"] == "text" else {**block, "input": {}}
        start = {"type": "content_block_start", "index": index, "content_block": empty}
        yield _sse(start, "content_block_start")
        if block["type"] == "text":
            deltas: list[dict[str, Any]] = [{"type": "text_delta", "text": piece} for piece in answer.pieces()]
        else:
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        for delta in deltas:
            yield _sse({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")
        yield _sse({"type": "content_block_stop", "index": index}, "content_block_stop")
    ending: dict[str, Any] = {
        "type": "message_delta",
        "delta": {"stop_reason": whole["stop_reason"], "stop_sequence": None},
    }
    if answer.usage is not None:
        ending["usage"] = {"output_tokens": answer.usage["output"]}
    yield _sse(ending, "message_delta")
    yield _sse({"type": "message_stop"}, "message_stop")


PLAIN: Mapping[str, Callable[[Answer], dict[str, Any]]] = {
    "chat": chat_plain,
    "responses": responses_plain,
    "messages": messages_plain,
}
STREAMED: Mapping[str, Callable[[Answer], Iterator[str]]] = {
    "chat": chat_streamed,
    "responses": responses_streamed,
    "messages": messages_streamed,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="scripted model server")
    parser.add_argument("--port-file", required=True, help="the port is written here once the server listens")
    parser.add_argument("--script", help="rules as JSON")
    parser.add_argument("--log-file", help="one JSON line for each request")
    options = parser.parse_args()
    script = json.loads(Path(options.script).read_text(encoding="utf-8")) if options.script else None
    server = ModelServer(script, log_file=options.log_file)
    half = Path(options.port_file + ".tmp")
    half.write_text(str(server.port), encoding="utf-8")
    os.replace(half, options.port_file)
    server.serve_forever()


if __name__ == "__main__":
    main()
