"""A base with files that cannot be read: no licence to loosen, and the change that mends them has a way to green."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from gate_world import TODAY, TWENTY, World, git, make_run, slugs, started

from pytest_fanout.cli.baseline import main
from pytest_fanout.cli.capacity import _caps
from pytest_fanout.errors import ConfigError, IntegrityError
from pytest_fanout.gate import Accepted, accept
from pytest_fanout.gate.audit import steps
from pytest_fanout.records import Base, Change, Run, Verdict
from pytest_fanout.store.approvals import parse_approval, write_approval

GROWN = {task: [values[0] + 6] for task, values in TWENTY.items()}
#: Each file with what breaks it; the anchor is cut off, as a bad merge leaves it.
BROKEN = {"budget.toml": "schema = 1\n[default", "support.json": '{\n "digest": "sha256:', "fleet.toml": "schema = "}
#: In no entry looser than what holds without a file.
STRICTER = """schema = 1
[default.limits]
"fanout.p95" = { increase = "5%", at_least = 1 }
"tokens.p95" = { increase = "10%", at_least = 500 }
"""
REASON = "It was unreadable since the merge of Monday."


@pytest.fixture
def world(tmp_path: Path) -> World:
    return started(tmp_path / "project")


def broken_base(world: World, *names: str) -> None:
    """Main gets them past the gate; ``feature`` begins there."""
    git(world.root, "switch", "-q", "main")
    for name in names:
        world.write(f"baselines/{name}", BROKEN[name])
    world.commit("broken")
    git(world.root, "switch", "-q", "-C", "feature")


def restore(world: World, run: Run | None = None) -> None:
    world.anchor(run or make_run())


def accepted(world: World, run: Run) -> Accepted:
    return accepted_as_is(world, world.measured(run))


def accepted_as_is(world: World, run: Run) -> Accepted:
    repo = world.repo
    return accept(
        run,
        repo,
        world.settings,
        reason=REASON,
        requested_by="dana@example.com",
        today=TODAY,
        ci=False,
        base=Base(repo.resolve("main"), "test"),
    )


def texts(verdict: Verdict) -> dict[str, str]:
    problems = [*verdict.problems, *(p for result in verdict.classes for p in (*result.problems, *result.notices))]
    return {problem.slug: problem.text for problem in problems}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_as_long_as_head_holds_it_too_the_verdict_is_integrity(world: World, name: str) -> None:
    """Nothing is mended by what changes something else, nor by taking an anchor away."""
    broken_base(world, name)
    world.commit("something else")
    assert world.judge(make_run()).verdict == "integrity"

    if name == "support.json":
        git(world.root, "rm", "-q", f"baselines/{name}")
        world.commit("gone")
        assert world.judge(make_run()).verdict == "integrity"


def test_a_budget_in_place_of_a_broken_one_is_approved_like_a_new_one(world: World) -> None:
    """Also where it is the strictest: nobody can tell what it is compared with. Main then is as it was."""
    broken_base(world, "budget.toml")
    world.write("baselines/budget.toml", STRICTER)
    world.commit("mended")

    found = world.judge(make_run())
    assert (found.verdict, texts(found)["budget-replaced"]) == (
        "unapproved",
        "budget.toml stands in place of one that cannot be read, without an approval (HEAD holds no approval for it); "
        'mend: fanout-baseline accept --reason "…"',
    )
    assert texts(found)["base-unreadable"] == (
        "baselines/budget.toml: is not valid TOML: Expected ']' at the end of a table declaration, at the end of the "
        "file (in the base commit): what HEAD holds in its place needs an approval of its own"
    )
    assert 'fanout-baseline accept --reason "…"' in found.next

    (written,) = accepted(world, make_run()).written
    assert written.startswith(f"baselines/approvals/{TODAY}-budget-")
    world.commit("approved")
    found = world.judge(make_run())
    assert (found.verdict, "budget-approved" in slugs(found)) == ("pass", True)

    git(world.root, "branch", "-f", "main")
    world.commit("the next change")
    assert slugs(world.judge(make_run())) & {"base-unreadable", "budget-approved", "budget-replaced"} == set()


def test_a_broken_budget_is_no_licence_to_loosen(world: World) -> None:
    """Until its approval is committed the defaults hold beside what HEAD asks for, and one for another text is none."""
    broken_base(world, "budget.toml")
    world.write("baselines/budget.toml", 'schema = 1\n[default.limits]\n"fanout.p95" = { increase = "90%" }\n')
    world.commit("mended")
    found = world.judge(make_run(GROWN))
    assert found.verdict == "unapproved"
    assert found.classes[0].verdict == "regressed"

    accepted(world, make_run())
    world.write("baselines/budget.toml", 'schema = 1\n[default.limits]\n"fanout.p95" = { increase = "95%" }\n')
    world.commit("approved, and changed after that")
    assert world.judge(make_run(GROWN)).verdict == "unapproved"


def test_an_anchor_in_place_of_a_broken_one_is_approved_from_it(world: World) -> None:
    """The very anchor of before as well; then run and anchor are held to the ceilings, and an approval of a first
    anchor is not enough."""
    broken_base(world, "support.json")
    restore(world)
    world.approve(None, {"fanout.p95": 30, "tokens.p95": 3000})
    world.commit("mended")

    found = world.judge(make_run())
    assert (found.verdict, texts(found)["unapproved"]) == (
        "unapproved",
        "support: its anchor in place of one that cannot be read is committed without an approval that covers it "
        "(2026-11-28-support-first.json departs from another anchor than the base's); "
        'mend: fanout-baseline accept --agent support --reason "…"',
    )
    assert texts(found)["base-unreadable"].endswith("what HEAD holds in its place needs an approval of its own")

    done = accepted(world, make_run())
    assert done.removed == ("baselines/approvals/2026-11-28-support-first.json",)
    world.commit("approved")
    assert world.judge(make_run()).verdict == "approved"
    over = world.judge(make_run(GROWN))
    assert slugs(over) >= {"over-ceiling", "mismatch"}


def test_growth_over_time_is_not_forgotten_with_the_anchor(world: World) -> None:
    """What approvals add up to is counted from their files: the new one has to speak of it all the same."""
    git(world.root, "switch", "-q", "main")
    october = (Change("metric", "fanout.p95", "all", 9, 19),)
    world.approve(None, {"fanout.p95": 20, "tokens.p95": 2400}, changes=october, requested_on="2026-10-28")
    broken_base(world, "support.json")
    restore(world)
    world.commit("mended")
    name = next(name for name in accepted(world, make_run()).written if "/approvals/" in name)
    world.commit("approved")
    assert world.judge(make_run()).verdict == "approved"

    made = parse_approval((world.folder / name).read_bytes(), name)
    assert [change.name for change in made.changes if change.what == "drift"] == ["fanout.p95"]
    silent = replace(made, changes=tuple(change for change in made.changes if change.what != "drift"))
    world.write(name, write_approval(silent))
    world.commit("and silent about it")
    found = world.judge(make_run())
    assert (found.verdict, "drift-unapproved" in slugs(found)) == ("unapproved", True)


def test_a_fleet_in_place_of_a_broken_one_is_approved(world: World) -> None:
    """As any other change of it."""
    broken_base(world, "fleet.toml")
    world.write("baselines/fleet.toml", "schema = 1\n")
    world.commit("mended")
    found = world.judge(make_run())
    assert (found.verdict, "fleet-changed" in slugs(found)) == ("unapproved", True)

    accepted(world, make_run())
    world.commit("approved")
    assert world.judge(make_run()).verdict == "pass"


def test_a_folder_that_is_a_link_at_the_base_hides_all_that_it_held(world: World) -> None:
    """Budget, fleet and every anchor are new ones then."""
    git(world.root, "switch", "-q", "main")
    git(world.root, "mv", "baselines", "moved")
    (world.root / "baselines").symlink_to("moved")
    world.commit("a link")
    git(world.root, "switch", "-q", "-C", "feature")
    assert world.judge(make_run()).verdict == "integrity"
    (world.root / "baselines").unlink()
    restore(world)
    world.commit("mended")
    found = world.judge(make_run())
    assert (found.verdict, slugs(found) >= {"budget-replaced", "fleet-changed", "unapproved"}) == ("unapproved", True)

    accepted(world, make_run())
    world.commit("approved")
    assert world.judge(make_run()).verdict == "approved"


def test_a_misplaced_file_is_mended_by_its_removal(world: World) -> None:
    """At the base it has bound nothing."""
    git(world.root, "switch", "-q", "main")
    world.write("baselines/Support.json", "{}")
    world.commit("misplaced")
    git(world.root, "switch", "-q", "-C", "feature")
    assert world.judge(make_run()).verdict == "integrity"
    git(world.root, "rm", "-q", "baselines/Support.json")
    world.commit("removed")

    assert world.judge(make_run()).verdict == "pass"


def test_the_audit_names_what_broke_and_what_mended_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as if it were the defaults, or a class given up."""
    broken_base(world, "budget.toml", "support.json")
    world.write("baselines/budget.toml", "schema = 1\n")
    restore(world)
    world.commit("mended")
    accepted(world, make_run())
    world.commit("approved")
    git(world.root, "reset", "-q", "--soft", "main")
    world.commit("mended and approved")

    found = steps(world.repo, str(world.repo.resolve("HEAD")), world.settings)
    assert [(step.commit.subject, step.subject, step.kind) for step in found[:4]] == [
        ("mended and approved", "budget", "approved"),
        ("mended and approved", "support", "approved"),
        ("broken", "budget", "broken"),
        ("broken", "support", "broken"),
    ]
    monkeypatch.chdir(world.folder)
    said = CliRunner().invoke(main, ["log", "--agent", "budget"], catch_exceptions=False).output
    assert "budget: BROKEN  broken\n  baselines/budget.toml: is not valid TOML" in said
    assert "  budget budget.toml: cannot be read -> sha256:" in said


MARKS = "schema = 1\n<<<<<<< HEAD\n"


def said(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, list(words), catch_exceptions=False)
    return done.exit_code, done.output.partition("\n  see:")[0]


def test_no_command_takes_the_defaults_in_place_of_a_broken_budget(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`power` and `selfcheck` judge by nothing else; `show` needs the anchors only, and refuses those."""
    world.write("baselines/budget.toml", MARKS)
    world.commit("broken")
    monkeypatch.chdir(world.folder)
    expected = (
        "error: baselines/budget.toml:2: holds the marks of an unresolved merge conflict (in HEAD)\n"
        "  mend: resolve the conflict and commit the file"
    )

    assert [said("power"), said("selfcheck")] == [(4, expected), (4, expected)]
    assert said("show")[0] == 0
    with pytest.raises(IntegrityError, match=r"baselines/budget.toml:2: .* \(in HEAD\)"):
        _caps(world.settings, ["support"])

    world.write("baselines/support.json", BROKEN["support.json"])
    world.commit("broken as well")
    assert [said("show")[0], said("show", "support")[0]] == [4, 4]


def test_a_broken_budget_of_the_work_tree_is_said_to_be_broken(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """`init` advises nobody to commit it, and `accept` does not call the report one of another tree."""
    run = world.measured(make_run())
    world.write("baselines/budget.toml", MARKS)
    monkeypatch.chdir(world.folder)

    code, words = said("init")

    assert (code, "budget.toml:2: holds the marks of an unresolved merge conflict" in words) == (2, True)
    with pytest.raises(ConfigError, match=r"budget.toml:2: holds the marks") as caught:
        accepted_as_is(world, run)
    assert caught.value.slug == "conflict-marks"
