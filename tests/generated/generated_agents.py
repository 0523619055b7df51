"""Running a plan as an agent under a meter, and comparing what was counted with the server's own log."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import multiprocessing.pool
import os
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from generated_clients import (
    KEY_VARIABLE,
    REAL_KEY,
    AsyncClient,
    Op,
    SyncClient,
    async_clients,
    sync_clients,
    tls,
)
from generated_plans import Plan
from model_server import Logged, ModelServer

from pytest_fanout.meter import Meter, TaskScope, measure_trial
from pytest_fanout.records import Caps, MeasureRules, Problem

TOOLS = [{"name": "find", "arguments": {"q": "x"}}, {"name": "price", "arguments": {"sku": 7}}]
#: Calls that a program makes in a child of its own: the same client, started by the same interpreter.
_CHILD = "import sys, json; sys.path[:0] = json.loads(sys.argv[1]); import generated_child; generated_child.main()"
_HERE = str(Path(__file__).resolve().parent)


class Script:
    """How the server answers: by the marks in the request's text, and 401 to every key but the real one."""

    def __init__(self) -> None:
        self._refused: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, entry: Logged) -> dict[str, Any]:
        if key_of(entry) != REAL_KEY:
            return {"status": 401}
        body = entry.body.decode("utf-8", "replace")
        rule: dict[str, Any] = {}
        if "[429]" in body and self._is_first(body):
            return {"status": 429, "headers": {"retry-after-ms": "1"}}
        if "[500]" in body:
            return {"status": 500, "headers": {"retry-after-ms": "1"}}
        if "[cut]" in body:
            rule["break_after"] = 3
        if "[tool_call]" in body:
            rule["tool_calls"] = TOOLS
        return rule

    def _is_first(self, body: str) -> bool:
        with self._lock:
            is_first = body not in self._refused
            self._refused.add(body)
        return is_first


def key_of(entry: Logged) -> str:
    return entry.headers.get("x-api-key") or entry.headers.get("authorization", "").removeprefix("Bearer ")


@dataclass(frozen=True)
class Truth:
    """What the server saw. Tokens are None where an answer was not read to its end, so that nobody can know them."""

    calls: int
    attempts: int
    tool_calls: int
    tokens: int | None


def truth_of(log: Iterable[Logged], plan: Plan) -> Truth:
    """By the server's log: an answer that began is a call, what it refused was only tried, and a bypass of the hooks
    with a sealed key was nothing. Each request has a text of its own, so whoever asks again after an answer was cut
    off continues the same call."""
    generated = [entry for entry in log if entry.dialect and key_of(entry) == REAL_KEY]
    answered = [entry for entry in generated if entry.status in (200, None)]
    ops = [op for stage in plan.stages for op in stage.ops]
    unread = any(op.how == "early" or op.fault == "cut" for op in ops if op.what in ("model", "tool_call"))
    used = [entry.usage for entry in answered]
    tokens = None if unread else sum(u["input"] + u["output"] for u in used if u)
    asked = sum(len(entry.tool_calls) for entry in answered)
    calls = len({(entry.path, entry.body) for entry in answered})
    return Truth(calls, len(generated), asked, tokens)


@dataclass(frozen=True)
class Outcome:
    """``kind``: exact, not green (``problems`` say why), or silent: green and wrong, which must never be."""

    plan: Plan
    truth: Truth
    counted: dict[str, int | None]
    problems: tuple[Problem, ...]

    @property
    def is_green(self) -> bool:
        return not self.problems

    @property
    def is_exact(self) -> bool:
        counted, truth = self.counted, self.truth
        tokens = None if counted["input_tokens"] is None else counted["input_tokens"] + (counted["output_tokens"] or 0)
        same = (counted["fanout"], counted["attempts"]) == (truth.calls, truth.attempts)
        if truth.tokens is None:
            return same  # whether a stream that was left early had told its usage, only the client's speed decides
        return same and counted["tool_calls"] == truth.tool_calls and tokens == truth.tokens

    @property
    def kind(self) -> str:
        if not self.is_green:
            return "not green"
        return "exact" if self.is_exact else "silent"


class World:
    """What is there before any agent: a server, clients, and workers as an application creates them at import."""

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self.sync: dict[str, SyncClient] = sync_clients()
        self.asyncs: dict[str, AsyncClient] = async_clients()
        self.pool = ThreadPoolExecutor(3, thread_name_prefix="from-import")
        list(self.pool.map(lambda _: None, range(3)))
        self.jobs: queue.Queue[tuple[Callable[[], None], Future[None]] | None] = queue.Queue()
        self.worker = threading.Thread(target=self._work, name="worker-from-before", daemon=True)
        self.worker.start()

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            function, done = job
            function()
            done.set_result(None)

    def close(self) -> None:
        self.jobs.put(None)
        self.worker.join()
        self.pool.shutdown()


class Running:
    """One agent while it runs."""

    def __init__(self, world: World, plan: Plan, meter: Meter, scope: TaskScope) -> None:
        self.world = world
        self.plan = plan
        self.meter = meter
        self.scope = scope
        self.ended = threading.Event()  # set when the task has been closed
        self.left_behind: list[threading.Thread] = []

    def send(self, op: Op) -> None:
        self.world.sync[op.client](op)

    async def asend(self, op: Op) -> None:
        await self.world.asyncs[op.client](op)

    def run(self) -> None:
        if self.plan.is_async:
            asyncio.run(self._arun())
            return
        for stage in self.plan.stages:
            _SYNC[stage.carrier](self, stage.ops)

    async def _arun(self) -> None:
        for stage in self.plan.stages:
            await _ASYNC[stage.carrier](self, stage.ops)

    def leave_behind(self, function: Callable[[], None]) -> None:
        """A thread that goes on after the task has ended."""

        def later() -> None:
            self.ended.wait()
            function()

        thread = threading.Thread(target=later)
        thread.start()
        self.left_behind.append(thread)

    def child(self, ops: tuple[Op, ...], environ: dict[str, str]) -> None:
        paths = json.dumps([_HERE, str(Path(_HERE).parent)])
        given = json.dumps([vars_of(op) for op in ops])
        done = subprocess.run([sys.executable, "-c", _CHILD, paths], input=given, text=True, env=environ, timeout=60)
        assert done.returncode == 0


def vars_of(op: Op) -> dict[str, str]:
    return {name: getattr(op, name) for name in ("client", "how", "fault", "what", "text", "url")}


# --- sync carriers ------------------------------------------------------------------------------------------


def _in_order(running: Running, ops: tuple[Op, ...]) -> None:
    for op in ops:
        running.send(op)


def _threads(running: Running, ops: tuple[Op, ...]) -> None:
    threads = [threading.Thread(target=running.send, args=(op,)) for op in ops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _pool(running: Running, ops: tuple[Op, ...]) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(running.send, ops))


def _pool_from_import(running: Running, ops: tuple[Op, ...]) -> None:
    list(running.world.pool.map(running.send, ops))


def _multiprocessing_pool(running: Running, ops: tuple[Op, ...]) -> None:
    with multiprocessing.pool.ThreadPool(2) as pool:
        pool.map(running.send, ops)


def _timer(running: Running, ops: tuple[Op, ...]) -> None:
    timers = [threading.Timer(0.001, running.send, (op,)) for op in ops]
    for timer in timers:
        timer.start()
    for timer in timers:
        timer.join()


def _asyncio_run(running: Running, ops: tuple[Op, ...]) -> None:
    async def all_of_them() -> None:
        await asyncio.gather(*(running.asend(op) for op in ops))

    asyncio.run(all_of_them())


def _asyncio_in_a_thread(running: Running, ops: tuple[Op, ...]) -> None:
    thread = threading.Thread(target=_asyncio_run, args=(running, ops))
    thread.start()
    thread.join()


def _worker_from_before(running: Running, ops: tuple[Op, ...]) -> None:
    dones: list[Future[None]] = []
    for op in ops:
        done: Future[None] = Future()
        running.world.jobs.put((lambda op=op: running.send(op), done))  # type: ignore[misc]
        dones.append(done)
    for done in dones:
        done.result()


def _stream_ended_by_another_thread(running: Running, ops: tuple[Op, ...]) -> None:
    import httpx2

    for op in ops:
        client = httpx2.Client(timeout=20, verify=tls())
        request = client.build_request(op.method, op.url + op.path, content=op.payload, headers=op.headers)
        answer = client.send(request, stream=True)
        reader = threading.Thread(target=answer.read)
        reader.start()
        reader.join()
        client.close()


def _late_thread(running: Running, ops: tuple[Op, ...]) -> None:
    running.send(ops[0])
    running.leave_behind(lambda: _in_order(running, ops[1:]))


def _child(running: Running, ops: tuple[Op, ...]) -> None:
    running.child(ops, dict(os.environ))


def _child_by_the_gateway(running: Running, ops: tuple[Op, ...]) -> None:
    running.child(ops, running.meter.gateway().environ_for(running.scope, os.environ))


def _fork(running: Running, ops: tuple[Op, ...]) -> None:
    process = multiprocessing.get_context("fork").Process(target=_in_order, args=(running, ops))
    process.start()
    process.join()


_SYNC: dict[str, Callable[[Running, tuple[Op, ...]], None]] = {
    "in order": _in_order,
    "threads": _threads,
    "pool": _pool,
    "pool from import": _pool_from_import,
    "multiprocessing pool": _multiprocessing_pool,
    "timer": _timer,
    "asyncio.run": _asyncio_run,
    "asyncio in a thread": _asyncio_in_a_thread,
    "worker from before": _worker_from_before,
    "stream ended by another thread": _stream_ended_by_another_thread,
    "late thread": _late_thread,
    "child": _child,
    "child by the gateway": _child_by_the_gateway,
    "fork": _fork,
}


# --- async carriers -----------------------------------------------------------------------------------------


async def _a_in_order(running: Running, ops: tuple[Op, ...]) -> None:
    for op in ops:
        await running.asend(op)


async def _gather(running: Running, ops: tuple[Op, ...]) -> None:
    await asyncio.gather(*(running.asend(op) for op in ops))


async def _task_group(running: Running, ops: tuple[Op, ...]) -> None:
    async with asyncio.TaskGroup() as group:
        for op in ops:
            group.create_task(running.asend(op))


async def _to_thread(running: Running, ops: tuple[Op, ...]) -> None:
    await asyncio.gather(*(asyncio.to_thread(running.send, op) for op in ops))


async def _run_in_executor(running: Running, ops: tuple[Op, ...]) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(loop.run_in_executor(None, running.send, op) for op in ops))


async def _anyio(running: Running, ops: tuple[Op, ...]) -> None:
    import anyio
    import anyio.to_thread

    async with anyio.create_task_group() as group:
        for op in ops:
            group.start_soon(anyio.to_thread.run_sync, running.send, op)


async def _async_generator(running: Running, ops: tuple[Op, ...]) -> None:
    async def steps() -> Any:
        for op in ops:
            await running.asend(op)
            yield op

    generator = steps()
    first = asyncio.ensure_future(generator.__anext__())
    await first
    async for _ in generator:  # the rest runs in another task than the first step
        continue


async def _late_task(running: Running, ops: tuple[Op, ...]) -> None:
    await running.asend(ops[0])
    running.leave_behind(lambda: asyncio.run(_a_in_order(running, ops[1:])))


async def _a_child(running: Running, ops: tuple[Op, ...]) -> None:
    await asyncio.to_thread(_child, running, ops)


async def _a_child_by_the_gateway(running: Running, ops: tuple[Op, ...]) -> None:
    await asyncio.to_thread(_child_by_the_gateway, running, ops)


_ASYNC: dict[str, Callable[[Running, tuple[Op, ...]], Any]] = {
    "in order": _a_in_order,
    "gather": _gather,
    "task group": _task_group,
    "to_thread": _to_thread,
    "run_in_executor": _run_in_executor,
    "anyio": _anyio,
    "async generator": _async_generator,
    "late task": _late_task,
    "child": _a_child,
    "child by the gateway": _a_child_by_the_gateway,
}


# --- measuring ----------------------------------------------------------------------------------------------


def run_plan(world: World, plan: Plan) -> Outcome:
    """Run one agent under a meter of its own, in live mode, and tell what was counted beside what the server saw."""
    world.server.restart(Script())
    given = {KEY_VARIABLE: REAL_KEY, "OPENAI_BASE_URL": world.server.base_url + "/v1"}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    meter = Meter(mode="live", measure=MeasureRules())
    problems = list(meter.start())
    try:
        scope = meter.open_task("generated", str(plan.seed), 1, Caps(wall_seconds=60))
        running = Running(world, plan, meter, scope)
        try:
            running.run()
        finally:
            trace = meter.close_task(scope)
        running.ended.set()
        for thread in running.left_behind:
            thread.join()
        facts = meter.finish()
    finally:
        meter.stop()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    measured = measure_trial(trace.exchanges, trace.duration_ms)
    problems += [*trace.problems, *measured.problems, *scope.problems, *facts.problems]
    if not measured.samples["fanout"]:
        # the gate's own rule: a task without a counted call is not measured
        problems.append(Problem("no-counted-call", "no model call was counted"))
    red = tuple(dict.fromkeys(problem for problem in problems if problem.verdict != "notice"))
    names = ("fanout", "attempts", "tool_calls", "input_tokens", "output_tokens")
    counted = {name: measured.samples[name] for name in names}
    return Outcome(plan, truth_of(world.server.log, plan), counted, red)


def tally(outcomes: Iterable[Outcome]) -> Counter[str]:
    return Counter(outcome.kind for outcome in outcomes)
