"""What stands beside the GPUs of each class: ratio, band, percentiles, cliffs, quotas and money, one line each."""

from __future__ import annotations

from pytest_fanout.records import FleetPlan, Growth, Projection, Side, Spread, Verdict


def details(verdict: Verdict) -> list[str]:
    """Lines for classes with demand, then for the fleet; none where there is nothing more to say."""
    lines = []
    for projection in sorted(verdict.projections, key=lambda each: each.agent):
        if not projection.demand.per_1000:
            lines += [f"{projection.agent} {text}" for text in of_class(projection)]
    if verdict.fleet is not None:
        lines += [f"all classes: {text}" for text in of_fleet(verdict.fleet)]
    return lines


def of_class(projection: Projection) -> list[str]:
    """Ratio first, then percentiles; why there is no number, where there is none."""
    if projection.run.refused is not None:
        return [f"GPUs unknown: {projection.run.refused}"]
    lines = []
    ratios = []
    if projection.ratio_gpu_time is not None:
        ratios.append(f"GPU time x{band(projection.ratio_gpu_time, projection.ratio_gpu_time_other)}")
    if projection.ratio_calls is not None:
        ratios.append(f"calls x{projection.ratio_calls:.2f}")
    if ratios and any(text.split("x", 1)[1] != "1.00" for text in ratios):
        lines.append(", ".join(ratios) + " of the anchor")
    if projection.gpus_spread_run is not None:
        lines.append(_percentiles(projection.gpus_spread_base, projection.gpus_spread_run, projection.gpus_growth))
    load, base = projection.run, projection.base
    if load.gpus is not None and load.gpus_other is not None:
        before = _before(base.gpus_other if base else None, load.gpus_other, 1)
        lines.append(f"{before}{load.gpus_other:,.1f} GPUs by the other fit of the same published rows")
    if load.binding not in (None, "compute"):
        texts = [constraint.text for constraint in load.constraints if constraint.name == load.binding]
        lines.append(f"{load.binding} binds: {texts[0]}" if texts else f"{load.binding} binds")
    return lines


def of_fleet(plan: FleetPlan) -> list[str]:
    """The whole fleet: percentiles, cliffs, quotas, money, and what the figures do not know."""
    base, run = plan.base, plan.run
    lines = []
    if run.load.refused is not None:
        lines.append(f"GPUs unknown: {run.load.refused}")
    if run.gpus_spread is not None:
        text = _percentiles(base.gpus_spread if base else None, run.gpus_spread, plan.growth)
        if run.gpus_p95_bursty is not None:
            text += f"; {run.gpus_p95_bursty:,.1f} where minutes are as uneven as in public traces"
        lines.append(text)
    if run.gpus_worse_cache is not None and run.load.gpus is not None:
        lines.append(f"{run.gpus_worse_cache:,.1f} GPUs with a worse cache, in place of {run.load.gpus:,.1f}")
    if run.cliffs is not None:
        lines.append(_cliffs(base, run))
    for use in run.quotas[:1]:
        mark = ": over quota" if use.share > 1 else ""
        lines.append(f"{use.share * 100:.0f} % of {use.name} in 99 % of minutes{mark}")
    if run.usd_per_month is not None:
        before = ""
        if (
            base is not None
            and base.usd_per_month is not None
            and f"{base.usd_per_month:,.0f}" != (f"{run.usd_per_month:,.0f}")
        ):
            before = f"{base.usd_per_month:,.0f} -> "
        lines.append(f"{before}{run.usd_per_month:,.0f} USD in 30 days")
    return [*lines, *plan.notes]


def _before(base: float | None, run: float, digits: int) -> str:
    """``12.0 -> `` where it is shown otherwise than the run."""
    same = base is None or f"{base:,.{digits}f}" == f"{run:,.{digits}f}"
    return "" if same else f"{base:,.{digits}f} -> "


def _percentiles(base: Spread | None, run: Spread, growth: Growth | None) -> str:
    before = _before(base.p95 if base else None, run.p95, 1)
    text = f"{before}{run.p95:,.1f} GPUs in 95 % of minutes at peak"
    if growth is not None and before:
        low, high = growth.delta_interval
        return f"{text}, {growth.delta:+,.1f} ({low:+,.1f} to {high:+,.1f} with 90 % of eval sets)"
    low, high = run.p95_interval
    return f"{text} ({low:,.1f} to {high:,.1f} with 90 % of eval sets)"


def _cliffs(base: Side | None, run: Side) -> str:
    assert run.cliffs is not None
    after = survived(run.cliffs.survivable)
    most = max(len(cell.cliffs) for cell in run.cliffs.cells)
    if base is not None and base.cliffs is not None and base.cliffs.survivable != run.cliffs.survivable:
        after = f"{survived(base.cliffs.survivable)} -> {after}"
    return f"cliffs survivable {after} of {most}, on {run.cliffs.gpus_available:,.0f} GPUs"


def survived(count: int | None) -> str:
    """The number of cliffs; in words where not even the demand without one fits."""
    return "not even today's peak" if count is None else str(count)


def band(one: float, other: float | None) -> str:
    """``2.31 to 4.16``, smaller first; one number where both are shown alike."""
    shown = sorted({f"{value:,.2f}" for value in (one, other) if value is not None}, key=lambda text: (len(text), text))
    return " to ".join(shown)
