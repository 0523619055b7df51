"""The name of the agent that is at work, as OpenAI Agents and OpenTelemetry give it, names the site of a call."""

from __future__ import annotations

import sys
import types
from typing import Any

import httpx2
import pytest
from metering import chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.meter.agent_names import agent_name


def ask(url: str, text: str) -> None:
    with httpx2.Client(verify=False) as client:
        client.post(url + "/v1/chat/completions", json=chat(text))


@pytest.mark.slow
def test_an_agent_of_openai_agents_names_its_calls(model: ModelServer) -> None:
    """Also one inside another; the library's own tracing may be switched off, as it is here."""
    agents = pytest.importorskip("agents", reason="the extra `named`")
    from openai import AsyncOpenAI

    async def agent() -> None:
        async with AsyncOpenAI(base_url=f"{model.base_url}/v1", api_key="x", max_retries=0) as client:
            asked = agents.OpenAIChatCompletionsModel(model="small", openai_client=client)
            await agents.Runner.run(agents.Agent(name="Planner", model=asked), "plan")
            with agents.agent_span("Editor"):
                await agents.Runner.run(agents.Agent(name="Critic of all", model=asked), "criticise")
                ask(model.base_url, "edit")
            ask(model.base_url, "after")

    agents.set_tracing_disabled(True)
    with metering() as meter:
        result = run_task(meter, agent)

    assert result.error is None
    assert [one.site for one in result.trace.exchanges] == ["Planner", "Critic of all", "Editor", None]
    assert result.fanout == 4


@pytest.mark.slow
def test_a_span_of_opentelemetry_names_the_calls_inside(model: ModelServer) -> None:
    """By its gen_ai.agent.name; what the code itself calls its site holds before that."""
    pytest.importorskip("opentelemetry.sdk", reason="the extra `named`")
    from opentelemetry.sdk.trace import TracerProvider

    tracer = TracerProvider().get_tracer("test")

    def agent() -> None:
        with tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.agent.name": "Researcher"}):
            ask(model.base_url, "search")
            with meter.call_site("critic"):
                ask(model.base_url, "criticise")
        with tracer.start_as_current_span("something else"):
            ask(model.base_url, "write")

    with metering() as meter:
        result = run_task(meter, agent)

    assert result.error is None
    assert [one.site for one in result.trace.exchanges] == ["Researcher", "critic", None]


@pytest.mark.parametrize(
    ("attributes", "name"),
    [({"gen_ai.agent.name": "x" * 70}, "x" * 64), ({"gen_ai.agent.name": "a\nb"}, None), ({}, None), (None, None)],
)
def test_a_name_is_one_short_line(
    attributes: dict[str, Any] | None, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As call_site() wants it: a longer one is cut, one of several lines is none."""
    span = types.SimpleNamespace(attributes=attributes)
    only(monkeypatch, "opentelemetry.trace", get_current_span=lambda: span)

    assert agent_name() == name


@pytest.mark.parametrize("members", [{}, {"get_current_span": lambda: 1 / 0}, {"get_current_span": lambda: "a string"}])
def test_a_module_of_that_name_that_is_another_does_no_harm(
    members: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project may well have a package `agents` of its own, with a `tracing` inside."""
    only(monkeypatch, "agents.tracing", **members)

    assert agent_name() is None


def test_nothing_is_imported_to_find_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no tracing library is in the process, none is brought there."""
    only(monkeypatch, "")
    before = set(sys.modules)

    assert agent_name() is None
    assert set(sys.modules) == before


def only(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    """The process as if it had imported one library, or none."""
    for known in ("agents.tracing", "opentelemetry.trace"):
        monkeypatch.delitem(sys.modules, known, raising=False)
    if name:
        module = types.ModuleType(name)
        module.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, module)
