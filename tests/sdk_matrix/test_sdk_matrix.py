"""Real SDKs against servers that count: our numbers are theirs, exactly. README.md says how to run it."""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sdk_matrix import driving, environments, provider
from sdk_matrix.dialects.turns import Tokens
from sdk_matrix.matrix import CELLS, UNCOVERED, Cell, Pair, pairs_of

IS_FULL = os.environ.get("FANOUT_MATRIX") == "full"
HERE = Path(__file__).resolve().parent
#: What the matrix promises to hold; packages by their names on PyPI.
PROMISED = {
    *("openai", "anthropic", "google-genai", "mistralai", "cohere", "groq", "together", "ollama", "boto3", "litellm"),
    *("huggingface-hub", "openai-agents", "pydantic-ai-slim", "langchain", "langgraph", "smolagents", "crewai"),
    *("google-adk", "dspy", "llama-index-core", "strands-agents"),
}


@pytest.mark.parametrize("cell", [one for one in CELLS if one.is_core or IS_FULL], ids=lambda cell: cell.name)
def test_our_numbers_are_the_servers(cell: Cell, tmp_path: Path) -> None:
    """Model calls, attempts, tool calls by name and each kind of token, in every form and story of the cell."""
    python = driving.interpreter_for(cell) if IS_FULL else sys.executable

    assert driving.run(cell, python, tmp_path).faults == []


def test_the_matrix_holds_what_it_promises() -> None:
    """Each SDK and framework of the promise has a cell, and an environment that installs it."""
    assert {name for cell in CELLS for name in cell.distributions} >= PROMISED
    assert {cell.environment for cell in CELLS} == set(environments.requirements())


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_a_cell_has_its_dialect_and_its_agents(cell: Cell) -> None:
    """A cell that is in the table runs something: its agents and its server's dialect are there."""
    assert (HERE / "cells" / f"{cell.module}.py").exists()
    assert (HERE / "dialects" / f"{cell.dialect}_dialect.py").exists()
    assert any(why is None for _, why in pairs_of(cell))


def test_nothing_else_is_left_out() -> None:
    """Every reason in UNCOVERED still leaves something out; what has no reason is run."""
    left_out = {why for cell in CELLS for _, why in pairs_of(cell) if why is not None}

    assert left_out == set(UNCOVERED.values())


def test_an_environment_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the full matrix no SDK is skipped: the error names the command that builds its environment."""
    monkeypatch.setenv("FANOUT_MATRIX_ENVS", str(tmp_path))
    with pytest.raises(LookupError) as error:
        driving.interpreter_for(CELLS[0])

    assert str(error.value) == (
        f"openai-chat has no environment; build it by: python tests/sdk_matrix/build.py openai --into {tmp_path}"
    )


TRUTH = provider.Truth(
    calls=2,
    attempts=3,
    tool_calls={"price": 1, "stock": 1},
    tokens=Tokens(10, 4, None, 6, 2),
    hung_up=0,
    brought_results=True,
    statuses=(429, 200, 200),
)
EQUAL = {
    "fanout": 2,
    "attempts": 3,
    "tool_calls": 2,
    "tool_calls[price]": 1,
    "tool_calls[stock]": 1,
    "input_tokens": 10,
    "cached_input_tokens": 4,
    "cache_write_tokens": None,
    "output_tokens": 6,
    "reasoning_tokens": 2,
}


def _ours(**changed: Any) -> dict[str, Any]:
    return {"samples": {**EQUAL, **changed}, "logical_calls": 2, "problems": [], "error": None}


def test_equal_numbers_are_no_fault() -> None:
    """The comparison is quiet when there is nothing to say."""
    assert driving.faults_in(Pair("sync", "retry"), TRUTH, _ours()) == []


@pytest.mark.parametrize("name", EQUAL)
def test_each_number_is_compared(name: str) -> None:
    """One more than the server says is a fault, for every number; so is a known one that the server does not tell."""
    off = (EQUAL[name] or 0) + 1

    assert driving.faults_in(Pair("sync", "retry"), TRUTH, _ours(**{name: off})) == [
        f"{name}: the server says {EQUAL[name]}, we say {off}"
    ]


def test_a_retry_that_is_taken_for_a_call_is_a_fault() -> None:
    """The refused attempt reached no model, so only the logical calls show that it was not joined with its retry."""
    assert driving.faults_in(Pair("sync", "retry"), TRUTH, {**_ours(), "logical_calls": 3}) == [
        "logical calls: the server says 2, we say 3"
    ]


@pytest.mark.parametrize(
    ("pair", "truth", "fault"),
    [
        (Pair("sync", "retry"), replace(TRUTH, attempts=2), "nothing was retried"),
        (Pair("sync", "tools"), replace(TRUTH, brought_results=False), "no tool call went there and back"),
        (Pair("streamed", "early"), TRUTH, "the stream was read to its end"),
        (Pair("sync", "plain"), replace(TRUTH, calls=0), "the server answered no call"),
        (Pair("sync", "plain"), replace(TRUTH, statuses=(401,)), "the server refused a request: (401,)"),
    ],
    ids=["retry", "tools", "early", "no call", "key"],
)
def test_a_run_that_missed_its_story_proves_nothing(pair: Pair, truth: provider.Truth, fault: str) -> None:
    """Equal numbers do not help when the agent did not do what the story is about."""
    same = {**EQUAL, "fanout": truth.calls, "attempts": truth.attempts}

    assert driving.faults_in(pair, truth, {**_ours(), "samples": same, "logical_calls": truth.calls}) == [fault]


GENERATES = {
    "anthropic_messages": "/v1/messages",
    "bedrock": "/model/m/converse",
    "cohere": "/v2/chat",
    "gemini": "/v1/models/m:generateContent",
    "groq": "/openai/v1/chat/completions",
    "huggingface": "/v1/chat/completions",
    "mistral": "/v1/chat/completions",
    "ollama": "/api/chat",
    "openai_chat": "/v1/chat/completions",
    "openai_responses": "/v1/responses",
    "together": "/v1/chat/completions",
}


@pytest.mark.parametrize("dialect", sorted({cell.dialect for cell in CELLS}))
def test_a_wrong_key_is_refused(dialect: str) -> None:
    """Each server answers 401 to a key that is not the real one: a dummy that gets out by a bypass shows."""
    body = {"model": "m", "messages": [], "contents": [], "input": "x"}
    with provider.Provider(dialect, "plain", "right") as server:
        for key in ("right", "wrong"):
            headers = {"authorization": f"Bearer {key}", "content-type": "application/json", "connection": "close"}
            request = urllib.request.Request(server.url + GENERATES[dialect], json.dumps(body).encode(), headers)
            try:
                urllib.request.urlopen(request, timeout=10).read()
            except urllib.error.HTTPError as refused:
                refused.close()

    assert [heard.status for heard in server.log] == [200, 401]
    assert server.truth().calls == 1
