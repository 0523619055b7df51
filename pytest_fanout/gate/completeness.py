"""Whether a class was measured at all: which tasks ran, on which draw, and what makes their numbers untrustworthy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_fanout.capacity.figures import counted
from pytest_fanout.gate.advice import cause
from pytest_fanout.gate.listing import listed
from pytest_fanout.gate.trials import trials_of
from pytest_fanout.judge import TrialTable, table_of_runs
from pytest_fanout.records import MEASURED, TOKEN_METRICS, Baseline, Limit, Problem, Run, TaskRun, TrialFacts

UNKNOWN_USAGE_SHARE = Fraction(5, 100)


@dataclass(frozen=True, slots=True)
class Measured:
    """The trials of a class and what stands against judging them."""

    agent: str
    table: TrialTable
    expected: frozenset[str]
    stale: tuple[str, ...]
    missing: tuple[str, ...]  # expected, and not completed
    removed: tuple[str, ...]  # named by an anchor, gone from the eval set, not run: a part of neither of the others
    new: tuple[str, ...]  # measured, in no anchor
    draw: str  # same new mixed none
    partial: bool
    problems: tuple[Problem, ...]


def measure(run: Run, agent: str, base: Baseline | None, head: Baseline | None, limits: Iterable[Limit]) -> Measured:
    """Sort the trials of a class, and name everything that makes it invalid, incomplete or stale."""
    trials = trials_of(run.tasks, agent)
    table = table_of_runs(trials)
    ran = set(table.statuses)
    defined = set(run.definitions.get(agent, {}))
    # tasks that only the base names were let go by HEAD's anchor: a loosening, judged with the approvals
    # and a class that HEAD and the settings gave up is expected no more
    anchor = head or (base if agent in run.agents else None)
    expected = set(anchor.tasks if anchor else ()) | defined
    absent = sorted(expected - ran - {trial.task for trial in trials if trial.status in ("stale", "invalid")})
    removed = tuple(task for task in absent if anchor and _left_the_eval_set(task, run, agent, anchor))
    missing = tuple(task for task in absent if task not in removed)
    if run.session.shard:  # what the others run is not missing; `combine` sees whether they did
        removed = missing = ()
    stale = tuple(sorted({trial.task for trial in trials if trial.status == "stale"}))
    known = set(base.tasks if base else ()) | set(head.tasks if head else ())
    partial = run.session.partial and not run.ci and bool(missing or removed)
    problems = [
        *_own(trials, run, agent),
        *_invalid(trials, agent, limits),
        *_incomplete(trials, run, agent, missing, removed),
        *_redefined(trials, agent, anchor),
    ]
    if stale:
        unrecorded = {t.task for t in trials if t.is_unrecorded} - {
            t.task for t in trials if t.status == "stale" and not t.is_unrecorded
        }
        several = len(stale) > 1
        said = (
            f"there {'are no recordings' if several else 'is no recording'} of {listed(stale)} yet"
            if set(stale) <= unrecorded
            else f"the requests of {listed(stale)} differ from the recordings"
            + (f" (of {len(unrecorded)} there is none yet)" if unrecorded else "")
        )
        problems.append(
            Problem(
                "stale",
                f"{agent}: {said}; mend: pytest --fanout-budget --fanout-mode=record",
                "stale",
                agent,
            )
        )
    draw, short = _draw(trials, anchor)
    # in replay a step of the anchor has to be what all of its recordings give: see `mismatch`
    is_step = base is None or head is None or base.digest != head.digest
    if short and head is not None and not (is_step and run.mode == "replay"):
        problems.append(
            Problem(
                "trials-missing",
                f"{agent}: fewer trials ran than the anchor names, on its own recordings: {listed(short)}; "
                "mend: restore the recordings from git, or record the tasks anew with --fanout-mode=rerecord",
                "incomplete",
                agent,
            )
        )
    return Measured(
        agent=agent,
        table=table,
        expected=frozenset(expected),
        stale=stale,
        missing=missing,
        removed=removed,
        new=tuple(sorted(ran - known)) if anchor else (),
        draw=draw,
        partial=partial,
        problems=tuple(problems),
    )


def _left_the_eval_set(task: str, run: Run, agent: str, anchor: Baseline) -> bool:
    """Tasks of marked tests have no definition, so that they are never taken for a line that was deleted."""
    entry = anchor.tasks.get(task)
    has_evalset = run.evalsets.get(agent) is not None
    return has_evalset and entry is not None and bool(entry.definition) and task not in run.definitions.get(agent, {})


def _own(trials: Iterable[TaskRun], run: Run, agent: str) -> Iterator[Problem]:
    for trial in trials:
        yield from trial.problems
    for problem in run.problems:
        if problem.agent == agent:
            yield problem


#: Problems that say themselves why a trial has no call.
_SAID_WHY = frozenset({"no-model-answered", "missing-key", "server-not-ready"})


def _invalid(trials: tuple[TaskRun, ...], agent: str, limits: Iterable[Limit]) -> Iterator[Problem]:
    yield from _silent(trials, agent)
    broken = sorted({trial.task for trial in trials if trial.status == "invalid"})
    if broken and not any(problem.verdict == "invalid" for trial in trials for problem in trial.problems):
        yield Problem(
            "invalid-trial", f"{agent}: the measurement of {listed(broken)} cannot be trusted", "invalid", agent
        )
    calls = sum(trial.samples.get("fanout") or 0 for trial in trials if trial.status in MEASURED)
    unknown = sum(trial.unknown_usage for trial in trials if trial.status in MEASURED)
    gated = [limit.name for limit in limits if limit.metric in TOKEN_METRICS]
    if gated and calls and Fraction(unknown, calls) > UNKNOWN_USAGE_SHARE:
        yield Problem(
            "usage-unknown",
            f"{agent}: {unknown:,} of {calls:,} model calls came without usage, more than 5 %, so that "
            f"{', '.join(gated)} cannot be judged; mend: let the client ask for usage (stream_options.include_usage)",
            "invalid",
            agent,
        )


def _silent(trials: tuple[TaskRun, ...], agent: str) -> Iterator[Problem]:
    """Trials without a counted call, by what is known of the reason."""
    silent = [
        trial
        for trial in trials
        if trial.status in MEASURED
        and not trial.no_calls
        and not trial.samples.get("fanout")
        and not any(problem.slug in _SAID_WHY for problem in trial.problems)
    ]
    groups: dict[str, set[str]] = {}
    for trial in silent:
        groups.setdefault(_why_silent(trial), set()).add(trial.task)
    for why, tasks in sorted(groups.items()):
        yield Problem(
            "no-calls", f"{agent}: no model call was counted in {listed(sorted(tasks))}{why}", "invalid", agent
        )


def _why_silent(trial: TaskRun) -> str:
    other = {problem.slug: problem.text.split("\n", 1)[0] for problem in trial.problems}
    if trial.error is not None:
        return f", which failed first: {trial.error}; mend: mend that, and run again"
    if "unclassified-request" in other:
        return f": {other['unclassified-request']}; mend: add a codec by the hook pytest_fanout_codecs"
    if "only-other-requests" in other:
        return (
            f": {other['only-other-requests']}; mend: if one of them asks a model, add a codec by the hook "
            'pytest_fanout_codecs; if none does, put "no_calls": true on the line of the task'
        )
    return '; mend: find out why, or put "no_calls": true on the line of a task that makes none'


def _again(run: Run) -> str | None:
    """What stands before tasks that are missing, where the session has told the cause."""
    slug = cause(run)
    return f"mend what [{slug}] says, and run again" if slug else None


def _incomplete(
    trials: tuple[TaskRun, ...], run: Run, agent: str, missing: tuple[str, ...], removed: tuple[str, ...]
) -> Iterator[Problem]:
    crashed = sorted({f"{trial.task} (trial {trial.trial})" for trial in trials if trial.status == "crashed"})
    if crashed:
        yield Problem(
            "trial-crashed",
            f"{agent}: the process died in {listed(crashed)}; mend: find out why it died, and run again",
            "incomplete",
            agent,
        )
    if run.session.shard or (run.session.partial and not run.ci):
        return
    lost = [task for task in missing if task not in {trial.task for trial in trials if trial.status == "crashed"}]
    if lost:
        yield Problem(
            "tasks-missing",
            f"{agent}: no completed run of {listed(lost)}; "
            f"mend: {_again(run) or 'run the whole class, without -k, -m, -x or skips'}",
            "incomplete",
            agent,
        )
    if removed:
        yield Problem(
            "tasks-removed",
            f"{agent}: {listed(removed)} stand in the anchor and no longer in the eval set; mend: put them back, or "
            f'have the removal approved: fanout-baseline accept --agent {agent} --reason "…"',
            "incomplete",
            agent,
        )


def _redefined(trials: tuple[TaskRun, ...], agent: str, anchor: Baseline | None) -> Iterator[Problem]:
    tasks = anchor.tasks if anchor else {}
    changed = sorted(
        {
            trial.task
            for trial in trials
            if trial.status in MEASURED
            and trial.task in tasks
            and (trial.definition or "") != tasks[trial.task].definition
        }
    )
    if changed:
        yield Problem(
            "tasks-redefined",
            f"{agent}: the eval lines of {listed(changed)} are not those of the anchor; mend: restore them, or have "
            f'the change approved: fanout-baseline accept --agent {agent} --reason "…"',
            "unapproved",
            agent,
        )


def _draw(trials: tuple[TaskRun, ...], anchor: Baseline | None) -> tuple[str, tuple[str, ...]]:
    """Which draw ran, and the tasks that ran on the anchor's recordings with fewer trials than it names."""
    same = new = 0
    # task -> trial -> the anchor's recording: what repeats a trial, or plays another one's recording, is no further one
    of_task: dict[str, dict[int, str | None]] = {}
    for trial in trials:
        if trial.status not in MEASURED or anchor is None:
            continue
        entry = anchor.tasks.get(trial.task)
        if entry is None:
            continue
        named = {fact.recording for fact in entry.trials}
        is_same = not trial.new_draw and trial.recording is not None and trial.recording in named
        marks = of_task.setdefault(trial.task, {})
        marks[trial.trial] = trial.recording if is_same else marks.get(trial.trial)
        same, new = same + is_same, new + (not is_same)
    short = tuple(
        task
        for task, marks in sorted(of_task.items())
        if anchor and any(marks.values()) and _number(marks.values()) < _number_of_trials(anchor.tasks[task].trials)
    )
    if not same and not new:
        return "none", short
    return ("mixed" if same and new else "same" if same else "new"), short


def _number_of_trials(facts: Sequence[TrialFacts]) -> int:
    """Trials that name the same recording are one that was run again."""
    return _number([fact.recording for fact in facts])


def _number(recordings: Collection[str | None]) -> int:
    """Each that is named counts once."""
    known = [name for name in recordings if name is not None]
    return len(set(known)) + len(recordings) - len(known)


def of_session(run: Run) -> Iterator[Problem]:
    """What stands against the run as a whole."""
    for problem in run.problems:
        if problem.agent is None:
            yield problem
    facts, totals = run.session, run.totals
    invalid = any(problem.verdict == "invalid" for problem in run.problems)
    if totals.unattributed and not invalid:
        alone = totals.unattributed == 1
        yield Problem(
            "unattributed-calls",
            f"{counted(totals.unattributed, 'model call')} {'belongs' if alone else 'belong'} to no task; "
            f"mend: make {'it' if alone else 'them'} inside a task, or in aside()",
            "invalid",
        )
    if totals.unclassified and not invalid:
        yield Problem(
            "unclassified-calls",
            f"{counted(totals.unclassified, 'request')} went to a model endpoint that no "
            "codec reads; "
            "mend: add one with the hook pytest_fanout_codecs",
            "invalid",
        )
    is_told = any(problem.slug == "interrupted" and problem.verdict == "incomplete" for problem in run.problems)
    if facts.pytest_exit in (2, 3, 4, 5) and not (facts.pytest_exit == 2 and is_told):
        yield Problem(
            "pytest-stopped",
            f"pytest itself ended with exit code {facts.pytest_exit}; mend: see its own output above",
            "incomplete",
        )
    elif facts.stopped:
        yield Problem("stopped-early", f"the session ended early: {facts.stopped}; mend: run it whole", "incomplete")
    if not any(task.status in MEASURED or task.status == "stale" for task in run.tasks) and not facts.shard:
        yield Problem(
            "nothing-measured",
            f"no task ran (0/{facts.expected}); "
            f"mend: {_again(run) or 'configure an agent in [tool.fanout.agents], or mark a test'}",
            "incomplete",
        )
    if facts.shard:
        ran = len({(task.agent, task.task) for task in run.tasks if task.status in MEASURED or task.status == "stale"})
        if ran < facts.expected:
            yield Problem(
                "tasks-missing",
                f"shard {facts.shard}: {ran} of its {facts.expected} tasks completed; mend: run it again whole",
                "incomplete",
            )
