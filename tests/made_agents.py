"""Trials of agents that are made by hand, call by call, as the meter would have recorded them.

A character is a token: a request's input is the length of its prompt, turns and tool definitions, an answer's output
the length of its text, so that every expected figure can be counted in the test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_fanout.explain.explain import Side
from pytest_fanout.explain.visits import visited_trial
from pytest_fanout.meter.samples import measure_trial, turns_of
from pytest_fanout.records import Exchange, HttpAnswer, HttpRequest
from pytest_fanout.wire.transcript import read_prompt

URL = "https://api.openai.com/v1/chat/completions"
JSON = (("content-type", "application/json"),)


def tool(name: str, text: str = "Finds pages.") -> dict[str, Any]:
    """The definition of a tool with one argument."""
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": text, "parameters": schema}}


@dataclass
class Made:
    """One trial. Calls are made one after the other, 100 ms each, unless ``at`` says when."""

    task: str
    trial: int = 1
    exchanges: list[Exchange] = field(default_factory=list)
    clock: int = 0

    def call(
        self,
        system: str,
        turns: Sequence[str | dict[str, Any]],
        answer: str = "done",
        *,
        tools: Sequence[dict[str, Any]] = (),
        uses: Sequence[str] = (),
        model: str = "m-1",
        cached: int = 0,
        reasoning: int = 0,
        status: int = 200,
        at: int | None = None,
        sdk: str = "",
        served: str | None = None,
        spent: int | None = None,
        **settings: Any,
    ) -> dict[str, Any]:
        """Ask and be answered; gives the assistant's message to send back.

        Texts among ``turns`` are the user's. ``uses``: the tools that the answer asks for, by name. ``spent``: input
        tokens, where a character is no token.
        """
        said = [turn if isinstance(turn, dict) else {"role": "user", "content": turn} for turn in turns]
        if system:
            said.insert(0, {"role": "system", "content": system})
        body: dict[str, Any] = {"model": model, "messages": said, **settings}
        if tools:
            body["tools"] = list(tools)
        message: dict[str, Any] = {"role": "assistant", "content": answer}
        number = len(self.exchanges)
        if uses:
            message["tool_calls"] = [
                {"id": f"c{number}-{n}", "type": "function", "function": {"name": name, "arguments": "{}"}}
                for n, name in enumerate(uses)
            ]
        sent = json.dumps(body, sort_keys=True).encode()
        usage = {
            "prompt_tokens": length(sent) if spent is None else spent,
            "completion_tokens": len(answer) + reasoning,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
        heard: dict[str, Any] = {"error": {"message": "busy"}}
        if status == 200:
            finish = "tool_calls" if uses else "stop"
            heard = {
                "id": f"r{number}",
                "object": "chat.completion",
                "model": served or model,
                "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                "usage": usage,
            }
        start = self.clock if at is None else at
        self.clock = max(self.clock, start + 100)
        headers = (*JSON, ("user-agent", sdk)) if sdk else JSON
        request = HttpRequest("POST", URL, headers, sent)
        answered = HttpAnswer(status, JSON, (json.dumps(heard).encode(),), (100,), 100)
        self.exchanges.append(Exchange(number, "httpx", "model", "agent", request, answered, start))
        return message


def length(body: bytes) -> int:
    """Characters of a request, as they are told apart by what they are."""
    prompt = read_prompt(body)
    texts = ["\n".join(prompt.system), *("\n".join(message.texts) for message in prompt.messages)]
    return sum(map(len, (*texts, *(definition for _, definition in prompt.tools))))


def result(call: Mapping[str, Any], text: str, which: int = 0) -> dict[str, Any]:
    """The result of a tool call that an assistant's message asks for."""
    return {"role": "tool", "tool_call_id": call["tool_calls"][which]["id"], "content": text}


def side(
    agent: Callable[[Made], None],
    tasks: Sequence[str] = ("a", "b", "c", "d"),
    trials: int = 1,
    version: str | None = None,
) -> Side:
    """An agent run on some tasks, as one side of an explanation."""
    samples: dict[str, list[Mapping[str, int | None]]] = {}
    visited = []
    for task in tasks:
        for number in range(1, trials + 1):
            made = Made(task, number)
            agent(made)
            samples.setdefault(task, []).append(measure_trial(made.exchanges, made.clock).samples)
            visited.append(visited_trial(task, number, turns_of(made.exchanges), version=version))
    return Side(samples, visited, dict.fromkeys(tasks))
