"""What `fanout-capacity traces` prints: production beside the anchors, weeks, weights; one document for machines."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from pytest_fanout.capacity.figures import counted, number
from pytest_fanout.records import ClassTraffic, Distribution, PlanningEvent, Traffic, Unlike, Week
from pytest_fanout.report.plan_page import Section

SCHEMA = "pytest-fanout/traces/1"
_MOST_WEIGHTS = 20
#: With fewer tasks of production for each eval task, weights are mostly chance: of 40 a share is known to a third.
_FEW_TASKS = 40
#: From where on two distributions are called unlike.
_FAR = 0.2


def document(traffic: Traffic) -> dict[str, Any]:
    """Schema ``pytest-fanout/traces/1``: units in the keys, unknown is null, shares are 0 to 1."""
    return {"schema": SCHEMA, **_plain(traffic)}


def sections(traffic: Traffic) -> list[Section]:
    """The page, most important first: what differs from the eval sets, then what there is."""
    found = []
    said = [line for each in traffic.classes for line in _says(each)]
    found.append(Section("What that says", lines=(*said, *_counting(traffic))))
    rows = [row for each in traffic.classes for row in _unlike_rows(each)]
    headers: tuple[str, ...] = (
        "class", "eval p50", "production p50", "eval p95", "production p95", "ratio", "distance", "beyond", "",
    )  # fmt: skip
    found.append(Section("The eval set beside production", headers, tuple(rows)))
    rows = [_spread_row(each.agent, metric) for each in traffic.classes for metric in each.distributions]
    headers = ("class", "tasks", "unknown", "mean", "p50", "p95", "p99", "max", "")
    found.append(Section("Production, by task", headers, tuple(rows)))
    rows = [_week_row(each.agent, week) for each in traffic.classes for week in each.weeks]
    headers = ("class, week from", "tasks", "users/day", "tasks/user/day", "tokens/task", "")
    found.append(Section("Weeks", headers, tuple(rows)))
    for each in traffic.classes:
        found += _weights(each)
    return [section for section in found if section.rows or section.lines]


def _says(each: ClassTraffic) -> list[str]:
    lines = []
    if not each.unlike:
        lines.append(f"{each.agent}: no anchor of that name; {each.tasks:,} tasks in production")
    for pair in each.unlike:
        if pair.ratio_p95 is None or pair.metric not in ("fanout", "tokens"):
            continue
        lines.append(
            f"{each.agent} {pair.metric}: the gate's p95 is {pair.eval_p95:,}, production's {pair.production_p95:,} "
            f"(x{pair.ratio_p95:.2f}); {_percent(pair.beyond)} of its tasks exceed every trial of the eval set"
        )
    lines += [f"{each.agent}: {_event(event)}" for event in each.events]
    for of in each.distributions:
        if of.missing and of.p50 is None:
            lines.append(
                f"{each.agent} {of.metric}: unknown for {of.missing:,} of {of.tasks + of.missing:,} tasks; the others "
                "may be the cheap ones, so there is no percentile"
            )
    return lines


def _event(event: PlanningEvent) -> str:
    """Tasks per user and day alone make an event; what users and tokens did stands apart."""
    apart = [
        f"{name} {change * 100:+.0f} %"
        for name, change in (("users a day", event.users_change), ("tokens a task", event.tokens_change))
        if change is not None
    ]
    beside = f" (apart from that: {', '.join(apart)})" if apart else ""
    return (
        f"planning event: tasks per user and day {event.before:.2f} -> {event.after:.2f} ({event.change * 100:+.0f} %) "
        f"in the week from {event.monday}{beside}"
    )


def _counting(traffic: Traffic) -> list[str]:
    lines = []
    if traffic.calls:
        lines.append(f"{counted(traffic.calls, 'model call')} in {counted(traffic.rows, 'row')}")
    for count, noun, text in (
        (traffic.repeated, "call", "only repeated one below, or came twice: counted once"),
        (traffic.failed, "call", "ended in an error without usage: not counted"),
        (traffic.unknown, "call", "did not tell its usage, so that the task does not either"),
        (traffic.no_task, "call", "named no task: left out"),
        (traffic.copies, "row", "said of a task what another row says, start and all: counted once"),
        (
            traffic.namesakes,
            "row",
            "had the name of another row's task and other figures, or no start: a task of its own for each; where "
            "names are ids, mend the source",
        ),
    ):
        if count:
            lines.append(f"{counted(count, noun)} {text}")
    return lines


def _unlike_rows(each: ClassTraffic) -> list[tuple[str, ...]]:
    return [_unlike_row(each.agent, pair) for pair in each.unlike]


def _unlike_row(agent: str, pair: Unlike) -> tuple[str, ...]:
    far = pair.distance is not None and pair.distance >= _FAR
    return (
        f"{agent} {pair.metric}",
        *map(number, (pair.eval_p50, pair.production_p50, pair.eval_p95, pair.production_p95)),
        "-" if pair.ratio_p95 is None else f"x{pair.ratio_p95:.2f}",
        "-" if pair.distance is None else f"{pair.distance:.2f}",
        _percent(pair.beyond),
        "UNLIKE" if far else "",
    )


def _spread_row(agent: str, of: Distribution) -> tuple[str, ...]:
    values = map(number, (of.mean, of.p50, of.p95, of.p99, of.max))
    return (f"{agent} {of.metric}", f"{of.tasks:,}", f"{of.missing:,}", *values, "")


def _week_row(agent: str, week: Week) -> tuple[str, ...]:
    per_user = "-" if week.tasks_per_user_day is None else f"{week.tasks_per_user_day:.2f}"
    name, part = f"{agent} {week.monday}", "" if week.whole else "part"
    return (name, f"{week.tasks:,}", number(week.users_per_day), per_user, number(week.tokens_per_task), part)


def _weights(each: ClassTraffic) -> list[Section]:
    """`weight` of eval lines; 1 is a task that stands for its even share."""
    if not each.weights:
        return []
    count = len(each.weights)
    ordered = sorted(each.weights.items(), key=lambda pair: (-pair[1], pair[0]))
    rows = [(task, f"{share * 100:.2f} %", f"{share * count:.4g}", "") for task, share in ordered[:_MOST_WEIGHTS]]
    lines = [f"and {count - _MOST_WEIGHTS:,} more, all of them with --format json"] if count > _MOST_WEIGHTS else []
    tasks = max(1, each.tasks)
    # of a share of one half, which is known least
    points = 98 / math.sqrt(tasks)
    few = "few tasks make weights of chance: " if tasks < _FEW_TASKS * count else ""
    lines.append(
        f"{few}by {counted(tasks, 'task')} of production for {counted(count, 'eval task')}, so that a share is known "
        f"to {number(points)} points or better"
    )
    title = f"Weights for the eval set of {each.agent}, by {each.weights_by}"
    return [Section(title, ("task", "of production", "weight", ""), tuple(rows), tuple(lines))]


def _percent(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{share * 100:.1f} %" if 0 < share < 0.1 else f"{share * 100:.0f} %"


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in sorted(value)}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, date) else value
