"""From expressions over tasks to records: a handful of small tables is all that ever leaves the place of the rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

from pytest_fanout.capacity.traffic.tasks import METRICS, cells_of, days_of, spreads_of
from pytest_fanout.judge.distribution import statistic
from pytest_fanout.records import ClassTraffic, Distribution, PlanningEvent, Samples, Unlike, Week

Expression = Any
#: With a larger share of unknown tasks a metric has no percentile: the known ones may be the cheap ones.
UNKNOWN_SHARE = 0.05
#: A change of tasks per user and day from week to week that planners hear of.
EVENT_SHARE = 0.10
COMPARED = ("fanout", "tool_calls", "input_tokens", "output_tokens", "tokens", "duration_ms")
#: The anchor of a class: task -> samples of each trial.
Anchor = Mapping[str, Sequence[Samples]]


def rows_of(expression: Expression) -> list[dict[str, Any]]:
    """A small table, as rows."""
    return list(expression.to_pyarrow().to_pylist())


def classes_of(tasks: Expression, anchors: Mapping[str, Anchor], only: Sequence[str] = ()) -> list[ClassTraffic]:
    """Every class of the tasks, in order of name, beside its anchor where it has one.

    Args:
        tasks: as ``tasks_of`` makes them; best kept as a table of their own, they are asked several times.
        only: these classes; all where it is empty.
    """
    found: dict[str, dict[str, Distribution]] = {}
    for row in rows_of(spreads_of(tasks)):
        if not only or row["agent"] in only:
            found.setdefault(row["agent"], {})[row["metric"]] = _distribution(row)
    days: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows_of(days_of(tasks)):
        days.setdefault(row["agent"], []).append(row)
    dates = [row["day"] for rows in days.values() for row in rows]
    reach = (min(dates), max(dates)) if dates else None
    made = []
    for agent in sorted(found):
        distributions = tuple(found[agent][metric] for metric in METRICS)
        weeks = weeks_of(days.get(agent, []), reach)
        every = distributions[0].tasks + distributions[0].missing
        compared = _compared(tasks, agent, found[agent], anchors[agent]) if agent in anchors else _Compared()
        made.append(
            ClassTraffic(
                agent,
                every,
                distributions,
                weeks,
                events_of(weeks),
                compared.unlike,
                compared.weights or {},
                compared.by,
            )
        )
    return made


def _distribution(row: Mapping[str, Any]) -> Distribution:
    known, every = row["known"] or 0, row["tasks"]
    enough = known > 0 and every - known <= UNKNOWN_SHARE * every
    return Distribution(
        metric=row["metric"],
        tasks=known,
        missing=every - known,
        mean=row["total"] / known if enough else None,
        p50=row["p50"] if enough else None,
        p95=row["p95"] if enough else None,
        p99=row["p99"] if enough else None,
        max=row["max"],
    )


def weeks_of(days: Sequence[Mapping[str, Any]], reach: tuple[date, date] | None) -> tuple[Week, ...]:
    """Weeks from Monday to Sunday, in order. ``reach``: the first and the last day of all traces."""
    by_week: dict[date, list[Mapping[str, Any]]] = {}
    for row in days:
        by_week.setdefault(row["day"] - timedelta(days=row["day"].weekday()), []).append(row)
    weeks = []
    for monday in sorted(by_week):
        rows = by_week[monday]

        def total(name: str, rows: Sequence[Mapping[str, Any]] = rows) -> float:
            return math.fsum(row[name] or 0 for row in rows)

        tasks, users, nameless = total("tasks"), total("users"), total("nameless")
        has_users = users > 0 and nameless <= UNKNOWN_SHARE * tasks
        knows_tokens = total("knowing") > 0 and total("knowing") >= (1 - UNKNOWN_SHARE) * tasks
        whole = reach is not None and reach[0] <= monday and monday + timedelta(days=6) <= reach[1]
        weeks.append(
            Week(
                monday=monday,
                whole=whole,
                tasks=int(tasks),
                users_per_day=users / len(rows) if has_users else None,
                tasks_per_user_day=(tasks - nameless) / users if has_users else None,
                tokens_per_task=total("tokens") / total("knowing") if knows_tokens else None,
            )
        )
    return tuple(weeks)


def events_of(weeks: Sequence[Week]) -> tuple[PlanningEvent, ...]:
    """Where tasks per user and day moved by 10 % or more between two whole weeks that follow each other."""
    found = []
    for one, other in pairwise(weeks):
        before, after = one.tasks_per_user_day, other.tasks_per_user_day
        if not (one.whole and other.whole) or other.monday - one.monday != timedelta(days=7):
            continue
        if before is None or after is None or not before:
            continue
        change = after / before - 1
        # a billionth less: 2.2 / 2.0 - 1 is 0.10000000000000009, others fall just below
        if abs(change) >= EVENT_SHARE - 1e-9:
            users = _change(one.users_per_day, other.users_per_day)
            tokens = _change(one.tokens_per_task, other.tokens_per_task)
            found.append(PlanningEvent(other.monday, before, after, change, users, tokens))
    return tuple(found)


def _change(before: float | None, after: float | None) -> float | None:
    return None if not before or after is None else after / before - 1


@dataclass(frozen=True, slots=True)
class _Compared:
    unlike: tuple[Unlike, ...] = ()
    weights: Mapping[str, float] | None = None
    by: str | None = None


def _compared(tasks: Expression, agent: str, found: Mapping[str, Distribution], anchor: Anchor) -> _Compared:
    values = {metric: _values(anchor, metric) for metric in COMPARED}
    # a metric of which the anchor or production does not know enough is compared by nothing
    usable = {m for m in COMPARED if found[m].p50 is not None and _all_known(values[m])}
    by = "tokens" if "tokens" in usable else "fanout" if "fanout" in usable else None
    weights: Mapping[str, float] = {}
    unlike = []
    for metric in COMPARED:
        if metric not in usable:
            unlike.append(_unlike(metric, values[metric], found[metric], None, None))
            continue
        middles = _middles(values[metric]) if metric == by else ()
        at = _reached(tasks, agent, metric, values[metric], middles)
        unlike.append(_unlike(metric, values[metric], found[metric], *_distance(values[metric], at)))
        if metric == by:
            weights = weights_of(values[metric], at)
    return _Compared(tuple(unlike), weights, by)


def _unlike(
    metric: str, values: _Values, of: Distribution, distance: float | None, beyond: float | None
) -> Unlike:  # fmt: skip
    p95 = statistic(values, "p95")
    ratio = of.p95 / p95 if p95 and of.p95 is not None else None
    return Unlike(metric, statistic(values, "p50"), p95, of.p50, of.p95, ratio, distance, beyond)


_Values = Mapping[str, Sequence[int | None]]
_Reached = Mapping[int, float]  # whole number -> share of production's tasks up to it


def _values(anchor: Anchor, metric: str) -> _Values:
    def of(sample: Samples) -> int | None:
        if metric != "tokens":
            return sample.get(metric)
        parts = (sample.get("input_tokens"), sample.get("output_tokens"))
        return None if None in parts else sum(part or 0 for part in parts)

    return {task: [of(sample) for sample in trials] for task, trials in anchor.items() if trials}


def _all_known(values: _Values) -> bool:
    return bool(values) and all(value is not None for trials in values.values() for value in trials)


def _means(values: _Values) -> dict[str, float]:
    return {task: math.fsum(value or 0 for value in trials) / len(trials) for task, trials in values.items()}


def _middles(values: _Values) -> list[int]:
    """The whole numbers up to which a production task is nearer to one eval task than to the next, by ratio."""
    ordered = sorted(set(_means(values).values()))
    return [_middle(one, other) for one, other in pairwise(ordered)]


def _middle(one: float, other: float) -> int:
    return math.floor(math.expm1((math.log1p(one) + math.log1p(other)) / 2))


def _reached(tasks: Expression, agent: str, metric: str, values: _Values, more: Sequence[int]) -> _Reached:
    """Production's distribution function just before and at each eval value, and at ``more``."""
    own = {value for trials in values.values() for value in trials if value is not None}
    edges = sorted({*own, *(value - 1 for value in own), *more})
    counts = {row["cell"]: row["n"] for row in rows_of(cells_of(tasks, agent, metric, edges))}
    every = sum(counts.values())
    at, so_far = {}, 0
    for index, edge in enumerate(edges):
        so_far += counts.get(index, 0)
        at[edge] = so_far / every
    return at


def _distance(values: _Values, at: _Reached) -> tuple[float, float]:
    """The largest gap between the two distribution functions, and the share beyond the largest eval trial."""
    weighted = sorted((value or 0, 1 / len(trials) / len(values)) for trials in values.values() for value in trials)
    largest, reached, gap = weighted[-1][0], 0.0, 0.0
    for value in sorted({value for value, _ in weighted}):
        gap = max(gap, abs(at[value - 1] - reached))
        reached += math.fsum(weight for other, weight in weighted if other == value)
        gap = max(gap, abs(at[value] - reached))
    return gap, 1 - at[largest]


def weights_of(values: _Values, at: _Reached) -> dict[str, float]:
    """Eval task -> share of production's tasks that are nearer to it than to any other, by ratio.

    Equal tasks share alike. A task that nothing is near to keeps a millionth: a weight is above 0.
    """
    means = _means(values)
    ordered = sorted(set(means.values()))
    ups = [at[_middle(one, other)] for one, other in pairwise(ordered)] + [1.0]
    share = dict(zip(ordered, (up - low for up, low in zip(ups, [0.0, *ups], strict=False)), strict=True))
    alike = {value: sum(1 for other in means.values() if other == value) for value in ordered}
    raw = {task: max(share[value] / alike[value], 1e-6) for task, value in means.items()}
    whole = math.fsum(raw.values())
    return {task: raw[task] / whole for task in sorted(raw)}
