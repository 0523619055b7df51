"""Tools that are MCP servers on pipes: recorded request by request, and in replay no server is started."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from metering import Result, Tape, chat, metering, run_task
from model_server import ModelServer

mcp = pytest.importorskip("mcp")
SERVER = Path(__file__).with_name("mcp_server.py")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path


def session(log: Path, use: Callable[[Any], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """An agent that starts the server, says hello, and does something with it."""

    async def agent() -> Any:
        server = mcp.StdioServerParameters(command=sys.executable, args=[str(SERVER), str(log)])
        async with mcp.stdio_client(server) as (read, write), mcp.ClientSession(read, write) as client:
            await client.initialize()
            return await use(client)

    return agent


def text(result: Any) -> str:
    return str(result.content[0].text)


async def two_cities(client: Any) -> list[Any]:
    tools = [tool.name for tool in (await client.list_tools()).tools]
    steps: list[float] = []

    async def progress(step: float, total: float | None, message: str | None) -> None:
        steps.append(step)

    first = text(await client.call_tool("weather", {"city": "Rome"}, progress_callback=progress))
    second, third = await asyncio.gather(
        client.call_tool("weather", {"city": "Oslo"}), client.call_tool("weather", {"city": "Oslo"})
    )
    return [tools, first, sorted([text(second), text(third)]), steps]


def both(agent: Callable[[], Any]) -> tuple[Result, Result]:
    with metering("record") as meter:
        recorded = run_task(meter, agent)
    with metering("replay") as meter:
        replayed = run_task(meter, agent, source=Tape(recorded.trace.exchanges))
    return recorded, replayed


def asked(log: Path) -> list[str]:
    return [line for line in log.read_text().split() if not line.startswith("notifications/")]


def test_results_and_progress_come_from_the_recording(log: Path) -> None:
    """Tools, results in parallel and notes of progress are the same in replay; no server is started for it."""
    recorded, replayed = both(session(log, two_cities))

    assert recorded.value == [
        ["weather", "fail", "hang", "die"],
        "Rome: 1",
        ["Oslo: 2", "Oslo: 3"],
        [1, 2],
    ]
    assert (replayed.error, replayed.value) == (None, recorded.value)
    assert asked(log) == ["initialize", "tools/list", "tools/call", "tools/call", "tools/call"]
    assert [e.request.url for e in recorded.trace.exchanges[1:3]] == [
        f"mcp:///{Path(sys.executable).name}%20mcp_server.py/tools/list",
        f"mcp:///{Path(sys.executable).name}%20mcp_server.py/tools/call",
    ]
    assert {(e.role, e.layer) for e in recorded.trace.exchanges} == {("tool", "mcp")}
    assert (recorded.slugs, replayed.slugs, recorded.fanout) == ([], [], 0)
    assert "progressToken" not in str([e.request.body for e in recorded.trace.exchanges])


def test_other_arguments_are_not_on_the_recording(log: Path) -> None:
    """A call with other arguments gets an error of ours and is a miss of a tool; the server is not asked."""

    def agent(city: str) -> Callable[[], Awaitable[Any]]:
        return session(log, lambda client: client.call_tool("weather", {"city": city}))

    with metering("record") as meter:
        recorded = run_task(meter, agent("Rome"))
    before = asked(log)
    with metering("replay") as meter:
        tape = Tape(recorded.trace.exchanges)
        replayed = run_task(meter, agent("Bonn"), source=tape)

    assert (tape.missed, replayed.trace.misses, asked(log)) == (["tool"], 1, before)
    assert "this tool request is not on the recording of task 't'" in str(_leaf(replayed.error))


def test_errors_of_the_server_are_results(log: Path) -> None:
    """An error that the server answered with is raised again."""

    async def use(client: Any) -> str:
        try:
            await client.call_tool("fail", {})
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "none"

    recorded, replayed = both(session(log, use))
    assert recorded.value.endswith("no such thing")
    assert replayed.value == recorded.value
    assert asked(log).count("tools/call") == 1


def test_a_server_that_dies_dies_again(log: Path) -> None:
    """The client sees its connection end at the same request."""

    async def use(client: Any) -> str:
        try:
            await client.call_tool("die", {})
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "none"

    recorded, replayed = both(session(log, use))
    assert recorded.value != "none"
    assert replayed.value == recorded.value
    assert [e.answer.error for e in recorded.trace.exchanges][-1] == "EndOfStream"


def test_a_tool_that_hangs_is_given_up_again(log: Path) -> None:
    """A request that the agent gave up has no answer in replay either."""

    async def use(client: Any) -> str:
        try:
            await asyncio.wait_for(client.call_tool("hang", {}), 0.2)
        except TimeoutError:
            return "gave up"
        return "none"

    recorded, replayed = both(session(log, use))
    assert (recorded.value, replayed.value) == ("gave up", "gave up")
    assert asked(log).count("tools/call") == 1


def test_a_server_of_a_fixture(log: Path) -> None:
    """A server that set-up has started runs in replay too, but what a task asks comes from the recording."""

    async def measure(mode: str, source: Tape | None) -> tuple[Any, Result]:
        with metering(mode) as meter:
            server = mcp.StdioServerParameters(command=sys.executable, args=[str(SERVER), str(log)])
            async with mcp.stdio_client(server) as (read, write), mcp.ClientSession(read, write) as client:
                await client.initialize()
                scope = meter.open_task("shop", "t", 1, _caps(), source)
                said = text(await client.call_tool("weather", {"city": "Rome"}))
                return said, meter.close_task(scope)  # type: ignore[return-value]

    said, trace = asyncio.run(measure("record", None))
    again, _ = asyncio.run(measure("replay", Tape(trace.exchanges)))  # type: ignore[attr-defined]

    assert (said, again) == ("Rome: 1", "Rome: 1")
    assert asked(log) == ["initialize", "tools/call", "tools/list", "initialize"]


def test_live_the_client_sees_what_it_would_have_seen(log: Path, model: ModelServer) -> None:
    """With a model call between, live: results are the server's own, and only the model call is fanout."""
    import httpx2

    async def use(client: Any) -> list[Any]:
        async with httpx2.AsyncClient(verify=False) as web:
            await web.post(model.base_url + "/v1/chat/completions", json=chat())
        return await two_cities(client)

    with metering("live") as meter:
        result = run_task(meter, session(log, use))

    assert result.value[1:3] == ["Rome: 1", ["Oslo: 2", "Oslo: 3"]]
    assert (result.fanout, result.slugs) == (1, [])


def _leaf(error: BaseException | None) -> BaseException | None:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _caps() -> Any:
    from pytest_fanout.records import Caps

    return Caps()
