"""One gRPC call as the meter keeps it: URL, messages in their JSON form, and a status of HTTP that says the same.

The JSON of an answer's messages is read, redacted and stored; in replay the message is made of it again, whose type
stands in the header ``grpc-message-type``. A message that this would not give back is kept with its bytes.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any

from pytest_fanout.meter.flight import Flight, RawHeaders

METHOD = "GRPC"
_JSON, _LINES = [(b"content-type", b"application/json")], [(b"content-type", b"application/x-ndjson")]
_STATUS = {
    "OK": 200,
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
}
#: Statuses that a client gives itself: nobody answered.
_OWN = frozenset({"CANCELLED", "DEADLINE_EXCEEDED"})
#: The error of a call that the client itself cancelled before an answer.
GIVEN_UP = "Cancelled"
#: Of the metadata after an answer this alone is kept: what Google's clients make their errors of.
DETAILS = b"grpc-status-details-bin"
#: The type of an answer's messages.
TYPE = b"grpc-message-type"
#: The key of a message's bytes, where its JSON alone would not give it back.
_EXACT = "@base64"
_SCHEME = re.compile(r"(?:dns|ipv4|ipv6|xds|passthrough|google-c2p):(?://[^/]*/)?")


class Rpc:
    """A booked call while it runs. gRPC may tell of messages and of the end on threads of its own, in either order."""

    def __init__(self, flight: Flight, *, streamed: bool) -> None:
        self._flight = flight
        self._streamed = streamed
        self._metadata: RawHeaders = []

    def heard(self, message: Any, data: bytes) -> None:
        """A message of the server has arrived, in these bytes."""
        flight = self._flight
        message = _plain(message)
        line = _json_of(message)
        if flight.status is None:
            if flight.outcome is not None:
                return  # cancelled: what still comes in is for nobody
            kind = [(TYPE, message.DESCRIPTOR.full_name.encode())] if line is not None else []
            flight.began(200, [*(_LINES if self._streamed else _JSON), *kind, *self._metadata])
        if line is None or (flight.hold is None and not _comes_back(message, line)):  # a live answer is not stored
            line = json.dumps({**json.loads(line or "{}"), _EXACT: b64encode(data).decode()}).encode()
        flight.chunk(line + b"\n" * self._streamed)
        if not self._streamed:
            flight.end("complete")

    def ended(
        self,
        code: str,
        details: str | None,
        *,
        cancelled: bool = False,
        initial: Iterable[tuple[str, Any]] | None = (),
        trailing: Iterable[tuple[str, Any]] | None = (),
    ) -> None:
        """The call has its status. ``cancelled``: by the client."""
        flight = self._flight
        if flight.outcome is None:
            self._end(flight, code, details, cancelled)
        told = [pair for pair in raw_metadata(initial) if not pair[0].startswith((b"content-", DETAILS))]
        self._metadata = [*told, *(pair for pair in raw_metadata(trailing) if pair[0] == DETAILS)]
        flight.response_headers = [*flight.response_headers, *self._metadata]

    def _end(self, flight: Flight, code: str, details: str | None, cancelled: bool) -> None:
        if code == "OK":
            if self._streamed:  # a single message ends the call, and may come in after the status
                if flight.status is None:
                    flight.began(200, _LINES)
                flight.end("complete")
        elif cancelled and flight.status is not None:
            flight.end("closed_early")
        elif code in _OWN and flight.status is None:
            flight.end("error", GIVEN_UP if cancelled else code)
        else:
            if flight.status is None:
                flight.began(_STATUS.get(code, 500), _JSON)
            flight.chunk(json.dumps({"error": {"status": code, "message": details}}).encode())
            flight.end("error" if flight.status == 200 else "complete", code)


def rpc_url(target: str, method: str) -> str:
    """``grpc://host:port/package.Service/Method`` of a channel's target and a method; port 443 where none is named."""
    if target.startswith("unix"):
        return f"grpc://localhost{method}"
    where = _SCHEME.sub("", target, count=1).partition(",")[0].lstrip("/")
    has_port = re.search(r":\d+\Z", where) is not None and not re.fullmatch(r"[0-9a-f:]*::[0-9a-f:]*", where)
    return f"grpc://{where if has_port else where + ':443'}{method}"


def message_json(message: Any) -> bytes:
    """A message on one line; what is no protobuf message, or has no JSON form, as its bytes."""
    message = _plain(message)
    line = _json_of(message)
    if line is not None:
        return line
    raw = message if isinstance(message, bytes) else getattr(message, "SerializeToString", bytes)()
    return json.dumps({"base64": b64encode(raw).decode()}).encode()


def message_bytes(line: bytes, name: str) -> bytes:
    """The bytes of an answer's message as it was kept. ``name``: the full name of its type.

    Raises:
        LookupError, ValueError: no such type here, or no JSON of it.
    """
    exact = json.loads(line).get(_EXACT)
    return b64decode(exact) if exact is not None else bytes(_made(line, name).SerializeToString())


def _plain(message: Any) -> Any:
    return getattr(message, "_pb", message)  # proto-plus wraps them


def _json_of(message: Any) -> bytes | None:
    from google.protobuf import json_format  # type: ignore[import-untyped, import-not-found, unused-ignore]

    try:
        text: str = json_format.MessageToJson(message, indent=None, sort_keys=True)
    except Exception:
        return None
    return text.encode()


def _made(line: bytes, name: str) -> Any:
    from google.protobuf import descriptor_pool, json_format, message_factory

    kind = message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(name))
    try:
        return json_format.Parse(line, kind())
    except json_format.ParseError as error:
        raise ValueError(str(error)) from None


def _comes_back(message: Any, line: bytes) -> bool:
    """Whether the JSON of a message gives it back. Fields that the client's own type does not know are left out: the
    agent cannot see them either."""
    try:
        known = type(message).FromString(message.SerializeToString())
        known.DiscardUnknownFields()
        made = _made(line, message.DESCRIPTOR.full_name)
        return bool(made.SerializeToString(deterministic=True) == known.SerializeToString(deterministic=True))
    except Exception:
        return False


def raw_metadata(metadata: Iterable[tuple[str, Any]] | None) -> RawHeaders:
    """Metadata as headers."""
    return [
        (name.encode(), value if isinstance(value, bytes) else str(value).encode()) for name, value in metadata or ()
    ]


def metadata_of(headers: RawHeaders) -> tuple[tuple[str, Any], ...]:
    """Headers as metadata: names that end with ``-bin`` hold bytes."""
    return tuple(
        (name.decode(), value if name.endswith(b"-bin") else value.decode("utf-8", "replace"))
        for name, value in headers
    )
