"""The next command, most useful first."""

from __future__ import annotations

from pytest_fanout.records import OUTCOMES, ClassResult, Run, Verdict


def next_steps(verdict: Verdict, run: Run, folder: str, kept: str) -> tuple[str, ...]:
    """Commands or actions that lead on from a verdict; none when it is within budget.

    Args:
        folder: of the baselines.
        kept: the folders that are committed with a verdict.
    """
    steps: list[str] = []

    def say(step: str) -> None:
        if step not in steps:
            steps.append(step)

    again = "pytest --fanout-budget" + (f" --fanout-mode={run.mode}" if run.mode != "replay" else "")
    slugs = {problem.slug for problem in verdict.problems}
    slugs |= {problem.slug for result in verdict.classes for problem in result.problems}
    if "no-git-repository" in slugs:
        say('git init && git add -A && git commit -m "Start"')
    elif "no-commit" in slugs:
        say('git add -A && git commit -m "Start"')
    elif "no-base" in slugs:
        say("set fetch-depth: 0 on actions/checkout, or name a commit with --fanout-base=REV")
    if "spend-limit" in slugs:
        goes_on = "record --fanout-spend-limit=…" if run.mode != "live" else "live, with a higher --fanout-spend-limit"
        return (*steps, f"pytest --fanout-budget --fanout-mode={goes_on}")
    if verdict.verdict == "shard":
        say("fanout-baseline combine --report GLOB, with the reports of all shards; a shard alone is never judged")
    stands_in_the_way = cause(run)
    if stands_in_the_way is not None:
        say(f"mend what [{stands_in_the_way}] says, then: {again}")
    elif verdict.verdict == "invalid":
        say(f"mend what is named above, then: {again}")
    together = _accepted_together(verdict)
    # what stands against the run as a whole stands against accepting any of it
    blocked = any(OUTCOMES.get(problem.verdict) == "not_measured" for problem in verdict.problems)
    for result in verdict.classes:
        accept = 'fanout-baseline accept --reason "…"'
        if not together:
            accept = f'fanout-baseline accept --agent {result.agent} --reason "…"'
        mine = {problem.slug for problem in result.problems}
        if result.stale and result.verdict == "stale":
            say(f"pytest --fanout-budget --fanout-mode=record --fanout-agent={result.agent}")
        if ("tasks-missing" in mine or "trial-crashed" in mine) and stands_in_the_way is None:
            say(f"{again}, whole: without -k, -m, -x or skips")
        if "anchor-not-committed" in mine:
            say(f'git add {kept} && git commit -m "Accept {result.agent}"')
        if result.evidence is not None and result.evidence.needs and result.verdict == "inconclusive":
            say(f"pytest --fanout-budget --fanout-mode=record --fanout-agent={result.agent}")
        if _is_acceptable(result) and not blocked:
            say(accept)
        if "over-max" in mine:
            say(f"bring {result.agent} back under its maximum, or have budget.toml changed by its owners")
        if "anchor-removed" in mine:
            say(f"git checkout {verdict.base.rev} -- {folder}/{result.agent}.json")
    if slugs & {"budget-loosened", "fleet-changed"}:
        say('fanout-baseline accept --reason "…"')
    if verdict.verdict in ("no-baseline", "unapproved", "mismatch", "regressed"):
        say(f"git add {kept} && git commit, once accepted")
    return tuple(steps)


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
    return not gone and "over-max" not in mine and "anchor-removed" not in mine


def _accepted_together(verdict: Verdict) -> bool:
    """Whether several classes wait for it, and no other class would be accepted with them or stand in the way."""
    waiting = [result for result in verdict.classes if _is_acceptable(result)]
    return len(waiting) > 1 and len(waiting) == len(verdict.classes)
