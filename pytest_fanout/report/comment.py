"""The comment on a pull request, made of a report that nobody vouches for: harmless whatever it says."""

from __future__ import annotations

from pytest_fanout.records import Run, Verdict
from pytest_fanout.report import summary
from pytest_fanout.report.markdown import MARKER, REPORT, code, render

#: GitHub takes 65,536 characters, and drops the whole comment beyond that.
MOST_BYTES = 60_000
_ONLY_TOLD = (
    "<sub>Written from what the run reports of itself; what decides is the required check, which judges it anew."
    " This comment is updated in place.</sub>\n"
)


def comment(run: Run, verdict: Verdict) -> str:
    """Markdown of at most 60,000 bytes, its first line the mark by which an older comment is found and replaced."""
    body = render(run, verdict, most_bytes=MOST_BYTES - len(_ONLY_TOLD))
    if len((body + _ONLY_TOLD).encode()) > MOST_BYTES:  # a table of names that are as long as can be
        words = summary.OUTCOME_WORDS[verdict.outcome]
        told = code(summary.headline(run, verdict))
        body = f"{MARKER}\n### fanout {words}\n\n{told}\n\nThe rest is too long for a comment: see {REPORT}.\n"
    return body + _ONLY_TOLD


def unreadable(why: str) -> str:
    """The comment where there is no report to show: never silence, which would leave an older comment standing."""
    told = f"There is no report to show: {code(summary.one_line(why))}"
    return f"{MARKER}\n### ⚠️ fanout not measured\n\n{told}\n\n{_ONLY_TOLD}"
