"""The pages: links lead somewhere, the README's commands are the ones that are run, faults name tests that exist."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from pytest_fanout.plugin import pytest_addoption
from pytest_fanout.records import MeasureRules

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FAULTS = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (A\d+) \| (.+?) \| (.+?) \| (.+?) \|$", FAULTS, re.MULTILINE)


@cache
def faults_in_tests() -> frozenset[str]:
    """Every fault that the docstring of some test names."""
    return frozenset(
        fault
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test")
        for fault in re.findall(r"\bA\d+\b", ast.get_docstring(node) or "")
    )


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    """A link to a file of the tree finds that file, and its heading where one is named."""
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        name, _, heading = target.partition("#")
        if re.match(r"[a-z]+:", name):
            continue
        path = (page.parent / name).resolve() if name else page
        is_page = path.is_file() and path.suffix == ".md"
        headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE) if is_page else []
        if not path.exists() or (heading and heading not in map(anchor, headings)):
            dead.append(target)

    assert dead == []


@pytest.mark.parametrize("environment", [".venv-demo", ".venv-test"])
def test_the_readme_has_one_line_per_set_up(environment: str) -> None:
    """Each of the two commands stands on one line of its own and makes its own environment from nothing."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(rf"^python3 -m venv {re.escape(environment)} && .*$", readme, re.MULTILINE)

    assert len(lines) == 1
    assert lines[0].count(environment) == 3


def test_one_command_runs_all_checks() -> None:
    """`.ci/run` is executable, is valid bash, and takes its commands from the README instead of repeating them."""
    script = ROOT / ".ci" / "run"
    parsed = subprocess.run(["bash", "-n", script], capture_output=True, check=False)
    text = script.read_text(encoding="utf-8")

    assert os.access(script, os.X_OK)
    assert parsed.returncode == 0
    assert "pip install" not in text
    assert "readme_command .venv-test" in text
    assert "readme_command .venv-demo" in text


def test_every_option_stands_in_the_table_of_options(pytestconfig: pytest.Config) -> None:
    """What `pytest --help` shows of the plugin is what docs/agents.md lists, neither more nor less."""
    table = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\| `(--fanout-[a-z-]+)", table, re.MULTILINE))
    parser = pytest.Parser(_ispytest=True)
    pytest_addoption(parser)
    options = {name for option in parser.getgroup("fanout").options for name in option.names()}

    assert shown == options


def test_every_rule_of_measuring_stands_in_its_table() -> None:
    """The keys of ``[measure]`` are those that docs/budget.md explains."""
    text = (ROOT / "docs" / "budget.md").read_text(encoding="utf-8")

    missing = [field.name for field in dataclasses.fields(MeasureRules) if f"`{field.name}`" not in text]

    assert missing == []


def test_every_known_fault_has_a_row() -> None:
    """The 24 known faults, each once, in order, each with a public link."""
    assert [row[0] for row in ROWS] == [f"A{number}" for number in range(1, 25)]
    assert all("https://" in row[1] for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_fault_is_held_by_a_test_that_exists_or_is_open(row: tuple[str, str, str, str]) -> None:
    """Every test that a row names is in the tree and names the fault; a row without one says `open`."""
    fault, _, _, held = row
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", held)
    assert named or held.startswith("open")
    assert named or fault not in faults_in_tests(), "a test names this fault: name it in docs/faults.md"
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        found = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.name == name]
        assert found, f"{file}::{name} does not exist"
        assert re.search(rf"\b{fault}\b", ast.get_docstring(found[0]) or ""), f"{file}::{name} does not name {fault}"
