"""The next command, most useful first."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_fanout.gate.commands import AGAIN, LIVE, RECORD, WHOLE
from pytest_fanout.gate.few_trials import agents_of, enough, fewest_of, record_others
from pytest_fanout.records import OUTCOMES, Budget, ClassResult, Run, Verdict

#: Verdicts after which the numbers of the run itself become the anchor.
_BY_NUMBERS = frozenset({"no-baseline", "regressed", "inconclusive"})
#: Numbers of trials that a cap has cut short are lower, and accept refuses to lower an anchor by them.
_STOPPED_ALONE = {"stopped-by-caps"}


def next_steps(verdict: Verdict, run: Run, folder: str, kept: str, budget: Budget | None) -> tuple[str, ...]:
    """Commands or actions that lead on from a verdict; none when it is within budget.

    Args:
        folder: of the baselines.
        kept: the folders that are committed with a verdict.
        budget: that holds; None where no commit tells.
    """
    steps: list[str] = []

    def say(step: str) -> None:
        if step not in steps:
            steps.append(step)

    again = WHOLE + (f" --fanout-mode={run.mode}" if run.mode != "replay" else "")
    slugs = {problem.slug for problem in verdict.problems}
    slugs |= {problem.slug for result in verdict.classes for problem in result.problems}
    if "no-git-repository" in slugs:
        say('git init && git add -A && git commit -m "Start"')
    elif "no-commit" in slugs:
        say('git add -A && git commit -m "Start"')
    elif "no-base" in slugs:
        say("set fetch-depth: 0 on actions/checkout, or name a commit with --fanout-base=REV")
    if "spend-limit" in slugs:
        judged = [result.agent for result in verdict.classes]
        narrowed = run.session.partial and set(judged) != agents_of(run)
        only = "".join(f" --fanout-agent={agent}" for agent in judged) if narrowed else ""
        if run.mode == "live":
            return (*steps, f"{LIVE}{only}, with a higher --fanout-spend-limit")
        return (*steps, f"{RECORD} --fanout-spend-limit=…{only}")
    if verdict.verdict == "shard":
        say("fanout-baseline combine --report GLOB, with the reports of all shards; a shard alone is never judged")
    stands_in_the_way = cause(run)
    if stands_in_the_way == "interrupted":
        told = next(problem.text for problem in run.problems if problem.slug == "interrupted")
        say(told.partition(f"{AGAIN}: ")[2] or AGAIN)
    elif stands_in_the_way is not None:
        say(f"mend what [{stands_in_the_way}] says, then: {again}")
    elif verdict.verdict == "invalid":
        say(f"mend what is named above, then: {again}")
    together = _accepted_together(verdict)
    # what stands against the run as a whole stands against accepting any of it
    blocked = any(OUTCOMES.get(problem.verdict) == "not_measured" for problem in verdict.problems)
    before = () if blocked else _before_accepting(verdict, run, budget)
    for result in verdict.classes:
        accept = 'fanout-baseline accept --reason "…"'
        if not together:
            accept = f'fanout-baseline accept --agent {result.agent} --reason "…"'
        mine = {problem.slug for problem in result.problems}
        if result.stale and result.verdict == "stale":
            say(f"{RECORD} --fanout-agent={result.agent}")
        if ("tasks-missing" in mine or "trial-crashed" in mine) and stands_in_the_way is None:
            say(f"{again}, whole: without -k, -m, -x or skips")
        if mine == _STOPPED_ALONE:
            say(f"mend what keeps trials of {result.agent} from ending by themselves, then: {again}")
        if "anchor-not-committed" in mine:
            say(f'git add {kept} && git commit -m "Accept {result.agent}"')
        if result.evidence is not None and result.evidence.needs and result.verdict == "inconclusive":
            say(f"{LIVE if run.mode == 'live' else RECORD} --fanout-agent={result.agent}")
        if _is_acceptable(result) and not blocked:
            for step in before:
                say(step)
            if run.mode != "live" and not run.session.partial:  # accept refuses both
                say(accept)
        if result.verdict == "approved" and budget is not None:
            for step in _after_accepting(result, run, budget):
                say(step)
        if result.verdict == "waived":
            say(_before_it_ends(result, run, accept))
        if "over-max" in mine:
            say(f"bring {result.agent} back under its maximum, or have budget.toml changed by its owners")
        if "anchor-removed" in mine:
            say(f"git checkout {verdict.base.rev} -- {folder}/{result.agent}.json")
    if slugs & {"budget-loosened", "budget-replaced", "fleet-changed"}:
        if run.mode == "live" or run.session.partial:
            say(WHOLE)
        if not run.session.partial:
            say('fanout-baseline accept --reason "…"')
    waits = (
        run.mode != "live"
        and not run.session.partial
        and verdict.verdict in ("no-baseline", "unapproved", "mismatch", "regressed")
    )
    nothing_to_accept = "over-max" in slugs or slugs == _STOPPED_ALONE
    if waits and (not nothing_to_accept or any("fanout-baseline accept" in step for step in steps)):
        say(f"git add {kept} && git commit, once accepted")
    return tuple(steps)


def _before_accepting(verdict: Verdict, run: Run, budget: Budget | None) -> tuple[str, ...]:
    """What is to run before anything is accepted: what the run lacks as an anchor, or what accept refuses it for."""
    waiting = [result for result in verdict.classes if _is_acceptable(result)]
    if run.mode == "live":  # it kept nothing
        known = any(result.verdict != "no-baseline" for result in waiting)
        return (RECORD, f"{WHOLE} --fanout-mode=rerecord, where the recordings still fit")[: 1 + known]
    steps: list[str] = []
    if budget is not None:
        few = [r.agent for r in waiting if r.verdict in _BY_NUMBERS and _lacks_trials(r.agent, run, budget)]
        steps = _record_others(few, run, budget)
    if run.session.partial and not steps:
        steps = [WHOLE]
    return tuple(steps)


def _before_it_ends(result: ClassResult, run: Run, accept: str) -> str:
    """What leads on from a waiver. A stale class, or a part of one, cannot be accepted."""
    if result.stale or run.mode == "live":
        return f"{RECORD} --fanout-agent={result.agent}"
    return WHOLE if run.session.partial else accept


def _after_accepting(result: ClassResult, run: Run, budget: Budget) -> list[str]:
    """What an anchor still lacks that was accepted and committed with few trials. CI has other things to do."""
    if run.ci or run.mode == "live" or all(notice.slug != "few-trials" for notice in result.notices):
        return []
    if _lacks_trials(result.agent, run, budget):
        return _record_others([result.agent], run, budget)
    if fewest_of(run, result.agent) >= enough(budget.judge_for(result.agent)):
        if run.session.partial:
            return [WHOLE]
        return [f'fanout-baseline accept --agent {result.agent} --reason "…"']
    return []


def _record_others(agents: Sequence[str], run: Run, budget: Budget) -> list[str]:
    """The commands that record what some classes lack; where the run has other classes, a whole run follows."""
    others = bool(set(agents_of(run)) - set(agents))
    steps = [record_others(run, agent, budget.judge_for(agent), alone=others) for agent in agents]
    return list(dict.fromkeys([*steps, WHOLE] if steps and others else steps))


def _lacks_trials(agent: str, run: Run, budget: Budget) -> bool:
    """Whether an anchor of the run would hold few trials; what was made of cassettes has no more of them."""
    imported = any(
        problem.slug == "imported-recording" for task in run.tasks if task.agent == agent for problem in task.problems
    )
    return not imported and 0 < fewest_of(run, agent) < enough(budget.judge_for(agent))


def cause(run: Run) -> str | None:
    """The slug of what the session has told that makes tasks be missing, if it has told any."""
    for problem in run.problems:
        if problem.agent is None and problem.verdict == "incomplete" and problem.slug != "nothing-ran":
            return problem.slug
    return None


def _is_acceptable(result: ClassResult) -> bool:
    """Whether accepting is what leads on from the verdict of a class."""
    mine = {problem.slug for problem in result.problems}
    if result.verdict not in ("no-baseline", "mismatch", "regressed", "inconclusive", "unapproved", "incomplete"):
        return False
    if result.verdict == "inconclusive" and result.evidence is not None and result.evidence.needs:
        return False  # further trials can still tell
    gone = result.verdict == "incomplete" and mine != {"tasks-removed"}
    return not gone and mine.isdisjoint(("over-max", "anchor-removed")) and mine != _STOPPED_ALONE


def _accepted_together(verdict: Verdict) -> bool:
    """Whether several classes wait for it, and no other class would be accepted with them or stand in the way."""
    waiting = [result for result in verdict.classes if _is_acceptable(result)]
    return len(waiting) > 1 and len(waiting) == len(verdict.classes)
