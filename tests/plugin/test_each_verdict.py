"""Each verdict, made by a real pytest on a real git repository, with its outcome and exit codes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from model_server import ModelServer
from project import Project, Result

from pytest_fanout.records import Approval
from pytest_fanout.store.approvals import approval_name, write_approval


def triple(result: Result, project: Project) -> tuple[str, str, int, int]:
    """Verdict, outcome, pytest's exit, and the exit of `fanout-baseline verify` on the same commit."""
    verify = project.baseline("verify", "--report", "fanout-report.json")
    assert result.report is not None, result.text
    return result.verdict, str(result.report["outcome"]), result.exit, verify.exit


def test_pass(gated: Project) -> None:
    """Same draw, nothing changed: within budget."""
    assert triple(gated.pytest(), gated) == ("pass", "within", 0, 0)


def test_pass_on_main_is_not_a_gate_result(gated: Project) -> None:
    """Where base equals HEAD pytest exits by its verdict, and verify refuses to call it a gate result."""
    gated.git("switch", "-q", "main")
    result = gated.pytest()

    assert triple(result, gated) == ("pass", "within", 0, 4)
    assert "not a gate result" in result.out


def test_stale(gated: Project) -> None:
    """A changed request is not answered from an old recording: not measured."""
    gated.edit("shop.py", "Plan briefly.", "Plan at length.")
    gated.commit()
    result = gated.pytest()

    assert triple(result, gated) == ("stale", "not_measured", 1, 3)
    assert "Plan at length." in result.out


def test_more_calls_than_recorded(gated: Project) -> None:
    """A7: calls beyond the recording are counted and named, and nothing is served twice."""
    gated.edit("shop.py", "        return said\n", "        ask(client, PLANNER, task['ask'])\n        return said\n")
    gated.commit()
    result = gated.pytest()

    assert result.verdict == "stale"
    assert "fanout rose" in " ".join(result.out.split())
    (changes,) = {tuple(t["stale"]["changes"]) for t in result.agent["tasks"] if t["task"] == "task-3"}
    assert changes == ("at least 5 calls of POST /v1/chat/completions, 4 recorded: fanout rose",)


def test_fewer_calls_than_recorded(gated: Project) -> None:
    """A7: leftovers are reported, and the numbers fall truthfully."""
    gated.edit("shop.py", 'range(task["items"] * STEPS_PER_ITEM)', 'range(task["items"] * STEPS_PER_ITEM - 1)')
    gated.commit()
    result = gated.pytest()

    trial = next(t for t in result.agent["tasks"] if t["task"] == "task-3")
    assert (trial["samples"]["fanout"], trial["leftover"]) == (3, 1)


def test_no_baseline(project: Project) -> None:
    """No anchor in HEAD's tree: not measured, with the command that accepts one."""
    project.pytest("--fanout-mode=record")
    project.commit("recordings")
    result = project.pytest()

    assert triple(result, project)[:3] == ("no-baseline", "not_measured", 1)
    assert "fanout-baseline accept" in result.out


def test_first_anchor_is_approved(project: Project) -> None:
    """A first anchor with its approval, committed on a branch, is approved."""
    project.git("switch", "-q", "-c", "first")
    project.record_and_accept()

    assert triple(project.pytest(), project) == ("approved", "within", 0, 0)


def test_unapproved_anchor(granted: Project) -> None:
    """An anchor that got looser without an approval is over budget, even when the run reproduces it."""
    for path in (granted.root / "baselines/approvals").glob("*.json"):
        if "first" not in path.name:
            path.unlink()
    granted.commit()

    assert triple(granted.pytest(), granted) == ("unapproved", "over", 1, 1)


def test_unapproved_budget(gated: Project) -> None:
    """A looser budget without an approval is over budget."""
    gated.write(
        "baselines/budget.toml", 'schema = 1\n[default.limits]\n"fanout.p95" = { increase = "90%", at_least = 1 }\n'
    )
    gated.commit()

    assert triple(gated.pytest(), gated) == ("unapproved", "over", 1, 1)


def test_regressed(grown: Project) -> None:
    """Fanout above its limit without an approval is over budget, and the report says what it costs in GPUs, and why."""
    grown.commit("recordings")
    result = grown.pytest()

    assert triple(result, grown) == ("regressed", "over", 1, 1)
    assert "4" in result.out
    assert "10" in result.out
    assert "GPU" in result.out
    assert '100 % of the growth in calls: "Work.": called more often' in result.out


def test_approval_of_one_growth_does_not_cover_a_bigger_one(granted: Project) -> None:
    """Ceilings bind: an approval of x3 does not let x9 pass."""
    granted.edit("shop.py", "STEPS_PER_ITEM = 3", "STEPS_PER_ITEM = 9")
    granted.pytest("--fanout-mode=record", "--fanout-trials=1")
    granted.commit()

    assert granted.pytest().exit == 1


def test_mismatch(granted: Project) -> None:
    """An anchor whose recordings are gone cannot be reproduced: accept again."""
    granted.pytest("--fanout-mode=rerecord")
    granted.commit()
    result = granted.pytest()

    assert triple(result, granted) == ("mismatch", "over", 1, 1)
    assert "fanout-baseline accept" in result.out


def test_inconclusive_new_draw_of_few_tasks(gated: Project) -> None:
    """A new draw of fewer than ten tasks is never shown to be within budget."""
    gated.pytest("--fanout-mode=rerecord")
    gated.commit()

    assert triple(gated.pytest(), gated) == ("inconclusive", "over", 1, 1)


def test_invalid_without_a_call(gated: Project) -> None:
    """A6: an agent that makes no model call has no fanout of zero; it was not measured."""
    gated.write("shop.py", "def answer(task):\n    return 'from a cache'\n")
    gated.commit()
    result = gated.pytest()

    assert triple(result, gated)[:3] == ("invalid", "not_measured", 1)
    assert "no model call was counted in" in result.out


def test_no_calls_may_be_declared(project: Project, model: ModelServer) -> None:
    """A task whose line says no_calls may make none."""
    project.write_tasks({"faq": {"ask": "opening hours", "items": 0}}, no_calls=True)
    project.write("shop.py", "def answer(task):\n    return 'nine to five'\n")
    project.record_and_accept()
    project.git("switch", "-q", "-c", "work")
    project.commit()

    assert project.pytest().verdict == "pass"
    assert model.log == []


def test_invalid_with_traffic_past_the_hooks(gated: Project, model: ModelServer) -> None:
    """A6: an agent that also uses a stack we do not count is invalid, and host and caller are named."""
    gated.edit(
        "shop.py",
        "        return said\n",
        "        import socket, urllib.parse\n"
        "        peer = urllib.parse.urlsplit(os.environ['OPENAI_BASE_URL'])\n"
        "        try:\n"
        "            socket.create_connection((peer.hostname, peer.port)).close()\n"
        "        except OSError:\n"
        "            pass\n"
        "        return said\n",
    )
    gated.commit()
    model.restart()
    result = gated.pytest()

    assert triple(result, gated)[:3] == ("invalid", "not_measured", 1)
    assert f"127.0.0.1:{model.port}" in result.out
    assert "shop.py" in result.out
    assert model.log == []  # in replay the connection was not let through


def test_invalid_with_an_api_that_no_codec_reads(project: Project, model: ModelServer) -> None:
    """A generation endpoint that no codec reads is never a silent zero."""
    project.edit("shop.py", "/chat/completions", "/../v2/chat")
    project.commit()
    result = project.pytest("--fanout-mode=record", "--fanout-trials=1")

    assert (result.verdict, result.exit) == ("invalid", 1)


@pytest.mark.parametrize("selection", [("-k", "task-1"), ("--fanout-agent=nobody",)])
def test_incomplete_in_ci(gated: Project, selection: tuple[str, ...]) -> None:
    """A12: with CI set, a selection that leaves tasks out is incomplete."""
    result = gated.pytest(*selection, CI="true")

    assert result.report is not None
    assert result.verdict in ("incomplete", "no-base")
    assert result.exit != 0


def test_partial_on_a_developers_machine(gated: Project) -> None:
    """A12: locally what ran is judged, the report says partial, and nothing can be accepted from it."""
    before = (gated.root / "baselines/support.json").read_bytes()
    result = gated.pytest("-k", "task-1")

    assert (result.verdict, result.exit) == ("pass", 0)
    assert "partial 1/3" in result.out
    assert gated.baseline("accept", "--reason", "a partial run cannot be accepted", "--yes").exit != 0
    assert (gated.root / "baselines/support.json").read_bytes() == before


def test_incomplete_when_stopped_early(gated: Project) -> None:
    """A12: `-x` after a failure is not a partial run: tasks are missing."""
    gated.edit(
        "shop.py",
        "        for step",
        "        assert task['items'] != 1\n        for step",
    )
    gated.commit()
    result = gated.pytest("-x")

    assert (result.verdict, result.exit) == ("incomplete", 1)


@pytest.mark.slow
def test_incomplete_after_a_crashed_worker(gated: Project) -> None:
    """A11: a worker that dies loses its task; the run names it, keeps the others, leaves the baseline alone."""
    before = (gated.root / "baselines/support.json").read_bytes()
    gated.edit(
        "shop.py",
        "def answer(task):\n",
        "def answer(task):\n    if task['items'] == 2:\n        os.kill(os.getpid(), 9)\n",
    )
    gated.commit()
    result = gated.pytest("-n", "2")

    assert result.report is not None, result.text
    assert (result.verdict, result.report["outcome"]) == ("incomplete", "not_measured")
    assert result.exit != 0
    assert "task-2" in result.out
    assert "INTERNALERROR" not in result.text
    assert {t["task"] for t in result.agent["tasks"]} >= {"task-1", "task-3"}
    assert (gated.root / "baselines/support.json").read_bytes() == before


def test_incomplete_when_a_task_is_gone(gated: Project) -> None:
    """A task of the anchor that left the eval set is missing until its removal is approved."""
    gated.write_tasks({"task-1": {"ask": "question 1", "items": 1}})
    gated.commit()

    assert triple(gated.pytest(), gated)[:3] == ("incomplete", "not_measured", 1)


def test_integrity(gated: Project) -> None:
    """A baseline edited by hand is told by its digest."""
    path = gated.root / "baselines/support.json"
    path.write_text(path.read_text().replace('"fanout":[4,4,4,4,4]', '"fanout":[9,9,9,9,9]'))
    gated.commit()
    result = gated.pytest()

    assert triple(result, gated) == ("integrity", "not_measured", 1, 4)
    assert "baselines/support.json" in result.out


def test_integrity_of_a_recording(gated: Project) -> None:
    """A recording edited by hand is named, not replayed."""
    path = sorted(gated.root.glob("fixtures/recordings/support/task-3-*/t2*"))[0]
    path.write_text(path.read_text().replace("echo", "ohce"))
    gated.commit()
    result = gated.pytest()

    assert triple(result, gated)[:3] == ("integrity", "not_measured", 1)
    assert "task-3" in result.out


def test_no_base_in_ci(gated: Project, tmp_path: Path) -> None:
    """In CI without an event base, a shallow clone has nothing to compare with, and says how to fetch it."""
    shallow = tmp_path / "shallow"
    gated.git("switch", "-q", "main")
    gated.git("clone", "-q", "--depth", "1", "--branch", "work", f"file://{gated.root}", str(shallow))
    result = gated.pytest(cwd=shallow, CI="true")

    assert (result.verdict, result.exit) == ("no-base", 1)
    assert "fetch-depth: 0" in result.out


def test_no_base_without_git(gated: Project) -> None:
    """Without a repository there is no base."""
    import shutil

    shutil.rmtree(gated.root / ".git")
    result = gated.pytest()

    assert (result.verdict, result.exit) == ("no-base", 1)


def test_waived(grown: Project) -> None:
    """A committed waiver in force lets a class pass, and the first line says so."""
    now = int(time.time())
    waiver = Approval(
        path="",
        kind="waiver",
        subject="support",
        from_digest=None,
        to_digest=None,
        evalset=None,
        ceilings={},
        changes=(),
        reason="the incident needs this fix tonight, see the incident log",
        requested_by="dana@example.com",
        requested_on=time.strftime("%Y-%m-%d", time.gmtime(now)),
        nonce="0123456789abcdef",
        expires_at=now + 3600,
    )
    grown.write(f"baselines/approvals/{approval_name(waiver, 2)}", write_approval(waiver).decode())
    grown.commit()
    result = grown.pytest()

    assert triple(result, grown)[:3] == ("waived", "waived", 0)


def test_shard(gated: Project) -> None:
    """A shard exits 0 when its tasks were measured, is no pass, and verify refuses it."""
    results = [gated.pytest(f"--fanout-shard={i}/2") for i in (1, 2)]

    ran = [{t["task"] for t in r.agent["tasks"]} if r.report["classes"] else set() for r in results]
    assert ran[0] | ran[1] == {"task-1", "task-2", "task-3"}
    assert not ran[0] & ran[1]
    measured = [r for r, tasks in zip(results, ran, strict=True) if tasks]
    assert [(r.verdict, r.exit) for r in measured] == [("shard", 0)] * len(measured)
    assert gated.baseline("verify", "--report", "fanout-report.json").exit != 0


def test_collect_only_neither_gates_nor_reports(gated: Project) -> None:
    """`--collect-only` lists the items, one a task and trial, and writes no report."""
    result = gated.pytest("--collect-only", "-q")

    assert "support::task-1::t1" in result.out
    assert result.exit == 0
    assert result.report is None


def test_a_failing_item_fails_pytest(gated: Project) -> None:
    """A trial that fails where the anchor has its task passing fails its item."""
    gated.write_tasks({f"task-{n}": {"ask": f"question {n}", "items": n} for n in (1, 2, 3)}, expect="unheard of")
    gated.commit()
    result = gated.pytest()

    assert result.exit == 1
    assert "15 failed" in result.out


def test_an_agent_that_calls_xfail_fails(gated: Project) -> None:
    """`pytest.xfail()` in an agent is a failed trial: its item fails where the anchor has the task passing."""
    gated.edit("shop.py", "        return said\n", "        import pytest; pytest.xfail('not today')\n")
    gated.commit()
    result = gated.pytest()

    assert triple(result, gated)[2:] == (1, 1)
    assert {trial["status"] for trial in result.agent["tasks"]} == {"failed"}
    assert "called pytest.xfail: not today" in result.out


def test_limits_of_a_class_that_is_nowhere(gated: Project) -> None:
    """A misspelt class in budget.toml is no silent gap: what it was to limit has not been limited."""
    gated.write("baselines/budget.toml", 'schema = 1\n[agents.suport.limits]\n"fanout.p95" = { max = 1 }\n')
    gated.commit()
    result = gated.pytest()

    assert triple(result, gated) == ("invalid", "not_measured", 1, 3)
    assert [problem["text"] for problem in result.report["problems"] if problem["slug"] == "budget-of-no-class"] == [
        "budget.toml has an entry for suport, and no class is called so: it limits nothing; "
        "mend: name one of support in [agents.<class>]"
    ]
