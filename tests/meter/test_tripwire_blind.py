"""Stacks without Python sockets: what is done that they are not silent."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import raw_client
import uvloop
from metering import Tape, chat, metering, run_task
from model_server import Logged, ModelServer

from pytest_fanout.meter import via_uvloop
from pytest_fanout.records import MeasureRules
from pytest_fanout.wire.hosts import KEY_VARIABLES

MEND = (
    "  mend: call models through a client that is counted: httpx, httpx2, aiohttp, urllib3 (requests, botocore),"
    " urllib.request, http.client, websockets, gRPC; docs/coverage.md tells of others"
)


def slugs(result: Any) -> list[str]:
    return [problem.slug for problem in result.trace.problems]


# --- uvloop: an event loop in C --------------------------------------------------------------------------------------


def on_uvloop(work: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: uvloop.run(work())


def test_hooked_client_on_uvloop(model: ModelServer) -> None:
    """A counted client on uvloop is counted, and its own connections raise no alarm."""

    async def agent() -> None:
        async with httpx2.AsyncClient() as client:
            url = f"http://localhost:{model.port}/v1/chat/completions"
            await asyncio.gather(*(client.post(url, json=chat(str(n))) for n in range(3)))

    with metering() as meter:
        result = run_task(meter, on_uvloop(agent))

    assert (result.error, len(model.generated), result.fanout) == (None, 3, 3)
    assert result.trace.problems == ()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_raw_client_on_uvloop(host: str, model: ModelServer) -> None:
    """uvloop connects without a word to Python; it is made to say so: a raw client on it is a bypass."""

    async def agent() -> int:
        return await raw_client.call_by_streams(model.base_url, host)

    with metering(hosts=[f"localhost:{model.port}"]) as meter:
        result = run_task(meter, on_uvloop(agent))

    assert (result.value, len(model.generated), result.slugs) == (200, 1, ["unhooked-model-traffic"])
    assert f"raw_client.py:{line_of('await asyncio.open_connection')} connected to the model server {host}:" in (
        result.trace.problems[0].text
    )


def line_of(text: str) -> int:
    lines = Path(raw_client.__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_raw_client_on_uvloop_in_replay(model: ModelServer) -> None:
    """In replay it does not get there."""

    async def agent() -> int:
        return await raw_client.call_by_streams(model.base_url)

    with metering("replay", hosts=[f"localhost:{model.port}"]) as meter:
        result = run_task(meter, on_uvloop(agent), source=Tape(()))

    assert (model.log, result.slugs) == ([], ["unhooked-model-traffic"])
    assert isinstance(result.error, ConnectionRefusedError)


def test_the_rest_of_uvloop() -> None:
    """Look-ups, datagrams, Unix sockets and children of uvloop are told as those of Python are."""

    async def agent() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            transport, _ = await loop.create_datagram_endpoint(
                asyncio.DatagramProtocol, remote_addr=server.getsockname()
            )
            transport.close()
        with pytest.raises(OSError):
            await loop.create_unix_connection(asyncio.Protocol, "/nowhere/db.sock")
        await (await asyncio.create_subprocess_exec(sys.executable, "-c", "")).wait()
        await (await asyncio.create_subprocess_shell("true --x")).wait()
        await loop.getaddrinfo("localhost", 80)

    with metering() as meter:
        result = run_task(meter, on_uvloop(agent))

    assert result.error is None
    assert slugs(result) == ["unhooked-peer", "unhooked-peer", "child-process", "child-process"]
    assert [problem.text.split(" ", 1)[1].split(" outside")[0].split(":")[0] for problem in result.trace.problems] == [
        "connected to 127.0.0.1",
        "connected to unix",
        f"started {os.path.basename(sys.executable)!r}",
        "started 'true'",
    ]


def test_work_left_behind_on_uvloop(model: ModelServer) -> None:
    """A task of asyncio that outlives the agent on a loop that lives on is late, not the next task's."""
    loop = uvloop.new_event_loop()
    go_on: list[asyncio.Event] = []

    async def leave() -> None:
        go_on.append(asyncio.Event())

        async def later() -> None:
            await go_on[0].wait()
            async with httpx2.AsyncClient() as client:
                await client.post(model.base_url + "/v1/chat/completions", json=chat())

        left.append(asyncio.ensure_future(later()))

    async def wait() -> None:
        go_on[0].set()
        await left[0]

    left: list[Any] = []
    with metering() as meter:
        first = run_task(meter, lambda: loop.run_until_complete(leave()), task="a")
        second = run_task(meter, lambda: loop.run_until_complete(wait()), task="b")
        facts = meter.finish()
    loop.close()

    assert (first.fanout, second.fanout, facts.late, len(model.generated)) == (0, 0, 1, 1)
    assert [problem.slug for problem in facts.problems] == ["late-call"]


def test_prove_finds_a_patch_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self-check names the hook that no longer sees what passes."""
    with metering() as meter:
        assert via_uvloop.prove(uvloop, meter._seam) == []
        with monkeypatch.context() as patch:
            patch.setattr(uvloop.Loop, "create_connection", lambda *_: None)
            assert via_uvloop.prove(uvloop, meter._seam) == ["uvloop.Loop.create_connection"]
    assert "create_connection" not in vars(uvloop.Loop)


# --- hooks that are gone ---------------------------------------------------------------------------------------------


def test_patch_taken_off_by_another_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that somebody has taken off after the start is found at the end: the run is invalid. gRPC connects where
    no audit event tells of it, so that nothing else would."""
    from grpc import _channel

    original = _channel._UnaryUnaryMultiCallable.__call__
    with metering() as meter, monkeypatch.context() as patch:
        patch.setattr(_channel._UnaryUnaryMultiCallable, "__call__", original)
        facts = meter.finish()

    assert [(p.slug, p.text, p.verdict) for p in facts.problems] == [
        (
            "hook-failed",
            "the hook grpc._channel._UnaryUnaryMultiCallable.__call__ did not see a request that was sent through it"
            " exactly once",
            "invalid",
        )
    ]


def test_hooks_that_stand_are_no_problem() -> None:
    """A run in which nobody touched a hook ends without a word, however often it is asked."""
    with metering() as meter:
        assert [meter.finish().problems for _ in range(2)] == [(), ()]


# --- clients with network code of their own --------------------------------------------------------------------------


@pytest.fixture
def fake_primp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of the name of a client in Rust."""
    tmp_path.joinpath("primp.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("primp", None)


@pytest.mark.usefixtures("fake_primp")
@pytest.mark.parametrize("strict", [False, True])
def test_blind_client_is_imported(strict: bool) -> None:
    """The import of a client that nobody can see is a notice with its line; with strict_egress it is invalid."""

    def agent() -> None:
        exec(compile("import primp\nimport primp", "/shop/agents.py", "exec"))

    with metering(measure=MeasureRules(strict_egress=strict)) as meter:
        result = run_task(meter, agent)

    text = (
        "/shop/agents.py:1 imported primp, which opens connections out of sight: what it sends is not counted; sealed"
        " keys stop it only at providers that check keys"
    )
    verdict = "invalid" if strict else "notice"
    assert [(p.slug, p.text, p.verdict) for p in result.trace.problems] == [
        ("blind-client", f"{text}\n{MEND}", verdict)
    ]


@pytest.mark.usefixtures("fake_primp")
def test_blind_client_is_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was imported before the start is a notice of the run."""
    importlib.import_module("primp")

    with metering() as meter:
        facts = meter.finish()

    (problem,) = facts.problems
    assert (problem.slug, problem.verdict, problem.task) == ("blind-client", "notice", None)
    assert problem.text.startswith("primp is loaded, and opens connections out of sight")


@pytest.fixture
def unloaded() -> Iterator[None]:
    """Without curl_cffi in the process, before and afterwards: that it is loaded is told to whoever measures."""
    if importlib.util.find_spec("curl_cffi") is None:
        pytest.skip("curl_cffi is not installed")

    def unload() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "curl_cffi"]:
            del sys.modules[name]

    unload()
    yield
    unload()


@pytest.mark.usefixtures("unloaded")
def test_curl_cffi(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client in C reaches the server unseen; it holds a dummy key, so a server that checks keys refuses it, and the
    count is what the server answered."""
    for name in KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")

    def guard(entry: Logged) -> dict[str, Any]:
        return {} if entry.headers.get("authorization") == "Bearer sk-real" else {"status": 401}

    def agent(url: str) -> int:
        from curl_cffi import requests

        headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
        return int(requests.post(url + "/v1/chat/completions", json=chat(), headers=headers).status_code)

    with ModelServer(guard) as model, metering() as meter:
        result = run_task(meter, lambda: agent(model.base_url))

    assert (result.value, [entry.status for entry in model.log], result.fanout) == (401, [401], 0)
    assert slugs(result) == ["blind-client"]
