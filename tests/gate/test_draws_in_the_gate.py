"""New draws in the gate: a verdict by evidence, its reasons word by word, and what stays with raw numbers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drawn_agents import Calls, calls, drawn, first
from gate_world import World, git, make_run, redrawn

from pytest_fanout.judge import TrialTable, judge_draws
from pytest_fanout.records import ClassResult, JudgeRules, Run, Verdict
from pytest_fanout.report import markdown, terminal
from pytest_fanout.report.json import document
from pytest_fanout.store.reports import write_report

BASE = calls(20, 5, seed=4)
QUIET = calls(20, 5, seed=4, noise=0.1)
LOUD = calls(20, 5, seed=4, noise=0.9)
RECORD = "pytest --fanout-budget --fanout-mode=record"
ACCEPT = 'fanout-baseline accept --reason "…"'


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A branch of a project that holds three accepted classes: one of usual noise, one quiet, one loud."""
    world = World.make(tmp_path_factory.mktemp("draws") / "project")
    world.write(
        "pyproject.toml",
        "".join(
            f'[tool.fanout.agents.{agent}]\nentrypoint = "shop:answer"\nevalset = "fixtures/{agent}.jsonl"\n'
            for agent in ("support", "quiet", "loud")
        ),
    )
    for agent, base in (("support", BASE), ("quiet", QUIET), ("loud", LOUD)):
        world.anchor(make_run(base, agent), agent)
    world.write("baselines/budget.toml", BUDGET)
    world.commit("start")
    world.branch()
    world.commit("feature")
    return world


BUDGET = """schema = 1
[default.limits]
"fanout.p95" = { increase = "10%", at_least = 1 }
"tokens.p95" = "none"
[agents.loud.judge]
inconclusive = "warn"
"""


def run_of(fanout: Calls, agent: str = "support") -> Run:
    return redrawn(make_run(fanout, agent, agents=(agent,)))


def judged(world: World, run: Run) -> tuple[Verdict, ClassResult]:
    verdict = world.judge(replace(run, session=replace(run.session, partial=True)))
    return verdict, next(result for result in verdict.classes if result.agent == run.agents[0])


def said(result: ClassResult) -> list[str]:
    found = (*result.problems, *result.notices)
    return [f"{problem.verdict} {problem.slug}: {problem.text}" for problem in found if problem.slug != "partial-run"]


GROWN = calls(20, 2, seed=13, times=lambda place: 2.75)
UNCHANGED = calls(20, 5, seed=40)


def test_a_draw_that_evidence_shows_within_its_limits_passes(project: World) -> None:
    """Its p95 is above the raw limit, as that of one in three unchanged agents is; the evidence rules growth out."""
    run = calls(20, 2, seed=14, noise=0.1)

    _, result = judged(project, run_of(run, "quiet"))

    assert (result.verdict, result.draw) == ("pass", "new")
    assert result.evidence is not None
    (fanout,) = [metric for metric in result.metrics if metric.gated]
    assert (fanout.evidence, fanout.over) == ("shown", False)
    assert "noise-not-considered" not in {notice.slug for notice in result.notices}


def beyond(world: World) -> tuple[Run, str]:
    """One further trial shows what the first one found."""
    text = (
        "regressed growth-found: support: fanout of a typical task grew by 182 % (90 %: +159 % to +208 %), p 0.0001, "
        "above the 10 % that the limit allows: found after 1 trial, and later ones show it too; mend: bring it back, "
        f"or have it approved: {ACCEPT}"
    )
    return run_of(GROWN), text


def waiting(world: World) -> tuple[Run, str]:
    """The first trial found it."""
    text = (
        "inconclusive growth-unconfirmed: support: fanout of a typical task grew by 191 % (90 %: +158 % to +228 %), p "
        f"0.0001, above the 10 % that the limit allows: found after 1 trial, and no further trial tells yet; "
        f"mend: {RECORD}"
    )
    return run_of(first(GROWN, 1)), text


def opened(world: World) -> tuple[Run, str]:
    """One trial tells too little."""
    text = (
        "inconclusive evidence-open: support: after 1 trial the evidence on fanout of a typical task is open; "
        f"mend: run 1 more trial: {RECORD}"
    )
    return run_of(first(UNCHANGED, 1)), text


def alone(world: World) -> tuple[Run, str]:
    """One task ran away once."""
    run = calls(20, 1, seed=14, noise=0.1)
    text = (
        "inconclusive runaway-open: quiet: fanout of t007 ran away to 200, and three times all that the anchor knows "
        f"of it is 36: whether it repeats has to be seen; mend: {RECORD}"
    )
    return run_of(run | {"t007": [200]}, "quiet"), text


def again(world: World) -> tuple[Run, str]:
    """It ran away in each of three trials."""
    run = calls(20, 3, seed=14, noise=0.1)
    text = (
        "regressed runaway-repeated: quiet: fanout of t007 ran away to 200, and three times all that the anchor knows "
        f"of it is 36, in 3 of 3 trials: it repeats; mend: find the loop, or have it approved: {ACCEPT}"
    )
    return run_of(run | {"t007": [200] * 3}, "quiet"), text


def once(world: World) -> tuple[Run, str]:
    """It ran away once in three trials."""
    run = calls(20, 3, seed=14, noise=0.1)
    text = (
        "notice runaway: quiet: fanout of t007 ran away to 200, and three times all that the anchor knows of it is 36, "
        "in 1 of 3 trials"
    )
    return run_of(run | {"t007": [200, run["t007"][1], run["t007"][2]]}, "quiet"), text


def heavy_newcomer(world: World) -> tuple[Run, str]:
    """A task that no anchor knows takes more than the limit of the class."""
    text = (
        "regressed new-task-over: quiet: the new task t999 takes 90 fanout, above the 26 that fanout.p95 allows the "
        'class; mend: make it cheaper, or accept it: fanout-baseline accept --agent quiet --reason "…"'
    )
    return run_of(calls(20, 1, seed=14, noise=0.1) | {"t999": [90]}, "quiet"), text


def heavy_newcomer_beside_the_same_draw(world: World) -> tuple[Run, str]:
    """So it is where all others run on the anchor's own recordings, which do not tell what a new task may cost."""
    text = (
        "regressed new-task-over: quiet: the new task t999 takes 90 fanout, above the 26 that fanout.p95 allows the "
        'class; mend: make it cheaper, or accept it: fanout-baseline accept --agent quiet --reason "…"'
    )
    cheap = {f"t99{number}": [1] for number in range(9)}  # so that the p95 of all is where it was
    return make_run(QUIET | cheap | {"t999": [90]}, "quiet", agents=("quiet",)), text


def not_ruled_out(world: World) -> tuple[Run, str]:
    """All trials are spent, and the best guess is within the limit."""
    text = (
        "notice growth-not-ruled-out: support: ~ fanout of a typical task: best guess +6.4 %; growth above 12 % ruled "
        "out (95 %)"
    )
    return run_of(UNCHANGED), text


def in_doubt(world: World) -> tuple[Run, str]:
    """All trials are spent, and the best guess is above the limit."""
    run = calls(20, 5, seed=46, times=lambda place: 1.1)
    text = (
        "inconclusive growth-not-shown: support: fanout of a typical task may have grown: best guess +11 % (90 %: "
        "+3.3 % to +18 %), above the 10 % that the limit allows, and 5 trials of 20 tasks cannot tell; mend: bring it "
        f"back, add tasks, or have it approved: {ACCEPT}"
    )
    return run_of(run), text


def in_doubt_and_warned(world: World) -> tuple[Run, str]:
    """The same where budget.toml says that what cannot be told is a notice."""
    text = (
        "notice growth-not-shown: loud: fanout of a typical task may have grown: best guess +17 % (90 %: +1.8 % to "
        "+34 %), above the 10 % that the limit allows, and 5 trials of 20 tasks cannot tell; mend: bring it back, add "
        f"tasks, or have it approved: {ACCEPT}"
    )
    return run_of(calls(20, 5, seed=40, noise=0.9), "loud"), text


SCENES = [
    beyond,
    waiting,
    opened,
    alone,
    again,
    once,
    heavy_newcomer,
    heavy_newcomer_beside_the_same_draw,
    not_ruled_out,
    in_doubt,
    in_doubt_and_warned,
]


@pytest.mark.parametrize("scene", SCENES)
def test_reasons_say_what_grew_what_chance_does_and_what_to_run(project: World, scene: Any) -> None:
    """Class, metric, growth with its interval, p value, what is allowed, and the command."""
    run, text = scene(project)

    assert text in said(judged(project, run)[1])


def test_few_tasks_are_no_notice_where_doubt_is_one(project: World) -> None:
    """few-tasks-new-draw: nine tasks of a class with inconclusive = "warn" do not pass."""
    names = sorted(UNCHANGED)[:9]
    _, result = judged(project, run_of({name: UNCHANGED[name] for name in names}, "loud"))

    assert result.verdict == "inconclusive"
    assert [problem.slug for problem in result.problems if problem.verdict != "notice"] == ["few-tasks-new-draw"]


def test_found_only_at_the_end_and_not_by_the_last_trial_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no further trial can confirm stays inconclusive, in words of its own."""
    monkeypatch.setattr("pytest_fanout.judge.evidence.later_effect", lambda *args: 1.0)
    late = calls(20, 1, seed=14, times=lambda place: 6.0)
    run = {task: [row[0], late[task][0]] for task, row in calls(20, 1, seed=23).items()}

    comparison = judge_draws({"support": drawn(BASE, run, rules=JudgeRules(trials=2))})["support"]

    (text,) = [
        reason.text
        for reason in comparison.reasons
        if reason.slug == "growth-unconfirmed" and "dearest" not in reason.text
    ]
    assert text.endswith(
        "found only after all 2 trials, and the last one alone does not show it; "
        f"mend: bring it back, or have it approved: {ACCEPT}"
    )
    assert (comparison.verdict, comparison.needs.why) == ("inconclusive", "")


def test_a_noisy_class_is_proposed_to_warn_only() -> None:
    """SD of the logarithm .9: two trials of one task differ by a factor of 2.5; .33 is no reason to say so."""
    loud = judge_draws({"loud": drawn(LOUD, calls(20, 5, seed=40, noise=0.9))})["loud"]
    usual = judge_draws({"usual": drawn(BASE, UNCHANGED)})["usual"]

    (text,) = [reason.text for reason in loud.reasons if reason.slug == "noisy-class"]
    assert text == (
        "two trials of one task differ by a factor of 2.5 in fanout (SD of the logarithm 0.93, in this draw and its "
        "anchor): growth of its dearest tasks cannot be told from that; caps and a limit on capped.share hold such a "
        'class; proposed: inconclusive = "warn" in its [judge]'
    )
    assert "noisy-class" not in {reason.slug for reason in usual.reasons}


def test_unknown_samples_are_named() -> None:
    """value-unknown: more than 5 % of the samples of a gated metric are not known."""
    draw = drawn(BASE, first(UNCHANGED, 1))
    samples = {task: {**row, "fanout": (None,)} if task < "t007" else row for task, row in draw.run.samples.items()}

    comparison = judge_draws({"support": replace(draw, run=TrialTable(samples, draw.run.statuses))})["support"]

    assert comparison.reasons[0].text == (
        "more than 5 % of the samples of fanout are not known; mend: let the client ask for usage"
    )


def test_a_report_of_a_new_draw_fits_its_schema_and_every_form(project: World, tmp_path: Path) -> None:
    """JSON with the evidence of each class; on the terminal growth is ruled out, never denied; ~ where nothing is."""
    run = run_of(first(UNCHANGED, 1))
    verdict, result = judged(project, run)
    said = document(run, verdict)
    write_report(tmp_path / "fanout-report.json", said)
    (entry,) = [entry for entry in said["classes"] if entry["name"] == "support"]
    page = terminal.render(run, verdict, width=100)

    assert entry["evidence"]["needs"]["why"] == "look"
    assert entry["metrics"][0]["evidence"] == "open"
    # the 17th of 20 tasks is the lower end of a p95, and no upper one can be had
    assert entry["metrics"][0]["interval"] == [sorted(row[0] for row in UNCHANGED.values())[16], None]
    assert "ruled out (95 %)" in " ".join(page.split())
    assert "  ~" in page
    assert "no regression" not in page + markdown.render(run, verdict)
    assert result.verdict == "inconclusive"
    assert page.rstrip().endswith("next      pytest --fanout-budget --fanout-mode=record --fanout-agent=support")


def test_limits_without_evidence_stay_with_raw_numbers(project: World, tmp_path: Path) -> None:
    """evidence = "off" in the base's budget: the bare rule, and the reader is told how often that is wrong."""
    shutil.copytree(project.root, tmp_path / "project")
    project = World(tmp_path / "project", tmp_path / "project")
    budget = "schema = 1\n[default.limits]\n"
    project.write(
        "baselines/budget.toml", budget + '"fanout.p95" = { increase = "10%", at_least = 1, evidence = "off" }\n'
    )
    project.commit("off")
    git(project.root, "branch", "-f", "main")
    project.branch("off")
    project.commit("feature")
    run = run_of(first(UNCHANGED, 1))

    _, result = judged(project, run)

    (fanout,) = [metric for metric in result.metrics if metric.name == "fanout.p95"]
    assert fanout.evidence is None
    assert result.notices[0].text == (
        "support: fanout.p95 of a new draw stood against raw numbers, which an unchanged agent alone moves by 20 to "
        "40 %: that is wrong in 20 to 50 % of identical agents"
    )


def test_evidence_is_not_switched_off_by_the_change_that_it_judges(tmp_path: Path) -> None:
    """All but the two dearest tasks grew by a quarter: the raw p95 shows nothing of it, and is not asked instead."""
    world = World.make(tmp_path / "project")
    world.write("baselines/budget.toml", BUDGET)
    world.anchor(make_run(QUIET))
    world.commit("start")
    world.branch()
    world.write("baselines/budget.toml", BUDGET.replace("at_least = 1", 'at_least = 1, evidence = "off"'))
    world.commit("raw numbers will do")
    run = calls(20, 5, seed=14, noise=0.1, times=lambda place: 1.25 if place < 18 else 0.9)

    verdict = world.judge(run_of(run))

    (result,) = verdict.classes
    (fanout,) = [metric for metric in result.metrics if metric.gated]
    assert fanout.run <= fanout.limit
    assert (verdict.verdict, result.verdict) == ("unapproved", "regressed")
