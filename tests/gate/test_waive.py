"""A waiver: what is written, what is refused, and that it never stands in the way of an approval of the same day."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gate_world import NOW, TODAY, TWENTY, World, git, make_run, started

from pytest_fanout.cli.baseline import main
from pytest_fanout.errors import FanoutError
from pytest_fanout.gate import accept
from pytest_fanout.gate.waiving import Waiver, plan_waiver, write_waiver
from pytest_fanout.records import Base
from pytest_fanout.store.approvals import parse_approval

GROWN = {**TWENTY, "t19": [25], "t20": [25]}
REASON = "Hotfix of the outage, see FAN-311."
SEE = "\n  see: docs/messages.md#"
HOUR = 3600


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("CI", "GITHUB_EVENT_PATH", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    world = started(tmp_path / "project")
    monkeypatch.chdir(world.folder)
    return world


def plan(world: World, **changes: Any) -> Waiver:
    words = {
        "agent": "support",
        "reason": REASON,
        "hours": 24,
        "requested_by": "dana@example.com",
        "now": NOW,
        "ci": False,
        "base": Base(world.repo.resolve("main"), "test"),
        "environ": {},
        **changes,
    }
    return plan_waiver(world.repo, world.settings, **words)


def files(world: World) -> list[str]:
    return sorted(path.name for path in (world.folder / "baselines/approvals").glob("*"))


def test_a_waiver_lets_a_red_class_pass_until_it_ends(world: World) -> None:
    """Red; waived once committed, for 24 hours to the second; red again. NOW is noon of the 29th."""
    assert world.judge(make_run(GROWN)).verdict == "regressed"
    path = write_waiver(plan(world), world.settings)
    assert world.judge(make_run(GROWN)).verdict == "regressed"
    world.commit()

    assert world.judge(make_run(GROWN)).verdict == "waived"
    assert world.judge(make_run(GROWN), now=NOW + 24 * HOUR - 1).verdict == "waived"
    assert world.judge(make_run(GROWN), now=NOW + 24 * HOUR).verdict == "regressed"
    made = parse_approval((world.folder / path).read_bytes(), path)
    assert (made.kind, made.subject, made.reason, made.from_digest, made.ceilings) == (
        "waiver",
        "support",
        REASON,
        None,
        {},
    )


def test_72_hours_count_from_the_start_of_its_day(world: World) -> None:
    """At noon 60 hours of the 72 are left; what was asked for beyond them is said to be cut."""
    waiver = plan(world, hours=72)

    assert (waiver.hours, waiver.shortened, waiver.approval.expires_at) == (60, True, NOW + 60 * HOUR)
    assert plan(world, hours=60).shortened is False


def test_waiver_and_first_approval_of_one_day_do_not_collide(tmp_path: Path) -> None:
    """Both depart from nothing; whichever comes second is numbered, and neither file is lost."""
    world = World.make(tmp_path / "new")
    world.commit()
    world.branch()
    base = Base(world.repo.resolve("main"), "test")
    write_waiver(plan(world), world.settings)
    write_waiver(plan(world), world.settings)

    for _ in range(2):  # an approval of this branch is replaced by its successor, a waiver never
        accept(
            world.measured(make_run()),
            world.repo,
            world.settings,
            reason=REASON,
            requested_by="dana@example.com",
            today=TODAY,
            ci=False,
            base=base,
        )
    third = write_waiver(plan(world), world.settings)

    assert third == "baselines/approvals/2026-11-29-support-waiver-3.json"
    assert files(world) == [f"2026-11-29-support-{end}.json" for end in ("first", "waiver-2", "waiver-3", "waiver")]
    world.commit()
    assert world.judge(make_run()).verdict == "approved"


def test_a_number_is_not_taken_twice_after_a_merge(world: World) -> None:
    """The base holds a waiver of this day: the new one has another name, so that it is not taken for an edit of it."""
    git(world.root, "switch", "-q", "main")
    write_waiver(plan(world), world.settings)
    world.commit()

    assert plan(world, base=Base(world.repo.resolve("main"), "test")).approval.path.endswith("-waiver-2.json")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"ci": True},
            "nothing is waived in CI: a build must not let itself pass\n"
            f"  mend: run `fanout-baseline waive` on your machine, and have its file reviewed{SEE}waive-in-ci",
        ),
        ({"hours": 73}, f"--hours=73 is not between 1 and 72\n  mend: --hours=24{SEE}bad-hours"),
        ({"hours": 0}, f"--hours=0 is not between 1 and 72\n  mend: --hours=24{SEE}bad-hours"),
        (
            {"agent": "suport"},
            "'suport' is no agent class of the settings or of the baselines; known: support\n"
            f"  mend: use one of these with --agent{SEE}unknown-agent",
        ),
        (
            {"reason": "urgent"},
            "the reason has 6 characters; the reviewer needs at least 20\n"
            f'  mend: --reason "Why this growth is worth its cost"{SEE}reason-too-short',
        ),
    ],
)
def test_what_is_refused(world: World, changes: dict[str, Any], text: str) -> None:
    """Nothing is written, and the message says what leads on."""
    with pytest.raises(FanoutError) as caught:
        plan(world, **changes)

    assert str(caught.value) == text
    assert files(world) == []


def test_a_secret_in_the_reason_is_not_committed(world: World) -> None:
    """It would be pushed with the file."""
    with pytest.raises(FanoutError, match="secret-not-accepted"):
        plan(
            world, reason="the key is sk-live-0123456789abcdef0123", environ={"API_KEY": "sk-live-0123456789abcdef0123"}
        )


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    """There is nothing yet that could be waived."""
    with pytest.raises(FanoutError, match="HEAD has no commit yet\n  mend: commit the project first"):
        plan(World.make(tmp_path / "new"))


def test_the_command_says_what_it_does_and_asks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal nothing is written until --yes says so; an earlier waiver is told."""
    monkeypatch.setattr(time, "time", lambda: float(NOW))
    world.write(".github/CODEOWNERS", "/baselines/ @org/capacity\n")
    words = ["waive", "--agent", "support", "--reason", REASON]

    done = CliRunner().invoke(main, words)
    assert (done.exit_code, files(world)) == (2, [])

    done = CliRunner().invoke(main, [*words, "--yes"])
    assert done.output == (
        "support may pass until 2026-11-30 12:00 UTC (24 hours) where it is inconclusive, regressed, stale.\n"
        "Caps, maxima, and what was not measured for any other reason still fail; every report says waived.\n"
        "wrote baselines/approvals/2026-11-29-support-waiver.json\n"
        "\n"
        "next:\n"
        "  git add baselines && git commit\n"
        "  have baselines/ reviewed by its code owners: @org/capacity\n"
        '  before 2026-11-30 12:00 UTC: mend it, or fanout-baseline accept --agent support --reason "…"\n'
    )
    done = CliRunner().invoke(main, [*words, "--hours", "72", "--yes"])
    assert re.findall("^(It ends sooner|1 of this class before it: 2026-11-29-support-waiver.json)", done.output, re.M)
    assert done.exit_code == 0
