"""What `plan`, `compare` and `forecast` price: the anchors of a commit or a report, and the shares of their tasks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pytest_fanout.config import Settings
from pytest_fanout.errors import GitError, UsageError
from pytest_fanout.gate import read_anchors
from pytest_fanout.gate.fleet import samples_of_anchor, samples_of_run
from pytest_fanout.records import MEASURED, Samples
from pytest_fanout.store.git import Repository

OfClass = dict[str, list[Samples]]


def repository_of(settings: Settings) -> Repository:
    """Raises GitError where the project is in none."""
    repo = Repository.find(settings.root)
    if repo is None:
        raise GitError(
            "no-git-repository",
            "the project is in no git repository",
            where=str(settings.root),
            mend="git init, and commit the project",
        )
    return repo


def samples_at(settings: Settings, name: str, repo: Repository) -> dict[str, OfClass]:
    """By class: of a report, or of the anchors of a commit."""
    path = Path(name)
    if path.is_file():
        from pytest_fanout.store.reports import read_report

        run = read_report(path)
        measured = [task for task in run.tasks if task.status in MEASURED]
        return {
            agent: samples_of_run([t for t in measured if t.agent == agent]) for agent in {t.agent for t in measured}
        }
    rev = repo.resolve(name)
    if rev is None:
        raise UsageError(
            "no-such-side",
            f"{name!r} is neither a report nor a commit",
            mend="name a report (fanout-report.json), a branch, a tag or a commit",
        )
    return {agent: samples_of_anchor(anchor) for agent, anchor in read_anchors(repo, rev, settings).items()}


def weights_of(settings: Settings, agents: Iterable[str]) -> dict[str, dict[str, float]]:
    """Shares of tasks in production, where the eval set gives any."""
    from pytest_fanout.store.evalsets import read_evalset

    found, wanted = {}, set(agents)
    for agent, own in settings.agents.items():
        if agent in wanted and own.evalset.is_file():
            shares = {task.id: float(task.weight) for task in read_evalset(own.evalset, agent).tasks}
            if any(share != 1.0 for share in shares.values()):
                found[agent] = shares
    return found
