"""Whole agents on real SDKs in processes of their own: our numbers are those of the server's log, exactly."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from gatewaying import Child, behind
from model_server import Logged, ModelServer

from pytest_fanout.meter import Measured

#: One task on both SDKs: planned by chat with a tool, which is asked over HTTP, drafted by a streamed Responses call,
#: checked by a streamed Anthropic call, with a 429 that the SDK itself retries.
AGENT = """
import json, sys
import anthropic, httpx, openai

tools_at = sys.argv[1]
schema = {"type": "object", "properties": {"q": {"type": "string"}}}
with openai.OpenAI() as one, anthropic.Anthropic() as two, httpx.Client() as web:
    messages = [{"role": "user", "content": "refund my order"}]
    tools = [{"type": "function", "function": {"name": "find", "parameters": schema}}]
    said = one.chat.completions.create(model="m-chat", messages=messages, tools=tools).choices[0].message
    messages.append(said.model_dump(exclude_none=True))
    for call in said.tool_calls:
        found = web.post(tools_at + call.function.name, json=json.loads(call.function.arguments)).json()
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(found["got"])})
    said = one.chat.completions.create(model="m-chat", messages=messages, tools=tools).choices[0].message
    with one.responses.stream(model="m-draft", input=said.content) as stream:
        draft = stream.get_final_response().output_text
    with two.messages.stream(model="m-check", max_tokens=99, messages=[{"role": "user", "content": draft}]) as stream:
        print(stream.get_final_text())
"""
SCRIPT: list[dict[str, Any]] = [
    {"tool_calls": [{"name": "find", "arguments": {"q": "a"}}, {"name": "find", "arguments": {"q": "b"}}]},
    {},
    {},
    {"status": 429, "headers": {"retry-after-ms": "1"}},
    {"text": "you get it back", "usage": {"input": 40, "cached": 30, "output": 9, "reasoning": 4}},
    {"text": "a draft of four", "usage": {"cached": 1}},
    {"text": "all is well", "usage": {"input": 50, "cached": 20, "cache_write": 10, "output": 7}},
]


def run(child: Child, code: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=child.env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def truth(model: ModelServer) -> dict[str, int]:
    """What the server's own log says."""
    answered = [entry for entry in model.generated if entry.usage]

    def total(name: str) -> int:
        return sum(entry.usage[name] for entry in answered if entry.usage)

    return {
        "fanout": sum(entry.status == 200 for entry in model.generated),
        "attempts": len(model.generated),
        "tool_calls": sum(len(entry.tool_calls) for entry in model.generated),
        "input_tokens": total("input"),
        "cached_input_tokens": total("cached"),
        "output_tokens": total("output"),
    }


def seen(measured: Measured) -> dict[str, int | None]:
    names = ("fanout", "attempts", "tool_calls", "input_tokens", "cached_input_tokens", "output_tokens")
    return {name: measured.samples[name] for name in names}


@pytest.mark.slow
def test_a_python_agent_with_tools(model: ModelServer) -> None:
    """openai and anthropic, plain and streamed, tools over HTTP through the proxy, and a retry of the SDK's own: calls,
    attempts, tool calls and each token count are the server's."""
    model.restart(SCRIPT)
    with behind(model, proxy=True, OPENAI_API_KEY="sk-o", ANTHROPIC_API_KEY="sk-a") as child:
        said = run(child, AGENT, model.base_url + "/tool/")
        measured = child.close()

    tools = [entry for entry in model.log if not entry.dialect]
    assert said == "all is well\n"
    assert seen(measured) == truth(model)
    assert truth(model) == {
        "fanout": 4, "attempts": 5, "tool_calls": 2, "input_tokens": 3 + 40 + 4 + 50, "cached_input_tokens": 51,
        "output_tokens": 20,
    }  # fmt: skip
    assert measured.other == len(tools) == 2
    assert (child.slugs, measured.models_served) == ([], ("m-chat", "m-check", "m-draft"))
    assert {key_of(entry) for entry in model.generated} == {"sk-o", "sk-a"}


def key_of(entry: Logged) -> str:
    return entry.headers.get("x-api-key") or entry.headers["authorization"].removeprefix("Bearer ")


EARLY = """
import openai
with openai.OpenAI() as client:
    for event in client.chat.completions.create(
        model="m", stream=True, stream_options={"include_usage": True}, messages=[{"role": "user", "content": "hi"}]
    ):
        if event.choices and event.choices[0].delta.content:
            break
    event = None
    said = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "again"}])
    print(said.choices[0].message.content)
"""


def test_a_stream_that_an_agent_leaves_early(model: ModelServer) -> None:
    """It is a call whose tokens are not known, never one of zero tokens; the next call is counted as ever."""
    model.restart([{"text": "one two three four five", "chunk_delay_s": 0.2}, {}])
    with behind(model) as child:
        said = run(child, EARLY)
        measured = child.close()

    assert said == "echo: again\n"
    assert (measured.samples["fanout"], measured.samples["attempts"], len(model.generated)) == (2, 2, 2)
    assert (measured.samples["input_tokens"], measured.unknown_usage) == (None, 1)
    assert child.trace is not None
    assert [exchange.answer.outcome for exchange in child.trace.exchanges] == ["closed_early", "complete"]
