"""Long streams without the events that hold nothing but generated text, so that memory stays flat while one flies.

Only events of which it is certain are left out: those of the shapes below, as the providers write them. Whatever looks
different in any way is kept. Reading what is left gives the same Attempt as reading everything; a test holds both
together.
"""

from __future__ import annotations

import re
from typing import Final

#: In a chunk of Chat Completions, what may tell more than text. Inside a JSON text these quotes are escaped.
_CHAT_MORE: Final = re.compile(
    rb'"(?:usage|x_groq|finish_reason)"\s*:\s*[^\sn]|"index"\s*:\s*[^\s0]'
    rb"|tool|function|refusal|error|executed|role|\n"
)
_CHAT_TEXT: Final = re.compile(rb'data: ?\{[^\n]*"delta"\s*:\s*\{')
_RESPONSES_TEXT: Final = re.compile(
    rb"event: ?(response\.(?:output_text|reasoning_text|reasoning_summary_text)\.delta)\r?\n"
    rb'data: ?\{"type": ?"\1",(?![^\n]*"(?:response|type)"\s*:)[^\n]*\Z'
)
_MESSAGES_TEXT: Final = re.compile(
    rb"event: ?content_block_delta\r?\n"
    rb'data: ?\{"type": ?"content_block_delta", ?"index": ?\d+, ?"delta": ?'
    rb'\{"type": ?"(?:text|thinking|signature)_delta", ?"[a-z]+": ?"(?:[^"\\\n]|\\.)*"\}\s*\}\s*\Z'
)
#: Where the text of such an event begins.
_FRAME: Final = re.compile(rb'"(?:content|text|thinking|delta)": ?"(?=[^"\\]*")')


def can_thin(api: str | None) -> bool:
    """Whether streams of this API have events that can be left out."""
    return api in ("openai.chat", "openai.responses", "anthropic.messages")


def thin(api: str | None, stream: bytes) -> tuple[bytes, bytes]:
    """Split a running event stream: its whole events, without those that only hold text, and the unfinished rest.

    The first event that holds text stays: in a stream that opens with nothing else it alone tells that a model spoke.
    """
    end = b"\r\n\r\n" if b"\r\n\r\n" in stream else b"\n\n"
    events = stream.split(end)
    spoken = next((at for at, event in enumerate(events[:-1]) if _is_text(api, event)), None)
    if spoken is None:
        return b"".join([event + end for event in events[:-1]]), events[-1]
    head = b"".join([event + end for event in events[: spoken + 1]])
    events = events[spoken + 1 :]
    first = next((event for event in events[:-1] if _is_text(api, event) and _FRAME.search(event)), None)
    if first is not None:
        # The other events that differ from it in the text alone go at once: it is one pass over the bytes.
        events = _alike(first, end).sub(b"", end.join(events)).split(end)
    rest = events.pop()
    return head + b"".join([event + end for event in events if not _is_text(api, event)]), rest


def _alike(event: bytes, end: bytes) -> re.Pattern[bytes]:
    """Runs of whole events that are ``event`` but for its text."""
    found = _FRAME.search(event)
    assert found is not None
    head, tail = event[: found.end()], event[event.index(b'"', found.end()) :] + end
    return re.compile(rb"(?:\A|(?<=\n\n)|(?<=\r\n\r\n))(?:%b[^\"\\\r\n]*%b)+" % (re.escape(head), re.escape(tail)))


def _is_text(api: str | None, event: bytes) -> bool:
    if api == "openai.chat":
        return _CHAT_MORE.search(event) is None and _CHAT_TEXT.match(event) is not None
    if api == "openai.responses":
        return _RESPONSES_TEXT.match(event) is not None
    return api == "anthropic.messages" and _MESSAGES_TEXT.match(event) is not None
