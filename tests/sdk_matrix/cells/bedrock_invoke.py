"""boto3, bedrock-runtime: InvokeModel with a model of Anthropic's, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

from sdk_matrix.cells.bedrock_converse import MODEL, client
from sdk_matrix.cells.shop import ABOUT, QUESTION, SCHEMA, checked, use

TOOLS = [{"name": name, "description": about, "input_schema": SCHEMA} for name, about in ABOUT.items()]


def _start() -> list[Any]:
    return [{"role": "user", "content": QUESTION}]


def _ask(messages: list[Any]) -> dict[str, Any]:
    body = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 500, "messages": messages, "tools": TOOLS}
    return {"modelId": MODEL, "body": json.dumps(body)}


def _carry_on(messages: list[Any], content: list[dict[str, Any]]) -> bool:
    """Append what the tools say; False when the content is the answer."""
    calls = [block for block in content if block["type"] == "tool_use"]
    if calls:
        results = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": use(call["name"], call["input"])}
            for call in calls
        ]
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
    return bool(calls)


def sync(url: str | None) -> str:
    messages, bedrock = _start(), client(url)
    while True:
        content = json.loads(bedrock.invoke_model(**_ask(messages))["body"].read())["content"]
        if not _carry_on(messages, content):
            return checked(content[0]["text"])


def streamed(url: str | None) -> str:
    messages, bedrock = _start(), client(url)
    while True:
        content = _whole(bedrock.invoke_model_with_response_stream(**_ask(messages))["body"])
        if not _carry_on(messages, content):
            return checked(content[0]["text"])


def _whole(stream: Any) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    for frame in stream:
        event = json.loads(frame["chunk"]["bytes"])
        if event["type"] == "content_block_start":
            content.append({**event["content_block"], "input": ""})
        elif event["type"] == "content_block_delta":
            content[-1]["text"] = content[-1].get("text", "") + event["delta"].get("text", "")
            content[-1]["input"] += event["delta"].get("partial_json", "")
    kept = {"text": ("type", "text"), "tool_use": ("type", "id", "name", "input")}
    for block in content:
        block["input"] = json.loads(block["input"] or "{}")
    return [{key: block[key] for key in kept[block["type"]]} for block in content]


def early(url: str | None) -> None:
    stream = client(url).invoke_model_with_response_stream(**_ask(_start()))["body"]
    next(iter(stream))
    stream.close()
