"""Agents on requests, urllib.request and boto3, recorded and replayed by the real plugin."""

from __future__ import annotations

from typing import Any

from model_server import Logged, ModelServer
from project import Project

SETTINGS = "\n".join(
    f'[tool.fanout.agents.{name}]\nentrypoint = "shop:by_{name}"\nevalset = "fixtures/support.jsonl"\n'
    for name in ("requests", "urllib", "boto3")
)

AGENTS = '''\
"""One agent on three stacks: a tool first, then the model with what the tool has found."""
import json
import os

BASE = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")


def body(text, **more):
    return {"model": "m-x", "messages": [{"role": "user", "content": text}], **more}


def by_requests(task):
    import requests

    with requests.Session() as session:
        session.headers["authorization"] = "Bearer " + os.environ["OPENAI_API_KEY"]
        found = session.get(BASE + "/tool/search", params={"q": task["ask"]}).json()["query"]
        asked = body(task["ask"] + " " + found, stream=True, stream_options={"include_usage": True})
        said = ""
        with session.post(BASE + "/v1/chat/completions", json=asked, stream=True) as answer:
            for line in answer.iter_lines():
                if line.startswith(b"data: {"):
                    said += "".join(one["delta"].get("content") or "" for one in json.loads(line[6:])["choices"])
        return said


def by_urllib(task):
    import urllib.request

    with urllib.request.urlopen(BASE + "/tool/look?n=" + str(task["items"])) as answer:
        found = json.load(answer)["query"]
    asked = urllib.request.Request(BASE + "/v1/chat/completions", json.dumps(body(task["ask"] + found)).encode())
    with urllib.request.urlopen(asked) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def by_boto3(task):
    import boto3

    client = boto3.client("bedrock-runtime", region_name="us-east-1", endpoint_url=BASE)
    asked = [{"role": "user", "content": [{"text": task["ask"]}]}]
    return client.converse(modelId="m-x", messages=asked)["output"]["message"]["content"][0]["text"]
'''


def answers(entry: Logged) -> dict[str, Any] | None:
    if not entry.path.startswith("/model/"):
        return None
    text = entry.json["messages"][0]["content"][0]["text"]
    message = {"role": "assistant", "content": [{"text": f"heard {text}"}]}
    usage = {"inputTokens": 4, "outputTokens": 3, "totalTokens": 7}
    return {"json": {"output": {"message": message}, "stopReason": "end_turn", "usage": usage}}


def test_agents_of_three_stacks_are_recorded_and_replayed(project: Project, model: ModelServer) -> None:
    """Record and replay give the same numbers for each stack, tools included, and a replay reaches no server."""
    model.restart(answers)
    project.write("pyproject.toml", SETTINGS)
    project.write("shop.py", AGENTS)
    project.write_tasks({"one": {"ask": "where is it", "items": 1}}, expect="where is it")
    project.commit("three stacks")
    keys = {"OPENAI_API_KEY": "sk-real-1234567890", "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "example-key"}
    recorded = project.pytest("--fanout-mode=record", "--fanout-trials=2", **keys)
    asked = [(entry.path, entry.headers.get("authorization", "")[:14]) for entry in model.log]

    assert sorted(set(asked)) == [
        ("/model/m-x/converse", "AWS4-HMAC-SHA2"),
        ("/tool/look", ""),
        ("/tool/search", "Bearer sk-real"),
        ("/v1/chat/completions", ""),
        ("/v1/chat/completions", "Bearer sk-real"),
    ]
    assert len(asked) == 2 * 5
    assert recorded.report["totals"]["calls"] == 2 * 3
    assert recorded.report["totals"]["attempts"] == 2 * 3
    assert recorded.report["totals"]["other"] == 2 * 2

    model.restart()
    replayed = project.pytest(**{name: value for name, value in keys.items() if name.startswith("AWS")})

    assert model.log == []
    assert replayed.report["totals"] == recorded.report["totals"]
    for before, after in zip(recorded.report["classes"], replayed.report["classes"], strict=True):
        assert [task["samples"] for task in after["tasks"]] == [task["samples"] for task in before["tasks"]]
        assert {task["passed"] for task in after["tasks"]} == {True}
    stored = "".join(path.read_text(encoding="utf-8") for path in project.root.rglob("*.jsonl"))
    assert "sk-real" not in stored
    assert "AKID" not in stored
