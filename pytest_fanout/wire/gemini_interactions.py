"""Gemini's Interactions: steps instead of parts, state at the provider, background runs."""

from __future__ import annotations

from typing import Any

from pytest_fanout.records import ToolCall
from pytest_fanout.wire.bodies import NOT_JSON, load_json
from pytest_fanout.wire.failures import error_type
from pytest_fanout.wire.gemini_generate import system_text
from pytest_fanout.wire.reading import Asked, Payload, Reading
from pytest_fanout.wire.shapes import arguments, index, merge, obj, objects, string
from pytest_fanout.wire.usage import INTERACTION_KEYS, read_google_usage

#: Steps that the provider has run inside the call.
_SERVER_STEPS = {
    "google_search_call",
    "code_execution_call",
    "url_context_call",
    "file_search_call",
    "mcp_server_tool_call",
    "google_maps_call",
    "retrieval_call",
    "processing_call",
    "tool_search_call",
}
_FINISH = {
    "completed": "stop",
    "requires_action": "tool_calls",
    "requires_continuation": "continue",
    "incomplete": "length",
    "budget_exceeded": "length",
    "cancelled": "cancelled",
}
_TERMINAL = {"interaction.completed", "interaction.complete"}


def read_request(body: dict[str, Any]) -> Asked:
    """Model, prompt, tools and tool results of a request. With ``agent`` it starts an agent of the provider's."""
    given = objects(body.get("input"))
    tools = [string(tool.get("name")) or string(tool.get("type")) for tool in objects(body.get("tools"))]
    results = [step.get("call_id") or step.get("name") for step in given if step.get("type") == "function_result"]
    token = string(body.get("continuation_token"))
    previous = string(body.get("previous_interaction_id"))
    stream = body.get("stream")
    return Asked(
        model=string(body.get("model")) or string(body.get("agent")),
        stream=stream if isinstance(stream, bool) else None,
        system=system_text(body.get("system_instruction")),
        tools=tuple(name for name in tools if name),
        tool_results_in=tuple(string(result) or "" for result in results),
        parent_id=previous or token,
        has_server_state=bool(token or previous or body.get("cached_content")),
        notes=("continuation",) if token is not None else (),
    )


def read_answer(payload: Payload, reading: Reading) -> None:
    """Fill ``reading`` from an answer with HTTP status 2xx."""
    if not payload.streamed:
        document = payload.document()
        body = obj(document)
        if body.get("error") and "status" not in body:
            reading.fail(error_type(document, {}))
            reading.ended = True
        elif body.get("status") or body.get("usage") or body.get("steps"):
            _take_interaction(body, _steps(body), reading)
            reading.ended = True
        return
    seen: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    steps: dict[int, dict[str, Any]] = {}
    pieces: dict[int, list[str]] = {}
    for name, _, data in payload.events():
        event = obj(data)
        # An event whose data was cut off says nothing, whatever its name; only a failure needs no data.
        kind = string(event.get("event_type")) or (name if event or name == "error" else "")
        at = index(event.get("index"))
        if kind == "error" or event.get("error"):
            reading.fail(error_type(event, {}))
            reading.ended = True
        elif kind in ("step.start", "content.start") and at is not None:
            steps[at] = obj(event.get("step")) or obj(event.get("content"))
        elif kind in ("step.delta", "content.delta") and at is not None:
            delta = obj(event.get("delta"))
            if delta.get("type") == "arguments_delta":
                pieces.setdefault(at, []).append(arguments(delta.get("arguments")))
            elif delta.get("type") == "function_call":
                steps[at] = delta
        if kind == "interaction.status_update":
            merge(seen, {"status": event.get("status"), "id": event.get("interaction_id")})
        if interaction := obj(event.get("interaction")):
            merge(seen, interaction)
        for part in (obj(event.get("metadata")).get("total_usage"), event.get("usage")):
            merge(usage, part)
        merge(usage, obj(event.get("interaction")).get("usage"))
        reading.began = reading.began or kind.startswith(("interaction.", "step.", "content."))
        if kind in _TERMINAL:
            reading.ended = True
    if not reading.began:
        return
    seen["usage"] = usage
    told = _steps(seen) or [_filled(step, pieces.get(at)) for at, step in sorted(steps.items())]
    reading.usage_is_bound = not reading.ended
    _take_interaction(seen, told, reading)


def _steps(body: dict[str, Any]) -> list[dict[str, Any]]:
    return objects(body.get("steps")) or objects(body.get("outputs"))  # the older name


def _filled(step: dict[str, Any], pieces: list[str] | None) -> dict[str, Any]:
    """A step whose arguments came in pieces."""
    if not pieces:
        return step
    text = "".join(pieces)
    whole = load_json(text)
    return {**step, "arguments": text if whole is NOT_JSON else whole}


def _take_interaction(body: dict[str, Any], steps: list[dict[str, Any]], reading: Reading) -> None:
    reading.began = True
    reading.choices = 1
    reading.model_served = string(body.get("model"))
    reading.response_id = string(body.get("id"))
    for step in steps:
        kind = string(step.get("type")) or ""
        if kind == "function_call":
            text = arguments(step.get("arguments", {}))
            reading.tool_calls.append(ToolCall(string(step.get("id")), string(step.get("name")) or "", text))
        elif kind in _SERVER_STEPS:
            reading.count_server_tool(kind.removesuffix("_call"))
    read_google_usage(reading, obj(body.get("usage")), INTERACTION_KEYS)
    status = string(body.get("status"))
    reading.finish_raw = status
    if status == "failed":
        errors = objects(body.get("errors"))
        reading.fail(error_type({"error": body.get("error") or (errors[0] if errors else None)}, {}))
    elif reading.status == "error":
        return
    elif status in ("queued", "in_progress"):
        # A stream that stopped early is told apart by its missing end mark.
        reading.status = "pending"
    else:
        reading.finish = _FINISH.get(status or "")
        if status == "cancelled":
            reading.status = "incomplete"
        elif reading.finish == "stop" and reading.tool_calls:
            reading.finish = "tool_calls"
