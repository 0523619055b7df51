"""The tripwire: connections that no hook has seen. It notices bypasses; it never counts.

One audit hook a process (it cannot be taken off), switched on and off. It sees Python's own sockets and processes;
C and Rust stacks with sockets of their own are out of its sight, and are named when they are imported.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from pytest_fanout.meter.keys import is_loopback
from pytest_fanout.meter.ledger import TOOL, Ledger, Outer, outer_request
from pytest_fanout.meter.seam import Seam
from pytest_fanout.meter.words import FORKED_CALL
from pytest_fanout.wire import hosts

if TYPE_CHECKING:
    from pytest_fanout.meter.task import TaskScope

_HERE = os.path.dirname(os.path.abspath(__file__))
_STDLIB = sysconfig.get_paths()["stdlib"]
_SITE = ("site-packages", "dist-packages")
_NETWORK = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"})
_INTERNET = frozenset({socket.AF_INET, socket.AF_INET6})
_UNIX = getattr(socket, "AF_UNIX", None)
#: Unix sockets of Python's and the system's own: the system log, and how processes of multiprocessing talk.
_QUIET = ("/dev/log", "/run/systemd/", "/var/run/syslog", "\0listener-")
_CHILDREN = frozenset({"subprocess.Popen", "os.posix_spawn", "os.exec", "os.system"})
_INTERPRETER = "cpython.PyInterpreterState_New"  # subinterpreters have sockets and modules of their own
#: What the standard library runs by itself: `platform` to name the system for the headers of SDKs, `ctypes.util` to
#: find a library (trio does so at import).
_HARMLESS = frozenset({"uname", "ldconfig"})
_GATEWAY = "FANOUT_GATEWAY"  # in the environment of children that the gateway counts
_NAME_SERVICE = 53
_WATCHED = frozenset({"websockets.sync.client"})
_PROXY_PORTS = {"http": 80, "https": 443, "socks5": 1080, "socks5h": 1080, "socks4": 1080}
_MEND = (
    "call models through a client that is counted: httpx, httpx2, aiohttp, urllib3 (requests, botocore),"
    " urllib.request, http.client, websockets, gRPC; docs/coverage.md tells of others"
)


class _Handler(Protocol):
    def see(self, event: str, args: tuple[Any, ...]) -> None: ...


class Peer(NamedTuple):
    """Where a connection goes: host and port, or the path of a Unix socket (port -1)."""

    host: str
    port: int

    @property
    def name(self) -> str:
        if self.port < 0:
            return "unix:" + self.host.replace("\0", "@")
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_switch: _Handler | None = None
_hooked = False


def heard(event: str, args: tuple[Any, ...]) -> None:
    """An audit event of Python, or one that a library should have raised."""
    handler = _switch
    if handler is not None and (event in _NETWORK or event in _CHILDREN or event == _INTERPRETER):
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
        self._paths: set[str] = set()  # Unix sockets that counted requests went through
        self._names: dict[int, tuple[str, str]] = {}  # port -> (model host looked up outside the hooks, who did)
        self._met: dict[Peer, tuple[str, TaskScope | None]] = {}  # others met outside the hooks: who did, in what task
        self._seen: set[object] = set()
        self._busy = threading.local()
        self._became = mmap.mmap(-1, 1)  # shared with children made by fork: 1 once one has become another program

    def expect(self, names: Iterable[str]) -> None:
        """More ``known`` ones; what was met outside the hooks before is judged when its task or the run ends."""
        self._known |= {_split(name) for name in names}

    def arm(self) -> None:
        global _switch, _hooked
        if not _hooked:
            sys.addaudithook(heard)
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
            elif event == _INTERPRETER:
                if self._seam.ended is None:
                    text = f"{_caller()} started another interpreter in this process: what it calls is not counted"
                    self._notice("child-process", event, text)
            elif event == "socket.getaddrinfo":
                self._looked_up(args)
            elif (peer := _peer(args[0], args[1])) is not None:
                self._connect(peer)
        finally:
            self._busy.now = False

    def settle(self, scope: TaskScope | None) -> None:
        """The end of a task, or of the run: say what could not be known when it was seen."""
        for peer, (caller, owner) in list(self._met.items()):
            if self._is_model(peer):  # it served a counted call after it had been met outside the hooks
                del self._met[peer]
                text = _bypass_text(caller, "connected", f"the model server {peer.name}")
                (owner if owner is not None and owner is scope else self._seam).add_problem(
                    "unhooked-model-traffic", text
                )
        if self._became[0]:
            self._became[0] = 0
            text = "a child made by fork became another program: calls of child processes are not counted"
            (scope or self._seam).add_problem("child-process", text, self._verdict())

    # --- network -----------------------------------------------------------------------------------------------

    def _is_model(self, peer: Peer) -> bool:
        host, port = peer
        if port < 0:
            return host in self._paths
        if (host, port) in self._known or (host, port) in self._seam.peers:
            return True
        if is_loopback(host):
            return any(p == port and is_loopback(h) for h, p in (*self._known, *self._seam.peers))
        return hosts.is_model_host(f"{host}:{port}", self._seam.rules.model_hosts)

    def _looked_up(self, args: tuple[Any, ...]) -> None:
        host, port = args[0], args[1]
        name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
        outer, _ = _above()
        if not isinstance(name, str) or is_loopback(name) or (outer is not None and outer.host == name.lower()):
            return
        number = {"https": 443, "http": 80}.get(port, 0) if isinstance(port, str) else port or 0
        peer = Peer(name.lower(), number)
        if self._is_model(peer):
            self._names[number] = (f"the model server {peer.name}", _caller())
        elif outer is None and _is_proxy(peer):
            self._names[number] = (f"the proxy {peer.name}", _caller())

    def _connect(self, peer: Peer) -> None:
        outer, in_tool = _above()
        if outer is not None and peer.port < 0:
            if outer.counted:
                self._paths.add(peer.host)
            return
        if outer is not None and outer.port == peer.port:
            return  # the connection of a request that a hook has booked
        if self._seam.ended is not None:
            if self._is_model(peer) and self._seam.is_left_over():
                self._seam.tell_left_over(peer.name)
                raise ConnectionRefusedError(f"pytest-fanout: the run has ended ({peer.name})")
        elif outer is None and _is_watched() and not (self._is_replay() and self._is_model(peer)):
            return
        elif self._is_model(peer):
            self._bypass(f"the model server {peer.name}", peer.name)
        elif peer.port in self._names:
            # The name was looked up outside every hook, and now somebody connects outside every hook.
            what, _ = self._names.pop(peer.port)
            self._bypass(what, what.rpartition(" ")[2])
        elif outer is not None:
            return  # below a hook it is a proxy
        elif _is_proxy(peer):
            self._bypass(f"the proxy {peer.name}", peer.name)
        elif peer.port != _NAME_SERVICE and not peer.host.startswith(_QUIET) and "/pymp-" not in peer.host:
            self._meet(peer, is_told=not in_tool)

    def _meet(self, peer: Peer, *, is_told: bool) -> None:
        place = self._ledger.place()
        caller = _caller()
        self._met.setdefault(peer, (caller, place.scope if place is not None else None))
        if is_told:
            self._notice("unhooked-peer", peer, f"{caller} connected to {peer.name} outside every counting hook")

    def _bypass(self, what: str, name: str) -> None:
        replay = self._is_replay()
        did = "was stopped connecting" if replay else "connected"
        self._tell("unhooked-model-traffic", _bypass_text(_caller(), did, what), "invalid")
        if replay:
            raise ConnectionRefusedError(f"pytest-fanout: replay goes to no model server ({name})")

    def _is_replay(self) -> bool:
        place = self._ledger.place()
        return self._seam.mode == "replay" or (place is not None and place.scope.source is not None)

    def blind(self, name: str, *, is_new: bool = True) -> None:
        """A library is there whose connections nobody here sees."""
        what = f"{_caller()} imported {name}, which" if is_new else f"{name} is loaded, and"
        text = (
            f"{what} opens connections out of sight: what it sends is not counted; sealed keys stop it only at"
            f" providers that check keys\n  mend: {_MEND}"
        )
        self._tell("blind-client", text, self._verdict())

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
        if event == "os.exec":
            self._became[0] = 1
        elif event == "socket.getaddrinfo":
            self._looked_up(args)
        elif event in _NETWORK:
            peer = _peer(args[0], args[1])
            if peer is None or not (self._is_model(peer) or peer.port in self._names):
                return
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
        self._tell(slug, text, self._verdict())

    def _verdict(self) -> str:
        return "invalid" if self._seam.rules.strict_egress else "notice"

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


def _peer(sock: Any, address: Any) -> Peer | None:
    """Where a socket is about to speak to; None where that is nowhere, or the call itself will fail."""
    if sock.family in _INTERNET:
        if isinstance(address, tuple) and len(address) >= 2 and isinstance(address[1], int):
            return Peer(str(address[0]).lower(), address[1])
    elif sock.family == _UNIX and isinstance(address, str | bytes) and address:
        return Peer(os.fsdecode(address), -1)
    return None


def _above() -> tuple[Outer | None, bool]:
    """The request that this code runs below, and whether it runs in a recorded function, which is none."""
    outer = outer_request()
    in_tool = outer is not None and outer.method == TOOL
    return (None if in_tool else outer), in_tool


def _is_watched() -> bool:
    """Whether a library opens this connection whose hook lies above: a function of it that was bound before the hooks
    were set cannot be told apart otherwise."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") in _WATCHED:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _is_proxy(peer: Peer) -> bool:
    """Whether the environment names this as a proxy: whatever goes there may go on to a model."""
    return any(
        port == peer.port and (host == peer.host or (is_loopback(host) and is_loopback(peer.host)))
        for host, port in _proxies()
    )


def _proxies() -> Iterator[tuple[str, int]]:
    for name, value in list(os.environ.items()):
        if name.lower() in ("http_proxy", "https_proxy", "all_proxy") and value:
            try:
                url = urlsplit(value if "://" in value else f"http://{value}")
                yield (url.hostname or "").lower(), url.port or _PROXY_PORTS.get(url.scheme, 0)
            except ValueError:
                continue


def _bypass_text(caller: str, did: str, what: str) -> str:
    return f"{caller} {did} to {what} outside every counting hook: its calls are not counted\n  mend: {_MEND}"


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
