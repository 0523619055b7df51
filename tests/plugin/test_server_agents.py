"""An agent that is a server: started once a measuring process, asked for each task, counted, capped and stopped."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from model_server import ModelServer
from outside import BY_OPENAI, BY_URLLIB, by_server, server, settings, told, trials
from project import Project
from test_command_agents import is_gone

pytestmark = pytest.mark.slow

LOOP = """\
while task["id"] == "goes-on":
            try:
                ask("Again.", "and again")
            except BaseException:
                continue
        self.reply(said)"""
#: Hands the key of its task on with each call; what it does for the first task comes to an end only amid the second.
FORWARDS = """\
import json, os, threading, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

second_is_here, late_has_called = threading.Event(), threading.Event()

def ask(key, text):
    body = json.dumps({"model": "m-x", "messages": [{"role": "user", "content": text}]}).encode()
    urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, {
        "content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
        "x-fanout-key": key})).read()

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(404)

    def do_POST(self):
        task = json.loads(self.rfile.read(int(self.headers["content-length"])))
        key = self.headers["x-fanout-key"]
        ask(key, task["ask"])
        if task["ask"] == "second":
            second_is_here.set()
            late_has_called.wait(30)
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
        self.wfile.flush()
        if task["ask"] == "first":
            second_is_here.wait(30)
            ask(key, "late")
            late_has_called.set()

    def log_message(self, *_):
        pass

ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""
SOURCES: dict[str, str] = {
    "text": server(tail="self.reply('zwei Sätze und é')"),
    "object": server(BY_OPENAI, tail="self.reply({'said': said, 'port': self.server.server_port})"),
    "errors": server(tail="self.reply('no such order', 404)"),
    "crashes": server(
        tail="if task['id'] == 'boom': print('out of memory', file=sys.stderr, flush=True); os._exit(5)\n"
        "        self.reply(said)"
    ),
    "hangs-up": server(tail="return"),
    "goes-on": server(tail=LOOP),
    "sleeps": server(tail="import time\n        if task['id'] == 'sleeps': time.sleep(300)\n        self.reply(said)"),
    "dies": "echo no config >&2; exit 2\n",
    "deaf": "import time\ntime.sleep(300)\n",
    "warms-up": server(BY_URLLIB + "ask('Hello.', 'warm up')\n"),
}
BUDGET = """\
schema = 1
[agents.sleeps.caps]
wall_seconds = 2
[agents.goes-on.caps]
fanout = 5
"""


def write_server(project: Project, name: str, source: str, ids: list[str], **entry: Any) -> str:
    project.write(f"{name}.py", source)
    lines = (json.dumps({"id": i, "input": {"id": i, "ask": f"question {i}", "items": 1}}) for i in ids)
    project.write(f"fixtures/{name}.jsonl", "".join(line + "\n" for line in lines))
    program = "sh" if source.startswith("echo") else sys.executable
    return settings(name, f"fixtures/{name}.jsonl", serve=[program, f"{name}.py"], post="/chat", **entry)


def test_how_servers_answer_fail_and_are_stopped(project: Project, model: ModelServer) -> None:
    """Texts, JSON, error answers, crashes, caps, servers that never get ready: each trial says what became of it."""
    second = {"crashes": "boom", "goes-on": "goes-on", "sleeps": "sleeps"}
    tables = ""
    for name, source in SOURCES.items():
        ids = [second[name], "after"] if name in second else ["first"]
        entry = {"ready_seconds": 1} if name == "deaf" else {}
        tables += write_server(project, name, source, ids, **entry)
    project.write("pyproject.toml", tables)
    project.write("baselines/budget.toml", BUDGET)
    result = project.pytest("--fanout-mode=live", "--fanout-trials=1")
    found = {t["task"]: t for agent in result.report["classes"] for t in agent["tasks"] if t["task"] in second.values()}
    found |= {agent["name"]: agent["tasks"][0] for agent in result.report["classes"] if agent["name"] not in second}
    after = {agent["name"]: t for agent in result.report["classes"] for t in agent["tasks"] if t["task"] == "after"}

    assert {name: (t["status"], t["passed"], t["samples"]["fanout"]) for name, t in found.items()} == {
        **dict.fromkeys(("text", "object", "warms-up"), ("ok", True, 2)),
        **dict.fromkeys(("errors", "boom", "hangs-up"), ("failed", False, 2)),
        "sleeps": ("timeout", False, 2),
        "goes-on": ("capped", False, 5),
        **dict.fromkeys(("dies", "deaf"), ("failed", False, 0)),
    }, result.text
    assert {name: (t["status"], t["samples"]["fanout"]) for name, t in after.items()} == dict.fromkeys(
        second, ("ok", 2)
    )
    errors = {name: t["error"] for name, t in found.items() if t["error"]}
    assert errors["errors"].endswith("answered 404 to POST /chat: no such order")
    assert "exited with 5 while it answered; its last lines on stderr: out of memory" in errors["boom"]
    assert "gave no answer to POST /chat: RemoteDisconnected: Remote end closed connection" in errors["hangs-up"]
    assert errors["goes-on"].startswith("pytest-fanout: 'goes-on' of goes-on reached its cap fanout = 5: ")
    assert errors["sleeps"].startswith("pytest-fanout: 'sleeps' of sleeps reached its cap wall_seconds = 2: ")
    problems = {p["agent"]: p for p in told(result, "server-not-ready")}
    assert set(problems) == {"dies", "deaf"}
    mend = "\n  mend: run it by hand with PORT set, or raise ready_seconds of its settings"
    assert problems["dies"]["text"] == (
        f"the server sh dies.py exited with 2 before it was ready; its last lines on stderr:\nno config{mend}"
    )
    assert problems["deaf"]["text"].endswith(f" within 1 seconds, and wrote nothing to stderr{mend}")
    assert result.report["totals"]["aside"] == 1  # what the server asked while it was started
    assert (result.report["totals"]["late"], result.report["totals"]["unattributed"]) == (0, 0)
    assert told(result, "child-process", "unhooked-peer") == []


def test_record_replay_in_parallel_and_a_changed_prompt(project: Project, model: ModelServer) -> None:
    """A server's tasks replay without a model, one server a worker, and none is left; a changed prompt is stale.

    Where it records there are two: another one proves."""
    source = server().replace("class Handler", "open(f'server-{os.getpid()}', 'w').close()\n\nclass Handler")
    by_server(project, source)
    recorded = project.pytest("--fanout-mode=record", "--fanout-trials=1")

    fanout = {f"task-{n}": ("ok", 1 + n) for n in (1, 2, 3)}
    assert {t: (r["status"], r["samples"]["fanout"]) for t, r in trials(recorded).items()} == fanout, recorded.text
    assert len(list(project.root.glob("server-*"))) == 2
    model.restart()
    replayed = project.pytest("-n", "2")
    assert model.log == []
    for name in ("task", "status", "passed", "samples"):
        assert [t[name] for t in replayed.agent["tasks"]] == [t[name] for t in recorded.agent["tasks"]]
    servers = [int(file.name.rpartition("-")[2]) for file in project.root.glob("server-*")]
    assert len(servers) == 4
    assert all(map(is_gone, servers))
    project.edit("server.py", "Plan briefly.", "Plan at length.")
    stale = project.pytest()
    assert (stale.verdict, model.log) == ("stale", [])


def test_calls_that_come_after_the_answer(project: Project, model: ModelServer) -> None:
    """A server that hands the key of its task on can be told apart: what it calls after its answer is late."""
    by_server(project, FORWARDS)
    project.write_tasks({"task-1": {"ask": "first"}, "task-2": {"ask": "second"}})
    result = project.pytest("--fanout-mode=live", "--fanout-trials=1")

    assert {t: r["samples"]["fanout"] for t, r in trials(result).items()} == {"task-1": 1, "task-2": 1}, result.text
    assert (result.report["totals"]["late"], result.verdict) == (1, "invalid")
    assert [problem["task"] for problem in told(result, "late-call")] == ["task-1"]
    assert len(model.generated) == 3
    assert not any("x-fanout-key" in entry.headers for entry in model.log)
