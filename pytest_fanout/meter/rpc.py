"""One gRPC call as the meter keeps it: URL, messages in their JSON form, and a status of HTTP that says the same."""

from __future__ import annotations

import json
import re
from base64 import b64encode
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
_SCHEME = re.compile(r"(?:dns|ipv4|ipv6|xds|passthrough|google-c2p):(?://[^/]*/)?")


class Rpc:
    """A booked call while it runs. gRPC may tell of messages and of the end on threads of its own, in either order."""

    def __init__(self, flight: Flight, *, streamed: bool) -> None:
        self._flight = flight
        self._streamed = streamed

    def heard(self, message: Any) -> None:
        """A message of the server has arrived."""
        flight = self._flight
        if flight.status is None:
            if flight.outcome is not None:
                return  # cancelled: what still comes in is for nobody
            flight.began(200, _LINES if self._streamed else _JSON)
        flight.chunk(message_json(message) + b"\n" * self._streamed)
        if not self._streamed:
            flight.end("complete")

    def ended(self, code: str, details: str | None, *, cancelled: bool = False) -> None:
        """The call has its status. ``cancelled``: by the client."""
        flight = self._flight
        if flight.outcome is not None:
            return
        if code == "OK":
            if self._streamed:  # a single message ends the call, and may come in after the status
                flight.began(200, _LINES)
                flight.end("complete")
        elif cancelled and flight.status is not None:
            flight.end("closed_early")
        elif code in _OWN and flight.status is None:
            flight.end("error", code)
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
    from google.protobuf import json_format  # type: ignore[import-untyped, import-not-found, unused-ignore]

    message = getattr(message, "_pb", message)  # proto-plus wraps them
    try:
        text: str = json_format.MessageToJson(message, indent=None, sort_keys=True)
        return text.encode()
    except Exception:
        raw = message if isinstance(message, bytes) else getattr(message, "SerializeToString", bytes)()
        return json.dumps({"base64": b64encode(raw).decode()}).encode()


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
