"""The page as text. Its templates escape whatever they are given, and refuse a name that is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_fanout.records import Past, Run, Verdict
from pytest_fanout.report import summary
from pytest_fanout.report.printable import escape

if TYPE_CHECKING:
    from jinja2 import Environment

#: What the extra `html` installs.
NEEDED = ("jinja2", "matplotlib")


def render(run: Run, verdict: Verdict, past: Past) -> str:
    """The whole page. The same records give the same bytes."""
    from pytest_fanout.report.page.canvas import settings
    from pytest_fanout.report.page.view import page_part

    with settings():
        page = page_part(run, verdict, past)
    return _environment().get_template("page.html").render(page=page)


def render_plain(words: str, reason: str, run_id: str) -> str:
    """A page of one verdict that is no green one, without pictures: quick, and drawn by the template engine alone."""
    return _environment().get_template("plain.html").render(words=words, reason=reason, run_id=run_id)


def render_taken_back(run: Run, verdict: Verdict) -> str:
    """The page of a verdict that a later event has changed: what it is now, without pictures."""
    words, _, reason = summary.headline(run, verdict).partition(": ")
    if verdict.outcome in ("within", "waived"):
        words, reason = "not measured", "the run did not end as its verdict says"
    return render_plain(words, reason, run.run_id)


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("pytest_fanout.report.page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"exact": _exact, "answer": _answer, "side": _side}
    return made


def _answer(cell: str) -> str:
    """The class of a cell that says yes or no. In the templates a method of a text costs three times as much."""
    return {"✓": " yes", "✕": " no"}.get(cell[:1], "")


def _side(line: str) -> str:
    """The class of a line of a diff."""
    return {"+": "plus", "-": "minus"}.get(line[:1], "same")


def _exact(text: str) -> Any:
    """A text that is there to be copied or compared: its arrows stay as they were written."""
    from markupsafe import Markup

    return Markup.escape(escape(text))


def _shown(value: Any) -> Any:
    """Each text on one line, without characters that steer, and with real arrows; what is markup already stays."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return escape(value).replace(" -> ", " → ")
    return value
