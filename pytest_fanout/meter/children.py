"""Processes that an agent starts by itself, sent through the gateway: their calls are the task's, under the same caps.

``subprocess`` (and with it asyncio's), ``os.posix_spawn`` and ``multiprocessing`` by its method spawn are given the
gateway's environment while a task runs. What they start in turn has it as well.
"""

from __future__ import annotations

import inspect
import multiprocessing
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from pytest_fanout.meter.ledger import Ledger

if TYPE_CHECKING:
    from pytest_fanout.meter.gateway import Gateway
    from pytest_fanout.meter.task import TaskScope

_DEPTH: Final = 1  # a child of the agent: one step deeper than the agent itself
_VARIABLE: Final = "FANOUT_GATEWAY"


class Children:
    """Args:
    agents: names of the classes whose children are counted.
    """

    def __init__(self, ledger: Ledger, gateway: Gateway, agents: frozenset[str]) -> None:
        self._ledger = ledger
        self._gateway = gateway
        self._agents = agents
        self._started: WeakKeyDictionary[Any, TaskScope] = WeakKeyDictionary()
        self._one_at_a_time = threading.RLock()

    def install(self) -> Callable[[], None]:
        """Patch what starts processes; the returned function takes the patches off again."""
        places: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
            (subprocess.Popen, "__init__", self._popen),
            (os, "posix_spawn", self._posix_spawn),
            (os, "posix_spawnp", self._posix_spawn),
            (BaseProcess, "start", self._start),
        )
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in places if hasattr(owner, name)]
        ours = [make(getattr(owner, name)) for owner, name, make in places if hasattr(owner, name)]
        for (owner, name, _), hook in zip(before, ours, strict=True):
            setattr(owner, name, hook)

        def undo() -> None:
            for (owner, name, original), hook in zip(before, ours, strict=True):
                if getattr(owner, name) is hook:
                    setattr(owner, name, original)

        return undo

    def end(self, scope: TaskScope) -> None:
        """A capped task has ended: so do the processes that it has left running."""
        for child, owner in list(self._started.items()):
            if owner is scope and _is_running(child):
                child.kill()

    def _scope(self) -> TaskScope | None:
        """The task that this code works for, if its children are counted."""
        place = self._ledger.place()
        if place is None or place.scope.closed or place.scope.agent not in self._agents:
            return None
        return place.scope

    def _environ(self, scope: TaskScope, base: Mapping[Any, Any] | None) -> dict[str, str]:
        given = os.environ if base is None else {os.fsdecode(name): os.fsdecode(value) for name, value in base.items()}
        return self._gateway.environ_for(scope, given, depth=_DEPTH)

    def _popen(self, init: Any) -> Any:
        signature = inspect.signature(init)

        def started(process: Any, *args: Any, **kwargs: Any) -> None:
            scope = self._scope()
            if scope is None:
                init(process, *args, **kwargs)
                return
            bound = signature.bind(process, *args, **kwargs)
            bound.arguments["env"] = self._environ(scope, bound.arguments.get("env"))
            init(*bound.args, **bound.kwargs)
            self._started[process] = scope

        return started

    def _posix_spawn(self, spawn: Any) -> Any:
        def spawned(path: Any, argv: Any, env: Any, **kwargs: Any) -> Any:
            scope = self._scope()
            # subprocess itself comes by here, with what it was given above
            counted = scope is None or any(os.fsdecode(name) == _VARIABLE for name in env)
            return spawn(path, argv, env if counted or scope is None else self._environ(scope, env), **kwargs)

        return spawned

    def _start(self, start: Any) -> Any:
        def started(process: Any) -> None:
            method = getattr(process, "_start_method", None) or multiprocessing.get_start_method()
            scope = self._scope()
            if scope is None or method != "spawn":
                start(process)
                return
            with self._one_at_a_time:  # multiprocessing takes the environment as it stands
                before = dict(os.environ)
                changed = {n: v for n, v in self._environ(scope, None).items() if before.get(n) != v}
                os.environ.update(changed)
                try:
                    start(process)
                finally:
                    for name in changed:
                        if name in before:
                            os.environ[name] = before[name]
                        else:
                            del os.environ[name]
            self._started[process] = scope

        return started


def _is_running(child: Any) -> bool:
    if isinstance(child, BaseProcess):
        return child.is_alive()
    return child.poll() is None
