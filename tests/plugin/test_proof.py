"""A recording is proved in a fresh process, where hashes, the date and the ends of parallel work are others."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer
from project import Project

AGENT = """\
import os
import threading
import uuid
from datetime import date, datetime, timedelta

import httpx

BEGUN = date.today()  # when this module was imported
TOPICS = {"refund", "invoice", "parcel", "account", "voucher", "address", "password", "delivery", "contract", "tax"}


def ask(text, system="Plan.", **more):
    body = {"model": "m-x", "messages": [{"role": "system", "content": system}, {"role": "user", "content": text}]}
    answer = httpx.post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json=body | more)
    answer.raise_for_status()
    return answer.json()["choices"][0]["message"]["content"]


def parallel():
    results = []
    threads = [threading.Thread(target=lambda n=n: results.append(ask(f"part{n}"))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return " ".join(results)


def answer(task):
    if task == "date":
        ask("first", system=f"Plan well. Today is {date.today()}.")
        ask("second", system=f"Work. Started on {BEGUN:%A, %B %d, %Y}.")
    elif task == "ids":
        ask("whose?", metadata={"run": uuid.uuid4().hex})
        ask(f"Session {uuid.uuid4()} begins")
    elif task == "set":
        ask("about " + ", ".join(TOPICS))
    elif task == "results":
        ask("sum up: " + parallel())
    elif task == "killed" and os.environ.get("PYTHONHASHSEED") == "20011":
        os.kill(os.getpid(), 9)
    elif task == "key":
        ask("key " + os.environ["OPENAI_API_KEY"])
    return ask("steady")
"""
SLOWEST_FIRST = {f"part{n}": 0.05 * (6 - n) for n in range(6)}
LINE = (
    "volatile = ['Plan well\\. Today is \\d{4}-\\d{2}-\\d{2}', 'Work\\. Started on "
    "(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day,? [A-Z][a-z]+ \\d{1,2}[a-z]{0,2},? \\d{4}']"
)


CONFTEST = """\
import os

def pytest_collection_modifyitems(items):
    if os.environ.get("PYTHONHASHSEED") == "20011":
        items[:] = [item for item in items if "gone" not in item.name]
"""


def shop(project: Project, *tasks: str) -> None:
    project.write("shop.py", AGENT)
    project.write("conftest.py", CONFTEST)
    project.write_tasks({task: task for task in tasks})


def script(entry: Any) -> dict[str, Any]:
    asked = entry.json["messages"][-1]["content"]
    return {"text": f"done-{asked}", "delay_s": SLOWEST_FIRST[asked]} if asked in SLOWEST_FIRST else {"text": "done"}


def refused(report: dict[str, Any] | None, slug: str = "unproved-recording") -> dict[str, str]:
    """Why which task was not stored."""
    assert report is not None
    return {
        trial["task"]: problem["text"]
        for trial in report["classes"][0]["tasks"]
        for problem in trial["problems"]
        if problem["slug"] == slug
    }


def stored(project: Project) -> list[str]:
    return sorted(path.parent.name.split("-")[0] for path in project.root.glob("fixtures/recordings/*/*/t1.jsonl"))


@pytest.mark.slow
def test_what_changes_from_run_to_run_is_shown_with_its_line(project: Project, model: ModelServer) -> None:
    """Today's date, fresh ids, the order of a set and of parallel results: each is named, and nothing of it is stored;
    with the line that is shown dates and ids are ignored, while an order is not. Nor is a trial stored whose proof dies
    or whose task another plugin leaves out there, and the trials after it are proved."""
    shop(project, "date", "ids", "set", "killed", "results", "gone", "key")
    model.restart(script)
    first = project.pytest("--fanout-mode=record", "--fanout-trials=1")

    why = refused(first.report)
    head = "the recording does not replay, so it was not stored: call "
    mend = "; mend: make the requests steady from run to run"
    sort = " (sort what comes from a set, a folder or parallel work before it is sent: an order cannot be ignored)"
    let = ", or let [measure] of budget.toml ignore what changes: "
    assert why["date"] == (
        f"{head}1: messages[0] (system): a date; call 2: messages[0] (system): a date{mend}{let}{LINE}"
    ), first.text
    assert why["ids"] == (
        f"{head}1: metadata.run: a fresh id; call 2: messages[1] (user): a fresh id{mend}{let}"
        "volatile = ['/metadata/run', 'Session [0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}']"
    )
    assert why["set"] == f"{head}1: messages[1] (user): the same words in another order{mend}{sort}"
    assert why["results"] == f"{head}7: messages[1] (user): results in another order{mend}{sort}"
    assert stored(project) == ["key"]
    assert len(model.log) == 3 + 3 + 2 + 1 + 8 + 1 + 2  # the proofs have asked nobody
    lost = refused(first.report, "proof-not-run")
    where = "the recording could not be proved, so it was not stored: the process that proves recordings "
    assert lost["gone"].startswith(f"{where}did not collect this task\n")
    assert lost["killed"].startswith(f"{where}was ended by SIGKILL; its last lines:\n")
    assert len(lost) == 2

    lines = [text.rpartition("volatile = [")[2].rstrip("]") for text in (why["date"], why["ids"])]
    project.write("baselines/budget.toml", f"schema = 1\n[measure]\nvolatile = [{', '.join(lines)}]\n")
    again = project.pytest("--fanout-mode=record", "--fanout-trials=1")

    assert sorted(refused(again.report)) == ["results", "set"], again.text
    assert stored(project) == ["date", "ids", "key"]


def test_workers_prove_their_own_trials_and_leave_nothing(project: Project, model: ModelServer, tmp_path: Path) -> None:
    """Each worker of xdist has its process, in which no key but dummies is seen and no other plugin writes a report:
    the numbers are those of the workers, and when the session has ended no such process is left."""
    project.write(
        "conftest.py",
        "import json, os, pytest, sys, time\n"
        "def pytest_collection_modifyitems(items):\n"
        "    here = {'seed': os.environ.get('PYTHONHASHSEED'), 'now': time.time(), 'pid': os.getpid(),\n"
        "            'key': os.environ['OPENAI_API_KEY'], 'argv': sys.argv, 'mono': time.monotonic()}\n"
        "    if items: open(f'{os.environ[\"NOTES\"]}/{os.getpid()}.json', 'w').write(json.dumps(here))\n"
        "def pytest_sessionfinish():\n"
        "    open(f'{os.environ[\"NOTES\"]}/{os.getpid()}.end', 'w').close()\n",
    )
    notes = tmp_path / "notes"
    notes.mkdir()
    result = project.pytest(
        "--fanout-mode=record", "--fanout-trials=2", "-n2", f"--junitxml={notes}/junit.xml", f"--basetemp={notes}/tmp",
        NOTES=str(notes), OPENAI_API_KEY="sk-canary-0123456789",
    )  # fmt: skip

    assert result.verdict == "no-baseline", result.text
    assert [trial["recording"] is not None for trial in result.agent["tasks"]] == [True] * 6
    told = {int(path.stem): json.loads(path.read_text()) for path in notes.glob("*.json")}
    ended = {int(path.stem) for path in notes.glob("*.end")}
    proving = [told[pid] for pid in told.keys() - ended]
    assert 1 <= len(proving) <= 2
    begun = min(told[pid]["now"] for pid in told.keys() & ended)
    for child in proving:
        assert child["seed"] == "20011"
        assert 86_300 < child["now"] - begun < 87_000
        assert abs(child["mono"] - time.monotonic()) < 600
        assert child["key"].startswith("fanout-sealed-OPENAI_API_KEY-")
        assert not Path(f"/proc/{child['pid']}").exists()
    assert (notes / "junit.xml").exists()
    assert len(model.log) == 2 * (2 + 3 + 4)


def test_marked_tests_are_proved_with_their_fixtures(project: Project, model: ModelServer) -> None:
    """A marked test is proved with its fixtures, set up and torn down there too; a set-up that fails there is told.

    The project makes errors of all warnings: what the process itself does before pytest begins is none of them.
    """
    settings = "addopts = '-p no:cacheprovider -q'\nfilterwarnings = ['error']\n"
    project.write("pyproject.toml", f"[tool.pytest.ini_options]\n{settings}")
    project.write(
        "test_shop.py",
        "import os, pytest, shop\n"
        "def note(text):\n"
        "    with open('notes.txt', 'a') as f: f.write(f'{os.getpid()} {text}\\n')\n"
        "@pytest.fixture(scope='module')\n"
        "def system():\n"
        "    note('up'); yield 'Plan.'; note('down')\n"
        "@pytest.fixture\n"
        "def alone(tmp_path_factory):\n"
        "    lock = os.open('lock', os.O_CREAT | os.O_EXCL)\n"
        "    yield\n"
        "    os.unlink('lock')\n"
        "@pytest.mark.fanout(agent='support')\n"
        "def test_a(system, fanout_meter):\n"
        "    shop.answer({'ask': system, 'items': 1})\n"
        "    assert fanout_meter.fanout == 2\n"
        "@pytest.mark.fanout(agent='support')\n"
        "def test_b(alone):\n"
        "    shop.answer({'ask': 'b', 'items': 0})\n",
    )
    result = project.pytest("--fanout-mode=record", "--fanout-trials=1")

    (problem,) = [p for trial in result.agent["tasks"] for p in trial["problems"]]
    assert problem["task"] == "test_shop.py::test_b", result.text
    assert problem["text"] == (
        "the recording could not be proved, so it was not stored: in the process that proves recordings the setup of"
        " test_shop.py::test_b[t1] failed: FileExistsError: [Errno 17] File exists: 'lock'\n"
        "  mend: find out why it fails there (fixtures must stand being used in two processes at once), then record"
        " again\n  see: docs/messages.md#proof-not-run"
    )
    assert [path.parent.name.rsplit("-", 1)[0] for path in project.root.glob("fixtures/recordings/*/*/t1.jsonl")] == [
        "test-shop-py-test-a"
    ]
    notes = [line.split() for line in (project.root / "notes.txt").read_text().splitlines()]
    assert len({pid for pid, _ in notes}) == 2
    assert sorted(what for _, what in notes) == ["down", "down", "up", "up"]
