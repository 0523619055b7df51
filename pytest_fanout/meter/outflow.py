"""What a live model call asks for before it goes out: a share of what the run may spend, and its turn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from pytest_fanout.wire.failures import retry_after_s

if TYPE_CHECKING:
    from pytest_fanout.meter.flight import Flight

#: What stopped a task that no cap has stopped: the run may spend no more.
SPEND_LIMIT: Final = "spend_limit"
#: What clients ask of a network that they cannot wait for without holding up everything else on their event loop.
UNPACED: Final = frozenset({"grpc", "websockets"})
_BYTES_PER_TOKEN: Final = 4
#: An image or a file in a request: its bytes say nothing about tokens.
_MEDIA: Final = re.compile(rb"[A-Za-z0-9+/]{4096,}={0,2}")
#: Names of errors, in all client libraries, of a connection that never came about.
_NEVER_SENT: Final = re.compile(
    "ConnectError|ConnectTimeout|ConnectionTimeoutError|ConnectionRefused|ClientConnector|NewConnection|NameResolution"
    "|gaierror"
)


class Turn(Protocol):
    """The place of one call. Called from any thread; ``over`` once."""

    def wait_s(self) -> float:
        """Seconds until this is to be asked again; 0: the call may go."""
        ...

    def over(self, tokens: int | None, *, reached: bool, status: int | None, retry_after_s: float | None) -> None:
        """The call has ended. ``tokens``: what it has cost, None: not known. ``reached``: whether a model was."""
        ...


class Outflow(Protocol):
    """Shared by all processes of a run. Called from any thread."""

    def ask(self, agent: str | None, tokens: int) -> Turn | None:
        """A place for one call; None: with it the run would spend more than it may.

        Args:
            tokens: of its request, estimated.
        """
        ...

    def add(self, tokens: int) -> None:
        """Something that has gone out before has cost so much more."""
        ...


def request_tokens(body: bytes) -> int:
    """Tokens of a request, roughly, by its size and without media."""
    size = len(body) if len(body) < 1 << 14 else len(_MEDIA.sub(b"", body))
    return -(-size // _BYTES_PER_TOKEN)


def waits(flight: Flight) -> Iterator[float]:
    """Seconds to sleep, again and again, until a flight may go. Its task's clock stands still while calls do nothing
    else; when the loop is left before its end, the flight never went.

    Raises:
        TaskStopped: its task was stopped meanwhile.
    """
    turn, scope = flight.turn, flight.scope
    if turn is None or (pause_s := turn.wait_s()) <= 0:
        return
    flight.waits = True
    if scope is not None:
        scope.waits(+1)
    try:
        while pause_s > 0:
            if scope is not None and scope.capped is not None:
                raise scope.stopped()
            yield pause_s
            pause_s = turn.wait_s()
    except BaseException as error:
        flight.refuse(type(error).__name__)
        if scope is not None:
            scope.release(flight)
        raise
    finally:
        flight.waits = False
        if scope is not None:
            scope.waits(-1)
        flight.starts()


async def let_wait(flight: Flight) -> None:
    """The same for code on an event loop, which goes on meanwhile."""
    import asyncio

    try:
        asyncio.get_running_loop()
        sleep: Any = asyncio.sleep
    except RuntimeError:
        import anyio

        sleep = anyio.sleep
    for pause_s in waits(flight):
        await sleep(pause_s)


def is_over(flight: Flight, tokens: int, *, reached: bool) -> None:
    """Give back the place of a flight that has ended, once. No tokens at all: they are not known."""
    turn, flight.turn = flight.turn, None
    if turn is not None:
        headers = flight.response_headers if flight.status not in (None, 200) else []
        wait_s = retry_after_s({name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers})
        # what was sent and not answered may have cost as much as an answer
        sent = flight.role != "refused" and flight.status is None and not _NEVER_SENT.match(flight.error or "")
        turn.over(tokens or None, reached=reached or sent, status=flight.status, retry_after_s=wait_s)
