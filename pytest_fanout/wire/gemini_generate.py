"""Gemini's generateContent and streamGenerateContent, as served by the Developer API, Vertex and gateways.

A stream is a stream of events (``alt=sse``) or one JSON array; either way each chunk has the shape of a whole answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pytest_fanout.records import ToolCall
from pytest_fanout.wire.failures import error_type
from pytest_fanout.wire.reading import Asked, Payload, Reading
from pytest_fanout.wire.shapes import arguments, either, index, items, merge, obj, objects, string, texts
from pytest_fanout.wire.usage import GENERATE_KEYS, read_google_usage

_FINISH = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "continue",
    **dict.fromkeys(
        (
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "MODEL_ARMOR",
            "ESCALATION",
        ),
        "content_filter",
    ),
    **dict.fromkeys(
        (
            "MALFORMED_FUNCTION_CALL",
            "MALFORMED_RESPONSE",
            "UNEXPECTED_TOOL_CALL",
            "TOO_MANY_TOOL_CALLS",
            "MISSING_THOUGHT_SIGNATURE",
        ),
        "error",
    ),
}


@dataclass(slots=True)
class _Tool:
    id: str | None
    name: str
    whole: Any = None
    pieces: dict[str, list[Any]] = field(default_factory=dict)  # JSON path -> values, of arguments that are streamed

    def add(self, call: dict[str, Any]) -> None:
        self.whole = self.whole if call.get("args") is None else call["args"]
        for piece in objects(call.get("partialArgs")):
            path = (string(piece.get("jsonPath")) or "$").removeprefix("$").removeprefix(".")
            values = [piece[key] for key in ("stringValue", "numberValue", "boolValue") if piece.get(key) is not None]
            self.pieces.setdefault(path, []).extend(values)

    def text(self) -> str:
        if self.whole is not None or not self.pieces:
            return arguments({} if self.whole is None else self.whole)
        return arguments({path: _joined(values) for path, values in self.pieces.items()})


def _joined(values: list[Any]) -> Any:
    """A text that came in pieces, or the one value that came."""
    if all(isinstance(value, str) for value in values):
        return "".join(values) if values else None
    return values[-1]


@dataclass(slots=True)
class _Candidate:
    """One candidate, put together from its chunks or taken from the one document."""

    finish: str | None = None
    tools: list[_Tool] = field(default_factory=list)
    running: _Tool | None = None  # a call whose arguments go on in the next part
    executed: list[str] = field(default_factory=list)  # hosted tools that stand as parts
    grounded: dict[str, int] = field(default_factory=dict)  # hosted tools that only the metadata shows

    def take(self, candidate: dict[str, Any]) -> None:
        self.finish = string(candidate.get("finishReason")) or self.finish
        for part in objects(obj(candidate.get("content")).get("parts")):
            if isinstance(part.get("functionCall"), dict):
                self._take_call(part["functionCall"])
            elif part.get("executableCode"):
                self.executed.append("code_execution")
            elif part.get("toolCall"):
                self.executed.append((string(obj(part["toolCall"]).get("toolType")) or "tool").lower())
        # Metadata is repeated, or grows from chunk to chunk.
        for name, found in (
            ("google_search", obj(candidate.get("groundingMetadata")).get("webSearchQueries")),
            ("url_context", obj(candidate.get("urlContextMetadata")).get("urlMetadata")),
        ):
            self.grounded[name] = max(self.grounded.get(name, 0), len(items(found)))

    def _take_call(self, call: dict[str, Any]) -> None:
        name = string(call.get("name"))
        if name is not None or self.running is None:
            self.running = _Tool(string(call.get("id")), name or "")
            self.tools.append(self.running)
        self.running.add(call)
        if not call.get("willContinue"):
            self.running = None

    def hosted(self) -> list[str]:
        return self.executed or [name for name, count in self.grounded.items() for _ in range(count)]


def read_request(body: dict[str, Any]) -> Asked:
    """Prompt, tools and tool results of a request. The model, and whether it streams, stand in the URL."""
    parts = [part for content in objects(body.get("contents")) for part in objects(content.get("parts"))]
    results = [response for part in parts if isinstance(response := either(part, "functionResponse"), dict)]
    token = string(either(body, "continuationToken"))
    return Asked(
        system=system_text(either(body, "systemInstruction")),
        tools=tuple(tool_names(body.get("tools"))),
        tool_results_in=tuple(string(r.get("id")) or string(r.get("name")) or "" for r in results),
        parent_id=token,
        has_server_state=token is not None or bool(either(body, "cachedContent")),
        notes=("continuation",) if token is not None else (),
    )


def system_text(value: Any) -> str:
    """The words of a system instruction: a text, or a content with parts."""
    return texts(value.get("parts") if isinstance(value, dict) else value)


def tool_names(tools: Any) -> list[str]:
    """Names of the functions that are declared, and of the hosted tools that are switched on."""
    found: list[str | None] = []
    for tool in objects(tools):
        for key, value in tool.items():
            if key in ("functionDeclarations", "function_declarations"):
                found += [string(declared.get("name")) for declared in objects(value)]
            elif value is not None:
                found.append(string(key))
    return [name for name in found if name]


def read_answer(payload: Payload, reading: Reading) -> None:
    """Fill ``reading`` from an answer with HTTP status 2xx."""
    candidates: dict[int, _Candidate] = {}
    usage: dict[str, Any] = {}
    blocked: list[str] = []
    is_whole = True
    is_array = payload.data[:64].removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
    if not payload.streamed and not is_array:
        document = payload.document()
        _take(obj(document), candidates, usage, blocked, reading)
        reading.ended = isinstance(document, dict)
    else:
        chunks: Iterable[Any] = (chunk for _, _, chunk in payload.events())
        if is_array and not payload.streamed:
            chunks, is_whole = payload.elements()
        for chunk in chunks:
            for part in objects(chunk) if isinstance(chunk, list) else (obj(chunk),):
                _take(part, candidates, usage, blocked, reading)
        # There is no end mark of its own: every candidate says why it ended, or the prompt was blocked.
        ends = [candidate.finish for candidate in candidates.values()] or blocked
        reading.ended = is_whole and bool(ends) and all(ends)
        reading.usage_is_bound = not reading.ended
    _conclude(candidates, usage, blocked, reading)


def _take(
    body: dict[str, Any],
    candidates: dict[int, _Candidate],
    usage: dict[str, Any],
    blocked: list[str],
    reading: Reading,
) -> None:
    if body.get("error"):
        reading.fail(error_type(body, {}))
    reading.model_served = string(body.get("modelVersion")) or reading.model_served
    reading.response_id = string(body.get("responseId")) or reading.response_id
    for at, candidate in enumerate(objects(body.get("candidates"))):
        number = index(candidate.get("index"))
        candidates.setdefault(at if number is None else number, _Candidate()).take(candidate)
    if reason := string(obj(body.get("promptFeedback")).get("blockReason")):
        blocked.append(reason)
    merge(usage, body.get("usageMetadata"))


def _conclude(candidates: dict[int, _Candidate], usage: dict[str, Any], blocked: list[str], reading: Reading) -> None:
    reading.began = reading.began or bool(candidates) or bool(usage) or bool(blocked)
    reading.choices = len(candidates) or int(reading.began)
    for _, candidate in sorted(candidates.items()):
        reading.tool_calls.extend(ToolCall(tool.id, tool.name, tool.text()) for tool in candidate.tools)
        for name in candidate.hosted():
            reading.count_server_tool(name)
    read_google_usage(reading, usage, GENERATE_KEYS)
    if reading.status == "error":
        return
    if candidates:
        reading.finish_raw = candidates[min(candidates)].finish
        reading.finish = _FINISH.get(reading.finish_raw or "")
        if reading.finish == "stop" and reading.tool_calls:
            reading.finish = "tool_calls"
    elif blocked:
        reading.finish_raw, reading.finish = blocked[0], "content_filter"
