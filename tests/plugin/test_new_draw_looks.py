"""A new draw runs look by look, alone and under xdist: real runs, counted by the server."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from model_server import ModelServer
from project import Project, Result

TASKS = 10  # fewer are never a pass


@pytest.fixture(scope="module")
def _ten_once(tmp_path_factory: pytest.TempPathFactory) -> Project:
    with ModelServer() as server:
        made = Project(tmp_path_factory.mktemp("ten") / "shop", server.base_url)
        made.lay_out()
        made.write_tasks({f"task-{n}": {"ask": f"question {n}", "items": 1} for n in range(1, TASKS + 1)})
        made.commit("a shop with ten tasks")
        made.pytest("--fanout-mode=record", "--fanout-trials=2")
        assert made.baseline("accept", "--reason", "the first anchor of this project", "--yes").exit == 0
        made.commit("accept the first anchor")
    return made


@pytest.fixture
def ten(_ten_once: Project, tmp_path: Path, model: ModelServer) -> Project:
    """Ten tasks of two calls each, recorded twice and accepted; on a branch whose prompt differs."""
    made = _ten_once.copy_to(tmp_path / "shop", model.base_url)
    made.git("switch", "-q", "-c", "work")
    made.edit("shop.py", "Plan briefly.", "Plan very briefly.")
    made.commit("another prompt")
    return made


def recorded(project: Project) -> Counter[str]:
    """How many tasks have a recording of each trial."""
    return Counter(path.name for path in (project.root / "fixtures/recordings").rglob("t*.jsonl"))


def withheld_forty(result: Result) -> None:
    """Ten of fifty trials ran; the others are told, and are no outcomes of pytest."""
    assert result.report is not None
    session = result.report["session"]
    assert (session["collected"], session["ran"], session["withheld"], session["expected"]) == (50, 10, 40, 10)
    assert not session["partial"]
    assert "10 passed in " in outcomes(result)
    assert "skipped" not in outcomes(result)
    assert "deselected" not in outcomes(result)
    assert (
        "support: 40 trials withheld: evidence stood after 1 of 5 trials a task; 20 live calls made, about 80 saved"
    ) in [notice["text"] for notice in result.report["classes"][0]["notices"]]


def outcomes(result: Result) -> str:
    return next(line for line in reversed(result.out.splitlines()) if " in " in line and "passed" in line)


def test_an_innocent_prompt_costs_one_look(ten: Project, model: ModelServer) -> None:
    """The anchor's trials are all alike, so one trial of each task tells: 20 calls instead of 100. The 40 others are
    no outcomes of pytest; the stale second trials are gone, their digests kept; and a replay gives the same verdict."""
    old = [json.loads(path.read_bytes().splitlines()[-1])["end"] for path in ten.root.rglob("recordings/*/*/t*.jsonl")]
    result = ten.pytest("--fanout-mode=record")

    assert (result.verdict, result.exit) == ("pass", 0), result.text
    assert len(model.generated) == TASKS * 2
    withheld_forty(result)
    assert recorded(ten) == {"t1.jsonl": TASKS}
    kept = [
        digest
        for path in ten.root.rglob("recordings/*/*/t1.jsonl")
        for digest in json.loads(path.read_bytes().splitlines()[0])["replaced"]
    ]
    assert sorted(kept) == sorted(old)
    again = ten.pytest()
    assert (again.verdict, again.exit) == ("pass", 0), again.text


def test_an_edit_of_the_last_step_costs_the_last_calls(ten: Project, model: ModelServer) -> None:
    """With --fanout-branch the plans come from the recordings: only the ten calls after them are made. The report says
    so, the recordings name the anchor's, and a replay of them without the option gives the same numbers and verdict."""
    ten.edit("shop.py", "Plan very briefly.", "Plan briefly.")
    ten.edit("shop.py", '"Work."', '"Work well."')
    ten.commit("another prompt of the last step")
    result = ten.pytest("--fanout-mode=record", "--fanout-branch")

    assert (result.verdict, result.exit) == ("pass", 0), result.text
    assert [entry.json["messages"][0]["content"] for entry in model.generated] == ["Work well."] * TASKS
    anchor = json.loads((ten.root / "baselines/support.json").read_text())["tasks"]
    headers = [json.loads(path.read_bytes().splitlines()[0]) for path in ten.root.rglob("recordings/*/*/t1.jsonl")]
    assert {header["task"]: header["branched"] for header in headers} == {
        task: {"from": entry["recording"][0], "exchanges": 1} for task, entry in anchor.items()
    }
    told = (
        "support: 10 of 10 trials keep the beginning of an earlier recording and went on live from their first changed "
        "request (10 live calls made, 10 saved); beside the anchor each is compared with the trial that it shares it "
        "with"
    )
    assert told in [notice["text"] for notice in result.agent["notices"]]
    again = ten.pytest()
    assert (again.verdict, again.exit) == ("pass", 0), again.text
    assert len(model.generated) == TASKS
    assert again.agent["evidence"] == result.agent["evidence"]
    assert [trial["samples"] for trial in again.agent["tasks"]] == [trial["samples"] for trial in result.agent["tasks"]]


def test_under_xdist_the_same_trials_run(ten: Project, model: ModelServer) -> None:
    """Two workers, the same verdict, and neither a trial more nor one less."""
    result = ten.pytest("--fanout-mode=live", "-n2")

    assert (result.verdict, result.exit) == ("pass", 0), result.text
    assert len(model.generated) == TASKS * 2
    withheld_forty(result)


def test_a_worker_that_dies_in_a_look_leaves_it_incomplete(ten: Project, model: ModelServer) -> None:
    """The look is not whole: no other trial is asked for, the others of the look still run, and nothing hangs."""
    ten.edit(
        "shop.py",
        "def answer(task):\n",
        'def answer(task):\n    if task["ask"] == "question 3":\n        os.kill(os.getpid(), 9)\n',
    )
    result = ten.pytest("--fanout-mode=live", "-n2")

    assert (result.verdict, result.exit) == ("incomplete", 1), result.text
    assert len(model.generated) == (TASKS - 1) * 2
    assert result.report is not None
    assert {problem["slug"] for problem in result.report["problems"]} >= {"worker-lost", "tasks-lost"}
    assert result.report["session"]["withheld"] == 40


MODULE = """\
import pytest, shop

def note(text):
    with open("log.txt", "a") as file:
        file.write(text + "\\n")

@pytest.fixture(scope="module")
def kept():
    note("up {name}")
    yield
    note("down {name}")
    assert "{name}" != "one", "torn down badly"

@pytest.mark.fanout(agent="tests")
@pytest.mark.parametrize("n", range(5))
def test_{name}(kept, n):
    note(f"run {name}{{n}}")
    shop.answer({{"ask": "{name}", "items": 1}})
"""


@pytest.mark.slow
def test_what_a_module_keeps_is_torn_down_before_the_next_one(project: Project) -> None:
    """Marked tests of two modules in two looks: each module is left when its successor begins, also where that is not
    known when a look ends; and an error in the tear-down is one of the last test that stood in it."""
    project.write("pyproject.toml", "")
    (project.root / "fixtures/support.jsonl").unlink()
    for name in ("one", "two"):
        project.write(f"test_{name}.py", MODULE.format(name=name))
    project.commit("ten marked tests")
    project.pytest("--fanout-mode=record", "--fanout-trials=2")
    assert project.baseline("accept", "--reason", "the first anchor of this project", "--yes").exit == 0
    project.commit("accepted")
    project.git("switch", "-q", "-c", "work")
    project.edit("shop.py", "* STEPS_PER_ITEM", "* STEPS_PER_ITEM * 2")
    project.commit("a growth, which a second look has to confirm")
    project.root.joinpath("log.txt").unlink()
    result = project.pytest("--fanout-mode=live")

    look = [
        line
        for name in ("one", "two")
        for line in (f"up {name}", *(f"run {name}{n}" for n in range(5)), f"down {name}")
    ]
    assert project.root.joinpath("log.txt").read_text().split("\n")[:-1] == look * 2, result.text
    assert "20 passed, 2 errors in " in outcomes(result)
    assert "ERROR at teardown of test_one[4-t1]" in result.out
    assert "ERROR at teardown of test_one[4-t2]" in result.out
    assert (result.verdict, result.exit) == ("regressed", 1)
    assert result.report is not None
    assert result.report["session"]["withheld"] == 30
