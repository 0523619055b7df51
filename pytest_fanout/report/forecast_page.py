"""What `fanout-capacity forecast` prints: a row a week, and what the weeks say."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from pytest_fanout.capacity.demand import SECONDS_PER_DAY
from pytest_fanout.records import ClassDemand, Fleet, Forecast, ForecastWeek
from pytest_fanout.report.plan_page import Section, number

SCHEMA = "pytest-fanout/forecast/1"
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
            {**dataclasses.asdict(customer), "live": customer.live.isoformat(), "classes": dict(customer.classes)}
            for customer in made.outlook.customers
        ],
        "weeks": [
            {
                **dataclasses.asdict(week),
                "start": week.start.isoformat(),
                "live": list(week.live),
                "causes": list(week.causes),
            }
            for week in made.weeks
        ],
        "notes": list(made.notes),
    }


def sections(made: Forecast, fleet: Fleet) -> list[Section]:
    """The weeks, and what they say."""
    provider = fleet.serves == "provider"
    headers = ("week of", "users", "tasks/s", *(("quota",) if provider else ("p50", "p95", "GPUs")), "", "what")
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
        figures = (number(week.gpus_p50), number(week.gpus_p95), number(week.gpus_needed))
    live = f"live: {', '.join(week.live)}" if week.live else ""
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
    text = f"by {' + '.join(week.causes) if week.together else ' or '.join(week.causes)}{by}"
    return f"{text}; {week.refused}" if week.refused else text


def _summary(made: Forecast, provider: bool) -> list[str]:
    bad = [week for week in made.weeks if week.state in _WORDS]
    lines = []
    if bad:
        first = bad[0]
        lines.append(
            f"The first week that does not hold is that of {first.start}, {made.weeks.index(first)} weeks from the "
            f"start: {_cause(first) or first.state}."
        )
        lines.append(f"{len(bad)} of {len(made.weeks)} weeks do not hold.")
    elif made.weeks and made.weeks[0].state != "not judged":
        lines.append(f"All {len(made.weeks)} weeks hold.")
    bursts = [week for week in made.weeks if week.state == "bursts"]
    if bursts:
        lines.append(f"{len(bursts)} weeks need burst GPUs, the first that of {bursts[0].start}.")
    known = [week.gpus_needed for week in made.weeks if week.gpus_needed is not None]
    if known and not provider:
        held = (
            "" if made.gpus_reserved is None else f", on {made.gpus_reserved} reserved and {made.gpus_burst} to burst"
        )
        lines.append(f"Most GPUs in a week: {max(known):,}{held}.")
    return lines
