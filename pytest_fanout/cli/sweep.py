"""``fanout-capacity sweep``: loads a server or an agent, level by level, until residency or errors turn."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from pytest_fanout.capacity.calibrate import FAILED_SHARE, Calibrated, Subject, calibrate
from pytest_fanout.capacity.figures import number
from pytest_fanout.capacity.sweep import FEWEST, Bounds, levels_up_to, load_of, measure, sweep
from pytest_fanout.cli.calibrate import write
from pytest_fanout.cli.console import clean, table
from pytest_fanout.cli.senders import ModelSender, TaskSender, shown_url
from pytest_fanout.config import find_settings
from pytest_fanout.errors import UsageError
from pytest_fanout.records import MeasuredLoad, Sweep, SweepLevel, SweepOpened
from pytest_fanout.store.files import BadJson, parse_json, write_atomically

SCHEMA = "pytest-fanout/sweep/1"
#: Places that read at once to find the rate of reading: enough to fill a batch, few enough for its memory.
_READERS = 4
_CACHED_SHARE = 0.05


@click.group("sweep")
def sweep_group() -> None:
    """Load a server that is yours, level by level, until residency or errors turn.

    Each level keeps so many requests or tasks in flight. What is sent costs what it costs: --max-calls and
    --max-seconds bound it.
    """


_Command = Callable[..., None]


def _bounds(most: int, max_calls: int) -> Callable[[_Command], _Command]:
    def added(command: _Command) -> _Command:
        for option in (
            click.option(
                "--most", type=click.IntRange(1, 4096), default=most, show_default=True,
                help="The highest level; they double from 1 on.",
            ),
            click.option(
                "--max-calls", type=click.IntRange(10), default=max_calls, show_default=True, help="Sent at most."
            ),
            click.option(
                "--max-seconds", type=click.FloatRange(1), default=1_800.0, show_default=True, help="Taken at most."
            ),
            click.option(
                "--timeout", type=click.FloatRange(0.1), default=600.0, show_default=True,
                help="Seconds without a byte after which a request has failed.",
            ),
            click.option("--api-key-env", metavar="NAME", help="Variable with a bearer token."),
        ):  # fmt: skip
            command = option(command)
        return command

    return added


@sweep_group.command("model")
@click.argument("url")
@click.option("--model", required=True, help="As the server names it.")
@click.option("--gpu", required=True, help="What it runs on, e.g. H200.")
@click.option("--gpus", type=click.IntRange(1, 1024), required=True, help="GPUs of this one server (a replica).")
@click.option("--input-tokens", type=click.IntRange(1), default=1_024, show_default=True, help="Of each request.")
@click.option("--output-tokens", type=click.IntRange(2), default=256, show_default=True, help="Of each request.")
@click.option(
    "--reading-tokens", type=click.IntRange(1), default=4_096, show_default=True,
    help="Of requests that write one token, for the rate of reading.",
)  # fmt: skip
@click.option("--body", metavar="JSON", help="Further keys of each request's body.")
@click.option("--name", help="Of the calibration; without it model and GPU.")
@click.option("--output", type=click.Path(dir_okay=False), help="Where to write; without it below the baselines.")
@_bounds(64, 5_000)
def sweep_model(
    url: str,
    model: str,
    gpu: str,
    gpus: int,
    input_tokens: int,
    output_tokens: int,
    reading_tokens: int,
    body: str | None,
    name: str | None,
    output: str | None,
    most: int,
    max_calls: int,
    max_seconds: float,
    timeout: float,
    api_key_env: str | None,
) -> None:
    """Requests at a model server (chat completions, URL up to /v1); writes a calibration.

    Prompts are random words, so that no prefix cache helps. Contexts longer than input + output are outside the
    calibration: give the lengths that your agents have.
    """
    settings = find_settings(Path.cwd())
    more = _body_of(body)
    bounds = Bounds(max_calls, max_seconds)

    async def run() -> tuple[Sweep, SweepLevel | None]:  # of all levels, and of reading
        async with _client(most, timeout, api_key_env) as client:
            sender = ModelSender(client, url, model, output_tokens, more)
            reader = ModelSender(client, url, model, 1, more)
            for each, tokens in ((sender, input_tokens), (reader, reading_tokens)):
                bounds.spent += 1
                try:
                    async with asyncio.timeout(bounds.left_s()):
                        await each.fit(tokens)
                except TimeoutError:
                    return Sweep((), "seconds", bounds.spent, max_seconds), None
            places = min(_READERS, most)
            reading = await measure(lambda: reader.send(reading_tokens), places, FEWEST, bounds)
            if isinstance(reading, SweepOpened):
                raise _failed(url, reading.failed, reading.answered, reading.last_fault)
            if reading is not None and reading.failed > FAILED_SHARE * reading.counted:
                raise _failed(url, reading.failed, reading.counted, reading.first_fault)
            return await sweep(lambda: sender.send(input_tokens), levels_up_to(most), bounds), reading

    found, reading = asyncio.run(run())
    _say(found, "requests")
    source = f"fanout-capacity sweep of {model}, {datetime.now(UTC).date()}"
    loads = [load for level in found.levels if (load := load_of(level, shown_url(url), model)) is not None]
    if found.holds is None and found.ended in ("breaker", "errors"):
        raise UsageError(
            "no-server",
            "no level held: there is nothing to calibrate with",
            where=shown_url(url),
            mend="find out why requests fail while hardly any is in flight",
        )
    if reading is None or reading.input_tokens is None or not loads:
        raise UsageError(
            "sweep-too-short",
            "no level, or no reading, was finished within the bounds: there is nothing to calibrate with",
            where=shown_url(url),
            mend="raise --max-calls or --max-seconds, or send shorter requests",
        )
    rate = reading.input_tokens * reading.per_s / gpus
    named = name or f"{model.rpartition('/')[2]} {gpu} x{gpus}"
    made = calibrate(loads, Subject(named, source, gpu, gpus, model, rate))
    write(settings, Calibrated(made.calibration, (*made.notes, *_notes([*found.levels, reading], loads))), output)


@sweep_group.command("agent")
@click.argument("url")
@click.option(
    "--tasks", required=True, type=click.Path(exists=True, dir_okay=False),
    help="Bodies of the tasks, one JSON document a line; they are sent in turn.",
)  # fmt: skip
@click.option("--output", type=click.Path(dir_okay=False), help="Write the levels as JSON.")
@_bounds(32, 1_000)
def sweep_agent(
    url: str,
    tasks: str,
    output: str | None,
    most: int,
    max_calls: int,
    max_seconds: float,
    timeout: float,
    api_key_env: str | None,
) -> None:
    """Agent tasks at an agent's own endpoint: how many at once before residency or errors turn.

    Each task is one POST whose answer ends when the task does. An agent calls its model many times: this measures the
    whole of it, with tools, and not the model server alone.
    """
    # only "\n" ends a line: a text in JSON may hold what Unicode calls a line end
    lines = enumerate(Path(tasks).read_bytes().split(b"\n"), 1)
    bodies = [(at, line) for at, line in lines if line.strip()]
    if not bodies:
        raise UsageError("no-tasks-to-send", "holds no line with a body", where=tasks, mend="write one JSON a line")
    for at, line in bodies:
        try:
            parse_json(line)
        except BadJson as bad:
            raise UsageError(
                "no-tasks-to-send", bad.what, where=f"{tasks}:{at}", mend="write one JSON a line"
            ) from None
    bounds = Bounds(max_calls, max_seconds)

    async def run() -> Sweep:
        async with _client(most, timeout, api_key_env) as client:
            sender = TaskSender(client, url, [line for _, line in bodies])
            return await sweep(sender.send, levels_up_to(most), bounds)

    found = asyncio.run(run())
    _say(found, "tasks")
    if output:
        document = {"schema": SCHEMA, "url": shown_url(url), **dataclasses.asdict(found)}
        write_atomically(Path(output), (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())
        click.echo(clean(f"wrote {output}"))


def _failed(url: str, failed: int, answered: int, fault: str | None) -> UsageError:
    return UsageError(
        "no-server",
        f"{failed} of {answered} requests that only read failed: {fault}",
        where=shown_url(url),
        mend="send shorter ones (--reading-tokens), or fewer at once (--most)",
    )


def _client(most: int, timeout: float, api_key_env: str | None) -> Any:
    import httpx

    headers = {}
    if api_key_env is not None:
        token = os.environ.get(api_key_env)
        if not token:
            raise UsageError(
                "no-api-key", f"{api_key_env} is not set", where="--api-key-env", mend=f"export {api_key_env}=…"
            )
        if not (token.isascii() and token.isprintable()):
            raise UsageError(
                "no-api-key",
                f"{api_key_env} holds a character that no header may have, perhaps a line end",
                where="--api-key-env",
                mend=f"export {api_key_env}=…",
            )
        headers["authorization"] = f"Bearer {token}"
    # a connection of its own for each request: a server may close an idle one at any time, and that is no failure
    limits = httpx.Limits(max_connections=most + 1, max_keepalive_connections=0)
    return httpx.AsyncClient(timeout=timeout, limits=limits, headers=headers)


def _body_of(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError("bad-body", "is no JSON object", where="--body", mend="--body '{\"top_k\": 1}'")
    return found


def _say(found: Sweep, what: str) -> None:
    rows = [
        (
            str(level.concurrency), "", number(level.per_s), number(level.residency_ms), number(level.residency_p95_ms),
            number(level.ttft_ms), number(level.itl_ms), f"{level.failed} of {level.counted}",
        )
        for level in found.levels
    ]  # fmt: skip
    headers = ("in flight", "", f"{what}/s", "residency ms", "p95", "TTFT ms", "ITL ms", "failed")
    click.echo(table(rows, headers))
    shown = clean(f"{turning(found, what)}; {found.calls:,} sent in {found.seconds:,.0f} s")
    click.echo(f"\n{shown}\n")


def turning(found: Sweep, what: str) -> str:
    """Where and why the sweep ended, in words."""
    if found.opened is not None:
        opened = found.opened
        return (
            f"stopped at concurrency {opened.concurrency}: {opened.failed} of {opened.answered} {what} in "
            f"{number(round(opened.window_s))} s failed ({opened.last_fault or 'no reason given'}); the breaker of a "
            f"client would be open; {_held(found)}"
        )
    if not found.levels:
        return f"no level was finished within the bounds ({found.ended})"
    last = found.levels[-1]
    if found.ended == "residency":
        best = max(found.levels, key=lambda level: level.per_s)
        ratio = (last.residency_ms or 0.0) / (best.residency_ms or 1.0)
        return (
            f"residency turns at {best.concurrency} in flight: with {last.concurrency} it is x{ratio:.2f}, and no more "
            f"{what} are done ({number(best.per_s)} -> {number(last.per_s)} a second)"
        )
    if found.ended == "errors":
        return (
            f"errors turn at {last.concurrency} in flight: {last.failed} of {last.counted} failed "
            f"({last.first_fault or 'no reason given'}); {_held(found)}"
        )
    bound = {"calls": "--max-calls", "seconds": "--max-seconds", "top": "--most"}[found.ended]
    return f"nothing turned up to {last.concurrency} in flight, where {bound} ended it"


def _held(found: Sweep) -> str:
    return "not one level holds" if found.holds is None else f"{found.holds} in flight is the last that holds"


def _notes(levels: Sequence[SweepLevel], loads: Sequence[MeasuredLoad]) -> list[str]:
    notes = []
    for level in levels:
        if level.cached_input_tokens and level.cached_input_tokens > _CACHED_SHARE * (level.input_tokens or 0.0):
            notes.append(
                f"{level.cached_input_tokens:,.0f} of {level.input_tokens:,.0f} input tokens were cached: the server "
                "reads new input more slowly than this says"
            )
            break
    return notes
