"""(h) Recordings: size on disk, replay against the SDK alone, look-up against vcrpy, memory, reading one task of many.

Tasks of 20 calls of the OpenAI SDK on httpx2, whose contexts grow from 20 to 60 KB. The floor is the same SDK with the
same answers on httpx2.MockTransport; replay is what a trial takes: load, open, 20 calls, close, count.

    python benchmarks/replay.py [--tasks 100] [--many 1000] [--vcr 2000] [--vcr-body 100 200] [--parts abcde]
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai

from pytest_fanout.meter import Meter, measure_trial
from pytest_fanout.records import Caps, Exchange, HttpAnswer, HttpRequest, MeasureRules, Recording
from pytest_fanout.store.recordings import RecordingStore
from pytest_fanout.store.replay import ReplaySource
from pytest_fanout.wire.canonical import compile_volatile

CALLS = 20
AGENT = "bench"
URL = "http://127.0.0.1:9/v1"  # nobody is there
KB = 1024


def words(rng: random.Random, size: int) -> str:
    """About ``size`` characters of text, another one for each generator."""
    text = []
    while size > 0:
        word = "".join(rng.choices("etaoinshrdlucmfw", k=rng.randint(2, 9)))
        text.append(word)
        size -= len(word) + 1
    return " ".join(text)


def conversation(number: int) -> Iterator[tuple[list[dict[str, str]], str]]:
    """The messages of each call of a task, and the answer to it."""
    rng = random.Random(number)
    shared = words(random.Random("system"), 4 * KB)
    messages = [{"role": "system", "content": shared}, {"role": "user", "content": words(rng, 16 * KB)}]
    for _ in range(CALLS):
        said = words(rng, 700)
        yield messages, said
        messages = [*messages, {"role": "assistant", "content": said}]
        messages.append({"role": "user", "content": words(rng, 1400)})


def answer_of(number: int, call: int, said: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5000 + call, "completion_tokens": 150, "total_tokens": 5150 + call}
    about = {"id": f"c-{number}-{call}", "object": "chat.completion", "created": 1, "model": "m-1"}
    return json.dumps({**about, "choices": [choice], "usage": usage}).encode()


class Client:
    """One SDK client; without ``live`` it is answered in memory by what is put into ``answers``."""

    def __init__(self, *, live: bool = False) -> None:
        self.answers: list[bytes] = []
        self.sent: list[httpx2.Request] = []
        self.keeps = False
        http = None if live else httpx2.Client(transport=httpx2.MockTransport(self._answer))
        self.sdk = openai.OpenAI(api_key="bench", base_url=URL, max_retries=0, http_client=http)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if self.keeps:
            self.sent.append(request)
        return httpx2.Response(200, headers={"content-type": "application/json"}, content=self.answers.pop())

    def ask(self, messages: list[dict[str, str]]) -> str:
        answer = self.sdk.chat.completions.create(model="m", messages=messages)  # type: ignore[arg-type]
        return answer.choices[0].message.content or ""


def exchanges_of(client: Client, number: int) -> tuple[Exchange, ...]:
    """A task as the meter would have recorded it: the very bytes that the SDK sends."""
    made = []
    client.keeps = True
    for call, (messages, said) in enumerate(conversation(number)):
        body = answer_of(number, call, said)
        client.answers.append(body)
        client.ask(messages)
        sent = client.sent.pop()
        headers = tuple((name.lower(), value) for name, value in sent.headers.items())
        request = HttpRequest(sent.method, str(sent.url), headers, sent.content)
        answer = HttpAnswer(200, (("content-type", "application/json"),), (body,), (90,), 90)
        made.append(Exchange(call, "httpx2", "model", "agent", request, answer, call * 100))
    client.keeps = False
    return tuple(made)


def record(folder: Path, tasks: int) -> RecordingStore:
    store, client = RecordingStore(folder, {}), Client()
    for number in range(tasks):
        if not store.trials(AGENT, f"task-{number}"):
            made = exchanges_of(client, number)
            store.save(Recording(AGENT, f"task-{number}", 1, None, 1, 2000, "ok", True, made, ("m",), ("m-1",)))
    return store


@contextmanager
def metering() -> Iterator[Meter]:
    meter = Meter(mode="replay", measure=MeasureRules(seal_keys=False), hosts=())
    assert meter.start() == ()
    try:
        yield meter
    finally:
        meter.stop()


VOLATILE = compile_volatile((), "none")


def replay(meter: Meter, store: RecordingStore, client: Client, number: int) -> None:
    """One trial as the session replays it."""
    recording = store.load(AGENT, f"task-{number}", 1)
    source = ReplaySource(recording, VOLATILE, "bench")
    scope = meter.open_task(AGENT, f"task-{number}", 1, Caps(), source)
    for messages, said in TALKS[number]:
        assert client.ask(messages) == said
    trace = meter.close_task(scope)
    assert source.note() is None
    measured = measure_trial(trace.exchanges, recording.duration_ms)
    scope.conclude(measured)
    assert measured.samples["fanout"] == CALLS


def floor(client: Client, number: int) -> None:
    for call, (messages, said) in enumerate(TALKS[number]):
        client.answers.append(ANSWERS[number][call])
        assert client.ask(messages) == said


TALKS: dict[int, list[tuple[list[dict[str, str]], str]]] = {}  # of the block that runs: made outside the clock
ANSWERS: dict[int, list[bytes]] = {}


def prepare(numbers: range) -> None:
    TALKS.clear()
    ANSWERS.clear()
    for number in numbers:
        TALKS[number] = list(conversation(number))
        ANSWERS[number] = [answer_of(number, call, said) for call, (_, said) in enumerate(TALKS[number])]


def cpu_of(work: Callable[[], None]) -> float:
    gc.collect()
    begun = time.process_time()
    work()
    return time.process_time() - begun


def run_replay(folder: Path, tasks: int, block: int = 10) -> tuple[float, float, float]:
    """Milliseconds of CPU a call: floor, replay, and the median ratio of neighbouring blocks."""
    store, in_memory, live = record(folder, tasks), Client(), Client(live=True)
    floors, replays = [], []
    for first in range(0, tasks, block):
        numbers = range(first, min(first + block, tasks))
        prepare(numbers)

        def bare(numbers: range = numbers) -> None:
            for number in numbers:
                floor(in_memory, number)

        def counted(numbers: range = numbers) -> float:
            with metering() as meter:
                replay(meter, store, live, numbers[0])  # new hooks are warm

                def all_of_them() -> None:
                    for number in numbers:
                        replay(meter, store, live, number)

                return cpu_of(all_of_them)

        floor(in_memory, numbers[0])
        if first // block % 2:
            floors.append(cpu_of(bare))
            replays.append(counted())
        else:
            replays.append(counted())
            floors.append(cpu_of(bare))
        floors[-1], replays[-1] = (spent / len(numbers) / CALLS * 1e3 for spent in (floors[-1], replays[-1]))
    ratio = statistics.median(r / f for r, f in zip(replays, floors, strict=True))
    return statistics.fmean(floors), statistics.fmean(replays), ratio


# --- vcrpy -----------------------------------------------------------------------------------------------------------


def as_cassette(exchanges: tuple[Exchange, ...]) -> dict[str, list[Any]]:
    from vcr.request import Request

    requests, responses = [], []
    for exchange in exchanges:
        request, answer = exchange.request, exchange.answer
        requests.append(Request(request.method, request.url, request.body, dict(request.headers)))
        headers = {name: [value] for name, value in answer.headers}
        status = {"code": 200, "message": "OK"}
        responses.append({"status": status, "headers": headers, "body": {"string": answer.body}})
    return {"requests": requests, "responses": responses}


def vcr_lookup(calls: int, match_on: tuple[str, ...]) -> float:
    """Milliseconds of CPU a call under one cassette of so many calls, loading left out."""
    import vcr
    from vcr.serialize import serialize
    from vcr.serializers import jsonserializer

    tasks = max(1, calls // CALLS)
    in_memory = Client()
    prepare(range(tasks))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cassette.json"
        made = tuple(exchange for number in range(tasks) for exchange in exchanges_of(in_memory, number))
        path.write_text(serialize(as_cassette(made), jsonserializer))
        with vcr.VCR(serializer="json", record_mode="none", match_on=match_on).use_cassette(str(path)):
            live = Client(live=True)

            def ask() -> None:
                for number in range(tasks):
                    for messages, _ in TALKS[number]:
                        live.ask(messages)

            return cpu_of(ask) / (tasks * CALLS) * 1e3


def own_lookup(folder: Path, tasks: int) -> tuple[float, float]:
    """Milliseconds of CPU a call: loading the trial and indexing it, and finding each answer."""
    store, client = record(folder, tasks), Client()
    loading = finding = 0.0
    for number in range(tasks):
        asked = [exchange.request for exchange in exchanges_of(client, number)]

        begun = time.process_time()
        source = ReplaySource(store.load(AGENT, f"task-{number}", 1), VOLATILE, "bench")
        loaded = time.process_time()
        found = [source.answer(request, "model") for request in asked]
        finding += time.process_time() - loaded
        loading += loaded - begun
        assert None not in found
    return loading / (tasks * CALLS) * 1e3, finding / (tasks * CALLS) * 1e3


# --- parts -----------------------------------------------------------------------------------------------------------


def part_a(folder: Path, tasks: int) -> None:
    from vcr.serialize import serialize
    from vcr.serializers import yamlserializer

    record(folder, tasks)
    client, theirs = Client(), 0
    some = range(0, tasks, max(1, tasks // 20))
    for number in some:
        theirs += len(serialize(as_cassette(exchanges_of(client, number)), yamlserializer))
    ours = sum(RecordingStore(folder, {}).path(AGENT, f"task-{n}", 1).stat().st_size for n in some)
    print(f"(a) {len(some) * CALLS} calls: {ours / 1e6:.2f} MB, vcrpy's YAML {theirs / 1e6:.2f} MB: "
          f"1/{theirs / ours:.1f}", flush=True)  # fmt: skip


def part_b(folder: Path, counts: list[int]) -> None:
    for tasks in counts:
        bare, counted, ratio = run_replay(folder, tasks)
        print(f"(b) {tasks * CALLS} calls: SDK alone {bare:.2f} ms of CPU a call, replay {counted:.2f} ms: "
              f"{ratio:.3f} times (median of blocks of 10 tasks)", flush=True)  # fmt: skip


def part_c(folder: Path, calls: int, body_calls: list[int]) -> None:
    prepare(range(10))
    in_memory = Client()
    floor(in_memory, 0)

    def some() -> None:
        for number in range(1, 10):
            floor(in_memory, number)

    bare = cpu_of(some) / (9 * CALLS) * 1e3
    loading, ours = own_lookup(folder, max(1, calls // CALLS))
    print(f"(c) look-up of our store: {ours:.3f} ms a call, and {loading:.3f} ms for loading", flush=True)
    default = ("method", "scheme", "host", "port", "path", "query")
    for count, match_on in ((calls, default), *((n, ("method", "path", "body")) for n in body_calls)):
        theirs = vcr_lookup(count, match_on) - bare
        print(f"(c) vcrpy on {','.join(match_on)}, {count} calls, SDK subtracted: {theirs:.1f} ms a call: "
              f"{theirs / ours:.0f} times", flush=True)  # fmt: skip


def part_d(folder: Path, counts: list[int]) -> None:
    for tasks in counts:
        record(folder, tasks)
        done = subprocess.run(
            [sys.executable, __file__, "--child", str(folder), "--tasks", str(tasks)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        print(
            f"(d) {tasks * CALLS} calls replayed in one process: peak of {int(done.stdout) / 1024:.1f} MB", flush=True
        )


def child(folder: Path, tasks: int) -> None:
    store, live = RecordingStore(folder, {}), Client(live=True)
    with metering() as meter:
        for number in range(tasks):
            prepare(range(number, number + 1))
            replay(meter, store, live, number)
    print(peak_kb())


def peak_kb() -> int:
    """The largest memory that this process held. Of Linux by its own address space: what ``getrusage`` says there
    is inherited from the process that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak


COUNTING = """
import atexit, os, sys
opened = {}
def hook(event, args):
    if event == "open" and isinstance(args[0], (str, bytes)) and "recordings" in os.fsdecode(args[0]):
        path = os.fsdecode(args[0])
        if path.endswith(".jsonl"):
            opened[path] = os.path.getsize(path)
sys.addaudithook(hook)
atexit.register(lambda: open("opened.txt", "w").write(f"{len(opened)} {sum(opened.values())}"))
"""
SHOP = """
import openai
client = openai.OpenAI(api_key="bench", base_url="%s", max_retries=0)
def answer(text):
    answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
    return answer.choices[0].message.content
"""


def part_e(tasks: int) -> None:
    client = Client()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "pyproject.toml").write_text(
            '[tool.fanout.agents.bench]\nentrypoint = "shop:answer"\nevalset = "bench.jsonl"\n'
        )
        (root / "conftest.py").write_text(COUNTING)
        (root / "shop.py").write_text(SHOP % URL)
        store = RecordingStore(root / "fixtures" / "recordings", {})
        lines = []
        client.keeps = True
        for number in range(tasks):
            client.answers.append(answer_of(number, 0, f"answer {number}"))
            client.ask([{"role": "user", "content": f"question {number}"}])
            sent = client.sent.pop()
            answer = HttpAnswer(200, (("content-type", "application/json"),), (answer_of(number, 0, "hi"),), (9,), 9)
            request = HttpRequest("POST", str(sent.url), (("content-type", "application/json"),), sent.content)
            exchange = Exchange(0, "httpx2", "model", "agent", request, answer, 0)
            store.save(Recording(AGENT, f"task-{number}", 1, None, 1, 9, "ok", True, (exchange,), ("m",), ("m-1",)))
            lines.append(json.dumps({"id": f"task-{number}", "input": f"question {number}"}))
        (root / "bench.jsonl").write_text("\n".join(lines) + "\n")
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        begun = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "--fanout-budget", "-q", "-k", f"task-{tasks // 2}"],
            cwd=root, capture_output=True, text=True,
        )  # fmt: skip
        spent = time.perf_counter() - begun
        assert "1 passed" in done.stdout, done.stdout + done.stderr
        files, size = (root / "opened.txt").read_text().split()
        one = store.path(AGENT, f"task-{tasks // 2}", 1).stat().st_size
    print(f"(e) one task of {tasks}: {files} recordings opened, {size} bytes; its own has {one}; pytest {spent:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=100, help="of 20 calls each")
    parser.add_argument("--many", type=int, default=1000, help="tasks of the second, larger run of b and d; 0: none")
    parser.add_argument("--vcr", type=int, default=2000, help="calls of the cassette for its default matching")
    parser.add_argument("--vcr-body", type=int, nargs="*", default=[100, 200], help="and for its body matching")
    parser.add_argument("--select", type=int, default=2000, help="recorded tasks of which one is selected")
    parser.add_argument("--parts", default="abcde")
    parser.add_argument("--child", type=Path)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.tasks)
        return
    counts = [options.tasks, *([options.many] if options.many else [])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in options.parts:
            if part == "a":
                part_a(folder, options.tasks)
            elif part == "b":
                part_b(folder, counts)
            elif part == "c":
                part_c(folder, options.vcr, options.vcr_body)
            elif part == "d":
                part_d(folder, counts)
            elif part == "e":
                part_e(options.select)


if __name__ == "__main__":
    main()
