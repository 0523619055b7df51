"""What the evidence of a new draw says: of each test, of a class, and what would have to run next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Needs:
    """What to run next until the verdict stands: ``trials`` further trials of each of ``tasks``. False: nothing."""

    tasks: tuple[str, ...] = ()  # sorted
    trials: int = 0
    why: str = ""  # "look": evidence is open; "confirm": a failing draw; "backstop": a runaway; "": nothing is needed

    def __bool__(self) -> bool:
        return bool(self.tasks) and self.trials > 0


@dataclass(frozen=True, slots=True)
class MetricEvidence:
    """One test of one metric of a class: how much it grew, and how sure that is.

    Ratios are new over anchor: 1.14 is growth by 14 %. ``None``: not known, or not estimable from so few tasks.
    """

    name: str  # metric, e.g. "fanout"
    statistic: str  # body (all tasks), heavy (the dearest fifth), share (of capped or failed trials)
    verdict: str  # regressed pass open (not shown within) unconfirmed (a finding that waits for a further trial)
    effect: float | None  # ratio; of shares: difference in points of 1
    interval: tuple[float | None, float | None]  # two-sided 90 % of the effect
    threshold: float | None  # the effect that the limit allows
    p: float | None  # chance of such a growth between draws of an unchanged agent
    level: float | None  # what p has to be at most, at this look and among all tests of the run
    n: int  # tasks compared
    trials_base: int  # fewest trials of a task
    trials_run: int
    noise: float | None = None  # SD of the logarithm between trials of one task
    p95_base: int | None = None
    p95_run: int | None = None
    p95_base_interval: tuple[int | None, int | None] | None = None  # 90 %, order statistics
    p95_run_interval: tuple[int | None, int | None] | None = None
    max: int | None = None  # largest single trial of the new draw
    max_task: str | None = None
    found_at: int | None = None  # look at which the growth was found


@dataclass(frozen=True, slots=True)
class Cause:
    """What is behind the growth of one metric, as the control arm tells it apart.

    ``environment``: the base commit's agent of today beside the anchor; ``code``: the head's agent beside it.
    """

    metric: str
    label: str  # code environment both unknown
    environment: MetricEvidence
    code: MetricEvidence
    tasks: int  # that all three hold
    trials: int  # of the control arm


@dataclass(frozen=True, slots=True)
class Runaway:
    """A trial far beyond everything that its task did in the anchor."""

    task: str
    metric: str
    value: int
    bound: int  # three times the robust maximum of the task's own trials
    trials: int  # trials of the task in the new draw
    beyond: int  # how many of them are beyond the bound
    repeated: bool  # more often than the noise of the class explains


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the verdict is what it is. ``slug`` is an anchor of docs/messages.md; ``verdict`` may be "notice"."""

    slug: str
    text: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A class on a new draw beside its anchor, judged by evidence."""

    verdict: str  # pass regressed inconclusive invalid
    metrics: tuple[MetricEvidence, ...]
    needs: Needs = Needs()
    reasons: tuple[Reason, ...] = ()
    runaways: tuple[Runaway, ...] = ()
    n: int = 0  # tasks that both sides have
    looks: int = 0  # looks that the trials at hand allowed
    tests: int = 0  # hypotheses in the family, over all classes of the run
    level: float | None = None  # what p has to be at most while no other test of the family stands
    level_one_less: float | None = None  # the same, had the run one limit less
    finds_of: str | None = None  # the metric in which one limit less shows most; None: nothing gated has noise
    finds: float | None = None  # the smallest ratio of it, over all tasks, that four of five draws find at that level
    finds_one_less: float | None = None  # the same, had the run one limit less
    finds_trials: int | None = (
        None  # the new trials of a task that it is found with: all that the looks are planned for
    )
    permutations: int = 0  # the most that a test took; 0: none was needed
    seed: int = 0
    new: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The same as plain dicts, lists, numbers and None, keys in the order of the fields."""
        out = _plain(self)
        assert isinstance(out, dict)
        return out


@dataclass(frozen=True, slots=True)
class Power:
    """What an anchor's tasks and their noise let the judge of new draws see of one metric, all tasks together."""

    metric: str
    tasks: int
    trials_base: int
    noise: float | None  # SD of the logarithm between trials of one task; None: no task has two
    allowed: float  # ratio up to which the limits let it grow
    finds: tuple[tuple[int, float], ...]  # new trials, and the smallest ratio that is found in four of five draws
    red: float | None  # chance that the best guess for an unchanged class ends above the limit
    tasks_for_quarter: int | None  # tasks that find +25 % with all trials, and can pass; None: the limit allows as much


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """An anchor judged against itself: draws made of its own trials, so that nothing has changed in any of them."""

    draws: int
    regressed: int
    inconclusive: int
    trials: float  # new trials of a task, on average


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return value
