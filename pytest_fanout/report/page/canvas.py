"""matplotlib's SVG backend as a canvas: lines, dots, bars and texts at places in pixels, y upward.

A figure with axes costs 30 ms of CPU time, this a tenth of it, and a page may hold a hundred pictures. Colours are
names of the page's style sheet, so that they follow light and dark; texts stay texts, in its fonts. A text is drawn as
a mark that the escaped text then replaces: matplotlib neither reads it as mathematics nor looks for its glyphs.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from markupsafe import Markup

from pytest_fanout.report.printable import escape

#: Properties of the style sheet, and what stands for them while drawing.
_COLOURS = {"ink": "#010203", "muted": "#010204", "line": "#010205", "run": "#010206", "base": "#010207"}
_TEXT = re.compile(r'<text [^>]*transform="(translate\([^)]*\))[^>]*>\s*@(\d+)@\s*</text>')
_DROPPED = re.compile(r"\s*<metadata>.*?</metadata>|\s*<defs>.*?</defs>|<!--.*?-->", re.DOTALL)
_ROUND = tuple((math.cos(math.pi * at / 8), math.sin(math.pi * at / 8)) for at in range(16))
_SPACES = re.compile(r"\s*(\n|(?<=>)\s(?=<))\s*")


@contextmanager
def settings() -> Iterator[None]:
    """What makes the same pictures whatever a user has set; all of them are drawn inside it."""
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.id": None, "path.simplify": False, "path.sketch": None}):
        yield


class Canvas:
    """One picture of so many pixels."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.backends.backend_svg import RendererSVG
        from matplotlib.font_manager import FontProperties
        from matplotlib.transforms import IdentityTransform

        self.width, self.height = width, height
        self._out = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        untyped: Any = RendererSVG
        self._renderer = untyped(width, height, self._out, metadata=nothing)
        self._font, self._as_it_is = FontProperties(size=11), IdentityTransform()
        self._texts: list[tuple[str, str, str]] = []  # text, where it is held, colour

    def line(
        self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.0, dashes: Sequence[float] = ()
    ) -> None:
        """Straight lines from point to point."""
        from matplotlib.path import Path

        pen = self._pen(colour, width)
        if dashes:
            pen.set_dashes(0, list(dashes))
        self._renderer.draw_path(pen, Path(_rounded(points)), self._as_it_is)

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
        from matplotlib.path import Path

        shape = Path(_rounded([*points, points[0]]), closed=True)
        self._renderer.draw_path(self._pen(colour, 0.0), shape, self._as_it_is, _face(colour))

    def text(self, x: float, y: float, text: str, colour: str = "muted", held: str = "start") -> None:
        """A line of text on its baseline; ``held`` at its start, middle or end."""
        at = round(x, 1), round(self.height - y, 1)
        self._renderer.draw_text(self._pen(colour, 1.0), *at, f"@{len(self._texts)}@", self._font, 0.0)
        self._texts.append((text, held, colour))

    def _pen(self, colour: str, width: float) -> Any:
        pen = self._renderer.new_gc()
        pen.set_foreground(_COLOURS[colour])
        pen.set_linewidth(width)
        return pen

    def done(self, key: str, title: str, text: str) -> Markup:
        """The picture as an element of the page, named for screen readers; nothing in it points elsewhere."""
        self._renderer.finalize()
        drawn = self._out.getvalue()
        _, _, body = drawn[drawn.index("<svg") :].partition(">")
        body = _DROPPED.sub("", body)
        for name, colour in _COLOURS.items():
            body = body.replace(colour, f"var(--{name})")
        body = _SPACES.sub(lambda match: " " if "\n" in match[0] else "", body).replace("> <", "><")
        body = _TEXT.sub(self._text, body)
        return Markup(
            '<svg class="plot" viewBox="0 0 {w:.0f} {h:.0f}" role="img" aria-labelledby="{key}-t {key}-d">'
            '<title id="{key}-t">{title}</title><desc id="{key}-d">{text}</desc>{body}'
        ).format(
            w=self.width, h=self.height, key=key, title=escape(title), text=escape(text), body=Markup(body.strip())
        )

    def _text(self, match: re.Match[str]) -> str:
        text, held, colour = self._texts[int(match[2])]
        return f'<text class="{held} {colour}" transform="{match[1]}">{Markup.escape(escape(text))}</text>'


def _rounded(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """A tenth of a pixel is enough for every screen, and short to write."""
    return [(round(x, 1), round(y, 1)) for x, y in points]


def _face(colour: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    return to_rgb(_COLOURS[colour])
