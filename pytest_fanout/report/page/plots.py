"""The pictures of the page: distributions, waterfalls, trends, intervals. All as wide as a phone shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pytest_fanout.report.page.canvas import Canvas
from pytest_fanout.report.page.curves import Curve, thinned

WIDTH = 360.0
_COLUMNS = 150  # in which a curve may have steps


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of a waterfall: from where to where, in the metric's unit. ``kind``: total, more, less."""

    label: str
    where: str  # the call site, in a line of its own
    start: float
    end: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Whisker:
    """A quantity with its interval (value, low, high); base above run. None: not known."""

    label: str
    base: tuple[float, float, float] | None
    run: tuple[float, float, float] | None


def ecdf(key: str, title: str, text: str, base: Curve | None, run: Curve | None, limit: int | None) -> Markup:
    """Cumulated shares of both sides with p50, p95 and p99 as dots, and the limit as an upright line."""
    left, right, bottom, top = 30.0, 10.0, 24.0, 22.0
    canvas = Canvas(WIDTH, 190.0)
    curves = [curve for curve in (base, run) if curve is not None]
    known = [value for curve in curves for value in (curve.steps[0][0], curve.steps[-1][0])]
    known += [] if limit is None else [limit]
    low, high = float(min(known)), float(max(known))
    room = max((high - low) * 0.04, 0.5)
    x = _scale(low - room, high + room, left, WIDTH - right)
    y = _scale(0.0, 1.0, bottom, canvas.height - top)
    for name, share, below in (("p50", 0.5, 4), ("p95", 0.95, 9), ("p99", 0.99, 1)):
        canvas.line([(left, y(share)), (WIDTH - right, y(share))], "line")
        canvas.text(left - 5, y(share) - below, name, held="end")
    _axis(canvas, (low - room, high + room), x, left, WIDTH - right, bottom)
    if limit is not None:
        canvas.line([(x(limit), bottom), (x(limit), canvas.height - top + 4)], "ink", 1.5, (2, 2))
        held = "end" if limit - low > 0.8 * (high - low) else "start" if limit - low < 0.2 * (high - low) else "middle"
        canvas.text(x(limit), canvas.height - 12, f"limit {limit:,}", "ink", held)
    for curve, colour, dashes in ((base, "base", (5, 3)), (run, "run", ())):
        if curve is not None:
            points, share = [(left, y(0.0))], 0.0
            for value, reached in thinned(curve.steps, low, high, _COLUMNS):
                points += [(x(value), y(share)), (x(value), y(reached))]
                share = reached
            canvas.line([*points, (WIDTH - right, y(share))], colour, 2.0, dashes)
            for value, share in curve.marks:
                canvas.dot(x(value), y(share), colour, 3.5)
    return canvas.done(key, title, text)


def waterfall(key: str, title: str, text: str, bars: Sequence[Bar]) -> Markup:
    """From the base's mean to the run's, a row for each part: its words, size and call site above its bar."""
    heights = [53.0 if bar.where else 37.0 for bar in bars]
    canvas = Canvas(WIDTH, sum(heights) + 2)
    ends = [0.0, *(bar.start for bar in bars), *(bar.end for bar in bars)]
    x = _scale(min(ends), max(ends), 1.0, WIDTH - 1.0)
    lower = [canvas.height - sum(heights[: at + 1]) for at in range(len(bars))]
    for bar, below, next_below in zip(bars, lower, lower[1:], strict=False):
        canvas.line([(x(bar.end), below + 7), (x(bar.end), next_below + 18)], "line")
    for bar, below, height in zip(bars, lower, heights, strict=True):
        upper = below + height
        canvas.text(0.0, upper - 13, bar.label, "ink")
        canvas.text(WIDTH, upper - 13, bar.text, "ink", "end")
        if bar.where:
            canvas.text(0.0, upper - 29, bar.where)
        colour = {"total": "muted", "more": "run", "less": "base"}[bar.kind]
        low, high = sorted((x(bar.start), x(bar.end)))
        canvas.bar(low, below + 7, high, below + 18, colour)
    return canvas.done(key, title, text)


def trend(key: str, title: str, text: str, values: Sequence[int], days: Sequence[str], run: int | None) -> Markup:
    """Approved values as stairs, oldest first, and what the run measured as a diamond at their end."""
    left, right, bottom, top = 46.0, 14.0, 24.0, 12.0
    canvas = Canvas(WIDTH, 130.0)
    told = [*values, *([] if run is None else [run])]
    room = max((max(told) - min(told)) * 0.1, 1.0)
    x = _scale(0.0, float(len(values)), left + 8, WIDTH - right - 8)
    y = _scale(min(told) - room, max(told) + room, bottom, canvas.height - top)
    for tick in _ticks(min(told) - room, max(told) + room):
        canvas.line([(left, y(tick)), (WIDTH - right, y(tick))], "line")
        canvas.text(left - 6, y(tick) - 4, f"{tick:,.0f}", held="end")
    points: list[tuple[float, float]] = []
    for at, value in enumerate(values):
        points += [(x(at), y(value)), (x(at + 1), y(value))]
    canvas.line(points, "base", 2.0)
    for at, value in enumerate(values):
        canvas.dot(x(at), y(value), "base", 3.5)
    if run is not None:
        canvas.diamond(x(len(values)), y(run), "run")
    canvas.text(left, 7.0, days[0])
    canvas.text(WIDTH - right, 7.0, "this run", held="end")
    return canvas.done(key, title, text)


def whiskers(key: str, title: str, text: str, rows: Sequence[Whisker]) -> Markup:
    """Each quantity as a dot with its interval as a line, base above run."""
    left, right, bottom, row = 34.0, 10.0, 24.0, 36.0
    canvas = Canvas(WIDTH, bottom + row * len(rows) + 6)
    known = [side for each in rows for side in (each.base, each.run) if side is not None]
    low, high = min(side[1] for side in known), max(side[2] for side in known)
    room = (high - low) * 0.05 or max(high * 0.05, 0.05)
    x = _scale(low - room, high + room, left, WIDTH - right)
    for at, each in enumerate(rows):
        middle = canvas.height - row * (at + 0.5)
        canvas.text(left - 6, middle - 4, each.label, "ink", "end")
        for side, colour, height in ((each.base, "base", middle + 7), (each.run, "run", middle - 7)):
            if side is not None:
                canvas.line([(x(side[1]), height), (x(side[2]), height)], colour, 2.0)
                (canvas.dot if colour == "base" else canvas.diamond)(x(side[0]), height, colour, 4.5)
    _axis(canvas, (low - room, high + room), x, left, WIDTH - right, bottom, whole=False)
    return canvas.done(key, title, text)


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = high - low or 1.0
    return lambda value: start + (value - low) * (end - start) / span


def _ticks(low: float, high: float, *, whole: bool = True) -> list[float]:
    """At most five round numbers between two values; whole ones where what is drawn is counted."""
    from matplotlib.ticker import MaxNLocator

    ticks = MaxNLocator(4, integer=whole, min_n_ticks=1).tick_values(low, high)
    return [tick for tick in ticks if low <= tick <= high and (not whole or tick == int(tick))]


def _axis(
    canvas: Canvas,
    ends: tuple[float, float],
    x: Callable[[float], float],
    left: float,
    right: float,
    bottom: float,
    *,
    whole: bool = True,
) -> None:
    canvas.line([(left, bottom), (right, bottom)], "muted")
    for tick in _ticks(*ends, whole=whole):
        text = f"{tick:,.0f}" if tick == int(tick) else f"{tick:,.4g}"
        canvas.line([(x(tick), bottom), (x(tick), bottom - 4)], "muted")
        if left + 8 <= x(tick) <= right - 14 or len(text) < 3:
            canvas.text(x(tick), bottom - 16, text, held="middle")
