"""What the reader of a class's verdict should know although it decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

from pytest_fanout.capacity.figures import counted
from pytest_fanout.gate.completeness import Measured
from pytest_fanout.gate.few_trials import few_words
from pytest_fanout.gate.listing import listed
from pytest_fanout.gate.loosening import pass_share_fell
from pytest_fanout.gate.provisional import provisional_words
from pytest_fanout.gate.trials import trials_of
from pytest_fanout.judge import TrialTable
from pytest_fanout.judge.comparison import table_of_baseline, tasks_needed
from pytest_fanout.judge.distribution import mean
from pytest_fanout.records import MEASURED, Baseline, JudgeRules, MetricResult, Problem, Run

#: A fall of mean fanout by this part, with fewer trials passing, looks like work left undone.
SUSPICIOUS_FALL = Fraction(20, 100)


def notices_of(
    run: Run,
    agent: str,
    measured: Measured,
    base_table: TrialTable | None,
    anchor: Baseline | None,
    metrics: Sequence[MetricResult],
    rules: JudgeRules,
    now: int,
) -> Iterator[Problem]:
    """Notices of one class; each has the verdict ``notice``."""

    def notice(slug: str, text: str) -> Problem:
        return Problem(slug, f"{agent}: {text}", "notice", agent)

    bare = [
        metric.name
        for metric in metrics
        if metric.gated
        and metric.scope == "all"
        and metric.evidence is None
        and not (anchor is not None and _repeats(anchor, metric.name))
    ]
    if measured.draw in ("new", "mixed") and bare and anchor is not None:
        yield notice(
            "noise-not-considered",
            f"{', '.join(bare)} of a new draw stood against raw numbers, which an unchanged agent alone moves by 20 to "
            "40 %: that is wrong in 20 to 50 % of identical agents",
        )
    if measured.partial:
        yield notice(
            "partial-run",
            f"partial {len(measured.table.statuses)}/{len(measured.expected)}: only the tasks that ran were judged",
        )
    tasks = len(measured.table.statuses)
    few = [
        metric.name
        for metric in metrics
        if metric.gated and metric.scope == "all" and tasks < tasks_needed(metric.name.split(".", 1)[1])
    ]
    if few and tasks:
        yield notice(
            "few-tasks",
            f"with {counted(tasks, 'task')} {', '.join(few)} is simply the largest value, not a percentile",
        )
    if anchor is not None:
        short = few_words(anchor, run, rules, is_committed=True)
        if short is not None:
            yield notice("few-trials", short)
        provisional = provisional_words(anchor, rules)
        if provisional is not None and measured.draw in ("new", "mixed"):
            yield notice("provisional", provisional)
        yield from _of_age(notice_of=notice, anchor=anchor, rules=rules, now=now)
        yield from _of_models(notice_of=notice, run=run, agent=agent, anchor=anchor)
    if base_table is not None and _is_suspicious(base_table, measured.table):
        yield notice(
            "suspicious-drop",
            "fanout fell together with the part of trials that pass "
            f"({_share(base_table)} -> {_share(measured.table)}): the agent may be doing less than its work",
        )
    yield from _of_failures(notice_of=notice, run=run, agent=agent)
    yield from _of_branches(notice_of=notice, run=run, agent=agent)
    draws = max((task.redraws + 1 for task in trials_of(run.tasks, agent) if task.status in MEASURED), default=1)
    if draws > 2 and measured.draw in ("new", "mixed"):
        text = f"some trials are on draw {draws} of the very same requests: recording until green is not evidence"
        yield notice("redrawn", text)


def _repeats(anchor: Baseline, name: str) -> bool:
    """Whether all trials of each task are alike to the call, by two or more of them: then raw numbers have no noise."""
    tool, bracket, rest = name.rpartition("]")  # the name of a tool may hold a point, as may that of a percentile
    rows = table_of_baseline(anchor).column(tool + bracket + rest.partition(".")[0]).values()
    return bool(rows) and all(len(row) > 1 and None not in row and len(set(row)) == 1 for row in rows)


def _of_age(
    notice_of: Callable[[str, str], Problem], anchor: Baseline, rules: JudgeRules, now: int
) -> Iterator[Problem]:
    begun = [trial.begun_at for task in anchor.tasks.values() for trial in task.trials if trial.begun_at is not None]
    if rules.max_age_days is not None and begun:
        days = (now - min(begun)) // 86_400
        if days > rules.max_age_days:
            yield notice_of(
                "anchor-old", f"the anchor was recorded {counted(days, 'day')} ago, more than {rules.max_age_days}"
            )


def _of_failures(notice_of: Callable[[str, str], Problem], run: Run, agent: str) -> Iterator[Problem]:
    """Attempts that the provider or the network let fail: they are part of the draw, and of its numbers."""
    held = [task for task in trials_of(run.tasks, agent) if task.status in MEASURED and task.failures]
    if not held:
        return
    kinds: Counter[str] = Counter()
    for task in held:
        kinds.update(task.failures)
    trials = sum(task.status in MEASURED for task in trials_of(run.tasks, agent))
    names = list(dict.fromkeys(task.task for task in held))
    said = ", ".join(f"{number} x {kind}" for kind, number in sorted(kinds.items()))
    yield notice_of(
        "draw-holds-failures",
        f"the draw holds attempts that failed ({said}), in {len(held)} of {counted(trials, 'trial')}: "
        f"{listed(names)}; retries count as attempts, and what an agent did about them is in "
        "all numbers; mend: if that was a bad hour of the provider, draw these anew: pytest --fanout-budget "
        "--fanout-mode=rerecord",
    )


def _of_branches(notice_of: Callable[[str, str], Problem], run: Run, agent: str) -> Iterator[Problem]:
    """Trials with the beginning of another recording: what that has saved, and what they are compared with."""
    trials = [task for task in trials_of(run.tasks, agent) if task.status in MEASURED]
    kept = [task for task in trials if task.shared_prefix is not None]
    if not kept:
        return
    saved, spent = sum(task.saved_calls for task in kept), sum(task.spent_calls for task in kept)
    cost = f" ({counted(spent, 'live call')} made, {saved} saved)" if saved else ""
    yield notice_of(
        "branched",
        f"{len(kept)} of {counted(len(trials), 'trial')} {'keeps' if len(kept) == 1 else 'keep'} the beginning of an "
        f"earlier recording and went on live from their first changed request{cost}; "
        "beside the anchor each is compared with the trial that it shares it with",
    )


def _of_models(notice_of: Callable[[str, str], Problem], run: Run, agent: str, anchor: Baseline) -> Iterator[Problem]:
    """A model that is served under the same requested name as before, and is another one."""
    before = _served(
        (trial.models_requested, trial.models_served) for task in anchor.tasks.values() for trial in task.trials
    )
    after = _served((task.models_requested, task.models_served) for task in trials_of(run.tasks, agent))
    for requested in sorted(before.keys() & after.keys()):
        fresh = after[requested] - before[requested]
        if fresh and before[requested]:
            yield notice_of(
                "model-changed",
                f"{requested} was served by {', '.join(sorted(before[requested]))} when the anchor was recorded, "
                f"and now by {', '.join(sorted(fresh))}",
            )


def _served(pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> dict[str, set[str]]:
    """Requested name -> names served, from trials that asked for one model only: there the pairing is certain."""
    out: dict[str, set[str]] = {}
    for requested, served in pairs:
        if len(requested) == 1:
            out.setdefault(requested[0], set()).update(served)
    return out


def _is_suspicious(base: TrialTable, run: TrialTable) -> bool:
    before, after = mean(base.column("fanout")), mean(run.column("fanout"))
    if before is None or after is None or not pass_share_fell(base, run):
        return False
    return after < before * (1 - SUSPICIOUS_FALL)


def _share(table: TrialTable) -> str:
    passed, trials = table.pass_share
    return f"{passed}/{trials}"
