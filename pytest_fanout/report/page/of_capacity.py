"""What the classes cost, as the page shows it: GPUs with their intervals, cliffs, quotas, and what that stands on."""

from __future__ import annotations

from pytest_fanout.capacity.figures import interval, number, times
from pytest_fanout.capacity.saturation import RHO_MAX
from pytest_fanout.records import CliffCell, Projection, Side, Spread, Verdict
from pytest_fanout.report import capacity, summary
from pytest_fanout.report.page import plots
from pytest_fanout.report.page.parts import CapacityPart, Picture, Table

_FLEET = "/report/capacity/fleet"
_PERCENTILES = ("p50", "p95", "p99")


def capacity_part(verdict: Verdict) -> CapacityPart | None:
    """None where no class was judged."""
    if not verdict.classes:
        return None
    lines = [f"{line.agent or 'all classes:'} {line.text}" for line in summary.capacity(verdict)]
    projections = sorted(verdict.projections, key=lambda each: each.agent)
    profiles = dict.fromkeys(f"GPU profile {each.profile}" for each in projections)
    assumptions = dict.fromkeys(text for each in projections for text in each.assumptions)
    lines += capacity.details(verdict)
    tables = [_classes(projections)] if projections else []
    pictures: list[Picture] = []
    plan = verdict.fleet
    if plan is not None:
        if plan.run.gpus_spread is not None:
            pictures.append(_spreads(plan.base.gpus_spread if plan.base else None, plan.run.gpus_spread))
        if plan.run.cliffs is not None and len(plan.run.cliffs.cells) > 1:
            tables.append(_cliffs(plan.base, plan.run))
        if plan.run.quotas:
            tables.append(_quotas(plan.run))
    return CapacityPart(tuple(lines), tuple(pictures), tuple(tables), (*profiles, *assumptions))


def _classes(projections: list[Projection]) -> Table:
    rows = []
    for each in projections:
        spread, base = each.gpus_spread_run, each.gpus_spread_base
        rows.append(
            (
                each.agent,
                _gpus(each.base.gpus if each.base else None),
                _gpus(each.run.gpus),
                "-" if base is None else _spread(base),
                "-" if spread is None else _spread(spread),
                _both(each.gpus_base, each.gpus_run, each.demand.per_1000),
                _both(each.gpus_for_p95_base, each.gpus_for_p95_run, each.demand.per_1000),
                "-" if each.ratio_gpu_time is None else f"×{times(each.ratio_gpu_time)}",
                "-" if each.ratio_calls is None else f"×{times(each.ratio_calls)}",
                each.run.binding or "-",
            )
        )
    per_1000 = any(each.demand.per_1000 for each in projections)
    unit = "GPUs" + (" per 1,000 tasks an hour where no demand is given" if per_1000 else " at peak")
    headers = (
        "class", "mean base", "mean run", "p95 base (90 %)", "p95 run (90 %)", "GPUs at peak", "GPUs for p95",
        "GPU time", "calls", "binds",
    )  # fmt: skip
    return Table(f"{unit}: mean and p95 before rounding up, then in whole replicas with the spare ones", headers,
                 tuple(rows), "/report/capacity/classes")  # fmt: skip


def _gpus(value: float | None) -> str:
    return "unknown" if value is None else number(value)


def _both(base: int | None, run: int | None, per_1000: bool) -> str:
    if per_1000 or run is None:
        return "-"
    return number(run) if base in (None, run) else f"{number(base)} → {number(run)}"


def _spread(spread: Spread) -> str:
    return f"{number(spread.p95)} ({interval(spread.p95_interval)})"


def _spreads(base: Spread | None, run: Spread) -> Picture:
    def side(spread: Spread | None, name: str) -> tuple[float, float, float] | None:
        if spread is None:
            return None
        low, high = getattr(spread, f"{name}_interval")
        return getattr(spread, name), low, high

    def told(value: tuple[float, float, float] | None) -> str:
        return "-" if value is None else f"{number(value[0])} ({interval(value[1:])})"

    sides = [(name, side(base, name), side(run, name)) for name in _PERCENTILES]
    title = "GPUs of all classes in windows of 60 s at peak"
    text = "Percentiles over windows, each with the interval that 90 % of eval sets of this size would give: "
    text += "; ".join(f"{name} base {told(before)}, run {told(after)}" for name, before, after in sides) + "."
    svg = plots.whiskers("gpus", title, text, [plots.Whisker(*row) for row in sides])
    rows = tuple((name, told(before), told(after)) for name, before, after in sides)
    return Picture(title, svg, text, Table(title, ("", "base (90 %)", "run (90 %)"), rows, _FLEET))


def _cliffs(base: Side | None, run: Side) -> Table:
    assert run.cliffs is not None
    names = sorted({name for cell in run.cliffs.cells for name in cell.cliffs})
    before = {cell.cliffs: cell for cell in base.cliffs.cells} if base is not None and base.cliffs is not None else {}
    rows = []
    for cell in run.cliffs.cells:
        rows.append(
            (
                " + ".join(cell.cliffs) or "today's peak",
                *_cell(before.get(cell.cliffs)),
                *_cell(cell),
                "-" if cell.degradation is None else f"{cell.degradation * 100:.0f} %",
            )
        )
    survived = capacity.survived(run.cliffs.survivable)
    on = f"on {run.cliffs.gpus_available:,.0f} GPUs driven to {RHO_MAX * 100:.0f} %"
    caption = f"Cliffs survivable: {survived} of {len(names)}, {on}"
    headers = ("cliffs", "GPUs base", "fits", "GPUs run", "fits", "demand unserved")
    return Table(caption, headers, tuple(rows), _FLEET)


def _cell(cell: CliffCell | None) -> tuple[str, str]:
    if cell is None:
        return "-", "-"
    return _gpus(cell.gpus), "✓ fits" if cell.fits else "✕ does not fit"


def _quotas(run: Side) -> Table:
    rows = tuple((use.name, number(use.used_p99), f"{use.quota:,}", f"{use.share * 100:.0f} %") for use in run.quotas)
    return Table("Quotas, in 99 % of minutes", ("quota", "used", "of", "share"), rows, f"{_FLEET}/run/quotas")
