"""The anchors and rules of the two commits that the gate compares, as the session needs them while it runs."""

from __future__ import annotations

from datetime import UTC, datetime

from pytest_fanout import gate
from pytest_fanout.config import Settings
from pytest_fanout.errors import FanoutError
from pytest_fanout.records import Baseline, Budget, TaskRun
from pytest_fanout.store.git import Repository


class Anchors:
    """Read from git when they are first asked for. What cannot be read is not there: the gate reports it.

    Args:
        base_option: the commit to compare with, as the user named it.
    """

    def __init__(self, settings: Settings, base_option: str | None) -> None:
        self._settings = settings
        self._option = base_option
        self._head: dict[str, Baseline] | None = None
        self._compared: tuple[dict[str, Baseline], Budget] | None = None

    def head(self, agent: str) -> Baseline | None:
        """HEAD's anchor of a class."""
        if self._head is None:
            self._head = {}
            try:
                repo = Repository.find(self._settings.root)
                head = repo.head().rev if repo is not None else None
                if repo is not None and head is not None:
                    self._head = gate.read_anchors(repo, head, self._settings)
            except FanoutError:
                pass
        return self._head.get(agent)

    def compared(self) -> tuple[dict[str, Baseline], Budget] | None:
        """What a new draw is judged by: each class's anchor of the base commit, HEAD's where the base has none, and
        the budget in force between the two. None: git does not tell."""
        if self._compared is None:
            try:
                repo = Repository.find(self._settings.root)
                head = repo.head() if repo is not None else None
                if repo is None or head is None or head.rev is None:
                    return None
                base = repo.resolve_base(self._option)
                anchors = gate.read_anchors(repo, head.rev, self._settings)
                if base.rev is not None and base.rev != head.rev:
                    anchors |= gate.read_anchors(repo, base.rev, self._settings)
                today = datetime.now(UTC).date()
                budget, _ = gate.committed_budget(repo, self._settings, base, head, today=today)
            except FanoutError:
                return None
            self._compared = anchors, budget
        return self._compared

    def base(self) -> tuple[Repository, str] | None:
        """The commit to compare with. None: there is none, or git does not tell."""
        try:
            repo = Repository.find(self._settings.root)
            rev = repo.resolve_base(self._option).rev if repo is not None else None
        except FanoutError:
            return None
        return (repo, rev) if repo is not None and rev is not None else None

    def leaves_to_the_gate(self, run: TaskRun) -> str | None:
        """Why a failing trial does not fail its item: the gate decides on it. None: the item fails."""
        if run.status == "stale":
            return "stale recording"
        if run.status in ("capped", "timeout"):
            return f"capped: {run.capped}"
        anchor = self.head(run.agent)
        known = anchor.tasks.get(run.task) if anchor is not None else None
        if known is None:
            return f"failed, and the baseline does not say that it passes: {run.error}"
        if not all(trial.passed for trial in known.trials):
            return f"failed, as in the baseline: {run.error}"
        return None
