"""``fanout-capacity traces`` beside the anchors of HEAD: how unlike the eval set is, and what tasks should weigh."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import ibis
import pytest
from click.testing import CliRunner
from gate_world import World, make_run

from pytest_fanout.capacity.traffic.check import marked
from pytest_fanout.capacity.traffic.steps import OTEL, Reading, steps_of
from pytest_fanout.capacity.traffic.tasks import (
    cells_of,
    counted,
    days_of,
    names_of,
    once,
    once_each,
    spreads_of,
    tasks_of,
    totals_of,
)
from pytest_fanout.cli.capacity import main

pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
#: An export of spans as warehouses hold it: flat columns beside a map or JSON of attributes.
COLUMNS = {
    "trace_id": "string", "span_id": "string", "parent_span_id": "string", "start_time": "timestamp",
    "end_time": "timestamp", "status_code": "string",
}  # fmt: skip
USAGE = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": "100", "gen_ai.usage.output_tokens": "10"}
ROWS = [
    ("t1", "r", None, 0, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"}),
    ("t1", "a", "r", 1, USAGE),
    ("t1", "b", "a", 1, USAGE),
    ("t1", "c", "r", 2, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}),
]  # fmt: skip


def production(count: int) -> list[dict[str, Any]]:
    """Tasks of 1, 2, … calls, each call with 80 tokens in and 20 out, as in the anchor."""
    return [
        {"task": f"p{n}", "agent": "support", "fanout": n, "input_tokens": 80 * n, "output_tokens": 20 * n}
        for n in range(1, count + 1)
    ]


def traced(*words: str) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["traces", *words, "--format", "json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_gates_p95_beside_productions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eval tasks of 1 to 20 calls, production of 1 to 40: p95 19 and 38, half beyond, and 21/40 weigh on the last."""
    world = World.make(tmp_path / "project")
    world.anchor(make_run())
    world.commit("start")
    monkeypatch.chdir(world.folder)
    Path("tasks.jsonl").write_text("\n".join(map(json.dumps, production(40))))

    (support,) = traced("tasks.jsonl")["classes"]

    fanout = next(each for each in support["unlike"] if each["metric"] == "fanout")
    assert {name: fanout[name] for name in ("eval_p95", "production_p95", "ratio_p95", "distance", "beyond")} == {
        "eval_p95": 19, "production_p95": 38, "ratio_p95": 2.0, "distance": pytest.approx(0.5), "beyond": 0.5,
    }  # fmt: skip
    assert support["weights_by"] == "tokens"
    assert support["weights"] == pytest.approx({**{f"t{n:02}": 1 / 40 for n in range(1, 20)}, "t20": 21 / 40})
    duration = next(each for each in support["unlike"] if each["metric"] == "duration_ms")
    assert (duration["production_p95"], duration["ratio_p95"], duration["distance"]) == (None, None, None)


def test_an_eval_set_like_production(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tasks on both sides: no distance, nothing beyond, even weights; the page says so first."""
    world = World.make(tmp_path / "project")
    world.anchor(make_run())
    world.commit("start")
    monkeypatch.chdir(world.folder)
    Path("tasks.jsonl").write_text("\n".join(map(json.dumps, production(20))))

    page = CliRunner().invoke(main, ["traces", "tasks.jsonl"], catch_exceptions=False).stdout

    assert page.startswith(
        "WHAT THAT SAYS\n\n- support fanout: the gate's p95 is 19, production's 19 (x1.00); 0 % of its tasks exceed "
        "every trial of the eval set\n"
    )
    assert re.search(r"^support fanout +10 +10 +19 +19 +x1\.00 +0\.00 +0 %$", page, re.MULTILINE)
    assert re.search(r"^t01 +5\.00 % +1$", page, re.MULTILINE)
    assert "UNLIKE" not in page


@pytest.mark.parametrize(
    "form", ["struct", pytest.param("map", marks=pytest.mark.slow), pytest.param("json", marks=pytest.mark.slow)]
)
def test_tables_of_a_warehouse(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a database are counted there, attributes in a map, JSON or a struct; its tables stay as they are."""
    monkeypatch.chdir(tmp_path)
    connection = ibis.duckdb.connect(tmp_path / "house.db")
    names = sorted({name for *_, attributes in ROWS for name in attributes})
    kind = {"json": "JSON", "struct": "STRUCT(" + ", ".join(f'"{n}" VARCHAR' for n in names) + ")"}.get(
        form, "MAP(VARCHAR, VARCHAR)"
    )
    connection.raw_sql(
        "CREATE TABLE spans (trace_id VARCHAR, span_id VARCHAR, parent_span_id VARCHAR, start_time TIMESTAMP, "
        f"end_time TIMESTAMP, attributes {kind})"
    )
    for trace, span, parent, second, attributes in ROWS:
        given = {n: attributes.get(n) for n in names} if form == "struct" else attributes
        value = json.dumps(given) if form == "json" else f"{given}".replace("None", "NULL")
        value = f"'{value}'" if form == "json" else f"MAP {value}" if form == "map" else value
        above = f"'{parent}'" if parent else "NULL"
        times = ", ".join(f"'2026-06-01 00:00:0{at}'" for at in (second, second + 1))
        connection.raw_sql(f"INSERT INTO spans VALUES ('{trace}', '{span}', {above}, {times}, {value})")
    connection.disconnect()

    document = traced("spans", "--connect", f"duckdb://{tmp_path / 'house.db'}")

    (support,) = document["classes"]
    found = {each["metric"]: each["max"] for each in support["distributions"]}
    assert (support["agent"], found["fanout"], found["tool_calls"], found["tokens"]) == ("support", 1, 1, 110)
    assert found["duration_ms"] == 3_000
    after = ibis.duckdb.connect(tmp_path / "house.db", read_only=True)
    assert after.list_tables() == ["spans"]
    after.disconnect()


def questions(rows: Any) -> dict[str, Any]:
    """Everything that is asked of the rows of a warehouse."""
    steps = steps_of(rows, OTEL, Reading(), "spans")
    each = once(steps)
    tasks = tasks_of(each, counted(each, nested=True), len(OTEL.classes))
    return {
        "spreads": spreads_of(tasks), "days": days_of(tasks), "totals": totals_of(steps, tasks),
        "cells": cells_of(tasks, "support", "tokens", [99, 100, 250]), "bad": marked(steps),
        "names": names_of(tasks), "classes": tasks.select("agent").distinct(), "once": once_each(tasks),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["bigquery", "snowflake"])
def test_each_question_compiles_for_the_warehouse(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every expression becomes SQL of that warehouse, which reads as such; nothing was connected to."""
    import sqlglot

    monkeypatch.setattr(ibis.options.sql, "fuse_selects", False)
    kind = "json" if dialect == "bigquery" else "map<string, string>"
    rows = ibis.table({**COLUMNS, "attributes": kind}, name="spans")
    for question, expression in questions(rows).items():
        text = ibis.to_sql(expression, dialect=dialect)
        assert sqlglot.parse_one(text, read=dialect).find(sqlglot.exp.Select), question
