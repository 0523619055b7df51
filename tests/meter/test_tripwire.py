"""Traffic that goes round the hooks is noticed, named, and stopped in replay."""

from __future__ import annotations

import asyncio
import ctypes.util
import multiprocessing
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import raw_client
from metering import Tape, chat, metering, run_task
from model_server import ModelServer

from pytest_fanout.records import MeasureRules

HERE = os.path.abspath(__file__)


def line_of(text: str, file: str = HERE) -> int:
    """Number of the one line of ``file`` that ends with ``text`` as a comment."""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}"))


def raw_call(url: str) -> int:
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as connection:  # raw call
        return raw_client.talk(connection, url)


def hooked_call(url: str) -> None:
    with httpx2.Client() as client:
        client.post(url + "/v1/chat/completions", json=chat())


def test_raw_client_beside_a_counted_one(model: ModelServer) -> None:
    """A6: a peer that served a counted call is a model server; reaching it by a raw socket makes the task invalid."""

    def agent() -> None:
        hooked_call(model.base_url)
        raw_call(model.base_url)

    with metering() as meter:
        result = run_task(meter, agent)

    text = (
        f"{HERE}:{line_of('raw call')} connected to the model server 127.0.0.1:{model.port} outside every counting"
        " hook: its calls are not counted\n"
        "  mend: call models through a client that is counted: httpx, httpx2, aiohttp, urllib3 (requests, botocore),"
        " urllib.request, http.client, websockets, gRPC; docs/coverage.md tells of others"
    )
    assert (result.fanout, len(model.generated)) == (1, 2)
    assert [(p.slug, p.text, p.verdict) for p in result.trace.problems] == [("unhooked-model-traffic", text, "invalid")]


@pytest.mark.parametrize("mode", ["replay", "record"])
def test_replay_stops_the_connection(mode: str, model: ModelServer) -> None:
    """A task that is replayed, in whatever mode, does not reach a server by a bypass: it is refused and named."""
    with metering(mode, hosts=[f"localhost:{model.port}"]) as meter:
        result = run_task(meter, lambda: raw_call(model.base_url), source=Tape(()))

    assert model.log == []
    assert "replay goes to no model server" in str(result.error)
    assert result.slugs == ["unhooked-model-traffic"]


def test_known_host_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model host that is looked up and then connected to outside the hooks is named by its name."""
    monkeypatch.setattr(socket, "getaddrinfo", audited_lookup("192.0.2.7"))

    def agent() -> None:
        socket.getaddrinfo("api.openai.com", 443)
        with socket.socket() as raw:
            raw.connect(("192.0.2.7", 443))

    with metering("replay") as meter:
        result = run_task(meter, agent, source=Tape(()))

    assert isinstance(result.error, ConnectionRefusedError)
    assert "the model server api.openai.com:443" in result.trace.problems[0].text


def audited_lookup(address: str) -> Any:
    def lookup(host: str, port: int, *more: Any, **named: Any) -> Any:
        sys.audit("socket.getaddrinfo", host, port, 0, 0, 0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    return lookup


def test_lookup_alone_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is only looked up, or a connection to another port, makes no task invalid."""
    monkeypatch.setattr(socket, "getaddrinfo", audited_lookup("192.0.2.7"))
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def agent() -> None:
            socket.getaddrinfo("api.openai.com", 443)
            socket.create_connection(server.getsockname()).close()

        with metering() as meter:
            result = run_task(meter, agent)

    assert result.slugs == []


def test_async_lookups_of_hooked_calls_are_no_bypass(model: ModelServer) -> None:
    """asyncio resolves names in threads: a hooked call's own look-up and connection are not held against it."""

    async def agent() -> None:
        async with httpx2.AsyncClient() as client:
            url = f"http://localhost:{model.port}/v1/chat/completions"
            await asyncio.gather(*(client.post(url, json=chat(str(number))) for number in range(5)))

    with metering() as meter:
        result = run_task(meter, agent)

    assert (result.fanout, result.trace.problems) == (5, ())


@pytest.mark.parametrize("strict", [False, True])
def test_other_peers_are_listed(strict: bool) -> None:
    """A database beside the agent is a notice, once; with strict_egress it is invalid."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]

        def agent() -> None:
            for _ in range(2):
                socket.create_connection(("127.0.0.1", port)).close()  # peer

        with metering(measure=MeasureRules(strict_egress=strict)) as meter:
            result = run_task(meter, agent)

    text = f"{HERE}:{line_of('peer')} connected to 127.0.0.1:{port} outside every counting hook"
    verdict = "invalid" if strict else "notice"
    assert [(p.slug, p.text, p.verdict) for p in result.trace.problems] == [("unhooked-peer", text, verdict)]


@pytest.mark.parametrize("strict", [False, True])
def test_child_processes_are_listed(strict: bool) -> None:
    """A child process is a notice that names it, once; with strict_egress it is invalid."""

    def agent() -> None:
        for _ in range(2):
            subprocess.run([sys.executable, "-c", ""], check=True)  # child

    with metering(measure=MeasureRules(strict_egress=strict)) as meter:
        result = run_task(meter, agent)

    name = os.path.basename(sys.executable)
    text = f"{HERE}:{line_of('child')} started '{name}': calls of child processes are not counted"
    verdict = "invalid" if strict else "notice"
    assert [(p.slug, p.text, p.verdict) for p in result.trace.problems] == [("child-process", text, verdict)]


def nothing() -> None:
    """What a child of multiprocessing runs in these tests."""


def by_shell() -> None:
    os.system("true --with /a/path")  # shell


def by_spawn() -> None:
    process = multiprocessing.get_context("spawn").Process(target=nothing)
    process.start()  # spawn
    process.join()


def test_naming_the_system_is_no_child_of_note() -> None:
    """For the headers of SDKs Python runs uname, to find a library ldconfig: no reader of a report needs to know."""

    def agent() -> None:
        subprocess.run(["uname", "-p"], check=True, stdout=subprocess.DEVNULL)
        ctypes.util.find_library("c")

    with metering(measure=MeasureRules(strict_egress=True)) as meter:
        result = run_task(meter, agent)

    assert result.trace.problems == ()


@pytest.mark.parametrize(
    ("way", "what"), [(by_shell, "'true'"), (by_spawn, "a process of multiprocessing")], ids=["shell", "spawn"]
)
def test_children_without_popen_are_listed(way: Callable[[], None], what: str) -> None:
    """`os.system` and the spawned children of multiprocessing go round subprocess, and are listed all the same."""
    with metering() as meter:
        result = run_task(meter, way)

    line = f"{HERE}:{line_of(way.__name__.removeprefix('by_'))}"
    assert [(p.slug, p.text) for p in result.trace.problems] == [
        ("child-process", f"{line} started {what}: calls of child processes are not counted")
    ]


def test_between_tasks(model: ModelServer) -> None:
    """A bypass while no task runs is a problem of the run; other traffic then is nobody's business."""
    with metering(hosts=[f"127.0.0.1:{model.port}"]) as meter:
        raw_call(model.base_url)
        subprocess.run([sys.executable, "-c", ""], check=True)
        facts = meter.finish()

    assert [problem.slug for problem in facts.problems] == ["unhooked-model-traffic"]


def test_off_after_stop(model: ModelServer) -> None:
    """After stop() the audit hook does nothing."""
    with metering("replay", hosts=[f"127.0.0.1:{model.port}"]):
        pass

    assert raw_call(model.base_url) == 200


def run_child(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    root = Path(HERE).parents[2]
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={
            "PYTHONPATH": f"{root}:{root / 'tests' / 'meter'}",
            "PATH": "/usr/bin:/bin",
            # from Python 3.12 on the interpreter itself warns of fork beside threads
            "PYTHONWARNINGS": "ignore:This process:DeprecationWarning",
        },
    )


@pytest.mark.parametrize(
    ("when", "status", "code"), [("running", 0, 70), ("running", 3, 3), ("after", 0, 0), ("forked", 0, 0)]
)
def test_hard_exit(when: str, status: int, code: int) -> None:
    """`os._exit(0)` while a task runs ends with 70 in the measuring process, and stays 0 elsewhere."""
    done = run_child(
        """
        import os, sys
        from metering import metering, run_task
        when, status = sys.argv[1], int(sys.argv[2])
        def forked():
            child = os.fork()
            if child == 0:
                os._exit(status)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with metering() as meter:
            if when == "running":
                run_task(meter, lambda: os._exit(status))
            got = run_task(meter, forked).value if when == "forked" else status
            os._exit(got)
        """,
        when,
        str(status),
    )

    assert (done.returncode, done.stderr) == (code, "")


def test_forked_child_cannot_call_uncounted(model: ModelServer) -> None:
    """A model call in a forked child is refused, since the parent could not count it; the parent's own go on."""
    done = run_child(
        """
        import os, sys
        import httpx2
        from metering import metering, run_task, chat
        def ask():
            with httpx2.Client() as client:
                return client.post(sys.argv[1] + "/v1/chat/completions", json=chat()).status_code
        def agent():
            child = os.fork()
            if child == 0:
                os._exit(ask() // 100)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), ask()
        with metering() as meter:
            result = run_task(meter, agent)
            print(result.value, result.fanout)
        """,
        model.base_url,
    )

    assert (done.stdout.strip(), done.stderr) == ("(4, 200) 1", "")
    assert len(model.log) == 1


def test_forked_child_cannot_go_round_the_hooks(model: ModelServer) -> None:
    """A forked child that connects to a known model server past the hooks is refused, and its task is invalid."""
    done = run_child(
        """
        import os, sys
        import raw_client
        from metering import metering, run_task
        url = sys.argv[1]
        def agent():
            child = os.fork()
            if child == 0:
                try:
                    raw_client.call(url)
                except OSError:
                    os._exit(4)
                os._exit(0)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with metering(hosts=[url.removeprefix("http://")]) as meter:
            result = run_task(meter, agent)
            print(result.value, result.slugs)
        """,
        model.base_url,
    )

    assert (done.stdout.strip(), done.stderr) == ("4 ['forked-call']", "")
    assert model.log == []
