"""A good neighbour: our names cannot collide, our marker always exists, no mode of pytest is broken by us."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from projects import clean_environment, run_pytest, write

MARKED = """
import pytest

@pytest.mark.fanout(agent="support")
def test_marked():
    assert True
"""
NEIGHBOURS = "\n".join(
    ["def pytest_addoption(parser):"]
    + [
        f"    parser.addoption('--{name}')"
        for name in ("budget", "baseline", "output", "report", "update", "mode", "trials", "agent")
    ]
    + [f"    parser.addini('{name}', '')" for name in ("budget", "baselines", "recordings", "agents")]
)


def only_us(tmp_path: Path, *arguments: str, **more: str) -> tuple[int, str]:
    """pytest with no installed plugin but ours, so that a warning or a name can only come from us."""
    env = clean_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", **more)
    done = run_pytest(tmp_path, "-p", "fanout", *arguments, env=env)
    return done.returncode, done.stdout + done.stderr


def test_it_lives_beside_plugins_with_the_obvious_names(tmp_path: Path) -> None:
    """A22: plugins that claim --budget, --baseline, --output, --report, --update and more load together with ours."""
    write(tmp_path, {"neighbours.py": NEIGHBOURS, "test_it.py": MARKED})
    code, output = only_us(tmp_path, "-p", "neighbours", "--help", PYTHONPATH=str(tmp_path))

    assert code == 0, output
    assert "--fanout-budget" in output
    assert "--budget=BUDGET" in output


def test_every_name_of_ours_begins_with_fanout(tmp_path: Path) -> None:
    """A22: options, marker and fixtures that pytest shows with us and not without us all carry our name."""
    write(tmp_path, {"test_it.py": MARKED})
    env = clean_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    options, fixtures, markers = set(), set(), set()
    for argument, names, pattern in (
        ("--help", options, r"^\s+(--[\w-]+)"),
        ("--fixtures", fixtures, r"^(\w+)(?: \[\w+ scope\])? -- "),
        ("--markers", markers, r"^@pytest\.mark\.(\w+)"),
    ):
        with_us = run_pytest(tmp_path, "-p", "fanout", argument, env=env).stdout
        without = run_pytest(tmp_path, argument, env=env).stdout
        names |= set(re.findall(pattern, with_us, re.MULTILINE)) - set(re.findall(pattern, without, re.MULTILINE))

    assert "--fanout-budget" in options
    assert [name for name in options if not name.startswith("--fanout-")] == []
    assert fixtures == {"fanout_meter"}
    assert markers == {"fanout"}


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("-p", "no:cacheprovider"),
        ("-p", "no:terminal"),
        ("-q", "-q"),
        ("-p", "no:junitxml", "-p", "no:capture"),
        ("-s", "-vv"),
    ],
    ids=" ".join,
)
def test_a_marked_test_is_an_ordinary_test_without_the_flag(tmp_path: Path, options: tuple[str, ...]) -> None:
    """A23: with warnings as errors and strict markers and settings, a marked test simply passes."""
    write(tmp_path, {"test_it.py": MARKED})
    code, output = only_us(tmp_path, "-W", "error", "--strict-markers", "--strict-config", *options)

    assert code == 0, output
    assert "INTERNALERROR" not in output


@pytest.mark.parametrize("flag", [(), ("--fanout-budget",)], ids=["without", "with"])
@pytest.mark.parametrize(
    "options",
    [
        ("-p", "no:cacheprovider"),
        ("-p", "no:terminal"),
        ("-q", "-q"),
        ("--collect-only",),
        ("--collect-only", "-q"),
    ],
    ids=" ".join,
)
def test_no_way_of_calling_pytest_breaks_it(tmp_path: Path, flag: tuple[str, ...], options: tuple[str, ...]) -> None:
    """A23: however pytest is called: no internal error, warning, traceback; a task without a call is red (1)."""
    write(tmp_path, {"test_it.py": MARKED})
    code, output = only_us(tmp_path, "-W", "error", "--strict-markers", "--strict-config", *flag, *options)

    assert "INTERNALERROR" not in output
    assert "Traceback" not in output
    assert "Warning" not in output
    assert code == (1 if flag and "--collect-only" not in options else 0), output


def test_collecting_only_judges_nothing(tmp_path: Path) -> None:
    """A23: --collect-only with the flag writes no report and gives no verdict."""
    write(tmp_path, {"test_it.py": MARKED})
    only_us(tmp_path, "-p", "no:cacheprovider", "--fanout-budget", "--collect-only")

    assert [path.name for path in tmp_path.iterdir() if path.name != "test_it.py"] == []


def test_the_flag_is_unknown_without_the_plugin(tmp_path: Path) -> None:
    """Switching the plugin off cannot give a green build: the flag itself is then a usage error (4)."""
    env = clean_environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    done = run_pytest(write(tmp_path, {"test_it.py": MARKED}), "--fanout-budget", env=env)

    assert done.returncode == 4
