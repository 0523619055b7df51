"""Exchanges and recordings for the tests of this room, made from the few facts that a test is about."""

from __future__ import annotations

import json
from typing import Any

from pytest_fanout.records import Exchange, HttpAnswer, HttpRequest, Recording

CHAT_URL = "https://api.openai.com/v1/chat/completions"
JSON_HEADERS = (("content-type", "application/json"),)


def chat_request(text: str, **extra: Any) -> HttpRequest:
    """A chat completion request that says ``text``."""
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **extra}
    return HttpRequest("POST", CHAT_URL, JSON_HEADERS, json.dumps(body).encode())


def chat_answer(text: str, status: int = 200) -> HttpAnswer:
    """A complete answer in one chunk."""
    body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
    return HttpAnswer(status, JSON_HEADERS, (body,), (5,), 6)


def exchange(request: HttpRequest, answer: HttpAnswer, seq: int = 0, role: str = "model") -> Exchange:
    """An exchange that was sent 10 ms after the one before it."""
    return Exchange(seq, "httpx2", role, "agent", request, answer, seq * 10)


def chat(*texts: str) -> tuple[Exchange, ...]:
    """One exchange a text: it asks ``text`` and hears ``re: text #n``."""
    return tuple(exchange(chat_request(text), chat_answer(f"re: {text} #{n}"), n) for n, text in enumerate(texts))


def recording(
    exchanges: tuple[Exchange, ...], task: str = "refund", trial: int = 1, agent: str = "support"
) -> Recording:
    """A recording of ``exchanges`` that passed."""
    return Recording(
        agent, task, trial, "sha256:" + "0" * 64, 1_700_000_000, 1234, "ok", True, exchanges, ("m",), ("m-1",)
    )
