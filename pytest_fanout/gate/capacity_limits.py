"""Limits on what a class costs: ``capacity.gpus_p95``, ``capacity.cost_month`` and ``capacity.cliffs`` of budget.toml.

They are judged on the demand, fleet and prices of the base commit (HEAD's where the base has none), so that a change
cannot make room for itself. Every task counts the same: weights of an eval set move no limit. Plugins' profiles are
not known here, because `fanout-baseline verify` loads none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_fanout.capacity.demand import peak_demand
from pytest_fanout.capacity.figures import counted
from pytest_fanout.capacity.means import TaskMeans
from pytest_fanout.capacity.plan import DAYS_PER_MONTH, plan_fleet
from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.capacity.project import Sides, load_of, profile_of, sides_of, whole_gpus
from pytest_fanout.capacity.side import GpuWindows
from pytest_fanout.config import Settings
from pytest_fanout.errors import FanoutError
from pytest_fanout.gate.completeness import Measured
from pytest_fanout.gate.fleet import calibration_from, samples_of_anchor, samples_of_run
from pytest_fanout.gate.tree import folder_of, problem_of
from pytest_fanout.judge.limits import ceiling as ceiling_of
from pytest_fanout.judge.limits import limit_value
from pytest_fanout.records import (
    MEASURED,
    Approval,
    Baseline,
    Budget,
    Calibration,
    Change,
    Fleet,
    JudgeRules,
    Limit,
    MetricResult,
    Problem,
    Run,
    Samples,
)
from pytest_fanout.store.fleet import parse_fleet
from pytest_fanout.store.git import Repository

#: Cliffs are tried at the means: windows play no part.
_FEW_WINDOWS = 50
#: Cliffs survivable where not even the demand without any fits.
_NOTHING_FITS = -1


@dataclass(frozen=True, slots=True)
class Priced:
    """What the limits of one class come to."""

    metrics: tuple[MetricResult, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class _Values:
    base: int | None
    run: int | None
    above: float | None = None  # share of eval sets in which the run is above the bound; None: not known


@dataclass(frozen=True, slots=True)
class _Used:
    """What both sides are priced with."""

    fleet: Fleet
    calibration: Calibration | None
    profile: Profile

    def whole(self, gpus: float) -> int | None:
        return whole_gpus(gpus, self.profile, self.fleet.spare_replicas)

    def month(self, agent: str, means: TaskMeans) -> int | None:
        """Dollars of 30 days, rounded up."""
        if agent not in self.fleet.demand:
            return None
        load = load_of(means, peak_demand(agent, self.fleet), self.fleet, self.profile, self.calibration)
        return None if load.usd_per_day is None else math.ceil(load.usd_per_day * DAYS_PER_MONTH - 1e-6)


class CapacityLimits:
    """The limits of all classes, on one fleet."""

    def __init__(
        self,
        budget: Budget,
        run: Run,
        anchors: Mapping[str, Baseline],
        repo: Repository,
        revs: Sequence[str],
        settings: Settings,
    ) -> None:
        """
        Args:
            anchors: of the base commit, HEAD's where it has none.
            revs: commits whose fleet.toml holds; the first that has one.
        """
        self._budget = budget
        self._run = run
        self._anchors = anchors
        self._repo = repo
        self._revs = revs
        self._settings = settings
        self._fleet: _Used | FanoutError | None = None
        self._cliffs: _Values | None = None

    def judge(self, agent: str, anchor: Baseline | None, measured: Measured, covering: Approval | None) -> Priced:
        """The class beside its anchor. Without a limit on capacity nothing is priced, and nothing is read."""
        limits = self._budget.capacity_for(agent)
        # a class without an anchor, or that was not measured, has a verdict of its own
        if not limits or not measured.table.statuses or self._run.session.shard:
            return Priced()
        try:
            used = self._used()
        except FanoutError as error:
            return Priced((), (problem_of(error, "invalid", agent),))
        base = samples_of_anchor(anchor) if anchor is not None else None
        run = self._ran(agent)
        if measured.partial and base is not None:
            base, run = ({task: side[task] for task in side if task in base and task in run} for side in (base, run))
        metrics: list[MetricResult] = []
        problems: list[Problem] = []
        try:
            sides = sides_of(agent, base, run, used.fleet)
            for limit in limits:
                of_fleet = limit.name == "capacity.cliffs"
                values = self._of_cliffs(used) if of_fleet else self._of_class(limit, sides, used)
                metric, found = self._judged(limit, agent, values, measured, covering, anchor is not None)
                metrics.append(metric)
                problems += found
        except FanoutError as error:
            problems.append(problem_of(error, "invalid", agent))
        return Priced(tuple(metrics), tuple(problems))

    def grew(self, agent: str, base: Baseline, head: Baseline) -> bool:
        """Whether HEAD's anchor takes more of what is limited than the base's: then a reviewer has to see it."""
        limits = [limit for limit in self._budget.capacity_for(agent) if limit.min is None]
        if not limits:
            return False
        try:
            used = self._used()
            sides = sides_of(agent, samples_of_anchor(base), samples_of_anchor(head), used.fleet)
            found = [self._of_class(limit, sides, used) for limit in limits]
        except FanoutError:
            return False  # said where the class is judged
        return any(each.base is not None and each.run is not None and each.run > each.base for each in found)

    def _used(self) -> _Used:
        if self._fleet is None:
            try:
                self._fleet = self._read()
            except FanoutError as error:
                self._fleet = error
        if isinstance(self._fleet, FanoutError):
            raise self._fleet
        return self._fleet

    def _read(self) -> _Used:
        folder = folder_of(self._settings)
        where = f"{folder}/fleet.toml"
        for rev in self._revs:
            data = self._repo.read(rev, where)
            if data is None:
                continue
            fleet = parse_fleet(data, where)
            calibration = None
            if fleet.calibration is not None:
                name = f"{folder}/{fleet.calibration}"
                calibration = calibration_from(self._repo.read(rev, name), name, fleet)
            return _Used(fleet, calibration, profile_of(fleet, (), calibration))
        fleet = parse_fleet(None, where)
        return _Used(fleet, None, profile_of(fleet, (), None))

    def _ran(self, agent: str) -> dict[str, list[Samples]]:
        return samples_of_run([task for task in self._run.tasks if task.agent == agent and task.status in MEASURED])

    def _of_class(self, limit: Limit, sides: Sides, used: _Used) -> _Values:
        """GPUs in 95 % of windows, or dollars of 30 days; anchor and run."""
        planned = plan_fleet([sides], used.fleet, used.profile, used.calibration)
        windows = planned.classes.get(sides.agent)
        bases, runs = windows if windows is not None else (None, None)
        if limit.name == "capacity.gpus_p95":
            values = _Values(*(None if each is None else used.whole(each.spread().p95) for each in (bases, runs)))
            return replace(values, above=_share_above(bases, runs, 1, limit, used, 1.0))
        known = [means if means.tasks else None for means in (sides.base, sides.run)]
        values = _Values(*(None if means is None else used.month(sides.agent, means) for means in known))
        hourly = used.fleet.prices.usd_per_gpu_hour
        if used.fleet.serves == "provider" or not hourly:
            return values
        price = hourly * 24 * DAYS_PER_MONTH
        return replace(values, above=_share_above(bases, runs, None, limit, used, price))

    def _bound(self, limit: Limit, values: _Values) -> int | None:
        return limit_value(replace(limit, max=None), values.base)

    def _of_cliffs(self, used: _Used) -> _Values:
        """Cliffs survivable by all anchors and by all runs; a class that did not run is taken as its anchor says."""
        if self._cliffs is None:
            sides = []
            ran = {task.agent for task in self._run.tasks if task.status in MEASURED}
            for agent in sorted(ran | set(self._anchors)):
                if agent in used.fleet.demand:
                    base = samples_of_anchor(self._anchors[agent]) if agent in self._anchors else None
                    run = self._ran(agent) if agent in ran else base or {}
                    sides.append(sides_of(agent, base, run, used.fleet))
            plan = plan_fleet(sides, used.fleet, used.profile, used.calibration, windows=_FEW_WINDOWS).fleet
            before, after = (
                side.cliffs if side else None for side in ((plan.base, plan.run) if plan else (None, None))
            )
            self._cliffs = _Values(
                before.survivable if before else None,
                None if after is None else _NOTHING_FITS if after.survivable is None else after.survivable,
            )
        return self._cliffs

    def _judged(
        self,
        limit: Limit,
        agent: str,
        values: _Values,
        measured: Measured,
        covering: Approval | None,
        has_anchor: bool,
    ) -> tuple[MetricResult, tuple[Problem, ...]]:
        bound = limit.min if limit.min is not None else limit_value(limit, values.base)
        ceiling = covering.ceilings.get(limit.name) if covering is not None else None
        problem = self._fault(limit, agent, values, measured, covering, ceiling, has_anchor)
        metric = MetricResult(
            name=limit.name,
            base=values.base,
            run=None if values.run == _NOTHING_FITS else values.run,
            limit=bound,
            over=problem is not None and problem.verdict in ("regressed", "inconclusive"),
            gated=True,
            n=len(measured.table.statuses),
            trials=measured.table.trials,
            ceiling=ceiling,
        )
        return metric, () if problem is None else (problem,)

    def _fault(
        self,
        limit: Limit,
        agent: str,
        values: _Values,
        measured: Measured,
        covering: Approval | None,
        ceiling: int | None,
        has_anchor: bool,
    ) -> Problem | None:
        """What is wrong with one number, or None."""
        name, run = limit.name, values.run
        if run is None:
            return Problem(
                "capacity-unknown",
                f"{agent}: {name} of this run is not known; mend: give demand, prices and GPUs in fleet.toml, "
                f"as {name} needs",
                "invalid",
                agent,
            )
        if limit.min is not None:
            cliffs = counted(run, "cliff")
            survived = "not even the demand without a cliff" if run == _NOTHING_FITS else f"{cliffs} at once"
            text = f"{agent}: the fleet survives {survived}, and {name} asks for {limit.min}; nothing lifts it"
            return Problem("too-few-cliffs", text, "regressed", agent) if run < limit.min else None
        if limit.max is not None and run > limit.max:
            text = (
                f"{agent}: {name} is {run:,}, above the maximum {limit.max:,} of budget.toml, "
                "which no approval and no waiver lifts"
            )
            return Problem("over-max", text, "regressed", agent)
        if covering is not None:
            if ceiling is not None and run <= ceiling:
                return None
            text = f"{agent}: {name} is {run:,}, above the ceiling {_told(ceiling)} of {covering.path}"
            return Problem("over-ceiling", text, "regressed", agent)
        bound = self._bound(limit, values)
        # a class without an anchor has a verdict of its own, and is held to `max` alone
        if values.base is None and limit.increase is not None and has_anchor:
            text = f"{agent}: {name} of the anchor is not known; mend: record the class anew and accept it"
            return Problem("capacity-unknown", text, "invalid", agent)
        if bound is None or run <= bound:
            return None
        text = f"{agent}: {name} {_told(values.base)} -> {run:,} (limit {bound:,})"
        return self._grown(limit, agent, text, values, measured)

    def _grown(self, limit: Limit, agent: str, text: str, values: _Values, measured: Measured) -> Problem:
        """Exactly on the same draw; on a new one by how many eval sets would show it."""
        rules = self._budget.judge_for(agent)
        if measured.draw == "same" or not limit.evidence or _is_shown(values, rules):
            return Problem("over-limit", text, "regressed", agent)
        shown = "in an unknown share" if values.above is None else f"in {values.above * 100:.0f} %"
        return Problem(
            "capacity-not-shown",
            f"{text}, and {shown} of eval sets like this one it is above: not enough to tell from luck",
            "notice" if rules.inconclusive == "warn" else "inconclusive",
            agent,
        )


def _told(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def changes_of(metrics: Sequence[MetricResult], limits: Sequence[Limit]) -> tuple[list[Change], dict[str, int]]:
    """For an approval: the lines of what grew, and a ceiling for each limit that can be approved."""
    changes, ceilings = [], {}
    by_name = {limit.name: limit for limit in limits if limit.min is None}
    for metric in metrics:
        limit = by_name.get(metric.name)
        if limit is None or metric.run is None:
            continue
        ceilings[metric.name] = ceiling_of(limit, metric.run)
        if metric.base is None or metric.run > metric.base:
            changes.append(Change("metric", metric.name, "all", metric.base, metric.run))
    return changes, ceilings


def _is_shown(values: _Values, rules: JudgeRules) -> bool:
    return values.above is not None and values.above >= 1 - float(rules.alpha)


def _share_above(
    base: GpuWindows | None, run: GpuWindows | None, percentile: int | None, limit: Limit, used: _Used, price: float
) -> float | None:
    """Share of eval sets of the bootstrap in which the run is above the limit on what the anchor takes there.

    Each eval set is put to both sides: which tasks it holds is luck that they share, and no part of the growth.
    """
    if base is None or run is None or limit.increase is None:
        return None
    import numpy as np

    size, spare = used.profile.gpus_per_replica, used.fleet.spare_replicas

    def value(windows: GpuWindows) -> Any:
        gpus = windows.mean if percentile is None else windows.given[percentile]
        replicas = np.ceil(gpus / size * (1 - 1e-9))
        return np.ceil(size * np.where(replicas > 0, replicas + spare, 0) * price - 1e-6)

    before = value(base)
    bound = np.maximum(np.floor(before * float(1 + limit.increase) + 1e-9), before + limit.at_least - 1)
    return float((value(run) > bound).mean())
