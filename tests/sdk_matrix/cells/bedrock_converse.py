"""boto3, bedrock-runtime: Converse and ConverseStream."""

from __future__ import annotations

import json
from typing import Any

import boto3
from sdk_matrix.cells.shop import ABOUT, QUESTION, SCHEMA, checked, use

TOOLS = {
    "tools": [
        {"toolSpec": {"name": name, "description": about, "inputSchema": {"json": SCHEMA}}}
        for name, about in ABOUT.items()
    ]
}
MODEL = "anthropic.claude-x-v1:0"


def client(url: str | None) -> Any:
    return boto3.client("bedrock-runtime", endpoint_url=url)


def _start() -> list[Any]:
    return [{"role": "user", "content": [{"text": QUESTION}]}]


def _ask(messages: list[Any]) -> dict[str, Any]:
    return {"modelId": MODEL, "messages": messages, "toolConfig": TOOLS}


def _carry_on(messages: list[Any], message: dict[str, Any]) -> bool:
    """Append what the tools say; False when the message is the answer."""
    calls = [block["toolUse"] for block in message["content"] if "toolUse" in block]
    if calls:
        results = [
            {"toolResult": {"toolUseId": call["toolUseId"], "content": [{"text": use(call["name"], call["input"])}]}}
            for call in calls
        ]
        messages += [message, {"role": "user", "content": results}]
    return bool(calls)


def sync(url: str | None) -> str:
    messages, bedrock = _start(), client(url)
    while True:
        message = bedrock.converse(**_ask(messages))["output"]["message"]
        if not _carry_on(messages, message):
            return checked(message["content"][0]["text"])


def streamed(url: str | None) -> str:
    messages, bedrock = _start(), client(url)
    while True:
        message = _whole(bedrock.converse_stream(**_ask(messages))["stream"])
        if not _carry_on(messages, message):
            return checked(message["content"][0]["text"])


def _whole(stream: Any) -> dict[str, Any]:
    text, calls = "", []
    for event in stream:
        if "contentBlockStart" in event:
            calls.append({**event["contentBlockStart"]["start"]["toolUse"], "input": ""})
        delta = event.get("contentBlockDelta", {}).get("delta", {})
        text += delta.get("text", "")
        if "toolUse" in delta:
            calls[-1]["input"] += delta["toolUse"]["input"]
    content = [{"text": text}] if text else []
    content += [{"toolUse": {**call, "input": json.loads(call["input"])}} for call in calls]  # type: ignore[dict-item]
    return {"role": "assistant", "content": content}


def early(url: str | None) -> None:
    stream = client(url).converse_stream(**_ask(_start()))["stream"]
    next(iter(stream))
    stream.close()
