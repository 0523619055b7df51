"""What every dialect is made of: what a request asks, what the model says, and what that costs, worked by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

#: The whole answer of the model, in every dialect. It is streamed word by word.
ANSWER = "It costs 4217 and 3391 of them are left, so the shop can send one today."
#: The tools that the model asks for, where they are offered, both in one answer.
TOOLS = ("price", "stock")
ARGUMENTS = {"sku": 7}
#: What the tools say: the request after it must carry both.
RESULTS = (4217, 3391)
#: Some agents end by a tool: where this one is offered, the answer is its argument.
LAST_TOOL = "final_answer"


@dataclass(frozen=True)
class Tokens:
    """Our definition, whatever the wire says: input and output hold everything, the others are parts of them.

    None: this provider does not tell.
    """

    input: int | None
    cached: int | None
    cache_write: int | None
    output: int | None
    reasoning: int | None


@dataclass(frozen=True)
class Turn:
    """Usage as the provider writes it, and what it means by the provider's own definition."""

    wire: Mapping[str, Any]
    tokens: Tokens


@dataclass(frozen=True)
class Turns:
    """One usage for each kind of answer, so that a swapped, lost or doubled one shows in the sums."""

    text: Turn  # a plain answer
    asking: Turn  # the answer that asks for tools
    after: Turn  # the answer once the tools have been asked for


@dataclass(frozen=True)
class Asked:
    """What a generation request says, as far as the script needs it."""

    model: str
    streamed: bool
    offered: tuple[str, ...] = ()  # names of the tools
    wants_usage: bool = True  # False: a stream for which the provider sends usage only when asked


@dataclass(frozen=True)
class ToolAsk:
    id: str
    name: str
    arguments: Mapping[str, Any]

    @property
    def text(self) -> str:
        return json.dumps(self.arguments)


@dataclass(frozen=True)
class Said:
    """One answer, before it is put into a dialect."""

    number: int  # of the request, from 1
    model: str
    text: str  # "" where it asks for tools
    asks: tuple[ToolAsk, ...]
    usage: Mapping[str, Any] | None  # as the provider writes it; None: not asked for

    def pieces(self) -> list[str]:
        words = self.text.split(" ") if self.text else []
        return [word if not index else " " + word for index, word in enumerate(words)]


@dataclass(frozen=True)
class Reply:
    """A whole response."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, document: Any, status: int = 200, **headers: str) -> Reply:
        return cls(status, json.dumps(document).encode(), headers={k.replace("_", "-"): v for k, v in headers.items()})


class Dialect(Protocol):
    """One provider's way to speak: a module of this folder."""

    TURNS: Turns
    STREAM_TYPE: str  # content type of its streams

    def key_in(self, headers: Mapping[str, str], query: str) -> str | None:
        """The key that a request carries."""
        ...

    def asked(self, path: str, query: str, body: Any) -> Asked | None:
        """What a POST asks of a model; None when it is no generation."""
        ...

    def other(self, method: str, path: str) -> Reply | None:
        """The answer to a request that is no generation; None: there is no such path."""
        ...

    def refusal(self, status: int) -> Reply:
        """401 or 429, as the provider writes it."""
        ...

    def plain(self, path: str, said: Said) -> Reply: ...

    def streamed(self, path: str, said: Said) -> Iterator[bytes]:
        """The events, each as it is written to the network."""
        ...


def bearer(headers: Mapping[str, str]) -> str | None:
    """The key in ``Authorization: Bearer``."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key if scheme.lower() == "bearer" else None


def sse(document: Any, event: str | None = None) -> bytes:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(document)}\n\n".encode()


def names(items: Any, *path: str) -> tuple[str, ...]:
    """The names at ``path`` below each item of a list."""
    found = []
    for item in items or ():
        for key in path:
            item = item.get(key, {}) if isinstance(item, Mapping) else {}
        if isinstance(item, str):
            found.append(item)
    return tuple(found)
