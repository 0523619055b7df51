"""Cassettes that vcrpy wrote become recordings, which replay to what the server counted, but for the clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
import requests
import vcr
from metering import chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.errors import FanoutError
from pytest_fanout.meter import measure_trial
from pytest_fanout.records import Recording
from pytest_fanout.store.cassettes import Cassette, find_cassettes, import_cassette
from pytest_fanout.store.recordings import RecordingStore
from pytest_fanout.store.replay import ReplaySource

CLOCK = {"context_token_ms", "duration_ms", "model_ms", "tool_ms", "tool_ms[lookup]", "peak_concurrency", "rounds"}
TOOL = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}
SCRIPT = {
    "rules": [
        {"when": {"path": "/v1", "times": 1}, "status": 503, "retry_after": 0},
        {
            "when": {"path": "/v1", "results": 0},
            "tool_calls": [{"name": "lookup", "arguments": {"sku": 1}, "id": "c1"}],
        },
        {"when": {"path": "/tool"}, "json": {"price": 3}},
    ]
}


def by_openai(url: str) -> str:
    """Three calls, the first with a retry of the SDK, the last streamed; between them a tool by HTTP."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=2) as client:
        messages: list[Any] = [{"role": "user", "content": "the price of 1"}]
        first = client.chat.completions.create(model="m", messages=messages, tools=[TOOL])  # type: ignore[list-item]
        price = requests.get(f"{url}/tool/price", params={"sku": 1}, timeout=20).json()["price"]
        messages += [first.choices[0].message.model_dump(exclude_none=True)]
        messages += [{"role": "tool", "tool_call_id": "c1", "content": f"{price} EUR"}]
        second = client.chat.completions.create(model="m", messages=messages)
        asked = [{"role": "user", "content": "again"}, {"role": "tool", "tool_call_id": "x", "content": "y"}]
        stream = client.chat.completions.create(
            model="m",
            messages=asked,
            stream=True,
            stream_options={"include_usage": True},  # type: ignore[arg-type]
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        return f"{second.choices[0].message.content} {text}"


def by_requests(url: str) -> str:
    """The same request twice, and a list of models."""
    bodies = [requests.post(f"{url}/v1/messages", json=chat("a b", max_tokens=9), timeout=20) for _ in range(3)]
    requests.get(f"{url}/v1/models", timeout=20)
    return json.dumps([body.json().get("content") for body in bodies])


def by_aiohttp(url: str) -> str:
    """Two calls, one after the other."""

    async def ask() -> str:
        async with aiohttp.ClientSession() as session:
            texts = []
            for words in ("one", "two three", "four"):
                async with session.post(f"{url}/v1/responses", json={"model": "m", "input": words}) as answer:
                    texts.append(json.dumps((await answer.json()).get("output")))
            return " ".join(texts)

    return asyncio.run(ask())


def record(agent: Callable[[str], str], path: Path, script: Any = SCRIPT, **settings: Any) -> tuple[ModelServer, str]:
    """Run an agent under a cassette of vcrpy against a server; gives that back, stopped, with what the agent said."""
    with ModelServer(script) as server:
        serializer = "json" if path.suffix == ".json" else "yaml"
        with vcr.VCR(serializer=serializer, **settings).use_cassette(str(path)):
            said = agent(server.base_url)
    return server, said


def imported(path: Path, store: RecordingStore, task: str = "refund") -> Recording:
    return import_cassette(Cassette(path, task, 1, "--task"), "support", None, path.parent, store)


@pytest.fixture
def store(tmp_path: Path) -> RecordingStore:
    return RecordingStore(tmp_path / "recordings", {})


@pytest.mark.parametrize("suffix", ["yaml", "json"])
@pytest.mark.parametrize("agent", [by_openai, by_requests, by_aiohttp], ids=["openai", "requests", "aiohttp"])
def test_an_imported_cassette_replays_to_what_the_server_counted(
    agent: Callable[[str], str], suffix: str, tmp_path: Path, store: RecordingStore
) -> None:
    """Calls, attempts, tools and tokens; nothing of the clock. The server is gone when it is replayed."""
    path = tmp_path / f"cassette.{suffix}"
    server, said = record(agent, path)
    recording = imported(path, store)
    source = ReplaySource(store.load("support", "refund", 1))
    with metering("replay") as meter:
        replay = run_task(meter, lambda: agent(server.base_url), source=source)  # type: ignore[arg-type]

    assert replay.error is None
    assert (replay.value, source.note(), source.leftover, replay.slugs) == (said, None, 0, [])
    numbers = measure_trial(replay.trace.exchanges, None).samples
    answered = [entry for entry in server.generated if entry.status == 200]
    assert numbers["attempts"] == len(server.generated) == len(answered) + 1  # one was answered 503
    assert numbers["input_tokens"] == sum(entry.usage["input"] for entry in answered if entry.usage)
    assert numbers["output_tokens"] == sum(entry.usage["output"] for entry in answered if entry.usage)
    assert numbers["tool_calls"] == sum(len(entry.tool_calls) for entry in answered)
    assert {name for name, value in numbers.items() if value is None and name in CLOCK} == CLOCK & numbers.keys()
    # the SDK repeats itself; requests and aiohttp do not, so that there the refused call stays one of its own
    assert numbers["fanout"] == len(answered)
    assert recording.imported == (path.name,)


def test_the_key_and_other_headers_of_a_cassette_stay_out(tmp_path: Path, store: RecordingStore) -> None:
    """vcrpy keeps the key as it was sent; the recording keeps only the headers that are allowed."""
    path = tmp_path / "cassette.yaml"
    record(by_openai, path)
    imported(path, store)

    assert "sk-test" in path.read_text()
    assert "sk-test" not in store.path("support", "refund", 1).read_text()


def test_a_secret_in_a_cassettes_text_is_refused(tmp_path: Path, store: RecordingStore) -> None:
    """What is no header and no known field is scanned, and nothing is stored."""
    path = tmp_path / "cassette.yaml"
    key = "sk-proj-" + "a1" * 20
    with ModelServer() as server, vcr.use_cassette(str(path)):
        requests.post(f"{server.base_url}/v1/messages", json=chat(f"my key is {key}"), timeout=20)
    with pytest.raises(FanoutError, match="secret-in-recording") as caught:
        imported(path, store)

    assert key not in str(caught.value)
    assert store.trials("support", "refund") == ()


def test_a_compressed_answer_is_read(tmp_path: Path, store: RecordingStore) -> None:
    """Stored compressed, and stored decoded with the header left in place, as vcrpy's own option does not."""
    body = json.dumps({"model": "m", "choices": [{"message": {"content": "hi"}}], "usage": {"prompt_tokens": 4}})
    for name, string in (("gzip", "!!binary " + gzipped(body)), ("plain", json.dumps(body))):
        path = tmp_path / f"{name}.yaml"
        path.write_text(cassette(string, headers="content-encoding: [gzip]"))
        recording = imported(path, store, name)

        (exchange,) = recording.exchanges
        assert exchange.answer.body.decode() == body
        assert dict(exchange.answer.headers) == {}


def gzipped(text: str) -> str:
    import base64
    import gzip

    return base64.b64encode(gzip.compress(text.encode())).decode()


def cassette(
    string: str, *, headers: str = "content-type: [application/json]", uri: str = "/v1/chat/completions"
) -> str:
    """A cassette of one interaction in YAML, as vcrpy writes it."""
    return (
        "version: 1\ninteractions:\n"
        "- request: {method: POST, uri: 'https://api.openai.com" + uri + '\', body: \'{"model": "m"}\', headers: {}}\n'
        f"  response: {{status: {{code: 200, message: OK}}, headers: {{{headers}}}, body: {{string: {string}}}}}\n"
    )


def test_an_old_form_of_httpx_cassettes_is_read(tmp_path: Path, store: RecordingStore) -> None:
    """Before vcrpy 6 the answers of httpx stood in another form."""
    path = tmp_path / "old.yaml"
    body = json.dumps(json.dumps({"model": "m-1", "choices": [{"message": {"content": "hi"}}]}))
    path.write_text(
        "version: 1\ninteractions:\n"
        "- request: {method: POST, uri: 'https://api.openai.com/v1/chat/completions', body: '{}', headers: {}}\n"
        f"  response: {{http_version: HTTP/1.1, status_code: 200, headers: {{}}, content: {body}}}\n"
    )

    assert imported(path, store).models_served == ("m-1",)


REFUSED = {
    "recording-empty-answer": (
        cassette("''"),
        "{path}: recorded response is empty: answer 1 (POST /v1/chat/completions) has status 200 and no content\n"
        "  mend: record the task with pytest-fanout instead: pytest --fanout-budget --fanout-mode=record\n"
        "  see: docs/messages.md#recording-empty-answer",
    ),
    "cassette-unreadable": (
        "interactions: 7\nversion: 1\n",
        "{path}: is no cassette of vcrpy: 'int' object is not iterable\n"
        "  mend: record the task with pytest-fanout instead: pytest --fanout-budget --fanout-mode=record\n"
        "  see: docs/messages.md#cassette-unreadable",
    ),
    "cassette-without-calls": (
        cassette("'{}'", uri="/v1/files"),
        "{path}: holds 1 requests and no answer of a model that is known here\n"
        "  mend: leave it out, or record its task anew with pytest-fanout\n"
        "  see: docs/messages.md#cassette-without-calls",
    ),
}


@pytest.mark.parametrize("slug", REFUSED)
def test_what_can_be_no_recording_is_refused(slug: str, tmp_path: Path, store: RecordingStore) -> None:
    """An empty answer, a file of another kind, and a cassette in which no model answered."""
    path = tmp_path / "cassette.yaml"
    path.write_text(REFUSED[slug][0])
    with pytest.raises(FanoutError) as caught:
        imported(path, store)

    assert str(caught.value) == REFUSED[slug][1].format(path=path)
    assert store.trials("support", "refund") == ()


def test_an_import_replaces_no_recording(tmp_path: Path, store: RecordingStore) -> None:
    """What is there may be evidence of better kind."""
    path = tmp_path / "cassette.yaml"
    record(by_requests, path)
    imported(path, store)
    with pytest.raises(FanoutError) as caught:
        imported(path, store)

    assert str(caught.value) == (
        f"{store.path('support', 'refund', 1)}: trial 1 of support::refund is recorded already, and an import replaces "
        "nothing\n"
        "  mend: --trial 2, or remove that file first\n"
        "  see: docs/messages.md#already-recorded"
    )


def mapped(
    root: Path, *paths: Path, task: str | None = None, known: tuple[str, ...] = ()
) -> list[tuple[str, str, int]]:
    found = find_cassettes(paths, root, task=task, trial=1, known=known)
    return [(one.path.relative_to(root).as_posix(), one.task, one.trial) for one in found]


def test_a_folder_of_pytest_recording_is_mapped_to_its_tests(tmp_path: Path) -> None:
    """cassettes/<module>/<test>.yaml beside the module, <Class>.<test>.yaml for a test of a class."""
    folder = tmp_path / "tests" / "unit" / "cassettes" / "test_shop"
    folder.mkdir(parents=True)
    for name in ("test_refund.yaml", "TestPrices.test_price[eu-1.5].yaml", "notes.txt"):
        (folder / name).touch()

    assert mapped(tmp_path, tmp_path / "tests") == [
        (
            "tests/unit/cassettes/test_shop/TestPrices.test_price[eu-1.5].yaml",
            "tests/unit/test_shop.py::TestPrices::test_price[eu-1.5]",
            1,
        ),
        ("tests/unit/cassettes/test_shop/test_refund.yaml", "tests/unit/test_shop.py::test_refund", 1),
    ]


def test_a_file_named_like_a_task_of_the_eval_set_is_of_that_task(tmp_path: Path) -> None:
    """Wherever it lies; and with --task all files are trials of one task."""
    for name in ("refund.json", "refund.yaml"):
        (tmp_path / name).touch()
    paths = tmp_path / "refund.yaml", tmp_path / "refund.json"

    assert mapped(tmp_path, *paths, known=("refund",)) == [("refund.yaml", "refund", 1), ("refund.json", "refund", 2)]
    assert mapped(tmp_path, *paths, task="other") == [("refund.yaml", "other", 1), ("refund.json", "other", 2)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "x.yaml",
            "is named after no task of the eval set, and lies in no folder cassettes/<test module>/ of "
            "pytest-recording\n"
            "  mend: name its task: --task ID\n"
            "  see: docs/messages.md#cassette-of-no-task",
        ),
        (
            "nowhere",
            "does not exist\n"
            "  mend: name a cassette of vcrpy, or a folder of them\n"
            "  see: docs/messages.md#no-cassettes",
        ),
        (
            "empty",
            "holds no file that ends with .yaml, .yml or .json\n"
            "  mend: name a cassette of vcrpy, or a folder of them\n"
            "  see: docs/messages.md#no-cassettes",
        ),
    ],
)
def test_what_is_of_no_task(name: str, text: str, tmp_path: Path) -> None:
    """A guess would put a recording where nobody looks for it."""
    (tmp_path / "x.yaml").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(FanoutError) as caught:
        mapped(tmp_path, tmp_path / name)

    assert str(caught.value) == f"{tmp_path / name}: {text}"
