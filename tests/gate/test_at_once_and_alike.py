"""Two that accept at once; and task ids that look alike: letters composed as git, or decomposed as macOS has them."""

from __future__ import annotations

import subprocess
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from gate_world import TODAY, TWENTY, World, make_run, slugs, started, without

from pytest_fanout.errors import StorageError
from pytest_fanout.gate import Plan, carry_out, plan_accept
from pytest_fanout.records import Base, Run
from pytest_fanout.session.items import marked_task
from pytest_fanout.store.files import alone_in, digest
from pytest_fanout.store.recordings import slug_of

GROWN = {**TWENTY, "t19": [25], "t20": [25]}
COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "tests/test_café.py::test_it") for form in ("NFC", "NFD"))
HOLDS = """
import sys
from pathlib import Path
from pytest_fanout.session.items import marked_task
from pytest_fanout.store.files import alone_in, digest
with alone_in(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return started(tmp_path / "project")


def planned(world: World, run: Run, **more: object) -> Plan:
    repo = world.repo
    return plan_accept(
        world.measured(run),
        repo,
        world.settings,
        reason="The planner now verifies its citations.",
        requested_by="dana@example.com",
        today=TODAY,
        ci=False,
        base=Base(repo.resolve("main"), "test"),
        **more,  # type: ignore[arg-type]
    )


def test_two_do_not_write_at_once(world: World) -> None:
    """The anchor of one would stand beside the approval of the other; who comes second writes nothing."""
    pytest.importorskip("fcntl")
    plan, folder = planned(world, make_run(GROWN)), world.folder / "baselines"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StorageError) as caught:
            carry_out(plan, world.settings)
        other.communicate("")

    assert str(caught.value) == (
        f"{folder}: another command is writing there now, and nothing was written\n"
        "  mend: wait until it has ended, then look at what it wrote before you run this again\n"
        "  see: docs/messages.md#already-writing"
    )
    assert [path.name for path in folder.iterdir()] == ["support.json"]
    assert len(carry_out(plan, world.settings).written) == 3


def test_what_a_killed_command_left_is_removed_however_young(world: World) -> None:
    """`git add baselines` comes next; nobody else writes there, so that nothing of the living is lost."""
    for name in (".support.json.abc.tmp", "approvals/.2026-11-29-support-first.json.abc.tmp"):
        world.write(f"baselines/{name}", "{")
    with alone_in(world.folder / "baselines"):
        assert list((world.folder / "baselines").rglob("*.tmp")) == []


def test_ids_that_look_alike_are_two_tasks(world: World) -> None:
    """Each with a folder, a line of the anchor and a removal of its own: they are told apart by what is written."""
    both = make_run({**TWENTY, COMPOSED: [3], DECOMPOSED: [4]})
    assert slug_of(COMPOSED) != slug_of(DECOMPOSED)
    carry_out(planned(world, both), world.settings)
    world.commit("both")
    assert world.judge(both).verdict in ("pass", "approved")

    found = world.judge(without(both, DECOMPOSED, defined=False))
    assert (found.classes[0].removed, "tasks-removed" in slugs(found)) == ((DECOMPOSED,), True)
    found = world.judge(without(both, DECOMPOSED))
    assert (found.verdict, found.classes[0].missing) == ("incomplete", (DECOMPOSED,))


def test_the_id_of_a_marked_test_is_composed_whatever_the_disk_says() -> None:
    """The same clone has one set of tasks everywhere; a name that the mark gives is taken as it is."""
    item = SimpleNamespace(nodeid=DECOMPOSED, get_closest_marker=lambda name: pytest.mark.fanout(agent="support").mark)
    found = marked_task(cast("pytest.Item", item))
    assert found is not None
    assert (found.task, found.definition) == (COMPOSED, digest({"test": COMPOSED}))

    named = pytest.mark.fanout(agent="support", task=DECOMPOSED).mark
    item = SimpleNamespace(nodeid="x", get_closest_marker=lambda name: named)
    assert getattr(marked_task(cast("pytest.Item", item)), "task", None) == DECOMPOSED


def test_a_deleted_test_is_named_in_either_form(world: World) -> None:
    """Ids of marked tests are composed; what a shell hands on, or a path that was copied, may not be."""
    run = make_run({**TWENTY, COMPOSED: [3]})
    marked = replace(
        run, definitions={"support": {task: d for task, d in run.definitions["support"].items() if task in TWENTY}}
    )
    carry_out(planned(world, marked), world.settings)
    world.commit("with a marked test")

    (plan,) = planned(world, without(marked, COMPOSED), removals=[DECOMPOSED]).classes

    assert plan.anchor is not None
    assert set(plan.anchor.tasks) == set(TWENTY)
