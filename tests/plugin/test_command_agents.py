"""An agent that is a command line: measured, recorded, replayed, capped and judged like any other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer
from outside import BY_ANTHROPIC, BY_OPENAI, by_command, command, settings, told, trials
from project import Project

LOOP = """\
while True:
        try:
            ask("Again.", "and again")
        except BaseException:
            continue"""
#: Ways in which a command can answer, fail or go on: what its process does after its calls, or all of its source.
SOURCES: dict[str, str] = {
    "text": command(tail='print("zwei Sätze\\n\\nund é")'),
    "object": command(tail="print(json.dumps({'said': said}))"),
    "number": command(tail="print(42)"),
    "half": command(tail="print('{\"said\": 1')"),
    "by-openai": command(BY_OPENAI),
    "by-anthropic": command(BY_ANTHROPIC),
    "exits": command(tail="print('the shop is closed', file=sys.stderr); sys.exit(3)"),
    "killed": command(tail="os.kill(os.getpid(), 9)"),
    "latin": command(tail="sys.stdout.buffer.write(b'caf\\xe9')"),
    "deaf": "import os\nos.close(0)\nprint('heard nothing')\n",
    "leaves": command(
        tail="import subprocess; left = subprocess.Popen(['sleep', '300']); open('left.pid', 'w').write(str(left.pid))"
    ),
    "sleeps": command(tail="import time; open('slept.pid', 'w').write(str(os.getpid())); time.sleep(300)"),
    "endless": command(tail=LOOP),
    "stubborn": command(tail="import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    " + LOOP),
}
EXPECT: dict[str, Any] = {
    "text": {"equals": "zwei Sätze\n\nund é"},
    "object": {"json": {"said": "echo: question step 0"}},
    "number": {"equals": "42"},
    "half": {"equals": '{"said": 1'},
    "by-openai": "echo: question step 0",
    "by-anthropic": "echo: question step 0",
    "leaves": {"equals": ""},
}
#: An agent in the process of pytest that gives its work to a command.
STARTER = """\
import json, subprocess, sys

def answer(task):
    given = json.dumps(task)
    return subprocess.run([sys.executable, "text.py"], input=given, capture_output=True, text=True, check=True).stdout
"""
BUDGET = """\
schema = 1
[agents.sleeps.caps]
wall_seconds = 2
[agents.endless.caps]
fanout = 5
[agents.stubborn.caps]
fanout = 5
"""


def is_gone(pid: int, within_s: float = 10) -> bool:
    """Whether a process ends in that time; a zombie that nobody has waited for has ended."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            if not Path("/proc/self/stat").exists():
                os.kill(pid, 0)
            return True
        time.sleep(0.02)
    return False


@pytest.mark.slow
def test_how_commands_answer_fail_and_are_stopped(project: Project, model: ModelServer) -> None:
    """Texts, JSON, exit codes, signals, bytes that are no text, caps: each trial says what became of it."""
    tables = ""
    for name, source in SOURCES.items():
        project.write(f"{name}.py", source)
        line = {"id": name, "input": {"ask": "question", "items": 1}} | (
            {"expect": EXPECT[name]} if name in EXPECT else {}
        )
        project.write(f"fixtures/{name}.jsonl", json.dumps(line | {"no_calls": name == "deaf"}) + "\n")
        tables += settings(name, f"fixtures/{name}.jsonl", entrypoint=[sys.executable, f"{name}.py"])
    project.write("starter.py", STARTER)
    project.write("fixtures/starts.jsonl", '{"id": "starts", "input": {"ask": "question", "items": 1}}\n')
    tables += settings("starts", "fixtures/starts.jsonl", entrypoint="starter:answer", children="gateway")
    project.write("pyproject.toml", tables)
    project.write("baselines/budget.toml", BUDGET)
    result = project.pytest("--fanout-mode=live", "--fanout-trials=1")
    found = {agent["name"]: agent["tasks"][0] for agent in result.report["classes"]}

    assert {name: (t["status"], t["passed"], t["samples"]["fanout"]) for name, t in found.items()} == {
        **dict.fromkeys(("text", "object", "number", "half", "by-openai", "by-anthropic", "leaves"), ("ok", True, 2)),
        "starts": ("ok", True, 2),
        **dict.fromkeys(("exits", "killed", "latin"), ("failed", False, 2)),
        "deaf": ("ok", True, 0),
        "sleeps": ("timeout", False, 2),
        "endless": ("capped", False, 5),
        "stubborn": ("capped", False, 5),
    }, result.text
    name = f"TrialFailed: the command {sys.executable}"
    errors = {name: t["error"] for name, t in found.items() if t["error"]}
    assert errors["exits"].startswith(name[:30])
    assert "exits.py exited with 3; its last lines on stderr: the shop is closed" in errors["exits"].replace("…", "")
    assert "was ended by SIGKILL, and wrote nothing to stderr" in errors["killed"]
    assert "wrote to stdout is no answer: it is not UTF-8: 'utf-8' codec can't decode byte 0xe9" in errors["latin"]
    assert errors["sleeps"].startswith("pytest-fanout: 'sleeps' of sleeps reached its cap wall_seconds = 2: ")
    assert errors["endless"].startswith("pytest-fanout: 'endless' of endless reached its cap fanout = 5: ")
    assert len(model.generated) == 2 * 12 + 5 * 2
    assert (result.report["totals"]["late"], result.report["totals"]["unattributed"]) == (0, 0)
    assert told(result, "child-process") == []
    for file in ("left.pid", "slept.pid"):
        assert is_gone(int((project.root / file).read_text()))


def test_record_replay_and_a_changed_prompt(project: Project, model: ModelServer) -> None:
    """A command's calls are recorded, replayed in parallel without a model, and stale once a prompt has changed."""
    by_command(project, command())
    project.write("baselines/budget.toml", "schema = 1\n[default.caps]\nfanout = 3\n")
    recorded = project.pytest("--fanout-mode=record", "--fanout-trials=1")

    assert {t: (r["status"], r["samples"]["fanout"]) for t, r in trials(recorded).items()} == {
        "task-1": ("ok", 2),
        "task-2": ("ok", 3),
        "task-3": ("capped", 3),
    }, recorded.text
    assert len(model.generated) == 2 + 3 + 3
    model.restart()
    replayed = project.pytest("-n", "2")
    assert model.log == []
    for name in ("task", "status", "passed", "samples"):
        assert [t[name] for t in replayed.agent["tasks"]] == [t[name] for t in recorded.agent["tasks"]]
    project.edit("agent.py", "Plan briefly.", "Plan at length.")
    stale = project.pytest()
    assert (stale.verdict, model.log) == ("stale", [])
    changes = {change for t in stale.agent["tasks"] for change in t["stale"]["changes"]}
    assert len(changes) == 1
    assert "Plan at length." in changes.pop()


@pytest.mark.parametrize("way", ["Ctrl-C", "killed"])
def test_nothing_is_left_of_an_interrupted_run(way: str, project: Project, model: ModelServer) -> None:
    """When pytest is interrupted, or killed on the spot, the command dies with it, and what it has started too."""
    by_command(
        project,
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '300'])\n"
        "open('half', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "os.replace('half', 'pids')\n"
        "time.sleep(300)\n",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--fanout-budget", "--fanout-mode=live"],
        cwd=project.root,
        env=project.environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # a shell that runs these tests in the background has turned Ctrl-C off for all below it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )
    try:
        until = time.monotonic() + 60
        while not (pids := project.root / "pids").exists():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGINT if way == "Ctrl-C" else signal.SIGKILL)
        assert process.wait(30) == (2 if way == "Ctrl-C" else -signal.SIGKILL)
    finally:
        process.kill()

    assert all(is_gone(int(pid)) for pid in pids.read_text().split())


def test_command_that_is_not_there(project: Project) -> None:
    """A command that cannot be found is told before anything runs, with the key that names it."""
    project.write("pyproject.toml", settings(entrypoint="no-such-program agent.mjs"))
    result = project.pytest("--fanout-mode=live")

    assert result.verdict == "incomplete"
    text = (
        f"{project.root}/pyproject.toml: [tool.fanout.agents.support] entrypoint: 'no-such-program' is no program that "
        "can be run mend: install it, or name it by its path from the folder of this file, as ./agent "
        "see: docs/messages.md#command-not-found"
    )
    assert text in " ".join(result.out.split())


def test_extra_that_is_not_installed(project: Project) -> None:
    """Without the parts that the gateway stands on, the run ends at once as a usage error that names the extra."""
    project.write("conftest.py", "import sys\nsys.modules['aiohttp'] = None\n")
    by_command(project, command())
    result = project.pytest()

    assert result.exit == 4
    assert (
        "ERROR: the agent class support is measured through the gateway, which stands on aiohttp: it is not installed\n"
        "  mend: pip install 'pytest-fanout[gateway]'\n"
        "  see: docs/messages.md#gateway-not-installed\n"
    ) in result.err


def test_tools_of_a_command_behind_the_proxy(project: Project, model: ModelServer) -> None:
    """With proxy = true the HTTP of the command's tools is recorded and replayed too."""
    source = command(
        tail="with urllib.request.urlopen(os.environ['SHOP'] + '/tool/search?q=1') as found:\n"
        "        print(json.loads(found.read())['tool'])"
    )
    by_command(project, source, proxy=True)
    project.write_tasks({"task-1": {"ask": "question", "items": 0}}, expect="search")
    recorded = project.pytest("--fanout-mode=record", "--fanout-trials=1", SHOP=model.base_url)

    assert (trials(recorded)["task-1"]["status"], recorded.report["totals"]["other"]) == ("ok", 1), recorded.text
    assert [entry.path for entry in model.log] == ["/v1/chat/completions", "/tool/search"]
    model.restart()
    replayed = project.pytest(SHOP=model.base_url)
    assert (trials(replayed)["task-1"]["passed"], model.log) == (True, [])
