"""What a verdict says beside its word: messages, notices, chains, waivers, drift, the base, the next command."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, date
from pathlib import Path
from typing import Any

import pytest
from gate_world import NOW, TODAY, TWENTY, World, git, make_run, redrawn, slugs, started, trial, with_trials, without

from pytest_fanout.errors import ConfigError
from pytest_fanout.gate import committed_budget, evaluate, read_anchors, read_sites
from pytest_fanout.gate.costs import with_costs
from pytest_fanout.records import Base, Head, Problem, SessionFacts, Verdict
from pytest_fanout.store.git import Repository

GROWN = {**TWENTY, "t19": [25], "t20": [25]}
LARGER = {**TWENTY, "t19": [40], "t20": [40]}
CEILINGS = {"fanout.p95": 27, "tokens.p95": 3000}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return started(tmp_path / "project")


def texts(verdict: Verdict) -> dict[str, str]:
    """slug -> text, of every problem and notice."""
    found = {problem.slug: problem.text for problem in verdict.problems}
    for result in verdict.classes:
        found |= {problem.slug: problem.text for problem in (*result.problems, *result.notices)}
    return found


def test_a_regression_says_old_new_and_limit(world: World) -> None:
    """The number that decided, with the bound that the check used, and the way out."""
    found = world.judge(make_run(GROWN))

    (result,) = found.classes
    assert [problem.text for problem in result.problems] == [
        "support: fanout.p95 19 -> 25 (limit 20)",
        "support: tokens.p95 1,900 -> 2,500 (limit 2,399)",
    ]
    assert [(m.name, m.base, m.run, m.limit, m.over) for m in result.metrics if m.gated] == [
        ("fanout.p95", 19, 25, 20, True),
        ("tokens.p95", 1900, 2500, 2399, True),
    ]
    assert found.next == (
        "pytest --fanout-budget --fanout-mode=record --fanout-trials=5",
        'fanout-baseline accept --agent support --reason "…"',
        "git add baselines fixtures/recordings && git commit, once accepted",
    )
    assert [delta.task for delta in result.top] == ["t19", "t20"]


def test_within_budget_says_nothing_to_do(world: World) -> None:
    """Quiet when all is well: the draw is the anchor's own, no problem, no next step."""
    found = world.judge(make_run())

    assert (found.outcome, found.next, found.problems) == ("within", (), ())
    (result,) = found.classes
    assert (result.draw, result.tasks_expected, result.tasks_ran, result.trials) == ("same", 20, 20, 20)
    assert result.pass_share == result.pass_share_base == (20, 20)


def test_an_approved_growth_shows_its_ceiling(world: World) -> None:
    """The row stays marked: it is over the limit and below the ceiling, by a file that is named."""
    old = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    approval = world.approve(old, CEILINGS)
    world.commit()

    (result,) = world.judge(make_run(GROWN)).classes

    assert (result.approval, result.approval_why) == (approval.path, None)
    assert [(m.over, m.ceiling) for m in result.metrics if m.gated] == [(True, 27), (True, 3000)]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"requested_on": "2026-10-29"}, "it is 31 days old, and an approval is used within 30 days"),
        ({"requested_on": "2026-12-01"}, "its date 2026-12-01 lies in the future"),
        ({"evalset": None}, "it was given for another eval set"),
        ({"ceilings": {"fanout.p95": 24, "tokens.p95": 3000}}, "it covers fanout.p95 up to 24, and this is 25"),
        ({"ceilings": {"fanout.p95": 27}}, "it says nothing of tokens.p95"),
    ],
)
def test_an_approval_that_does_not_cover_says_why(world: World, changes: dict[str, object], why: str) -> None:
    """Each check of an approval has its own words."""
    old = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    approval = world.approve(old, **{"ceilings": CEILINGS, **changes})  # type: ignore[arg-type]
    world.commit()

    found = world.judge(make_run(GROWN))

    name = approval.path.rsplit("/", 1)[-1]
    assert texts(found)["unapproved"] == (
        f"support: its anchor got looser without an approval that covers it ({name}: {why}); "
        'mend: fanout-baseline accept --agent support --reason "…"'
    )


def chain(world: World, *, second_approval: bool = True, squash: bool = False) -> None:
    """Two approved changes merged together: B -> GROWN -> LARGER."""
    base = world.anchor(make_run())
    first = world.anchor(make_run(GROWN))
    world.approve(base, CEILINGS)
    world.commit()
    world.anchor(make_run(LARGER))
    if second_approval:
        world.approve(first, {"fanout.p95": 44, "tokens.p95": 4500}, nonce="0123456789abcdef")
    world.commit()
    if squash:
        git(world.root, "reset", "-q", "--soft", "main")
        world.commit("squashed")


@pytest.mark.parametrize(
    ("second_approval", "squash", "verdict"),
    [(True, False, "approved"), (False, False, "unapproved"), (True, True, "unapproved")],
)
def test_a_chain_of_approvals(world: World, second_approval: bool, squash: bool, verdict: str) -> None:
    """Every link needs its approval, and the anchor between them has to be visible in the history."""
    chain(world, second_approval=second_approval, squash=squash)

    assert world.judge(make_run(LARGER)).verdict == verdict


def test_a_chain_does_not_stretch_its_first_link(world: World) -> None:
    """The anchor between exceeds the ceiling of the first approval."""
    base = world.anchor(make_run())
    first = world.anchor(make_run(GROWN))
    world.approve(base, {"fanout.p95": 24, "tokens.p95": 2400})
    world.commit()
    world.anchor(make_run(LARGER))
    world.approve(first, {"fanout.p95": 44, "tokens.p95": 4500}, nonce="0123456789abcdef")
    world.commit()

    assert world.judge(make_run(LARGER)).verdict == "unapproved"


def test_a_rebase_changes_nothing(world: World) -> None:
    """Nothing is bound to commit ids."""
    old = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    world.approve(old, CEILINGS)
    world.commit()
    git(world.root, "switch", "-q", "main")
    world.write("other.txt", "x")
    world.commit()
    git(world.root, "switch", "-q", "feature")
    git(world.root, "rebase", "-q", "main")

    assert world.judge(make_run(GROWN)).verdict == "approved"


def test_main_does_not_turn_red_by_the_calendar(world: World) -> None:
    """An approval's age counts at its step only: once merged it is history."""
    old = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    world.approve(old, CEILINGS)
    world.commit()
    git(world.root, "switch", "-q", "main")
    git(world.root, "merge", "-q", "--ff-only", "feature")
    git(world.root, "commit", "-q", "--allow-empty", "-m", "later")

    assert world.judge(make_run(GROWN), base="main~1", today=date(2027, 6, 1)).verdict == "pass"


def test_reverting_a_regression_needs_no_ceremony(world: World) -> None:
    """A lower anchor that its run reproduces is free."""
    old = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    world.approve(old, CEILINGS)
    world.commit()
    git(world.root, "branch", "-f", "main")
    git(world.root, "rm", "-q", "-r", "baselines/approvals")
    world.anchor(make_run())
    world.commit()

    assert world.judge(make_run()).verdict == "pass"


def test_two_updates_of_one_class_conflict(world: World) -> None:
    """Different tasks changed, and git still refuses to mix what nobody measured."""
    world.anchor(make_run({**TWENTY, "t01": [2]}))
    world.commit()
    git(world.root, "switch", "-q", "-c", "other", "main")
    world.anchor(make_run({**TWENTY, "t20": [21]}))
    world.commit()
    git(world.root, "merge", "-q", "feature", check=False)

    assert git(world.root, "diff", "--name-only", "--diff-filter=U") == "baselines/support.json"


def test_a_committed_conflict_is_an_integrity_fault(world: World) -> None:
    """It names file and line, and nothing is judged around it."""
    path = world.folder / "baselines" / "support.json"
    world.write("baselines/support.json", path.read_text().replace(' "schema"', '<<<<<<< HEAD\n "schema"', 1))
    world.commit()

    found = world.judge(make_run())

    assert (found.verdict, found.classes[0].verdict) == ("integrity", "integrity")
    assert texts(found)["conflict-marks"] == (
        "baselines/support.json:3: holds the marks of an unresolved merge conflict (in HEAD); mend: resolve the "
        "conflict, then run `pytest --fanout-budget` and `fanout-baseline accept` again"
    )


@pytest.mark.parametrize(
    ("name", "content", "slug"),
    [
        ("baselines/support.json", "{", "bad-json"),
        ("baselines/Support.json", "{}", "misplaced"),
        ("baselines/budget.json", "{}", "misplaced"),
        ("baselines/budget.toml", "schema = 1\nx = 1\n", "unknown-key"),
        ("baselines/fleet.toml", "x = \n", "bad-toml"),
        ("baselines/approvals/x.json", "[]", "schema"),
    ],
)
def test_a_committed_file_that_cannot_be_used_is_an_integrity_fault(
    world: World, name: str, content: str, slug: str
) -> None:
    """Malformed or misplaced: never skipped."""
    world.write(name, content)
    world.commit()

    found = world.judge(make_run())

    assert (found.verdict, found.outcome) == ("integrity", "not_measured")
    assert slug in slugs(found)


def test_an_approval_that_is_a_symbolic_link_is_an_integrity_fault(world: World) -> None:
    """What it points to can change without a review."""
    old = world.anchor(make_run())
    world.anchor(make_run(GROWN))
    approval = world.folder / world.approve(old, CEILINGS).path
    approval.rename(world.folder / "elsewhere.json")
    os.symlink("../../elsewhere.json", approval)
    world.commit()

    found = world.judge(make_run(GROWN))

    assert found.verdict == "integrity"
    assert "not-a-regular-file" in slugs(found)


def test_a_broken_approval_of_the_past_can_be_removed(world: World) -> None:
    """The base's approvals bind nothing: taking a broken one out is enough."""
    git(world.root, "switch", "-q", "main")
    world.write("baselines/approvals/broken.json", "{")
    world.commit()
    git(world.root, "switch", "-q", "-C", "feature")
    assert world.judge(make_run()).verdict == "integrity"

    git(world.root, "rm", "-q", "baselines/approvals/broken.json")
    world.commit()
    assert world.judge(make_run()).verdict == "pass"


def test_without_a_base_nothing_is_within_budget(world: World) -> None:
    """The numbers beside HEAD's own anchor are shown, under the verdict no-base."""
    found = evaluate(
        replace(make_run(), base=Base(None, "CI", problem="no base here"), head=world.repo.head()),
        world.repo,
        world.settings,
        today=TODAY,
        now=NOW,
    )

    assert (found.verdict, [result.verdict for result in found.classes]) == ("no-base", ["no-base"])
    assert texts(found)["no-base"] == "no base here"
    assert found.next == ("set fetch-depth: 0 on actions/checkout, or name a commit with --fanout-base=REV",)


def test_a_base_that_is_not_in_the_clone(world: World) -> None:
    """A report of another clone can name what is not here."""
    found = evaluate(
        replace(make_run(), base=Base("1" * 40, "event"), head=world.repo.head()),
        world.repo,
        world.settings,
        today=TODAY,
        now=NOW,
    )

    assert texts(found)["no-base"] == (
        "the base commit 111111111111 is not in this clone; mend: set `fetch-depth: 0` on actions/checkout "
        "(elsewhere: `git fetch --unshallow`)"
    )
    assert found.verdict == "no-base"


def test_no_repository_and_no_commit(tmp_path: Path, world: World) -> None:
    """Each says how to begin."""
    found = evaluate(make_run(), None, world.settings, today=TODAY, now=NOW)
    assert (found.verdict, found.next) == ("no-base", ('git init && git add -A && git commit -m "Start"',))

    empty = World.make(tmp_path / "empty")
    found = evaluate(make_run(), empty.repo, empty.settings, today=TODAY, now=NOW)
    assert (found.verdict, found.next) == ("no-base", ('git add -A && git commit -m "Start"',))


def test_the_base_is_looked_up_when_the_run_names_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """At home: where the branch left main."""
    monkeypatch.delenv("GITHUB_EVENT_PATH", raising=False)
    world.commit()
    found = evaluate(make_run(), world.repo, world.settings, today=TODAY, now=NOW)

    assert (found.verdict, found.base.source) == ("pass", "merge-base main")
    assert found.head == Head(git(world.root, "rev-parse", "HEAD"))


def test_head_against_itself_is_judged_and_is_no_gate_result(world: World) -> None:
    """A developer on main sees the verdict; a notice says what it is worth."""
    found = world.judge(make_run(GROWN), base="feature")

    assert found.verdict == "regressed"
    assert texts(found)["not-a-gate"] == "not a gate result: the base (test) is HEAD itself"
    assert world.judge(make_run(), base="feature").verdict == "pass"


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        ("2026-11-26T23:59:59", "regressed"),  # more than a day before its date
        ("2026-11-27T00:00:01", "waived"),  # time zones
        ("2026-11-30T23:59:59", "waived"),
        ("2026-12-01T00:00:00", "regressed"),  # expired
    ],
)
def test_a_waiver_ends(world: World, now: str, verdict: str) -> None:
    """At most 72 hours from the start of its day."""
    from datetime import datetime

    world.approve(None, {}, kind="waiver", evalset=None, changes=(), expires_at=1_796_083_200)
    world.commit()
    moment = int(datetime.fromisoformat(now).replace(tzinfo=UTC).timestamp())

    found = world.judge(make_run(GROWN), now=moment)

    assert found.verdict == verdict


def test_a_waiver_in_the_work_tree_waives_nothing(world: World) -> None:
    """It has to be committed like any approval."""
    world.approve(None, {}, kind="waiver", evalset=None, changes=(), expires_at=1_796_083_200)

    assert world.judge(make_run(GROWN)).verdict == "regressed"


def test_less_work_is_suspicious(world: World) -> None:
    """Fanout falls by more than 20 % while fewer trials pass."""
    lazy = make_run({task: [max(1, values[0] // 2)] for task, values in TWENTY.items()})
    lazy = with_trials(lazy, ("t01", "t02"), passed=False)

    assert texts(world.judge(lazy))["suspicious-drop"] == (
        "support: fanout fell together with the part of trials that pass (20/20 -> 18/20): "
        "the agent may be doing less than its work"
    )
    assert "suspicious-drop" not in slugs(world.judge(with_trials(lazy, ("t01", "t02"), passed=True)))


def test_another_model_under_the_same_name_is_said(world: World) -> None:
    """Same requested name, another one served: the environment changed."""
    run = with_trials(make_run(), "t03", models_served=("small-2",))

    assert texts(world.judge(run))["model-changed"] == (
        "support: small was served by small-1 when the anchor was recorded, and now by small-2"
    )


def test_an_old_anchor_is_said(world: World) -> None:
    """max_age_days of the budget; NOW is an hour after the recording."""
    git(world.root, "switch", "-q", "main")
    world.write("baselines/budget.toml", "schema = 1\n[default.judge]\nmax_age_days = 30\n")
    world.commit()
    git(world.root, "switch", "-q", "-C", "feature")
    world.commit()

    found = world.judge(make_run(), now=NOW + 31 * 86_400)
    assert texts(found)["anchor-old"] == "support: the anchor was recorded 31 days ago, more than 30"
    assert "anchor-old" not in slugs(world.judge(make_run(), now=NOW + 29 * 86_400))


def test_few_tasks_and_few_trials_are_said(tmp_path: Path) -> None:
    """A14: with ten tasks p95 is the largest value and no percentile."""
    world = World.make(tmp_path / "project")
    ten = {f"t{number}": [number] * 5 for number in range(10)}
    ten["t0"] = [1] * 5
    world.anchor(make_run(ten))
    world.commit()

    found = texts(world.judge(make_run(ten)))
    assert found["few-tasks"] == (
        "support: with 10 tasks fanout.p95, tokens.p95 is simply the largest value, not a percentile"
    )
    assert "few-trials" not in found


def test_the_third_draw_is_told(world: World) -> None:
    """Recording until green is seen: the reader is told, though the evidence shows no growth at all."""
    run = redrawn(make_run())
    run = replace(run, tasks=tuple(replace(task, draw=3, redraws=2) for task in run.tasks))

    found = world.judge(run)

    assert (found.classes[0].draw, found.verdict) == ("new", "pass")
    assert texts(found)["redrawn"] == (
        "support: some trials are on draw 3 of the very same requests: recording until green is not evidence"
    )


def test_draws_of_an_agent_that_changes_accuse_nobody(world: World) -> None:
    """Each change of a prompt is recorded once: after two of them every trial is on its draw 3."""
    run = redrawn(make_run())
    run = replace(run, tasks=tuple(replace(task, draw=3) for task in run.tasks))

    assert "redrawn" not in slugs(world.judge(run))


@pytest.mark.parametrize(("tasks", "verdict"), [(9, "inconclusive"), (10, "pass")])
def test_a_new_draw_of_few_tasks_is_no_pass(world: World, tasks: int, verdict: str) -> None:
    """few-tasks-new-draw: below ten tasks chance alone is larger than any budget; ten may pass."""
    names, run = sorted(TWENTY)[:tasks], redrawn(make_run())
    part = replace(
        run, tasks=tuple(task for task in run.tasks if task.task in names), session=SessionFacts(partial=True)
    )
    selected = world.judge(part).classes[0]
    world.anchor(make_run({name: TWENTY[name] for name in names}))
    world.commit()
    whole = world.judge(redrawn(make_run({name: TWENTY[name] for name in names})), base="HEAD").classes[0]

    for result, mend in (
        (selected, "run the whole class: pytest --fanout-budget"),
        (whole, "accept it as the new anchor, or add tasks"),
    ):
        assert result.verdict == verdict
        assert [problem.text for problem in result.problems] == [
            f"support: a new draw of 9 tasks cannot be shown to be within budget, at least 10 are needed; mend: {mend}"
        ] * (verdict == "inconclusive")


def test_trials_of_another_number_of_draws_still_count_once(world: World) -> None:
    """A new draw with five trials of each task is compared by weights of 1/5."""
    run = make_run({task: values * 5 for task, values in TWENTY.items()}, mode="live")

    (result,) = world.judge(run).classes

    assert (result.verdict, result.trials) == ("pass", 100)


def test_an_approved_budget_holds(world: World) -> None:
    """A budget approval leads from digest to digest; then the looser limit is HEAD's own."""
    base = committed_budget(world.repo, world.settings, None, world.repo.head(), today=TODAY)[0]
    world.write(
        "baselines/budget.toml",
        'schema = 1\n[default.limits]\n"fanout.p95" = { increase = "40%" }\n"tokens.p95" = { increase = "40%" }\n',
    )
    world.commit()
    head = committed_budget(world.repo, world.settings, None, world.repo.head(), today=TODAY)[0]
    assert world.judge(make_run(GROWN)).verdict == "unapproved"

    world.approve(
        None,
        {},
        kind="budget",
        subject="budget",
        evalset=None,
        changes=(),
        from_digest=base.digest,
        to_digest=head.digest,
    )
    world.commit()
    found = world.judge(make_run(GROWN))
    assert (found.verdict, "budget-approved" in slugs(found)) == ("pass", True)


def test_a_loosened_budget_says_which_entry(world: World) -> None:
    """Old and new value, and why no approval covers it."""
    world.write("baselines/budget.toml", 'schema = 1\n[default.caps]\nfanout = 300\ntokens = "none"\n')
    world.commit()

    assert texts(world.judge(make_run()))["budget-loosened"] == (
        "budget.toml got looser without an approval: default.caps.fanout 200 -> 300, default.caps.tokens 2000000 -> "
        'none (HEAD holds no approval for it); mend: fanout-baseline accept --reason "…"'
    )


def test_the_budget_of_a_run_is_the_stricter_of_base_and_head(world: World) -> None:
    """The caps that a run is measured under cannot be raised in the same change."""
    world.write("baselines/budget.toml", "schema = 1\n[default.caps]\nfanout = 300\nattempts = 100\n")
    world.commit()
    base = Base(world.repo.resolve("main"), "test")

    budget, problems = committed_budget(world.repo, world.settings, base, world.repo.head(), today=TODAY)

    assert (budget.caps_for("support").fanout, budget.caps_for("support").attempts) == (200, 100)
    assert [problem.slug for problem in problems] == ["budget-loosened"]
    assert committed_budget(None, world.settings, None, None, today=TODAY)[0].is_default


def test_fleet_changes_are_reviewed(world: World) -> None:
    """Adding demand is free, changing it is not."""
    world.write("baselines/fleet.toml", "schema = 1\n")
    world.commit()
    assert world.judge(make_run()).verdict == "pass"

    git(world.root, "branch", "-f", "main")
    world.write("baselines/fleet.toml", "schema = 1\npeak = 2\n")
    world.commit()
    found = world.judge(make_run())
    assert found.verdict == "unapproved"
    assert texts(found)["fleet-changed"] == (
        "fleet.toml, or the calibration that it names, changed without an approval (HEAD holds no approval for it); "
        'mend: fanout-baseline accept --reason "…"'
    )


def test_baselines_outside_the_project_are_refused(world: World) -> None:
    """No commit of the project would hold them."""
    world.write("pyproject.toml", '[tool.fanout]\nbaselines = "../elsewhere"\n')
    settings = replace(world.settings, baselines=world.root.parent / "elsewhere")

    with pytest.raises(ConfigError) as caught:
        evaluate(make_run(), world.repo, settings, today=TODAY, now=NOW)

    assert str(caught.value) == (
        f"{settings.source}: [tool.fanout]: baselines must be a folder inside the project\n"
        '  mend: baselines = "baselines"\n  see: docs/messages.md#baselines-outside'
    )


def test_the_worst_class_decides(world: World) -> None:
    """One stale class beside one that passes."""
    world.anchor(make_run(agent="triage"), "triage")
    world.commit()
    git(world.root, "branch", "-f", "main")
    world.commit()
    first, second = make_run(), with_trials(make_run(agent="triage"), "t05", status="stale")
    run = replace(
        first,
        agents=("support", "triage"),
        tasks=(*first.tasks, *second.tasks),
        definitions={**first.definitions, **second.definitions},
    )

    found = world.judge(run)

    assert {result.agent: result.verdict for result in found.classes} == {"support": "pass", "triage": "stale"}
    assert (found.verdict, found.next) == (
        "stale",
        ("pytest --fanout-budget --fanout-mode=record --fanout-agent=triage",),
    )


def test_a_partial_run_says_how_much_of_it_ran(world: World) -> None:
    """A12: partial 1/20, and the other class is not judged at all."""
    run = make_run()
    run = replace(
        run,
        agents=("support", "triage"),
        tasks=run.tasks[:1],
        session=replace(run.session, partial=True),
    )

    found = world.judge(run)

    assert texts(found)["partial-run"] == "support: partial 1/20: only the tasks that ran were judged"
    assert [result.agent for result in found.classes] == ["support"]


def test_a_rerun_is_a_trial_of_record(world: World) -> None:
    """No execution replaces another: the expensive first try of a task stays in."""
    run = make_run()
    run = replace(run, tasks=(*run.tasks, *(trial("support", task, 1, 90) for task in ("t18", "t19", "t20"))))

    (result,) = world.judge(run).classes

    assert (result.verdict, result.trials) == ("regressed", 23)


def test_anchors_and_sites_are_read_from_a_commit(world: World) -> None:
    """What the session and the explanation ask for."""
    repo = world.repo
    rev = repo.resolve("HEAD")
    assert rev is not None

    assert list(read_anchors(repo, rev, world.settings)) == ["support"]
    assert read_sites(repo, rev, world.settings, "support") is None
    assert isinstance(repo, Repository)


def test_a_trial_of_a_class_that_nobody_lists_is_judged(world: World) -> None:
    """Whatever the run says of its classes: what was measured does not vanish."""
    run = make_run()
    run = replace(run, tasks=(*run.tasks, trial("ghost", "t01", 1, 3)))

    found = world.judge(run)

    assert {result.agent: result.verdict for result in found.classes} == {"ghost": "no-baseline", "support": "pass"}


def test_a_problem_of_a_class_that_is_not_judged_still_counts(world: World) -> None:
    """A partial run that left the class out, or a class that nobody lists."""
    run = make_run(problems=(Problem("hook-failed", "x", "invalid", "ghost"),))

    assert world.judge(run).verdict == "invalid"


@pytest.mark.parametrize("mode", ["replay", "record", "live"])
def test_the_next_step_keeps_the_mode_of_the_run(world: World, mode: str) -> None:
    """What has to be mended first is named, and the run is then begun again as it was begun."""
    words = "pytest --fanout-budget" + ("" if mode == "replay" else f" --fanout-mode={mode}")
    keyless = with_trials(make_run(mode=mode), "t07", problems=(Problem("missing-key", "no key", "invalid"),))
    uncollected = replace(make_run({}, mode=mode), problems=(Problem("collection-failed", "it broke", "incomplete"),))
    missing = without(make_run(mode=mode), "t07")

    assert world.judge(keyless).next == (f"mend what is named above, then: {words}",)
    assert world.judge(uncollected).next == (f"mend what [collection-failed] says, then: {words}",)
    assert world.judge(missing).next == (f"{words}, whole: without -k, -m, -x or skips",)


def test_several_new_classes_are_accepted_by_one_command(tmp_path: Path) -> None:
    """One plain accept takes them all; beside a class that stands in the way each is named."""
    world = World.make(tmp_path / "project")
    world.commit()
    runs = [make_run(dict.fromkeys(TWENTY, [1] * 5), agent) for agent in ("support", "triage", "sales")]
    run = replace(
        runs[0],
        agents=tuple(made.agents[0] for made in runs),
        tasks=tuple(task for made in runs for task in made.tasks),
        definitions={agent: ids for made in runs for agent, ids in made.definitions.items()},
    )
    broken = replace(run, problems=(Problem("budget-of-no-class", "a class is broken", "invalid", "sales"),))

    assert world.judge(run).next == (
        'fanout-baseline accept --reason "…"',
        "git add baselines fixtures/recordings && git commit, once accepted",
    )
    assert world.judge(broken).next == (
        "mend what is named above, then: pytest --fanout-budget",
        'fanout-baseline accept --agent support --reason "…"',
        'fanout-baseline accept --agent triage --reason "…"',
    )


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [({"samples": {"fanout": 0}}, "invalid"), ({"status": "stale"}, "stale"), ({"status": "crashed"}, "incomplete")],
)
def test_a_class_that_was_not_measured_has_no_projection(world: World, changes: dict[str, Any], verdict: str) -> None:
    """Zero calls would be zero GPUs, and a part of the tasks is not the class: nothing is projected."""
    run = with_trials(make_run(), ("t01", "t07"), **changes)
    found = with_costs(world.judge(run), run, world.repo, world.settings)

    assert (found.verdict, found.projections) == (verdict, ())
    assert len(with_costs(world.judge(make_run()), make_run(), world.repo, world.settings).projections) == 1


def test_a_draw_that_holds_failures_says_so(world: World) -> None:
    """Attempts that the provider let fail are told by kind, with the trials and tasks that hold them."""
    run = with_trials(make_run(), ("t01", "t02"), failures={"HTTP 429": 2, "broken off": 1})

    (result,) = world.judge(run).classes

    assert {notice.slug: notice.text for notice in result.notices}["draw-holds-failures"] == (
        f"support: the draw holds attempts that failed (4 x HTTP 429, 2 x broken off), in 2 of {len(run.tasks)} trials:"
        " t01, t02; retries count as attempts, and what an agent did about them is in all numbers; mend: if that was a "
        "bad hour of the provider, draw these anew: pytest --fanout-budget --fanout-mode=rerecord"
    )
    assert result.verdict == "pass"


def test_five_tasks_are_named_and_the_others_counted(world: World) -> None:
    """A message stays one line, however many tasks it is about."""
    found = world.judge(without(make_run(), *(f"t{number:02d}" for number in range(1, 8))))

    assert "no completed run of t01, t02, t03, t04, t05 and 2 more; mend" in texts(found)["tasks-missing"]
