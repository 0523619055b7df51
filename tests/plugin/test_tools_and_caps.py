"""Tools of an agent are recorded with it; caps stop a task from outside; failures stay in the numbers."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest
from model_server import ModelServer
from project import Project

TOOL_AGENT = """\
import os
import httpx

SEARCH = "/tool/search?q={word}"


def answer(task):
    base = os.environ["OPENAI_BASE_URL"]
    with httpx.Client(verify=False) as client:
        found = client.get(base.removesuffix("/v1") + SEARCH.format(word=task["ask"].replace(" ", "+"))).text
        said = client.post(base + "/chat/completions", json={
            "model": "m-x", "messages": [{"role": "user", "content": f"{task['ask']} {found}"}]})
        return said.json()["choices"][0]["message"]["content"]
"""


def trials(result: object) -> dict[str, dict]:
    """The first trial of each task."""
    return {t["task"]: t for t in result.agent["tasks"] if t["trial"] == 1}  # type: ignore[attr-defined]


def test_the_http_of_tools_is_replayed_and_is_no_fanout(project: Project, model: ModelServer) -> None:
    """A tool's answer comes from the recording: the server sees neither tool nor model, and only the model counts."""
    project.write("shop.py", TOOL_AGENT)
    recorded = project.pytest("--fanout-mode=record", "--fanout-trials=1")

    assert len(model.generated) == 3
    assert len(model.log) == 6
    assert recorded.report["totals"]["calls"] == 3
    assert recorded.report["totals"]["other"] == 3
    model.restart()
    replayed = project.pytest()
    assert model.log == []
    assert replayed.report["totals"] == recorded.report["totals"]


def test_a_changed_tool_request_is_stale_and_named_as_a_tools(project: Project) -> None:
    """A tool that asks something else is not answered from the old recording."""
    project.write("shop.py", TOOL_AGENT)
    project.pytest("--fanout-mode=record", "--fanout-trials=1")
    project.edit("shop.py", "/tool/search?q=", "/tool/lookup?q=")
    result = project.pytest()

    assert result.verdict == "stale"
    stale = [t["stale"] for t in result.agent["tasks"]]
    assert {(note["role"], note["call"]) for note in stale} == {("tool", 1)}
    assert "tool" in result.out


SQL_AGENT = """\
import os
import sqlite3
import httpx
import pytest_fanout

CUSTOMER = "ann"


@pytest_fanout.recorded(ignore="connection")
def orders(connection, customer):
    return connection.execute("select count(*) from orders where customer = ?", (customer,)).fetchone()


def answer(task):
    connection = sqlite3.connect("shop.db")
    try:
        (count,) = orders(connection, CUSTOMER)
    except sqlite3.OperationalError as error:
        count = str(error)
    finally:
        connection.close()
    with httpx.Client(verify=False) as client:
        said = client.post(
            os.environ["OPENAI_BASE_URL"] + "/chat/completions",
            json={"model": "m-x", "messages": [{"role": "user", "content": f"{task['ask']}: {count}"}]},
            headers={"authorization": "Bearer none"},
        )
        return said.json()["choices"][0]["message"]["content"]
"""


def test_a_database_is_recorded_with_the_trial(project: Project, model: ModelServer) -> None:
    """In replay neither model nor database is asked, so a changed table changes nothing; another query is a tool's."""
    project.write("shop.py", SQL_AGENT)
    with closing(sqlite3.connect(project.root / "shop.db")) as database:
        database.execute("create table orders (customer text)")
        database.execute("insert into orders values ('ann')")
        database.commit()
    recorded = project.pytest("--fanout-mode=record", "--fanout-trials=1")
    (project.root / "shop.db").unlink()
    model.restart()
    replayed = project.pytest()
    project.edit("shop.py", '"ann"', '"bob"')
    changed = project.pytest()

    assert recorded.report is not None
    assert (recorded.report["totals"]["calls"], len(model.log)) == (3, 0)
    assert {t: r["samples"] for t, r in trials(replayed).items()} == {
        t: r["samples"] for t, r in trials(recorded).items()
    }
    assert {r["status"] for r in trials(replayed).values()} == {"ok"}
    assert changed.verdict == "stale"
    assert {(n["stale"]["role"], n["stale"]["call"]) for n in trials(changed).values()} == {("tool", 1)}
    assert 'tool shop.orders: customer: "ann" -> "bob"' in changed.out


def test_a_cap_stops_a_runaway_task(project: Project, model: ModelServer) -> None:
    """A18: an endless agent that swallows every error sends exactly as many calls as the cap allows, and is kept."""
    project.write("baselines/budget.toml", "schema = 1\n[default.caps]\nfanout = 7\n")
    project.edit("shop.py", 'for step in range(task["items"] * STEPS_PER_ITEM):', "for step in range(10**9):")
    result = project.pytest("--fanout-mode=record", "--fanout-trials=1")

    assert len(model.generated) == 3 * 7
    assert {(t["status"], t["capped"], t["samples"]["fanout"]) for t in result.agent["tasks"]} == {
        ("capped", "fanout", 7)
    }
    assert result.exit == 1
    model.restart()
    again = project.pytest()
    assert {t["samples"]["fanout"] for t in again.agent["tasks"]} == {7}
    assert model.log == []


def test_a_cap_counts_children_of_a_task(project: Project, model: ModelServer) -> None:
    """A19: threads that a task starts share its allowance."""
    project.write("baselines/budget.toml", "schema = 1\n[default.caps]\nfanout = 10\n")
    project.write_tasks({"task-1": {"ask": "question", "items": 1}})
    project.edit(
        "shop.py",
        '        for step in range(task["items"] * STEPS_PER_ITEM):\n',
        "        import threading\n"
        "        def child(n):\n"
        "            for step in range(6):\n"
        "                ask(client, 'Child.', f'{n} {step}')\n"
        "        children = [threading.Thread(target=child, args=(n,)) for n in range(3)]\n"
        "        [c.start() for c in children]\n"
        "        [c.join() for c in children]\n"
        "        for step in range(0):\n",
    )
    result = project.pytest("--fanout-mode=live", "--fanout-trials=1", "-p", "no:threadexception")

    assert len(model.generated) == 10, result.text
    assert trials(result)["task-1"]["status"] == "capped"
    assert trials(result)["task-1"]["samples"]["fanout"] == 10


def test_a_failing_agent_keeps_its_calls(project: Project, model: ModelServer) -> None:
    """A task whose agent raises stays in the distribution with all that it had sent."""
    project.edit("shop.py", "        return said\n", "        raise RuntimeError('no answer today')\n")
    result = project.pytest("--fanout-mode=record", "--fanout-trials=1")

    assert {t: (r["status"], r["passed"], r["samples"]["fanout"]) for t, r in trials(result).items()} == {
        f"task-{n}": ("failed", False, 1 + n) for n in (1, 2, 3)
    }
    assert "no answer today" in trials(result)["task-1"]["error"]


def test_failures_that_the_anchor_holds_are_xfailed(project: Project) -> None:
    """A trial that fails as in the baseline is reported as xfailed: pytest is green, and so is the gate."""
    project.edit("shop.py", "        return said\n", "        raise RuntimeError('no answer today')\n")
    project.pytest("--fanout-mode=record", "--fanout-trials=2")
    assert project.baseline("accept", "--reason", "the first anchor of this project", "--yes").exit == 0
    project.commit("accepted")
    project.git("switch", "-q", "-c", "work")
    project.commit()
    result = project.pytest()

    assert "6 xfailed" in result.out
    assert (result.verdict, result.exit) == ("pass", 0)


def test_a_failure_shows_the_agents_own_frames(gated: Project) -> None:
    """What fails against the anchor is shown where the agent raised it, without the frames of gate and pytest above."""
    gated.edit("shop.py", "        return said\n", "        raise RuntimeError('no answer today')\n")
    gated.commit()
    result = gated.pytest("-k", "task-1 and t1")

    assert re.search(
        r"^shop\.py:[0-9]+: in answer\n    raise RuntimeError\('no answer today'\)$", result.out, re.MULTILINE
    )
    assert [word for word in ("items.py", "pluggy/", "_pytest") if word in result.out] == []


@pytest.mark.slow
def test_a_retried_call_is_one_call_and_two_attempts(project: Project, model: ModelServer) -> None:
    """A 429 that the SDK retries is one model call of two attempts, live and in replay, without waiting again."""
    project.write_tasks({"task-1": {"ask": "question", "items": 0}})
    project.write(
        "shop.py",
        "from openai import OpenAI\n"
        "client = OpenAI()\n"
        "def answer(task):\n"
        "    said = client.chat.completions.create(model='m-x', messages=[{'role': 'user', 'content': task['ask']}])\n"
        "    return said.choices[0].message.content\n",
    )
    model.restart([{"status": 429, "retry_after": 1}])
    recorded = project.pytest("--fanout-mode=record", "--fanout-trials=1")
    model.restart()
    replayed = project.pytest()

    for result in (recorded, replayed):
        samples = trials(result)["task-1"]["samples"]
        assert (samples["fanout"], samples["attempts"]) == (1, 2), result.text
    assert model.log == []
