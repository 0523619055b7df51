"""``fanout-capacity calibrate``: from result files to the plan and the gate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from gate_world import TODAY, World, git, make_run, slugs

from pytest_fanout.capacity.saturation import itl_ms
from pytest_fanout.cli.capacity import main
from pytest_fanout.gate import carry_out, plan_accept
from pytest_fanout.records import Base, Head
from pytest_fanout.store.calibration import parse_calibration

FLEET = 'schema = 1\n[fleet]\ncalibration = "calibrations/ours.json"\n[slo]\nitl_ms_max = 25.0\n'


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


def result_of(c: int, given: int = 1_024, written: int = 1_024) -> dict[str, Any]:
    """A server with 16 ms between tokens and 0.05 ms more for each other request, and no time to read."""
    itl = 16 + 0.05 * c
    seconds = written * itl / 1_000
    return {
        "max_concurrency": c, "request_rate": "inf", "model_id": "org/m", "completed": 10 * c,
        "duration": 10 * seconds, "total_input_tokens": 10 * c * given, "total_output_tokens": 10 * c * written,
        "request_throughput": c / seconds, "output_throughput": c * written / seconds, "mean_ttft_ms": itl,
        "mean_tpot_ms": itl, "mean_itl_ms": itl, "mean_e2el_ms": 1_000 * seconds,
    }  # fmt: skip


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A project with an anchor, and results of three loads and of a run that reads 30,000 tokens a second."""
    made = World.make(tmp_path / "project")
    made.anchor(make_run())
    made.write("baselines/fleet.toml", FLEET)
    made.commit("start")
    for c in (8, 64, 256):
        (tmp_path / f"c{c}.json").write_text(json.dumps(result_of(c)))
    reading = {**result_of(64, 32_000, 50), "request_throughput": 30_000 / 32_000}
    reading["mean_e2el_ms"] = 1_000 * 64 / reading["request_throughput"]
    (tmp_path / "reading.json").write_text(json.dumps(reading))
    monkeypatch.chdir(made.folder)
    return made


def calibrated(world: World, *more: str) -> Result:
    files = [str(world.folder.parent / f"{name}.json") for name in ("c256", "c8", "c64", "reading")]
    return call("calibrate", *files, "--gpu", "H200", "--gpus", "1", *more)


def test_calibrate_writes_what_plan_reads(world: World) -> None:
    """The table, the rates, what an autoscaler takes, and a file that the fleet names; `plan` stands on it."""
    result = calibrated(world, "--name", "ours", "--model", "gpt-oss-120b")

    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["8", "64", "256"]
    assert "\nP: a GPU reads 30,000 new input tokens a second\n" in result.output
    # above the table: its 8,889 tokens a second, without the third of the time that went into reading
    assert (
        "\nD: it would write 12,632 tokens a second if it read nothing: the highest throughput of the table, 8,888.8"
        in (result.output)
    )
    assert "   without the time of reading: 1 / (1 / 8,888.889 - 1,024 / 1,024 / 30,000)\n" in result.output
    # 25 ms are met at 180 in flight, between the points of 64 (19.2 ms) and 256 (28.8 ms)
    assert "add a replica at, on each replica (ITL 25 ms and TTFT 2,000 ms): calls_in_flight " in result.output
    assert "wrote baselines/calibrations/ours.json\n" in result.output
    assert '  calibration = "calibrations/ours.json"   in [fleet] of fleet.toml' in result.output
    made = parse_calibration((world.folder / "baselines/calibrations/ours.json").read_bytes(), "ours.json")
    assert itl_ms(made, 64) == pytest.approx(19.2)

    document = json.loads(call("plan", "--format", "json").output)

    (support,) = document["classes"]
    assert support["profile"] == "ours (calibrated: vllm bench serve: c256.json, c8.json, c64.json and 1 more)"
    assert support["run"]["gpus_other"] is None
    assert calibrated(world, "--name", "ours").output.count("replaced baselines/calibrations/ours.json") == 1


def test_contexts_beyond_what_was_measured_give_no_number(world: World) -> None:
    """Requests of 2,048 tokens were measured; an agent with a context of 5,000 is outside calibration."""
    calibrated(world, "--name", "ours")
    run = make_run()
    world.anchor(type(run)(**{**vars_of(run), "tasks": tuple(with_context(trial) for trial in run.tasks)}))
    world.commit("long contexts")

    (support,) = json.loads(call("plan", "--format", "json").output)["classes"]

    assert support["run"]["refused"] == ("outside calibration: contexts of 5,000 tokens, measured up to 2,048 (ours)")
    assert support["gpus_run"] is None


def vars_of(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def with_context(trial: Any) -> Any:
    return type(trial)(**{**vars_of(trial), "samples": {**trial.samples, "context_max": 5_000}})


def test_another_place_and_what_the_files_name(world: World, tmp_path: Path) -> None:
    """Without a name it is that of the model and the GPU; outside of the baselines no next step is told."""
    result = calibrated(world, "--output", str(tmp_path / "mine.json"))

    assert json.loads((tmp_path / "mine.json").read_text())["name"] == "m H200 x1"
    assert result.output.endswith(f"wrote {tmp_path / 'mine.json'}\n")


def test_a_file_that_is_no_benchmark(world: World) -> None:
    """The file is named, and nothing is written."""
    result = call("calibrate", "pyproject.toml", "--gpu", "H200", "--gpus", "1")

    assert result.exit_code == 2
    assert result.stderr.startswith("error: pyproject.toml:1: is neither JSON nor the text of vLLM's /metrics\n")
    assert not (world.folder / "baselines/calibrations").exists()


def test_a_changed_calibration_needs_an_approval_like_the_fleet(world: World) -> None:
    """A pull request cannot make its own room: the calibration that fleet.toml names is a part of it.

    `accept` covers it. The approval is for that one step: a calibration that is gone afterwards is another one.
    """
    calibrated(world, "--name", "ours")
    world.commit("calibrated")
    git(world.root, "branch", "-f", "base")
    assert "fleet-changed" not in slugs(world.judge(make_run(), base="base", today=TODAY))

    path = world.folder / "baselines/calibrations/ours.json"
    document = json.loads(path.read_text())
    document["prefill_tokens_per_s"] *= 10
    path.write_text(json.dumps(document))
    world.commit("ten times as fast")

    found = world.judge(make_run(), base="base", today=TODAY)
    assert "fleet-changed" in slugs(found)
    assert found.verdict == "unapproved"

    run = world.measured(replace(make_run(), base=Base(world.repo.resolve("base"), "test")))
    run = replace(run, head=Head(world.repo.resolve("HEAD")))
    plan = plan_accept(
        run, world.repo, world.settings, reason="The server was measured again.", requested_by="d@example.com",
        today=TODAY, ci=False, base=run.base,
    )  # fmt: skip
    carry_out(plan, world.settings)
    world.commit("accepted")
    assert "fleet-changed" not in slugs(world.judge(make_run(), base="base", today=TODAY))

    path.unlink()
    world.commit("no calibration any more")
    assert "fleet-changed" in slugs(world.judge(make_run(), base="base", today=TODAY))


def test_a_place_where_nothing_can_be_written(world: World) -> None:
    """cannot-write: a folder that is a file is told in a sentence."""
    world.write("taken", "")

    result = calibrated(world, "--output", "taken/ours.json")

    assert (result.exit_code, result.stderr.splitlines()[0].startswith("error: taken/ours.json: could not be")) == (
        4,
        True,
    ), result.output
