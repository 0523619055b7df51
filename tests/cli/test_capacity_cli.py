"""``fanout-capacity``: what it writes, prints and refuses."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result
from gate_world import TWENTY, World, make_run

from pytest_fanout.cli.capacity import main
from pytest_fanout.store.fleet import EXAMPLE

FLEET = """schema = 1
[fleet]
gpus_reserved = 4
[cliffs]
fanout_ratio = 2.0
[prices]
usd_per_million_new_input_tokens = 3
usd_per_million_cached_input_tokens = 0.3
usd_per_million_output_tokens = 15
usd_per_gpu_hour = 4
[demand.support]
dau = 864_000
tasks_per_user_day = 1
peak_factor = 10
onboarding_dau = 86_400
"""


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A project whose main branch holds an anchor of fanout 1 to 20, and a branch with one of twice that."""
    world = World.make(tmp_path_factory.mktemp("capacity") / "project")
    world.anchor(make_run())
    world.write("baselines/fleet.toml", FLEET)
    world.commit("start")
    world.branch()
    world.anchor(make_run({task: [2 * value for value in values] for task, values in TWENTY.items()}))
    world.commit("twice")
    return world


@pytest.fixture
def world(shared: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(shared.folder)
    return shared


def test_init_writes_an_example_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example is written where there is no file, and what stands there is kept."""
    world = World.make(tmp_path / "project")
    monkeypatch.chdir(world.folder)

    first, second = call("init"), call("init")

    assert first.output.startswith("wrote baselines/fleet.toml\n")
    assert (world.folder / "baselines/fleet.toml").read_text() == EXAMPLE
    assert second.output.startswith("kept baselines/fleet.toml\n")


def test_plan_by_hand(world: World) -> None:
    """100 tasks/s of 21 calls, 1,680 tokens in and 420 out: 13.2 GPU-seconds x 100 / 0.7 are 19.1 GPUs."""
    result = call("plan", "--format", "json")

    document = json.loads(result.output)
    (support,) = document["classes"]
    assert support["run"]["calls_per_s"] == pytest.approx(2_100)
    assert support["run"]["gpus"] == pytest.approx(100 * (1_680 / 17_502 + 420 / 11_115) / 0.7, rel=1e-4)
    assert support["gpus_run"] == 20
    assert document["fleet"]["base"] is None
    assert document["fleet"]["run"]["usd_per_month"] == 20 * 4 * 24 * 30
    assert "fleet.target_utilisation" in document["defaults"]


@pytest.mark.parametrize("words", [("plan",), ("compare", "main", "HEAD", "--explain")])
def test_json_fits_its_schema(world: World, words: tuple[str, ...]) -> None:
    """What is printed for machines fits the schema that is shipped."""
    schema = json.loads(resources.files("pytest_fanout").joinpath("schemas/capacity.schema.json").read_bytes())

    document = json.loads(call(*words, "--format", "json").output)

    assert list(jsonschema.Draft202012Validator(schema).iter_errors(document)) == []


def test_a_plan_misses_no_anchor(world: World) -> None:
    """The anchors are what is planned: nothing says that there is none to compare with, also not for machines."""
    document = json.loads(call("plan", "--format", "json").output)

    assert not any("no anchor" in text for each in document["classes"] for text in each["assumptions"])
    assert (
        "An eval set of 20 tasks is not traffic (every task counts the same)." in document["classes"][0]["assumptions"]
    )


def test_compare_puts_both_sides_beside_each_other(world: World) -> None:
    """Twice the calls of each task: ratio first, then percentiles with their interval, the cliffs and the money."""
    output = call("compare", "main", "HEAD").output

    lines = [line for line in output.splitlines() if line.startswith(("support base", "support run"))]
    assert [(line.split()[7], line.split()[11]) for line in lines] == [("9.56", "10"), ("19.11", "20")]
    assert "- support GPU time x2.00, calls x2.00 of the anchor\n" in output
    assert "GPUs in 95 % of minutes at peak, +" in output
    assert "- all classes: cliffs survivable not even today's peak of 2, on 4 GPUs driven to 85 %\n" in output
    assert "- all classes: 28,800 -> 57,600 USD in 30 days\n" in output
    assert "onboarding + fanout" in output


def test_equal_sides_grow_by_nothing(world: World) -> None:
    """A commit beside itself: growth of exactly zero."""
    document = json.loads(call("compare", "HEAD", "HEAD", "--format", "json").output)

    assert document["fleet"]["growth"]["delta_interval"] == [0.0, 0.0]
    assert document["fleet"]["growth"]["ratio"] == 1.0


def test_markdown_and_formulas(world: World) -> None:
    """For a pull request: tables of markdown, and each formula with its values."""
    output = call("plan", "--format", "md", "--explain").output

    assert output.startswith("### Demand and GPUs at peak\n\n| class ")
    assert "- tasks/s = dau x tasks_per_user_day / 86,400 x peak_factor = 864,000 x 1 / 86,400 x 10 = 100\n" in output
    assert "- calls per task = 21 (mean over tasks)\n" in output
    assert "- calls/s = tasks/s x calls per task = 100 x 21 = 2,100\n" in output
    assert "(168,000 / 17,502 + 42,000 / 11,115) / 0.7 = 19.11083\n" in output
    assert "- fleet.target_utilisation = 0.7\n" in output
    assert "### How: all classes\n\n- calls/s of all classes = " in output
    assert "- USD a day of all classes = GPUs at peak x USD an hour x 24 = 20 x 4 x 24 = 1,920\n" in output
    assert "- USD in 30 days = USD a day x 30 = 1,920 x 30 = 57,600\n" in output
    assert "- GPUs that can be had = gpus_reserved + gpus_burst = 4 + 0 = 4\n" in output
    # 19.11 GPUs at 70 % are 15.74 at 85 %, of which 4 are there
    assert "- to be shed with no cliff = 1 - GPUs that can be had / GPUs = 1 - 4 / 15.73833 = 0.7458434\n" in output
    # the trials of this project take no time
    assert "in flight in 99 % of moments = 2,000,000 x 0 = 0" in output


def test_profiles_are_listed() -> None:
    """Each built-in profile has its row, with both fits."""
    output = call("profiles").output

    assert "gpt-oss-120b-h200-tp1" in output
    assert output.endswith(
        "\n\nindicative, within a factor of 2: TensorRT-LLM performance overview, NVIDIA, max load, no prefix reuse; "
        "two-point fit\n"
    )


def test_a_misspelt_class(world: World) -> None:
    """no-anchor: the classes that there are are told, and the nearest of them."""
    result = call("plan", "--agent", "Suport")

    assert result.exit_code == 2
    assert result.stderr == (
        "error: there is no anchor of Suport; there are anchors of: support\n"
        "  mend: --agent support\n"
        "  see: docs/messages.md#no-anchor\n"
    )


def test_a_class_without_an_anchor(world: World) -> None:
    """no-anchor: the class is named, and how to get one."""
    result = call("plan", "--agent", "research")

    assert result.exit_code == 2
    assert result.stderr == (
        "error: there is no anchor of research; there are anchors of: support\n"
        '  mend: fanout-baseline accept --reason "…", then commit baselines/\n'
        "  see: docs/messages.md#no-anchor\n"
    )


def test_a_side_that_is_nothing(world: World) -> None:
    """no-such-side: neither a file nor a commit."""
    result = call("compare", "nowhere", "HEAD")

    assert result.exit_code == 2
    assert result.stderr == (
        "error: 'nowhere' is neither a report nor a commit\n"
        "  mend: name a report (fanout-report.json), a branch, a tag or a commit\n"
        "  see: docs/messages.md#no-such-side\n"
    )


def test_a_calibration_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """no-calibration: fleet.toml names a file that does not stand beside it."""
    world = World.make(tmp_path / "project")
    world.anchor(make_run())
    world.write("baselines/fleet.toml", 'schema = 1\n[fleet]\ncalibration = "calibrations/ours.json"\n')
    world.commit()
    monkeypatch.chdir(world.folder)

    result = call("plan")

    assert result.exit_code == 2
    assert result.stderr == (
        "error: baselines/fleet.toml: [fleet] calibration: there is no file baselines/calibrations/ours.json\n"
        "  mend: name a file beside fleet.toml, and commit it\n"
        "  see: docs/messages.md#no-calibration\n"
    )


def test_a_calibration_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A measured server stands in place of a profile: one number, no band, and latency is among the constraints."""
    points = [{"concurrency": c, "output_tokens_per_s": 1_000 * c / (18 + 1.8 * c), "itl_ms": 18 + 1.8 * c}
              for c in (1, 8, 64)]  # fmt: skip
    calibration = {
        "schema": 1, "name": "ours", "source": "vllm bench serve, today", "model": "gpt-oss-120b", "gpu": "H200",
        "gpus_per_replica": 1, "prefill_tokens_per_s": 20_000, "input_tokens": 1_024, "output_tokens": 1_024,
        "context_tokens_max": 32_768, "points": points,
    }  # fmt: skip
    world = World.make(tmp_path / "project")
    world.anchor(make_run())
    world.write("baselines/calibrations/ours.json", json.dumps(calibration))
    world.write("baselines/fleet.toml", 'schema = 1\n[fleet]\ncalibration = "calibrations/ours.json"\n')
    world.commit()
    monkeypatch.chdir(world.folder)

    (support,) = json.loads(call("plan", "--format", "json").output)["classes"]

    assert support["profile"] == "ours (calibrated: vllm bench serve, today)"
    assert support["run"]["gpus_other"] is None
    assert {c["name"]: c["gpus"] is not None for c in support["run"]["constraints"]}["latency"]


def test_a_calibration_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is missing is named, with the file."""
    world = World.make(tmp_path / "project")
    world.anchor(make_run())
    world.write("baselines/fleet.toml", 'schema = 1\n[fleet]\ncalibration = "calibrations/ours.json"\n')
    world.write("baselines/calibrations/ours.json", '{"schema": 1}')
    world.commit()
    monkeypatch.chdir(world.folder)

    result = call("plan")

    assert result.exit_code == 2
    assert result.stderr.startswith("error: baselines/calibrations/ours.json: the document lacks 'name', 'source', ")
    assert result.stderr.endswith("  see: docs/messages.md#bad-calibration\n")
