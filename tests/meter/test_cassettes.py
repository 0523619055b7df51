"""Under a user's own cassette or mock a call counts once, or provably reaches no network."""

from __future__ import annotations

import http.client
import json
import urllib.request
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests
import requests_mock
import responses
import urllib3
import vcr
from byte_server import RawServer, plain
from metering import Result, Tape, chat, metering, run_task

from pytest_fanout.meter import Meter, via_vcr
from pytest_fanout.records import MeasureRules

PATH = "/v1/chat/completions"
BODY = json.dumps(chat("one two")).encode()
USAGE = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
ANSWER = json.dumps({"model": "m", "choices": [], "usage": USAGE}).encode()
CONVERSE = json.dumps({"output": {"message": {"role": "assistant", "content": [{"text": "hi"}]}}, "stopReason": "x"})


def by_requests(url: str) -> Any:
    return requests.post(url + PATH, data=BODY).json()


def by_requests_stream(url: str) -> Any:
    with requests.post(url + PATH, data=BODY, stream=True) as answer:
        return b"".join(answer.iter_content(10))


def by_urllib3(url: str) -> Any:
    with urllib3.PoolManager() as pools:
        return pools.request("POST", url + PATH, body=BODY).json()


def by_boto3(url: str) -> Any:
    named = {"region_name": "us-east-1", "aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "example"}
    client = boto3.client("bedrock-runtime", endpoint_url=url, **named)
    return client.converse(modelId="m-x", messages=[{"role": "user", "content": [{"text": "hi"}]}])["output"]


def by_urlopen(url: str) -> Any:
    with urllib.request.urlopen(url + PATH, data=BODY) as answer:
        return answer.read()


def by_hand(url: str) -> Any:
    with closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)) as conn:
        conn.putrequest("POST", PATH)
        conn.putheader("content-length", str(len(BODY)))
        conn.endheaders()
        conn.send(BODY[:9])
        conn.send(BODY[9:])
        return conn.getresponse().read()


AGENTS = [by_requests, by_requests_stream, by_urllib3, by_boto3, by_urlopen, by_hand]


def answering() -> RawServer:
    return RawServer(lambda asked: plain(CONVERSE.encode() if "converse" in asked.target else ANSWER))


def numbers(result: Result) -> tuple[Any, ...]:
    return result.error, result.fanout, result.measured.samples["attempts"], len(result.trace.exchanges)


@pytest.mark.parametrize("around", ["task", "call", "meter"])
@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.__name__)
def test_cassettes_count_what_the_agent_did(agent: Any, around: str, tmp_path: Path) -> None:
    """One call is one while a cassette records it, and one while it replays it, wherever the cassette is opened."""
    tape = str(tmp_path / "tape.yaml")

    def opened() -> Any:
        return vcr.use_cassette(tape, match_on=["method", "path", "body"])

    def inside(url: str) -> Any:
        with opened():
            return agent(url)

    results = []
    with answering() as server:
        for _ in range(2):
            if around == "meter":
                with opened(), metering() as meter:
                    results.append(run_task(meter, lambda: agent(server.base_url)))
            elif around == "task":
                with metering() as meter, opened():
                    results.append(run_task(meter, lambda: agent(server.base_url)))
            else:
                with metering() as meter:
                    results.append(run_task(meter, lambda: inside(server.base_url)))
        assert len(server.log) == 1  # the second time the cassette answered

    recorded, replayed = results
    assert numbers(recorded) == numbers(replayed) == (None, 1, 1, 1)
    assert recorded.value == replayed.value
    if agent is not by_boto3:
        assert [one.measured.samples["input_tokens"] for one in results] == [7, 7]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.__name__)
def test_our_recording_of_a_run_under_a_cassette(agent: Any, tmp_path: Path) -> None:
    """A trial that ran under a cassette replays from our recording, with the cassette and without it."""
    with answering() as server:
        with metering("record") as meter, vcr.use_cassette(str(tmp_path / "tape.yaml")):
            recorded = run_task(meter, lambda: agent(server.base_url))
        with metering("replay") as meter:
            without = run_task(meter, lambda: agent(server.base_url), source=Tape(recorded.trace.exchanges))
        with metering("replay") as meter, vcr.use_cassette(str(tmp_path / "other.yaml")):
            beside = run_task(meter, lambda: agent(server.base_url), source=Tape(recorded.trace.exchanges))
        assert len(server.log) == 1

    assert numbers(recorded) == numbers(without) == numbers(beside) == (None, 1, 1, 1)
    assert recorded.value == without.value == beside.value
    assert not (tmp_path / "other.yaml").exists()


def test_keys_below_a_cassette(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The real key reaches the server through vcrpy's connection, and is not in what we keep."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")

    def agent(url: str) -> bytes:
        import os

        request = urllib.request.Request(url + PATH, BODY, {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
        with urllib.request.urlopen(request) as answer:
            return bytes(answer.read())

    with answering() as server, metering("record") as meter, vcr.use_cassette(str(tmp_path / "tape.yaml")):
        result = run_task(meter, lambda: agent(server.base_url))

    assert server.log[0].headers["authorization"] == "Bearer sk-real"
    assert "sk-real" not in repr(result.trace.exchanges)


def by_responses(agent: Callable[[], Any], url: str) -> Any:
    with responses.RequestsMock() as mocked:
        mocked.post(url + PATH, body=ANSWER, content_type="application/json")
        return agent()


def by_requests_mock(agent: Callable[[], Any], url: str) -> Any:
    with requests_mock.Mocker() as mocked:
        mocked.post(url + PATH, content=ANSWER)
        return agent()


@pytest.mark.parametrize("mock", [by_responses, by_requests_mock], ids=lambda mock: mock.__name__)
def test_mocks_that_stand_above_us(mock: Any) -> None:
    """What `responses` or `requests-mock` answers never becomes a request: it counts nothing and reaches nothing."""
    with answering() as server, metering() as meter:
        result = run_task(meter, lambda: mock(lambda: by_requests(server.base_url), server.base_url))

    assert result.value == json.loads(ANSWER)
    assert (numbers(result), result.slugs, server.log) == ((None, 0, 0, 0), [], [])


def test_what_a_mock_lets_by_counts() -> None:
    """A call that the mock hands on to the network is one call."""
    with answering() as server, metering() as meter:

        def agent() -> Any:
            with requests_mock.Mocker(real_http=True):
                requests.post(server.base_url + PATH, data=BODY)
            with responses.RequestsMock() as mocked:
                mocked.add_passthru(server.base_url)
                return by_requests(server.base_url)

        result = run_task(meter, agent)

    assert (numbers(result), len(server.log)) == ((None, 2, 2, 2), 2)


def test_a_blind_hook_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook of vcrpy's connections that sees nothing is a problem of the run, by name."""
    monkeypatch.setattr(via_vcr, "_hook", lambda seam, original: lambda *a, **k: original(*a, **k))
    meter = Meter(mode="live", measure=MeasureRules(), environ={})
    problems = meter.start()
    meter.stop()

    assert [problem.text for problem in problems] == [
        "the hook vcr.stubs.VCRConnection.getresponse did not see a request that was sent through it exactly once"
    ]
