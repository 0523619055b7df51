"""OpenAI Responses, and its compaction pass."""

from __future__ import annotations

from typing import Any

from pytest_fanout.records import SideCall, ToolCall
from pytest_fanout.wire.failures import error_type
from pytest_fanout.wire.openai_chat import leading_system
from pytest_fanout.wire.reading import Asked, Payload, Reading
from pytest_fanout.wire.shapes import arguments, index, items, merge, obj, objects, string
from pytest_fanout.wire.usage import read_openai_usage

#: Output items that the client has to act on; the text is in the key that is named.
_CLIENT_ITEMS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "shell_call": "action",
    "apply_patch_call": "operation",
    "computer_call": "action",
    "tool_search_call": "arguments",
}
#: Output items that the provider has run inside the call.
_SERVER_ITEMS = {
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "program",
    "shell_call",
    "tool_search_call",
}
_TERMINAL = {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
_REASONS = {
    "max_output_tokens": "length",
    "max_messages": "length",
    "content_filter": "content_filter",
    "steered": "steered",
}


def read_request(body: dict[str, Any]) -> Asked:
    """Model, prompt, tools and tool results of a request."""
    given = objects(body.get("input"))
    instructions = string(body.get("instructions")) or ""
    spoken = leading_system(given)
    # A prompt kept at the provider shows only its name here, which still tells one site from another.
    kept = obj(body.get("prompt"))
    named = " ".join(part for key in ("id", "version") if (part := string(kept.get(key))))
    stream = body.get("stream")
    results = [item.get("call_id") for item in given if str(item.get("type", "")).endswith("_output")]
    return Asked(
        model=string(body.get("model")),
        stream=stream if isinstance(stream, bool) else None,
        system="\n".join(part for part in (named and f"stored prompt {named}", instructions, spoken) if part),
        tools=tuple(name for tool in objects(body.get("tools")) if (name := _tool_name(tool))),
        tool_results_in=tuple(string(result) or "" for result in results),
        parent_id=string(body.get("previous_response_id")),
        has_server_state=any(body.get(key) for key in ("previous_response_id", "conversation", "prompt")),
    )


def _tool_name(tool: dict[str, Any]) -> str | None:
    kind = string(tool.get("type"))
    if kind == "mcp":
        return f"mcp:{string(tool.get('server_label')) or ''}"
    return string(tool.get("name")) or kind


def read_answer(payload: Payload, reading: Reading) -> None:
    """Fill ``reading`` from an answer with HTTP status 2xx."""
    if not payload.streamed:
        document = payload.document()
        response = obj(document)
        if response.get("error") and "output" not in response:
            reading.fail(error_type(document, {}))
            reading.ended = True
        elif items(response.get("output")) or response.get("status") or response.get("usage"):
            _take_response(response, objects(response.get("output")), reading)
            reading.ended = True
        return
    seen: dict[str, Any] = {}
    done: dict[int, dict[str, Any]] = {}
    pieces: dict[int, list[str]] = {}
    for name, _, data in payload.events():
        event = obj(data)
        # An event whose data was cut off says nothing, whatever its name; only a failure needs no data.
        kind = string(event.get("type")) or (name if event or name == "error" else "")
        at = index(event.get("output_index"))
        if kind == "error" or (event.get("error") and not kind.startswith("response.")):
            reading.fail(error_type(event, {}))
            reading.ended = True
        elif kind in ("response.output_item.added", "response.output_item.done") and at is not None:
            done[at] = obj(event.get("item"))
        elif (
            kind in ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")
            and at is not None
        ):
            pieces.setdefault(at, []).append(arguments(event.get("delta")))
        if response := obj(event.get("response")):
            merge(seen, response)
        reading.began = reading.began or kind.startswith("response.")
        if kind in _TERMINAL:
            reading.ended = True
            seen["status"] = kind.removeprefix("response.")
            break
    if not reading.began:
        return
    output = objects(seen.get("output")) or [_filled(item, pieces.get(at)) for at, item in sorted(done.items())]
    _take_response(seen, output, reading)


def _filled(item: dict[str, Any], pieces: list[str] | None) -> dict[str, Any]:
    """An item whose arguments were still running when the stream ended, with the part that came."""
    key = _CLIENT_ITEMS.get(item.get("type", "") if isinstance(item.get("type"), str) else "")
    if key is None or not pieces or item.get(key):
        return item
    return {**item, key: "".join(pieces)}


def _take_response(response: dict[str, Any], output: list[dict[str, Any]], reading: Reading) -> None:
    reading.began = True
    reading.choices = 1
    reading.model_served = string(response.get("model"))
    reading.response_id = string(response.get("id"))
    refused = False
    for item in output:
        kind = string(item.get("type")) or ""
        if _runs_at_client(item, kind):
            name = string(item.get("name")) or kind.removesuffix("_call")
            text = arguments(item.get(_CLIENT_ITEMS[kind]))
            reading.tool_calls.append(ToolCall(string(item.get("call_id")) or string(item.get("id")), name, text))
        elif kind in _SERVER_ITEMS:
            reading.count_server_tool(kind.removesuffix("_call"))
        refused = refused or any(part.get("type") == "refusal" for part in objects(item.get("content")))
    read_openai_usage(reading, obj(response.get("usage")), prompt="input", completion="output")
    drawn = obj(obj(response.get("tool_usage")).get("image_gen"))
    given, made = reading.count(drawn.get("input_tokens")), reading.count(drawn.get("output_tokens"))
    if given or made:  # zeros stand there for tools that did not run
        reading.side_calls.append(SideCall("image_generation", given, made))
    _take_status(response, refused, reading)


def _runs_at_client(item: dict[str, Any], kind: str) -> bool:
    if kind == "shell_call":
        return not str(obj(item.get("environment")).get("type", "")).startswith("container")
    if kind == "tool_search_call":
        return item.get("execution") == "client"
    return kind in _CLIENT_ITEMS


def _take_status(response: dict[str, Any], refused: bool, reading: Reading) -> None:
    status = string(response.get("status"))
    reading.finish_raw = status
    if status == "failed":
        reading.fail(error_type({"error": response.get("error")}, {}))
    elif reading.status == "error":
        return
    elif status in ("queued", "in_progress"):
        # A stream that stopped early is told apart by its missing end mark.
        reading.status = "pending"
    elif status == "cancelled":
        reading.status, reading.finish = "incomplete", "cancelled"
    elif status == "incomplete":
        reason = string(obj(response.get("incomplete_details")).get("reason"))
        reading.finish_raw = reason or status
        reading.finish = _REASONS.get(reason or "")
    elif refused:
        reading.finish = "refusal"
    else:
        reading.finish = "tool_calls" if reading.tool_calls else "stop"
