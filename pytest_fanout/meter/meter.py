"""The meter: hooks on, keys sealed, one task at a time measured, everything put back at the end."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_fanout.errors import UsageError
from pytest_fanout.meter.blind import BLIND
from pytest_fanout.meter.children import Children
from pytest_fanout.meter.guards import ExitGuard
from pytest_fanout.meter.hooks import BY_MODULE, Hook
from pytest_fanout.meter.importing import ImportWatch
from pytest_fanout.meter.keys import SealedKeys
from pytest_fanout.meter.ledger import Ledger
from pytest_fanout.meter.outflow import Outflow
from pytest_fanout.meter.reader import Reader
from pytest_fanout.meter.seam import Redact, Seam
from pytest_fanout.meter.stopper import Stopper
from pytest_fanout.meter.task import CapWarning, Source, TaskScope, Trace
from pytest_fanout.meter.tool_call import ToolCall
from pytest_fanout.meter.tripwire import Tripwire
from pytest_fanout.records import Caps, Exchange, MeasureRules, Problem

if TYPE_CHECKING:
    from pytest_fanout.meter.gateway import Gateway

_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What belongs to no task: problems of the run, and counts of calls."""

    problems: tuple[Problem, ...]
    late: int = 0  # calls of a task that had been closed
    unattributed: int = 0  # model calls that nobody owns
    setup: int = 0  # model calls of fixtures
    sealed: bool = True


class Meter:
    """Counts, records and replays the calls of one task at a time in this process.

    Args:
        mode: replay, record, rerecord or live. In replay nothing goes to a model, with or without a source.
        measure: rules of budget.toml.
        hosts: ``host:port`` of model servers known beforehand (those of the recordings).
        redact: ``(request, answer) -> (request, answer) | None``, before anything is kept or looked up.
        cap_warning: ``(task, cap, share)``, when 80 % of a cap is used.
        codecs: the user's own, asked before the built-in ones.
        environ: where the keys stand.
    """

    _active: ClassVar[Meter | None] = None
    _lingering: ClassVar[Meter | None] = None

    def __init__(
        self,
        *,
        mode: str,
        measure: MeasureRules,
        hosts: Iterable[str] = (),
        redact: Redact | None = None,
        cap_warning: CapWarning | None = None,
        codecs: Iterable[Any] = (),
        environ: MutableMapping[str, str] = os.environ,
    ) -> None:
        self._codecs = tuple(codecs)
        self._cap_warning = cap_warning
        self._rules = measure
        self._ledger = Ledger()
        self._keys = SealedKeys(environ)
        self._seam = Seam(mode, measure, self._ledger, Reader(self._codecs), self._keys, redact)
        self._tripwire = Tripwire(self._seam, self._ledger, hosts)
        self._exit_guard = ExitGuard(lambda: self._ledger.running is not None)
        self._stopper = Stopper(self._ledger)
        self._watch = ImportWatch((*BY_MODULE, *BLIND), self._imported)
        self._gateway: Gateway | None = None
        self._children: Children | None = None
        self._undo: list[Callable[[], None]] = []
        self._hooked: list[tuple[Hook, ModuleType]] = []
        self._failed: list[Problem] = []
        self._told = 0  # of them, those that start() has returned
        self.at_recorded_speed = False  # replay with the recorded pauses

    def expect(self, hosts: Iterable[str]) -> None:
        """More of the ``hosts`` that are known beforehand; connections made to them already are told as well."""
        self._tripwire.expect(hosts)

    # --- the run -----------------------------------------------------------------------------------------------

    def start(self) -> tuple[Problem, ...]:
        """Seal the keys and set every hook; call it before the agent is imported.

        Returns:
            A problem for each hook that does not see what passes through it.

        Raises:
            UsageError: another meter is running in this process.
        """
        if Meter._active is not None:
            raise UsageError(
                "meter-running",
                "a measurement is running already in this process: one counts at a time",
                mend="end the outer measurement first, or measure in another process",
            )
        if Meter._lingering is not None:
            Meter._lingering._put_back()
        Meter._active = self
        if self._rules.seal_keys:
            self._keys.seal()
        self._ledger.install()
        self._stopper.install()
        self._exit_guard.install()
        self._seam.active = True
        for name in BY_MODULE:
            module = sys.modules.get(name)
            if module is not None:
                self._imported(module)
        for name in sorted(BLIND & sys.modules.keys()):
            self._tripwire.blind(name, is_new=False)
        self._watch.install()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)
        self._undo.append(self._tripwire.watch_children())
        self._tripwire.arm()
        self._told = len(self._failed)
        return tuple(self._failed)

    def stop(self) -> None:
        """Put everything back: patches, environment, signal handler. Safe to call twice."""
        if Meter._active is not self:
            return
        self._exit_guard.uninstall()
        self._stopper.uninstall()
        self._keys.unseal()
        self._put_back()
        Meter._active = None

    def linger(self, tell: Callable[[str], None]) -> None:
        """Stop, but for one thing: until the process ends, or measures again, a model call of what the run has left
        behind (a thread, an exit handler) is refused, and ``tell`` hears of it, on whatever thread that is.
        """
        if Meter._active is not self:
            return
        self._exit_guard.uninstall()
        self._stopper.uninstall()
        self._keys.unseal()
        self._seam.ended = tell
        # exit handlers run last registered first: those of the agent come after this one
        atexit.register(self._exiting)
        self._undo.append(lambda: atexit.unregister(self._exiting))
        Meter._active, Meter._lingering = None, self

    def gateway(self, port: int = 0) -> Gateway:
        """The gateway for agents in other processes: started on first use, stopped with this meter.

        Args:
            port: on 127.0.0.1, heeded when it is started; 0: any that is free.

        Raises:
            UsageError: its extra is not installed, or the port is taken.
        """
        from pytest_fanout.meter.gateway import Gateway

        if self._gateway is None:
            self._gateway = Gateway(self._seam, self._keys, port=port)
        return self._gateway

    def ask_first(self, outflow: Outflow) -> None:
        """From now on no live model call goes out that this does not let go."""
        self._seam.outflow = outflow

    def count_children(self, agents: Iterable[str]) -> None:
        """From now on processes that tasks of these classes start go through the gateway."""
        self._children = Children(self._ledger, self.gateway(), frozenset(agents))
        self._undo.append(self._children.install())

    def _exiting(self) -> None:
        self._seam.exiting = True

    def _put_back(self) -> None:
        if self._gateway is not None:
            self._gateway.stop()
            self._gateway = None
        self._tripwire.disarm()
        self._watch.uninstall()
        self._seam.active = False
        while self._undo:
            self._undo.pop()()
        self._ledger.uninstall()
        if Meter._lingering is self:
            Meter._lingering = None

    def finish(self) -> RunFacts:
        """What belongs to no task, up to now; without the problems that ``start`` has returned.

        Threads that tasks have left at work get a moment to come to an end: what they call is late, and counted so.
        """
        seam = self._seam
        self._ledger.wait_for_threads(_GRACE_S)
        if self._gateway is not None:
            self._gateway.drain()
        seam.hear_children(None)
        self._tripwire.settle(None)
        if Meter._active is self:
            for hook, module in self._hooked:
                self._prove(hook, module)  # another tool may have taken a patch off since
        return RunFacts(
            problems=(*self._failed[self._told :], *seam.problems),
            late=seam.late,
            unattributed=seam.unattributed,
            setup=seam.setup_calls,
            sealed=self._rules.seal_keys,
        )

    def _imported(self, module: ModuleType) -> None:
        hook = BY_MODULE.get(module.__name__)
        if hook is None:
            self._tripwire.blind(module.__name__)
            return
        self._undo.append(hook.install(module, self._seam))
        self._hooked.append((hook, module))
        self._prove(hook, module)

    def _prove(self, hook: Hook, module: ModuleType) -> None:
        for name in hook.prove(module, self._seam):
            text = f"the hook {name} did not see a request that was sent through it exactly once"
            problem = Problem("hook-failed", text)
            if problem not in self._failed:
                self._failed.append(problem)

    def _after_fork(self) -> None:
        self._seam.forked = True

    # --- a task ------------------------------------------------------------------------------------------------

    def open_task(
        self,
        agent: str,
        task: str,
        trial: int,
        caps: Caps,
        source: Source | None = None,
        *,
        beside: bool = False,
        resumes_ms: Callable[[int], int] | None = None,
    ) -> TaskScope:
        """Begin one trial; what is called from now on is its own. With a ``source`` every answer comes from there.

        Args:
            resumes_ms: the source holds only the beginning: from the first request that is not on it all go out. Says
                when that one is sent, in ms of the recorded task, given the ms since the last recorded answer.
            beside: only what comes through the gateway with its key is its own, so that many may be open at once; its
                wall clock is the caller's.

        Raises:
            UsageError: another task is open: one runs at a time in a process.
        """
        if beside:
            return self._scope(agent, task, trial, caps, source)
        running = self._ledger.running
        if running is not None:
            raise UsageError(
                "task-running",
                f"task {task!r} of {agent} cannot begin while {running.task!r} of {running.agent} runs in this process",
                mend="measure one task after the other, or in parallel processes (pytest -n auto)",
            )
        scope = self._scope(agent, task, trial, caps, source)
        scope.resumes_ms = resumes_ms
        self._ledger.open(scope)
        self._stopper.watch(scope)
        return scope

    def _scope(self, agent: str, task: str, trial: int, caps: Caps, source: Source | None) -> TaskScope:
        return TaskScope(
            agent,
            task,
            trial,
            caps,
            source,
            self._codecs,
            self._rules.model_hosts,
            cap_warning=self._cap_warning,
            outflow=self._seam.outflow,
            at_recorded_speed=self.at_recorded_speed,
        )

    def settle(self, scope: TaskScope) -> None:
        """The agent's code has ended: nothing stops this thread any more. ``close_task`` does it as well."""
        self._stopper.settle(scope)

    def close_task(self, scope: TaskScope) -> Trace:
        """End the trial. What it still calls afterwards is late."""
        self.settle(scope)
        duration_ms = scope.now_ms()
        if self._children is not None and scope.capped is not None:
            self._children.end(scope)
        if self._gateway is not None:
            self._gateway.close_scope(scope)
        scope.closed = True
        self._ledger.close(scope)
        self._seam.hear_children(scope)
        self._tripwire.settle(scope)
        scope.note_cut_calls()
        scope.note_given_up_calls()
        exchanges = tuple(self._redacted(exchange) for exchange in scope.exchanges())
        return Trace(
            exchanges=exchanges,
            problems=tuple(scope.problems),
            capped=scope.capped,
            begun_at=scope.begun_at,
            duration_ms=duration_ms,
            misses=scope.misses,
            hosts=tuple(sorted(scope.hosts)),
            spent_calls=scope.spent_calls,
            replayed_calls=sum(flight.counted and flight.replayed is not None for flight in scope.flights),
        )

    def _redacted(self, exchange: Exchange) -> Exchange:
        redact = self._seam.redact
        changed = redact(exchange.request, exchange.answer) if redact is not None else None
        return exchange if changed is None else replace(exchange, request=changed[0], answer=changed[1])

    def aside(self, name: str) -> AbstractContextManager[None]:
        """Calls inside are booked in the bucket ``name``: recorded and capped, but not the agent's."""
        return self._ledger.within(bucket=name)

    def call_site(self, name: str) -> AbstractContextManager[None]:
        """Calls inside are explained under ``name``."""
        return self._ledger.within(site=name)

    def records_tools(self) -> bool:
        """Whether results of the agent's functions are recorded or replayed: live, they simply run."""
        return self._seam.mode != "live"

    def begin_tool(self, name: str, arguments: dict[str, Any]) -> ToolCall | None:
        """Book a call of a function whose results are recorded; None where it simply runs.

        Args:
            name: module and qualified name of the function.
            arguments: by name, as JSON.
        """
        body = json.dumps(arguments, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        begun = self._seam.begin_tool(name, body)
        return None if begun is None else ToolCall(*begun)

    @contextmanager
    def setup(self) -> Iterator[None]:
        """Calls inside (fixtures) belong to no task; in replay they are refused with 400 and noted."""
        with self._ledger.setup():
            yield
