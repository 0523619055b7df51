"""Secrets put wherever a user could have them: none is in what a run, a command or an import writes or says."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest
from model_server import Logged, ModelServer, Rule
from project import Project, Result

#: Redacted where they stand, so that the task is recorded: by name of the header, query key, field or cookie.
QUIET = {
    name: f"canary-{name}-0123456789"
    for name in (
        *("key", "header", "cookie", "query", "body", "nested", "listed", "form", "multipart", "url"),
        *("heard", "heard-cookie", "heard-link", "heard-nested"),
    )
}
#: Values of environment variables: found wherever they stand, so that the recording is refused.
LOUD = {name: f"canary-{name}-9876543210" for name in ("prompt", "encoded", "result", "raised", "printed", "spelled")}
SHAPED = "sk-proj-" + "Canary0123456789abcdef"

AGENT = """
import base64
import json
import logging
import os
import sys
import warnings
import httpx
import pytest_fanout

BASE = os.environ["OPENAI_BASE_URL"]
C = {name: os.environ["CANARY_" + name.upper().replace("-", "_") + "_TOKEN"] for name in %(loud)r}
Q = %(quiet)r


def ask(client, text, **more):
    said = client.post(
        BASE + "/chat/completions", params={"api_key": Q["query"]},
        headers={"cookie": "session=" + Q["cookie"], "x-secret": Q["header"],
                 "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
        json={"model": "m", "password": Q["body"], "messages": [
            {"role": "user", "content": text},
            {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {
                "name": "login", "arguments": json.dumps({"client_secret": Q["nested"], "user": "dana"})}}]},
            {"role": "tool", "content": json.dumps({"raw": json.dumps({"api_key": [Q["listed"]]})})},
        ], **more},
    )
    said.raise_for_status()
    return said


@pytest_fanout.recorded
def lookup(sku):
    return {"sku": sku, "note": C["result"]}


def answer(task):
    with httpx.Client(verify=False) as client:
        if task == "quiet":
            host = BASE.removesuffix("/v1").replace("://", "://dana:" + Q["url"] + "@")
            client.post(host + "/tool/form", data={"password": Q["form"]})
            client.post(host + "/tool/parts", files={"secret": (None, Q["multipart"])})
            return ask(client, "hello").json()["choices"][0]["message"]["content"]
        if task == "prompt":
            return ask(client, "use " + C["prompt"]).text
        if task == "shaped":
            return ask(client, "use %(shaped)s").text
        if task == "encoded":
            return ask(client, "file: " + base64.b64encode(b"x=" + C["encoded"].encode()).decode()).text
        if task == "result":
            return ask(client, "sku " + lookup("a-1")["sku"]).text
        if task == "spelled":
            return ask(client, "say it", stream=True).text
        ask(client, "hello")
        print("about to fail", C["printed"])
        print("about to fail", C["printed"], file=sys.stderr)
        warnings.warn("about to fail " + C["printed"])
        logging.getLogger("shop").error("about to fail %%s", C["printed"])
        raise RuntimeError("x" * 270 + C["raised"])
"""  # the last error is cut off in the middle of its secret

CHILD = """
import os, sys
print(os.environ["CANARY_PRINTED_TOKEN"])
sys.exit("it failed with " + os.environ["CANARY_RAISED_TOKEN"])
"""

SETTINGS = """
[tool.fanout.agents.child]
entrypoint = "python child.py"
evalset = "fixtures/child.jsonl"

[tool.fanout.agents.shop]
entrypoint = "shop:answer"
evalset = "fixtures/shop.jsonl"
"""

CASSETTE = f"""
version: 1
interactions:
- request:
    method: POST
    uri: https://api.openai.com/v1/chat/completions?key={QUIET["query"]}
    body: '{{"model":"m","password":"{QUIET["body"]}","messages":[{{"role":"user","content":"hello"}}]}}'
    headers: {{authorization: ["Bearer {QUIET["key"]}"], cookie: ["a={QUIET["cookie"]}"]}}
  response:
    status: {{code: 200, message: OK}}
    headers: {{content-type: [application/json], set-cookie: ["s={QUIET["heard-cookie"]}"]}}
    body: {{string: '{{"choices":[{{"message":{{"content":"hi","access_token":"{QUIET["heard"]}"}}}}]}}'}}
"""


def server_rule(entry: Logged) -> Rule:
    if entry.path == "/tool/form":
        link = f'<http://x.example/?page=2&api_key={QUIET["heard-link"]}>; rel="next"'
        return {
            "json": {"access_token": QUIET["heard"], "inner": json.dumps({"password": QUIET["heard-nested"]})},
            "headers": {"set-cookie": f"s={QUIET['heard-cookie']}", "link": link},
        }
    if entry.json and entry.json.get("stream"):
        return {"text": LOUD["spelled"]}
    return {}


class Seen:
    """All that was said, by step."""

    def __init__(self) -> None:
        self.results: dict[str, Result] = {}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, Seen]]:
    with ModelServer(server_rule) as model:
        project = Project(tmp_path_factory.mktemp("canaries"), model.base_url)
        project.lay_out()
        project.write("pyproject.toml", SETTINGS)
        project.write("shop.py", AGENT % {"loud": tuple(LOUD), "quiet": QUIET, "shaped": SHAPED})
        project.write("child.py", CHILD)
        project.write("fixtures/child.jsonl", '{"id": "one", "input": 1}\n')
        tasks = ("quiet", "prompt", "shaped", "encoded", "result", "spelled", "raised")
        project.write("fixtures/shop.jsonl", "".join(f'{{"id": "{t}", "input": "{t}"}}\n' for t in tasks))
        project.write("cassettes/test_old/test_tape.yaml", CASSETTE)
        project.environ |= {"OPENAI_API_KEY": QUIET["key"]}
        project.environ |= {f"CANARY_{name.upper()}_TOKEN": value for name, value in LOUD.items()}
        project.commit()
        steps = Seen()
        run = (
            "--fanout-trials=1",
            "--junitxml=junit.xml",
            "-rA",
            "--showlocals",
            "--log-file=log.txt",
            "--log-cli-level=ERROR",
        )
        steps.results["record"] = project.pytest("--fanout-mode=record", "-n1", *run)
        project.root.joinpath("fanout-report.json").rename(project.root / "first-report.json")
        project.root.joinpath("junit.xml").rename(project.root / "first-junit.xml")
        steps.results["replay"] = project.pytest("--fanout-agent=shop", *run)
        steps.results["show"] = project.baseline("show", "--recording", "quiet", "--full")
        steps.results["verify"] = project.baseline("verify")
        reason = f"because {LOUD['prompt']} and {SHAPED}"
        steps.results["accept"] = project.baseline("accept", "--yes", "--reason", reason)
        steps.results["import"] = project.baseline("import-cassettes", "cassettes", "--agent", "old")
        yield project, steps


def forms(secret: str) -> list[str]:
    """A secret as it stands, its first half as a report might cut it, and in base64 at each place of three bytes."""
    encoded = [base64.b64encode(b"x" * at + secret.encode()).decode()[4:-4] for at in range(3)]
    return [secret, secret[: len(secret) // 2 + 3], *encoded]


def test_no_secret_is_in_anything_that_was_written_or_said(seen: tuple[Project, Seen]) -> None:
    """Files of every step, JUnit and JSON reports, terminals and messages, with xdist, locals and captured output."""
    project, steps = seen
    sources = {"shop.py", "test_tape.yaml"}
    written = {
        str(path.relative_to(project.root)): path.read_bytes().decode("utf-8", "replace")
        for path in sorted(project.root.rglob("*"))
        if path.is_file() and path.name not in sources and ".git" not in path.parts
    }
    said = {step: result.text for step, result in steps.results.items()}
    found = [
        (where, name)
        for where, text in {**written, **said}.items()
        for name, secret in {**QUIET, **LOUD, "shaped": SHAPED}.items()
        if any(form in text for form in forms(secret))
    ]

    assert found == []
    recorded = {name.split("/")[3].rpartition("-")[0] for name in written if name.startswith("fixtures/recordings/")}
    assert recorded == {"quiet", "raised", "test-old-py-test-tape"}


def test_what_was_refused_and_what_was_masked_is_told(seen: tuple[Project, Seen]) -> None:
    """Five recordings hold what cannot be taken out; two agents fail with a secret in their words."""
    _, steps = seen
    report = steps.results["record"].report
    assert report is not None
    trials = [trial for agent in report["classes"] for trial in agent["tasks"]]
    refused = {t["task"] for t in trials for p in t["problems"] if p["slug"] == "secret-in-recording"}
    masked = {t["task"] for t in trials for p in t["problems"] if p["slug"] == "secret-masked"}

    assert refused == {"prompt", "shaped", "encoded", "result", "spelled"}
    assert {"raised", "one"} <= masked
    assert {t["task"]: t["error"][-8:] for t in trials if t["error"]}["raised"] == "[masked]"
    assert (steps.results["show"].exit, steps.results["import"].exit) == (0, 0), steps.results["import"].text
