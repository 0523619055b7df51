"""What `fanout-capacity plan` and `compare` print: tables for people, one document for machines."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_fanout.capacity.figures import counted, number, times
from pytest_fanout.capacity.project import NO_ANCHOR
from pytest_fanout.capacity.saturation import RHO_MAX
from pytest_fanout.records import Cliffs, Fleet, FleetPlan, Load, Projection, Side, Spread
from pytest_fanout.report import capacity

SCHEMA = "pytest-fanout/capacity/1"


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """A table or lines under a title."""

    title: str
    headers: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    lines: tuple[str, ...] = ()


def document(
    projections: Sequence[Projection], plan: FleetPlan | None, fleet: Fleet, *, compared: bool
) -> dict[str, Any]:
    """Schema ``pytest-fanout/capacity/1``: units in the keys, unknown is null. The same figures as in a gate report.

    ``compared``: base and run stand side by side; without it the anchors are the run, and nothing is missing.
    """
    if not compared:
        projections = [
            dataclasses.replace(each, assumptions=tuple(text for text in each.assumptions if text != NO_ANCHOR))
            for each in projections
        ]
    return {
        "schema": SCHEMA,
        "fleet_file": fleet.source,
        "fleet_digest": fleet.digest,
        "defaults": sorted(fleet.defaulted),
        "classes": [_plain(each) for each in sorted(projections, key=lambda each: each.agent)],
        "fleet": None if plan is None else _plain(plan),
    }


def sections(
    projections: Sequence[Projection], plan: FleetPlan | None, fleet: Fleet, *, compared: bool
) -> list[Section]:
    """The page, most important first. ``compared``: base and run stand side by side."""
    ordered = sorted(projections, key=lambda each: each.agent)
    found = [_classes(ordered, compared)]
    lines = [f"{each.agent} {text}" for each in ordered for text in capacity.of_class(each)]
    if plan is not None:
        lines += [f"all classes: {text}" for text in capacity.of_fleet(plan)]
    if lines:
        found.append(Section("What that says", lines=tuple(lines)))
    found.append(_constraints(ordered))
    found.append(_boundaries(ordered))
    if plan is not None:
        found += _of_fleet(plan)
    assumptions = dict.fromkeys(text for each in ordered for text in each.assumptions)
    if not compared:
        assumptions.pop(NO_ANCHOR, None)
    found.append(Section("What the figures stand on", lines=tuple(assumptions)))
    if fleet.defaulted:
        found.append(Section("Defaults", lines=tuple(default_lines(fleet))))
    return [section for section in found if section.rows or section.lines]


def default_lines(fleet: Fleet) -> list[str]:
    """Each key that fleet.toml leaves out, with the value that holds."""
    lines = []
    for key in sorted(fleet.defaulted):
        table, _, name = key.partition(".")
        owner: Any = {"fleet": fleet, "slo": fleet.slo, "cliffs": fleet.cliffs}.get(table)
        if table == "demand":
            agent, _, name = name.rpartition(".")
            owner = fleet.demand[agent]
        lines.append(f"{key} = {getattr(owner, name)}")
    return lines


def render(found: Sequence[Section], *, markdown: bool) -> str:
    """The sections as plain text or markdown."""
    from tabulate import tabulate

    parts = []
    for section in found:
        parts.append(f"### {section.title}" if markdown else section.title.upper())
        if section.rows:
            align = ("left", *("right" for _ in section.headers[1:-1]), "left")
            style = "github" if markdown else "simple"
            parts.append(tabulate(section.rows, section.headers, tablefmt=style, colalign=align, disable_numparse=True))
        if section.lines:
            parts.append("\n".join(f"- {line}" for line in section.lines))
    return "\n\n".join(parts)


def _classes(ordered: Sequence[Projection], compared: bool) -> Section:
    headers = (
        "class", "tasks/s", "calls/s", "new in/s", "cached in/s", "out/s", "mean", "p50", "p95", "p99",
        "GPUs at peak", "GPUs for p95", "binds",
    )  # fmt: skip
    rows = []
    for each in ordered:
        name = f"{each.agent} run" if compared else each.agent
        sides: list[tuple[str, Load | None, Spread | None, int | None, int | None]] = [
            (name, each.run, each.gpus_spread_run, each.gpus_run, each.gpus_for_p95_run)
        ]
        if compared:
            before = (each.base, each.gpus_spread_base, each.gpus_base, each.gpus_for_p95_base)
            sides.insert(0, (f"{each.agent} base", *before))
        for name, load, spread, gpus, for_p95 in sides:
            if load is None:
                continue
            quantiles = (spread.p50, spread.p95, spread.p99) if spread else (None, None, None)
            rows.append(
                (
                    name, number(each.demand.tasks_per_second), *(number(value) for value in (
                        load.calls_per_s, load.new_input_per_s, load.cached_input_per_s, load.output_per_s
                    )), number(load.gpus), *map(number, quantiles),
                    number(None if each.demand.per_1000 else gpus), number(for_p95), load.binding or "-",
                )
            )  # fmt: skip
    return Section("Demand and GPUs at peak", headers, tuple(rows))


def _constraints(ordered: Sequence[Projection]) -> Section:
    rows = [
        (each.agent, constraint.name, number(constraint.gpus), constraint.text)
        for each in ordered
        for constraint in each.run.constraints
    ]
    return Section("What asks for GPUs", ("class", "constraint", "GPUs", "how"), tuple(rows))


def _boundaries(ordered: Sequence[Projection]) -> Section:
    rows = [
        (f"{each.agent} {place.name}", number(place.in_flight), f"{place.in_flight_p99:,}", "")
        for each in ordered
        for place in each.run.boundaries
    ]
    return Section("In flight at peak", ("place", "mean", "p99", ""), tuple(rows))


def _of_fleet(plan: FleetPlan) -> list[Section]:
    run = plan.run
    found = []
    if run.cliffs is not None:
        found.append(
            Section(
                f"Cliffs: GPUs by the mean, driven to {RHO_MAX * 100:.0f} % in place of what is planned",
                ("combination", "GPUs", "of today", "short by", ""),
                tuple(_cells(run.cliffs)),
            )
        )
    if run.quotas:
        rows = [
            (
                use.name,
                number(use.used_p99),
                f"{use.quota:,}",
                f"{use.share * 100:.0f} %",
                "OVER" if use.share > 1 else "",
            )
            for use in run.quotas
        ]
        found.append(Section("Quotas", ("quota", "used (p99)", "quota", "share", ""), tuple(rows)))
    found += _reservation(run)
    rows_worst = [
        (
            worst.agent,
            "unbounded" if worst.calls_per_task is None else f"{worst.calls_per_task:,}",
            *(
                ("unbounded",) * 5
                if worst.tokens_per_task is None
                else (
                    f"{worst.tokens_per_task:,}", number(worst.tokens_in_flight), number(worst.usd_per_task),
                    number(worst.tokens_per_s), number(worst.usd_per_day),
                )
            ),
            "",
        )
        for worst in plan.worst_case
    ]  # fmt: skip
    if plan.scaling:
        lines = tuple(f"{signal.name}: {number(signal.value)}" for signal in plan.scaling)
        found.append(Section("Add a replica at, on each replica", lines=lines))
    headers = (
        "class", "calls a task", "tokens a task", "tokens in flight", "USD a task", "tokens/s", "USD a day", "",
    )  # fmt: skip
    found.append(Section("Worst case, by the caps of budget.toml", headers, tuple(rows_worst)))
    return found


def _cells(cliffs: Cliffs) -> list[tuple[str, ...]]:
    return [
        (
            " + ".join(cell.cliffs) or "none",
            number(cell.gpus),
            "-" if cell.demand_ratio is None else f"x{times(cell.demand_ratio)}",
            "-" if cell.degradation is None else f"{cell.degradation * 100:.0f} %",
            "fits" if cell.fits else "FAILS",
        )
        for cell in cliffs.cells
    ]


def _reservation(run: Side) -> list[Section]:
    plan = run.reservation
    if plan is None:
        return []
    lines = (
        f"cheapest: reserve {counted(plan.gpus_newsvendor, 'GPU')} and rent the rest by the hour; "
        f"{plan.burst_share * 100:.0f} % of GPU hours are rented",
        f"cost of an hour, in reserved GPU hours: {number(plan.cost_newsvendor)}; with the minimum of "
        f"{plan.gpus_minimum:,} reserved {number(plan.cost_minimum)}; with the 99th percentile "
        f"{number(plan.cost_peak)}",
        f"blended: {times(plan.blended_index)} times a fleet that is always full",
    )
    return [Section("Reservation", lines=lines)]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
