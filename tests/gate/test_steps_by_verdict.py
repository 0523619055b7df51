"""Which step leads on from which verdict, on verdicts made by hand: no repository, no numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gate_world import TWENTY, make_run, with_trials

from pytest_fanout.gate.advice import next_steps
from pytest_fanout.records import VERDICTS, Base, ClassResult, Head, Problem, Run, SessionFacts, Verdict
from pytest_fanout.store.budget import parse_budget

WHOLE = "pytest --fanout-budget"
RECORD = f"{WHOLE} --fanout-mode=record"
ACCEPT = 'fanout-baseline accept --reason "…"'
ACCEPT_IT = 'fanout-baseline accept --agent support --reason "…"'
COMMIT = "git add baselines && git commit, once accepted"
MANY = make_run({task: values * 5 for task, values in TWENTY.items()})


def class_of(verdict: str, *slugs: str, agent: str = "support", **changes: Any) -> ClassResult:
    problems = tuple(Problem(slug, "…", verdict, agent) for slug in slugs)
    return replace(ClassResult(agent, verdict, "same", (), problems, 20, 20, 20), **changes)


def steps(*classes: ClassResult, run: Run = MANY, problems: tuple[Problem, ...] = (), verdict: str = "") -> list[str]:
    worst = verdict or min((result.verdict for result in classes), key=VERDICTS.index, default="pass")
    made = Verdict(worst, classes, problems, Base("b" * 40, "test"), Head("h" * 40))
    return list(next_steps(made, run, "baselines", "baselines", parse_budget(None)))


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        ("pass", []),
        ("approved", []),
        ("waived", [ACCEPT_IT]),
        ("regressed", [ACCEPT_IT, COMMIT]),
        ("inconclusive", [ACCEPT_IT]),
        ("unapproved", [ACCEPT_IT, COMMIT]),
        ("mismatch", [ACCEPT_IT, COMMIT]),
        ("no-baseline", [ACCEPT_IT, COMMIT]),
        ("stale", []),
        ("incomplete", []),
        ("invalid", [f"mend what is named above, then: {WHOLE}"]),
        (
            "shard",
            ["fanout-baseline combine --report GLOB, with the reports of all shards; a shard alone is never judged"],
        ),
        ("no-base", []),
        ("integrity", []),
    ],
)
def test_what_leads_on_from_each_verdict(verdict: str, told: list[str]) -> None:
    """A word of its own for each; what was not measured is not accepted."""
    assert steps(class_of(verdict)) == told


@pytest.mark.parametrize(
    ("run", "stale", "told"),
    [
        (MANY, ("t01",), "pytest --fanout-budget --fanout-mode=record --fanout-agent=support"),
        (replace(MANY, mode="live"), (), "pytest --fanout-budget --fanout-mode=record --fanout-agent=support"),
        (replace(MANY, session=SessionFacts(partial=True)), (), WHOLE),
    ],
    ids=["stale", "live", "partial"],
)
def test_a_waived_class_is_told_what_works_before_the_waiver_ends(run: Run, stale: tuple[str, ...], told: str) -> None:
    """What `accept` would refuse is not named, though the check is green for now."""
    assert steps(class_of("waived", stale=stale), run=run) == [told]


@pytest.mark.parametrize(
    ("slugs", "first"),
    [
        (("no-git-repository", "no-commit", "no-base"), 'git init && git add -A && git commit -m "Start"'),
        (("no-commit", "no-base"), 'git add -A && git commit -m "Start"'),
        (("no-base",), "set fetch-depth: 0 on actions/checkout, or name a commit with --fanout-base=REV"),
    ],
)
def test_where_no_base_is_known(slugs: tuple[str, ...], first: str) -> None:
    """The one that comes first in the life of a project."""
    assert steps(problems=tuple(Problem(slug, "…", "no-base") for slug in slugs))[0] == first


def limited(agents: tuple[str, ...], judged: tuple[str, ...], *, partial: bool, mode: str = "record") -> list[str]:
    run = replace(MANY, agents=agents, mode=mode, session=SessionFacts(partial=partial))
    classes = tuple(class_of("incomplete", agent=agent) for agent in judged)
    return steps(*classes, run=run, problems=(Problem("spend-limit", "…", "incomplete"),))


@pytest.mark.parametrize("mode", ["live", "record", "rerecord", "replay"])
def test_after_a_spend_limit_it_goes_on_in_its_mode(mode: str) -> None:
    """A live run has kept nothing, so that it begins again with more; the others go on from what they kept."""
    goes_on = (
        "pytest --fanout-budget --fanout-mode=live, with a higher --fanout-spend-limit"
        if mode == "live"
        else f"{RECORD} --fanout-spend-limit=…"
    )
    assert limited(("support",), ("support",), partial=False, mode=mode) == [goes_on]


@pytest.mark.parametrize(
    ("judged", "partial", "only"),
    [
        (("support",), True, " --fanout-agent=support"),
        (("support",), False, ""),
        (("support", "triage"), True, ""),
    ],
)
def test_after_a_spend_limit_a_selection_is_kept(judged: tuple[str, ...], partial: bool, only: str) -> None:
    """Where the run was narrowed to some of its classes."""
    assert limited(("support", "triage"), judged, partial=partial) == [f"{RECORD} --fanout-spend-limit=…{only}"]


@pytest.mark.parametrize("verdict", ["incomplete", "notice", "invalid", "stale"])
@pytest.mark.parametrize("agent", [None, "support"])
@pytest.mark.parametrize("slug", ["aaa", "nothing-ran", "zzz"])
def test_what_stands_before_missing_tasks(verdict: str, agent: str | None, slug: str) -> None:
    """What the session tells of the run as a whole makes tasks be missing; that nothing ran is no cause of itself."""
    run = replace(MANY, problems=(Problem(slug, "…", verdict, agent),))
    is_cause = verdict == "incomplete" and agent is None and slug != "nothing-ran"

    assert steps(class_of("incomplete", "tasks-missing"), run=run) == [
        f"mend what [{slug}] says, then: {WHOLE}" if is_cause else f"{WHOLE}, whole: without -k, -m, -x or skips"
    ]


@pytest.mark.parametrize("mode", ["live", "record", "rerecord"])
def test_a_whole_run_keeps_its_mode(mode: str) -> None:
    """Replay needs no word."""
    told = steps(class_of("incomplete", "trial-crashed"), run=replace(MANY, mode=mode))

    assert told[0] == f"{WHOLE} --fanout-mode={mode}, whole: without -k, -m, -x or skips"


@pytest.mark.parametrize(
    ("slugs", "accepts"),
    [
        (("tasks-removed",), True),
        (("tasks-removed", "tasks-missing"), False),
        (("aaa",), False),
        (("zzz",), False),
        (("tasks-removed", "over-max"), False),
    ],
)
def test_of_what_is_incomplete_only_a_removal_is_accepted(slugs: tuple[str, ...], accepts: bool) -> None:
    """Nothing else that is missing is let go by accepting."""
    assert (ACCEPT_IT in steps(class_of("incomplete", *slugs))) == accepts


@pytest.mark.parametrize(
    ("slug", "told"),
    [
        (
            "stopped-by-caps",
            [f"mend what keeps trials of support from ending by themselves, then: {WHOLE}"],
        ),
        ("over-max", ["bring support back under its maximum, or have budget.toml changed by its owners"]),
        ("anchor-removed", [f"git checkout {'b' * 40} -- baselines/support.json", COMMIT]),
        ("anchor-not-committed", ['git add baselines && git commit -m "Accept support"', ACCEPT_IT, COMMIT]),
    ],
)
def test_what_is_not_accepted_has_its_own_way(slug: str, told: list[str]) -> None:
    """A maximum, a removed anchor; and an approval whose anchor was forgotten."""
    assert steps(class_of("regressed", slug)) == told


@pytest.mark.parametrize(
    ("verdicts", "accept"),
    [
        (("regressed", "regressed"), [ACCEPT]),
        (("regressed", "pass"), [ACCEPT_IT]),
        (("regressed", "stale"), [ACCEPT_IT]),
        (("regressed",), [ACCEPT_IT]),
    ],
)
def test_classes_that_all_wait_are_accepted_together(verdicts: tuple[str, ...], accept: list[str]) -> None:
    """Not where another one would be accepted with them, or stands in the way."""
    classes = [class_of(word, agent=agent) for agent, word in zip(("support", "triage"), verdicts, strict=False)]

    assert [step for step in steps(*classes) if "accept" in step and "git" not in step] == accept


@pytest.mark.parametrize("verdict", ["invalid", "incomplete", "stale"])
def test_what_stands_against_the_run_stands_against_accepting(verdict: str) -> None:
    """A notice does not."""
    against = (Problem("x", "…", verdict),)

    assert ACCEPT_IT not in steps(class_of("regressed"), problems=against)
    assert ACCEPT_IT in steps(class_of("regressed"), problems=(Problem("x", "…", "notice"),))


@pytest.mark.parametrize("slug", ["budget-loosened", "fleet-changed"])
@pytest.mark.parametrize(
    ("mode", "partial", "whole"), [("replay", False, []), ("live", False, [WHOLE]), ("replay", True, [WHOLE])]
)
def test_a_looser_budget_is_accepted_from_a_whole_run(slug: str, mode: str, partial: bool, whole: list[str]) -> None:
    """Accept refuses a live run, and a part of one."""
    run = replace(MANY, mode=mode, session=SessionFacts(partial=partial))

    told = steps(class_of("pass"), run=run, problems=(Problem(slug, "…", "unapproved"),), verdict="pass")

    assert told == [*whole, *([] if partial else [ACCEPT])]


@pytest.mark.parametrize(
    ("verdicts", "known"),
    [
        (("no-baseline",), False),
        (("no-baseline", "regressed"), True),
        (("unapproved",), True),
        (("incomplete",), False),
    ],
)
def test_a_live_run_is_recorded_first(verdicts: tuple[str, ...], known: bool) -> None:
    """Of a class that has no anchor there are no recordings that could still fit."""
    classes = [class_of(word, agent=agent) for agent, word in zip(("support", "triage"), verdicts, strict=False)]
    fits = "pytest --fanout-budget --fanout-mode=rerecord, where the recordings still fit"

    told = steps(*classes, run=replace(MANY, mode="live"))

    assert told == ([] if verdicts == ("incomplete",) else [RECORD, fits] if known else [RECORD])


@pytest.mark.parametrize(
    ("trials", "slug", "agent", "records"),
    [
        (4, None, "support", True),
        (5, None, "support", False),
        (6, None, "support", False),
        (4, "imported-recording", "support", False),
        (4, "aaa", "support", True),
        (4, "zzz", "support", True),
        (4, "imported-recording", "aaa", True),
        (4, "imported-recording", "zzz", True),
    ],
)
def test_few_trials_are_recorded_before_they_are_accepted(
    trials: int, slug: str | None, agent: str, records: bool
) -> None:
    """Five are enough; recordings that were imported into the class have no others."""
    run = make_run({task: values * trials for task, values in TWENTY.items()})
    if slug is not None:
        other = with_trials(make_run({"x": [1]}, agent), "x", problems=(Problem(slug, "…", "notice"),)).tasks
        run = replace(run, tasks=(*run.tasks, *other))

    told = steps(class_of("regressed"), run=run)

    assert any("--fanout-trials=5" in step for step in told) == records


@pytest.mark.parametrize(
    ("trials", "slug", "changes", "told"),
    [
        (4, "few-trials", {}, [f"{RECORD} --fanout-trials=5"]),
        (5, "few-trials", {}, [ACCEPT_IT]),
        (6, "few-trials", {}, [ACCEPT_IT]),
        (0, "few-trials", {}, []),
        (4, "aaa", {}, []),
        (4, "zzz", {}, []),
        (4, "few-trials", {"ci": True}, []),
        (4, "few-trials", {"mode": "live"}, []),
        (4, "few-trials", {"mode": "rerecord"}, [f"{RECORD} --fanout-trials=5"]),
    ],
)
def test_what_an_accepted_anchor_still_lacks(trials: int, slug: str, changes: dict[str, Any], told: list[str]) -> None:
    """Its notice says that it holds few; a run that has enough of them by now is accepted."""
    run = make_run({task: values * trials for task, values in TWENTY.items()}, **changes)
    notice = Problem(slug, "…", "notice", "support")

    assert steps(class_of("approved", notices=(notice,)), run=run) == told
    assert steps(class_of("pass", notices=(notice,)), run=run) == []
