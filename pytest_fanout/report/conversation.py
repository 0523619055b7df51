"""A recording as a conversation: what each call said that was new, what it heard, and the tools in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote, urlsplit

from pytest_fanout.records import Attempt, Exchange, ModelCall, Recording, ToolCall, Turn
from pytest_fanout.report.printable import escape
from pytest_fanout.wire.transcript import Message, Prompt, Said, read_prompt, read_said, same_text

#: Of a longer text only the beginning is shown.
MOST_CHARACTERS: Final = 1200
MOST_LINES: Final = 20
_AGENT: Final = "agent"  # the bucket that is fanout


@dataclass(frozen=True, slots=True)
class _Earlier:
    """A call that was shown already."""

    number: str
    prompt: Prompt
    said: Said
    tool_calls: tuple[ToolCall, ...]


def conversation(recording: Recording, turns: Sequence[Turn], *, full: bool = False) -> Iterator[str]:
    """The lines of it, safe to print.

    Args:
        turns: of the recording's exchanges, in order.
        full: cut no text.
    """
    yield from _head(recording, turns)
    places = {id(exchange): at for at, exchange in enumerate(_in_order(turns), 1)}
    shown: list[_Earlier] = []
    calls = 0
    for turn in turns:
        at = ", ".join(str(places[id(exchange)]) for exchange in turn.exchanges)
        yield ""
        if not turn.attempts:
            yield from _request(turn.exchanges[0], at, full)
            continue
        bucket = turn.exchanges[0].bucket
        if bucket != _AGENT:
            name = f"aside call ({escape(bucket)}, no fanout)"
        elif ModelCall(turn.attempts).reached_model:
            calls += 1
            name = f"call {calls}"
        else:
            name = "call that reached no model"
        yield from _call(name, at, turn, shown, full)


def _in_order(turns: Sequence[Turn]) -> list[Exchange]:
    everything = [exchange for turn in turns for exchange in turn.exchanges]
    return sorted(everything, key=lambda one: (one.started_ms, one.seq))


def _moment(seconds: int) -> str:
    """Unix seconds as a date; a recording can claim a time that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"


def _head(recording: Recording, turns: Sequence[Turn]) -> Iterator[str]:
    own = [turn for turn in turns if turn.attempts and turn.exchanges[0].bucket == _AGENT]
    calls = sum(ModelCall(turn.attempts).reached_model for turn in own)
    others = sum(not turn.attempts for turn in turns)
    attempts = sum(len(turn.attempts) for turn in own)
    made = _moment(recording.begun_at)
    yield escape(f"{recording.agent}::{recording.task}, trial {recording.trial}")
    if recording.imported:
        yield escape(
            f"recorded {made}; imported from {', '.join(recording.imported)}: no times, not known whether it passed"
        )
    else:
        passed = "passed" if recording.passed else "did not pass"
        yield escape(
            f"recorded {made}, draw {recording.draw}, {recording.duration_ms} ms, {recording.status}, {passed}"
        )
    yield escape(
        f"{_count(calls, 'model call')} in {_count(attempts, 'attempt')}, {_count(others, 'other request')}; "
        f"asked for {', '.join(recording.models_requested) or 'no model'}, "
        f"served by {', '.join(recording.models_served) or 'unknown'}"
    )
    yield f"{escape(recording.digest)}   #: number of the request in the trial"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# --- model calls ---------------------------------------------------------------------------------------------------


def _call(name: str, at: str, turn: Turn, shown: list[_Earlier], full: bool) -> Iterator[str]:
    last, exchange = turn.attempts[-1], turn.exchanges[-1]
    first = turn.exchanges[0]
    depth = "" if exchange.depth in (None, 0) else f", depth {exchange.depth}"
    yield f"{name}  #{at}, at {first.started_ms} ms{depth}, {escape(last.api)} by {escape(exchange.layer)}"
    yield escape(
        f"  asked for {last.model_requested or 'no model'}, served by {last.model_served or 'unknown'}: "
        f"{_outcome(last, exchange)}; {_tokens(last)}; {exchange.answer.ended_ms} ms"
    )
    for number, (attempt, sent) in enumerate(zip(turn.attempts, turn.exchanges, strict=True), 1):
        if len(turn.attempts) > 1:
            said = f"  attempt {number} at {sent.started_ms} ms: {_outcome(attempt, sent)}"
            yield escape(said + _waits(attempt) + f"; {sent.answer.ended_ms} ms")
    prompt = read_prompt(exchange.request.body)
    yield from _asked(prompt, last, shown, full)
    said_now = read_said(last.api, exchange.answer.headers, exchange.answer.body)
    yield from _heard(said_now, last, exchange, full)
    shown.append(_Earlier(name, prompt, said_now, last.tool_calls))


def _outcome(attempt: Attempt, exchange: Exchange) -> str:
    answer = exchange.answer
    words = [attempt.status if attempt.status == "ok" else attempt.status.upper()]
    words += [f"HTTP {answer.status}"] if answer.status not in (None, 200) else []
    words += [attempt.error_type] if attempt.error_type else []
    words += [f"broken off: {answer.error or 'no reason told'}"] if answer.outcome == "error" else []
    words += [answer.outcome.replace("_", " ")] if answer.outcome in ("closed_early", "unread", "partial") else []
    words += [f"finish {attempt.finish_raw or attempt.finish}"] if attempt.finish or attempt.finish_raw else []
    words += list(attempt.notes)
    return ", ".join(words)


def _waits(attempt: Attempt) -> str:
    return "" if attempt.retry_after_s is None else f", retry after {attempt.retry_after_s:g} s"


def _tokens(attempt: Attempt) -> str:
    if attempt.usage_source == "none":
        return "no tokens"
    if attempt.usage_source == "missing":
        return "tokens unknown"
    told = f"tokens {_known(attempt.input_tokens)} in"
    inside = [
        f"{word} {value}"
        for word, value in (("cached", attempt.cached_input_tokens), ("cache written", attempt.cache_write_tokens))
        if value
    ]
    told += f" ({', '.join(inside)})" if inside else ""
    told += f", {_known(attempt.output_tokens)} out"
    told += f" (reasoning {attempt.reasoning_tokens})" if attempt.reasoning_tokens else ""
    return told if attempt.usage_source == "final" else f"{told} ({attempt.usage_source})"


def _known(value: int | None) -> str:
    return "unknown" if value is None else str(value)


def _asked(prompt: Prompt, attempt: Attempt, shown: list[_Earlier], full: bool) -> Iterator[str]:
    """What is new in a request, against the earlier call that it goes on from."""
    if prompt.raw:
        yield from _text("request, as sent", prompt.raw, full)
        return
    before, shared = _goes_on_from(prompt, shown)
    settings = next((one for one in reversed(shown) if one.prompt.system == prompt.system), None)
    if settings is None:
        for text in prompt.system:
            yield from _text("system", text, full)
    elif settings is not (before or shown[-1]):
        yield f"  system: that of {settings.number}"
    yield from _tools(prompt, shown, full)
    if attempt.parent_id:
        yield escape(f"  goes on from the answer {attempt.parent_id}, which the provider holds")
    if before is not None:
        if before is not shown[-1]:
            yield f"  goes on from {before.number}"
        dropped = len(before.prompt.messages) - shared
        if dropped:
            yield f"  REWRITTEN: the first {shared} messages are those of {before.number}, its other {dropped} are gone"
    for message in prompt.messages[shared:]:
        if before is not None and _is_answer(message, before):
            yield f"  {escape(message.role)}: (the answer of {before.number})"
            continue
        yield from _text(message.role, "\n".join(message.texts), full)


def _goes_on_from(prompt: Prompt, shown: list[_Earlier]) -> tuple[_Earlier | None, int]:
    """The earlier call with the longest common beginning, the latest of equals, and how many messages that is."""
    best, shared = None, 0
    for earlier in shown:
        same = 0
        for old, new in zip(earlier.prompt.messages, prompt.messages, strict=False):
            if old.key != new.key:
                break
            same += 1
        if same and same >= shared:
            best, shared = earlier, same
    return best, shared


def _is_answer(message: Message, before: _Earlier) -> bool:
    asked = [(call.name, call.arguments) for call in before.tool_calls]
    return message.role in ("assistant", "model", "chatbot") and same_text(message, before.said, asked)


def _tools(prompt: Prompt, shown: list[_Earlier], full: bool) -> Iterator[str]:
    before = next((one for one in reversed(shown) if one.prompt.tools == prompt.tools), None)
    if before is not None:
        if prompt.tools and before is not shown[-1]:
            yield f"  tools: those of {before.number}"
        return
    known = {tool for one in shown for tool in one.prompt.tools}
    if not prompt.tools:
        yield from ["  tools: none"] if shown and shown[-1].prompt.tools else []
        return
    yield escape(f"  tools: {', '.join(name for name, _ in prompt.tools)}")
    for name, definition in prompt.tools:
        if (name, definition) not in known:
            yield from _text(f"  {name}", definition, full)


def _heard(said: Said, attempt: Attempt, exchange: Exchange, full: bool) -> Iterator[str]:
    if said.thoughts:
        yield from _text("-> thoughts", said.thoughts, full)
    if said.text:
        yield from _text("-> answer", said.text, full)
    for call in attempt.tool_calls:
        yield from _text(f"-> tool call {call.name}", call.arguments, full)
    for name, times in sorted(attempt.server_tool_calls.items()):
        yield escape(f"  -> the provider ran {name} x {times}")
    if not (said.text or said.thoughts or attempt.tool_calls):
        if exchange.answer.body:
            yield from _text("-> answer, as received", said.raw, full)
        else:
            yield "  -> no answer" if exchange.answer.status is None else "  -> an empty answer"


# --- other requests ------------------------------------------------------------------------------------------------


def _request(exchange: Exchange, at: str, full: bool) -> Iterator[str]:
    request, answer = exchange.request, exchange.answer
    bucket = "" if exchange.bucket == _AGENT else f", aside ({exchange.bucket})"
    yield escape(f"{_name(exchange)}  #{at}, at {exchange.started_ms} ms{bucket}, by {exchange.layer}")
    if request.body:
        yield from _text("request", request.body.decode("utf-8", "replace"), full)
    if answer.outcome == "error":
        yield escape(f"  BROKEN OFF: {answer.error or 'no reason told'}; {answer.ended_ms} ms")
    status = "no status" if answer.status is None else str(answer.status)
    how = "" if answer.outcome in ("complete", "error") else f", {answer.outcome.replace('_', ' ')}"
    where = next((f" to {value}" for name, value in answer.headers if name == "location"), "")
    yield from _text(f"-> {status}{where}{how}, {answer.ended_ms} ms", answer.body.decode("utf-8", "replace"), full)


def _name(exchange: Exchange) -> str:
    request = exchange.request
    parts = urlsplit(request.url)
    if exchange.layer == "recorded":
        return f"recorded function {unquote(parts.path.strip('/') or parts.netloc)}"
    if exchange.layer == "mcp":
        return f"MCP {unquote(parts.path.strip('/')).replace('/', ': ', 1)}"
    kind = {"tool": "request", "model": "request to a model host, no model call"}.get(exchange.role, exchange.role)
    return f"{kind} {request.method} {request.url}"


def _text(label: str, text: str, full: bool) -> Iterator[str]:
    """A labelled text, its lines indented below; one line stands beside its label."""
    whole = len(text)
    if not full:
        kept = "\n".join(text[:MOST_CHARACTERS].split("\n")[:MOST_LINES])
        text, whole = kept, whole - len(kept)
    lines = [escape(line) for line in text.split("\n")]
    if not full and whole:
        lines.append(f"[{whole:,} more characters: --full shows all]")
    if len(lines) == 1:
        yield f"  {escape(label)}: {lines[0]}" if lines[0] else f"  {escape(label)}"
        return
    yield f"  {escape(label)}:"
    yield from (f"      {line}" for line in lines)
