"""The hook of uvloop: it counts nothing. An event loop in C opens connections without a word; here it says them.

What it opens, looks up and starts is told to the tripwire as Python's own sockets and processes tell it, and the work
that it takes over keeps its owner, as on the loops of asyncio. A stop ends it, and is raised where it was run.
"""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from pytest_fanout.meter.patching import passed_on
from pytest_fanout.meter.seam import Seam
from pytest_fanout.meter.stopper import check_overdue
from pytest_fanout.meter.tripwire import heard

MODULES: tuple[str, ...] = ("uvloop",)
LAYER = "uvloop"
_MARK = "_pytest_fanout_hook"


class _Socket(NamedTuple):
    """What the tripwire asks of a socket."""

    family: int


_INTERNET, _UNIX = _Socket(socket.AF_INET), _Socket(socket.AF_UNIX)


def install(module: ModuleType, seam: Seam) -> Callable[[], None]:
    """Patch the loop of ``module``; the returned function takes the patches off again."""
    loop, undo = module.Loop, []
    for name, tell in _TOLD.items():
        before = getattr(loop, name)
        if hasattr(before, _MARK):
            continue
        hook = _hook(seam, before, tell)
        setattr(hook, _MARK, True)
        setattr(loop, name, hook)
        undo.append((name, hook))
    before = loop.run_forever
    if not hasattr(before, _MARK):
        hook = _running(before)
        setattr(hook, _MARK, True)
        loop.run_forever = hook
        undo.append(("run_forever", hook))
    seam.ledger.adopt_loop(loop)

    def uninstall() -> None:
        for name, hook in undo:
            if vars(loop).get(name) is hook:
                delattr(loop, name)

    return uninstall


def prove(module: ModuleType, seam: Seam) -> list[str]:
    """Open one connection without a loop, which comes to nothing; the patch if it did not see it exactly once."""
    seam.probe = []
    with contextlib.suppress(Exception):
        module.Loop.create_connection(None, None, None, None).send(None)
    failed = [] if len(seam.probe) == 1 else ["uvloop.Loop.create_connection"]
    seam.probe = None
    return failed


def _hook(seam: Seam, original: Any, tell: Any) -> Any:
    @functools.wraps(original)
    async def told(loop: Any, *args: Any, **named: Any) -> Any:
        if seam.probe is not None:
            seam.probe.append(LAYER)
        elif seam.active:
            tell(*args, **named)
        return await original(loop, *args, **named)

    return told


def _running(original: Any) -> Any:
    @functools.wraps(original)
    def run_forever(loop: Any) -> None:
        passed_on(original, loop)
        check_overdue()

    return run_forever


def _connection(factory: Any, host: Any = None, port: Any = None, **_: Any) -> None:
    if host is not None:
        heard("socket.connect", (_INTERNET, (host, port)))


def _unix_connection(factory: Any, path: Any = None, **_: Any) -> None:
    if path is not None:
        heard("socket.connect", (_UNIX, path))


def _datagrams(factory: Any, local_addr: Any = None, remote_addr: Any = None, **_: Any) -> None:
    if remote_addr is not None:
        heard("socket.connect", (_INTERNET, remote_addr))


def _lookup(host: Any, port: Any, **_: Any) -> None:
    heard("socket.getaddrinfo", (host, port))


def _program(factory: Any, program: Any, *args: Any, env: Any = None, **_: Any) -> None:
    heard("subprocess.Popen", (program, [program, *args], None, env))


def _shell(factory: Any, command: Any, *, env: Any = None, **_: Any) -> None:
    heard("os.system", (command, env))


_TOLD = {
    "create_connection": _connection,
    "create_unix_connection": _unix_connection,
    "create_datagram_endpoint": _datagrams,
    "getaddrinfo": _lookup,
    "subprocess_exec": _program,
    "subprocess_shell": _shell,
}
