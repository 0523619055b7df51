"""Children that an agent starts by itself: through the gateway where that is wished, listed where it is not."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from metering import Tape, chat, metering, run_task
from model_server import ModelServer
from outside import ask_from_here

from pytest_fanout.errors import TaskStopped
from pytest_fanout.meter import Meter
from pytest_fanout.records import Caps

HERE = str(Path(__file__).parents[1])
CALL = f"import sys; sys.path.insert(0, {HERE!r}); from outside import ask_from_here; ask_from_here('from a child')"


@contextmanager
def counting(model: ModelServer, monkeypatch: pytest.MonkeyPatch, mode: str = "live") -> Iterator[Meter]:
    """A meter that sends the children of the class ``shop`` through the gateway."""
    monkeypatch.setenv("OPENAI_BASE_URL", model.base_url + "/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    with metering(mode) as meter:
        meter.count_children(["shop"])
        yield meter


def by_popen() -> None:
    subprocess.run([sys.executable, "-c", CALL], check=True)


def by_popen_with_an_environment() -> None:
    subprocess.run([sys.executable, "-c", CALL], check=True, env={**os.environ, "SHOP": "open"})


def by_shell() -> None:
    subprocess.check_output(f"{sys.executable} -c {CALL!r}", shell=True)


def by_a_grandchild() -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CALL!r}], check=True)"
    subprocess.run([sys.executable, "-c", code], check=True)


def by_asyncio() -> None:
    async def start() -> None:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", CALL)
        assert await process.wait() == 0

    asyncio.run(start())


def by_a_thread() -> None:
    asyncio.run(asyncio.to_thread(by_popen))  # type: ignore[arg-type]


def by_posix_spawn() -> None:
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", CALL], os.environ)
    assert os.waitpid(pid, 0)[1] == 0


def by_multiprocessing() -> None:
    process = multiprocessing.get_context("spawn").Process(target=ask_from_here, args=("from a process",))
    process.start()
    process.join()
    assert process.exitcode == 0


WAYS = [
    by_popen,
    by_popen_with_an_environment,
    by_shell,
    by_a_grandchild,
    by_asyncio,
    by_a_thread,
    by_posix_spawn,
    by_multiprocessing,
]


def slugs(result: Any) -> list[str]:
    return [problem.slug for problem in result.trace.problems]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_child_is_counted_to_its_task(
    way: Callable[[], None], model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child's call is its task's, one step deeper, beside the task's own; the environment is as it was before."""

    def agent() -> None:
        with httpx2.Client(verify=False) as client:
            client.post(model.base_url + "/v1/chat/completions", json=chat())
        way()

    with counting(model, monkeypatch) as meter:
        before = dict(os.environ)
        result = run_task(meter, agent)
        assert dict(os.environ) == before

    assert result.error is None
    samples = result.measured.samples
    assert (samples["fanout"], samples["spawn_depth"], len(model.generated)) == (2, 1, 2)
    assert model.generated[1].headers["authorization"] == "Bearer sk-real"
    assert slugs(result) == []


def test_child_is_replayed(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child's call is answered from the recording of its task; one that is not on it is missed, and not sent."""
    with counting(model, monkeypatch, "replay") as meter:
        missed = run_task(meter, lambda: subprocess.run([sys.executable, "-c", CALL], stderr=subprocess.DEVNULL))
    with counting(model, monkeypatch) as meter:
        recorded = run_task(meter, by_popen)
    with counting(model, monkeypatch, "replay") as meter:
        sent = len(model.generated)
        replayed = run_task(meter, by_popen, source=Tape(recorded.trace.exchanges))

    assert (missed.trace.misses, missed.fanout) == (1, 0)
    assert (sent, len(model.generated), replayed.fanout, replayed.trace.misses) == (1, 1, 1, 0)


def test_children_share_the_caps_of_their_task(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A19: under a cap of five a task and three children that each want four send five; what is left of them ends."""
    code = CALL.replace("ask_from_here('from a child')", "\n[ask_from_here(str(n)) for n in range(4)]")

    def agent() -> None:
        with httpx2.Client(verify=False) as client:
            client.post(model.base_url + "/v1/chat/completions", json=chat())
        children = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) for _ in range(3)]
        for child in children:
            child.wait()

    with counting(model, monkeypatch) as meter:
        result = run_task(meter, agent, caps=Caps(fanout=5))

    assert (result.trace.capped, result.fanout, len(model.generated)) == ("fanout", 5, 5)


def test_capped_child_that_goes_on_is_ended(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that catches everything is ended with its capped task, which waits for it without end."""
    monkeypatch.setattr("pytest_fanout.meter.stopper._GRACE_S", 0.2)
    loop = "\nwhile True:\n  try: ask_from_here('again')\n  except BaseException: pass"
    children: list[Any] = []

    def agent() -> None:
        children.append(subprocess.Popen([sys.executable, "-c", CALL.replace("ask_from_here('from a child')", loop)]))
        children[0].wait()

    begun = time.monotonic()
    with counting(model, monkeypatch) as meter:
        result = run_task(meter, agent, caps=Caps(fanout=3))

    assert isinstance(result.error, TaskStopped)
    assert (result.trace.capped, result.fanout, len(model.generated)) == ("fanout", 3, 3)
    assert children[0].wait(10) == -9
    assert time.monotonic() - begun < 20


def test_children_of_other_classes_are_listed(model: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the setting a child keeps its environment, and its start is a notice that names it."""
    with counting(model, monkeypatch) as meter:
        scope = meter.open_task("other", "t", 1, Caps())
        said = subprocess.run(
            [sys.executable, "-c", "import os; print(os.environ.get('FANOUT_GATEWAY'))"], capture_output=True, text=True
        )
        trace = meter.close_task(scope)

    assert said.stdout == "None\n"
    assert [problem.slug for problem in trace.problems] == ["child-process"]
