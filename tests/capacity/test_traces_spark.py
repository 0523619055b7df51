"""The same expressions on Spark, in local mode: slow, and skipped where pyspark is not installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pytest_fanout.capacity.traffic.check import bad_row
from pytest_fanout.capacity.traffic.measures import classes_of, rows_of
from pytest_fanout.capacity.traffic.steps import CALLS, OTEL, TASKS, Reading, Source, steps_of
from pytest_fanout.capacity.traffic.tasks import (
    counted,
    names_of,
    once,
    once_each,
    tasks_as_given,
    tasks_of,
    totals_of,
)
from pytest_fanout.records import ClassTraffic

# pyspark leaves its sockets to the garbage collector
_LEFT = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", *_LEFT),
]
Row = tuple[str, str, str | None, datetime, datetime, str, dict[str, str]]
ANCHOR = {
    "small": [{"fanout": 1, "input_tokens": 100, "output_tokens": 10}],
    "large": [{"fanout": 5, "input_tokens": 500, "output_tokens": 50}],
}


def spans() -> list[Row]:
    """Three weeks of two users; the n-th task of a day has n calls, each in a wrapper, and a tool; usage is missing."""
    rows: list[Row] = []
    for day in range(21):
        for user in ("ann", "bob"):
            for n in range(1, 4 + day // 7):
                trace, at = f"{day}-{user}-{n}", datetime(2026, 6, 1, 12) + timedelta(days=day)

                def add(
                    span: str,
                    parent: str | None,
                    second: int,
                    trace: str = trace,
                    at: datetime = at,
                    user: str = user,
                    **told: str,
                ) -> None:
                    names = {name.replace("__", "."): value for name, value in told.items()}
                    start = at + timedelta(seconds=second)
                    rows.append(
                        (trace, span, parent, start, start + timedelta(seconds=1), "OK", {"user.id": user, **names})
                    )

                add("root", None, 0, gen_ai__operation__name="invoke_agent", gen_ai__agent__name="support")
                for call in range(n):
                    usage = {"gen_ai__usage__input_tokens": "100", "gen_ai__usage__output_tokens": "10"}
                    add(f"w{call}", "root", call, gen_ai__operation__name="chat", **usage)
                    add(
                        f"c{call}",
                        f"w{call}",
                        call,
                        gen_ai__operation__name="chat",
                        **({} if day == call == 0 else usage),
                    )
                add("t", "root", n, gen_ai__operation__name="execute_tool", gen_ai__tool__name="search")
                add("t", "root", n, gen_ai__operation__name="execute_tool", gen_ai__tool__name="search")
    return rows


def measured(table: Any) -> tuple[list[ClassTraffic], dict[str, Any]]:
    with steps_of(table, OTEL, Reading(), "spans").cache() as steps:
        assert bad_row(steps) is None
        each = once(steps)
        tasks = tasks_of(each, counted(each, nested=True), len(OTEL.classes)).cache()
        return classes_of(tasks, {"support": ANCHOR}), rows_of(totals_of(steps, tasks))[0]


@pytest.fixture(scope="module")
def unfused() -> Iterator[None]:
    import ibis

    before, ibis.options.sql.fuse_selects = ibis.options.sql.fuse_selects, False
    yield
    ibis.options.sql.fuse_selects = before


def files(folder: Path) -> tuple[Path, Path]:
    """A row a call as Parquet, and a row a task as JSONL, of which two stand twice and one name has other figures."""
    import pyarrow
    import pyarrow.parquet

    noon = datetime(2026, 6, 1, 12)
    calls = [
        {
            "task": f"t{n // 4}", "agent": "support", "user": f"u{n % 7}", "kind": "tool" if n % 4 == 3 else "model",
            "input_tokens": 100 + n % 13, "output_tokens": 10 + n % 5, "started_at": noon + timedelta(minutes=20 * n),
            "ended_at": noon + timedelta(minutes=20 * n, seconds=3),
        }
        for n in range(400)
    ]  # fmt: skip
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(calls), folder / "calls.parquet", coerce_timestamps="us")
    tasks = [
        {
            "task": f"t{n}", "agent": "support", "user": f"u{n % 7}", "fanout": 1 + n % 9, "tool_calls": n % 3,
            "input_tokens": 100 * (1 + n % 9), "output_tokens": 10 * (1 + n % 9), "duration_ms": 1_000 + n,
            "started_at": f"{(noon + timedelta(hours=n)).isoformat()}Z",
        }
        for n in range(200)
    ]  # fmt: skip
    tasks += [tasks[3], tasks[4], {**tasks[5], "fanout": 77}]
    (folder / "tasks.jsonl").write_text("\n".join(json.dumps(task) for task in tasks), encoding="utf-8")
    return folder / "calls.parquet", folder / "tasks.jsonl"


def measured_plain(table: Any, source: Source) -> tuple[list[ClassTraffic], dict[str, Any], dict[str, Any]]:
    """Of a plain source, and how many tasks and names there are when copies count once."""
    with steps_of(table, source, Reading(), "plain").cache() as steps:
        assert bad_row(steps) is None
        if source is TASKS:
            tasks = once_each(tasks_as_given(steps, len(source.classes)))
        else:
            tasks = tasks_of(steps, counted(steps, nested=False), len(source.classes))
        with tasks.cache() as kept:
            names = rows_of(names_of(kept))[0]
            return classes_of(kept, {"support": ANCHOR}), rows_of(totals_of(steps, kept))[0], names


def test_spark_measures_what_duckdb_does(unfused: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same spans, Parquet and JSONL give the same records: percentiles, weeks, events, distances and weights."""
    pyspark_sql = pytest.importorskip(
        "pyspark.sql", reason="pyspark is not installed: pip install 'ibis-framework[pyspark]'"
    )
    import ibis

    rows = spans()
    house = ibis.duckdb.connect()
    house.raw_sql(
        "CREATE TABLE spans (trace_id VARCHAR, span_id VARCHAR, parent_span_id VARCHAR, start_time TIMESTAMP, "
        "end_time TIMESTAMP, status_code VARCHAR, attributes MAP(VARCHAR, VARCHAR))"
    )
    house.con.executemany("INSERT INTO spans VALUES (?, ?, ?, ?, ?, ?, ?)", [(*row[:6], row[6]) for row in rows])
    expected, expected_totals = measured(house.table("spans"))
    calls, tasks = files(tmp_path)
    of_calls = measured_plain(house.read_parquet(str(calls)), CALLS)
    of_tasks = measured_plain(house.read_json(str(tasks)), TASKS)
    assert of_tasks[2] == {"tasks": 201, "named": 201, "names": 200}

    monkeypatch.chdir(tmp_path)
    session = (
        pyspark_sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1").config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path / "warehouse")).getOrCreate()
    )  # fmt: skip
    try:
        schema = (
            "trace_id string, span_id string, parent_span_id string, start_time timestamp_ntz, end_time timestamp_ntz, "
            "status_code string, attributes map<string,string>"
        )
        session.createDataFrame(rows, schema).createOrReplaceTempView("spans")
        session.read.parquet(str(calls)).createOrReplaceTempView("calls")
        session.read.json(str(tasks)).createOrReplaceTempView("tasks")
        spark = ibis.pyspark.connect(session)
        assert measured_plain(spark.table("calls"), CALLS) == of_calls
        assert measured_plain(spark.table("tasks"), TASKS) == of_tasks
        found, totals = measured(spark.table("spans"))
    finally:
        session.stop()

    assert found == expected
    assert totals == expected_totals
    (support,) = expected
    assert support.of("fanout").max == 5
    assert [event.monday.isoformat() for event in support.events] == ["2026-06-08", "2026-06-15"]
    assert support.of("tokens").missing == 6
