"""matplotlib's SVG backend as a canvas: lines, dots, bars and texts at places in pixels, y upward.

A figure with axes costs 30 ms of CPU time, this a twentieth of it, and a page may hold a hundred pictures: shapes that
follow each other in one colour and line are one path. Colours are names of the page's style sheet, so that they follow
light and dark; texts stay texts, in its fonts, above the shapes: matplotlib neither reads them as mathematics nor looks
for their glyphs.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from markupsafe import Markup

from pytest_fanout.report.printable import escape

#: Properties of the style sheet, and what stands for them while drawing.
_COLOURS = {"ink": "#010203", "muted": "#010204", "line": "#010205", "run": "#010206", "base": "#010207"}
_NAMES = {colour: f"var(--{name})" for name, colour in _COLOURS.items()}
_COLOUR = re.compile("|".join(_NAMES))
_DROPPED = re.compile("<metadata>.*?</metadata>|<defs>.*?</defs>|<!--.*?-->")
_ROUND = tuple((math.cos(math.pi * at / 8), math.sin(math.pi * at / 8)) for at in range(16))


@contextmanager
def settings() -> Iterator[None]:
    """What makes the same pictures whatever a user has set; all of them are drawn inside it."""
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.id": None, "path.simplify": False, "path.sketch": None}):
        yield


@dataclass(frozen=True, slots=True)
class _Pen:
    """How shapes are drawn. ``width`` 0: filled."""

    colour: str
    width: float
    dashes: tuple[float, ...] = ()


class Canvas:
    """One picture of so many pixels."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.backends.backend_svg import RendererSVG
        from matplotlib.transforms import IdentityTransform

        self.width, self.height = width, height
        self._out = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        untyped: Any = RendererSVG
        self._renderer = untyped(width, height, self._out, metadata=nothing)
        self._as_it_is = IdentityTransform()
        self._pen: _Pen | None = None
        self._shapes: list[list[tuple[float, float]]] = []  # by that pen, not drawn yet
        self._texts: list[str] = []

    def line(
        self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.0, dashes: Sequence[float] = ()
    ) -> None:
        """Straight lines from point to point."""
        self._put(_Pen(colour, width, tuple(dashes)), points)

    def bar(self, x0: float, y0: float, x1: float, y1: float, colour: str) -> None:
        """A filled rectangle; one without a width is a hair's breadth."""
        self.polygon([(x0, y0), (max(x1, x0 + 1.0), y0), (max(x1, x0 + 1.0), y1), (x0, y1)], colour)

    def dot(self, x: float, y: float, colour: str, size: float = 3.0) -> None:
        """A round dot."""
        self.polygon([(x + size * across, y + size * up) for across, up in _ROUND], colour)

    def diamond(self, x: float, y: float, colour: str, size: float = 5.0) -> None:
        """A dot that is told from the round ones without its colour."""
        self.polygon([(x - size, y), (x, y - size), (x + size, y), (x, y + size)], colour)

    def polygon(self, points: Sequence[tuple[float, float]], colour: str) -> None:
        """A filled shape."""
        self._put(_Pen(colour, 0.0), points)

    def text(self, x: float, y: float, text: str, colour: str = "muted", held: str = "start") -> None:
        """A line of text on its baseline; ``held`` at its start, middle or end."""
        at = f"translate({round(x, 1):g} {round(self.height - y, 1):g})"
        self._texts.append(f'<text class="{held} {colour}" transform="{at}">{Markup.escape(escape(text))}</text>')

    def _put(self, pen: _Pen, points: Sequence[tuple[float, float]]) -> None:
        if pen != self._pen:
            self._draw()
            self._pen = pen
        # a tenth of a pixel is enough for every screen, and short to write
        self._shapes.append([(round(x, 1), round(y, 1)) for x, y in points])

    def _draw(self) -> None:
        """What has been put down by one pen, as one path."""
        pen, shapes = self._pen, self._shapes
        if pen is None or not shapes:
            return
        from matplotlib.path import Path

        points: list[tuple[float, float]] = []
        codes: list[Any] = []
        for shape in shapes:
            points += shape
            codes += [Path.MOVETO, *[Path.LINETO] * (len(shape) - 1)]
            if not pen.width:
                points.append(shape[0])
                codes.append(Path.CLOSEPOLY)
        made = self._renderer.new_gc()
        made.set_foreground(_COLOURS[pen.colour])
        made.set_linewidth(pen.width)
        if pen.dashes:
            made.set_dashes(0, list(pen.dashes))
        face = None if pen.width else _face(pen.colour)
        self._renderer.draw_path(made, Path(points, codes), self._as_it_is, face)
        self._shapes = []

    def done(self, key: str, title: str, text: str) -> Markup:
        """The picture as an element of the page, named for screen readers; nothing in it points elsewhere."""
        self._draw()
        self._renderer.finalize()
        drawn = " ".join(self._out.getvalue().split())
        _, _, body = drawn[drawn.index("<svg") :].partition(">")
        body = _DROPPED.sub("", body).replace("> <", "><").strip()
        body = _COLOUR.sub(lambda match: _NAMES[match[0]], body)
        return Markup(
            '<svg class="plot" viewBox="0 0 {w:.0f} {h:.0f}" role="img" aria-labelledby="{key}-t {key}-d">'
            '<title id="{key}-t">{title}</title><desc id="{key}-d">{text}</desc>{body}{texts}</svg>'
        ).format(
            w=self.width,
            h=self.height,
            key=key,
            title=escape(title),
            text=escape(text),
            body=Markup(body.removesuffix("</svg>")),
            texts=Markup("".join(self._texts)),
        )


@cache
def _face(colour: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    return to_rgb(_COLOURS[colour])
