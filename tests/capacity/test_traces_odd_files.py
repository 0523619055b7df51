"""``fanout-capacity traces`` on files with odd names, columns and ends: read as named and whole, or refused."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from pytest_fanout.cli.capacity import main

pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def one_class(*words: str) -> dict[str, Any]:
    """The only class of the sources."""
    result = CliRunner().invoke(main, ["traces", *words, "--format", "json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["classes"]
    return found


def refused(*words: str, code: int = 4) -> str:
    result = CliRunner().invoke(main, ["traces", *words], catch_exceptions=False)
    assert (result.exit_code, result.stdout) == (code, "")
    return result.stderr.splitlines()[0]


def parquet(name: str, **columns: Any) -> str:
    pyarrow.parquet.write_table(pyarrow.table(columns), name)
    return name


def test_a_name_is_no_pattern() -> None:
    """Brackets in a name mean themselves: a[1].csv is not a1.csv."""
    Path("a1.csv").write_text("task,agent\nt,wrong\n")
    Path("a[1].csv").write_text("task,agent\nt,right\n")

    assert one_class("a[1].csv")["agent"] == "right"


def test_a_folder_is_no_column() -> None:
    """What stands in a row holds, whatever the folders above the file are called."""
    Path("agent=wrong").mkdir()
    Path("agent=wrong/calls.csv").write_text("task,agent\nt,right\n")

    assert one_class("agent=wrong/calls.csv")["agent"] == "right"


def test_a_column_called_filename() -> None:
    """Somebody's own column of that name is one like others."""
    Path("calls.jsonl").write_text('{"task": "t", "agent": "a", "filename": "x"}\n')

    assert one_class("calls.jsonl", "--class-by", "filename")["agent"] == "x"


def test_files_that_cannot_be_read_to_their_end() -> None:
    """A gzip file that was cut off would be read as far as it goes, and tasks of its end would be gone."""
    whole = gzip.compress(b"task,agent\n" + b"t,a\n" * 1_000)
    Path("cut.csv.gz").write_bytes(whole[:-8])
    Path("none.csv.gz").write_bytes(b"task\nt\n")

    assert refused("cut.csv.gz").startswith("error: cut.csv.gz: is no whole gzip file: Compressed file ended")
    assert refused("none.csv.gz").startswith("error: none.csv.gz: is no whole gzip file: Not a gzipped file")


@pytest.mark.parametrize(
    ("name", "data", "said", "code"),
    [
        ("calls.csv", b"task,Task\nt,u\n", "calls.csv:1: its first line names a column twice", 4),
        ("calls.csv", "task,agent\nt,a\n".encode("utf-16"), "calls.csv: is not UTF-8 text", 4),
        ("calls.csv", b"task," + b"x" * 200_000, "calls.csv: its first line is not CSV: field larger than field", 4),
        ("calls.jsonl", b"[" * 100_000, "calls.jsonl:1:1: is not JSON: nested too deeply", 4),
        ("calls.csv.zst", b"task\n", "calls.csv.zst: a CSV is read as it is or with .gz", 2),
        ("calls.jsonl", b'{"task":"t","started_at":"infinity"}', "calls.jsonl:1: started: t: start: infinity is no", 4),
    ],
)
def test_files_that_are_refused(name: str, data: bytes, said: str, code: int) -> None:
    """What is wrong, in a sentence."""
    Path(name).write_bytes(data)

    assert refused(name, code=code).startswith(f"error: {said}")


def test_fractions_of_a_decimal_column() -> None:
    """12.50 tokens are no 13."""
    name = parquet("calls.parquet", task=["t"], input_tokens=pyarrow.array([Decimal("12.50")]), output_tokens=[1])

    assert refused(name) == "error: calls.parquet: input: t: input tokens: '12.50' is no whole number"


def test_milliseconds_are_no_seconds() -> None:
    """A time in whole numbers is in seconds; one of milliseconds is the year 58384, and refused."""
    name = parquet("calls.parquet", task=["t"], started_at=[1_780_272_000_000], ended_at=[1_780_272_001_000])

    assert refused(name) == (
        "error: calls.parquet: started: t: start: 58384-07-29 00:00:00+00 is no time of a trace; "
        "a time in whole numbers is in seconds"
    )


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_offsets_count(suffix: str) -> None:
    """Half past one to half past three, while clocks go forward, is an hour; Sunday evening in New York is Monday."""
    rows = [
        {"task": "a", "started_at": "2026-03-29T01:30:00+01:00", "ended_at": "2026-03-29T03:30:00+02:00"},
        {"task": "b", "started_at": "2027-01-03T23:30:00-05:00", "ended_at": "2027-01-04T05:30:00Z"},
    ]
    lines = [json.dumps(row) for row in rows]
    if suffix == "csv":
        lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    Path(f"calls.{suffix}").write_text("\n".join(lines) + "\n")

    found = one_class(f"calls.{suffix}")

    (duration,) = (each for each in found["distributions"] if each["metric"] == "duration_ms")
    assert (duration["mean"], duration["max"]) == (3_600_000.0, 3_600_000)
    assert [week["monday"] for week in found["weeks"]] == ["2026-03-23", "2027-01-04"]


def test_a_url_that_is_none() -> None:
    """no-warehouse: what cannot be taken apart is not shown."""
    said = refused("spans", "--connect", "postgres://[dana:secret@x", code=2)

    assert said.startswith("error: postgres://…: it cannot be opened: ")
    assert "secret" not in said


def test_a_warehouse_that_gives_no_answer() -> None:
    """no-warehouse: what it says in place of rows, in a sentence."""
    made = duckdb.connect("spans.db")
    made.execute("CREATE TABLE texts AS SELECT 'many' AS t")
    made.execute("CREATE VIEW calls AS SELECT 'a' AS task, CAST(t AS INTEGER) AS input_tokens FROM texts")
    made.close()

    said = refused("calls", "--connect", "duckdb://spans.db", code=2)

    assert said.startswith("error: duckdb://…: it gave no answer: ConversionException: Conversion Error: Could not")


def test_names_that_steer_a_terminal() -> None:
    """JSON for machines holds the same name, and its text nothing that turns letters round or starts a command."""
    Path("calls.jsonl").write_text('{"task": "t", "agent": "a\\u202e\\u009b31m"}\n')

    result = CliRunner().invoke(main, ["traces", "calls.jsonl", "--format", "json"], catch_exceptions=False)

    assert json.loads(result.stdout)["classes"][0]["agent"] == "a\u202e\x9b31m"
    assert result.stdout.replace("\n", "").isprintable()
