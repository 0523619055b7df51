"""What the gateway adds to a call, and how many calls a second it carries: against the bare server on loopback, and,
when asked, against LiteLLM's proxy doing the same job.

Server, gateway and LiteLLM run in processes of their own, the clients in this one: they are bare sockets, kept alive,
and cost little. The ways alternate, round by round; reported is the median over rounds.

    python benchmarks/gateway.py [--rounds 5] [--calls 400] [--litellm]

``--litellm`` makes a virtual environment of its own for it beside this file (``.venv-litellm``, with pip) where there
is none yet.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WAYS = ((1, False), (1, True), (32, False), (32, True))  # concurrency, streamed


@dataclass(frozen=True)
class Way:
    """One way to the model server."""

    name: str
    url: str  # of chat completions
    key: str


def body(streamed: bool) -> bytes:
    document: dict[str, Any] = {
        "model": "fixed",
        "messages": [{"role": "user", "content": "word " * 200}],
    }
    text = json.dumps(document, separators=(",", ":"))
    return (text[:-1] + ',"stream":true}' if streamed else text).encode()  # the server looks for these very bytes


async def client(way: Way, calls: int, streamed: bool, waits: list[float]) -> None:
    """``calls`` requests on one connection; the time to the first byte of each body goes to ``waits``, in seconds."""
    host, _, rest = way.url.removeprefix("http://").partition("/")
    name, _, port = host.partition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    sent = body(streamed)
    head = (
        f"POST /{rest} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {way.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
    ).encode()
    for _ in range(calls):
        begun = time.perf_counter()
        writer.write(head + sent)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        if not answer.startswith(b"http/1.1 200"):
            raise SystemExit(f"{way.name} answered {answer[:200]!r}")
        if b"content-length:" in answer:
            length = int(answer.partition(b"content-length:")[2].split(b"\r\n")[0])
            first = await reader.readexactly(1)
            waits.append(time.perf_counter() - begun)
            await reader.readexactly(length - len(first))
            continue
        begins = True
        while (size := int(await reader.readuntil(b"\r\n"), 16)) or begins:
            if begins:
                waits.append(time.perf_counter() - begun)
                begins = False
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
    writer.close()


def measure(way: Way, concurrency: int, calls: int, streamed: bool) -> tuple[float, float]:
    """(median milliseconds to the first byte of the body, calls a second)."""

    async def all_of_them() -> tuple[list[float], float]:
        waits: list[float] = []
        begun = time.perf_counter()
        each = max(1, calls // concurrency)
        await asyncio.gather(*(client(way, each, streamed, waits) for _ in range(concurrency)))
        return waits, len(waits) / (time.perf_counter() - begun)

    waits, rate = asyncio.run(all_of_them())
    return statistics.median(waits) * 1000, rate


# --- what is measured ------------------------------------------------------------------------------------------------


@contextmanager
def started(*words: str, **settings: Any) -> Iterator[subprocess.Popen[str]]:
    settings.setdefault("stdout", subprocess.PIPE)
    process = subprocess.Popen(words, stdin=subprocess.PIPE, text=True, start_new_session=True, **settings)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


@contextmanager
def bare() -> Iterator[Way]:
    with started(sys.executable, str(HERE / "answering.py")) as process:
        assert process.stdout is not None
        yield Way("bare", f"http://127.0.0.1:{int(process.stdout.readline())}/v1/chat/completions", "k")


@contextmanager
def gateway(server: Way) -> Iterator[Way]:
    env = {**os.environ, "OPENAI_BASE_URL": server.url.removesuffix("/chat/completions"), "OPENAI_API_KEY": "k"}
    tool = str(Path(sys.executable).with_name("fanout-gateway"))
    with started(tool, "serve", env=env, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        found: dict[str, str] = {}
        while not {"OPENAI_BASE_URL", "OPENAI_API_KEY"} <= found.keys():
            name, _, value = process.stdout.readline().removeprefix("export ").strip().partition("=")
            found[name] = value
        yield Way("gateway", found["OPENAI_BASE_URL"] + "/chat/completions", found["OPENAI_API_KEY"])


@contextmanager
def litellm(server: Way) -> Iterator[Way]:
    folder = HERE / ".venv-litellm"
    if not (folder / "bin" / "litellm").exists():
        venv.create(folder, with_pip=True)
        subprocess.run([folder / "bin" / "pip", "install", "-q", "litellm[proxy]"], check=True)
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        config = {
            "model_list": [
                {
                    "model_name": "fixed",
                    "litellm_params": {
                        "model": "openai/fixed",
                        "api_base": server.url.removesuffix("/chat/completions"),
                        "api_key": "k",
                    },
                }
            ]
        }
        path = Path(scratch) / "config.yaml"
        path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
        port, key = free_port(), "sk-" + secrets.token_hex(32)
        words = (str(folder / "bin" / "litellm"), "--config", str(path), "--port", str(port), "--host", "127.0.0.1")
        env = {**os.environ, "LITELLM_MASTER_KEY": key, "LITELLM_LOG": "ERROR"}
        log = stack.enter_context(open(Path(scratch) / "log", "w+", encoding="utf-8"))
        with started(*words, cwd=scratch, env=env, stdout=log, stderr=subprocess.STDOUT) as process:
            until = time.monotonic() + 300
            while not is_alive(port):
                if process.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    raise SystemExit("LiteLLM did not start:\n" + log.read())
                time.sleep(0.5)
            yield Way("litellm", f"http://127.0.0.1:{port}/chat/completions", key)


def is_alive(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=400, help="in one round, of all clients together")
    parser.add_argument("--litellm", action="store_true")
    options = parser.parse_args()
    with ExitStack() as stack:
        server = stack.enter_context(bare())
        ways = [server, stack.enter_context(gateway(server))]
        if options.litellm:
            ways.append(stack.enter_context(litellm(server)))
        for concurrency, streamed in WAYS:
            found: dict[str, list[tuple[float, float]]] = {way.name: [] for way in ways}
            for way in ways:
                measure(way, concurrency, 2 * concurrency, streamed)  # connections and caches
            for _ in range(options.rounds):
                for way in ways:
                    found[way.name].append(measure(way, concurrency, options.calls, streamed))
            base = statistics.median(wait for wait, _ in found["bare"])
            for name, values in found.items():
                wait, rate = (statistics.median(value[index] for value in values) for index in (0, 1))
                kind = "streamed" if streamed else "plain"
                print(
                    f"{kind}, concurrency {concurrency}, {name}: {rate:.0f} calls/s, first byte after {wait:.2f} ms"
                    f" ({wait - base:+.2f} ms)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
