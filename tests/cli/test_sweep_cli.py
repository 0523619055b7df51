"""``fanout-capacity sweep`` against a server on loopback: what is sent, what is written, what is refused."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from click.testing import CliRunner, Result
from gate_world import World
from model_server import Logged, ModelServer

from pytest_fanout.capacity.sweep import Answer
from pytest_fanout.cli.capacity import main
from pytest_fanout.cli.senders import ModelSender, TaskSender, prompt_of, shown_url
from pytest_fanout.cli.sweep import turning
from pytest_fanout.records import Sweep, SweepLevel, SweepOpened
from pytest_fanout.store.calibration import parse_calibration


def call(*words: str) -> Result:
    return CliRunner().invoke(main, ["sweep", *words], catch_exceptions=False)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World.make(tmp_path / "project")
    monkeypatch.chdir(made.folder)
    return made


def four_words(entry: Logged) -> dict[str, Any]:
    """An answer as long as was asked for; a word is a token."""
    return {"text": "one" if entry.json["max_tokens"] == 1 else "one two three four"}


MODEL = ("--model", "m", "--gpu", "CPU", "--gpus", "1", "--input-tokens", "30", "--output-tokens", "4")


def test_a_model_server_becomes_a_calibration(world: World) -> None:
    """Requests of 30 tokens in and 4 out, no prompt twice, none more than allowed; the file is one that plan reads."""
    # 600 tokens in a request: a busy machine would have to be 20 times as slow to make reading take all of the time
    with ModelServer(four_words) as server:
        result = call("model", f"{server.base_url}/v1", *MODEL, "--reading-tokens", "600", "--most", "2",
                      "--max-calls", "90", "--body", '{"top_k": 1}')  # fmt: skip
        log = list(server.log)

    assert result.exit_code == 0, result.output
    made = parse_calibration((world.folder / "baselines/calibrations/m-cpu-x1.json").read_bytes(), "m.json")
    assert [point.concurrency for point in made.points] == [1, 2]
    assert (made.input_tokens, made.output_tokens, made.context_tokens_max) == (30, 4, 34)
    assert made.source.startswith("fanout-capacity sweep of m, 20")
    bodies = [entry.json for entry in log]
    assert len(bodies) <= 90
    assert {body["top_k"] for body in bodies} == {1}
    # two fits, then what reads, then what reads and writes
    assert [body["max_tokens"] for body in bodies[:2]] == [4, 1]
    prompts = [body["messages"][0]["content"] for body in bodies]
    assert len({prompt[:6] for prompt in prompts}) == len(prompts)
    assert {len(prompt.split()) for prompt in prompts[2:]} == {600, 30}
    assert f"{len(bodies):,} sent in " in result.output
    assert "wrote baselines/calibrations/m-cpu-x1.json\n" in result.output


def test_agent_tasks(world: World, tmp_path: Path) -> None:
    """Each body in turn, at the agent's own address; the levels are written as JSON that fits its schema."""
    from importlib import resources

    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"ask": 1}\n\n{"ask": 2}\n')
    with ModelServer() as server:
        result = call("agent", f"{server.base_url}/tool/run", "--tasks", str(tasks), "--most", "1",
                      "--output", str(tmp_path / "sweep.json"))  # fmt: skip
        asked = [json.loads(entry.body)["ask"] for entry in server.log]

    assert result.exit_code == 0, result.output
    assert asked == [1, 2] * 10 + [1]
    document = json.loads((tmp_path / "sweep.json").read_text())
    schema = json.loads(resources.files("pytest_fanout").joinpath("schemas/sweep.schema.json").read_bytes())
    assert list(jsonschema.Draft202012Validator(schema).iter_errors(document)) == []
    assert (document["ended"], document["levels"][0]["counted"], document["calls"]) == ("top", 20, 21)
    assert "\n\nnothing turned up to 1 in flight, where --most ended it; 21 sent in " in result.output


def test_an_agent_that_fails(world: World, tmp_path: Path) -> None:
    """A status of 400 or more is a failed task: twenty of them, and nothing more is sent; the JSON has it all."""
    from importlib import resources

    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("{}\n")
    with ModelServer({"default": {"status": 503}}) as server:
        result = call("agent", f"{server.base_url}/v1/chat/completions", "--tasks", str(tasks),
                      "--output", str(tmp_path / "sweep.json"))  # fmt: skip
        count = len(server.log)

    assert count == 20
    assert (
        "stopped at concurrency 1: 20 of 20 tasks in 60 s failed (status 503); the breaker of a client would be open; "
        "not one level holds; 20 sent in "
    ) in result.output
    document = json.loads((tmp_path / "sweep.json").read_text())
    schema = json.loads(resources.files("pytest_fanout").joinpath("schemas/sweep.schema.json").read_bytes())
    assert list(jsonschema.Draft202012Validator(schema).iter_errors(document)) == []
    assert (document["ended"], document["levels"], document["holds"]) == ("breaker", [], None)
    assert document["opened"] == {
        "concurrency": 1, "failed": 20, "answered": 20, "window_s": 60.0, "last_fault": "status 503"
    }  # fmt: skip


def test_a_model_that_fails_from_a_level_on(world: World) -> None:
    """The level before is the last that holds; alone it is no curve, and nothing is written."""
    count = itertools.count()

    def answer(entry: Logged) -> dict[str, Any]:
        """One request that fits and 21 of the level of one are answered, all further ones that write are refused."""
        return {"status": 429} if entry.json["max_tokens"] == 4 and next(count) >= 22 else four_words(entry)

    with ModelServer(answer) as server:
        result = call("model", f"{server.base_url}/v1", *MODEL, "--reading-tokens", "60", "--most", "4")

    assert (
        "stopped at concurrency 2: 20 of 20 requests in 60 s failed (status 429); the breaker of a client would be "
        "open; 1 in flight is the last that holds; "
    ) in result.output
    assert "m CPU x1: has 1 points, and two are needed at least" in result.stderr
    assert not (world.folder / "baselines/calibrations").exists()


def test_a_model_of_which_no_level_holds(world: World) -> None:
    """no-server: what reads comes through, what writes too fails; there is no curve of nothing."""
    count = itertools.count()

    def answer(entry: Logged) -> dict[str, Any]:
        return four_words(entry) if next(count) < 2 + 21 else {"status": 429}

    with ModelServer(answer) as server:
        url = f"{server.base_url}/v1"
        result = call("model", url, *MODEL, "--reading-tokens", "60", "--most", "1")

    assert result.exit_code == 2
    assert "stopped at concurrency 1: 20 of 20 requests in 60 s failed (status 429)" in result.output
    assert result.stderr == (
        f"error: {url}: no level held: there is nothing to calibrate with\n"
        "  mend: find out why requests fail while hardly any is in flight\n"
        "  see: docs/messages.md#no-server\n"
    )


def test_prompts_share_no_prefix():
    """The first word is another one each time, and the same number gives the same prompt."""
    assert prompt_of(1, 50) == prompt_of(1, 50)
    assert prompt_of(1, 50)[:6] != prompt_of(2, 50)[:6]
    assert len(prompt_of(3, 50).split()) == 51


def level(concurrency: int, per_s: float, residency: float, failed: int = 0) -> SweepLevel:
    return SweepLevel(concurrency, 20, failed, 10.0, per_s, residency, residency, first_fault="status 429")


@pytest.mark.parametrize(
    ("levels", "ended", "words"),
    [
        (
            (level(8, 4.0, 2_000.0), level(16, 4.0, 4_000.0), level(32, 3.9, 8_200.0)),
            "residency",
            "residency turns at 8 in flight: with 32 it is x4.10, and no more requests are done "
            "(4.00 -> 3.90 a second)",
        ),
        (
            (level(8, 4.0, 2_000.0, 5),),
            "errors",
            "errors turn at 8 in flight: 5 of 20 failed (status 429); not one level holds",
        ),
        ((level(8, 4.0, 2_000.0),), "calls", "nothing turned up to 8 in flight, where --max-calls ended it"),
        ((), "seconds", "no level was finished within the bounds (seconds)"),
    ],
)
def test_where_it_turned_in_words(levels: tuple[SweepLevel, ...], ended: str, words: str):
    """Residency, errors, or a bound of the sweep."""
    assert turning(Sweep(levels, ended, 1, 1.0), "requests") == words


def test_where_the_breaker_opened_in_words():
    """As docs/capacity.md shows it: what failed of how many in which time, and the level before."""
    opened = SweepOpened(32, 40, 100, 60.0, "status 429")

    assert turning(Sweep((level(16, 4.0, 2_000.0),), "breaker", 1, 1.0, opened, 16), "requests") == (
        "stopped at concurrency 32: 40 of 100 requests in 60 s failed (status 429); the breaker of a client would be "
        "open; 16 in flight is the last that holds"
    )


def test_a_server_that_is_not_there(world: World) -> None:
    """no-server: the first request shows that nothing can be measured."""
    with ModelServer() as server:
        url = f"{server.base_url}/v1"
    result = call("model", url, *MODEL)

    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {url}/chat/completions: the server gave no answer that counts: ConnectError\n"
        "  mend: name the address up to /v1 of a server with chat completions that reports usage in streams\n"
        "  see: docs/messages.md#no-server\n"
    )


def test_a_server_without_usage(world: World) -> None:
    """Without the server's count of tokens there is nothing to calibrate with."""
    with ModelServer({"default": {"usage": False}}) as server:
        result = call("model", f"{server.base_url}/v1", *MODEL)

    assert "the server gave no answer that counts: no token or no usage in the stream" in result.stderr


def test_requests_that_only_read_and_fail(world: World) -> None:
    """no-server: a rate of reading is not made of the few that came through, and no level is begun."""
    sent = itertools.count()

    def answer(entry: Logged) -> dict[str, Any]:
        """The two that fit, then a limit."""
        return four_words(entry) if next(sent) < 2 else {"status": 429}

    with ModelServer(answer) as server:
        url = f"{server.base_url}/v1"
        result = call("model", url, *MODEL, "--reading-tokens", "60", "--most", "1")
        count = len(server.log)

    assert (result.exit_code, count) == (2, 22)
    assert result.stderr == (
        f"error: {url}: 20 of 20 requests that only read failed: status 429\n"
        "  mend: send shorter ones (--reading-tokens), or fewer at once (--most)\n"
        "  see: docs/messages.md#no-server\n"
    )


def test_bounds_that_are_too_tight(world: World) -> None:
    """sweep-too-short: reading was measured, and no level fits in the calls that are left."""
    with ModelServer(four_words) as server:
        url = f"{server.base_url}/v1"
        result = call("model", url, *MODEL, "--reading-tokens", "60", "--most", "1", "--max-calls", "30")

    assert result.exit_code == 2
    assert result.stderr == (
        f"error: {url}: no level, or no reading, was finished within the bounds: there is nothing to calibrate with\n"
        "  mend: raise --max-calls or --max-seconds, or send shorter requests\n"
        "  see: docs/messages.md#sweep-too-short\n"
    )


def test_a_server_that_takes_too_long(world: World) -> None:
    """The bound holds from the first request on."""
    with ModelServer({"default": {"delay_s": 1.3}}) as server:
        result = call("model", f"{server.base_url}/v1", *MODEL, "--max-seconds", "1")

    assert "no level was finished within the bounds (seconds); 1 sent in 1 s" in result.output
    assert "docs/messages.md#sweep-too-short" in result.stderr


@pytest.mark.parametrize(
    "lines",
    [
        ('{"choices": [{"delta": null}], "usage": []}', '{"choices": "no"}', '{"choices": [1]}'),
        ('{"usage": {"prompt_tokens": 1, "prompt_tokens_details": [1]}}',),
        ("[" * 100_000,),
    ],
    ids=["types", "details", "depth"],
)
def test_a_stream_of_something_else_is_a_failed_request(lines: tuple[str, ...]) -> None:
    """Whatever a server writes, the sweep goes on and counts a failure."""
    text = "".join(f"data: {line}\n\n" for line in lines)

    async def send() -> Answer:
        transport = httpx.MockTransport(lambda request: httpx.Response(200, text=text))
        async with httpx.AsyncClient(transport=transport) as client:
            return await ModelSender(client, "http://x/v1", "m", 4, {}).send(10)

    assert asyncio.run(send()).fault in ("no token or no usage in the stream", "RecursionError")


def test_an_end_without_a_space() -> None:
    """`data:[DONE]` ends a stream as `data: [DONE]` does."""
    event = '{"choices": [{"delta": {"content": "a"}}], "usage": {"prompt_tokens": 7, "completion_tokens": 1}}'

    async def send() -> Answer:
        transport = httpx.MockTransport(lambda request: httpx.Response(200, text=f"data:{event}\n\ndata:[DONE]\n\n"))
        async with httpx.AsyncClient(transport=transport) as client:
            return await ModelSender(client, "http://x/v1", "m", 1, {}).send(10)

    found = asyncio.run(send())
    assert (found.fault, found.input_tokens, found.output_tokens) == (None, 7, 1)


@pytest.mark.parametrize(("status", "fault"), [(204, None), (307, "status 307"), (404, "status 404")])
def test_a_redirect_is_no_task(status: int, fault: str | None) -> None:
    """An agent that sends elsewhere has done nothing: counted as done, thousands of tasks a second would fit."""

    async def send() -> Answer:
        transport = httpx.MockTransport(lambda request: httpx.Response(status, headers={"location": "/there/"}))
        async with httpx.AsyncClient(transport=transport) as client:
            return await TaskSender(client, "http://x/here", [b"{}"]).send()

    assert asyncio.run(send()).fault == fault


def test_urls_are_shown_without_secrets() -> None:
    """User, password and query may be secrets, and files of a sweep are committed."""
    assert shown_url("https://dana:secret@example.com:8000/v1?key=x") == "https://example.com:8000/v1"
    assert shown_url("http://[::1]:8000/v1") == "http://[::1]:8000/v1"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("model", "http://x/v1", *MODEL, "--api-key-env", "NOT_SET_ANYWHERE"),
            "error: --api-key-env: NOT_SET_ANYWHERE is not set\n  mend: export NOT_SET_ANYWHERE=…\n"
            "  see: docs/messages.md#no-api-key\n",
        ),
        (
            ("model", "http://x/v1", *MODEL, "--body", "[1]"),
            "error: --body: is no JSON object\n  mend: --body '{\"top_k\": 1}'\n  see: docs/messages.md#bad-body\n",
        ),
        (
            ("model", "http://x/v1", *MODEL, "--api-key-env", "KEY_OF_TWO_LINES"),
            "error: --api-key-env: KEY_OF_TWO_LINES holds a character that no header may have, perhaps a line end\n"
            "  mend: export KEY_OF_TWO_LINES=…\n  see: docs/messages.md#no-api-key\n",
        ),
        (
            ("agent", "http://x", "--tasks", "broken.jsonl"),
            "error: broken.jsonl:3: is not valid JSON: Expecting value\n  mend: write one JSON a line\n"
            "  see: docs/messages.md#no-tasks-to-send\n",
        ),
        (
            ("agent", "http://x", "--tasks", "empty.jsonl"),
            "error: empty.jsonl: holds no line with a body\n  mend: write one JSON a line\n"
            "  see: docs/messages.md#no-tasks-to-send\n",
        ),
    ],
    ids=["no-api-key", "bad-body", "key-of-two-lines", "broken-task", "no-tasks-to-send"],
)
def test_words_that_cannot_be_acted_on(
    world: World, words: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent."""
    monkeypatch.setenv("KEY_OF_TWO_LINES", "one\ntwo")
    world.write("broken.jsonl", '{"text": "a\u2028b"}\n\nno\n')
    world.write("empty.jsonl", "\n")

    result = call(*words)

    assert (result.exit_code, result.stderr) == (2, text)
