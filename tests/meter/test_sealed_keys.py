"""The agent holds dummies; real keys are swapped in at the seam only, and never kept."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from metering import Tape, chat, metering, raw_post, run_task
from model_server import ModelServer

from pytest_fanout.records import MeasureRules
from pytest_fanout.wire.hosts import KEY_VARIABLES


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def kept_text(result: Any) -> str:
    return repr([(e.request, e.answer) for e in result.trace.exchanges])


def key_in(headers: Any) -> str:
    """The key of a request: some SDK versions send it as a bearer token, some in a header of its own."""
    return str(headers.get("x-api-key") or headers["authorization"].removeprefix("Bearer "))


def test_real_keys_arrive_and_are_not_kept(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server gets the real keys of both SDKs; the agent sees dummies, and nothing kept holds a key."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-openai")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-real-anthropic")

    def agent() -> list[str]:
        with openai.OpenAI(base_url=model.base_url + "/v1") as one, anthropic.Anthropic(base_url=model.base_url) as two:
            one.chat.completions.create(**chat())
            raw = two.messages.with_raw_response.create(max_tokens=9, **chat())
            return [os.environ["OPENAI_API_KEY"], str(one.api_key), key_in(raw.http_request.headers)]

    with metering() as meter:
        result = run_task(meter, agent)

    sent = [dict(entry.headers) for entry in model.generated]
    assert result.error is None
    assert [key_in(headers) for headers in sent] == ["sk-real-openai", "sk-real-anthropic"]
    assert all(key.startswith("fanout-sealed-") for key in result.value)
    assert "sk-real" not in kept_text(result)
    assert ("authorization", "Bearer fanout-sealed-OPENAI_API_KEY") in result.trace.exchanges[0].request.headers


def test_a_bedrock_api_key_is_sealed(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike access keys of AWS it signs nothing, so the agent needs a dummy only; where none stood none is added."""
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-key-real")

    def agent() -> str:
        held = os.environ["AWS_BEARER_TOKEN_BEDROCK"]
        httpx2.post(model.base_url + "/v1/chat/completions", json=chat(), headers={"authorization": f"Bearer {held}"})
        return held

    with metering() as meter:
        result = run_task(meter, agent)
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK")
    with metering():
        assert "AWS_BEARER_TOKEN_BEDROCK" not in os.environ

    assert result.value.startswith("fanout-sealed-AWS_BEARER_TOKEN_BEDROCK-")
    assert [key_in(dict(entry.headers)) for entry in model.generated] == ["bedrock-key-real"]
    assert "bedrock-key-real" not in kept_text(result)


def test_key_in_the_query(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that travels in the URL is swapped there, and kept as a name that is the same in every run."""
    monkeypatch.setenv("GEMINI_API_KEY", "g+real/key")

    def agent() -> None:
        with httpx2.Client() as client:
            params = {"key": os.environ["GEMINI_API_KEY"]}
            client.post(model.base_url + "/v1/chat/completions", params=params, json=chat())

    with metering() as meter:
        first, second = run_task(meter, agent), run_task(meter, agent)

    assert [entry.query for entry in model.generated] == ["key=g%2Breal%2Fkey"] * 2
    urls = {result.trace.exchanges[0].request.url for result in (first, second)}
    assert urls == {model.base_url + "/v1/chat/completions?key=fanout-sealed-GEMINI_API_KEY"}


def test_key_of_a_client_made_before(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that took the real key before it was sealed works, and its key is not kept either."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-early")
    with openai.OpenAI(base_url=model.base_url + "/v1") as client, metering() as meter:
        result = run_task(meter, lambda: client.chat.completions.create(**chat("my key is sk-real-early")))

    assert model.generated[0].headers["authorization"] == "Bearer sk-real-early"
    assert "sk-real" not in kept_text(result)


def test_redirect_does_not_leak_the_key(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request of the next hop is made from the dummy; each hop gets the real key by itself."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")

    def agent() -> Any:
        headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
        with httpx2.Client(follow_redirects=True, headers=headers) as client:
            return client.post(model.base_url + "/redirect/v1/chat/completions", json=chat())

    with metering() as meter:
        result = run_task(meter, agent)

    assert [entry.headers["authorization"] for entry in model.log] == ["Bearer sk-real"] * 2
    assert "sk-real" not in kept_text(result) + repr(result.value.request.headers.raw)
    assert "sk-real" not in repr(result.value.history[0].request.headers.raw)


def test_bypass_of_the_seam_holds_a_dummy(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes round the hooks sends a dummy, which a provider answers with 401."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")

    def agent() -> None:
        raw_post(model.base_url + "/tool/x", authorization="Bearer " + os.environ["OPENAI_API_KEY"])

    with metering() as meter:
        run_task(meter, agent)

    assert model.log[0].headers["authorization"].startswith("Bearer fanout-sealed-OPENAI_API_KEY-")


@pytest.mark.parametrize("status", [200, 401, 403, 500])
def test_a_server_here_that_wants_the_key_which_is_not_set(model: ModelServer, status: int) -> None:
    """key-not-set: it gets a dummy, which one without keys takes; where it refuses, the variable is named, once."""
    model.restart([{"status": status}] * 2 if status != 200 else None)

    def agent() -> None:
        with openai.OpenAI(base_url=model.base_url + "/v1", max_retries=0) as client:
            for _ in range(2):
                with contextlib.suppress(openai.APIStatusError):
                    client.chat.completions.create(**chat())

    with metering() as meter:
        result = run_task(meter, agent)

    assert [key_in(entry.headers)[:29] for entry in model.log] == ["fanout-sealed-OPENAI_API_KEY-"] * 2
    told = [(problem.verdict, problem.text) for problem in result.trace.problems if problem.slug == "key-not-set"]
    assert told == [
        (
            "notice",
            f"POST 127.0.0.1 was answered {status}, and OPENAI_API_KEY is not set: a dummy went out in its place\n"
            "  mend: export OPENAI_API_KEY=... before pytest starts",
        )
    ] * (status in (401, 403))


def test_missing_key_is_named() -> None:
    """A provider call without a key is not sent: the agent gets 401 once, and the problem names the variable."""

    def agent() -> str:
        with openai.OpenAI() as client:
            try:
                client.chat.completions.create(**chat())
            except openai.AuthenticationError as error:
                return str(error.response.json()["error"]["message"])
        return ""

    with metering() as meter:
        result = run_task(meter, agent)

    text = "OPENAI_API_KEY is not set, and POST api.openai.com needs it: nothing was sent"
    assert result.value == f"pytest-fanout: {text}; see docs/messages.md#missing-key"
    assert [(p.slug, p.text) for p in result.trace.problems if p.verdict == "invalid"] == [
        ("missing-key", f"{text}\n  mend: export OPENAI_API_KEY=... before pytest starts")
    ]
    assert (result.fanout, result.trace.spent_calls) == (0, 0)


def test_replay_needs_no_key(model: ModelServer) -> None:
    """A17: without any key in the environment SDK clients construct, and a replay asks for none."""

    def agent() -> str:
        with openai.OpenAI(base_url=model.base_url + "/v1") as client:
            return str(client.chat.completions.create(**chat()).choices[0].message.content)

    with metering("record") as meter:
        recorded = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))

    assert (recorded.value, replayed.value, replayed.slugs) == ("echo: hi", "echo: hi", [])


def test_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """stop() restores what was set, removes what was not, and leaves alone what the agent has set since."""
    monkeypatch.setenv("OPENAI_API_KEY", "one")
    monkeypatch.setenv("MISTRAL_API_KEY", "two")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "three")
    with metering():
        sealed = {name: os.environ.get(name, "") for name in ("OPENAI_API_KEY", "GROQ_API_KEY", "HF_TOKEN")}
        aws = os.environ["AWS_ACCESS_KEY_ID"]
        os.environ["MISTRAL_API_KEY"] = "set by the agent"

    assert [value.partition("-")[0] for value in sealed.values()] == ["fanout", "fanout", ""]
    assert aws == "three"
    assert os.environ["OPENAI_API_KEY"] == "one"
    assert os.environ["MISTRAL_API_KEY"] == "set by the agent"
    assert "GROQ_API_KEY" not in os.environ


def test_sealing_can_be_turned_off(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With seal_keys off the agent holds its key, and the facts of the run say so."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    with metering(measure=MeasureRules(seal_keys=False)) as meter:
        seen = run_task(meter, lambda: os.environ["OPENAI_API_KEY"]).value
        sealed = meter.finish().sealed

    assert (seen, sealed) == ("sk-real", False)


def test_placeholders_are_no_keys(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands for the key of a server that wants none may stand in any answer, and is not taken out of it."""
    monkeypatch.setenv("OPENAI_API_KEY", "1")
    model.restart(lambda entry: {"usage": {"input": 11, "output": 1}})

    def agent() -> None:
        key = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
        with httpx2.Client(verify=False) as client:
            client.post(model.base_url + "/v1/chat/completions", json=chat(), headers=key)

    with metering() as meter:
        result = run_task(meter, agent)

    samples = result.measured.samples
    assert (samples["fanout"], samples["input_tokens"], samples["output_tokens"]) == (1, 11, 1)
    assert key_in(model.generated[0].headers) == "1"
