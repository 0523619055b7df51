"""Pictures of a plan as SVG: records in, text out. The same records always give the same bytes.

matplotlib is an extra (``pip install 'pytest-fanout[plot]'``) and imported where it draws, never with a display.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_fanout.capacity.figures import number
from pytest_fanout.capacity.saturation import RHO_MAX
from pytest_fanout.records import CliffCell, Cliffs

_RUN, _BASE, _CAPACITY, _FAILS, _FITS, _INK = "#1f5fbf", "#8a8f98", "#b42318", "#d9574a", "#3f9a6b", "#24292f"
#: Identifiers inside the file come from its content and this word, not from chance.
_SALT = "pytest-fanout"
_STYLE: Any = {  # the names of matplotlib
    "svg.hashsalt": _SALT,
    "svg.fonttype": "none",  # text stays text: it can be searched, read aloud, and takes the reader's font
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": _BASE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}
#: Shares of minutes that a curve is drawn through: more could not be told apart.
SHARES = tuple(index / 100 for index in range(1, 100))


@dataclass(frozen=True, slots=True)
class DemandCurve:
    """GPUs that are enough in each of ``SHARES`` of minutes at peak, of one side, with what 90 % of eval sets give."""

    name: str
    gpus: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    p95: float


def plan_svg(run: DemandCurve, base: DemandCurve | None, available: float | None, cliffs: Cliffs | None) -> str:
    """Demand against capacity, and below it the cliffs where fleet.toml describes any.

    Args:
        available: GPUs reserved and in the burst budget; None: the fleet is to be sized.
    """
    cells = len(cliffs.cells) if cliffs else 0

    def draw(figure: Any) -> None:
        if cliffs is None:
            demand_axes(figure.add_subplot(), run, base, available)
            return
        upper, lower = figure.subplots(2, 1, height_ratios=(3.4, 0.7 + 0.42 * cells))
        demand_axes(upper, run, base, available)
        cliff_axes(lower, cliffs)

    return svg(draw, width=8.0, height=4.2 if cliffs is None else 5.0 + 0.5 * cells)


def svg(draw: Callable[[Any], None], *, width: float, height: float) -> str:
    """What ``draw`` puts on a figure, as the text of an SVG file without a date. Inches of 72 points."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def demand_axes(axes: Any, run: DemandCurve, base: DemandCurve | None, available: float | None) -> None:
    """For each number of GPUs the share of minutes at peak that it is enough for; capacity and the 95th percentiles.

    The band around a curve is what 90 % of eval sets of the same size would give.
    """
    axes.set_title("GPUs asked for at peak", loc="left", fontweight="bold")
    axes.set_xlabel("GPUs")
    axes.set_ylabel("minutes that so many are enough for")
    for curve, colour, style in ((base, _BASE, "--"), (run, _RUN, "-")):
        if curve is None:
            continue
        axes.fill_betweenx(SHARES, curve.low, curve.high, color=colour, alpha=0.15, lw=0)
        axes.plot(curve.gpus, SHARES, style, color=colour, lw=2,
                  label=f"{curve.name}: p95 {number(curve.p95)} GPUs")  # fmt: skip
        axes.plot([curve.p95], [0.95], "o", color=colour)
    if available is not None:
        axes.axvline(available, color=_CAPACITY, lw=1.5, label=f"capacity: {available:,.0f}")
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(lambda share, _: f"{share * 100:.0f} %")
    axes.grid(True, color="#e3e6ea", lw=0.6)
    axes.legend(loc="lower right", framealpha=1, edgecolor="none")


def cliff_axes(axes: Any, cliffs: Cliffs) -> None:
    """Each combination of cliffs as a bar of its GPUs; those beyond capacity are told with what is short."""
    cells = list(reversed(cliffs.cells))
    survived = "not even today's peak" if cliffs.survivable is None else f"{cliffs.survivable} at once"
    axes.set_title(f"Cliffs survivable: {survived}", loc="left", fontweight="bold")
    known = [cell.gpus for cell in cells if cell.gpus is not None]
    most = max([*known, cliffs.gpus_available])
    for row, cell in enumerate(cells):
        axes.barh(row, most if cell.gpus is None else cell.gpus, height=0.62, color=_FITS if cell.fits else _FAILS,
                  hatch=None if cell.fits else "//", edgecolor="white", lw=0)  # fmt: skip
        axes.annotate(_of_cell(cell), (most if cell.gpus is None else cell.gpus, row), xytext=(5, 0),
                      textcoords="offset points", va="center", fontsize=9,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
    axes.axvline(cliffs.gpus_available, color=_CAPACITY, lw=1.5)
    axes.set_yticks(range(len(cells)), [" + ".join(cell.cliffs) or "today" for cell in cells])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, most * 1.55)
    axes.set_xlabel(
        f"GPUs by the mean, driven to {RHO_MAX * 100:.0f} %; the line: {cliffs.gpus_available:,.0f} that can be had"
    )


def _of_cell(cell: CliffCell) -> str:
    """In words too: the colour alone tells nothing to who cannot see it."""
    if cell.gpus is None:
        return "no number: FAILS"
    return (
        f"{number(cell.gpus)}, fits"
        if cell.fits
        else f"{number(cell.gpus)}, FAILS by {(cell.degradation or 0) * 100:.0f} % of demand"
    )
