"""What a sweep sends: chat requests to a model server, or tasks to an agent's endpoint. One request, one Answer."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_fanout.capacity.sweep import Answer
from pytest_fanout.errors import UsageError

if TYPE_CHECKING:
    import httpx

#: Plain words: each is about one token of any tokenizer, and their order is never the same twice.
_WORDS = (
    "time", "people", "water", "school", "house", "light", "paper", "river", "music", "stone", "table", "green",
    "north", "plant", "metal", "glass", "bread", "cloud", "horse", "field", "story", "night", "world", "money",
)  # fmt: skip


def prompt_of(number: int, words: int) -> str:
    """So many words, different from the first one on, so that no prefix cache knows them."""
    luck = random.Random(number)
    return " ".join([f"{luck.randrange(16**6):06x}", *luck.choices(_WORDS, k=max(1, words))])


def shown_url(url: str) -> str:
    """A URL without what may be a secret: user and password, query."""
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return (scheme + mark + host.rpartition("@")[2] + slash + path).partition("?")[0]


class ModelSender:
    """Streams chat completions of a fixed shape and reads the server's own count of tokens."""

    def __init__(self, client: httpx.AsyncClient, url: str, model: str, output: int, more: Mapping[str, Any]) -> None:
        """
        Args:
            url: up to and with ``/v1``.
            more: further keys of the body, e.g. what a server needs to write on to the limit.
        """
        self._client = client
        self._url = url.rstrip("/") + "/chat/completions"
        self._body = {
            "model": model, "stream": True, "stream_options": {"include_usage": True}, "temperature": 0,
            "max_tokens": output, "ignore_eos": True, **more,
        }  # fmt: skip
        self._numbers = itertools.count(random.SystemRandom().randrange(10**9))
        self._words_per_token = 1.0

    async def fit(self, input_tokens: int) -> Answer:
        """One request that shows how many tokens the words are."""
        found = await self.send(input_tokens)
        if found.fault is not None or not found.input_tokens or found.output_tokens is None:
            raise UsageError(
                "no-server",
                f"the server gave no answer that counts: {found.fault or 'it reports no usage while it streams'}",
                where=shown_url(self._url),
                mend="name the address up to /v1 of a server with chat completions that reports usage in streams",
            )
        self._words_per_token *= input_tokens / found.input_tokens
        return found

    async def send(self, input_tokens: int) -> Answer:
        """One request of about so many tokens in, and the limit of tokens out."""
        import httpx

        # from here on, so that nothing of a closed loop is left out and Little's law can be held against it
        began = time.monotonic()
        text = prompt_of(next(self._numbers), round(input_tokens * self._words_per_token))
        body = {**self._body, "messages": [{"role": "user", "content": text}]}
        first = last = None
        usage: Mapping[str, Any] = {}
        try:
            async with self._client.stream("POST", self._url, json=body) as response:
                if response.status_code != 200:
                    await response.aread()
                    return Answer(time.monotonic() - began, fault=f"status {response.status_code}")
                async for line in response.aiter_lines():
                    data = line.removeprefix("data:").strip()
                    if not line.startswith("data:") or data == "[DONE]":
                        continue
                    event = json.loads(data)
                    if not isinstance(event, dict):
                        continue
                    usage = event["usage"] if isinstance(event.get("usage"), dict) else usage
                    if _writes(event):
                        last = time.monotonic()
                        first = first or last
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError) as error:
            return Answer(time.monotonic() - began, fault=type(error).__name__)
        ended = time.monotonic()
        given, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        if first is None or last is None or not isinstance(given, int) or not isinstance(written, int):
            return Answer(ended - began, fault="no token or no usage in the stream")
        itl = (last - first) / (written - 1) if written > 1 else None
        return Answer(ended - began, first - began, itl, given, written, cached if isinstance(cached, int) else None)


def _writes(event: Mapping[str, Any]) -> bool:
    """Whether the event holds text; the first one often holds the role alone."""
    choices = event.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    delta = first.get("delta") if isinstance(first, dict) else None
    return isinstance(delta, dict) and any(
        delta.get(key) for key in ("content", "reasoning_content", "reasoning", "tool_calls")
    )


class TaskSender:
    """Posts tasks to an agent, in turn; no answer, or one that is no 2xx, is a failed task: a redirect did nothing."""

    def __init__(self, client: httpx.AsyncClient, url: str, bodies: Sequence[bytes]) -> None:
        self._client = client
        self._url = url
        self._bodies = itertools.cycle(bodies)

    async def send(self) -> Answer:
        """One task, to the end of its answer."""
        import httpx

        began = time.monotonic()
        try:
            headers = {"content-type": "application/json"}
            response = await self._client.post(self._url, content=next(self._bodies), headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return Answer(time.monotonic() - began, fault=type(error).__name__)
        fault = f"status {response.status_code}" if not response.is_success else None
        return Answer(time.monotonic() - began, fault=fault)
