"""The required check: a report judged anew from git, in the environment that asks."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date

from pytest_fanout.config import Settings, is_ci
from pytest_fanout.errors import (
    EXIT_INTEGRITY,
    EXIT_NOT_MEASURED,
    EXIT_OVER,
    EXIT_WITHIN,
    GitError,
    IntegrityError,
)
from pytest_fanout.gate.inputs import changed_inputs, inputs_now, other_tasks
from pytest_fanout.gate.judgement import evaluate
from pytest_fanout.gate.listing import listed
from pytest_fanout.gate.tree import kept_in
from pytest_fanout.records import Run, Verdict
from pytest_fanout.store.git import Repository


@dataclass(frozen=True, slots=True)
class Verified:
    """The verdict on a report, and the exit code of the check."""

    verdict: Verdict
    exit_code: int
    why: str | None = None  # where the code is not the verdict's own


def exit_code(verdict: Verdict) -> int:
    """0 within budget or waived; 1 over budget; 3 not measured; 4 no-base and integrity."""
    if verdict.verdict in ("no-base", "integrity"):
        return EXIT_INTEGRITY
    return {"within": EXIT_WITHIN, "waived": EXIT_WITHIN, "over": EXIT_OVER}.get(verdict.outcome, EXIT_NOT_MEASURED)


def verify(
    run: Run,
    repo: Repository | None,
    settings: Settings,
    *,
    option: str | None,
    environ: Mapping[str, str],
    today: date,
    now: int,
) -> Verified:
    """Judge a report anew: nothing that the report says of its own verdict is believed.

    Args:
        option: a base named on the command line; in CI it has to be the one that the event names.

    Raises:
        IntegrityError: the report is of a run that did not finish, or of another commit, another base or another tree
            than this one.
        GitError: no repository, or git does not answer.
    """
    if repo is None:
        raise GitError(
            "no-git-repository", "the project is in no git repository", mend="check out the commit that was measured"
        )
    if any(problem.slug == "run-not-finished" for problem in run.problems):
        raise IntegrityError(
            "run-not-finished",
            "the run that left this report did not finish, whatever its exit code was",
            mend="find out what ended it (os._exit, a kill, a timeout), then run `pytest --fanout-budget` again",
        )
    head = repo.head()
    measured = run.head.rev if run.head else None
    if head.rev is None or measured != head.rev:
        raise IntegrityError(
            "report-of-another-commit",
            f"the report is of commit {_short(measured)}, and HEAD is {_short(head.rev)}",
            mend="run `pytest --fanout-budget` on this commit, or check out the one that was measured",
        )
    ci = is_ci(environ)
    base = repo.resolve_base(None if ci else option, environ)
    if ci and option and repo.resolve(option) != base.rev:
        raise IntegrityError(
            "base-overridden",
            f"--base {option} is not the base that this CI run names ({_short(base.rev)}, {base.source})",
            mend="leave --base out",
        )
    if base.rev is not None and (run.base.rev if run.base else None) != base.rev:
        raise IntegrityError(
            "report-of-another-base",
            f"the report compares with {_short(run.base.rev if run.base else None)}, "
            f"and the base here is {_short(base.rev)} ({base.source})",
            mend="run `pytest --fanout-budget` again, without --fanout-base",
        )
    changed = changed_inputs(dict(run.inputs), inputs_now(run, settings)) or other_tasks(run, settings)
    if changed:
        raise IntegrityError(
            "report-of-another-tree",
            f"the report was made with other inputs: {listed(changed)}",
            mend="run `pytest --fanout-budget` on this commit, with everything committed",
        )
    loose = repo.uncommitted(kept_in(settings))
    if loose:
        raise IntegrityError(
            "not-committed",
            f"{', '.join(loose)} differ{'s' if len(loose) == 1 else ''} from HEAD: a clone of this commit would not "
            "give this verdict",
            mend=f"git add {shlex.join(loose)} && git commit, then run `pytest --fanout-budget` again",
        )
    # of the baselines a run reads its caps and rules of measuring in the work tree, and all else from commits
    folder, *others = kept_in(settings)
    hidden = repo.hidden([*others, f"{folder}/budget.toml"])
    if hidden:
        raise IntegrityError(
            "hidden-from-git",
            f"{listed(hidden)} {'is' if len(hidden) == 1 else 'are'} hidden from git status: a clone of this "
            "commit would not give this verdict",
            mend="take it out of .gitignore and commit it, or remove it; "
            "git update-index --no-assume-unchanged --no-skip-worktree shows a file again",
        )
    run = replace(run, base=base, head=replace(head, dirty=bool(run.head and run.head.dirty)), ci=run.ci or ci)
    verdict = evaluate(run, repo, settings, today=today, now=now)
    code = exit_code(verdict)
    if not base.is_gate:
        return Verified(verdict, EXIT_INTEGRITY, "the base is HEAD itself: that is not a gate result")
    if code == EXIT_WITHIN and run.session.pytest_exit != 0:
        why = f"pytest ended with exit code {run.session.pytest_exit}, so that the check cannot pass"
        return Verified(verdict, EXIT_OVER, why)
    return Verified(verdict, code)


def refuse_copy(run: Run, path: str, seen: dict[str, str]) -> None:
    """Count a report among those that are checked together. ``seen``: run id -> path of the reports before it.

    Raises:
        IntegrityError: it is of the same run as one of them, so that another run has left none.
    """
    other = seen.setdefault(run.run_id, path)
    if other != path:
        raise IntegrityError(
            "report-repeated",
            f"{other} and {path} are of one and the same run",
            mend="keep the report of each job under its own name, and check each of them once",
        )


def _short(rev: str | None) -> str:
    return rev[:12] if rev else "none"
