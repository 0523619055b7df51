"""What the fleet takes week by week: today's demand, its growth and signed customers, on the accepted anchors.

Each week is planned like today (plan.py), on the same windows: the 95th percentile at peak, at the planned utilisation,
in whole replicas. A week that does not hold is tried again without each thing that is new, so that its cause has a
name. The eval tasks are weighed once for all weeks, and of many customers only those near the edge are tried.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta

from pytest_fanout.capacity.constraints import Stream
from pytest_fanout.capacity.demand import SECONDS_PER_DAY, peak_demand
from pytest_fanout.capacity.means import TaskMeans
from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.capacity.project import Sides, whole_gpus
from pytest_fanout.capacity.side import Kept, PricedSide, stream_of
from pytest_fanout.capacity.windows import WINDOWS
from pytest_fanout.errors import ConfigError, nearest
from pytest_fanout.records import (
    Calibration,
    ClassDemand,
    CliffInputs,
    Customer,
    Fleet,
    Forecast,
    ForecastWeek,
    Load,
    Outlook,
    QuotaUse,
)

#: Customers whose place among several causes is worked out; those behind them stand in the order of their tokens.
_RANKED = 8
_GOOD = ("holds", "bursts")


@dataclass(frozen=True, slots=True)
class _World:
    """A possible future: who comes, what grows, and by which anchors."""

    outlook: Outlook
    sides: tuple[Sides, ...]
    kept: Kept = field(default_factory=Kept)


@dataclass(frozen=True, slots=True)
class _Part:
    """Tasks a second at peak that one customer adds, by class."""

    name: str
    rates: Mapping[str, float]


class Forecaster:
    """Prices weeks of one fleet."""

    def __init__(
        self,
        sides: Sequence[Sides],
        fleet: Fleet,
        profile: Profile,
        calibration: Calibration | None = None,
        before: Sequence[Sides] | None = None,
        *,
        windows: int = WINDOWS,
    ) -> None:
        """
        Args:
            sides: of each class with demand; the run is the accepted anchor.
            before: the same by older anchors: what was accepted since is then among the causes.

        Raises:
            ConfigError: fleet.toml has no demand for any of them.
        """
        planned = _of_runs(sides, fleet)
        if not planned:
            raise ConfigError(
                "no-demand",
                "has no demand for a class with an anchor: there is nothing to forecast",
                where=fleet.source,
                mend="add [demand.CLASS]",
            )
        # cliffs are steps that may come; here stands what will
        calm = {name: replace(demand, onboarding_dau=0) for name, demand in fleet.demand.items()}
        self._fleet = replace(fleet, cliffs=CliffInputs(), demand=calm)
        self._profile = profile
        self._calibration = calibration
        self._windows = windows
        self._sides = planned
        self._kept = Kept()
        self._before = None if before is None else _World(Outlook(), _of_runs(before, fleet))

    def forecast(self, outlook: Outlook, start: date, weeks: int, since: str | None = None) -> Forecast:
        """So many weeks from ``start`` on.

        Raises:
            ConfigError: a customer of a class without anchor or demand.
        """
        for customer in outlook.customers:
            self._check(customer)
        world = _World(outlook, self._sides, self._kept)
        found: list[ForecastWeek] = []
        for index in range(weeks):
            week = self._week(world, start, index)
            if week.state in ("short", "no number"):
                causes, together = self._causes(outlook, start, index)
                week = replace(week, causes=causes, together=together)
            found.append(week)
        notes = tuple(self._notes(outlook))
        return Forecast(tuple(found), self._fleet.gpus_reserved, self._fleet.gpus_burst, outlook, since, notes)

    def _check(self, customer: Customer) -> None:
        known = sorted(each.agent for each in self._sides)
        for agent in customer.classes:
            if agent not in known:
                near = nearest(agent, known)
                raise ConfigError(
                    "customer-of-no-class",
                    f"{customer.name} has tasks of {agent}, which has no anchor or no demand in {self._fleet.source}; "
                    f"known: {', '.join(known)}",
                    where=customer.where or customer.name,
                    mend=f"write {near} there, or add [demand.{agent}] and accept an anchor of it"
                    if near
                    else f"add [demand.{agent}] and accept an anchor of it, or mend the customer's classes",
                )

    def demand(self, outlook: Outlook, start: date, index: int) -> dict[str, ClassDemand]:
        """Users and tasks of each class in a week; a customer counts from the week on that holds its date."""
        ours = [each.agent for each in self._sides]
        today = {agent: self._fleet.demand[agent] for agent in ours}
        usual = self._usual()
        more_users, more_tasks = (1 + rate for rate in (outlook.dau_growth_per_week, _tasks_growth(outlook)))
        users = {agent: each.dau * more_users**index for agent, each in today.items()}
        tasks = {agent: users[agent] * each.tasks_per_user_day * more_tasks**index for agent, each in today.items()}
        for customer in outlook.customers:
            begins = _begins(customer, start)
            if begins > index:
                continue
            mix = customer.classes or usual
            shares = math.fsum(mix.values())
            grown = customer.dau * more_users ** (index - begins)
            for agent, share in mix.items():
                part = share / shares
                users[agent] += grown * part
                tasks[agent] += grown * part * customer.tasks_per_user_day * more_tasks ** (index - begins)
        made = {}
        for agent, each in today.items():
            count = max(1, round(users[agent]))
            made[agent] = replace(each, dau=count, tasks_per_user_day=tasks[agent] / count)
        return made

    def _usual(self) -> dict[str, float]:
        """Shares of today's tasks by class."""
        tasks = {each.agent: self._fleet.demand[each.agent] for each in self._sides}
        whole = math.fsum(each.dau * each.tasks_per_user_day for each in tasks.values())
        return {agent: each.dau * each.tasks_per_user_day / whole for agent, each in tasks.items()}

    def _week(self, world: _World, start: date, index: int) -> ForecastWeek:
        demand = self.demand(world.outlook, start, index)
        fleet = replace(self._fleet, demand={**self._fleet.demand, **demand})
        begin = start + timedelta(weeks=index)
        live = tuple(
            customer.name
            for customer in world.outlook.customers
            if begin <= customer.live < begin + timedelta(weeks=1) or (index == 0 and customer.live < begin)
        )
        rate = math.fsum(peak_demand(agent, fleet).tasks_per_second for agent in demand)
        dau = sum(each.dau for each in demand.values())
        if any(each.run.tokens is None for each in world.sides):
            why = "tokens of a class are not known"
            return ForecastWeek(begin, live, dau, rate, *(None,) * 7, "no number", refused=why)
        streams = [stream_of(each.agent, each.run, fleet) for each in world.sides]
        priced = PricedSide(streams, fleet, self._profile, self._calibration, world.kept)
        load, windows = priced.load(), priced.windows(drawn=False, windows=self._windows)
        quotas = priced.quotas(windows, load)
        gpus = None if fleet.serves == "provider" else priced.gpus(windows)
        spread = gpus.spread() if gpus else None
        needed = self._whole(spread.p95) if spread else None
        quota = max((use.share for use in quotas), default=None)
        return ForecastWeek(
            start=begin,
            live=live,
            dau=dau,
            tasks_per_s=rate,
            gpus_p50=spread.p50 if spread else None,
            gpus_p95=spread.p95 if spread else None,
            gpus_p95_interval=spread.p95_interval if spread else None,
            gpus=self._whole(load.gpus),
            gpus_for_p95=needed,
            quota_share=quota,
            usd_per_day=load.usd_per_day,
            state=self._state(needed, quota),
            refused=_refused(load, quotas, spread is not None, fleet),
        )

    def _whole(self, gpus: float | None) -> int | None:
        return whole_gpus(gpus, self._profile, self._fleet.spare_replicas)

    def _state(self, needed: int | None, quota: float | None) -> str:
        fleet = self._fleet
        if fleet.serves == "provider":
            return "no number" if quota is None else "holds" if quota <= 1 else "short"
        if needed is None:
            return "no number"
        if fleet.gpus_reserved is None:
            return "not judged"
        if needed <= fleet.gpus_reserved:
            return "holds"
        return "bursts" if needed <= fleet.gpus_reserved + fleet.gpus_burst else "short"

    def _causes(self, outlook: Outlook, start: date, index: int) -> tuple[tuple[str, ...], bool]:
        """Each thing that is new without which the week would hold; else all of them, the one that takes most first."""
        rates = self._rates(outlook, start, index)
        parts = self._largest_first(self._parts(outlook, start, index), rates)
        first = {part.name: self._at(_less(rates, part)) for part in parts[:_RANKED]}
        saving = self._saving(parts, rates) if any(state in _GOOD for state, _ in first.values()) else set()
        others: dict[str, tuple[str, float]] = {}
        if _tasks_growth(outlook) > 0:
            same = replace(outlook, tasks_per_user_growth_per_week=0.0)
            others["behaviour (tasks per user)"] = self._at(self._rates(same, start, index))
        if outlook.dau_growth_per_week > 0:
            still = replace(outlook, dau_growth_per_week=0.0)
            others["growth of users"] = self._at(self._rates(still, start, index))
        if self._before is not None:
            others["fanout"] = self._at(rates, self._before)
        alone = [_onboarding(name) for name in sorted(saving)]
        alone += [name for name, (state, _) in others.items() if state in _GOOD]
        if alone:
            return tuple(alone), False
        taken = {name: left for name, (_, left) in others.items()}
        taken |= {_onboarding(name): left for name, (_, left) in first.items()}
        ordered = sorted(taken, key=lambda name: taken[name]) + [_onboarding(part.name) for part in parts[_RANKED:]]
        return tuple(ordered) or ("today's demand",), bool(ordered)

    def _parts(self, outlook: Outlook, start: date, index: int) -> list[_Part]:
        """What each customer who is live adds in a week."""
        usual = self._usual()
        more = (1 + outlook.dau_growth_per_week) * (1 + _tasks_growth(outlook))
        found = []
        for customer in outlook.customers:
            begins = _begins(customer, start)
            if begins > index:
                continue
            mix = customer.classes or usual
            shares = math.fsum(mix.values())
            tasks = customer.dau * customer.tasks_per_user_day * more ** (index - begins)
            peaks = {agent: self._fleet.demand[agent].peak_factor / SECONDS_PER_DAY for agent in mix}
            rates = {agent: tasks * share / shares * peaks[agent] for agent, share in mix.items()}
            found.append(_Part(customer.name, rates))
        return found

    def _rates(self, outlook: Outlook, start: date, index: int) -> dict[str, float]:
        fleet = replace(self._fleet, demand={**self._fleet.demand, **self.demand(outlook, start, index)})
        return {each.agent: peak_demand(each.agent, fleet).tasks_per_second for each in self._sides}

    def _largest_first(self, parts: Sequence[_Part], rates: Mapping[str, float]) -> list[_Part]:
        """Customers in the order of what they take, by the slope of GPUs in the tasks of each class."""
        if len(parts) <= _RANKED:
            return list(parts)
        slopes = self._slopes(rates)
        return sorted(parts, key=lambda part: -math.fsum(slopes[each] * rate for each, rate in part.rates.items()))

    def _saving(self, ordered: Sequence[_Part], rates: Mapping[str, float]) -> set[str]:
        """Names of those customers without any one of whom the week holds: halving finds the edge in their order.

        The order is by a slope, so that those near to the edge are each tried.
        """
        low, high = 0, len(ordered)  # the first `low` are enough, those from `high` on are not
        while high - low > 2 * _RANKED:
            middle = (low + high) // 2
            if self._holds_without(ordered[middle], rates):
                low = middle + 1
            else:
                high = middle
        start, end = max(0, low - _RANKED), min(len(ordered), high + _RANKED)
        near = [part for part in ordered[start:end] if self._holds_without(part, rates)]
        return {part.name for part in (*ordered[:start], *near)}

    def _holds_without(self, part: _Part, rates: Mapping[str, float]) -> bool:
        return self._at(_less(rates, part))[0] in _GOOD

    def _slopes(self, rates: Mapping[str, float]) -> dict[str, float]:
        """What one more task a second of each class takes; its tokens where there is no number."""
        whole = self._at(rates)[1]
        found = {}
        for each in self._sides:
            less = {**rates, each.agent: 0.99 * rates[each.agent]}
            slope = (whole - self._at(less)[1]) / (0.01 * rates[each.agent]) if math.isfinite(whole) else 0.0
            found[each.agent] = max(slope, 0.0)
        return found if any(found.values()) else {each.agent: each.run.tokens or 0.0 for each in self._sides}

    def _at(self, rates: Mapping[str, float], world: _World | None = None) -> tuple[str, float]:
        """State at some rates (tasks a second), and what is taken then: GPUs in 95 % of minutes, or of the quota."""
        import numpy as np

        sides, kept = (self._sides, self._kept) if world is None else (world.sides, world.kept)
        if any(each.run.tokens is None for each in sides):
            return "no number", math.inf
        fleet = self._fleet
        streams = [Stream(each.agent, rates[each.agent], each.run, fleet.demand[each.agent].iod) for each in sides]
        priced = PricedSide(streams, fleet, self._profile, self._calibration, kept)
        windows = priced.windows(drawn=False, windows=self._windows)
        if fleet.serves == "provider":
            quota = max((use.share for use in priced.quotas(windows, priced.load())), default=None)
            return self._state(None, quota), math.inf if quota is None else quota
        if priced.rates.refused is not None:
            return "no number", math.inf
        p95 = float(np.median(priced.gpus_in(windows, 0.95)))
        return self._state(self._whole(p95), None), p95

    def _notes(self, outlook: Outlook) -> list[str]:
        fleet, notes = self._fleet, []
        load = None
        if all(each.run.tokens is not None for each in self._sides):
            streams = [stream_of(each.agent, each.run, fleet) for each in self._sides]
            load = PricedSide(streams, fleet, self._profile, self._calibration, self._kept).load()
        if load is not None and load.gpus and load.gpus_other:
            notes.append(
                f"By the other fit of the same published rows GPUs are x{load.gpus_other / load.gpus:.2f} of these: "
                "calibrate to know which holds."
            )
        if fleet.serves != "provider" and fleet.gpus_reserved is None:
            notes.append("No week is judged: [fleet] gpus_reserved says what is held.")
        if not outlook.dau_growth_per_week and not _tasks_growth(outlook):
            notes.append("No growth is taken, of users or of tasks per user.")
        if any(not customer.classes for customer in outlook.customers):
            notes.append("A customer without classes has tasks like those of today.")
        left_out = sorted(set(fleet.demand) - {each.agent for each in self._sides})
        if left_out:
            notes.append(f"Without an anchor, and in no week: {', '.join(left_out)}.")
        notes.append("Peak factors, spread of arrivals and tokens per task stay as they are today.")
        return notes


def _of_runs(sides: Sequence[Sides], fleet: Fleet) -> tuple[Sides, ...]:
    """Without their anchors: a week has one side."""
    bare = TaskMeans()
    return tuple(replace(each, base=bare, same_base=bare) for each in sides if each.agent in fleet.demand)


def _tasks_growth(outlook: Outlook) -> float:
    return outlook.tasks_per_user_growth_per_week


def _begins(customer: Customer, start: date) -> int:
    """The week, from 0 on, in which a customer counts first."""
    return max(0, (customer.live - start).days // 7)


def _onboarding(name: str) -> str:
    return f"onboarding of {name}"


def _less(rates: Mapping[str, float], part: _Part) -> dict[str, float]:
    return {agent: max(0.0, rate - part.rates.get(agent, 0.0)) for agent, rate in rates.items()}


def _refused(load: Load, quotas: Sequence[QuotaUse], is_known: bool, fleet: Fleet) -> str | None:
    if load.refused is not None:
        return load.refused
    if fleet.serves == "provider":
        return None if quotas else "no quota is known"
    return None if is_known else "GPUs are not known"
