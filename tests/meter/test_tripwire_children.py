"""Children of the agent are listed however they are started, and the keys that they inherit open nothing."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from metering import chat, metering, run_task
from model_server import Logged, ModelServer

from pytest_fanout.records import MeasureRules
from pytest_fanout.wire.hosts import KEY_VARIABLES

HERE = Path(__file__).resolve()
PYTHON = os.path.basename(sys.executable)


def nothing() -> None:
    """What a child of multiprocessing runs in these tests."""


def by_popen() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def by_asyncio() -> None:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
        await process.wait()

    asyncio.run(run())


def by_posix_spawn() -> None:
    os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-c", ""], os.environ), 0)


def by_forkserver() -> None:
    process = multiprocessing.get_context("forkserver").Process(target=nothing)
    process.start()
    process.join()


@pytest.mark.parametrize(
    ("way", "what"),
    [
        (by_popen, repr(PYTHON)),
        (by_asyncio, repr(PYTHON)),
        (by_posix_spawn, repr(PYTHON)),
        (by_forkserver, "a process of multiprocessing"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_ways_to_start(way: Callable[[], None], what: str) -> None:
    """Each way to start a program is listed once, with the line that did it; Python's own helpers are not."""
    with metering() as meter:
        result = run_task(meter, way)

    assert result.error is None
    assert [(p.slug, p.verdict) for p in result.trace.problems] == [("child-process", "notice")]
    text = result.trace.problems[0].text
    assert text.startswith(f"{HERE}:")
    assert text.endswith(f" started {what}: calls of child processes are not counted")


def run_child(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = HERE.parents[2]
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={
            "PYTHONPATH": f"{root}:{root / 'tests' / 'meter'}",
            "PATH": "/usr/bin:/bin",
            "PYTHONWARNINGS": "ignore:This process:DeprecationWarning",
        },
    )


@pytest.mark.parametrize("strict", [False, True])
def test_forked_child_that_becomes_a_program(strict: bool) -> None:
    """A child made by fork that turns into another program (os.spawnv, pty.spawn) is listed as well."""
    done = run_child(
        """
        import os, sys
        from metering import metering, run_task
        from pytest_fanout.records import MeasureRules
        def agent():
            return os.spawnv(os.P_WAIT, "/bin/sh", ["sh", "-c", "exit 3"])
        with metering(measure=MeasureRules(strict_egress=sys.argv[1] == "True")) as meter:
            result, quiet = run_task(meter, agent), run_task(meter, lambda: None)
            print(result.value, [(p.slug, p.verdict) for p in result.trace.problems], quiet.trace.problems)
            print(result.trace.problems[0].text)
        """,
        str(strict),
    )

    verdict = "invalid" if strict else "notice"
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        f"3 [('child-process', '{verdict}')] ()",
        "a child made by fork became another program: calls of child processes are not counted",
    ]


def test_forked_child_by_multiprocessing(model: ModelServer) -> None:
    """A worker made by fork keeps the hooks: its call is refused, and the task is invalid."""
    done = run_child(
        """
        import multiprocessing, sys
        import httpx2
        from metering import chat, metering, run_task
        def ask(queue):
            with httpx2.Client() as client:
                queue.put(client.post(sys.argv[1] + "/v1/chat/completions", json=chat()).status_code)
        def agent():
            context = multiprocessing.get_context("fork")
            queue = context.SimpleQueue()
            process = context.Process(target=ask, args=(queue,))
            process.start()
            process.join()
            return queue.get()
        with metering() as meter:
            result = run_task(meter, agent)
            print(result.value, result.slugs)
        """,
        model.base_url,
    )

    assert (done.stdout.strip(), done.stderr) == ("400 ['forked-call']", "")
    assert model.log == []


CHILD = """
import os, sys, urllib.request
request = urllib.request.Request(sys.argv[1] + "/v1/chat/completions", data=b'{"model": "m", "messages": []}')
request.add_header("authorization", "Bearer " + os.environ["OPENAI_API_KEY"])
try:
    print(urllib.request.urlopen(request).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.mark.parametrize("strict", [False, True])
def test_child_with_the_dummy_key(strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child inherits a dummy key: a server that checks keys answers 401, so that the task's count is what the server
    answered. The child is listed; with strict_egress the task is invalid."""
    for name in KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")

    def guard(entry: Logged) -> dict[str, Any]:
        return {} if entry.headers.get("authorization") == "Bearer sk-real" else {"status": 401}

    def agent(url: str) -> str:
        headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
        with httpx2.Client() as client:
            client.post(url + "/v1/chat/completions", json=chat(), headers=headers).raise_for_status()
        return subprocess.run([sys.executable, "-c", CHILD, url], capture_output=True, text=True).stdout.strip()

    with ModelServer(guard) as model, metering(measure=MeasureRules(strict_egress=strict)) as meter:
        result = run_task(meter, lambda: agent(model.base_url))

    keys = [entry.headers["authorization"].removeprefix("Bearer ")[:14] for entry in model.log]
    served = [entry for entry in model.log if entry.status == 200]
    assert (result.value, keys) == ("401", ["sk-real", "fanout-sealed-"])
    assert (result.fanout, len(served)) == (1, 1)
    assert [problem.slug for problem in result.trace.problems] == ["child-process"]
    assert result.slugs == (["child-process"] if strict else [])
