"""Mending a merge conflict in anchors and recordings: the main branch's anchor, and of both sides what still matches.

The anchor of a merge is the main branch's: it is the approved one, and what the other branch adds to it has to be
measured on the merged tree. Recordings are taken task by task, whole: the main branch's first, because its anchor was
made from them; the other side's where those no longer fit what the agent asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pytest_fanout.capacity.figures import counted
from pytest_fanout.config import Settings
from pytest_fanout.errors import UsageError
from pytest_fanout.gate.listing import listed
from pytest_fanout.gate.tree import folder_of
from pytest_fanout.records import MEASURED, Run, TaskRun
from pytest_fanout.store.conflicts import Sides, sides_of, stage, take_file, take_folder, unmerged
from pytest_fanout.store.git import Repository
from pytest_fanout.store.recordings import slug_of


@dataclass(frozen=True, slots=True)
class Conflict:
    """What is unmerged and will be mended. Recordings are folders of tasks, as ``class/slug``."""

    sides: Sides
    main: str  # the commit whose anchors hold
    files: tuple[str, ...]  # below the baselines folder
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Resolved:
    """How a conflict was mended. Tasks are named ``class::id``."""

    files: tuple[str, ...]  # taken from the main branch's side
    main: tuple[str, ...]  # folders of tasks whose recordings are the main branch's, and fit
    other: tuple[str, ...]  # those of the other side
    to_record: tuple[str, ...]  # tasks of which no side's recording fits, also where git saw no conflict


def find_conflict(repo: Repository, settings: Settings, main: str | None) -> Conflict | None:
    """What is to be mended, or None when nothing of ours is unmerged.

    Args:
        main: "ours" or "theirs", which side is the main branch's; None: as the branches tell.

    Raises:
        UsageError: other files are unmerged as well, or the main branch's side cannot be told.
    """
    paths, sides = unmerged(repo), sides_of(repo)
    if not paths or sides is None:
        return None
    folder = folder_of(settings)
    recordings = ""
    if settings.recordings.is_relative_to(settings.root):
        recordings = settings.recordings.relative_to(settings.root).as_posix()
    files: list[str] = []
    tasks: dict[str, None] = {}
    others: list[str] = []
    for path in paths:
        parts = path.removeprefix(f"{recordings}/").split("/")
        if path.startswith(f"{folder}/") and path.endswith(".json"):
            files.append(path)
        elif recordings and path.startswith(f"{recordings}/") and len(parts) == 3:
            tasks["/".join(parts[:2])] = None
        else:
            others.append(path)
    if others:
        raise UsageError(
            "conflict-elsewhere",
            f"other files are unmerged as well: {listed(others)}",
            mend="resolve these by hand and git add them: recordings are replayed against the code as it will be",
        )
    side = {"ours": sides.ours, "theirs": sides.theirs, None: sides.main}[main]
    if side is None:
        raise UsageError(
            "main-side-unknown",
            "neither side of this merge is in the main branch, so that it cannot be told whose anchors hold",
            mend="fanout-baseline resolve --main theirs, if you merge the main branch into yours; else --main ours",
        )
    return Conflict(sides, side, _with_pairs(files, folder), tuple(tasks))


def _with_pairs(files: Iterable[str], folder: str) -> tuple[str, ...]:
    """Anchor and call sites belong together: git may have merged one of them without a conflict."""
    found: dict[str, None] = {}
    for path in files:
        name = path.removeprefix(f"{folder}/")
        if "/" in name:
            found[path] = None
            continue
        agent = name.removesuffix(".json").removesuffix(".sites")
        found |= dict.fromkeys((f"{folder}/{agent}.json", f"{folder}/{agent}.sites.json"))
    return tuple(found)


def resolve(
    conflict: Conflict, repo: Repository, settings: Settings, replay: Callable[[], Run], tell: Callable[[str], None]
) -> Resolved:
    """Mend it in the work tree, replay, and add what was mended to the index; nothing is committed.

    Args:
        replay: runs the whole gate without network to models, and gives back its run.
        tell: is given a line before each replay.

    Raises:
        GitError, IntegrityError, StorageError: a side cannot be read, or the work tree not be written.
    """
    other = conflict.sides.theirs if conflict.main == conflict.sides.ours else conflict.sides.ours
    prefix = settings.recordings.relative_to(settings.root).as_posix() if conflict.tasks else ""
    for path in conflict.files:
        take_file(repo, settings.root, conflict.main, path)
    from_main = dict.fromkeys(conflict.tasks)
    from_other: dict[str, None] = {}
    for task in conflict.tasks:
        take_folder(repo, settings.root, conflict.main, f"{prefix}/{task}")
    tell("replaying the main branch's recordings")
    run = replay()
    tried = [task for task in conflict.tasks if task in _folders(_unfit(run))]
    if tried:
        for task in tried:
            take_folder(repo, settings.root, other, f"{prefix}/{task}")
        tell(f"replaying the other side's recordings of {counted(len(tried), 'task')}")
        run = replay()
        still = _folders(_unfit(run))
        for task in tried:
            if task in still:
                take_folder(repo, settings.root, conflict.main, f"{prefix}/{task}")
            else:
                from_other[task] = None
    stage(repo, [*conflict.files, *(f"{prefix}/{task}" for task in conflict.tasks)])
    unfit = _folders(_unfit(run))  # what has to be recorded is not said to be kept
    return Resolved(
        files=conflict.files,
        main=tuple(task for task in from_main if task not in from_other and task not in unfit),
        other=tuple(from_other),
        to_record=tuple(sorted(f"{agent}::{task}" for agent, task in _unfit(run))),
    )


def _unfit(run: Run) -> set[tuple[str, str]]:
    """Tasks of which a trial was not measured on its recording."""
    return {(trial.agent, trial.task) for trial in run.tasks if not _fits(trial)}


def _fits(trial: TaskRun) -> bool:
    """An agent that fails before it asks, or on its way, shows nothing of its recording."""
    asked = bool(trial.samples.get("fanout")) or trial.no_calls
    broken_off = trial.status == "failed" and trial.leftover > 0
    return trial.status in MEASURED and asked and not broken_off


def _folders(tasks: Iterable[tuple[str, str]]) -> set[str]:
    return {f"{agent}/{slug_of(task)}" for agent, task in tasks}
