"""``fanout-capacity calibrate``: from results of load tests to the file that fleet.toml names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import click

from pytest_fanout.capacity.calibrate import Calibrated, Subject
from pytest_fanout.capacity.calibrate import calibrate as calibrated_of
from pytest_fanout.capacity.figures import exact, number
from pytest_fanout.capacity.profiles import calibrated as profile_of
from pytest_fanout.capacity.signals import scaling_signals
from pytest_fanout.cli.console import clean, table
from pytest_fanout.config import Settings, find_settings
from pytest_fanout.errors import FanoutError
from pytest_fanout.gate.fleet import fleet_of
from pytest_fanout.gate.tree import folder_of
from pytest_fanout.records import Calibration, Fleet, MeasuredLoad, ServerState
from pytest_fanout.store.benchmarks import read_benchmark
from pytest_fanout.store.calibration import write_calibration
from pytest_fanout.store.files import write_atomically

FOLDER = "calibrations"


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE…", type=click.Path(exists=True, dir_okay=False))
@click.option("--gpu", required=True, help="What it ran on, e.g. H200.")
@click.option(
    "--gpus", type=click.IntRange(1, 1024), required=True, help="GPUs of the one server that was measured (a replica)."
)
@click.option("--model", help="Its name; without it that of the files.")
@click.option("--name", help="Of the calibration; without it model and GPU.")
@click.option(
    "--prefill-tokens-per-s", type=click.FloatRange(min=0, min_open=True),
    help="Uncached input tokens a second of one GPU, where no run of long input and short output is among the files.",
)  # fmt: skip
@click.option("--output", type=click.Path(dir_okay=False), help="Where to write; without it below the baselines.")
def calibrate(
    files: tuple[str, ...],
    gpu: str,
    gpus: int,
    model: str | None,
    name: str | None,
    prefill_tokens_per_s: float | None,
    output: str | None,
) -> None:
    """A calibration from results of `vllm bench serve`, GuideLLM or AIPerf, and scrapes of vLLM's /metrics.

    One server, one model, one shape of requests; runs of long input and short output beside them give the rate of
    reading. Each load is held to Little's law.
    """
    settings = find_settings(Path.cwd())
    measured: list[MeasuredLoad | ServerState] = []
    for file in files:
        measured += read_benchmark(Path(file).read_bytes(), file)
    tools = sorted({each.tool for each in measured if isinstance(each, MeasuredLoad)})
    shown = ", ".join(Path(file).name for file in files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    served = model or next((each.model for each in measured if each.model), "server")
    named = name or f"{served.rpartition('/')[2]} {gpu} x{gpus}"
    subject = Subject(named, f"{', '.join(tools)}: {shown}"[:300], gpu, gpus, model, prefill_tokens_per_s)
    write(settings, calibrated_of(measured, subject), output)


def write(settings: Settings, made: Calibrated, output: str | None) -> None:
    """Write the file, and say what it holds and what comes next."""
    calibration = made.calibration
    relative = f"{FOLDER}/{slug_of(calibration.name)}.json"
    path = Path(output) if output else settings.baselines / relative
    word = "replaced" if path.exists() else "wrote"
    write_atomically(path, write_calibration(calibration))
    click.echo(table(_rows(calibration), ("in flight", "", "out tokens/s", "ITL ms", "TTFT ms", "KV", "waiting")))
    profile = profile_of(calibration)
    best = max(point.output_tokens_per_s for point in calibration.points) / calibration.gpus_per_replica
    click.echo(
        f"\nP: a GPU reads {number(profile.prefill_tokens_per_s)} new input tokens a second\n"
        f"D: it would write {number(profile.decode_tokens_per_s)} tokens a second if it read nothing: the highest "
        f"throughput of the table, {exact(best)} on a GPU,\n"
        f"   without the time of reading: 1 / (1 / {exact(best)} - {calibration.input_tokens:,} / "
        f"{calibration.output_tokens:,} / {exact(profile.prefill_tokens_per_s)})\n"
        f"contexts up to {calibration.context_tokens_max:,} tokens"
    )
    for line in (*_signals(settings, calibration), *(f"note: {note}" for note in made.notes)):
        click.echo(clean(line))
    shown = output or f"{folder_of(settings)}/{relative}"
    click.echo(clean(f"\n{word} {shown}", keep_lines=True))
    if output is None:
        click.echo(
            "next:\n"
            f'  calibration = "{relative}"   in [fleet] of fleet.toml, in place of profile\n'
            "  fanout-capacity plan\n"
            '  fanout-baseline accept --reason "…"   a change of the fleet needs an approval'
        )


def slug_of(name: str) -> str:
    """The name as one of a file."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "server"


def _rows(calibration: Calibration) -> Sequence[Sequence[str]]:
    return [
        (
            str(point.concurrency), "", number(point.output_tokens_per_s), number(point.itl_ms), number(point.ttft_ms),
            number(point.kv_share), number(point.queue_depth),
        )
        for point in calibration.points
    ]  # fmt: skip


def _signals(settings: Settings, calibration: Calibration) -> list[str]:
    try:
        fleet = fleet_of(settings)
    except FanoutError:
        fleet = Fleet("", "fleet.toml")  # what is wrong with the file is said where it is used
    signals = scaling_signals(calibration, fleet.slo, fleet.memory.sequences_per_replica_max)
    promised = f"ITL {fleet.slo.itl_ms_max:,g} ms and TTFT {fleet.slo.ttft_ms_max:,g} ms"
    if not signals:
        return [f"no load that was measured keeps {promised}"]
    values = ", ".join(f"{signal.name} {number(signal.value)}" for signal in signals)
    return [f"add a replica at, on each replica ({promised}): {values}"]
