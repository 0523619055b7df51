"""What the agents of all cells share: one question, two tools, and how they are described to each kind of model."""

from __future__ import annotations

import json
from typing import Any

from sdk_matrix.dialects.turns import ANSWER

QUESTION = "What does article 7 cost, and how many of it are left?"


def price(sku: int) -> int:
    """The price of an article.

    Args:
        sku: number of the article
    """
    return 42


def stock(sku: int) -> int:
    """How many of an article are left.

    Args:
        sku: number of the article
    """
    return 3


FUNCTIONS = {"price": price, "stock": stock}
SCHEMA = {"type": "object", "properties": {"sku": {"type": "integer"}}, "required": ["sku"]}
ABOUT = {"price": "The price of an article.", "stock": "How many of an article are left."}
CHAT_TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "description": about, "parameters": SCHEMA}}
    for name, about in ABOUT.items()
]


def use(name: str, arguments: Any) -> str:
    """Run a tool; ``arguments`` as an object, or as its JSON text."""
    given = json.loads(arguments) if isinstance(arguments, str) else dict(arguments)
    return str(FUNCTIONS[name](**given))


class Pieces:
    """Joins the fragments of a streamed chat answer: its text, and its tool calls by index."""

    def __init__(self) -> None:
        self.text = ""
        self.calls: dict[int, dict[str, str]] = {}

    def add(self, delta: Any) -> None:
        self.text += delta.content or ""
        for position, part in enumerate(delta.tool_calls or ()):
            index = getattr(part, "index", None)
            call = self.calls.setdefault(position if index is None else index, {"id": "", "name": "", "arguments": ""})
            call["id"] = part.id if getattr(part, "id", None) else call["id"]
            call["name"] = part.function.name or call["name"]
            call["arguments"] += part.function.arguments or ""

    def message(self) -> dict[str, Any]:
        """As it stands in the next request."""
        return asking_message(list(self.calls.values()))

    def results(self) -> list[dict[str, Any]]:
        return [result_message(call) for call in self.calls.values()]


def asking_message(calls: list[dict[str, str]]) -> dict[str, Any]:
    """The assistant's message that asked for ``calls`` ({"id", "name", "arguments"}), in the shape of chat APIs."""
    functions = [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}} for c in calls
    ]
    return {"role": "assistant", "content": "", "tool_calls": functions}


def result_message(call: dict[str, str]) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call["id"], "content": use(call["name"], call["arguments"])}


def calls_of(message: Any) -> list[dict[str, str]]:
    """The tool calls of a chat answer's message."""
    return [
        {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
        for call in message.tool_calls or ()
    ]


def checked(text: str | None) -> str:
    """The answer, which must be the whole of what the model said: the SDK understood our server, streams included."""
    if not text or ANSWER not in text:
        raise AssertionError(f"the agent heard {text!r}, the model said {ANSWER!r}")
    return text
