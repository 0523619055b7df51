"""``fanout-capacity forecast``: what it prints for people and for machines."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result
from gate_world import TWENTY, World, make_run

from pytest_fanout.cli.capacity import main

FLEET = """schema = 1
[fleet]
gpus_reserved = 13
[prices]
usd_per_gpu_hour = 4
[demand.support]
dau = 864_000
tasks_per_user_day = 1
peak_factor = 10
"""
CUSTOMERS = """schema = 1
[[customer]]
name = "Acme"
live = 2026-12-09
dau = 864_000
tasks_per_user_day = 1.0
"""


def call(*words: str) -> Result:
    return CliRunner().invoke(main, ["forecast", *words, "--start", "2026-11-30"], catch_exceptions=False)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A first commit whose anchor takes half of the calls of the second one; a customer comes in the second week."""
    world = World.make(tmp_path_factory.mktemp("forecast") / "project")
    world.write("baselines/fleet.toml", FLEET)
    world.write("customers.toml", CUSTOMERS)
    world.write("customers.csv", "name,live,dau,tasks_per_user_day\nAcme,2026-12-09,864000,1\n")
    world.anchor(make_run({task: [1 for _ in values] for task, values in TWENTY.items()}))
    world.commit("start")
    world.branch()
    world.anchor(make_run())
    world.commit("more calls")
    return world


@pytest.fixture
def world(shared: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(shared.folder)
    return shared


def test_the_weeks_for_people(world: World) -> None:
    """100 tasks/s take 10 of 13 GPUs; with as many again from Acme the second week is short, by Acme."""
    result = call("customers.toml", "--weeks", "2", "--explain")

    assert result.exit_code == 0
    first, second = [line.split() for line in result.output.splitlines() if line.startswith("2026-")]
    # p50, p95, its interval in three words, GPUs at peak, GPUs for p95, state
    assert (first[:3], first[8:]) == (["2026-11-30", "864,000", "100"], ["10", "10", "holds"])
    assert (second[:3], second[8:11]) == (["2026-12-07", "1,728,000", "200"], ["20", "20", "SHORT"])
    assert " ".join(second[11:]) == "live: Acme; by onboarding of Acme"
    assert (
        "- The first week that does not hold is that of 2026-12-07, 1 week from the start: by onboarding of Acme.\n"
        "- Not held: 1 of 2 weeks.\n"
        "- Most GPUs for p95 in a week: 20, on 13 reserved and 0 to burst.\n"
    ) in result.output
    assert (
        "- week of 2026-12-07, support: tasks/s = users x tasks per user and day / 86,400 x peak factor = "
        "1,728,000 x 1 / 86,400 x 10 = 200\n"
    ) in result.output


def test_the_weeks_for_machines(world: World) -> None:
    """The document fits its schema, whatever the file's format; fanout since the first commit is a cause."""
    schema = json.loads(resources.files("pytest_fanout").joinpath("schemas/forecast.schema.json").read_bytes())

    document = json.loads(
        call("customers.csv", "--weeks", "2", "--since", "main", "--explain", "--format", "json").output
    )

    assert list(jsonschema.Draft202012Validator(schema).iter_errors(document)) == []
    assert [week["state"] for week in document["weeks"]] == ["holds", "short"]
    assert document["weeks"][1]["causes"] == ["onboarding of Acme", "fanout"]
    assert document["weeks"][0]["usd_per_day"] == 10 * 4 * 24
    assert document["customers"][0]["live"] == "2026-12-09"
    assert document["notes"][0].startswith("By the other fit of the same published rows GPUs are x0.")


def test_growth_without_customers(world: World) -> None:
    """No file is needed; growth that is given in words wins."""
    document = json.loads(
        call("--weeks", "1", "--dau-growth-per-week", "0.02", "--tasks-growth-per-week", "0", "--format", "json").output
    )

    assert (document["dau_growth_per_week"], document["customers"]) == (0.02, [])


def test_markdown(world: World) -> None:
    """For a page of plans: tables of markdown."""
    assert call("--weeks", "1", "--format", "md").output.startswith("### By week, at peak\n\n| week of ")


def test_a_file_that_is_wrong(world: World, tmp_path: Path) -> None:
    """The file and the customer are named; nothing is printed."""
    path = tmp_path / "bad.toml"
    path.write_text(CUSTOMERS.replace("864_000", "-1"))

    result = call(str(path))

    assert (result.exit_code, result.stdout) == (2, "")
    assert "customer 1: has a dau of -1" in result.stderr


def test_a_start_that_leaves_no_room(world: World) -> None:
    """A forecast ends before the calendar does."""
    result = CliRunner().invoke(main, ["forecast", "--start", "9999-12-20"], catch_exceptions=False)

    assert result.exit_code == 2
    assert "Invalid value for --start: is too late: the last week would have no date" in result.stderr
