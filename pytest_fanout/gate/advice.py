"""The next command, most useful first."""

from __future__ import annotations

from pytest_fanout.records import Run, Verdict


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
        say("pytest --fanout-budget on all shards; a shard alone is never judged")
    for result in verdict.classes:
        accept = f'fanout-baseline accept --agent {result.agent} --reason "…"'
        mine = {problem.slug for problem in result.problems}
        if result.stale and result.verdict == "stale":
            say(f"pytest --fanout-budget --fanout-mode=record --fanout-agent={result.agent}")
        if "tasks-missing" in mine or "trial-crashed" in mine:
            say("pytest --fanout-budget, whole: without -k, -m, -x or skips")
        if "anchor-not-committed" in mine:
            say(f'git add {kept} && git commit -m "Accept {result.agent}"')
        if result.verdict in ("no-baseline", "mismatch", "regressed", "unapproved", "incomplete"):
            gone = result.verdict == "incomplete" and mine != {"tasks-removed"}
            if not gone and "over-max" not in mine and "anchor-removed" not in mine:
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
