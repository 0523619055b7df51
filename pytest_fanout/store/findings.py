"""Where a recording holds secrets: looked for in each text, so that the place can be named, and then in the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_fanout import wire
from pytest_fanout.records import Exchange, Recording
from pytest_fanout.store import bodies
from pytest_fanout.store.scanner import Scanner
from pytest_fanout.store.secrets import redact_fields
from pytest_fanout.wire.transcript import read_said

Finding = tuple[str, tuple[str, ...]]  # place, kinds


def findings(stored: Recording, data: bytes, scanner: Scanner) -> Iterator[Finding]:
    """Places that hold secrets, and their kinds. Texts that a growing context repeats are looked at once.

    Args:
        data: the file of the recording.
    """
    seen: set[str] = set()
    for text, place in _names(stored):
        if kinds := scanner.scan(text):
            yield place, kinds
    for number, exchange in enumerate(stored.exchanges, 1):
        at = f"{number} ({exchange.request.method} {path_of(exchange.request.url)})"
        for text, place in _asked(exchange):
            if text not in seen and (kinds := scanner.scan(text)):
                yield f"{place} of request {at}", kinds
            seen.add(text)
        for text, place in _heard(exchange):
            if kinds := scanner.scan(text):
                yield f"{place} of answer {at}", kinds
        yield from ((f"{place} of answer {at}", kinds) for place, kinds in _said_in_pieces(exchange, scanner))
    if kinds := scanner.scan(data.decode("utf-8", "replace")):  # nothing that is written is left out
        yield "the file", kinds


def path_of(url: str) -> str:
    """The path of a URL, as messages name a request."""
    return bodies.match_target(url, "model").partition("?")[0]


def _names(stored: Recording) -> Iterator[tuple[str, str]]:
    yield stored.task, "the task id"
    for model in (*stored.models_requested, *stored.models_served):
        yield model, "a model name"


def _asked(exchange: Exchange) -> Iterator[tuple[str, str]]:
    request = exchange.request
    yield request.url, "the URL"
    for name, value in request.headers:
        yield value, f"the header {name}"
    value = bodies.json_value(request.body)
    if value is None:
        yield request.body.decode("utf-8", "replace"), "the body"
    else:
        yield from _strings(value, "")


def _heard(exchange: Exchange) -> Iterator[tuple[str, str]]:
    answer = exchange.answer
    yield answer.body.decode("utf-8", "replace"), "the body"
    yield answer.error or "", "the error"
    yield " ".join(value for _, value in answer.headers), "a header"


def _said_in_pieces(exchange: Exchange, scanner: Scanner) -> Iterator[Finding]:
    """What a stream says a few characters at a time: no event of it holds a whole secret."""
    request, answer = exchange.request, exchange.answer
    if exchange.role != "model" or not answer.body:
        return
    attempt = wire.read_call(request.method, request.url, request.body, answer.status, answer.headers, answer.body)
    if attempt is None:
        return
    said = read_said(attempt.api, answer.headers, answer.body)
    for text, place in ((said.text, "the text"), (said.thoughts, "the thoughts")):
        if kinds := scanner.scan(text):
            yield place, kinds
    for call in attempt.tool_calls:
        place = f"the arguments of tool call {call.name}"
        if kinds := scanner.scan(call.arguments):
            yield place, kinds
        elif redact_fields(call.arguments)[1]:
            yield place, ("a field that is named like a credential",)


def _strings(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield value, at or "the body"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _strings(item, f"{at}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key, f"a key in {at or 'the body'}"
            yield from _strings(item, f"{at}.{key}" if at else key)
