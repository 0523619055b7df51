"""Branching: a stale trial keeps its recorded answers up to its first changed request, and goes on live from there.

What the beginnings of two trials differ by is no difference between two agents, so that a trial and the one whose
beginning it keeps are compared with each other. A trial that has no recording goes on from a beginning that others
keep: several continuations of one branch point.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pytest_fanout import wire
from pytest_fanout.errors import IntegrityError, UsageError
from pytest_fanout.records import Exchange, MeasureRules, Problem, Recording
from pytest_fanout.store.recordings import RecordingStore
from pytest_fanout.store.replay import ReplaySource
from pytest_fanout.wire.polls import poll_id

if TYPE_CHECKING:
    import pytest

    from pytest_fanout.session.items import MeasuredTask
    from pytest_fanout.session.run import FanoutSession

OPTION: Final = "--fanout-branch"
#: Kinds of requests to a model after which its provider holds nothing that a later one needs.
_FORGOTTEN: Final = frozenset({"generate", "compact", "embed", "rerank", "moderate", "count"})
#: Keys of a request's body that name what the provider holds of an earlier one.
_KEPT: Final = ("previous_response_id", "previousResponseId", "conversation", "container", "cachedContent")
_DECLARED: Final = "stateful_tools of budget.toml names it"
_IMPORTED: Final = "it was imported from cassettes, which hold no times"
_OPEN: Final = "it speaks over a connection that stays open (a WebSocket, MCP over stdio), and replay opens none"
_SESSION: Final = "it has a session with a tool server (MCP over HTTP), and the server knows nothing of a replayed one"
_AT_PROVIDER: Final = "its calls go on from what the provider holds, and it holds nothing of replayed ones"
_FIRST: Final = "the first request of a trial differs, so that there is no beginning to keep"


@dataclass(slots=True)
class Branch:
    """The beginning that a trial is given, and what it made of it.

    ``root``: digest of the recording that the beginning was first drawn for.
    """

    recording: Recording
    source: ReplaySource
    root: str
    went_live: bool = False
    _recorded: dict[int, Exchange] = field(init=False)

    def __post_init__(self) -> None:
        # an answer is given out once, as the very object that the recording holds
        self._recorded = {id(exchange.answer): exchange for exchange in self.recording.exchanges}

    def as_recorded(self, exchange: Exchange) -> Exchange:
        """A replayed exchange in its stored form; how and for whom it was asked is what holds now."""
        before = self._recorded[id(exchange.answer)]
        return replace(before, seq=exchange.seq, layer=exchange.layer, bucket=exchange.bucket, depth=exchange.depth)


class Branching:
    """Finds the beginning of each trial that is to run live.

    Args:
        volatile: what matching ignores, as ``ReplaySource`` takes it.
        beginnings: of the anchor, for class and task: the recordings that its trials' beginnings were drawn for.
        known: every class, and every task as ``class::task``; asked once, when all are collected.
    """

    def __init__(
        self,
        store: RecordingStore,
        rules: MeasureRules,
        volatile: Any,
        beginnings: Callable[[str, str], Collection[str]],
        known: Callable[[], Collection[str] | None],
    ) -> None:
        self._store = store
        self._rules = rules
        self._volatile = volatile
        self._beginnings = beginnings
        self._known = known
        self._misspelt: tuple[Problem, ...] | None = None

    def begin(self, work: MeasuredTask, own: Recording | None) -> tuple[Branch | None, tuple[Problem, ...]]:
        """The branch of a trial, and what is to say of it; None: it runs whole. ``own``: its stale recording."""
        recording = own or self._of_others(work)
        if recording is None:
            return None, ()
        why = _DECLARED if self._is_declared(work) else why_not(recording)
        if why is not None:
            return None, (*self._of_declarations(), not_branched(work.agent, why))
        source = ReplaySource(recording, self._volatile, work.label, until_miss=True)
        return Branch(recording, source, recording.branched_from or recording.digest), self._of_declarations()

    def _is_declared(self, work: MeasuredTask) -> bool:
        return not {work.agent, f"{work.agent}::{work.task}"}.isdisjoint(self._rules.stateful_tools)

    def _of_declarations(self) -> tuple[Problem, ...]:
        """A misspelt name would let a task be branched whose tools have state."""
        if self._misspelt is None:
            known = self._known()
            entries = [entry for entry in self._rules.stateful_tools if known is not None and entry not in known]
            self._misspelt = tuple(
                Problem(
                    "stateful-of-no-task",
                    f"[measure] stateful_tools of budget.toml names {entry!r}, and no class and no task is called so; "
                    'mend: name a class ("support") or a task ("support::refund")',
                )
                for entry in entries
            )
        return self._misspelt

    def _of_others(self, work: MeasuredTask) -> Recording | None:
        """For a trial without a recording: the beginning that the fewest trials of its task keep.

        Only one that the anchor holds as well: trials that share a beginning among themselves alone would look like so
        many trials, and are hardly more than one.
        """
        named = self._beginnings(work.agent, work.task)
        found: dict[str, list[Recording]] = {}
        for trial in self._store.trials(work.agent, work.task) if named else ():
            try:
                recording = self._store.load(work.agent, work.task, trial)
            except IntegrityError:
                continue
            root = recording.branched_from or recording.digest
            if root in named:
                found.setdefault(root, []).append(recording)
        if not found:
            return None
        first = min(found.values(), key=lambda those: (len(those), those[0].trial))[0]
        return first if first.branched_from is None else replace(first, exchanges=first.exchanges[: first.shared])


def why_not(recording: Recording) -> str | None:
    """Why no trial can go on live in the middle of this recording; None: it can."""
    if recording.imported:
        return _IMPORTED
    for exchange in recording.exchanges:
        request = exchange.request
        if request.method in ("WS", "MCP"):
            return _OPEN
        if exchange.role == "model":
            if _is_kept_at_provider(exchange):
                return _AT_PROVIDER
        elif b'"initialize"' in request.body and b'"jsonrpc"' in request.body:
            return _SESSION
    return None


def _is_kept_at_provider(exchange: Exchange) -> bool:
    request = exchange.request
    if request.method in ("GET", "HEAD"):
        return poll_id(request.method, request.url) is not None
    if wire.classify(request.method, request.url).kind not in _FORGOTTEN or "/conversations/" in request.url:
        return True
    try:
        body = json.loads(request.body)
    except ValueError:
        return False
    return isinstance(body, dict) and any(body.get(key) for key in _KEPT)


def not_branched(agent: str, why: str) -> Problem:
    """A trial ran again whole, although branching was asked for. Without names, so that it is told once a class."""
    return Problem("not-branched", f"{agent}: not branched: {why}; such trials ran again whole", "notice", agent)


def first_changed(agent: str) -> Problem:
    """The branch came to nothing."""
    return not_branched(agent, _FIRST)


def ordered(exchanges: Iterable[Exchange]) -> Sequence[Exchange]:
    """What was replayed, then what went out: so the first ``shared`` of a recording are its beginning."""
    return sorted(exchanges, key=lambda exchange: (not exchange.replayed, exchange.seq))


def check_option(config: pytest.Config) -> None:
    """Refuse ``--fanout-branch`` where it cannot do what it says.

    Raises:
        UsageError: in a mode that renews no recordings, or with a control arm.
    """
    if not config.getoption("fanout_branch"):
        return
    mode = config.getoption("fanout_mode")
    if mode != "record":
        raise UsageError(
            "branch-without-record",
            f"{OPTION} goes on from recordings that are stale, and --fanout-mode={mode} renews none of them",
            mend=f"pytest --fanout-budget --fanout-mode=record {OPTION}",
        )
    if config.getoption("fanout_control") is not None:
        raise UsageError(
            "branch-with-control",
            f"{OPTION} keeps answers of the day of the recordings, and --fanout-control asks what has changed since: "
            "together they would take the one for the other",
            mend=f"leave out one of them; --fanout-control runs its trials whole, without {OPTION}",
        )


def branching_of(session: FanoutSession, volatile: Any) -> Branching | None:
    """What ``--fanout-branch`` asks for; None where it was not given, and where a process only serves another."""
    if not session.config.getoption("fanout_branch") or session.serves:
        return None

    def beginnings(agent: str, task: str) -> Collection[str]:
        compared = session.anchors.compared()
        anchor = compared[0].get(agent) if compared is not None else None
        entry = anchor.tasks.get(task) if anchor is not None else None
        return {fact.beginning for fact in entry.trials if fact.beginning} if entry is not None else ()

    def known() -> Collection[str] | None:
        if session.only or session.shard is not None:
            return None  # marked tests that were left out are not to be seen
        tasks = {(name, task.id) for name, evalset in session.evalsets.items() for task in evalset.tasks}
        tasks |= {(work.agent, work.task) for work in session.works.values()}
        return {*session.settings.agents, *(agent for agent, _ in tasks), *(f"{a}::{t}" for a, t in tasks)}

    return Branching(session.store, session.budget.measure, volatile, beginnings, known)
