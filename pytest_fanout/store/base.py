"""The commit that a run is compared with: what CI says of the change, borne out by the commits, else the merge base.

Whatever cannot be borne out is no base. Another one, that happens to be there, is never put in its place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Protocol

from pytest_fanout.config import is_ci
from pytest_fanout.records import Base
from pytest_fanout.store.ci import FETCH_DEPTH, Change, read_change

#: What no name of a branch holds, and a revision may.
_NO_BRANCH = re.compile(r"[\x00-\x20~^:?*\[\\\x7f]|\.\.|@\{")


class Commits(Protocol):
    """What is asked of a repository; ``store.git`` has it."""

    @property
    def is_shallow(self) -> bool: ...

    def resolve(self, rev: str) -> str | None: ...

    def parents(self, commit: str) -> tuple[str, ...]: ...

    def fork_point(self, one: str, other: str) -> str | None: ...

    def is_ancestor(self, older: str, newer: str) -> bool: ...

    def upstream(self) -> tuple[str, ...]: ...


def find_base(repo: Commits, option: str | None, environ: Mapping[str, str] = os.environ) -> Base:
    """The option, else the base of the change that CI tests, else where this branch left the main one.

    Never raises for a base that cannot be found: ``rev`` is then None and ``problem`` says why and what mends it.
    ``is_gate`` is False where the base equals HEAD.

    Raises:
        GitError: git does not answer, or the payload of the event cannot be read.
    """
    head = repo.resolve("HEAD")
    if head is None:
        return Base(None, "HEAD", False, "HEAD has no commit yet: commit the project first")
    if option:
        base = _named(repo, option, "option", FETCH_DEPTH)
    else:
        change = read_change(environ)
        base = _merge_base(repo, head, is_ci(environ)) if change is None else _of_change(repo, change, head)
    if base.rev == head:
        return Base(base.rev, base.source, False, base.problem)
    return base


def _of_change(repo: Commits, change: Change, head: str) -> Base:
    if change.kind == "pull":
        return _of_pull(repo, change, head)
    if change.kind == "queue":
        return _of_queue(repo, change, head)
    if change.kind == "push":
        return _of_push(repo, change, head)
    return _of_branch(repo, change, head)


def _of_pull(repo: Commits, change: Change, head: str) -> Base:
    source, parents = change.source, repo.parents(head)
    target = _tip(repo, change.target)
    if change.is_forgeable and target is None:
        return _none(source, f"the target branch {change.target} is not in this clone: {change.deepen}")
    if len(parents) == 2 and change.after is not None and parents[1] == change.after:
        # the tested tree is the merge, so that its first parent holds what the target branch accepted meanwhile
        base = _named(repo, parents[0], f"{source}:HEAD^1", change.deepen)
        return _on_target(repo, base, change, target)
    if change.after is None or not _holds(repo, head, change.after):
        return _other_change(change, head)
    if change.before is None:
        return _none(source, "CI names no commit of the target branch")
    base = _named(repo, change.before, f"{source}.base.sha", change.deepen)
    if base.rev is not None and not repo.is_ancestor(base.rev, head):
        fork = repo.fork_point(base.rev, head)
        if fork is None:
            said = f"HEAD and the base commit {change.before} share no commit in this clone: {change.deepen}"
            return _none(source, said)
        base = Base(fork, f"{source}: merge-base of HEAD and base.sha, as HEAD is not the merge commit")
    return _on_target(repo, base, change, target)


def _on_target(repo: Commits, base: Base, change: Change, target: str | None) -> Base:
    """A base that the target branch does not hold has been accepted by nobody."""
    if base.rev is None or target is None or repo.is_ancestor(base.rev, target):
        return base
    said = f"the base commit {base.rev} is not on the target branch {change.target}: run CI again on its present state"
    return _none(change.source, said)


def _of_queue(repo: Commits, change: Change, head: str) -> Base:
    if change.after is not None and change.after != head:
        return _other_change(change, head)
    base = _named(repo, str(change.before), f"{change.source}.base_sha", change.deepen)
    if base.rev is not None and not repo.is_ancestor(base.rev, head):
        return _none(change.source, f"HEAD does not hold the base commit {base.rev} of its queue: {change.deepen}")
    return base


def _of_push(repo: Commits, change: Change, head: str) -> Base:
    if change.after != head:
        return _other_change(change, head)
    if change.before is not None:
        base = _named(repo, change.before, f"{change.source}.before", change.deepen)
        target = _tip(repo, change.target) if change.is_forgeable else None
        if change.is_forgeable and target is None:
            return _none(change.source, f"the default branch {change.target} is not in this clone: {change.deepen}")
        return _on_target(repo, base, change, target)
    parents = repo.parents(head)
    if not parents:
        return Base(head, f"{change.source}: first commit", False)
    return _named(repo, parents[0], f"{change.source}:HEAD^1", change.deepen)


def _of_branch(repo: Commits, change: Change, head: str) -> Base:
    """By hand, on a schedule, or pushed beside the default branch: the base is where it left that one."""
    if change.target is None:
        return _merge_base(repo, head, ci=True)
    tip = _tip(repo, change.target)
    fork = repo.fork_point(tip, head) if tip else None
    if fork is None:
        said = f"no commit that HEAD shares with the default branch {change.target} is in this clone: "
        return _none(change.source, said + (change.deepen or FETCH_DEPTH))
    return Base(fork, f"{change.source}: merge-base origin/{change.target}")


def _tip(repo: Commits, branch: str | None) -> str | None:
    """The tip of a branch of the origin; None where the words name none, or an older commit of one (``main~3``)."""
    if not branch or _NO_BRANCH.search(branch):
        return None
    return repo.resolve(f"refs/remotes/origin/{branch}")


def _merge_base(repo: Commits, head: str, ci: bool) -> Base:
    # a checkout of CI has no origin/HEAD, so that the usual names are tried as well
    remote = tuple(f"refs/remotes/origin/{name}" for name in ("HEAD", "main", "master"))
    for name in (*remote, "refs/heads/main", "refs/heads/master", *repo.upstream()):
        tip = repo.resolve(name)
        fork = repo.fork_point(tip, head) if tip else None
        if fork:
            return Base(fork, f"merge-base {name.removeprefix('refs/remotes/').removeprefix('refs/heads/')}")
    if ci:
        return _none("CI", f"CI names no base commit and no merge-base is in this clone: {FETCH_DEPTH}")
    return Base(head, "HEAD, as no main branch was found", False)


def _named(repo: Commits, rev: str, source: str, deepen: str) -> Base:
    found = repo.resolve(rev)
    if found:
        return Base(found, source)
    shallow = " (this clone is shallow)" if repo.is_shallow else ""
    return _none(source, f"the base commit {rev} is not in this clone{shallow}: {deepen}")


def _holds(repo: Commits, head: str, commit: str) -> bool:
    return commit == head or repo.is_ancestor(commit, head)


def _other_change(change: Change, head: str) -> Base:
    """Another commit than the change is checked out: whatever its verdict, it would say nothing of the change."""
    said = f"HEAD is {head[:12]}, which does not hold the change {(change.after or 'none')[:12]} that CI is to test"
    return _none(change.source, f"{said}: check that commit out, or, where HEAD is its merge, {change.deepen}")


def _none(source: str, problem: str) -> Base:
    return Base(None, source, problem=problem)
