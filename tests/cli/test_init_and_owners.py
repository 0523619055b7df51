"""``fanout-baseline init``, and whom `accept` and `waive` name as reviewers."""

from __future__ import annotations

import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from gate_world import World, started

from pytest_fanout.cli.approving import review_advice
from pytest_fanout.cli.baseline import main
from pytest_fanout.cli.capacity import main as capacity
from pytest_fanout.store.budget import DEFAULT_TEXT
from pytest_fanout.store.owners import owners_of

ATTRIBUTES = "baselines/** text eol=lf\nfixtures/recordings/** text eol=lf linguist-generated\n"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = started(tmp_path / "project")
    monkeypatch.chdir(world.folder)
    return world


def init(world: World) -> list[str]:
    done = CliRunner().invoke(main, ["init"], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output.splitlines()


def test_init_writes_what_is_missing_and_says_what_is_left_to_do(world: World) -> None:
    """budget.toml with its defaults, the report out of git, line endings; who should own what; the next commands."""
    lines = init(world)

    assert lines == [
        "wrote baselines/budget.toml",
        "wrote .gitignore",
        "wrote .gitattributes",
        "",
        "Demand, GPUs and prices, if you want capacity figures, stand in baselines/fleet.toml.",
        "",
        "Who may approve is decided by your code owners. In .github/CODEOWNERS:",
        "  /baselines/      @your-org/capacity",
        "  /fixtures/       @your-org/capacity",
        "  /.github/        @your-org/platform",
        "  /pyproject.toml  @your-org/platform",
        "  /conftest.py     @your-org/platform",
        "",
        "next:",
        '  git add baselines .gitignore .gitattributes && git commit -m "Add the fanout budget"',
        "  pytest --fanout-budget --fanout-mode=record",
    ]
    assert (world.folder / "baselines/budget.toml").read_text() == DEFAULT_TEXT
    assert (world.folder / ".gitignore").read_text() == "fanout-report.json\nfanout-report.html\n"
    assert (world.folder / ".gitattributes").read_text() == ATTRIBUTES


def test_init_extends_what_is_there_and_overwrites_nothing(world: World) -> None:
    """Lines are added after those that stand there, in their line endings; a second time nothing is written."""
    world.write(".gitignore", "*.pyc")
    world.write(".gitattributes", b"*.png binary\r\nbaselines/** -text\r\n")
    world.write("baselines/budget.toml", "schema = 1\n# mine\n")

    assert init(world)[:3] == ["wrote .gitignore", "wrote .gitattributes", "kept baselines/budget.toml"]
    assert (world.folder / ".gitignore").read_text() == "*.pyc\nfanout-report.json\nfanout-report.html\n"
    assert (world.folder / ".gitattributes").read_bytes() == (
        b"*.png binary\r\nbaselines/** -text\r\nfixtures/recordings/** text eol=lf linguist-generated\r\n"
    )
    assert init(world)[:3] == ["kept baselines/budget.toml", "kept .gitignore", "kept .gitattributes"]
    assert (world.folder / "baselines/budget.toml").read_text() == "schema = 1\n# mine\n"


@pytest.mark.parametrize("command", [main, capacity])
def test_init_writes_through_no_link(world: World, tmp_path: Path, command: click.Group) -> None:
    """Somebody else's branch can hold a link in place of the folder: nothing appears where it leads."""
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.rmtree(world.folder / "baselines")
    (world.folder / "baselines").symlink_to(outside)

    done = CliRunner().invoke(command, ["init"], catch_exceptions=False)

    assert (done.exit_code, list(outside.iterdir())) == (4, [])
    assert "baselines: is a symbolic link" in done.output


def test_init_names_only_what_nobody_owns_yet(world: World) -> None:
    """What CODEOWNERS gives to somebody is left out."""
    world.write(".github/CODEOWNERS", "/baselines/ @a/b\n/fixtures/ @a/b\n/.github/ @a/c\n*.py @a/c\n")
    lines = init(world)
    at = lines.index("Who may approve is decided by your code owners. In .github/CODEOWNERS:")
    assert lines[at + 1 : at + 3] == ["  /pyproject.toml  @your-org/platform", ""]

    world.write(".github/CODEOWNERS", "* @a/b\n")
    assert "Who may approve is decided by your code owners; all that should be owned is." in init(world)


def test_init_in_a_subfolder_names_paths_from_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CODEOWNERS stands at the root of the repository."""
    world = started(tmp_path / "mono", "services/shop")
    monkeypatch.chdir(world.folder)

    assert "  /services/shop/baselines/      @your-org/capacity" in init(world)


@pytest.mark.parametrize(
    ("pattern", "path", "is_owned"),
    [
        ("*", "baselines/approvals/x.json", True),
        ("/baselines/", "baselines/approvals/x.json", True),
        ("baselines/", "services/shop/baselines/x.json", True),
        ("/baselines/", "services/shop/baselines/x.json", False),
        ("/baselines", "baselines/x.json", True),
        ("/base", "baselines/x.json", False),
        ("baselines/*", "baselines/x.json", True),
        ("baselines/*", "baselines/approvals/x.json", False),
        ("baselines/**", "baselines/approvals/x.json", True),
        ("**/approvals", "a/b/approvals/x.json", True),
        ("*.json", "baselines/x.json", True),
        ("*.toml", "baselines/x.json", False),
        ("services/*/baselines/", "services/shop/baselines/x.json", True),
        ("services/*/baselines/", "services/a/b/baselines/x.json", False),
        ("b?selines/", "baselines/x.json", True),
        ("base.ines/", "baselines/x.json", False),
    ],
)
def test_patterns_of_codeowners(tmp_path: Path, pattern: str, path: str, is_owned: bool) -> None:
    """As GitHub's own page explains them: a leading slash anchors, `folder/*` is one level, `**` any."""
    (tmp_path / "CODEOWNERS").write_text(f"{pattern} @dana\n")

    assert owners_of(tmp_path, path) == (("@dana",) if is_owned else ())


def test_the_last_matching_line_of_the_first_file_decides(tmp_path: Path) -> None:
    """Comments end a line; a line without owners disowns; .github/ goes before the root."""
    (tmp_path / "CODEOWNERS").write_text("* @root\n")
    assert owners_of(tmp_path, "baselines/x.json") == ("@root",)
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github/CODEOWNERS").write_text("# all\n* @org/all\n/baselines/ @dana @org/cap # both\n/fixtures/\n")

    assert owners_of(tmp_path, "baselines/x.json") == ("@dana", "@org/cap")
    assert owners_of(tmp_path, "fixtures/x.json") == ()
    assert owners_of(tmp_path, "shop.py") == ("@org/all",)


@pytest.mark.parametrize(
    ("codeowners", "advice"),
    [
        (
            None,
            "have baselines/ reviewed: there is no CODEOWNERS file, so that anybody's\n"
            "    review counts (fanout-baseline init)",
        ),
        (
            "/src/ @dana\n",
            "have baselines/ reviewed: CODEOWNERS names nobody for baselines/, so that\n"
            "    anybody's review counts (fanout-baseline init)",
        ),
        ("* @dana @eli\n", "have baselines/ reviewed by its code owners: @dana, @eli"),
        ("* @org/capacity\n", "have baselines/ reviewed by its code owners: @org/capacity"),
        (
            "* @dana\n",
            "have baselines/ reviewed by its only code owner, @dana. If that is you:\n"
            "    nobody can approve their own pull request. Name a second owner, or let\n"
            "    somebody else open the request. Merging past the rule as an admin works\n"
            "    and is logged, but it is a growth that nobody reviewed: say so in the\n"
            "    request.",
        ),
    ],
)
def test_who_is_asked_to_review(world: World, codeowners: str | None, advice: str) -> None:
    """A single owner, who cannot approve a request of their own, is told the honest way out."""
    if codeowners is not None:
        world.write("CODEOWNERS", codeowners)

    assert review_advice(world.settings, world.repo) == advice
