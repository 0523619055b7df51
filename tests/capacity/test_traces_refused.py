"""``fanout-capacity traces`` on what it cannot read: which file, which line, and what to do."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pytest_fanout.cli.capacity import main

pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(*words: str, code: int = 4) -> str:
    """What it says on stderr."""
    result = CliRunner().invoke(main, ["traces", *words], catch_exceptions=False)
    assert (result.exit_code, result.stdout) == (code, "")
    return result.stderr


def test_broken_json_is_told_with_line_and_column(tmp_path: Path) -> None:
    """bad-trace-file: the line and column that do not parse."""
    Path("spans.jsonl").write_text('{"task": "a", "fanout": 1}\n{"task": "b", "fanout": }\n')

    assert refused("spans.jsonl") == (
        "error: spans.jsonl:2:25: is not JSON: Expecting value\n"
        "  mend: mend or remove the line, or export the file again\n"
        "  see: docs/messages.md#bad-trace-file\n"
    )


def test_a_line_of_csv_with_other_columns_is_told(tmp_path: Path) -> None:
    """A line with more columns than the header is neither skipped nor guessed at."""
    Path("calls.csv").write_text("task,input_tokens\na,1\nb,2,3\n")

    assert "error: calls.csv:3: has 3 columns where the header has 2\n" in refused("calls.csv")


def test_a_file_that_is_no_parquet(tmp_path: Path) -> None:
    """A file that is not what its suffix says."""
    Path("calls.parquet").write_text("no")

    assert refused("calls.parquet").startswith("error: calls.parquet: ")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"input_tokens": "many"}, "c: input: b: input tokens: 'many' is no whole number"),
        ({"input_tokens": 1.5}, "c: input: b: input tokens: '1.5' is no whole number"),
        ({"input_tokens": -1}, "c: input: b: input tokens: -1 is below 0"),
    ],
)
def test_a_number_that_is_none_is_told(row: dict[str, Any], said: str) -> None:
    """A figure that cannot be is refused with line and field: it is neither 0 nor missing."""
    rows = [{"task": "a", "input_tokens": 1, "output_tokens": 1}, {"task": "b", "output_tokens": 1, **row}]
    Path("c").mkdir()
    Path("c/calls.jsonl").write_text("\n".join(map(json.dumps, rows)))

    assert said.replace("c: ", "error: c/calls.jsonl:2: ", 1) + "\n" in refused("c/calls.jsonl", "--class", "x")


def test_a_span_that_ends_before_it_starts() -> None:
    """Times that run backwards are a clock that cannot be trusted."""
    row = {"task": "a", "started_at": "2026-06-01T00:00:02Z", "ended_at": "2026-06-01T00:00:01Z"}
    Path("calls.jsonl").write_text(json.dumps(row))

    assert "a: it ends (2026-06-01 00:00:01) before it starts (2026-06-01 00:00:02)\n" in refused("calls.jsonl")


def test_a_time_that_is_none_is_told() -> None:
    """A time that cannot be read would quietly leave its week."""
    Path("calls.jsonl").write_text(json.dumps({"task": "a", "started_at": "yesterday"}))

    assert "error: calls.jsonl:1: started: a: start: 'yesterday' is no time\n" in refused("calls.jsonl")


def test_columns_that_say_nothing() -> None:
    """trace-format: no kind of traces has such columns."""
    Path("rows.csv").write_text("x,y\n1,2\n")

    assert refused("rows.csv", code=2) == (
        "error: rows.csv: its columns are those of no known kind of traces: x, y\n"
        "  mend: say with --as what it is, and with --column task=NAME which columns hold what\n"
        "  see: docs/messages.md#trace-format\n"
    )


def test_a_column_that_is_needed() -> None:
    """trace-columns: the field, and the names that were looked for."""
    Path("rows.csv").write_text("x,y\n1,2\n")

    assert refused("rows.csv", "--as", "calls", code=2) == (
        "error: rows.csv: holds no task: looked for task, task_id, trace_id, conversation_id\n"
        "  mend: name the column: --column task=NAME, or say with --as what kind of traces it is\n"
        "  see: docs/messages.md#trace-columns\n"
    )


def test_a_column_of_ones_own_that_is_not_there() -> None:
    """A misspelt column of --column, --class-by is refused, not taken for unknown."""
    Path("rows.csv").write_text("task,y\n1,2\n")

    assert "error: rows.csv: holds no input: looked for z\n" in refused("rows.csv", "--column", "input=z", code=2)
    assert "error: rows.csv: holds no class: looked for bot\n" in refused("rows.csv", "--class-by", "bot", code=2)


def test_files_that_are_none() -> None:
    """no-trace-file: a file that is not there."""
    assert refused("none.jsonl", code=2) == (
        "error: none.jsonl: there is no such file\n"
        "  mend: name files of traces\n"
        "  see: docs/messages.md#no-trace-file\n"
    )


def test_files_of_several_formats() -> None:
    """A suffix that says nothing, and formats that cannot be read together."""
    for name in ("a.csv", "b.jsonl", "c.txt"):
        Path(name).write_text("x\n")

    assert "the files are of several formats: csv, json\n" in refused("a.csv", "b.jsonl", code=2)
    assert "error: c.txt: its suffix says no format; known: .json, " in refused("c.txt", code=2)


def test_an_option_that_is_no_pair() -> None:
    """trace-option: what was given, and the fields there are."""
    assert refused("a.csv", "--rename", "support", code=2) == (
        "error: --rename support: is no pair that can be used\n"
        "  mend: --rename NAME=NAME\n"
        "  see: docs/messages.md#trace-option\n"
    )
    assert "; fields: answered, cached, " in refused("a.csv", "--column", "inputs=x", code=2)


def test_a_warehouse_that_cannot_be_opened() -> None:
    """no-warehouse: the reason, without the password that the URL may hold."""
    said = refused("spans", "--connect", "nosuch://dana:secret@example.com/db", code=2)

    assert said.startswith("error: nosuch://…: it cannot be opened: ")
    assert "secret" not in said
    assert said.endswith("  mend: mend the URL or the name of the table\n  see: docs/messages.md#no-warehouse\n")


def test_sources_without_a_task() -> None:
    """no-traffic: a file of spans of which none is a call of a model."""
    Path("calls.jsonl").write_text(json.dumps({"task": "a", "kind": "tool"}))

    assert refused("calls.jsonl", code=2) == (
        "error: calls.jsonl: no task with a model call was found in 1 rows\n"
        "  mend: say with --as what the sources are, and with --column task=NAME what names a task\n"
        "  see: docs/messages.md#no-traffic\n"
    )


def test_a_class_that_is_not_in_the_traces() -> None:
    """no-traffic: the classes that there are, and the nearest; also where another class that was asked for is there."""
    rows = [{"task": name, "agent": agent, "fanout": 1} for name, agent in (("a", "support"), ("b", "research"))]
    Path("tasks.jsonl").write_text("\n".join(json.dumps(row) for row in rows))

    assert refused("tasks.jsonl", "--agent", "suport", code=2) == (
        "error: tasks.jsonl: no task of suport with a model call was found in 2 rows; there are tasks of: research, "
        "support\n"
        "  mend: --agent support\n"
        "  see: docs/messages.md#no-traffic\n"
    )
    assert "no task of nope with" in refused("tasks.jsonl", "--agent", "support", "--agent", "nope", code=2)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """no-traces-extra: the command that installs what is missing."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    assert refused("a.jsonl", code=2) == (
        "error: reading traces stands on ibis and DuckDB, which are not installed\n"
        "  mend: pip install 'pytest-fanout[traces]'\n"
        "  see: docs/messages.md#no-traces-extra\n"
    )
