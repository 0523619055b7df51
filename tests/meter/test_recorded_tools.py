"""``@pytest_fanout.recorded``: tools that speak no HTTP are recorded with their trial and give the same again."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from metering import Result, Tape, chat, metering, run_task
from model_server import ModelServer

import pytest_fanout
from pytest_fanout.errors import FanoutError
from pytest_fanout.meter import Meter
from pytest_fanout.records import Caps, MeasureRules
from pytest_fanout.session import api

RAN: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@pytest_fanout.recorded
def price(sku: str, currency: str = "EUR") -> tuple[str, int]:
    RAN.append(sku)
    if sku == "none":
        raise KeyError(sku)
    return sku, len(RAN)


@pytest_fanout.recorded
async def stock(sku: str) -> dict[str, int]:
    RAN.append(sku)
    await asyncio.sleep(0)
    if sku == "none":
        raise sqlite3.OperationalError("no such table: stock")
    return {sku: len(RAN)}


@pytest_fanout.recorded(ignore="connection")
def rows(connection: Any, query: str) -> list[Any]:
    RAN.append(query)
    return list(connection.execute(query))


class Shop:
    @pytest_fanout.recorded
    def open_at(self, hour: int) -> bool:
        RAN.append(hour)
        return hour > 8

    @staticmethod
    @pytest_fanout.recorded
    def name() -> str:
        RAN.append("name")
        return "shop"


@contextmanager
def measuring(mode: str, **settings: Any) -> Iterator[Meter]:
    with metering(mode, **settings) as meter:
        api.activate(meter)
        try:
            yield meter
        finally:
            api.activate(None)


def record(agent: Callable[[], Any], **more: Any) -> Result:
    with measuring("record", **more) as meter:
        return run_task(meter, agent)


def replay(agent: Callable[[], Any], recorded: Result, caps: Caps | None = None) -> Result:
    with measuring("replay") as meter:
        return run_task(meter, agent, source=Tape(recorded.trace.exchanges), caps=caps)


def both(agent: Callable[[], Any]) -> tuple[Result, Result, int]:
    """Recorded, replayed, and how often a tool really ran."""
    recorded = record(agent)
    replayed = replay(agent, recorded)
    return recorded, replayed, len(RAN)


def test_results_come_from_the_recording() -> None:
    """In replay the function does not run; it gives what it gave, each time what it gave that time."""

    def agent() -> list[Any]:
        return [
            price("a"),
            price("a"),
            price("b", currency="USD"),
            asyncio.run(stock("c")),
            Shop().open_at(9),
            Shop.name(),
        ]

    recorded, replayed, ran = both(agent)

    assert recorded.value == [("a", 1), ("a", 2), ("b", 3), {"c": 4}, True, "shop"]
    assert (replayed.value, replayed.slugs, recorded.slugs) == (recorded.value, [], [])
    assert ran == 6
    assert [e.request.url for e in recorded.trace.exchanges][-2:] == [
        "call:///test_recorded_tools.Shop.open_at",
        "call:///test_recorded_tools.Shop.name",
    ]
    assert {(e.role, e.layer) for e in recorded.trace.exchanges} == {("tool", "recorded")}


def test_exceptions_are_results() -> None:
    """What a tool raised it raises again, of the same class and with the same text; sync and async."""

    def agent() -> list[str]:
        told = []
        for call in (lambda: price("none"), lambda: asyncio.run(stock("none"))):
            try:
                call()
            except (KeyError, sqlite3.OperationalError) as error:
                told.append(repr(error))
        return told

    recorded, replayed, ran = both(agent)

    assert recorded.value == ["KeyError('none')", "OperationalError('no such table: stock')"]
    assert (replayed.value, replayed.slugs, ran) == (recorded.value, [], 2)


def test_defaults_and_ways_to_pass_arguments_do_not_matter() -> None:
    """A call is known by its arguments, not by how they are written."""
    recorded = record(lambda: price("a"))
    assert replay(lambda: price(currency="EUR", sku="a"), recorded).value == ("a", 1)


def test_other_arguments_are_not_on_the_recording() -> None:
    """The function does not run, the miss is a tool's, and the error names the function."""
    recorded = record(lambda: price("a"))
    RAN.clear()
    with measuring("replay") as meter:
        tape = Tape(recorded.trace.exchanges)
        result = run_task(meter, lambda: price("b"), source=tape)

    assert (RAN, tape.missed, result.trace.misses) == ([], ["tool"], 1)
    assert isinstance(result.error, FanoutError)
    assert "this tool request is not on the recording of task 't'" in str(result.error)


def test_an_argument_can_be_left_out() -> None:
    """``ignore`` names what does not tell one call from another."""

    def agent() -> list[Any]:
        connection = sqlite3.connect(":memory:")
        try:
            return rows(connection, "select 1, 'x'")
        finally:
            connection.close()

    recorded, replayed, ran = both(agent)
    assert (recorded.value, replayed.value, ran) == ([(1, "x")], [(1, "x")], 1)


def test_results_made_by_hand() -> None:
    """``dump`` and ``load`` stand for a result that has no form of its own."""

    @pytest_fanout.recorded(dump=lambda result: result.real, load=complex)
    def find() -> complex:
        RAN.append(1)
        return complex(3)

    recorded, replayed, ran = both(find)
    assert (recorded.value, replayed.value, ran) == (3 + 0j, 3 + 0j, 1)
    assert type(replayed.value) is complex


def test_what_cannot_be_recorded_makes_the_task_invalid() -> None:
    """The agent goes on as it would without us; the problem says which value, and how to mend it."""

    @pytest_fanout.recorded
    def find(thing: Any) -> int:
        return 1

    @pytest_fanout.recorded
    def gives() -> object:
        return object()

    recorded = record(lambda: [find(object()), find(1)])
    given = record(lambda: gives())
    lost = record(lambda: find(1j))

    assert recorded.error is None
    name = f"{__name__}.test_what_cannot_be_recorded_makes_the_task_invalid.<locals>.find cannot be recorded: "
    ignore = '\n  mend: @pytest_fanout.recorded(ignore=("thing",))'
    assert [p.text.removeprefix(name) for p in (*recorded.trace.problems, *lost.trace.problems)] == [
        "argument thing is of the type builtins.object, which cannot be recorded" + ignore,
        "argument thing is of the type builtins.complex, which cannot be recorded" + ignore,
    ]
    assert [p.text.partition("gives ")[2] for p in given.trace.problems] == [
        "cannot be recorded: the result is of the type builtins.object, which cannot be recorded\n"
        "  mend: give @pytest_fanout.recorded a dump= and a load= for it"
    ]
    assert [(p.slug, p.verdict) for p in recorded.trace.problems] == [("unrecordable-value", "invalid")]


def test_what_a_tool_does_is_part_of_it(model: ModelServer) -> None:
    """HTTP and recorded functions inside a recorded function are not recorded apart, and do not run in replay."""

    @pytest_fanout.recorded
    def look_up() -> int:
        price("a")
        return httpx2.get(model.base_url + "/tool/x", verify=False).status_code

    recorded, replayed, ran = both(look_up)

    assert (recorded.slugs, replayed.slugs, ran) == ([], [], 1)
    assert recorded.value == replayed.value
    assert [e.request.url.rpartition(".")[2] for e in recorded.trace.exchanges] == ["look_up"]
    assert len(model.log) == 1


def test_a_model_call_inside_is_counted_and_told(model: ModelServer) -> None:
    """A replay would leave it out, so it may not be there: it is counted, and the task is invalid."""

    @pytest_fanout.recorded
    def summarise() -> int:
        with httpx2.Client(verify=False) as client:
            return client.post(model.base_url + "/v1/chat/completions", json=chat()).status_code

    recorded = record(summarise)

    assert (recorded.fanout, len(model.generated)) == (1, 1)
    assert recorded.slugs == ["model-call-in-recorded"]
    assert recorded.trace.problems[0].text == (
        f"{__name__}.test_a_model_call_inside_is_counted_and_told.<locals>.summarise is recorded, but calls a model "
        f"(POST {model.base_url.removeprefix('http://')}), which a replay would leave out\n"
        "  mend: call models outside of functions marked @pytest_fanout.recorded"
    )


def test_sockets_inside_are_no_unhooked_peers() -> None:
    """With strict_egress a driver's connection makes a task invalid, but not in a recorded function."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:

        @pytest_fanout.recorded
        def ask() -> int:
            with socket.create_connection(server.getsockname()):
                return 1

        inside = record(ask, measure=MeasureRules(strict_egress=True))
        outside = record(ask.__wrapped__, measure=MeasureRules(strict_egress=True))

    assert (inside.slugs, outside.slugs) == ([], ["unhooked-peer"])


def test_threads_replay_their_own() -> None:
    """Parallel calls in threads each get the result of their arguments, in whatever order they come."""

    def agent() -> dict[str, Any]:
        found: dict[str, Any] = {}
        threads = [threading.Thread(target=lambda n=n: found.update({n: price(n)[0]})) for n in "abcdef"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return dict(sorted(found.items()))

    recorded, replayed, ran = both(agent)
    assert recorded.value == replayed.value == {n: n for n in "abcdef"}
    assert (ran, replayed.slugs) == (6, [])


def test_a_timeout_of_the_agent_happens_again() -> None:
    """A call that the agent gave up waiting for is given up in replay too."""

    @pytest_fanout.recorded
    async def slow() -> None:
        RAN.append(1)
        await asyncio.sleep(60)

    async def agent() -> str:
        try:
            await asyncio.wait_for(slow(), 0.05)
        except TimeoutError:
            return "gave up"
        return "waited"

    recorded, replayed, ran = both(agent)
    assert (recorded.value, replayed.value, ran, replayed.slugs) == ("gave up", "gave up", 1, [])


def test_a_result_that_cannot_be_read_any_more() -> None:
    """A class that is gone since the recording was made is told as that, and the task is invalid."""
    recorded = record(lambda: price("a"))
    (exchange,) = recorded.trace.exchanges
    body = b'{"returned":{"$object":["test_recorded_tools:Gone",{}]}}'
    altered = replace(exchange, answer=replace(exchange.answer, chunks=(body,)))
    with measuring("replay") as meter:
        result = run_task(meter, lambda: price("a"), source=Tape([altered]))

    assert [(p.slug, p.text) for p in result.trace.problems] == [
        (
            "unreadable-result",
            "test_recorded_tools.price: the recorded result cannot be read: $object cannot be read: "
            "AttributeError: module 'test_recorded_tools' has no attribute 'Gone'\n"
            "  mend: record it anew: pytest --fanout-budget --fanout-mode=record",
        )
    ]
    assert [p.slug for p in result.trace.problems] == result.slugs
    assert isinstance(result.error, FanoutError)


def test_outside_of_tasks_and_live_it_is_an_ordinary_function() -> None:
    """Without a measurement, between tasks, and in live mode the function simply runs."""
    first = price("a")
    with measuring("record") as meter:
        between = price("a")
        run_task(meter, lambda: None)
    with measuring("live") as meter:
        live = run_task(meter, lambda: price("a"))

    assert [first[1], between[1], live.value[1]] == [1, 2, 3]
    assert live.trace.exchanges == ()


def test_production_loads_nothing_of_the_gate() -> None:
    """An agent that imports the decorator where it ships loads two small modules of ours."""
    code = (
        "import sys, pytest_fanout\n"
        "@pytest_fanout.recorded\n"
        "def f(x): return x\n"
        "assert f(1) == 1\n"
        "print(sorted(m for m in sys.modules if m.startswith('pytest_fanout') or m == 'pytest'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['pytest_fanout', 'pytest_fanout.session', 'pytest_fanout.session.recorded']"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: pytest_fanout.recorded(3),
            "@recorded needs a function, not 3; put it below @staticmethod and the like",
        ),  # type: ignore[type-var]
        (lambda: pytest_fanout.recorded(ignore=["y"])(lambda x: x), "has no argument y"),
        (lambda: pytest_fanout.recorded(_yields), "@recorded: _yields yields; have it return a list"),
    ],
    ids=["no-function", "unknown-argument", "generator"],
)
def test_what_cannot_be_decorated_is_said_at_once(make: Any, text: str) -> None:
    """The mistake shows at import, not in the middle of a recording."""
    with pytest.raises(TypeError) as raised:
        make()
    assert text in str(raised.value)


def _yields() -> Iterator[int]:
    yield 1


def test_wrong_arguments_fail_as_ever() -> None:
    """A call that does not fit the function raises Python's own TypeError."""
    result = record(lambda: price())  # type: ignore[call-arg]
    assert isinstance(result.error, TypeError)
    assert "missing 1 required positional argument: 'sku'" in str(result.error)
