"""A merge conflict in anchors and recordings: what is kept of each side, what is left to record, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gate_world import PYPROJECT, TWENTY, World, git, make_run, started, with_trials

from pytest_fanout.cli import resolving
from pytest_fanout.cli.baseline import main
from pytest_fanout.errors import UsageError
from pytest_fanout.gate.resolving import Resolved, find_conflict, resolve
from pytest_fanout.judge import stats_of
from pytest_fanout.records import Run
from pytest_fanout.store.baselines import parse_baseline
from pytest_fanout.store.conflicts import unmerged
from pytest_fanout.store.recordings import slug_of

GROWN = {**TWENTY, "t19": [25], "t20": [25]}
LARGER = {**TWENTY, "t19": [30], "t20": [30]}


def folder(task: str) -> str:
    return f"fixtures/recordings/support/{slug_of(task)}"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Main and `feature` both grew the anchor and recorded t1, t2, t3 anew; t3 has a second trial on feature only."""
    world = started(tmp_path / "project")
    monkeypatch.chdir(world.folder)
    git(world.root, "switch", "-q", "main")
    for task in ("t1", "t2", "t3"):
        world.write(f"{folder(task)}/t1.jsonl", "start\n")
    world.commit("recorded")
    git(world.root, "switch", "-q", "-C", "feature")
    side(world, "feature", GROWN)
    world.write(f"{folder('t3')}/t2.jsonl", "feature\n")
    world.commit("feature")
    git(world.root, "switch", "-q", "main")
    side(world, "main", LARGER)
    world.commit("main goes on")
    git(world.root, "switch", "-q", "feature")
    return world


def side(world: World, name: str, fanout: dict[str, list[int]]) -> None:
    world.anchor(make_run(fanout))
    world.write("baselines/support.sites.json", f'"{name}"\n')
    for task in ("t1", "t2", "t3"):
        world.write(f"{folder(task)}/t1.jsonl", f"{name}\n")


def merge(world: World, what: str = "main") -> None:
    git(world.root, "merge", "-q", what, check=False)
    assert unmerged(world.repo)


def held(world: World, task: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((world.folder / folder(task)).glob("*"))}


def sides_held(world: World, task: str) -> set[str]:
    return {text.strip() for text in held(world, task).values()}


def fits(world: World, which: dict[str, set[str]]) -> Callable[[], Run]:
    """A replay in which a task is measured only on recordings of these sides."""

    def replay() -> Run:
        run = make_run({task: [1] for task in which})
        return replace(
            run,
            tasks=tuple(
                trial if sides_held(world, trial.task) <= which[trial.task] else replace(trial, status="stale")
                for trial in run.tasks
            ),
        )

    return replay


def mend(world: World, which: dict[str, set[str]], main: str | None = None) -> Resolved:
    conflict = find_conflict(world.repo, world.settings, main)
    assert conflict is not None
    return resolve(conflict, world.repo, world.settings, fits(world, which), lambda line: None)


BOTH, MAIN, FEATURE = {"main", "feature"}, {"main"}, {"feature"}


def test_of_both_sides_what_still_matches_is_kept(world: World) -> None:
    """Main's first, because its anchor was made of them; else feature's; where none fits, main's, to be recorded."""
    merge(world)

    done = mend(world, {"t1": BOTH, "t2": FEATURE, "t3": set()})

    assert held(world, "t1") == {"t1.jsonl": "main\n"}
    assert held(world, "t2") == {"t1.jsonl": "feature\n"}
    assert held(world, "t3") == {"t1.jsonl": "main\n"}
    assert (done.main, done.other) == (
        (f"support/{slug_of('t1')}",),
        (f"support/{slug_of('t2')}",),
    )
    assert done.to_record == ("support::t3",)


def test_recordings_of_a_task_are_taken_whole(world: World) -> None:
    """Feature's two trials of t3, or main's one: never one of each."""
    merge(world)

    mend(world, {"t1": BOTH, "t2": BOTH, "t3": FEATURE})

    assert held(world, "t3") == {"t1.jsonl": "feature\n", "t2.jsonl": "feature\n"}


@pytest.mark.parametrize("way", ["merge main", "rebase", "merge into main", "said"])
def test_the_anchor_is_the_main_branchs(world: World, way: str) -> None:
    """Whichever side git calls ours; it is whole, and nothing is unmerged any more."""
    if way == "rebase":
        git(world.root, "rebase", "-q", "main", check=False)
    elif way == "merge into main":
        git(world.root, "switch", "-q", "main")
        merge(world, "feature")
    else:
        merge(world)
    done = mend(world, {"t1": BOTH, "t2": BOTH, "t3": BOTH}, "ours" if way == "said" else None)

    data = (world.folder / "baselines/support.json").read_bytes()
    expected = GROWN if way == "said" else LARGER
    assert parse_baseline(data, "support", "x", stats_of).tasks["t19"].samples["fanout"] == tuple(expected["t19"])
    assert done.files == ("baselines/support.json", "baselines/support.sites.json")
    assert unmerged(world.repo) == ()


def test_what_nobody_conflicted_on_is_told_when_it_fits_no_more(world: World) -> None:
    """t9 merged cleanly, and the merged code asks for something else."""
    world.write(f"{folder('t9')}/t1.jsonl", "feature\n")
    world.commit()
    merge(world)

    done = mend(world, {"t1": BOTH, "t2": BOTH, "t3": BOTH, "t9": MAIN})

    assert (done.to_record, held(world, "t9")) == (("support::t9",), {"t1.jsonl": "feature\n"})


@pytest.mark.parametrize(
    "changes",
    [{"samples": {"fanout": 0}}, {"status": "failed", "leftover": 2}, {"status": "invalid"}, {"status": "crashed"}],
)
def test_an_agent_that_fails_shows_nothing_of_its_recordings(world: World, changes: dict[str, Any]) -> None:
    """It never asked, or broke off: such a task is told, and not taken for one that fits."""
    merge(world)
    conflict = find_conflict(world.repo, world.settings, None)
    assert conflict is not None
    run = with_trials(make_run({"t1": [1], "t2": [1]}), "t2", **changes)

    assert resolve(conflict, world.repo, world.settings, lambda: run, lambda line: None).to_record == ("support::t2",)


def test_a_deletion_is_a_side_as_well(world: World) -> None:
    """Main removed the recordings of t2; its anchor never had call sites, which git would merge from feature."""
    git(world.root, "switch", "-q", "main")
    git(world.root, "rm", "-q", "-r", folder("t2"), "baselines/support.sites.json")
    world.commit("gone")
    git(world.root, "switch", "-q", "feature")
    merge(world)

    mend(world, {"t1": BOTH, "t3": BOTH})

    assert held(world, "t2") == {}
    assert not (world.folder / "baselines/support.sites.json").exists()
    assert unmerged(world.repo) == ()


def test_other_conflicts_come_first(world: World) -> None:
    """Code that is not merged yet would be replayed against."""
    for name, text in (("main", "a"), ("feature", "b")):
        git(world.root, "switch", "-q", name)
        world.write("shop.py", text)
        world.write("baselines/budget.toml", f"schema = 1\n# {text}\n")
        world.commit()
    merge(world)

    with pytest.raises(UsageError) as caught:
        find_conflict(world.repo, world.settings, None)

    assert str(caught.value) == (
        "other files are unmerged as well: baselines/budget.toml, shop.py\n"
        "  mend: resolve these by hand and git add them: recordings are replayed against the code as it will be\n"
        "  see: docs/messages.md#conflict-elsewhere"
    )


def test_two_branches_beside_the_main_one(world: World) -> None:
    """Neither side is in main: whose anchors hold has to be said."""
    git(world.root, "switch", "-q", "-c", "other", "main")
    side(world, "other", TWENTY)
    world.commit()
    git(world.root, "switch", "-q", "feature")
    merge(world, "other")

    with pytest.raises(UsageError) as caught:
        find_conflict(world.repo, world.settings, None)

    assert str(caught.value) == (
        "neither side of this merge is in the main branch, so that it cannot be told whose anchors hold\n"
        "  mend: fanout-baseline resolve --main theirs, if you merge the main branch into yours; else --main ours\n"
        "  see: docs/messages.md#main-side-unknown"
    )
    assert find_conflict(world.repo, world.settings, "theirs") is not None


def test_a_project_in_a_subfolder(tmp_path: Path) -> None:
    """Paths are the project's; an anchor without call sites on either side is mended as well."""
    world = started(tmp_path / "mono", "services/shop")
    for name, fanout in (("main", LARGER), ("feature", GROWN)):
        git(world.root, "switch", "-q", name)
        world.anchor(make_run(fanout))
        world.commit()
    merge(world)

    done = mend(world, {"t1": BOTH})
    assert done.files == ("baselines/support.json", "baselines/support.sites.json")


def test_the_command_says_what_is_left(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing to do: exit 0. Mended, and one task to record: exit 3 with the commands that lead on."""
    assert CliRunner().invoke(main, ["resolve"]).output == "nothing is unmerged in baselines or recordings\n"
    merge(world)
    main_rev = git(world.root, "rev-parse", "main")
    monkeypatch.setattr(resolving, "_replay", lambda settings: fits(world, {"t1": BOTH, "t2": FEATURE, "t3": set()})())

    done = CliRunner().invoke(main, ["resolve"], catch_exceptions=False)

    t1, t2 = (f"support/{slug_of(task)}" for task in ("t1", "t2"))
    assert (done.exit_code, done.output) == (
        3,
        "replaying the main branch's recordings …\n"
        "replaying the other side's recordings of 2 tasks …\n"
        f"baselines/support.json: the main branch's ({main_rev[:12]})\n"
        f"baselines/support.sites.json: the main branch's ({main_rev[:12]})\n"
        f"recordings kept, the main branch's: {t1}\n"
        f"recordings kept, the other side's: {t2}\n"
        "\n"
        "added to the index; nothing is committed. next:\n"
        "  no recording fits the merged code for support::t3:\n"
        "  pytest --fanout-budget --fanout-mode=record\n"
        "  git add fixtures/recordings\n"
        "  git commit (or git rebase --continue)\n"
        "  pytest --fanout-budget, and fanout-baseline accept where it is over budget: an approval that\n"
        "  departed from another anchor than the main branch's no longer covers anything\n",
    )


def test_recordings_beside_the_project_are_named_by_the_way_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only anchors conflict, and what is to be recorded lies in another folder of the machine."""
    world = started(tmp_path / "project")
    world.write(
        "pyproject.toml", PYPROJECT.replace("[tool.fanout.", '[tool.fanout]\nrecordings = "../kept"\n\n[tool.fanout.')
    )
    monkeypatch.chdir(world.folder)
    git(world.root, "switch", "-q", "-C", "feature")
    world.commit()
    for name, fanout in (("main", LARGER), ("feature", GROWN)):
        git(world.root, "switch", "-q", "-C", name, "feature")
        world.anchor(make_run(fanout))
        world.commit()
    merge(world)
    stale = with_trials(make_run(), "t01", status="stale")
    monkeypatch.setattr(resolving, "_replay", lambda settings: stale)

    done = CliRunner().invoke(main, ["resolve"], catch_exceptions=False)

    assert done.exit_code == 3
    assert "  git add ../kept\n" in done.output


def test_a_replay_that_measures_nothing_resolves_nothing(world: World) -> None:
    """The merged code cannot be imported: its own words are told, and the paths stay unmerged."""
    merge(world)

    done = CliRunner().invoke(main, ["resolve"])

    assert done.exit_code == 4
    assert "error: the replay ended with exit code " in done.stderr
    assert "mend: see that `pytest --fanout-budget` runs on the merged code, then resolve again" in done.stderr
    assert "#replay-failed" in done.stderr
    assert unmerged(world.repo)


def test_a_criss_cross_merge_is_resolved_by_its_two_sides(world: World) -> None:
    """Main and feature merged each other's earlier commit and resolved it differently: there are two merge bases.

    Whose anchor holds is told by the branches; then the base is main's tip, and all of it is judged against that.
    """
    one = git(world.root, "rev-parse", "feature")
    merge(world)  # feature keeps its own side
    git(world.root, "checkout", "-q", "--ours", ".")
    world.commit("feature has merged main")
    git(world.root, "switch", "-q", "main")
    merge(world, one)  # and main its own
    git(world.root, "checkout", "-q", "--ours", ".")
    world.commit("main has merged feature")
    side(world, "main", {**LARGER, "t18": [29]})
    world.commit("main goes on")
    git(world.root, "switch", "-q", "feature")
    side(world, "feature", {**GROWN, "t18": [24]})
    world.commit("feature goes on")
    assert len(git(world.root, "merge-base", "--all", "main", "feature").split()) == 2
    merge(world)

    done = mend(world, {"t1": BOTH, "t2": FEATURE, "t3": BOTH})

    assert (unmerged(world.repo), done.to_record) == ((), ())
    assert done.other == (f"support/{slug_of('t2')}",)
    anchor = (world.folder / "baselines/support.json").read_text()
    assert anchor == git(world.root, "show", "main:baselines/support.json") + "\n"
    world.commit("merged")
    assert world.repo.resolve_base(None, {}).rev == world.repo.resolve("main")
