"""Agents in other processes for the tests: a command line and a server, small and in plain Python, on real SDKs."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from typing import Any

from project import Project

#: Reads its task from stdin, plans, takes a step for each item, and writes its answer; `ASK` is how it calls.
COMMAND = """\
import json, os, sys
{head}

def main():
    task = json.load(sys.stdin)
    said = ask("Plan briefly.", task["ask"])
    for step in range(task["items"]):
        said = ask("Work.", f"{{task['ask']}} step {{step}}")
    {tail}

main()
"""

BY_OPENAI = """\
from openai import OpenAI
client = OpenAI()
def ask(system, text):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    return client.chat.completions.create(model="m-x", messages=messages).choices[0].message.content
"""

BY_ANTHROPIC = """\
from anthropic import Anthropic
client = Anthropic()
def ask(system, text):
    messages = [{"role": "user", "content": text}]
    return client.messages.create(model="m-x", max_tokens=99, system=system, messages=messages).content[0].text
"""

#: As fast as it gets: no SDK, which takes half a second to import.
BY_URLLIB = """\
import urllib.request
def ask(system, text):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "m-x", "messages": messages}).encode(),
        {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]
"""

SERVER = """\
import json, os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
{head}

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(404)
        self.end_headers()

    def do_POST(self):
        task = json.loads(self.rfile.read(int(self.headers["content-length"])))
        key = self.headers["x-fanout-key"]
        said = ask("Plan briefly.", task["ask"])
        for step in range(task["items"]):
            said = ask("Work.", f"{{task['ask']}} step {{step}}")
        {tail}

    def reply(self, said, status=200):
        body = said.encode() if isinstance(said, str) else json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""


def command(head: str = BY_URLLIB, tail: str = "print(said)") -> str:
    return COMMAND.format(head=head, tail=tail)


def server(head: str = BY_URLLIB, tail: str = "self.reply(said)") -> str:
    return SERVER.format(head=head, tail=tail)


def settings(name: str = "support", evalset: str = "fixtures/support.jsonl", **entry: Any) -> str:
    """One table of agents; lists and texts as TOML."""
    lines = [f"[tool.fanout.agents.{name}]", f"evalset = {json.dumps(evalset)}"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in entry.items()]
    return "\n".join(lines) + "\n"


def by_command(project: Project, source: str, **entry: Any) -> None:
    """Make the project's agent a command of this source."""
    project.write("agent.py", source)
    project.write("pyproject.toml", settings(entrypoint=[sys.executable, "agent.py"], **entry))


def by_server(project: Project, source: str, **entry: Any) -> None:
    """Make it a server of this source."""
    project.write("server.py", source)
    entry.setdefault("post", "/chat")
    project.write("pyproject.toml", settings(serve=[sys.executable, "server.py"], **entry))


def trials(result: Any) -> dict[str, dict[str, Any]]:
    """The first trial of each task."""
    return {t["task"]: t for t in result.agent["tasks"] if t["trial"] == 1}


def told(result: Any, *slugs: str) -> list[dict[str, Any]]:
    """Problems and notices of these kinds, of the run and of its classes."""
    report = result.report
    found = [*report["problems"], *report["notices"], *(p for agent in report["classes"] for p in agent["problems"])]
    return [problem for problem in found if problem["slug"] in slugs]


def ask_from_here(text: str) -> None:
    """One model call as the environment of this process says, by the standard library."""
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "m-x", "messages": [{"role": "user", "content": text}]}).encode(),
        {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    with urllib.request.urlopen(request) as answer:
        answer.read()
