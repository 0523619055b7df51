"""What a codec learns from one request and one answer, before it becomes an Attempt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_fanout.records import SideCall, ToolCall
from pytest_fanout.wire.bodies import NOT_JSON, bounded_int, load_json
from pytest_fanout.wire.eventstream import Frame, parse_frames
from pytest_fanout.wire.shapes import MAX_COUNT
from pytest_fanout.wire.sse import parse_sse, split_lines

#: First and last characters of data that can be JSON of use. The rest, such as plain words or half an object, is not
#: tried: each failure costs more than what it would read.
_ENDS = {"{": "}", "[": "]", '"': '"'}
#: What stands between two elements of an array; it also matches nothing at all.
_GAP = re.compile(r"[ \t\r\n,]*")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the request says. ``stream`` None: not said. ``system`` None: the request was not read.

    ``has_server_state``: the provider holds a part of the prompt, so that the body does not show all of it.
    """

    model: str | None = None
    stream: bool | None = None
    system: str | None = None
    tools: tuple[str, ...] = ()
    tool_results_in: tuple[str, ...] = ()
    parent_id: str | None = None
    has_server_state: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Payload:
    """A decoded response body: ``streamed`` says whether it came as a stream of events, lines or frames."""

    data: bytes
    streamed: bool
    content_type: str = ""  # of the response, lower case
    headers: Mapping[str, str] = field(default_factory=dict)  # of the response, names in lower case

    def document(self) -> Any:
        """The body as JSON, or NOT_JSON."""
        return load_json(self.data)

    def events(self) -> Iterator[tuple[str, str, Any]]:
        """(name, data, data as JSON or NOT_JSON) of each event, in order."""
        for event in parse_sse(self.data):
            yield event.name, event.data, _load(event.data)

    def lines(self) -> Iterator[Any]:
        """Each line that is not blank, as JSON or NOT_JSON, in order: a stream of newline-delimited JSON."""
        lines = split_lines(self.data.removeprefix(b"\xef\xbb\xbf"))
        return (_load(line.decode("utf-8", "replace")) for line in lines if line.strip())

    def elements(self) -> tuple[list[Any], bool]:
        """The elements of a body that is one JSON array, and whether it was whole: of a cut one those that came."""
        text = self.data.decode("utf-8-sig", "replace").strip()
        found: list[Any] = []
        if not text.startswith("["):
            return found, False
        at, decoder = 1, json.JSONDecoder(parse_int=bounded_int)
        while True:
            try:
                element, at = decoder.raw_decode(text, _GAP.match(text, at).end())  # type: ignore[union-attr]
            except (ValueError, RecursionError, MemoryError):
                return found, text[at:].strip() == "]"
            found.append(element)

    def frames(self) -> Iterator[Frame]:
        """The frames of an AWS event stream, in order."""
        return parse_frames(self.data)


def _load(text: str) -> Any:
    """The text as JSON, or NOT_JSON; blanks around it, as far as servers put them, do not matter."""
    closer = _ENDS.get(text[:64].lstrip()[:1])
    return load_json(text) if closer is not None and text[-64:].rstrip()[-1:] == closer else NOT_JSON


@dataclass(slots=True)
class Reading:
    """An answer while it is read. Field meanings are those of Attempt; ``began``: an answer of the model was seen."""

    began: bool = False
    ended: bool = False
    kind: str | None = None  # set by the codec where the answer shows another kind than the URL
    status: str | None = None  # set by the codec where the body itself says it
    model_served: str | None = None
    choices: int = 0
    error_type: str | None = None
    finish: str | None = None
    finish_raw: str | None = None
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_reported: int | None = None
    usage_is_bound: bool = False  # newer usage could still have come
    tool_calls: list[ToolCall] = field(default_factory=list)
    server_tool_calls: dict[str, int] = field(default_factory=dict)
    side_calls: list[SideCall] = field(default_factory=list)
    inner_iterations: int | None = None
    response_id: str | None = None
    notes: list[str] = field(default_factory=list)

    def note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def count(self, value: Any) -> int | None:
        """A token count, or None where it is absent or no count at all (which is noted)."""
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_COUNT:
            self.note("bad_usage")
            return None
        return value

    def whole(self, fresh: Any, *parts: Any) -> int | None:
        """A count and the parts that stand beside it together; None when it or a part that is given is unknown."""
        whole = self.count(fresh)
        for given in parts:
            if given is None or whole is None:
                continue
            part = self.count(given)
            whole = None if part is None else whole + part
        return whole

    def count_server_tool(self, name: str) -> None:
        self.server_tool_calls[name] = self.server_tool_calls.get(name, 0) + 1

    def fail(self, error_type: str | None) -> None:
        """The body says that the call failed, although HTTP said 200."""
        self.began = True
        self.status = "error"
        self.finish = "error"
        self.error_type = error_type or self.error_type

    @property
    def usage_source(self) -> str:
        known = (self.input_tokens, self.output_tokens)
        if known == (None, None):
            return "missing"
        return "partial" if None in known or self.usage_is_bound else "final"

    def check_totals(self) -> None:
        """Note ``total_mismatch`` where the parts contradict each other; the numbers are kept."""
        inside = (self.cached_input_tokens or 0) + (self.cache_write_tokens or 0)
        if self.input_tokens is not None and inside > self.input_tokens:
            self.note("total_mismatch")
        if self.output_tokens is not None and (self.reasoning_tokens or 0) > self.output_tokens:
            self.note("total_mismatch")
        if self.input_tokens is None or self.output_tokens is None:
            return
        if self.total_reported not in (None, self.input_tokens + self.output_tokens):
            self.note("total_mismatch")
