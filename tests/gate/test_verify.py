"""The required check: a report judged anew, in the environment that asks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gate_world import NOW, TODAY, TWENTY, World, git, make_run, started, without

from pytest_fanout.errors import FanoutError, GitError, IntegrityError
from pytest_fanout.gate import Verified, exit_code, verify
from pytest_fanout.gate.check import refuse_copy
from pytest_fanout.gate.inputs import changed_inputs
from pytest_fanout.records import OUTCOMES, Base, Head, Run, SessionFacts, Verdict
from pytest_fanout.store.reports import read_report, write_unfinished

SEE = "\n  see: docs/messages.md#"
GROWN = {**TWENTY, "t19": [25], "t20": [25]}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return started(tmp_path / "project")


def reported(world: World, run: Run, **changes: Any) -> Run:
    """The run as a report of the present commit holds it."""
    repo = world.repo
    base = Base(repo.resolve("main"), "merge-base main")
    return replace(world.measured(run), base=base, head=Head(repo.resolve("HEAD")), **changes)


def check(world: World, run: Run, *, option: str | None = None, environ: dict[str, str] | None = None) -> Verified:
    return verify(run, world.repo, world.settings, option=option, environ=environ or {}, today=TODAY, now=NOW)


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        ("pass", 0),
        ("approved", 0),
        ("waived", 0),
        ("regressed", 1),
        ("inconclusive", 1),
        ("unapproved", 1),
        ("mismatch", 1),
        ("no-baseline", 3),
        ("stale", 3),
        ("incomplete", 3),
        ("invalid", 3),
        ("shard", 3),
        ("no-base", 4),
        ("integrity", 4),
    ],
)
def test_exit_codes(verdict: str, code: int) -> None:
    """Nothing but within and waived is 0."""
    assert exit_code(Verdict(verdict, (), (), Base(None, ""), Head(None))) == code
    assert (code == 0) == (OUTCOMES[verdict] in ("within", "waived"))


def test_a_report_of_this_commit_passes(world: World) -> None:
    """Recomputed from its trials, whatever it says of itself."""
    assert check(world, reported(world, make_run())).exit_code == 0
    assert check(world, reported(world, make_run(GROWN))).exit_code == 1


def test_a_report_without_its_tasks_is_incomplete(world: World) -> None:
    """Nothing that the report leaves out is taken as done."""
    assert check(world, reported(world, without(make_run(), "t20"))).exit_code == 3


def test_pytests_own_failure_is_never_green(world: World) -> None:
    """A12: a test failed, or an early exit: within budget or not, the check is red."""
    failed = check(world, reported(world, make_run(), session=SessionFacts(pytest_exit=1, expected=20)))
    assert (failed.exit_code, failed.why) == (1, "pytest ended with exit code 1, so that the check cannot pass")

    assert check(world, reported(world, make_run(), session=SessionFacts(pytest_exit=2))).exit_code == 3


def test_a_shard_has_to_be_combined_first(world: World) -> None:
    """It is not a verdict on the class."""
    run = replace(make_run(), session=SessionFacts(expected=20, shard="1/2"))

    assert check(world, reported(world, run)).exit_code == 3


def test_base_equal_to_head_is_no_gate(world: World) -> None:
    """Exit 4, also when everything is within budget."""
    git(world.root, "branch", "-f", "main", "feature")

    done = check(world, reported(world, make_run()))

    assert (done.exit_code, done.why) == (4, "the base is HEAD itself: that is not a gate result")
    assert done.verdict.verdict == "pass"


def test_a_partial_report_is_incomplete_where_ci_asks(world: World) -> None:
    """A12: made on a developer's machine, it does not pass the required check."""
    run = reported(world, without(make_run(), "t20"), session=SessionFacts(partial=True, expected=20))

    assert check(world, run).exit_code == 0
    assert check(world, run, environ={"CI": "1"}).exit_code == 3


def test_a_report_of_another_commit(world: World) -> None:
    """What was measured is not what is checked out."""
    run = reported(world, make_run())
    measured = world.repo.resolve("HEAD") or ""
    world.commit()
    now = world.repo.resolve("HEAD") or ""

    with pytest.raises(IntegrityError) as caught:
        check(world, run)

    assert str(caught.value) == (
        f"the report is of commit {measured[:12]}, and HEAD is {now[:12]}\n  mend: run `pytest --fanout-budget` on "
        f"this commit, or check out the one that was measured{SEE}report-of-another-commit"
    )


def test_a_report_with_another_base(world: World) -> None:
    """--fanout-base=HEAD in the test job does not pass the check."""
    head, main = world.repo.resolve("HEAD") or "", world.repo.resolve("main") or ""

    with pytest.raises(IntegrityError) as caught:
        check(world, replace(reported(world, make_run()), base=Base(head, "option", False)))

    assert str(caught.value) == (
        f"the report compares with {head[:12]}, and the base here is {main[:12]} (merge-base main)\n"
        f"  mend: run `pytest --fanout-budget` again, without --fanout-base{SEE}report-of-another-base"
    )


def test_a_base_of_ones_own_is_refused_in_ci(world: World, tmp_path: Path) -> None:
    """In CI the event names the base; the option may only repeat it."""
    main = world.repo.resolve("main") or ""
    path = tmp_path / "event.json"
    path.write_text(json.dumps({"merge_group": {"base_sha": main}}))
    environ = {"CI": "true", "GITHUB_EVENT_PATH": str(path)}
    run = reported(world, make_run())
    assert check(world, run, option="main", environ=environ).exit_code == 0

    with pytest.raises(IntegrityError) as caught:
        check(world, run, option="HEAD", environ=environ)

    assert str(caught.value) == (
        f"--base HEAD is not the base that this CI run names ({main[:12]}, event.merge_group.base_sha)\n"
        f"  mend: leave --base out{SEE}base-overridden"
    )


def test_a_report_of_other_inputs(world: World) -> None:
    """Recordings that were not committed, or an eval set that was edited for the run."""
    run = reported(world, make_run())
    world.write("fixtures/recordings/support/x/1.jsonl", "{}\n")

    with pytest.raises(IntegrityError) as caught:
        check(world, run)

    assert str(caught.value) == (
        "the report was made with other inputs: the recordings of support\n"
        f"  mend: run `pytest --fanout-budget` on this commit, with everything committed{SEE}report-of-another-tree"
    )


def test_without_inputs_a_report_proves_nothing(world: World) -> None:
    """A report that names no inputs is of another tree."""
    with pytest.raises(FanoutError, match=r"made with other inputs: budget\.toml, the eval set of support"):
        check(world, replace(reported(world, make_run()), inputs={}))


def test_no_base_is_exit_4(world: World) -> None:
    """CI without an event and without a main branch."""
    git(world.root, "branch", "-D", "main")

    run = replace(reported(world, make_run()), base=None)

    assert check(world, run, environ={"CI": "true"}).exit_code == 4


def test_no_repository_cannot_be_verified(world: World) -> None:
    """There is nothing to judge from."""
    with pytest.raises(GitError) as caught:
        verify(make_run(), None, world.settings, option=None, environ={}, today=TODAY, now=NOW)

    assert str(caught.value) == (
        f"the project is in no git repository\n  mend: check out the commit that was measured{SEE}no-git-repository"
    )


def test_a_copy_of_a_report_is_not_the_report_of_another_job() -> None:
    """--reports-expected counts runs, not files."""
    seen: dict[str, str] = {}
    refuse_copy(make_run(), "a/fanout-report.json", seen)
    refuse_copy(make_run(run_id="run-2"), "b/fanout-report.json", seen)

    with pytest.raises(IntegrityError) as caught:
        refuse_copy(make_run(), "c/fanout-report.json", seen)

    assert str(caught.value) == (
        "a/fanout-report.json and c/fanout-report.json are of one and the same run\n"
        f"  mend: keep the report of each job under its own name, and check each of them once{SEE}report-repeated"
    )


def test_a_run_that_ended_itself_left_no_verdict(world: World, tmp_path: Path) -> None:
    """What stands in the report from the start says so, also where the process ended with 0."""
    write_unfinished(tmp_path / "fanout-report.json", "run-1")

    with pytest.raises(IntegrityError) as caught:
        check(world, read_report(tmp_path / "fanout-report.json"))

    assert str(caught.value) == (
        "the run that left this report did not finish, whatever its exit code was\n  mend: find out what ended it "
        f"(os._exit, a kill, a timeout), then run `pytest --fanout-budget` again{SEE}run-not-finished"
    )


@pytest.mark.parametrize("rev", ["0" * 40, "f" * 40, None])
def test_another_commit_is_another_commit(world: World, rev: str | None) -> None:
    """Whether its number is lower or higher, as HEAD of the report and as its base; none is another one as well."""
    run = reported(world, make_run())

    with pytest.raises(IntegrityError) as caught:
        check(world, replace(run, head=Head(rev)))
    assert caught.value.slug == "report-of-another-commit"
    with pytest.raises(IntegrityError) as caught:
        check(world, replace(run, base=Base(rev, "test")))
    assert caught.value.slug == "report-of-another-base"


@pytest.mark.parametrize("is_lower", [True, False])
def test_a_base_of_ones_own_is_refused_whatever_its_number(world: World, tmp_path: Path, is_lower: bool) -> None:
    """The first commit on the way whose number is lower, or higher, than that of the base."""
    base = world.commit_between("4", "c")
    path = tmp_path / "event.json"
    path.write_text(json.dumps({"merge_group": {"base_sha": base}}))
    other = world.commit_between("", base) if is_lower else world.commit_between(base, "g")

    with pytest.raises(IntegrityError) as caught:
        check(
            world,
            reported(world, make_run()),
            option=other,
            environ={"CI": "true", "GITHUB_EVENT_PATH": str(path)},
        )

    assert caught.value.slug == "base-overridden"


@pytest.mark.parametrize(
    ("measured", "now", "changed"),
    [
        ({"budget": "m"}, {"budget": "m"}, ()),
        ({"budget": "m"}, {"budget": "a"}, ("budget.toml",)),
        ({"budget": "m"}, {"budget": "z"}, ("budget.toml",)),
        ({"fleet": "m"}, {}, ("fleet.toml",)),
        ({}, {"evalset:a": "m", "recordings:b": "m"}, ("the eval set of a", "the recordings of b")),
    ],
)
def test_inputs_are_compared_by_name(measured: dict[str, str], now: dict[str, str], changed: tuple[str, ...]) -> None:
    """One that is there on one side alone has changed."""
    assert changed_inputs(measured, now) == changed


@pytest.mark.parametrize("code", [-1, 0, 1])
def test_pytest_has_to_end_with_0(world: World, code: int) -> None:
    """A code of another sign is no success either."""
    done = check(world, reported(world, make_run(), session=SessionFacts(pytest_exit=code, expected=20)))

    assert done.exit_code == (0 if code == 0 else 1)
