"""``fanout-capacity traces``: what production did, from each format, every call once and nothing unknown as 0."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from pytest_fanout.cli.capacity import main

# ibis 12 itself calls what DuckDB 1.4 and later mark as old
pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
SECOND = 1_000_000_000
START = 1_780_272_000 * SECOND  # 2026-06-01 00:00 UTC, a Monday


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In no repository: production can be looked at without any anchor."""
    monkeypatch.chdir(tmp_path)


def call(*words: str) -> Result:
    return CliRunner().invoke(main, ["traces", *words], catch_exceptions=False)


def measured(*words: str) -> dict[str, Any]:
    result = call(*words, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def span(trace: str, name: str, parent: str = "", at: float = 0.0, **attributes: Any) -> dict[str, Any]:
    """A span of OTLP JSON, one second long: integers are texts there, dots of attributes are written as __."""
    values = {
        key.replace("__", "."): {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}
        for key, value in attributes.items()
    }
    return {
        "traceId": trace, "spanId": name, "parentSpanId": parent, "name": name,
        "startTimeUnixNano": str(START + int(at * SECOND)), "endTimeUnixNano": str(START + int((at + 1) * SECOND)),
        "attributes": [{"key": key, "value": value} for key, value in values.items()],
    }  # fmt: skip


def chat(trace: str, name: str, parent: str = "", at: float = 0.0, **attributes: Any) -> dict[str, Any]:
    return span(trace, name, parent, at, gen_ai__operation__name="chat", **attributes)


def otlp(path: Path, *spans: Mapping[str, Any], service: str = "shop") -> str:
    """The collector's file: one export a line."""
    lines = [
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]},
                    "scopeSpans": [{"spans": [each]}],
                }
            ]
        }
        for each in spans
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def usage(given: int, written: int) -> dict[str, int]:
    return {"gen_ai__usage__input_tokens": given, "gen_ai__usage__output_tokens": written}


def of(document: Mapping[str, Any], agent: str, metric: str) -> dict[str, Any]:
    (found,) = [each for each in document["classes"] if each["agent"] == agent]
    return next(each for each in found["distributions"] if each["metric"] == metric)


def jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file for all of OTLP: each agent class holds one case."""
    tool = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": "search"}
    again = chat("t4", "a", "", 0, gen_ai__agent__name="twice", **usage(100, 10))
    old = {"gen_ai__usage__prompt_tokens": 100, "gen_ai__usage__completion_tokens": "10"}
    inference = {"openinference__span__kind": "LLM", "llm__token_count__prompt": 50, "llm__token_count__completion": 5}
    path = tmp_path_factory.mktemp("spans") / "spans.jsonl"
    otlp(
        path,
        span("t0", "root", gen_ai__operation__name="invoke_agent", gen_ai__agent__name="support", **usage(300, 30)),
        chat("t0", "a", "root", 1, **usage(100, 10)),
        span("t0", "b", "root", 2, **tool),
        chat("t0", "c", "root", 4, gen_ai__agent__name="helper", **usage(200, 20)),
        chat("u0", "a", "", 9, gen_ai__agent__name="support", **usage(30, 3)),
        chat("t1", "framework", "", 0, gen_ai__agent__name="wrapped", **usage(100, 10)),
        span("t1", "between", "framework", 0),
        chat("t1", "client", "between", 0, **usage(100, 10)),
        chat("t2", "outer", "", 0, gen_ai__agent__name="nested", **usage(100, 10)),
        span("t2", "tool", "outer", 0, **tool),
        chat("t2", "inner", "tool", 0, **usage(50, 5)),
        chat("t3", "a", "", 0, gen_ai__agent__name="mcp", **usage(1, 1)),
        span("t3", "client", "", 1, **tool),
        span("t3", "server", "client", 1, **tool),
        span("t3", "other", "", 2, **tool),
        again,
        again,
        chat("t5", "a", "", 0, gen_ai__agent__name="silent", **usage(100, 10)),
        chat("t5", "b", "", 1),
        chat("u5", "a", "", 0, gen_ai__agent__name="silent", **usage(100, 10)),
        chat("t6", "a", "", 0, gen_ai__agent__name="failing", **usage(100, 10)),
        {**chat("t6", "b", "", 1), "status": {"code": 2}},
        span("t7", "a", **old),
        span("t7", "b", **inference),
        span("t8", "job"),
    )
    return path


@pytest.fixture(scope="module")
def production(spans: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("nowhere"))
        return measured(str(spans))


def test_otlp_spans_by_hand(production: dict[str, Any]) -> None:
    """Two traces: calls of 110 and 220 tokens and a tool in 5 s, and one of 33. The agent's own span is no call."""
    expected = {"fanout": (1, 2), "tool_calls": (0, 1), "tokens": (33, 330), "duration_ms": (1_000, 5_000)}
    for metric, (low, high) in expected.items():
        found = of(production, "support", metric)
        assert (found["p50"], found["p95"], found["max"], found["tasks"]) == (low, high, high, 2)


def test_the_class_is_what_the_first_named_span_says(production: dict[str, Any]) -> None:
    """The agent's name, of the first span that has one, or the service's; a trace without a call is no task."""
    assert [each["agent"] for each in production["classes"]] == [
        "failing", "mcp", "nested", "shop", "silent", "support", "twice", "wrapped",
    ]  # fmt: skip
    assert of(production, "shop", "fanout")["tasks"] == 1


def test_a_span_around_a_call_is_no_call_of_its_own(production: dict[str, Any]) -> None:
    """A framework's span and the client's inside it report the same usage, even with a span between: one call."""
    assert of(production, "wrapped", "fanout")["max"] == 1
    assert of(production, "wrapped", "tokens")["max"] == 110


def test_what_runs_inside_a_tool_is_another_call(production: dict[str, Any]) -> None:
    """A call that runs a tool which asks a model itself: two calls, not one."""
    assert of(production, "nested", "tokens")["max"] == 165


def test_a_tools_client_and_server_are_one_tool_call(production: dict[str, Any]) -> None:
    """MCP: the span of the server lies directly inside the client's and names the same tool."""
    assert of(production, "mcp", "tool_calls")["max"] == 2


def test_a_span_that_was_exported_twice_counts_once(production: dict[str, Any]) -> None:
    """An exporter that tries again sends the same ids."""
    assert of(production, "twice", "fanout")["max"] == 1


def test_usage_that_nobody_told_is_missing(production: dict[str, Any]) -> None:
    """One of two tasks has a call without usage: its tokens are unknown, not 110, and the class has no percentile."""
    tokens = of(production, "silent", "tokens")
    assert (tokens["tasks"], tokens["missing"], tokens["p95"], tokens["mean"]) == (1, 1, None, None)
    assert of(production, "silent", "fanout")["max"] == 2


def test_an_error_without_usage_is_no_call(production: dict[str, Any]) -> None:
    """A call that failed before any model answered is told, not counted, and makes no tokens unknown."""
    assert of(production, "failing", "fanout")["max"] == 1
    assert of(production, "failing", "tokens")["max"] == 110


def test_older_names_of_usage(production: dict[str, Any]) -> None:
    """prompt_tokens and completion_tokens of older conventions, and those of OpenInference, are usage too."""
    assert of(production, "shop", "tokens")["max"] == 165
    assert of(production, "shop", "fanout")["max"] == 2


def test_what_was_left_out_is_told(production: dict[str, Any]) -> None:
    """14 calls in 25 rows; the wrapper and the second export repeat one, one failed, one does not know its usage."""
    told = {name: production[name] for name in ("rows", "calls", "repeated", "failed", "unknown", "no_task")}
    assert told == {"rows": 25, "calls": 14, "repeated": 2, "failed": 1, "unknown": 1, "no_task": 0}


def test_the_document_fits_its_schema(production: dict[str, Any]) -> None:
    """What is printed for machines fits the schema that is shipped."""
    schema = json.loads(resources.files("pytest_fanout").joinpath("schemas/traces.schema.json").read_bytes())

    assert list(jsonschema.Draft202012Validator(schema).iter_errors(production)) == []


def test_the_page_says_what_is_unknown_and_what_repeats(spans: Path) -> None:
    """Beside the tables stands why a percentile is missing and what was counted once."""
    page = call(str(spans), "--agent", "silent").stdout

    assert page.startswith("WHAT THAT SAYS\n\n- silent: no anchor of that name; 2 tasks in production\n")
    assert (
        "- silent tokens: unknown for 1 of 2 tasks; the others may be the cheap ones, so there is no percentile\n"
        in page
    )
    assert "- 2 calls only repeated one below, or came twice: counted once\n" in page
    assert "- 1 call did not tell its usage, so that the task does not either\n" in page


def test_cached_tokens_apart(tmp_path: Path) -> None:
    """Where input tokens do not contain the cached ones they are added on request, and refused without it."""
    cached = {"gen_ai__usage__cache_read__input_tokens": 900, "gen_ai__usage__cache_creation__input_tokens": 50}
    path = otlp(tmp_path / "spans.jsonl", chat("t1", "a", "", 0, **usage(100, 10), **cached))

    document = measured(path, "--cached-apart")
    refused = call(path)

    assert of(document, "shop", "input_tokens")["max"] == 1_050
    assert of(document, "shop", "cached_input_tokens")["max"] == 900
    assert refused.exit_code == 4
    assert refused.stderr == (
        f"error: {path}:1: cached_over_input: a of t1: cached input tokens (900) are more than input tokens (100)\n"
        "  mend: where input tokens do not contain the cached ones, say --cached-apart; else mend the row\n"
        "  see: docs/messages.md#bad-trace-row\n"
    )


def test_langfuse_observations(tmp_path: Path) -> None:
    """Usage is a map of buckets that exclude each other: 20 new, 80 cached and 10 out are 110 tokens."""
    common = {"trace_id": "t1", "trace_name": "support", "user_id": "u", "provided_model_name": "m"}
    path = jsonl(
        tmp_path / "observations.jsonl",
        [
            {
                **common, "id": "r", "type": "SPAN",
                "start_time": "2026-06-01 00:00:00.000", "end_time": "2026-06-01 00:00:09",
            },
            {
                **common, "id": "a", "parent_observation_id": "r", "type": "GENERATION",
                "start_time": "2026-06-01 00:00:01.000", "end_time": "2026-06-01 00:00:02",
                "usage_details": {"input": 20, "input_cached_tokens": 80, "output": 10, "total": 110},
            },
            {
                **common, "id": "b", "parent_observation_id": "r", "type": "GENERATION",
                "start_time": "2026-06-01 00:00:03.000", "end_time": "2026-06-01 00:00:04",
                "usage_details": {"input": 7, "output": 3},
            },
            {**common, "id": "c", "type": "TOOL", "start_time": "2026-06-01 00:00:05.000", "name": "search"},
        ],
    )  # fmt: skip

    document = measured(path)

    names = ("fanout", "tool_calls", "input_tokens", "output_tokens")
    assert {name: of(document, "support", name)["max"] for name in names} == {
        "fanout": 2, "tool_calls": 1, "input_tokens": 107, "output_tokens": 13,
    }  # fmt: skip
    assert of(document, "support", "duration_ms")["max"] == 9_000


def test_litellm_spend_logs(tmp_path: Path) -> None:
    """A session is a task; answers of the proxy's cache, embeddings and failures are no calls; 0 tokens are unknown."""
    common = {"call_type": "acompletion", "session_id": "s1", "end_user": "u", "model": "m", "cache_hit": "False"}
    usage_object = {"usage_object": {"prompt_tokens_details": {"cached_tokens": 60}}}

    def row(name: str, given: int, written: int, second: int, **more: Any) -> dict[str, Any]:
        return {
            **common, "request_id": name, "prompt_tokens": given, "completion_tokens": written, "metadata": {},
            "startTime": f"2026-06-01T00:00:{second:02}Z", "endTime": f"2026-06-01T00:00:{second + 1:02}Z", **more,
        }  # fmt: skip

    path = jsonl(
        tmp_path / "spend.jsonl",
        [
            row("a", 100, 10, 0, metadata=usage_object),
            row("b", 100, 10, 1, cache_hit="True"),
            row("c", 100, 0, 2, call_type="aembedding"),
            row("d", 0, 0, 3, metadata={"status": "failure"}),
            row("e", 0, 0, 4, session_id="s2"),
        ],
    )

    document = measured(path, "--class", "support")

    assert of(document, "support", "fanout")["max"] == 1
    assert (of(document, "support", "fanout")["tasks"], of(document, "support", "tokens")["missing"]) == (2, 1)
    assert of(document, "support", "tokens")["max"] == 110
    assert of(document, "support", "cached_input_tokens")["max"] == 60
    assert (document["failed"], document["unknown"]) == (1, 1)


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv.gz"])
def test_plain_rows_of_tasks(tmp_path: Path, form: str) -> None:
    """Tasks 1 to 100 with that many calls: p50 is 50, p95 95, p99 99, as the gate counts; by each format alike."""
    rows: list[dict[str, Any]] = [
        {"task": f"t{n}", "agent": "support", "fanout": n, "input_tokens": 10 * n, "output_tokens": n, "duration_ms": n}
        for n in range(1, 101)
    ]
    path = tmp_path / f"tasks.{form}"
    text = "task,agent,fanout,input_tokens,output_tokens,duration_ms\n"
    text += "".join(",".join(str(value) for value in row.values()) + "\n" for row in rows)
    if form == "jsonl":
        jsonl(path, rows)
    elif form == "csv.gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)

    document = measured(str(path))

    found = of(document, "support", "fanout")
    assert (found["p50"], found["p95"], found["p99"], found["max"], found["mean"]) == (50, 95, 99, 100, 50.5)
    assert of(document, "support", "tokens")["p95"] == 11 * 95
    assert of(document, "support", "tool_calls")["missing"] == 100


def test_rows_of_tasks_that_stand_twice(tmp_path: Path) -> None:
    """A copy of a row with its start counts once, and is told; the same name with other figures is another task."""
    one = {"task": "a", "agent": "support", "fanout": 3, "started_at": "2026-06-01T00:00:00Z"}
    undated = {"task": "b", "agent": "support", "fanout": 5}
    path = jsonl(tmp_path / "t.jsonl", [one, one, one | {"fanout": 4}, undated, undated, {**undated, "task": None}])

    document = measured(path)

    assert (document["copies"], document["namesakes"], document["rows"]) == (1, 2, 6)
    assert (of(document, "support", "fanout")["tasks"], of(document, "support", "fanout")["mean"]) == (5, 22 / 5)
    said = CliRunner().invoke(main, ["traces", path], catch_exceptions=False).output
    assert "- 1 row said of a task what another row says, start and all: counted once\n" in said
    assert "- 2 rows had the name of another row's task and other figures, or no start: a task of its own for " in said


def test_plain_rows_of_calls(tmp_path: Path) -> None:
    """One row a call, in columns of one's own names; a class has another name here."""
    path = tmp_path / "calls.csv"
    path.write_text(
        "conversation,bot,kind,in,out\n"
        "c1,helpdesk,model,100,10\nc1,helpdesk,tool,,\nc1,helpdesk,model,200,20\nc2,helpdesk,model,5,1\n"
    )
    words = ["--as", "calls", "--class-by", "bot", "--rename", "helpdesk=support"]
    for pair in ("task=conversation", "input=in", "output=out"):
        words += ["--column", pair]

    document = measured(str(path), *words)

    assert of(document, "support", "fanout")["max"] == 2
    assert of(document, "support", "tool_calls")["max"] == 1
    assert of(document, "support", "tokens")["max"] == 330


def weekly(path: Path, per_user: Sequence[int]) -> str:
    """Two users on each of seven days; in week n each has so many tasks a day, of 100 tokens each."""
    rows = []
    for week, count in enumerate(per_user):
        for day in range(7):
            date = f"2026-06-{1 + 7 * week + day:02}"
            rows += [
                {
                    "task": f"{date} {user} {n}", "agent": "support", "user": user, "started_at": f"{date}T12:00:00Z",
                    "fanout": 3, "input_tokens": 90, "output_tokens": 10,
                }
                for user in ("ann", "bob")
                for n in range(count)
            ]  # fmt: skip
    return jsonl(path, rows)


def test_a_planning_event(tmp_path: Path) -> None:
    """10, 11, 11 and 12 tasks per user and day: +10 % is an event, +9 % is none; users and tokens stand apart."""
    path = weekly(tmp_path / "tasks.jsonl", [10, 11, 11, 12])

    (support,) = measured(path)["classes"]

    assert [week["tasks_per_user_day"] for week in support["weeks"]] == [10, 11, 11, 12]
    assert [week["users_per_day"] for week in support["weeks"]] == [2, 2, 2, 2]
    assert [event["monday"] for event in support["events"]] == ["2026-06-08"]
    assert (
        "- support: planning event: tasks per user and day 10.00 -> 11.00 (+10 %) in the week from 2026-06-08 "
        "(apart from that: users a day +0 %, tokens a task +0 %)\n"
    ) in call(path).stdout


def test_part_of_a_week_is_compared_with_nothing(tmp_path: Path) -> None:
    """The last week ends on its third day: weekdays are no week, and no event comes of them."""
    path = Path(weekly(tmp_path / "tasks.jsonl", [10, 20]))
    kept = [line for line in path.read_text().splitlines() if json.loads(line)["started_at"] < "2026-06-11"]
    path.write_text("\n".join(kept))

    (support,) = measured(str(path))["classes"]

    assert [week["whole"] for week in support["weeks"]] == [True, False]
    assert support["events"] == []


def test_without_users_there_is_nothing_per_user(tmp_path: Path) -> None:
    """Tasks that name no user leave tasks per user unknown."""
    path = jsonl(
        tmp_path / "t.jsonl", [{"task": "t", "agent": "support", "fanout": 1, "started_at": "2026-06-01T00:00:00Z"}]
    )

    (week,) = measured(path)["classes"][0]["weeks"]

    assert (week["tasks"], week["users_per_day"], week["tasks_per_user_day"]) == (1, None, None)
