"""Each hook of hookspecs.py, implemented in a project's conftest.py."""

from __future__ import annotations

import re
from pathlib import Path

from model_server import ModelServer
from project import Project

WIRE = Path(__file__).resolve().parents[2] / "docs" / "wire.md"
EXAMPLE = re.findall(r"^```python\n(.*?)^```$", WIRE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[0]


def test_codecs_read_an_api_of_your_own(project: Project, model: ModelServer) -> None:
    """The very example of docs/wire.md makes an API of one's own a model endpoint, with its own usage."""
    project.edit("shop.py", "/chat/completions", "/../tool/oracle")
    project.write("conftest.py", EXAMPLE)
    used = {"prompt": 7, "written": 2}
    model.restart(lambda _: {"json": {"choices": [{"message": {"content": "yes"}}], "used": used}})
    result = project.pytest("--fanout-mode=record", "--fanout-trials=1")

    samples = {t["task"]: t["samples"] for t in result.agent["tasks"]}
    assert samples["task-2"]["fanout"] == 3, result.text
    assert samples["task-2"]["input_tokens"] == 21
    assert samples["task-2"]["output_tokens"] == 6
    assert result.agent["tasks"][0]["models_requested"] == ["m-x"]


def test_a_wrong_codec_is_a_usage_error(project: Project) -> None:
    """What is no list of codecs ends the run before it begins, in words and not in a traceback of pytest's."""
    project.write("conftest.py", "def pytest_fanout_codecs():\n    return 5\n")
    result = project.pytest()

    assert result.exit == 4
    assert (
        "ERROR: conftest.py:1: pytest_fanout_codecs returned a value of type int\n  mend: return a list of codecs\n"
        in result.err
    )
    assert "INTERNALERROR" not in result.text


def test_redact_runs_before_anything_is_stored(project: Project, model: ModelServer) -> None:
    """pytest_fanout_redact: what it replaces never reaches the disk, and replay still finds its recording."""
    project.write_tasks({"task-1": {"ask": "I am Mallory Canary", "items": 0}})
    project.write(
        "conftest.py",
        "from dataclasses import replace\n"
        "def pytest_fanout_redact(request, response):\n"
        "    clean = lambda b: b.replace(b'Mallory Canary', b'NAME')\n"
        "    return (replace(request, body=clean(request.body)),\n"
        "            replace(response, chunks=tuple(map(clean, response.chunks))))\n",
    )
    project.pytest("--fanout-mode=record", "--fanout-trials=1")

    stored = list(project.root.glob("fixtures/recordings/support/*/t*"))
    assert len(stored) == 1
    assert "Canary" not in stored[0].read_text()
    assert "NAME" in stored[0].read_text()
    model.restart()
    replayed = project.pytest()
    assert replayed.verdict == "no-baseline", replayed.text
    assert model.log == []


def test_cap_warning_while_the_task_runs(project: Project, model: ModelServer) -> None:
    """pytest_fanout_cap_warning: told at 80 % of a cap, before the cap is reached."""
    project.write("baselines/budget.toml", "schema = 1\n[default.caps]\nfanout = 5\n")
    project.write(
        "conftest.py",
        "def pytest_fanout_cap_warning(task, cap, share):\n    print(f'WARNED {task} {cap} {share:.2f}')\n",
    )
    result = project.pytest("--fanout-mode=record", "--fanout-trials=1", "-s")

    assert "WARNED" in result.out
    assert result.out.count("fanout 0.80") == 1  # only task-3 makes 4 of 5 calls
    assert "task-3" in result.out.split("WARNED")[1]


def test_task_finished_and_finished(project: Project) -> None:
    """pytest_fanout_task_finished gets each trial's record, pytest_fanout_finished the run and its verdict, once."""
    project.write(
        "conftest.py",
        "import pathlib\n"
        "def note(text):\n"
        "    with open('notes.txt', 'a') as f: f.write(text + '\\n')\n"
        "def pytest_fanout_task_finished(task_run):\n"
        "    note(f'{task_run.task} {task_run.samples[\"fanout\"]}')\n"
        "def pytest_fanout_finished(run, verdict):\n"
        "    note(f'{len(run.tasks)} {verdict.verdict} {pathlib.Path(\"fanout-report.json\").exists()}')\n",
    )
    project.pytest("--fanout-mode=record", "--fanout-trials=1")

    notes = (project.root / "notes.txt").read_text().splitlines()
    assert sorted(notes[:3]) == ["task-1 2", "task-2 3", "task-3 4"]
    assert notes[3:] == ["3 no-baseline True"]


def test_profiles_of_your_own(project: Project) -> None:
    """pytest_fanout_profiles: a fleet may name a profile that an outsider provides."""
    project.write(
        "conftest.py",
        "from pytest_fanout.capacity.profiles import Profile\n"
        "def pytest_fanout_profiles():\n"
        "    return [Profile(name='toaster', gpu='T-1', layout='TP1', prefill_tokens_per_s=10.0,\n"
        "                    decode_tokens_per_s=1.0, source='our bench')]\n",
    )
    project.write("baselines/fleet.toml", 'schema = 1\n[fleet]\nprofile = "toaster"\n')
    project.record_and_accept()
    result = project.pytest()

    assert "toaster" in result.out, result.text
