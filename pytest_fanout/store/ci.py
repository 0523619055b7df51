"""What CI says of the change that it tests: the payload of a GitHub event, or the variables of a GitLab pipeline.

Words only; whether the commits in the clone agree with them is decided in ``store.base``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_fanout.errors import GitError

_EVENT_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Change:
    """The change under test.

    ``kind``: ``pull`` (a request to merge: ``before`` is a commit of the target branch, ``after`` the change's tip),
    ``queue`` (a queue to merge: ``before`` is its parent, ``after`` what is tested), ``push`` (``before`` and ``after``
    are the tips of the default branch), ``branch`` (no base is named: the default branch is).
    """

    kind: str
    source: str  # who says so, for reports
    before: str | None = None  # None: a push to a branch that was not there
    after: str | None = None
    target: str | None = None  # the branch that is merged into, or the default branch; None: not said
    deepen: str = ""  # what makes a shallow clone deep here
    is_forgeable: bool = False  # the pipeline's own file can set the words, so that the commits have to bear them out


FETCH_DEPTH = "set `fetch-depth: 0` on actions/checkout (elsewhere: `git fetch --unshallow`)"
GITLAB_DEPTH = 'set `GIT_DEPTH: "0"` under `variables:` of the job'


def read_change(environ: Mapping[str, str]) -> Change | None:
    """What this environment says, None where it is no CI that is known here.

    Raises:
        GitError: GITHUB_EVENT_PATH names a file that cannot be read as a JSON object.
    """
    if environ.get("GITLAB_CI", "").lower() == "true":
        return _of_gitlab(environ)
    event = read_event(environ)
    return None if event is None else _of_github(event)


def read_event(environ: Mapping[str, str]) -> Mapping[str, object] | None:
    """The payload of the GitHub event, or None when there is none.

    Raises:
        GitError: GITHUB_EVENT_PATH names a file that cannot be read as a JSON object.
    """
    path = environ.get("GITHUB_EVENT_PATH")
    if not path:
        return None
    try:
        with open(path, "rb") as file:
            event = json.loads(file.read(_EVENT_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise _bad_event(path, str(error.strerror) if isinstance(error, OSError) else "it is not JSON") from None
    if not isinstance(event, dict):
        raise _bad_event(path, "it is not an object")
    return event


def _bad_event(path: str, why: str) -> GitError:
    return GitError(
        "bad-event",
        f"GITHUB_EVENT_PATH cannot be read: {why}",
        where=path,
        mend="unset GITHUB_EVENT_PATH, or name the base with --fanout-base",
    )


def _of_github(event: Mapping[str, object]) -> Change:
    default = _text(event, "repository", "default_branch")
    pull = _text(event, "pull_request", "base", "sha")
    if pull:
        head, target = _text(event, "pull_request", "head", "sha"), _text(event, "pull_request", "base", "ref")
        return Change("pull", "event.pull_request", pull, head, target, FETCH_DEPTH)
    group = _text(event, "merge_group", "base_sha")
    if group:
        head = _text(event, "merge_group", "head_sha")
        return Change("queue", "event.merge_group", group, head, None, FETCH_DEPTH)
    before, after, ref = _text(event, "before"), _text(event, "after"), _text(event, "ref")
    if before and after:
        if default is not None and ref is not None and ref != f"refs/heads/{default}":
            # what an earlier push of the same branch held has not been accepted by anybody
            return Change("branch", f"event.push to {ref.removeprefix('refs/heads/')}", target=default)
        return Change("push", "event.push", before if before.strip("0") else None, after, default, FETCH_DEPTH)
    return Change("branch", "event", target=default, deepen=FETCH_DEPTH)


def _of_gitlab(environ: Mapping[str, str]) -> Change:
    def said(name: str) -> str | None:
        return environ.get(name) or None

    default = said("CI_DEFAULT_BRANCH")
    target = said("CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
    if target is not None:
        base = said("CI_MERGE_REQUEST_DIFF_BASE_SHA")
        # where the merged result is tested, HEAD is a merge, and CI_COMMIT_SHA is HEAD itself
        tip = said("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or said("CI_COMMIT_SHA")
        return Change("pull", "gitlab merge request", base, tip, target, GITLAB_DEPTH, is_forgeable=True)
    before, branch = said("CI_COMMIT_BEFORE_SHA"), said("CI_COMMIT_BRANCH")
    if said("CI_PIPELINE_SOURCE") == "push" and default is not None and branch == default and before:
        known = before if before.strip("0") else None
        return Change("push", "gitlab push", known, said("CI_COMMIT_SHA"), default, GITLAB_DEPTH, is_forgeable=True)
    return Change("branch", "gitlab pipeline", target=default, deepen=GITLAB_DEPTH)


def _text(event: Mapping[str, object], *keys: str) -> str | None:
    value: object = event
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) and value else None
