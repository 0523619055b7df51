"""``--plot``: demand against capacity and the cliffs, as text of SVG."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from gate_world import World, make_run

from pytest_fanout.cli.capacity import main
from pytest_fanout.records import CliffCell, Cliffs
from pytest_fanout.report.plots import DemandCurve, plan_svg

CELLS = (
    CliffCell((), 10.0, 1.0, True, 0.0),
    CliffCell(("onboarding",), 12.0, 1.2, True, 0.0),
    CliffCell(("fanout",), 40.0, 4.0, False, 0.3),
    CliffCell(("onboarding", "fanout"), None, None, False, None),
)
UP = tuple(map(float, range(1, 100)))
RUN = DemandCurve("run", UP, tuple(each - 0.5 for each in UP), tuple(each + 2.0 for each in UP), 95.0)
BASE = DemandCurve("base", (5.0,) * 99, (5.0,) * 99, (5.0,) * 99, 5.0)
FLEET = """schema = 1
[fleet]
gpus_reserved = 40
[cliffs]
fanout_ratio = 2.0
[demand.support]
dau = 864_000
tasks_per_user_day = 1
"""


def texts(svg: str) -> list[str]:
    """Every text of a picture: it is valid XML, and text is text."""
    return [
        "".join(node.itertext()).strip() for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")
    ]


def plan(*words: str) -> Result:
    return CliRunner().invoke(main, ["plan", *words], catch_exceptions=False)


def test_a_picture_says_its_figures_in_words() -> None:
    """95 GPUs are enough in 95 % of minutes; capacity, each combination of cliffs, and what does not fit are told."""
    found = texts(plan_svg(RUN, BASE, 28.0, Cliffs(CELLS, 1, 28.0)))

    assert {"run: p95 95.00 GPUs", "base: p95 5.00 GPUs", "capacity: 28"} <= set(found)
    assert {"Cliffs survivable: 1 at once", "today", "onboarding", "fanout", "onboarding + fanout"} <= set(found)
    assert {"10.00, fits", "12.00, fits", "40.00, FAILS by 30 % of demand", "no number: FAILS"} <= set(found)


def test_the_same_plan_gives_the_same_bytes() -> None:
    """No date, no identifier by chance: a picture in git changes when its figures do."""
    first, second = (plan_svg(RUN, None, None, None) for _ in range(2))

    assert first == second
    assert "dc:date" not in first
    assert "capacity" not in first


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World.make(tmp_path / "project")
    made.anchor(make_run())
    made.write("baselines/fleet.toml", FLEET)
    made.commit("start")
    monkeypatch.chdir(made.folder)
    return made


def test_plan_draws_what_it_prints(world: World) -> None:
    """The picture holds the percentile and the cliffs of the page."""
    page = plan("--plot", "plan.svg").stdout

    found = texts(Path("plan.svg").read_text())
    p95 = next(text for text in found if text.startswith("anchors: ")).removeprefix("anchors: ")
    assert f"{p95} in 95 % of minutes at peak" in page
    assert "capacity: 40" in found
    assert any(text.startswith("Cliffs survivable: ") for text in found)


def test_without_demand_there_is_nothing_to_draw(world: World) -> None:
    """nothing-to-plot: what a picture needs."""
    world.write("baselines/fleet.toml", "schema = 1\n")

    result = plan("--plot", "plan.svg")

    assert result.exit_code == 2
    assert not Path("plan.svg").exists()
    assert result.stderr == (
        "error: baselines/fleet.toml: there are no GPUs to draw: a class has no demand, its tokens are unknown, "
        "a provider serves the model, or the fleet is saturated\n"
        "  mend: fanout-capacity plan says which; [demand.CLASS] in fleet.toml gives demand\n"
        "  see: docs/messages.md#nothing-to-plot\n"
    )


def test_a_picture_of_another_format() -> None:
    """bad-plot-file: pictures are SVG."""
    assert plan("--plot", "plan.png").stderr == (
        "error: plan.png: pictures are SVG only\n"
        "  mend: name a file that ends with .svg\n"
        "  see: docs/messages.md#bad-plot-file\n"
    )


def test_without_the_plotting_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """no-plot-extra: the command that installs it, before anything is worked out."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    assert plan("--plot", "plan.svg").stderr == (
        "error: drawing stands on matplotlib, which is not installed\n"
        "  mend: pip install 'pytest-fanout[plot]'\n"
        "  see: docs/messages.md#no-plot-extra\n"
    )
