"""An agent on aiohttp through the real plugin: recorded, accepted, replayed without a network, stale once changed."""

from __future__ import annotations

from model_server import ModelServer
from project import Project

AGENT = '''\
"""An agent that asks a model, looks something up over HTTP, and reads the last answer as a stream."""
import json
import os

import aiohttp

SYSTEM = "Plan briefly."
URL = os.environ["OPENAI_BASE_URL"]


def asked(messages, **more):
    return {"model": "m-x", "messages": [{"role": "system", "content": SYSTEM}, *messages], **more}


async def answer(task):
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    async with aiohttp.ClientSession(headers=headers, raise_for_status=True) as session:
        messages = [{"role": "user", "content": task["ask"]}]
        async with session.post(URL + "/chat/completions", json=asked(messages)) as response:
            messages.append((await response.json())["choices"][0]["message"])
        async with session.get(URL.removesuffix("/v1") + "/tool/look", params={"q": task["ask"]}) as response:
            found = (await response.json())["query"]
        messages.append({"role": "user", "content": found})
        body = asked(messages, stream=True, stream_options={"include_usage": True})
        said = ""
        async with session.post(URL + "/chat/completions", json=body) as response:
            async for line in response.content:
                if line.startswith(b"data: {"):
                    choices = json.loads(line[6:])["choices"]
                    said += choices[0]["delta"].get("content", "") if choices else ""
        return said
'''


def test_an_aiohttp_agent_from_recording_to_verdict(project: Project, model: ModelServer) -> None:
    """It is measured as the server counted it; its replay passes with equal numbers; a changed prompt is stale."""
    project.write("shop.py", AGENT)
    project.write_tasks({"one": {"ask": "a b"}, "two": {"ask": "c"}}, expect={"matches": "echo: q=[a-c+]+"})
    project.commit("an agent on aiohttp")
    real = {"OPENAI_API_KEY": "sk-real-openai"}
    recorded = project.pytest("--fanout-mode=record", "--fanout-trials=1", **real)
    sent = list(model.log)
    accepted = project.baseline("accept", "--reason", "the first anchor of this project", "--yes")
    project.commit("accept")
    project.git("switch", "-q", "-c", "work")
    project.commit("work")
    replayed = project.pytest()
    project.edit("shop.py", "Plan briefly.", "Plan at length.")
    project.commit("another prompt")
    changed = project.pytest()

    assert (recorded.verdict, accepted.exit) == ("no-baseline", 0), recorded.text + accepted.text
    assert [entry.path for entry in sent] == ["/v1/chat/completions", "/tool/look", "/v1/chat/completions"] * 2
    assert {entry.headers["authorization"] for entry in sent} == {"Bearer sk-real-openai"}
    assert recorded.report is not None
    totals = recorded.report["totals"]
    assert (totals["calls"], totals["attempts"]) == (4, 4)
    assert totals["tokens"] == sum(entry.usage["input"] + entry.usage["output"] for entry in sent if entry.usage)
    assert (replayed.verdict, replayed.exit) == ("pass", 0), replayed.text
    assert replayed.report is not None
    assert replayed.report["totals"] == totals
    assert (changed.verdict, changed.exit) == ("stale", 1), changed.text
    assert len(model.log) == len(sent)
