"""What mocks and cassettes answer in aiohttp's place counts once, like everything else, and is replayed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp
import pytest
import vcr
from metering import Tape, chat, metering, run_task
from model_server import ModelServer

CHAT = "/v1/chat/completions"
ANSWER = {
    "choices": [{"message": {"role": "assistant", "content": "mocked"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
}


class Mocked(aiohttp.ClientResponse):
    """An answer as the mocking libraries make it: a response that has its whole body."""

    _loop: Any = None

    def __init__(self, method: str, url: Any, status: int, document: Any) -> None:
        self.method, self.status, self.reason = method, status, "mocked"
        self._body = aiohttp.payload.JsonPayload(document)._value
        self._headers = self._raw_headers = ()  # type: ignore[assignment]
        self._request_info = mock.Mock()
        self._history, self._cache = (), {}
        self._connection = None
        self.content = aiohttp.StreamReader(mock.Mock(_reading_paused=False), 2**16, loop=asyncio.get_running_loop())
        self.content.feed_data(self._body)
        self.content.feed_eof()

    @property
    def headers(self) -> Any:
        return {"Content-Type": "application/json"}

    @property
    def raw_headers(self) -> Any:
        return ((b"Content-Type", b"application/json"),)

    async def json(self, **_: Any) -> Any:
        return json.loads(self._body)


@contextmanager
def mocking(
    status: int = 200, through: str = "/live", error: Exception | None = None, delay_s: float = 0
) -> Iterator[mock.MagicMock]:
    """``ClientSession._request`` replaced as mocking libraries do it; what contains ``through`` goes to the network."""
    real = aiohttp.ClientSession._request

    async def answer(session: Any, method: str, url: Any, **kwargs: Any) -> Any:
        if through in str(url):
            return await real(session, method, str(url).replace(through, ""), **kwargs)
        await asyncio.sleep(delay_s)
        if error is not None:
            raise error
        return Mocked(method, url, status, ANSWER)

    with mock.patch("aiohttp.ClientSession._request", side_effect=answer, autospec=True) as replaced:
        yield replaced


async def ask(url: str, text: str = "hi") -> Any:
    async with aiohttp.ClientSession() as session, session.post(url, json=chat(text)) as answer:
        return (await answer.json())["choices"][0]["message"]["content"]


def test_a_mocked_answer_counts_once(model: ModelServer) -> None:
    """A call that a mock answers is a call with its usage; one that it lets through is one call too, not two."""

    async def agent() -> list[Any]:
        by_function = aiohttp.request("POST", "http://mocked.example" + CHAT, data=b"{}", params={"a": "1"})
        async with by_function as answer:
            assert answer.status == 200
        return [await ask("http://mocked.example" + CHAT), await ask(f"{model.base_url}/live{CHAT}")]

    with mocking() as replaced, metering() as meter:
        result = run_task(meter, agent)

    assert result.value == ["mocked", "echo: hi"]
    assert (result.fanout, len(model.log), replaced.call_count) == (3, 1, 3)
    assert [(e.request.url, e.request.body) for e in result.trace.exchanges] == [
        ("http://mocked.example/v1/chat/completions?a=1", b"{}"),
        (
            "http://mocked.example/v1/chat/completions",
            b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}',
        ),
        (model.base_url + CHAT, b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'),
    ]
    assert (result.measured.samples["input_tokens"], result.slugs) == (15, [])


@pytest.mark.parametrize("first", ["mock", "meter"])
def test_mocks_before_and_after_the_hooks(first: str, model: ModelServer) -> None:
    """It does not matter whether the mock was there before the hooks were set, or the other way round."""
    with ExitStack() as stack:
        ways = (mocking(), metering()) if first == "mock" else (metering(), mocking())
        entered = [stack.enter_context(way) for way in ways]
        meter = entered[first == "mock"]
        mocked = run_task(meter, lambda: ask("http://mocked.example" + CHAT))
        live = run_task(meter, lambda: ask(f"{model.base_url}/live{CHAT}"))
    with metering() as meter:
        bare = run_task(meter, lambda: ask(model.base_url + CHAT))

    assert [result.fanout for result in (mocked, live, bare)] == [1, 1, 1]
    assert len(model.log) == 2


def test_a_mocked_tool_is_code_of_this_process() -> None:
    """What a mock answers for a tool is neither recorded nor refused: it runs in every mode."""

    async def agent() -> int:
        async with aiohttp.ClientSession() as session, session.get("http://tools.example/look") as answer:
            return answer.status

    with mocking(), metering("replay") as meter:
        result = run_task(meter, agent, source=Tape(()))

    assert (result.value, result.trace.exchanges, result.trace.misses) == (200, (), 0)


def test_a_mock_that_takes_its_time() -> None:
    """Calls that a mock answers at leisure span that time, beside each other where they were made at once."""

    async def agent() -> None:
        await asyncio.gather(*(ask("http://mocked.example" + CHAT, text) for text in "ab"))

    with mocking(delay_s=0.05), metering() as meter:
        result = run_task(meter, agent)

    samples = result.measured.samples
    assert samples["peak_concurrency"] == 2
    assert (samples["model_ms"] or 0) >= 2 * 49


def test_mocked_failures_are_attempts() -> None:
    """An error that a mock raises, and an answer that the session raises for, are attempts that failed."""

    async def agent() -> list[str]:
        seen = []
        for settings in ({"error": aiohttp.ClientConnectionError("refused")}, {"status": 503}):
            with mocking(**settings):
                try:
                    await ask("http://mocked.example" + CHAT)
                    seen.append("answered")
                except aiohttp.ClientError as error:
                    seen.append(type(error).__name__)
        with mocking():
            await ask("http://mocked.example" + CHAT)
        return seen

    with metering() as meter:
        result = run_task(meter, agent)

    ends = [(e.answer.status, e.answer.outcome, e.answer.error) for e in result.trace.exchanges]
    assert result.value == ["ClientConnectionError", "answered"]
    assert ends == [(None, "error", "ClientConnectionError"), (503, "complete", None), (200, "complete", None)]
    assert (result.fanout, result.measured.samples["attempts"]) == (1, 3)


def test_a_mocked_call_is_replayed(model: ModelServer) -> None:
    """In replay the recorded answer stands in for the mock's, and a request that was not recorded is refused."""

    async def agent(text: str) -> Any:
        try:
            return await ask("http://mocked.example" + CHAT, text)
        except KeyError:
            return "refused"

    with mocking(), metering("record") as meter:
        recorded = run_task(meter, lambda: agent("hi"))
    with mocking(error=aiohttp.ClientConnectionError("no such mock")), metering("replay") as meter:
        source = Tape(recorded.trace.exchanges)
        replayed, other = (
            run_task(meter, lambda: agent("hi"), source=source),
            run_task(meter, lambda: agent("another"), source=source),
        )

    assert (recorded.value, replayed.value, other.value) == ("mocked", "mocked", "refused")
    assert (replayed.fanout, replayed.trace.misses, other.trace.misses) == (1, 0, 1)


def test_a_mock_on_one_session() -> None:
    """A session whose own method was replaced is counted as one under a mock."""

    async def agent() -> Any:
        async def answer(method: str, url: Any, **_: Any) -> Any:
            return Mocked(method, url, 200, ANSWER)

        async with aiohttp.ClientSession() as session:
            session.__dict__["_request"] = answer
            async with session.request("post", "http://mocked.example" + CHAT, json=chat()) as got:
                return got.status

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.value, result.fanout) == (200, 1)


@pytest.mark.parametrize("enter_first", [True, False], ids=["cassette outside", "cassette inside"])
def test_a_users_own_cassette_of_aiohttp(enter_first: bool, model: ModelServer, tmp_path: Path) -> None:
    """Recording into a vcrpy cassette and replaying from it give the same counts, whenever it is opened."""
    path = str(tmp_path / "mine.yaml")

    async def agent() -> list[Any]:
        heard = [await ask(model.base_url + CHAT, text) for text in ("a", "b")]
        asked = chat("c", stream=True, stream_options={"include_usage": True})
        async with aiohttp.ClientSession() as session, session.post(model.base_url + CHAT, json=asked) as answer:
            heard.append([line async for line in answer.content])
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{model.base_url}/redirect{CHAT}", json=chat("d")) as answer:
                heard.append(answer.status)
        return heard

    results = []
    for _ in range(2):
        with ExitStack() as stack:
            cassette, meter = vcr.use_cassette(path), metering()
            first, second = (cassette, meter) if enter_first else (meter, cassette)
            entered = stack.enter_context(first), stack.enter_context(second)
            results.append(run_task(entered[enter_first], agent))

    assert len(model.generated) == 4  # the second run came from the cassette
    assert results[0].value == results[1].value
    assert [result.fanout for result in results] == [4, 4]
    assert results[0].measured.samples["input_tokens"] == results[1].measured.samples["input_tokens"] == 4
    assert [result.slugs for result in results] == [[], []]
