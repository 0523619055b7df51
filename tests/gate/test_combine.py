"""Shards: a whole is made of all of them or not at all, and only the whole is judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gate_world import TWENTY, World, make_run, started, with_trials

from pytest_fanout.cli.baseline import main
from pytest_fanout.errors import IntegrityError
from pytest_fanout.gate import combine
from pytest_fanout.records import Base, Head, Problem, Run, SessionFacts, Totals
from pytest_fanout.report.json import document
from pytest_fanout.store.reports import read_report, write_report

GROWN = {**TWENTY, "t19": [25], "t20": [25]}
AGAIN = (
    "\n  mend: let every job check out the same commit and run `pytest --fanout-budget --fanout-shard=I/N`, "
    "then combine"
    "\n  see: docs/messages.md#"
)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("CI", "GITHUB_EVENT_PATH", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    world = started(tmp_path / "project")
    monkeypatch.chdir(world.folder)
    return world


def shards(run: Run, count: int = 2, **facts: Any) -> dict[str, Run]:
    """The run dealt out: the first task to shard 1, the second to shard 2, and so on."""
    names = sorted({trial.task for trial in run.tasks})
    parts = {}
    for number in range(1, count + 1):
        mine = set(names[number - 1 :: count])
        tasks = tuple(trial for trial in run.tasks if trial.task in mine)
        session = SessionFacts(
            expected=len(mine), collected=len(mine), ran=len(tasks), shard=f"{number}/{count}", **facts
        )
        parts[f"{number}.json"] = replace(
            run, run_id=f"run-{number}", tasks=tasks, session=session, totals=Totals(calls=number), inputs={"a": "b"}
        )
    return parts


def changed(parts: dict[str, Run], name: str, **changes: Any) -> dict[str, Run]:
    return {**parts, name: replace(parts[name], **changes)}


def refusal(parts: dict[str, Run]) -> str:
    with pytest.raises(IntegrityError) as caught:
        combine(parts)
    return str(caught.value)


def test_all_shards_are_the_run_again() -> None:
    """20 tasks in three shards: the same trials, 7 + 7 + 6 expected, 1 + 2 + 3 calls, no shard any more."""
    whole = combine(shards(make_run(), 3))

    assert [(t.task, t.trial) for t in whole.tasks] == [(t.task, t.trial) for t in make_run().tasks]
    assert whole.session == SessionFacts(expected=20, collected=20, ran=20)
    assert whole.totals == Totals(calls=6)


def test_the_whole_is_judged_as_if_it_had_run_at_once(world: World) -> None:
    """A growth whose two tasks ran in two shards is over budget; a shard alone never is, nor within."""
    parts = shards(make_run(GROWN))

    assert {world.judge(part).verdict for part in parts.values()} == {"shard"}
    assert world.judge(combine(parts)).verdict == "regressed"
    assert world.judge(combine(shards(make_run()))).verdict == "pass"


def test_a_missing_shard_is_named() -> None:
    """Shard 2 of 3 left no report."""
    parts = shards(make_run(), 3)
    del parts["2.json"]

    assert refusal(parts) == (
        "2 of 3 shards left a report; missing: 2/3"
        "\n  mend: see why these jobs left no report; a part of the tasks is never judged as the whole"
        "\n  see: docs/messages.md#shards-missing"
    )


def test_many_missing_shards_are_counted() -> None:
    """One shard of a billion is there: five are named, the rest is counted, and nothing takes long."""
    (name, run), *_ = shards(make_run(), 2).items()
    lone = replace(run, session=replace(run.session, shard="1/999999999"))

    assert "missing: 2/999999999, 3/999999999, 4/999999999, 5/999999999, 6/999999999 and 999999993 more" in refusal(
        {name: lone}
    )


def test_no_report_at_all() -> None:
    """A pattern that matches nothing is a gap as well."""
    assert refusal({}) == "there are no reports to combine" + AGAIN + "shards-missing"


def test_one_shard_twice() -> None:
    """Two jobs had the same number."""
    parts = shards(make_run())

    assert refusal({**parts, "3.json": parts["1.json"]}) == (
        "shard 1/2 is there twice, in 1.json and in 3.json"
        "\n  mend: give each job its own number, and keep only the reports of one run"
        "\n  see: docs/messages.md#shards-overlap"
    )


def test_one_task_in_two_shards() -> None:
    """It would count twice."""
    parts = shards(make_run())
    both = parts["2.json"].tasks + parts["1.json"].tasks[:1]

    assert refusal(changed(parts, "2.json", tasks=both)) == (
        "support::t01 ran in two shards, 1.json and 2.json"
        "\n  mend: use one version of pytest-fanout in all jobs, and keep only the reports of one run"
        "\n  see: docs/messages.md#shards-overlap"
    )


def test_a_whole_run_is_no_shard() -> None:
    """A report that was combined already, or of a run without --fanout-shard."""
    assert refusal({"x.json": make_run()}) == (
        "x.json: is the report of no shard: there is nothing to combine it with"
        "\n  mend: fanout-baseline verify, for the report of a whole run"
        "\n  see: docs/messages.md#not-a-shard"
    )


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1/0", "1 / 2", "a/b", "", "1/2\n", "-1/2"])
def test_a_forged_number_is_no_shard(shard: str) -> None:
    """What the session would never write is refused."""
    parts = shards(make_run())
    session = replace(parts["1.json"].session, shard=shard)

    assert "#not-a-shard" in refusal(changed(parts, "1.json", session=session))


def test_parts_of_different_wholes() -> None:
    """1 of 2 and 2 of 3 leave a gap that no count would show."""
    assert refusal({"1.json": shards(make_run(), 2)["1.json"], "2.json": shards(make_run(), 3)["2.json"]}) == (
        "the shards are parts of different wholes: 1.json is one of 2, 2.json is one of 3" + AGAIN + "shards-mixed"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"head": Head("a" * 40)}, "the commit"),
        ({"base": Base("a" * 40, "test")}, "the base"),
        ({"mode": "live"}, "the mode"),
        ({"definitions": {}}, "the eval sets"),
        ({"evalsets": {"support": None}}, "the eval sets"),
        ({"sealed": False}, "seal_keys"),
        ({"volatile": ("system",)}, "volatile in budget.toml"),
        ({"inputs": {"evalset:support": "c"}}, "a.toml, the eval set of support"),
        ({"inputs": {"a": "b", "recordings:support": "c"}}, "the recordings of support"),
    ],
)
def test_mixed_trees_are_refused(changes: dict[str, Any], words: str) -> None:
    """Whatever all shards of a run have in common and these have not is named."""
    parts = shards(make_run())

    assert refusal(changed(parts, "2.json", **changes)) == (
        f"1.json and 2.json are not of one run; what differs: {words}" + AGAIN + "shards-mixed"
    )


def test_shards_of_two_versions_are_not_combined(world: World) -> None:
    """They may have dealt the tasks out differently, or counted them so; the reports say which versions ran."""
    parts = shards(make_run())
    assert refusal({name: replace(run, tool=f"pytest-fanout 0.{name[0]}.0") for name, run in parts.items()}) == (
        "1.json and 2.json are not of one run; what differs: the version of pytest-fanout\n"
        "  mend: install one version in all jobs (pytest-fanout 0.1.0 and pytest-fanout 0.2.0 ran), then let them run "
        "again\n  see: docs/messages.md#shards-mixed"
    )

    made = document(parts["1.json"], world.judge(parts["1.json"]))
    write_report(world.folder / "report.json", {**made, "tool": "pytest-fanout 0.1.0"})
    assert read_report(world.folder / "report.json").tool == "pytest-fanout 0.1.0"


def test_a_shard_job_is_told_nothing_that_only_the_whole_can_tell(world: World) -> None:
    """Not which tasks the others run, nor to accept what `accept` refuses; what it measured badly it is told."""
    world.write("baselines/support.json", "")
    world.commit("broken")
    run = shards(make_run(GROWN))["1.json"]
    assert world.judge(run).verdict == "integrity"

    (world.folder / "baselines/support.json").unlink()
    world.commit("no anchor")
    for base in ("main", "HEAD"):
        found = world.judge(run, base=base)
        (result,) = found.classes
        said = [problem.text for problem in (*result.problems, *result.notices)]
        assert (found.verdict, result.missing, result.removed) == ("shard", (), ())
        assert [text for text in said if "accept" in text or "--fanout-mode" in text] == []
        assert [step for step in found.next if "accept" in step] == []

    stale = with_trials(run, run.tasks[0].task, status="stale")
    assert world.judge(stale).classes[0].problems[0].slug == "stale"


def test_shards_that_record_are_told_how_to_go_on() -> None:
    """Each recorded its own part of the tree."""
    parts = shards(replace(make_run(), mode="record"))

    assert (
        "mend: each shard recorded its own part: commit the recordings of all of them, then let the shards replay"
    ) in refusal(changed(parts, "2.json", inputs={"a": "b", "recordings:support": "c"}))


def test_what_stands_against_one_shard_stands_against_the_whole(world: World) -> None:
    """A crash, an exit code, an early end, an unfinished report: none is diluted by the shards that went well."""
    parts = shards(make_run())
    crashed = changed(parts, "2.json", problems=(Problem("worker-lost", "lost", "incomplete"),))
    session = replace(parts["2.json"].session, pytest_exit=2)
    stopped = replace(parts["2.json"].session, stopped="-x")
    part = replace(parts["2.json"].session, partial=True)

    assert world.judge(combine(crashed)).verdict == "incomplete"
    assert world.judge(combine(changed(parts, "2.json", session=session))).verdict == "incomplete"
    assert world.judge(combine(changed(parts, "2.json", session=stopped))).verdict == "incomplete"
    assert combine(changed(parts, "2.json", session=part)).session.partial
    assert combine(changed(parts, "2.json", ci=True)).ci


def test_a_task_that_its_shard_left_out_is_missing(world: World) -> None:
    """The shard ran with -k: the whole does not hold its other tasks."""
    parts = shards(make_run())
    some = changed(parts, "2.json", tasks=parts["2.json"].tasks[1:])

    verdict = world.judge(combine(some))

    assert verdict.verdict == "incomplete"
    assert verdict.classes[0].missing == ("t02",)


# --- the command -----------------------------------------------------------------------------------------------------


def write(world: World, parts: dict[str, Run]) -> None:
    repo = world.repo
    base, head = Base(repo.resolve("main"), "merge-base main"), Head(repo.resolve("HEAD"))
    for name, part in parts.items():
        run = replace(world.measured(part), base=base, head=head)
        verdict = world.judge(run)
        write_report(world.folder / "shards" / name / "fanout-report.json", document(run, verdict))


def call(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, list(words), catch_exceptions=False)
    return done.exit_code, done.output


PATTERN = ("--report", "shards/*/fanout-report.json")


def test_combine_writes_the_report_that_verify_takes(world: World) -> None:
    """Shards are refused by verify, with the command that leads on; what combine makes of them is not."""
    world.write(".gitignore", "shards/\nfanout-report.json\n")
    world.commit()
    write(world, shards(make_run()))

    code, text = call("verify", "--report", "shards/1.json/fanout-report.json")
    assert code == 3
    assert (
        "  fanout-baseline combine --report GLOB, with the reports of all shards; a shard alone is never judged" in text
    )

    code, text = call("combine", *PATTERN)
    assert (code, text.splitlines()[:2]) == (0, ["combined 2 shards into fanout-report.json", "within budget: pass"])
    assert read_report(world.folder / "fanout-report.json").session.expected == 20
    assert call("verify")[0] == 0


def test_combine_exits_by_the_verdict(world: World) -> None:
    """1 over budget, 3 not measured, 4 for shards that do not fit; an older report is no longer there as theirs."""
    write(world, shards(make_run(GROWN)))
    assert call("combine", *PATTERN)[0] == 1

    write(world, shards(with_trials(make_run(), "t01", status="stale")))
    assert call("combine", *PATTERN)[0] == 3

    (world.folder / "shards/2.json/fanout-report.json").unlink()
    code, text = call("combine", *PATTERN)
    assert (code, text.splitlines()[0]) == (4, "error: 1 of 2 shards left a report; missing: 2/2")
    assert [p.slug for p in read_report(world.folder / "fanout-report.json").problems] == ["run-not-finished"]


def test_a_failed_shard_is_not_green(world: World) -> None:
    """pytest ended with 1 in a shard, although all numbers are within budget."""
    write(world, shards(make_run(), pytest_exit=1))

    code, text = call("combine", *PATTERN)

    assert code == 1
    assert text.splitlines()[-1] == "pytest ended with exit code 1 in a shard, so that this cannot pass"


def test_in_ci_the_shards_are_of_the_tree_that_is_checked_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Green reports of an earlier commit are refused there as verify refuses them."""
    world.write(".gitignore", "shards/\nfanout-report.json\n")
    world.commit()
    write(world, shards(make_run()))
    world.commit("later")
    monkeypatch.setenv("CI", "true")

    code, text = call("combine", *PATTERN)

    assert code == 4
    assert "the report is of commit" in text
