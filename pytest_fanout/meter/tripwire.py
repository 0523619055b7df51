"""The tripwire: connections that no hook has seen. It notices bypasses; it never counts.

One audit hook a process (it cannot be taken off), switched on and off. It sees Python's own sockets and processes;
C and Rust stacks with sockets of their own are out of its sight.
"""

from __future__ import annotations

import os
import socket
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from pytest_fanout.meter.keys import is_loopback
from pytest_fanout.meter.ledger import Ledger, outer_request
from pytest_fanout.meter.seam import FORKED_CALL, Seam
from pytest_fanout.wire import hosts

_HERE = os.path.dirname(os.path.abspath(__file__))
_STDLIB = sysconfig.get_paths()["stdlib"]
_SITE = ("site-packages", "dist-packages")
_NETWORK = frozenset({"socket.connect", "socket.getaddrinfo"})
_INTERNET = frozenset({socket.AF_INET, socket.AF_INET6})
_CHILDREN = frozenset({"subprocess.Popen", "os.posix_spawn", "os.exec", "os.system"})
_HARMLESS = frozenset({"uname"})  # what `platform` runs to name the system, for the headers of the SDKs
_GATEWAY = "FANOUT_GATEWAY"  # in the environment of children that the gateway counts


class _Handler(Protocol):
    def see(self, event: str, args: tuple[Any, ...]) -> None: ...


_switch: _Handler | None = None
_hooked = False


def _audit(event: str, args: tuple[Any, ...]) -> None:
    handler = _switch
    if handler is not None and (event in _NETWORK or event in _CHILDREN):
        handler.see(event, args)


class Tripwire:
    """Notes what goes round the hooks, on the task that does it.

    Args:
        known: ``host:port`` of model servers known before anything is counted (those of recordings).
    """

    def __init__(self, seam: Seam, ledger: Ledger, known: Iterable[str]) -> None:
        self._seam = seam
        self._ledger = ledger
        self._pid = os.getpid()
        self._known = {_split(name) for name in known}
        self._names: dict[int, tuple[str, str]] = {}  # port -> (model host looked up outside the hooks, who did)
        self._seen: set[object] = set()
        self._busy = threading.local()

    def arm(self) -> None:
        global _switch, _hooked
        if not _hooked:
            sys.addaudithook(_audit)
            _hooked = True
        _switch = self

    def disarm(self) -> None:
        global _switch
        if _switch is self:
            _switch = None

    def see(self, event: str, args: tuple[Any, ...]) -> None:
        """One audit event. Only a blocked connection may raise.

        Raises:
            ConnectionRefusedError: in replay, for a connection to a model server.
        """
        if getattr(self._busy, "now", False):
            return
        self._busy.now = True
        try:
            if os.getpid() != self._pid:
                self._in_child(event, args)
            elif event in _CHILDREN:
                if self._seam.ended is None:
                    self._child(event, args)
            elif event == "socket.getaddrinfo":
                self._looked_up(args)
            elif args[0].family in _INTERNET:
                self._connect(args)
        finally:
            self._busy.now = False

    # --- network -----------------------------------------------------------------------------------------------

    def _is_model(self, host: str, port: int) -> bool:
        if (host, port) in self._known or (host, port) in self._seam.peers:
            return True
        if is_loopback(host):
            return any(p == port and is_loopback(h) for h, p in (*self._known, *self._seam.peers))
        return hosts.is_model_host(f"{host}:{port}", self._seam.rules.model_hosts)

    def _looked_up(self, args: tuple[Any, ...]) -> None:
        host, port = args[0], args[1]
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        outer = outer_request()
        if not isinstance(name, str) or is_loopback(name) or (outer is not None and outer.host == name.lower()):
            return
        number = {"https": 443, "http": 80}.get(port, 0) if isinstance(port, str) else port or 0
        if self._is_model(name.lower(), number):
            self._names[number] = (name.lower(), _caller())

    def _connect(self, args: tuple[Any, ...]) -> None:
        address = args[1]
        if not isinstance(address, tuple) or len(address) < 2 or not isinstance(address[1], int):
            return  # the call itself will fail
        host, port = str(address[0]).lower(), address[1]
        outer = outer_request()
        if outer is not None and outer.port == port:
            return  # the connection of a request that a hook has booked
        if self._seam.ended is not None:
            if self._is_model(host, port) and self._seam.is_left_over():
                self._seam.tell_left_over(f"{host}:{port}")
                raise ConnectionRefusedError(f"pytest-fanout: the run has ended ({host}:{port})")
        elif self._is_model(host, port):
            self._bypass(host, port, _caller())
        elif not is_loopback(host) and port in self._names:
            # The name was looked up outside every hook, and now somebody connects outside every hook.
            name, _ = self._names.pop(port)
            self._bypass(name, port, _caller())
        elif outer is None:  # below a hook it is a proxy
            text = f"{_caller()} connected to {host}:{port} outside every counting hook"
            self._notice("unhooked-peer", (host, port), text)

    def _bypass(self, host: str, port: int, caller: str) -> None:
        place = self._ledger.place()
        replay = self._seam.mode == "replay" or (place is not None and place.scope.source is not None)
        did = "was stopped connecting" if replay else "connected"
        self._tell(
            "unhooked-model-traffic",
            f"{caller} {did} to the model server {host}:{port} outside every counting hook: its calls are not counted\n"
            "  mend: call it through httpx or httpx2; no other client is counted yet",
            "invalid",
        )
        if replay:
            raise ConnectionRefusedError(f"pytest-fanout: replay goes to no model server ({host}:{port})")

    # --- children ----------------------------------------------------------------------------------------------

    def watch_children(self) -> Callable[[], None]:
        """Hear of children that multiprocessing starts: its own way to start them raises no audit event.

        A forked child needs no word here: it keeps the hooks, which refuse its model calls and tell this process.
        """
        import multiprocessing
        from multiprocessing.process import BaseProcess

        before = BaseProcess.start

        def start(process: BaseProcess) -> None:
            method = getattr(process, "_start_method", None) or multiprocessing.get_start_method()
            if os.getpid() == self._pid and method != "fork" and _GATEWAY not in os.environ:
                self._started("a process of multiprocessing", "multiprocessing")
            before(process)

        BaseProcess.start = start  # type: ignore[method-assign,assignment]

        def undo() -> None:
            if BaseProcess.start is start:
                BaseProcess.start = before  # type: ignore[method-assign]

        return undo

    def _in_child(self, event: str, args: tuple[Any, ...]) -> None:
        """A child made by fork has its model calls refused by the hooks, and here when they go round them."""
        if event == "socket.getaddrinfo":
            self._looked_up(args)
        elif event == "socket.connect" and args[0].family in _INTERNET:
            address = args[1]
            if not isinstance(address, tuple) or len(address) < 2 or not isinstance(address[1], int):
                return
            host, port = str(address[0]).lower(), address[1]
            if self._is_model(host, port) or (not is_loopback(host) and port in self._names):
                self._seam.child_called()
                raise ConnectionRefusedError(f"pytest-fanout: {FORKED_CALL}")

    def _child(self, event: str, args: tuple[Any, ...]) -> None:
        environ = args[-1] if isinstance(args[-1], dict) else os.environ
        if _GATEWAY in environ:
            return
        command = args[1] if event == "subprocess.Popen" and args[1] else args[0]
        first = command[0] if isinstance(command, list | tuple) and command else command
        text = os.fsdecode(first) if isinstance(first, str | bytes | os.PathLike) else str(first)
        if event == "os.system":
            text = (text.split() or [""])[0]
        name = os.path.basename(text).split(" ")[0]
        if name not in _HARMLESS:
            self._started(repr(name), name)

    def _started(self, what: str, key: str) -> None:
        text = f"{_caller()} started {what}: calls of child processes are not counted"
        self._notice("child-process", key, text)

    # --- telling -----------------------------------------------------------------------------------------------

    def _notice(self, slug: str, key: object, text: str) -> None:
        place = self._ledger.place()
        owner = id(place.scope) if place is not None else None
        if owner is None or (slug, key, owner) in self._seen:
            return  # what tests and plugins do between the tasks is their own business
        self._seen.add((slug, key, owner))
        self._tell(slug, text, "invalid" if self._seam.rules.strict_egress else "notice")

    def _tell(self, slug: str, text: str, verdict: str) -> None:
        place = self._ledger.place()
        if place is not None:
            problem = place.scope.add_problem(slug, text, verdict)
            if not place.scope.closed:
                return
            self._seam.add_problem(problem.slug, problem.text, verdict)
        else:
            self._seam.add_problem(slug, text, verdict)


def _split(name: str) -> tuple[str, int]:
    host, _, port = name.rpartition(":")
    return host.strip("[]").lower(), int(port) if port.isdigit() else 0


def _caller() -> str:
    """``file:line`` of the innermost frame that is neither ours nor the standard library's."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        is_library = file.startswith(_STDLIB) and not any(part in file for part in _SITE)
        if not is_library and not file.startswith((_HERE, "<")):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "code without a file"
