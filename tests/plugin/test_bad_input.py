"""Bad input ends in one clear line that names file, line or key and the mend: no traceback, nothing lost."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time

import pytest
from model_server import ModelServer
from project import Project

LINE = '{"id": "task-1", "input": {"ask": "q", "items": 1}}\n'


def check_refused(project: Project, *needles: str, exit_code: int = 4) -> None:
    """pytest refuses to start: the exit code, each needle on the screen, no traceback, no green report."""
    result = project.pytest()
    assert result.exit == exit_code, result.text
    for needle in needles:
        assert needle in result.text
    assert "Traceback" not in result.text
    assert "INTERNALERROR" not in result.text
    assert result.report is not None
    assert (result.report["verdict"], result.report["outcome"]) in {
        ("invalid", "not_measured"),
        ("incomplete", "not_measured"),
    }


@pytest.mark.parametrize(
    ("lines", "needles"),
    [
        (LINE + LINE, ("support.jsonl:2", "task-1", "1")),
        ('{"input": 1}\n', ("support.jsonl:1", "id")),
        (LINE + '{"id": "x", \n', ("support.jsonl:2", "JSON")),
        ("", ("support.jsonl", "empty")),
        ('{"id": "x", "input": 1, "wieght": 2}\n', ("support.jsonl:1", "wieght")),
    ],
    ids=["duplicate-id", "missing-id", "bad-json", "empty", "unknown-field"],
)
def test_eval_sets(project: Project, lines: str, needles: tuple[str, ...]) -> None:
    """A broken eval set is a usage error that names file and line."""
    project.write("fixtures/support.jsonl", lines)
    check_refused(project, *needles)


def test_a_missing_eval_set(project: Project) -> None:
    """An eval set that is not there is named."""
    (project.root / "fixtures/support.jsonl").unlink()
    check_refused(project, "fixtures/support.jsonl")


@pytest.mark.parametrize(
    ("entry", "needles"),
    [
        ("shop:nothing", ("entrypoint", "nothing")),
        ("shoop:answer", ("entrypoint", "shoop")),
        ("shop:PLANNER", ("entrypoint", "cannot be called")),
    ],
)
def test_entry_points(project: Project, entry: str, needles: tuple[str, ...]) -> None:
    """An entry point that cannot be used is a failed collection that names the key."""
    project.edit("pyproject.toml", '"shop:answer"', f'"{entry}"')
    check_refused(project, *needles, exit_code=2)


@pytest.mark.parametrize(
    ("old", "new", "needles"),
    [
        ("entrypoint", "entry_point", ("[tool.fanout.agents.support]", "entry_point")),
        ("agents.support]", "agents.Support]", ("Support",)),
        ("agents.support]", "agents.budget]", ("budget",)),
        ('"shop:answer"', '"shop.answer"', ("shop.answer", "module:callable")),
        ("[tool.fanout.agents.support]", "[tool.fanout]\nlimit = 3\n[tool.fanout.agents.support]", ("limit",)),
    ],
)
def test_settings(project: Project, old: str, new: str, needles: tuple[str, ...]) -> None:
    """Unknown keys and unusable names in [tool.fanout] are refused by name."""
    project.edit("pyproject.toml", old, new)
    check_refused(project, "pyproject.toml", *needles)


@pytest.mark.parametrize(
    ("budget", "needles"),
    [
        ('[default.limits]\n"fanuot.p95" = { increase = "10%" }\n', ("fanuot",)),
        ('[default.limits]\n"fanout.p95" = { increse = "10%" }\n', ("increse",)),
        ('[default.limits]\n"fanout.p95" = { increase = 10 }\n', ("increase",)),
        ("[default.capz]\nfanout = 3\n", ("capz",)),
        ("[default.caps\n", ("budget.toml",)),
    ],
)
def test_budgets(project: Project, budget: str, needles: tuple[str, ...]) -> None:
    """A budget that cannot be read is refused, naming the key."""
    project.write("baselines/budget.toml", "schema = 1\n" + budget)
    check_refused(project, "budget.toml", *needles)


@pytest.mark.parametrize("damage", ["truncated", "conflict", "garbage"])
@pytest.mark.parametrize(
    "victim", ["baselines/support.json", "baselines/approvals/*.json", "fixtures/recordings/support/task-1-*/t1*"]
)
def test_damaged_committed_files(accepted: Project, victim: str, damage: str) -> None:
    """A malformed, truncated or conflict-marked file is `integrity`, named, and stays as it is."""
    accepted.git("switch", "-q", "-c", "work")
    path = sorted(accepted.root.glob(victim))[0]
    data = path.read_bytes()
    damaged = {
        "truncated": data[: len(data) // 2],
        "conflict": b"<<<<<<< HEAD\n" + data + b"=======\n" + data + b">>>>>>> work\n",
        "garbage": b"\xff\xfe not json",
    }[damage]
    path.write_bytes(damaged)
    accepted.commit()
    result = accepted.pytest()

    assert (result.verdict, result.exit) == ("integrity", 1), result.text
    assert path.name.split("/")[-1][:20] in result.out
    assert "Traceback" not in result.text
    assert path.read_bytes() == damaged


def test_no_git_program(accepted: Project, tmp_path: object) -> None:
    """Without git on the PATH the run says so and is no pass."""
    result = accepted.pytest(PATH="/nonexistent")

    assert result.exit == 1
    assert result.verdict == "no-base"
    assert "git" in result.out
    assert "Traceback" not in result.text


def test_project_in_a_subfolder(project: Project, model: ModelServer) -> None:
    """A project below the top of its repository is gated by its own baselines."""
    inner = Project(project.root / "services" / "shop", model.base_url)
    for name in ("pyproject.toml", "shop.py", "fixtures/support.jsonl", ".gitignore"):
        inner.write(name, (project.root / name).read_text())
    inner.git("add", "-A")
    inner.git("commit", "-qm", "a service")
    inner.record_and_accept()
    inner.git("switch", "-q", "-c", "work")
    inner.write("notes.txt", "x")
    inner.commit()

    assert inner.pytest().verdict == "pass"


def test_an_answer_that_nobody_gives(project: Project) -> None:
    """With no server to answer, nothing is recorded, and the run says that no model answered."""
    result = project.pytest("--fanout-mode=record", "--fanout-trials=1", OPENAI_BASE_URL="http://127.0.0.1:9/v1")

    assert (result.verdict, result.exit) == ("invalid", 1)
    assert "no model answered" in result.out
    assert not list(project.root.glob("fixtures/recordings/**/t*.jsonl"))


def test_full_disk_while_recording(accepted: Project) -> None:
    """When a recording cannot be written, the old one is whole and the run is not measured."""
    before = {p: p.read_bytes() for p in accepted.root.glob("fixtures/recordings/**/t*.jsonl")}
    accepted.edit("shop.py", "Plan briefly.", "Plan at length, please, and in order. " * 40)
    code = (
        "import resource, signal, sys, pytest\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1500, resource.RLIM_INFINITY))\n"
        "options = ['--fanout-budget', '--fanout-mode=record', '--fanout-trials=1']\n"
        "sys.exit(pytest.main(['-p', 'no:cacheprovider', *options]))\n"
    )
    result = accepted.run(sys.executable, "-c", code)

    assert result.exit != 0
    assert "could not be written" in result.text
    assert {p: p.read_bytes() for p in accepted.root.glob("fixtures/recordings/**/t*.jsonl")} == before
    assert not list(accepted.root.rglob("*.tmp"))


def test_kill_9_while_recording(project: Project, model: ModelServer) -> None:
    """Killed at any moment, what was recorded is whole: a later replay has only missing trials, never broken ones."""
    model.restart(lambda _: {"delay_s": 0.05})
    child = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--fanout-budget", "--fanout-mode=record"],
        cwd=project.root, env=project.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while len(list(project.root.glob("fixtures/recordings/support/*/t*"))) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    result = project.pytest()

    assert result.report is not None
    assert result.verdict in ("stale", "no-baseline", "incomplete")
    statuses = {t["status"] for t in result.agent["tasks"]}
    assert "ok" in statuses
    assert statuses <= {"ok", "stale"}


def test_a_killed_run_leaves_no_green_report(accepted: Project, model: ModelServer) -> None:
    """A report of an earlier run is gone as soon as the next one starts."""
    assert accepted.pytest().verdict == "pass"
    accepted.edit("shop.py", "def answer(task):", "def answer(task):\n    os.kill(os.getpid(), 9)")
    result = accepted.pytest()

    assert result.exit != 0
    assert result.verdict == "invalid"
    assert accepted.baseline("verify", "--report", "fanout-report.json").exit != 0


def test_options_without_the_flag(project: Project) -> None:
    """A --fanout option that would do nothing is refused."""
    result = project.run(sys.executable, "-m", "pytest", "--fanout-mode=record")
    assert result.exit == 4
    assert "--fanout-budget" in result.text


@pytest.mark.parametrize("shard", ["0/2", "3/2", "x", "1/0"])
def test_shards(project: Project, shard: str) -> None:
    """A shard that is no I/N is refused."""
    result = project.pytest(f"--fanout-shard={shard}")
    assert result.exit == 4
    assert "I/N" in result.text


def test_duplicate_marked_tasks(project: Project) -> None:
    """Two marked tests of one task id are an error that names both places."""
    project.write(
        "test_shop.py",
        "import pytest\n\n"
        '@pytest.mark.fanout(agent="support", task="same")\n'
        "def test_one():\n    pass\n\n"
        '@pytest.mark.fanout(agent="support", task="same")\n'
        "def test_two():\n    pass\n",
    )
    result = project.pytest()
    assert result.exit == 4
    assert "test_one" in result.text
    assert "test_two" in result.text
    assert "Traceback" not in result.text


def test_full_disk_limit_is_available() -> None:
    """The full-disk test above stands on RLIMIT_FSIZE, which this system has."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] != 0
