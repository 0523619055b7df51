"""A recorded answer as a socket, for libraries that stand on ``http.client``: their own code reads it as if it came.

What is sent to it is swallowed. What it says is a head made anew (a recording keeps only some headers) and the recorded
chunks, each as one chunk of the transfer coding, so that a client that reads chunk by chunk gets the recorded ones.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

from pytest_fanout.meter.replies import Playback

REPLAYED = "pytest-fanout: replayed from the recording"
_FRAMING = frozenset({b"connection", b"content-length", b"keep-alive", b"trailer", b"transfer-encoding"})
_BODILESS = frozenset({204, 304})
_TIMEOUTS = frozenset({"ReadTimeoutError", "TimeoutError", "timeout"})


class RecordedSocket:
    """Of a socket only what clients ask of one. ``playback``: an answer that began (its status is not None)."""

    def __init__(self, playback: Playback) -> None:
        self._playback = playback

    def makefile(self, mode: str = "rb", buffering: int = -1, **more: Any) -> io.BufferedReader:
        return io.BufferedReader(_Answer(self._playback))

    def sendall(self, data: Any) -> None:
        """Nothing goes out."""

    send = sendall

    def settimeout(self, timeout: float | None) -> None:
        """Nothing is waited for."""

    def shutdown(self, how: int) -> None:
        self._playback.close()

    def close(self) -> None:
        """As with a socket, the file that was made of it stays open."""


def silent_socket() -> RecordedSocket:
    """For the self-checks of hooks: whoever asks hears 204."""
    return RecordedSocket(_Silence())


def recorded_error(name: str) -> Exception:
    """The error of that name from Python or ``http.client``; one that is not known comes back as a cut connection."""
    import builtins
    import http.client
    import socket

    name = name.partition(" ")[0]
    for module in (builtins, http.client, socket):
        cls = getattr(module, name, None)
        if isinstance(cls, type) and issubclass(cls, OSError | http.client.HTTPException):
            return cls(REPLAYED)
    if name.startswith("SSL"):
        import ssl

        return ssl.SSLError(REPLAYED)
    return http.client.RemoteDisconnected(REPLAYED)


class _Silence(Playback):
    def __init__(self) -> None:
        self.status, self.chunks, self.headers, self.is_whole, self._is_timed = 204, (), [], True, False

    def read_to_end(self) -> str | None:
        return None

    def close(self) -> None:
        """Nobody waits for it."""


class UnusedSocket:
    """What a connection holds that the agent has opened in replay, before anybody knows what it will send.

    ``refuse`` tells that it was used past the connection, and raises.
    """

    def __init__(self, refuse: Callable[[], object]) -> None:
        self._refuse = refuse

    def sendall(self, data: Any, *more: Any) -> None:
        self._refuse()

    send = recv = makefile = sendall

    def settimeout(self, timeout: float | None) -> None:
        """Nothing is waited for."""

    def setsockopt(self, *options: Any) -> None:
        """There is nothing to set."""

    def close(self) -> None:
        """There is nothing to close."""


class _Answer(io.RawIOBase):
    """The bytes of an answer, one piece a read at most: its head, then chunk after chunk."""

    def __init__(self, playback: Playback) -> None:
        self._playback = playback
        self._pieces = _pieces(playback)
        # of its pieces: the head comes with the first chunk, and chunks without a byte are none
        self._numbers = iter([number for number, chunk in enumerate(playback.chunks) if chunk])
        playback.wait(0)
        self._piece = memoryview(next(self._pieces))
        self._after: bytes | None = next(self._pieces, None)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._piece:
            self._playback.wait(next(self._numbers, len(self._playback.chunks)))
            if self._after is None:
                return self._cut()
            self._piece, self._after = memoryview(self._after), next(self._pieces, None)
        count = min(len(buffer), len(self._piece))
        buffer[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        if not self._piece and self._after is None and self._playback.is_whole:
            self._playback.read_to_end()
        return count

    def _cut(self) -> int:
        """The client reads on where nothing more is known: the recorded error, or the end of the connection."""
        error = self._playback.read_to_end() or ""
        if error in _TIMEOUTS:
            raise TimeoutError(REPLAYED)
        if error == "ConnectionResetError" or error.startswith("SSL"):
            raise recorded_error(error)
        return 0

    def close(self) -> None:
        if not self.closed:
            self._playback.close()
        super().close()


def _pieces(playback: Playback) -> Iterator[bytes]:
    import http

    status = playback.status or 0
    try:
        reason = http.HTTPStatus(status).phrase
    except ValueError:
        reason = ""
    chunks = [chunk for chunk in playback.chunks if chunk]
    head = [f"HTTP/1.1 {status} {reason}".encode("ascii")]
    head += [name + b": " + value for name, value in playback.headers if name.lower() not in _FRAMING]
    bodiless = status in _BODILESS and not chunks
    # One whole chunk gets a length, which clients of plain answers like to look at.
    chunked = not bodiless and (len(chunks) > 1 or not playback.is_whole)
    if chunked:
        head.append(b"transfer-encoding: chunked")
    elif not bodiless:
        head.append(b"content-length: %d" % sum(map(len, chunks)))
    yield b"\r\n".join((*head, b"", b""))
    if not chunked:
        yield from chunks
        return
    for chunk in chunks:
        yield b"%x\r\n%b\r\n" % (len(chunk), chunk)
    if playback.is_whole:
        yield b"0\r\n\r\n"
