"""What `fanout-capacity forecast` prints: a row a week, and what the weeks say."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from pytest_fanout.capacity.demand import SECONDS_PER_DAY
from pytest_fanout.capacity.figures import counted, interval, listed, number
from pytest_fanout.records import ClassDemand, Fleet, Forecast, ForecastWeek
from pytest_fanout.report.plan_page import Section

SCHEMA = "pytest-fanout/forecast/1"
_OF_GPUS = ("p50", "p95", "90 % of eval sets", "GPUs at peak", "GPUs for p95")
_WORDS = {"short": "SHORT", "no number": "NO NUMBER"}


def document(made: Forecast, fleet: Fleet) -> dict[str, Any]:
    """Schema ``pytest-fanout/forecast/1``: units in the keys, unknown is null."""
    return {
        "schema": SCHEMA,
        "fleet_file": fleet.source,
        "fleet_digest": fleet.digest,
        "gpus_reserved": made.gpus_reserved,
        "gpus_burst": made.gpus_burst,
        "since": made.since,
        "dau_growth_per_week": made.outlook.dau_growth_per_week,
        "tasks_per_user_growth_per_week": made.outlook.tasks_per_user_growth_per_week,
        "customers": [
            {
                "name": customer.name,
                "live": customer.live.isoformat(),
                "dau": customer.dau,
                "tasks_per_user_day": customer.tasks_per_user_day,
                "classes": dict(customer.classes),
            }
            for customer in made.outlook.customers
        ],
        "weeks": [
            {
                **dataclasses.asdict(week),
                "start": week.start.isoformat(),
                "live": list(week.live),
                "gpus_p95_interval": None if week.gpus_p95_interval is None else list(week.gpus_p95_interval),
                "causes": list(week.causes),
            }
            for week in made.weeks
        ],
        "notes": list(made.notes),
    }


def sections(made: Forecast, fleet: Fleet) -> list[Section]:
    """The weeks, and what they say."""
    provider = fleet.serves == "provider"
    headers = ("week of", "users", "tasks/s", *(("quota",) if provider else _OF_GPUS), "", "what")
    rows = tuple(_row(week, provider) for week in made.weeks)
    return [
        Section("By week, at peak", headers, rows),
        Section("What that says", lines=tuple(_summary(made, provider))),
        Section("What the figures stand on", lines=made.notes),
    ]


def formulas(demands: Sequence[tuple[date, Mapping[str, ClassDemand]]]) -> list[str]:
    """Tasks a second of some weeks, with their values."""
    lines = []
    for start, classes in demands:
        for agent, demand in sorted(classes.items()):
            rate = demand.dau * demand.tasks_per_user_day / SECONDS_PER_DAY * demand.peak_factor
            lines.append(
                f"week of {start}, {agent}: tasks/s = users x tasks per user and day / 86,400 x peak factor = "
                f"{demand.dau:,} x {demand.tasks_per_user_day:,.4g} / 86,400 x {demand.peak_factor:g} = {rate:,.4g}"
            )
    return lines


def _row(week: ForecastWeek, provider: bool) -> tuple[str, ...]:
    if provider:
        figures: tuple[str, ...] = ("-" if week.quota_share is None else f"{week.quota_share * 100:.0f} %",)
    else:
        ends = "-" if week.gpus_p95_interval is None else interval(week.gpus_p95_interval)
        figures = (
            number(week.gpus_p50), number(week.gpus_p95), ends, number(week.gpus), number(week.gpus_for_p95)
        )  # fmt: skip
    live = f"live: {listed(week.live, ', ')}" if week.live else ""
    cause = _cause(week)
    shown = "; ".join(part for part in (live, cause) if part)
    return (
        week.start.isoformat(), f"{week.dau:,}", number(week.tasks_per_s), *figures,
        _WORDS.get(week.state, week.state), shown,
    )  # fmt: skip


def _cause(week: ForecastWeek) -> str:
    if week.state not in _WORDS or not week.causes:
        return week.refused or ""
    by = ", all together" if week.together else ""
    text = f"by {listed(week.causes, ' + ' if week.together else ' or ')}{by}"
    return f"{text}; {week.refused}" if week.refused else text


def _summary(made: Forecast, provider: bool) -> list[str]:
    bad = [week for week in made.weeks if week.state in _WORDS]
    lines = []
    if bad:
        first = bad[0]
        lines.append(
            f"The first week that does not hold is that of {first.start}, {counted(made.weeks.index(first), 'week')} "
            f"from the start: {_cause(first) or first.state}."
        )
        lines.append(f"Not held: {len(bad)} of {counted(len(made.weeks), 'week')}.")
    elif made.weeks and made.weeks[0].state != "not judged":
        lines.append(f"All {len(made.weeks)} weeks hold.")
    bursts = [week for week in made.weeks if week.state == "bursts"]
    if bursts:
        verb = "needs" if len(bursts) == 1 else "need"
        lines.append(f"{counted(len(bursts), 'week')} {verb} burst GPUs, the first that of {bursts[0].start}.")
    lines += _unsure(made)
    known = [week.gpus_for_p95 for week in made.weeks if week.gpus_for_p95 is not None]
    if known and not provider:
        held = (
            "" if made.gpus_reserved is None else f", on {made.gpus_reserved} reserved and {made.gpus_burst} to burst"
        )
        lines.append(f"Most GPUs for p95 in a week: {max(known):,}{held}.")
    return lines


def _unsure(made: Forecast) -> list[str]:
    """Weeks that hold by the estimate, and would not by one that 5 % of eval sets exceed."""
    if made.gpus_reserved is None:
        return []
    most = made.gpus_reserved + made.gpus_burst
    near = [
        week
        for week in made.weeks
        if week.state in ("holds", "bursts") and week.gpus_p95_interval and week.gpus_p95_interval[1] > most
    ]
    if not near:
        return []
    verb = "holds" if len(near) == 1 else "hold"
    return [
        f"{counted(len(near), 'week')} that {verb}, the first that of {near[0].start}, may not by another eval set: "
        f"its p95 is up to {number(near[0].gpus_p95_interval[1] if near[0].gpus_p95_interval else None)} GPUs."
    ]
