"""What the fleet takes week by week: today's demand, its growth and signed customers, on the accepted anchors.

Each week is planned like today (plan.py): the 95th percentile of windows at peak, at the planned utilisation, in whole
replicas. A week that does not hold is tried again without each thing that is new, so that the cause has a name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from pytest_fanout.capacity.demand import peak_demand
from pytest_fanout.capacity.means import TaskMeans
from pytest_fanout.capacity.plan import plan_fleet
from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.capacity.project import Sides, whole_gpus
from pytest_fanout.errors import ConfigError
from pytest_fanout.records import (
    Calibration,
    ClassDemand,
    CliffInputs,
    Customer,
    Fleet,
    FleetPlan,
    Forecast,
    ForecastWeek,
    Outlook,
    Side,
)

#: Fewer windows than of a plan: p95 within about 1 % of itself.
WINDOWS = 2_000


@dataclass(frozen=True, slots=True)
class _World:
    """A possible future: who comes, what grows, and by which anchors."""

    outlook: Outlook
    sides: tuple[Sides, ...]


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
        self._before = None if before is None else _of_runs(before, fleet)

    def forecast(self, outlook: Outlook, start: date, weeks: int, since: str | None = None) -> Forecast:
        """So many weeks from ``start`` on.

        Raises:
            ConfigError: a customer of a class without anchor or demand.
        """
        for customer in outlook.customers:
            self._check(customer)
        found: list[ForecastWeek] = []
        for index in range(weeks):
            week = self._week(_World(outlook, self._sides), start, index)
            if week.state in ("short", "no number"):
                causes, together = self._causes(outlook, start, index)
                week = replace(week, causes=causes, together=together)
            found.append(week)
        notes = tuple(self._notes(outlook, self._plan(_World(outlook, self._sides), self._fleet)))
        return Forecast(tuple(found), self._fleet.gpus_reserved, self._fleet.gpus_burst, outlook, since, notes)

    def _check(self, customer: Customer) -> None:
        known = sorted(each.agent for each in self._sides)
        for agent in customer.classes:
            if agent not in known:
                raise ConfigError(
                    "customer-of-no-class",
                    f"{customer.name} has tasks of {agent}, which has no anchor or no demand here; "
                    f"known: {', '.join(known)}",
                    where=self._fleet.source,
                    mend=f"add [demand.{agent}] and accept an anchor of it, or mend the customer's classes",
                )

    def demand(self, outlook: Outlook, start: date, index: int) -> dict[str, ClassDemand]:
        """Users and tasks of each class in a week; a customer counts from the week on that holds its date."""
        ours = [each.agent for each in self._sides]
        today = {agent: self._fleet.demand[agent] for agent in ours}
        whole = math.fsum(each.dau * each.tasks_per_user_day for each in today.values())
        usual = {agent: each.dau * each.tasks_per_user_day / whole for agent, each in today.items()}
        more_users, more_tasks = (1 + rate for rate in (outlook.dau_growth_per_week, _tasks_growth(outlook)))
        users = {agent: each.dau * more_users**index for agent, each in today.items()}
        tasks = {agent: users[agent] * each.tasks_per_user_day * more_tasks**index for agent, each in today.items()}
        for customer in outlook.customers:
            begins = max(0, (customer.live - start).days // 7)
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

    def _week(self, world: _World, start: date, index: int) -> ForecastWeek:
        demand = self.demand(world.outlook, start, index)
        fleet = replace(self._fleet, demand={**self._fleet.demand, **demand})
        plan = self._plan(world, fleet)
        begin = start + timedelta(weeks=index)
        live = tuple(
            customer.name
            for customer in world.outlook.customers
            if begin <= customer.live < begin + timedelta(weeks=1) or (index == 0 and customer.live < begin)
        )
        rate = math.fsum(peak_demand(agent, fleet).tasks_per_second for agent in demand)
        dau = sum(each.dau for each in demand.values())
        if plan is None:
            why = "tokens of a class are not known"
            return ForecastWeek(begin, live, dau, rate, None, None, None, None, None, "no number", refused=why)
        side = plan.run
        spread = side.gpus_spread
        needed = whole_gpus(spread.p95, self._profile, fleet.spare_replicas) if spread else None
        quota = max((use.share for use in side.quotas), default=None)
        return ForecastWeek(
            begin, live, dau, rate, spread.p50 if spread else None, spread.p95 if spread else None, needed, quota,
            side.load.usd_per_day, self._state(needed, quota), refused=_refused(side, fleet),
        )  # fmt: skip

    def _plan(self, world: _World, fleet: Fleet) -> FleetPlan | None:
        return plan_fleet(world.sides, fleet, self._profile, self._calibration, windows=self._windows).fleet

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
        end = start + timedelta(weeks=index + 1)
        worlds: dict[str, _World] = {}
        for customer in outlook.customers:
            if customer.live < end:
                others = tuple(each for each in outlook.customers if each is not customer)
                worlds[f"onboarding of {customer.name}"] = _World(replace(outlook, customers=others), self._sides)
        if _tasks_growth(outlook) > 0:
            same = replace(outlook, tasks_per_user_growth_per_week=0.0)
            worlds["behaviour (tasks per user)"] = _World(same, self._sides)
        if outlook.dau_growth_per_week > 0:
            worlds["growth of users"] = _World(replace(outlook, dau_growth_per_week=0.0), self._sides)
        if self._before is not None:
            worlds["fanout"] = _World(outlook, self._before)
        weeks = {name: self._week(world, start, index) for name, world in worlds.items()}
        alone = tuple(name for name, week in weeks.items() if week.state in ("holds", "bursts"))
        if alone:
            return alone, False
        ordered = sorted(weeks, key=lambda name: _taken(weeks[name]))
        return tuple(ordered) or ("today's demand",), bool(ordered)

    def _notes(self, outlook: Outlook, today: FleetPlan | None) -> list[str]:
        fleet, notes = self._fleet, []
        load = today.run.load if today else None
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


def _taken(week: ForecastWeek) -> float:
    known = week.gpus_p95 if week.gpus_p95 is not None else week.quota_share
    return math.inf if known is None else known


def _refused(side: Side, fleet: Fleet) -> str | None:
    if side.load.refused is not None:
        return side.load.refused
    if fleet.serves == "provider":
        return None if side.quotas else "no quota is known"
    return None if side.gpus_spread is not None else "GPUs are not known"
