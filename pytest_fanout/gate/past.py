"""What commits hold beside a verdict, for the page: the anchors, and how approvals have moved them.

Trends come from the approval files of HEAD's tree alone, as drift does, so that a shallow clone is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date

from pytest_fanout.config import Settings
from pytest_fanout.errors import FanoutError
from pytest_fanout.gate.costs import anchors_beside
from pytest_fanout.gate.drift import approvals_of
from pytest_fanout.gate.tree import read_tree
from pytest_fanout.records import Approval, Past, Trend, TrendStep, Verdict
from pytest_fanout.store.git import Repository


def past_of(verdict: Verdict, repo: Repository | None, settings: Settings) -> Past:
    """The past of the classes of a verdict; empty where commits cannot be read: the verdict itself says so."""
    try:
        anchors = anchors_beside(verdict.base.rev, verdict.head.rev, repo, settings)
        approvals: Sequence[Approval] = ()
        if repo is not None and verdict.head.rev is not None:
            approvals = read_tree(repo, verdict.head.rev, settings, "HEAD").approvals
    except FanoutError:
        return Past({}, ())
    trends = [trend for result in verdict.classes for trend in trends_of(approvals, result.agent)]
    return Past({agent: anchor for agent, (anchor, _) in anchors.items()}, tuple(trends))


def trends_of(approvals: Sequence[Approval], agent: str) -> list[Trend]:
    """One trend for each metric that the approvals of a class speak of, by name; common tasks are left out."""
    steps: dict[str, list[TrendStep]] = {}
    for approval, day in _chained(approvals_of(approvals, agent)):
        for change in approval.changes:
            if change.what == "metric" and change.scope != "common" and isinstance(change.new, int):
                step = TrendStep(day.isoformat(), change.new, approval.path, approval.reason)
                steps.setdefault(change.name, []).append(step)
    return [Trend(agent, name, tuple(found)) for name, found in sorted(steps.items())]


def _chained(approvals: Iterable[tuple[Approval, date]]) -> Iterator[tuple[Approval, date]]:
    """By day as they come; of one day each after the one whose anchor it replaced."""
    left, last = list(approvals), None
    while left:
        today = [entry for entry in left if entry[1] == left[0][1]]
        ends = {approval.to_digest for approval, _ in today if approval.to_digest}
        starts = [entry for entry in today if entry[0].from_digest not in ends]
        starts.sort(key=lambda entry: entry[0].from_digest is not None)  # a first anchor is before all others
        follows = [entry for entry in today if last is not None and entry[0].from_digest == last]
        chosen = (follows or starts or today)[0]
        left.remove(chosen)
        last = chosen[0].to_digest
        yield chosen
