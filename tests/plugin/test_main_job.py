"""The whole job, as an engineer does it: record, accept, edit a prompt, go red, get it approved."""

from __future__ import annotations

from collections import Counter

import pytest
from model_server import ModelServer
from project import Project


def fanout_by_task(report: dict) -> dict[str, list[int]]:
    """Samples of the first class, as {task: [fanout of each trial]}."""
    out: dict[str, list[int]] = {}
    for trial in report["classes"][0]["tasks"]:
        out.setdefault(trial["task"], []).append(trial["samples"]["fanout"])
    return out


def test_recording_counts_what_the_server_saw(project: Project, model: ModelServer) -> None:
    """A recorded run counts each request that the model server counted, per task and trial, and each token."""
    result = project.pytest("--fanout-mode=record")

    # task n makes 1 + n calls; three tasks, five trials
    assert fanout_by_task(result.report) == {f"task-{n}": [1 + n] * 5 for n in (1, 2, 3)}
    assert len(model.generated) == 5 * (2 + 3 + 4)
    assert result.report["totals"]["calls"] == len(model.generated)
    assert result.report["totals"]["tokens"] == sum(e.usage["input"] + e.usage["output"] for e in model.generated)
    assert (result.verdict, result.exit) == ("no-baseline", 1)


def test_replay_reaches_no_server_and_gives_the_same_numbers(project: Project, model: ModelServer) -> None:
    """Replay sends nothing and reports the recorded samples, times included."""
    project.pytest("--fanout-mode=record")
    project.baseline("accept", "--reason", "the first anchor of this project", "--yes")
    recorded = project.commit("anchor") and project.pytest()
    model.restart()
    replayed = project.pytest()

    assert model.log == []
    assert (replayed.verdict, replayed.exit) == ("pass", 0)
    one, two = (
        [(t["task"], t["trial"], t["samples"]) for t in r.report["classes"][0]["tasks"]] for r in (recorded, replayed)
    )
    assert one == two
    assert "within budget" in replayed.out
    assert "GPU" in replayed.out


def test_from_edit_to_approval(accepted: Project, model: ModelServer) -> None:
    """A prompt edit is stale; recorded anew it is regressed; accepted it is still red; committed it is approved."""
    accepted.git("switch", "-q", "-c", "three-alternatives")
    accepted.edit("shop.py", 'PLANNER = "Plan briefly."', 'PLANNER = "Consider three alternatives."')
    accepted.edit("shop.py", "STEPS_PER_ITEM = 1", "STEPS_PER_ITEM = 3")
    accepted.commit("consider three alternatives")

    stale = accepted.pytest()
    assert (stale.verdict, stale.exit) == ("stale", 1)
    assert "task-1" in stale.out
    assert "Consider three alternatives." in stale.out
    assert "--fanout-mode=record" in stale.out

    red = accepted.pytest("--fanout-mode=record")
    # task n: 1 + n calls became 1 + 3n; p95 of three tasks is the largest: 4 -> 10
    metric = next(m for m in red.agent["metrics"] if m["name"] == "fanout.p95")
    assert (red.verdict, red.exit, metric["base"], metric["run"], metric["over"]) == ("regressed", 1, 4, 10, True)
    accepted.commit("new recordings")
    assert accepted.pytest().verdict == "regressed"

    accept = accepted.baseline("accept", "--reason", "three alternatives are worth their price", "--yes")
    assert accept.exit == 0, accept.text
    uncommitted = accepted.pytest()
    assert uncommitted.exit == 1
    assert uncommitted.report["outcome"] == "over"
    assert "next      git add baselines" in uncommitted.out

    accepted.commit("accept three alternatives")
    approved = accepted.pytest()
    assert (approved.verdict, approved.exit) == ("approved", 0)
    verify = accepted.baseline("verify", "--report", "fanout-report.json")
    assert verify.exit == 0, verify.text

    accepted.git("switch", "-q", "main")
    accepted.git("merge", "-q", "--no-ff", "three-alternatives")
    assert accepted.pytest().verdict == "pass"


@pytest.mark.slow
def test_xdist_gives_the_same_report(project: Project, model: ModelServer) -> None:
    """Under xdist the same tasks give the same numbers and the same verdict."""
    serial = project.pytest("--fanout-mode=record", "--fanout-trials=2")
    model.restart()
    parallel = project.pytest("--fanout-trials=2", "-n", "2")

    assert model.log == []
    assert (
        fanout_by_task(parallel.report)
        == fanout_by_task(serial.report)
        == {f"task-{n}": [1 + n] * 2 for n in (1, 2, 3)}
    )
    assert parallel.report["session"]["ran"] == 6


def test_recording_under_xdist_is_complete(project: Project, model: ModelServer) -> None:
    """Workers record side by side: every trial has its recording, and the server's count is ours."""
    result = project.pytest("--fanout-mode=record", "--fanout-trials=2", "-n", "2")

    assert result.report["totals"]["calls"] == len(model.generated) == 2 * (2 + 3 + 4)
    files = Counter(
        path.parent.name.rsplit("-", 1)[0] for path in project.root.glob("fixtures/recordings/support/*/t*")
    )
    assert files == {"task-1": 2, "task-2": 2, "task-3": 2}


def test_only_what_is_stale_is_recorded_anew(accepted: Project, model: ModelServer) -> None:
    """`record` runs the trials whose requests changed, and touches no other recording."""
    before = {p: p.read_bytes() for p in accepted.root.glob("fixtures/recordings/support/*/t*")}
    accepted.write_tasks(
        {f"task-{n}": {"ask": f"question {n}" if n != 2 else "another question", "items": n} for n in (1, 2, 3)}
    )
    model.restart()

    accepted.pytest("--fanout-mode=record")

    after = {p: p.read_bytes() for p in accepted.root.glob("fixtures/recordings/support/*/t*")}
    changed = {p.parent.name.rsplit("-", 1)[0] for p in before if before[p] != after.get(p)}
    assert changed == {"task-2"}
    assert len(model.generated) == 5 * 3


def test_live_mode_leaves_recordings_alone(project: Project, model: ModelServer) -> None:
    """`live` measures the agent as it is now: five trials, nothing stored."""
    result = project.pytest("--fanout-mode=live")

    assert result.report["totals"]["calls"] == len(model.generated) == 5 * (2 + 3 + 4)
    assert not (project.root / "fixtures/recordings").exists()


def test_marked_tests_are_tasks_too(project: Project, model: ModelServer) -> None:
    """A marked test is measured by its trials under its own id, and its fixture shows the running counts."""
    project.write(
        "test_shop.py",
        "import pytest, shop\n\n"
        '@pytest.mark.fanout(agent="support")\n'
        "def test_refund(fanout_meter):\n"
        "    shop.answer({'ask': 'refund', 'items': 2})\n"
        "    assert fanout_meter.fanout == 3\n\n"
        '@pytest.mark.fanout(agent="support", task="cancel")\n'
        '@pytest.mark.parametrize("_word", ["a"])\n'
        "def test_cancel(_word):\n"
        "    shop.answer({'ask': 'cancel', 'items': 1})\n\n"
        "def test_unmarked():\n"
        "    raise AssertionError('must not run')\n",
    )
    result = project.pytest("--fanout-mode=record", "--fanout-trials=2")

    counted = fanout_by_task(result.report)
    assert counted["test_shop.py::test_refund"] == [3, 3]
    assert counted["cancel"] == [2, 2]
    assert "must not run" not in result.out
    assert result.report["session"]["deselected"] == 0
    model.restart()
    assert fanout_by_task(project.pytest().report) == counted
    assert model.log == []


def test_marked_tests_without_the_flag_are_ordinary_tests(project: Project, model: ModelServer) -> None:
    """Without --fanout-budget nothing is judged or written; the fixture still counts for its own assertion."""
    project.write(
        "test_shop.py",
        "import pytest, shop\n\n"
        '@pytest.mark.fanout(agent="support")\n'
        "def test_refund(fanout_meter):\n"
        "    shop.answer({'ask': 'refund', 'items': 2})\n"
        "    assert fanout_meter.fanout == 3\n",
    )
    result = project.run(*_pytest(), "-q")

    assert result.exit == 0, result.text
    assert "1 passed" in result.out
    assert len(model.generated) == 3
    assert not (project.root / "fanout-report.json").exists()


def test_the_fixture_can_fail_a_test(project: Project) -> None:
    """An assertion on the meter that does not hold fails the ordinary test."""
    project.write(
        "test_shop.py",
        "import pytest, shop\n\n"
        '@pytest.mark.fanout(agent="support")\n'
        "def test_refund(fanout_meter):\n"
        "    shop.answer({'ask': 'refund', 'items': 2})\n"
        "    assert fanout_meter.fanout < 3\n",
    )
    assert project.run(*_pytest(), "-q").exit == 1


def test_measure_outside_pytest(project: Project, model: ModelServer) -> None:
    """`measure()` counts calls, attempts and tokens of a block, `aside()` keeps a grader's calls apart."""
    script = (
        "import pytest_fanout, shop\n"
        "with pytest_fanout.measure(agent='support', task='refund') as run:\n"
        "    shop.answer({'ask': 'refund', 'items': 2})\n"
        "    with pytest_fanout.aside('judge'):\n"
        "        shop.answer({'ask': 'was it good?', 'items': 0})\n"
        "print(run.fanout, run.attempts, len(run.calls), run.tokens)\n"
    )
    result = project.run(_pytest()[0], "-c", script)

    tokens = sum(e.usage["input"] + e.usage["output"] for e in model.generated[:3])
    assert result.out.split() == ["3", "3", "3", str(tokens)], result.text
    assert len(model.generated) == 4


def test_async_entry_points_and_checks(project: Project, model: ModelServer) -> None:
    """An async entry point is awaited; `check` decides whether a trial passed, and its calls are aside."""
    project.edit("pyproject.toml", 'entrypoint = "shop:answer"', 'entrypoint = "shop:later"\ncheck = "shop:polite"')
    project.write(
        "shop.py",
        (project.root / "shop.py").read_text()
        + "\n\nasync def later(task):\n    return answer(task)\n\n\n"
        + "def polite(task, said):\n    answer({'ask': 'grade ' + said, 'items': 0})\n    return task.id != 'task-2'\n",
    )
    result = project.pytest("--fanout-mode=record", "--fanout-trials=1")

    passed = {t["task"]: t["passed"] for t in result.agent["tasks"]}
    assert passed == {"task-1": True, "task-2": False, "task-3": True}
    assert fanout_by_task(result.report) == {"task-1": [2], "task-2": [3], "task-3": [4]}
    assert result.report["totals"]["aside"] == 3


def _pytest() -> tuple[str, ...]:
    import sys

    return (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
@pytest.mark.slow
def test_the_real_sdks(project: Project, model: ModelServer, sdk: str) -> None:
    """Plain and streamed calls of the real SDKs are counted and replayed; the server's count is ours."""
    project.write("shop.py", OPENAI_AGENT if sdk == "openai" else ANTHROPIC_AGENT)
    recorded = project.pytest("--fanout-mode=record", "--fanout-trials=1")

    assert fanout_by_task(recorded.report) == {"task-1": [2], "task-2": [2], "task-3": [2]}, recorded.text
    assert len(model.generated) == 6
    assert recorded.report["totals"]["tokens"] == sum(e.usage["input"] + e.usage["output"] for e in model.generated)
    model.restart()
    replayed = project.pytest("--fanout-trials=1")
    assert fanout_by_task(replayed.report) == fanout_by_task(recorded.report)
    assert model.log == []


OPENAI_AGENT = """\
from openai import OpenAI

client = OpenAI()


def answer(task):
    said = client.chat.completions.create(model="m-x", messages=[{"role": "user", "content": task["ask"]}])
    parts = []
    with client.chat.completions.create(
        model="m-x", stream=True, stream_options={"include_usage": True},
        messages=[{"role": "user", "content": said.choices[0].message.content}],
    ) as stream:
        for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                parts.append(chunk.choices[0].delta.content)
    return "".join(parts)
"""

ANTHROPIC_AGENT = """\
from anthropic import Anthropic

client = Anthropic()


def answer(task):
    said = client.messages.create(model="m-x", max_tokens=64, messages=[{"role": "user", "content": task["ask"]}])
    with client.messages.stream(
        model="m-x", max_tokens=64, messages=[{"role": "user", "content": said.content[0].text}]
    ) as stream:
        return "".join(stream.text_stream)
"""
