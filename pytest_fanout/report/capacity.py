"""What stands beside the GPUs of each class: ratio, band, percentiles, cliffs, quotas and money, one line each."""

from __future__ import annotations

from pytest_fanout.capacity.figures import band, interval, number, signed, times
from pytest_fanout.capacity.saturation import RHO_MAX
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
        ratios.append(f"calls x{times(projection.ratio_calls)}")
    if ratios and any(text.split("x", 1)[1] != "1.00" for text in ratios):
        lines.append(", ".join(ratios) + " of the anchor")
    if projection.gpus_spread_run is not None:
        lines.append(_percentiles(projection.gpus_spread_base, projection.gpus_spread_run, projection.gpus_growth))
    load, base = projection.run, projection.base
    if load.gpus is not None and load.gpus_other is not None:
        before = _before(base.gpus_other if base else None, load.gpus_other)
        lines.append(f"mean by the other fit of the same published rows: {before}{number(load.gpus_other)} GPUs")
    if load.binding not in (None, "compute"):
        texts = [constraint.text for constraint in load.constraints if constraint.name == load.binding]
        lines.append(f"{load.binding} binds: {texts[0]}" if texts else f"{load.binding} binds")
    if load.gpus is not None:
        # a constraint that is left out makes the GPUs too few, whatever the others say
        lines += [
            f"GPU memory is NOT counted, so that these GPUs may be too few: {each.text}"
            for each in load.constraints
            if each.name == "memory" and each.gpus is None
        ]
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
            text += f"; {number(run.gpus_p95_bursty)} where minutes are as uneven as in public traces"
        lines.append(text)
    if run.gpus_worse_cache is not None and run.load.gpus is not None:
        lines.append(
            f"mean with a worse cache: {number(run.gpus_worse_cache)} GPUs, in place of {number(run.load.gpus)}"
        )
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
            and number(base.usd_per_month) != number(run.usd_per_month)
        ):
            before = f"{number(base.usd_per_month)} -> "
        lines.append(f"{before}{number(run.usd_per_month)} USD in 30 days")
    return [*lines, *plan.notes]


def _before(base: float | None, run: float) -> str:
    """``12.00 -> `` where it is shown otherwise than the run."""
    return "" if base is None or number(base) == number(run) else f"{number(base)} -> "


def _percentiles(base: Spread | None, run: Spread, growth: Growth | None) -> str:
    before = _before(base.p95 if base else None, run.p95)
    text = f"p95 {before}{number(run.p95)} GPUs in 95 % of minutes at peak"
    if growth is not None and before:
        low, high = growth.delta_interval
        return f"{text}, {signed(growth.delta)} ({signed(low)} to {signed(high)} with 90 % of eval sets)"
    return f"{text} ({interval(run.p95_interval)} with 90 % of eval sets)"


def _cliffs(base: Side | None, run: Side) -> str:
    assert run.cliffs is not None
    after = survived(run.cliffs.survivable)
    most = max(len(cell.cliffs) for cell in run.cliffs.cells)
    if base is not None and base.cliffs is not None and base.cliffs.survivable != run.cliffs.survivable:
        after = f"{survived(base.cliffs.survivable)} -> {after}"
    return (
        f"cliffs survivable {after} of {most}, on {run.cliffs.gpus_available:,.0f} GPUs driven to {RHO_MAX * 100:.0f} %"
    )


def survived(count: int | None) -> str:
    """The number of cliffs; in words where not even the demand without one fits."""
    return "not even today's peak" if count is None else str(count)
