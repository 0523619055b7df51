"""``--fanout-html``: the page of a run. It is written before the JSON report, and never decides anything.

From the start of the run a page stands at its place that says "run not finished", so that none of another run is taken
for this one's; and what takes a verdict back takes its page back as well.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_fanout.errors import FanoutError, UsageError
from pytest_fanout.records import Past, Problem, Run, Verdict
from pytest_fanout.report.page.render import NEEDED, render, render_plain, render_taken_back
from pytest_fanout.store.files import write_atomically

OPTION = "fanout_html"


def page_of(config: pytest.Config, report: Path, run_id: str) -> Page | None:
    """The page that is asked for, begun; None: none is.

    Raises:
        UsageError: the extra is not installed, the page would stand where the JSON report does, or its name is none.
        StorageError: nothing can be written there.
    """
    given = config.getoption(OPTION)
    if given is None:
        return None
    check_extra()
    path = config.invocation_params.dir / given
    if path.resolve() == report.resolve():
        raise UsageError(
            "html-over-report",
            f"--fanout-html={given} would be written over the JSON report",
            mend="--fanout-html=fanout-report.html",
        )
    if path.suffix.lower() not in (".html", ".htm"):
        # `--fanout-html tests/test_agent.py`: meant as what to run, taken as where to write
        raise UsageError(
            "html-no-page",
            f"--fanout-html={given} names no page: it would be replaced by one",
            mend="--fanout-html=fanout-report.html, and what to run after it",
        )
    if not config.option.collectonly:
        write_atomically(path, render_plain("not measured", "run not finished", run_id).encode())
    return Page(path, given)


def check_extra() -> None:
    """Refuse to begin where the page could not be drawn in the end.

    Raises:
        UsageError: naming what is missing.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(
            "html-not-installed",
            f"--fanout-html draws its page with {missing[0]}: it is not installed",
            mend="pip install 'pytest-fanout[html]'",
        )


class Page:
    """The file, and the verdict that it shows."""

    def __init__(self, path: Path, given: str = "") -> None:
        self.path = path
        self.shown_at = ""  # as the option gives it, once the page of a verdict stands there
        self._given = given or path.name
        self._shown: tuple[Run, Verdict] | None = None

    def written(self, run: Run, verdict: Verdict, past: Past) -> Verdict:
        """Write the page; the verdict again, with a notice where that failed."""
        try:
            write_atomically(self.path, render(run, verdict, past).encode())
            self.shown_at = self._given
        except Exception as error:
            # whatever is wrong with a picture, the verdict stands and its report is written
            what = (
                f"{error.where}: {error.what}" if isinstance(error, FanoutError) else f"{type(error).__name__}: {error}"
            )
            text = (
                f"the page of --fanout-html was not written, and what stands there is no verdict ({what}); "
                "mend: run again with another path, or without --fanout-html"
            )
            verdict = replace(verdict, problems=(*verdict.problems, Problem("html-not-written", text, "notice")))
        self._shown = run, verdict
        return verdict

    def keep_with(self, run: Run, verdict: Verdict, *, is_stored: bool) -> FanoutError | None:
        """Take the page back where the report says something else by now, or could not be written.

        Returns the error where that fails: then nothing is green.
        """
        is_same = self._shown is not None and self._shown[0] is run and self._shown[1] is verdict
        if is_same and is_stored:
            return None
        try:
            write_atomically(self.path, render_taken_back(run, verdict).encode())
        except FanoutError as error:
            return error
        return None
