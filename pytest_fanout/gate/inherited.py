"""A red that was there before the change: the base commit itself is over budget, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_fanout.config import Settings
from pytest_fanout.gate.tree import Tree, folder_of
from pytest_fanout.records import MEASURED, Base, ClassResult, Head, Problem, Run
from pytest_fanout.store.git import Repository
from pytest_fanout.store.history import main_line, tree_of


def with_inherited(
    results: Sequence[ClassResult],
    run: Run,
    repo: Repository,
    settings: Settings,
    commits: tuple[Base, Head],
    trees: tuple[Tree, Tree],
) -> list[ClassResult]:
    """The results, with a notice on each class that is over budget on the base's own recordings, anchor and budget.

    The same recordings give the same numbers, so that the base commit is over budget as well; nothing is run for it.

    Args:
        commits: base and HEAD.
        trees: of base and HEAD.

    Raises:
        GitError: git does not answer.
    """
    (base, head), (base_tree, head_tree) = commits, trees
    comparable = (
        base.rev is not None
        and head.rev is not None
        and base.rev != head.rev
        and run.mode == "replay"
        and base_tree.budget.digest == head_tree.budget.digest
        and settings.recordings.is_relative_to(settings.root)
    )
    if not comparable:
        return list(results)
    recordings = settings.recordings.relative_to(settings.root).as_posix()
    return [
        _with_notice(result, repo, settings, base, head, f"{recordings}/{result.agent}")
        if result.verdict == "regressed" and _is_untouched(result, run)
        else result
        for result in results
    ]


def _is_untouched(result: ClassResult, run: Run) -> bool:
    trials = [trial for trial in run.tasks if trial.agent == result.agent and trial.status in MEASURED]
    replayed = bool(trials) and all(trial.recording is not None and not trial.new_draw for trial in trials)
    return replayed and result.baseline_base is not None and result.baseline_base == result.baseline_head


def _with_notice(
    result: ClassResult, repo: Repository, settings: Settings, base: Base, head: Head, recordings: str
) -> ClassResult:
    here = tree_of(repo, str(head.rev), recordings)
    if here is None or here != tree_of(repo, str(base.rev), recordings) or repo.uncommitted([recordings]):
        return result
    folder = folder_of(settings)
    paths = (recordings, f"{folder}/{result.agent}.json", f"{folder}/budget.toml")
    (since,) = main_line(repo, str(base.rev), paths, 1) or (None,)
    when = f" since {since.rev[:12]} of {since.day} ({since.subject[:80]})" if since else ""
    text = (
        f"{result.agent}: main itself is over budget{when}: the base commit {str(base.rev)[:12]} holds the same "
        "recordings, anchor and budget; mend: mend or accept it there, by a change of its own, and merge that"
    )
    return replace(result, notices=(*result.notices, Problem("main-over-budget", text, "notice", result.agent)))
