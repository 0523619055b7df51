"""The hook of ``http.client``: urllib.request, xmlrpc.client and whoever uses its connections by hand.

What a connection would send is held until the request is whole: with ``request()`` at once, with ``putrequest`` and
``send`` once the announced body is there, or at ``getresponse()``. Then it is decided, and only then sent, connecting
first where that is needed. In replay a real ``HTTPResponse`` reads the recorded answer from a fake socket.

Connections that a hook above drives (those of urllib3) pass. What is seen here and cannot be booked is told: bytes sent
outside a request, and connections of urllib3 that its own hook does not drive, above all those of urllib3 1.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from pytest_fanout.meter.flight import Flight
from pytest_fanout.meter.ledger import INSIDE, Outer, Sent
from pytest_fanout.meter.patching import passed_on, patch_all
from pytest_fanout.meter.raw_request import Request, blocks_of, is_of_urllib3, read_request, url_of, with_headers
from pytest_fanout.meter.reader import path_of
from pytest_fanout.meter.recorded_socket import RecordedSocket, UnusedSocket, recorded_error, silent_socket
from pytest_fanout.meter.replies import Playback, playback_of
from pytest_fanout.meter.seam import Seam
from pytest_fanout.meter.tee_http_client import tee
from pytest_fanout.records import Problem

MODULES: tuple[str, ...] = ("http.client",)
#: On a connection: a hook above it has booked what it sends.
DRIVEN = "_pytest_fanout_driven"
_STATE = "_pytest_fanout_state"
LAYER = "http.client"
_ALARMS = frozenset({"unhooked-model-traffic", "unhooked-peer"})
_SENDING = " while sending"  # marks an error of ``request()``; one of ``getresponse()`` has its plain name


class _Pending(NamedTuple):
    """A request whose answer has not been asked for yet. ``below``: a client above has booked it."""

    flight: Flight | None
    outer: Outer | None
    playback: Playback | None
    below: Sent | None


class _State:
    """What is known of one connection."""

    __slots__ = ("filling", "foreign", "held", "missing", "passing", "pending", "take_back")

    def __init__(self, conn: Any) -> None:
        self.foreign = is_of_urllib3(conn)
        self.held: list[bytes] | None = None  # a request that is not whole yet: its head, and pieces of its body
        self.filling = False  # the library itself is adding to it
        self.missing: int | None = 0  # bytes that its head announces and that are not there; None: chunks are missing
        self.passing = False  # what goes out now has been decided
        self.pending: deque[_Pending] = deque()
        self.take_back: Callable[[], None] | None = None  # opened by hand, and nothing booked on it yet


def install(module: ModuleType, seam: Seam) -> Callable[[], None]:
    """Patch the connections of ``module``; the returned function takes the patch off again."""
    plain = _genuine(module.HTTPConnection)
    secure = _genuine(getattr(module, "HTTPSConnection", None))  # absent where Python has no ssl
    made = _Hook(seam)
    points = [(plain, name, getattr(made, name)) for name in ("connect", "endheaders", "send", "getresponse", "close")]
    return patch_all((*points, (secure, "connect", made.connect)))


def prove(module: ModuleType, seam: Seam) -> list[str]:
    """Send one request through a connection whose socket is a fake."""
    seam.probe = []
    try:
        connection = _genuine(module.HTTPConnection)("probe.invalid")
        connection.sock = silent_socket()
        connection.request("GET", "/")
        connection.getresponse().read()
    except Exception:
        seam.probe = []
    seen, seam.probe = seam.probe, None
    points = ("endheaders", "getresponse")
    return [f"http.client.HTTPConnection.{point}" for point in points if (seen or []).count(point) != 1]


def _genuine(cls: Any) -> Any:
    """The library's own class: while a user's cassette is open another one stands in its place, and names it."""
    while cls is not None and cls.__module__ != "http.client":
        cls = getattr(cls, "_baseclass", None)
    return cls


def _state(conn: Any) -> _State:
    state: _State | None = conn.__dict__.get(_STATE)
    if state is None:
        state = conn.__dict__[_STATE] = _State(conn)
    return state


class _Hook:
    """The patched methods. The seam decides; what is known of a connection stands on the connection."""

    def __init__(self, seam: Seam) -> None:
        self._seam = seam
        self._send: Any = None  # the library's own

    # --- the request -------------------------------------------------------------------------------------------

    def endheaders(self, original: Any) -> Any:
        seam = self._seam

        @functools.wraps(original)
        def endheaders(conn: Any, message_body: Any = None, **more: Any) -> None:
            if not seam.active or conn.__dict__.get(DRIVEN) or seam.probe is not None:
                if seam.probe is not None and not conn.__dict__.get(DRIVEN):
                    seam.probe.append("endheaders")
                passed_on(original, conn, message_body, **more)
                return
            state = conn.__dict__.get(_STATE) or _state(conn)
            if state.foreign:
                self._tell_undriven(conn)
                passed_on(original, conn, message_body, **more)
                return
            before, state.held, state.filling = state.held, [], True
            try:
                passed_on(original, conn, message_body, **more)
            except BaseException:
                state.held = before
                raise
            finally:
                state.filling = False
            self._once_whole(conn, state)

        return endheaders

    def send(self, original: Any) -> Any:
        self._send = original
        seam = self._seam

        @functools.wraps(original)
        def send(conn: Any, data: Any) -> None:
            if not seam.active or conn.__dict__.get(DRIVEN) or seam.probe is not None:
                passed_on(original, conn, data)
                return
            state = conn.__dict__.get(_STATE) or _state(conn)
            if state.passing or state.foreign:
                passed_on(original, conn, data)
                return
            if state.held is None:
                self._stray(conn, state, data)
                return
            blocks = [data] if data.__class__ is bytes else blocks_of(conn, data)
            state.held += blocks
            if state.filling:
                return
            if state.missing is not None:
                state.missing -= sum(map(len, blocks))
            # Five pieces hold the five bytes that end a chunked body.
            if state.missing is None and not b"".join(state.held[-5:]).endswith(b"0\r\n\r\n"):
                return
            if state.missing is None or state.missing <= 0:
                self._once_whole(conn, state)

        return send

    def _once_whole(self, conn: Any, state: _State) -> None:
        request = read_request(state.held or [])
        state.missing = request.missing
        if request.missing is not None and request.missing <= 0:
            self._decide(conn, state, request)

    def _decide(self, conn: Any, state: _State, request: Request) -> None:
        """Book a request, and send it unless a recording answers it."""
        seam = self._seam
        held, state.held = state.held or [], None
        url = url_of(conn, request.target)
        outer = seam.outer(request.method, url, request.body)
        flight = below = None
        if outer is None:
            below = seam.sending(request.method, path_of(url).encode())
        else:
            flight = seam.begin(LAYER, request.method, url, request.headers, request.body)
        if state.take_back is not None:
            state.take_back()
            state.take_back = None
        playback = playback_of(flight) if flight is not None else None
        if playback is not None:
            if playback.status is None and (playback.error or "").endswith(_SENDING):
                playback.wait_for_end()
                raise recorded_error(playback.read_to_end() or "")
        else:
            if flight is not None and flight.opened is not None:
                held[0] = with_headers(request, flight)
            self._transmit(conn, state, held, flight, outer, below)
        state.pending.append(_Pending(flight, outer, playback, below))

    def _transmit(
        self,
        conn: Any,
        state: _State,
        held: list[bytes],
        flight: Flight | None,
        outer: Outer | None,
        below: Sent | None,
    ) -> None:
        if isinstance(conn.sock, UnusedSocket):
            conn.sock = None
        token = INSIDE.set(outer) if outer is not None else None
        state.passing = True
        try:
            for piece in held:
                passed_on(self._send, conn, piece)
        except BaseException as error:
            if flight is not None:
                flight.end("error", type(error).__name__ + _SENDING)
            if below is not None:
                below.status = 0
            raise
        finally:
            state.passing = False
            if token is not None:
                INSIDE.reset(token)

    # --- the answer --------------------------------------------------------------------------------------------

    def getresponse(self, original: Any) -> Any:
        seam = self._seam

        @functools.wraps(original)
        def getresponse(conn: Any) -> Any:
            if not seam.active or conn.__dict__.get(DRIVEN) or seam.probe is not None:
                if seam.probe is not None and not conn.__dict__.get(DRIVEN):
                    seam.probe.append("getresponse")
                return passed_on(original, conn)
            state = conn.__dict__.get(_STATE)
            if state is not None and state.held is not None:
                self._decide(conn, state, read_request(state.held))
            if state is None or not state.pending:
                return passed_on(original, conn)
            flight, outer, playback, below = state.pending.popleft()
            if playback is not None:
                return _replay(conn, original, playback)
            token = INSIDE.set(outer) if outer is not None else None
            try:
                response = passed_on(original, conn)
            except BaseException as error:
                if flight is not None:
                    flight.end("error", type(error).__name__)
                if below is not None:
                    below.status = 0
                raise
            finally:
                if token is not None:
                    INSIDE.reset(token)
            if below is not None:
                below.status = response.status
            if flight is not None:
                headers = response.headers.raw_items()
                flight.began(response.status, [(n.encode("latin-1"), v.encode("latin-1")) for n, v in headers])
                tee(response, flight)
            return response

        return getresponse

    def close(self, original: Any) -> Any:
        @functools.wraps(original)
        def close(conn: Any) -> None:
            original(conn)
            state = conn.__dict__.get(_STATE)
            if state is not None:
                state.held = None
                while state.pending:
                    flight = state.pending.popleft().flight
                    if flight is not None:
                        flight.end("closed_early")

        return close

    # --- what cannot be booked ---------------------------------------------------------------------------------

    def connect(self, original: Any) -> Any:
        """A connection opened by hand: not in replay; else the tripwire's alarm holds until a request uses it."""
        seam = self._seam

        @functools.wraps(original)
        def connect(conn: Any) -> None:
            if not seam.active or conn.__dict__.get(DRIVEN) or seam.probe is not None:
                passed_on(original, conn)
                return
            state = _state(conn)
            place = None if state.passing or state.foreign or seam.forked or seam.ended else seam.ledger.place()
            if place is None:
                passed_on(original, conn)
                return
            if seam.is_replay():
                conn.sock = UnusedSocket(functools.partial(self._tell_socket, conn))
                return
            owner = seam if place.scope.closed else place.scope
            known = list(owner.problems)
            state.passing = True
            try:
                passed_on(original, conn)
            finally:
                state.passing = False
            alarms = [problem for problem in owner.problems if problem not in known and problem.slug in _ALARMS]
            state.take_back = functools.partial(_take_back, owner.problems, alarms)

        return connect

    def _stray(self, conn: Any, state: _State, data: Any) -> None:
        """Bytes outside a request."""
        if self._seam.ledger.place() is not None:
            what = "bytes were sent on a connection of http.client outside any request"
            mend = "send them by request(), or between putrequest() and getresponse()"
            self._seam.unbooked("POST", url_of(conn, "/"), what, mend)
        state.passing = True
        try:
            passed_on(self._send, conn, data)
        finally:
            state.passing = False

    def _tell_socket(self, conn: Any) -> None:
        what = "the socket of a connection of http.client was used by hand"
        self._seam.unbooked("POST", url_of(conn, "/"), what, "send requests by the connection")

    def _tell_undriven(self, conn: Any) -> None:
        import sys

        if self._seam.ledger.place() is None:
            return
        version = getattr(sys.modules.get("urllib3"), "__version__", "")
        what = f"a connection of urllib3 {version} was used that no hooked pool drives".replace("  ", " ")
        mend = "upgrade to urllib3 2, and send by its pools (PoolManager, requests, botocore)"
        line = conn._buffer[0].split(b" ") if conn._buffer else [b"GET", b"/"]
        url = url_of(conn, line[1].decode("latin-1"))
        self._seam.unbooked(line[0].decode("latin-1"), url, what, mend)


def _take_back(problems: list[Problem], alarms: list[Problem]) -> None:
    for alarm in alarms:
        if alarm in problems:
            problems.remove(alarm)


def _replay(conn: Any, original: Any, playback: Playback) -> Any:
    if playback.status is None:
        playback.wait_for_end()
        raise recorded_error(playback.read_to_end() or "")
    before, conn.sock = conn.sock, RecordedSocket(playback)
    try:
        return passed_on(original, conn)
    finally:
        conn.sock = before
