"""What a person sees: whole screens, compared with files that were read and found good; help, colours, completion."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from gate_world import TWENTY, World, make_run, started

from pytest_fanout.cli import console
from pytest_fanout.cli.baseline import main
from pytest_fanout.cli.console import Terminal
from pytest_fanout.records import Base, Head, Run
from pytest_fanout.report.json import document
from pytest_fanout.report.printable import width
from pytest_fanout.store.reports import write_report

GOLDEN = Path(__file__).parent / "golden"
GROWN = {**TWENTY, "t19": [25], "t20": [25]}
REASON = "The planner now verifies its citations."
NAME = "the-" + "very-" * 20 + "long-task"
SCREENS = {
    "verify.txt": ("verify",),
    "diff.txt": ("diff",),
    "accept.txt": ("accept", "--reason", REASON, "--yes"),
    "accept.md": ("accept", "--reason", REASON, "--format", "md"),
    "accept.json": ("accept", "--reason", REASON, "--format", "json"),
    "help.txt": ("--help",),
    "accept-help.txt": ("accept", "--help"),
}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A project whose run is over budget, and its report."""
    for name in ("CI", "GITHUB_EVENT_PATH", "GITHUB_ACTIONS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    world = started(tmp_path / "project")
    world.write(".gitignore", "fanout-report.json\n")
    world.commit()
    monkeypatch.chdir(world.folder)
    report(world, make_run(GROWN))
    return world


def report(world: World, run: Run, name: str = "fanout-report.json") -> None:
    base, head = world.repo.resolve("main"), world.repo.resolve("HEAD")
    run = replace(world.measured(run), base=Base(base, "merge-base main"), head=Head(head))
    write_report(world.folder / name, document(run, world.judge(run)))


def call(*words: str) -> str:
    return (
        CliRunner()
        .invoke(main, list(words), catch_exceptions=False, terminal_width=80, prog_name="fanout-baseline")
        .output
    )


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 80, colour: bool = False) -> None:
    monkeypatch.setattr(console, "terminal", lambda: Terminal(columns, colour))


def steady(text: str) -> str:
    """Without what differs from run to run: commits, days."""
    text = re.sub(r"\b[0-9a-f]{40}\b", "<commit>", text)
    text = re.sub(r"(?<=base )[0-9a-f]{12}|(?<=`)[0-9a-f]{12}(?=`)", "<commit>", text)
    return re.sub(r"\b20[0-9]{2}-[0-9]{2}-[0-9]{2}\b", "<day>", text)


@pytest.mark.parametrize("name", sorted(SCREENS))
def test_each_screen_is_as_it_was_read_and_found_good(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a terminal of 80 columns; the Markdown and the JSON are the same everywhere."""
    at_a_terminal(monkeypatch)

    assert steady(call(*SCREENS[name])) == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(name for name in SCREENS if name.endswith(".txt")))
def test_no_line_is_wider_than_80_columns(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of a hundred characters are cut in tables and wrapped in texts; commands alone may be longer."""
    at_a_terminal(monkeypatch)
    report(world, make_run({NAME if task == "t20" else task: values for task, values in GROWN.items()}))

    wide = [line for line in call(*SCREENS[name]).splitlines() if width(line) > 80]

    assert [line for line in wide if NAME not in line and not line.startswith("  git add")] == []


def test_a_pipe_gets_whole_lines_and_no_colour(world: World) -> None:
    """What a script greps for is never broken in two."""
    text = call("verify")

    assert "\x1b" not in text
    assert "    regressed: support: tokens.p95 1,900 -> 2,500 (limit 2,399)" in text.splitlines()


@pytest.mark.parametrize(
    ("is_tty", "environ", "colour"),
    [
        (True, {"TERM": "xterm"}, True),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (True, {"TERM": "xterm", "NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
        (False, {"TERM": "xterm"}, False),
    ],
)
def test_colour_is_for_terminals_that_want_it(
    is_tty: bool, environ: dict[str, str], colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As https://no-color.org says: any value that is not empty."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_tty, raising=False)

    assert console.terminal().colour is colour
    assert (console.terminal().columns is None) is not is_tty


def test_colour_changes_no_text(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outcome and the exceeded rows are red; without the escapes it is the same screen."""
    at_a_terminal(monkeypatch)
    plain = call("diff")
    at_a_terminal(monkeypatch, colour=True)
    painted = CliRunner().invoke(main, ["diff"], color=True).output

    assert click.unstyle(painted) == plain
    assert click.style("over budget: regressed", fg="red", bold=True) in painted
    assert [line.endswith("OVER\x1b[0m") for line in painted.splitlines()].count(True) == 2


def test_a_narrow_table_cuts_names_in_the_middle_and_numbers_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin and end of a name tell most."""
    at_a_terminal(monkeypatch, columns=40)

    text = console.table([["research-and-development", "fanout.p95", "1,234,567"]], ("class", "metric", "run"))

    assert "1,234,567" in text
    assert max(map(len, text.splitlines())) <= 40
    assert re.search(r"resea\S*…\S*lopment", text)


def commands() -> dict[str, click.Command]:
    return {"": main, **main.commands}


@pytest.mark.parametrize("name", sorted(commands()))
def test_each_command_has_an_example(name: str) -> None:
    """Its lines begin with a command that exists, with options that exist."""
    text = CliRunner().invoke(main, [*filter(None, [name]), "--help"]).output
    examples = re.findall(r"^\s+(?:.*&& )?fanout-baseline ([a-z-]+)(.*)$", text, re.MULTILINE)

    assert examples
    for command, rest in examples:
        known = {option for parameter in main.commands[command].params for option in parameter.opts}
        assert set(re.findall(r"(?<=\s)--[a-z-]+", rest.split("&&")[0])) <= known


def test_the_shell_completes_commands_options_and_classes(world: World) -> None:
    """`_FANOUT_BASELINE_COMPLETE=bash_source fanout-baseline`, as docs/gate.md says."""

    def completed(words: list[str], incomplete: str) -> list[str]:
        shell = ShellComplete(main, {}, "fanout-baseline", "_FANOUT_BASELINE_COMPLETE")
        return [item.value for item in shell.get_completions(words, incomplete)]

    assert completed([], "re") == ["resolve"]
    assert "--reason" in completed(["accept"], "--")
    assert completed(["accept", "--agent"], "su") == ["support"]
    os.chdir("/")
    assert completed(["accept", "--agent"], "su") == []


def test_the_script_for_the_shell_is_written(world: World) -> None:
    """In a process of its own click answers instead of the command."""
    done = CliRunner().invoke(main, [], prog_name="fanout-baseline", env={"_FANOUT_BASELINE_COMPLETE": "zsh_source"})

    assert done.output.startswith("#compdef fanout-baseline")


def test_the_json_preview_writes_nothing(world: World) -> None:
    """It holds what the plan would write; the folder stays as it is."""
    plan = json.loads(call("accept", "--reason", REASON, "--format", "json"))

    (planned,) = plan["classes"]
    assert planned["approval"]["ceilings"] == {"fanout.p95": 27, "tokens.p95": 3000}
    assert [metric["over"] for metric in planned["metrics"]] == [True, True]
    assert not (world.folder / "baselines/approvals").exists()
    assert call("accept", "--reason", REASON, "--format", "md").startswith("| class | metric |")
    assert not (world.folder / "baselines/approvals").exists()


def test_diff_as_markdown_and_json_is_the_report_judged_anew(world: World) -> None:
    """The summary that a step of CI shows, and the document of the report; both exit by the verdict."""
    done = CliRunner().invoke(main, ["diff", "--format", "md"])
    assert done.exit_code == 1
    assert "| `support` | `fanout.p95` | 19 | **25** | +31.6 % | 20 | ❌ over |" in done.output.splitlines()

    done = CliRunner().invoke(main, ["diff", "--format", "json"])
    assert (done.exit_code, json.loads(done.output)["verdict"]) == (1, "regressed")


def test_a_forged_report_gives_no_command_to_the_build_log(world: World) -> None:
    """GitHub Actions runs what stands as a command in a line of the log; the gate job prints what a report names."""
    command = "\n  ::stop-commands::forged\n##[add-mask]a\x1b[31m"
    run = replace(world.measured(make_run(GROWN)), head=Head(world.repo.resolve("HEAD")))
    run = replace(run, base=Base(world.repo.resolve("main"), "x"), inputs={**run.inputs, command: "sha256:" + "0" * 64})
    write_report(world.folder / "fanout-report.json", document(run, world.judge(run)))

    told = call("verify")

    assert "  ?::stop-commands::forged\n##?[add-mask]a?[31m" in told
    assert not any(line.lstrip().startswith("::") or "##[" in line for line in told.splitlines())


def test_a_report_of_ci_is_accepted_by_its_path(world: World) -> None:
    """Downloaded beside the project, made of the same inputs; refused where the tree is another one now."""
    report(world, replace(make_run(GROWN), ci=True), "downloaded.json")
    (world.folder / "fanout-report.json").unlink()

    done = call("accept", "--from-report", "downloaded.json", "--reason", REASON, "--yes")
    assert "wrote baselines/support.json" in done.splitlines()

    world.write("fixtures/support.jsonl", '{"id": "t1", "input": "other"}\n')
    done = call("accept", "--from-report", "downloaded.json", "--reason", REASON, "--yes")
    assert done.startswith("error: the report is of another tree: the eval set of support differs now\n")
