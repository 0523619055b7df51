"""fanout-report.json: what the document says, and that a run read back from it is the run that was measured."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_cases import BASE, CALM, HEAD, VERIFY, cases, load, metric, projection, result, run, trial

from pytest_fanout import records
from pytest_fanout.errors import IntegrityError, StorageError
from pytest_fanout.records import (
    Attempt,
    CallSite,
    ClassResult,
    ModelCall,
    Problem,
    Run,
    SessionFacts,
    StaleNote,
    TaskRun,
    Totals,
    Verdict,
)
from pytest_fanout.report.json import document
from pytest_fanout.store.reports import read_report, read_verdict, write_report, write_unfinished

AGAIN = "run `pytest --fanout-budget` again"


def stored(measured: Run) -> Run:
    """What a report can give back: no calls, trials in order of class, task and number."""
    tasks = sorted(measured.tasks, key=lambda item: (item.agent, item.task, item.trial))
    return replace(measured, tasks=tuple(replace(item, calls=()) for item in tasks))


# --- the document --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(cases()))
def test_every_verdict_is_written_and_read_back(name: str, tmp_path: Path) -> None:
    """Run, outcome and verdict survive the file, whatever the verdict."""
    measured, verdict = cases()[name]
    path = tmp_path / "fanout-report.json"
    write_report(path, document(measured, verdict))

    assert read_report(path) == stored(measured)
    assert read_verdict(path) == (verdict.outcome, verdict.verdict)


def test_the_document_says_what_other_tools_build_on() -> None:
    """Schema, outcome, base, class with base, run and limit, capacity and the next command, at their places."""
    said = document(*cases()["regressed"])
    research = said["classes"][0]

    assert (said["schema"], said["outcome"], said["verdict"]) == ("pytest-fanout/report/1", "over", "regressed")
    assert said["base"]["source"] == "merge-base origin/main"
    assert [entry["name"] for entry in said["classes"]] == ["research", "support"]
    fanout = research["metrics"][0]
    assert (fanout["name"], fanout["base"], fanout["run"], fanout["limit"], fanout["over"]) == (
        "fanout.p95",
        7,
        11,
        8,
        True,
    )
    assert (fanout["n"], fanout["max"], fanout["max_task"]) == (20, 14, "invoice-017")
    assert research["pass_share"] == [98, 100]
    assert research["tasks"][1]["samples"] == {"fanout": 7, "input_tokens": 1000, "output_tokens": 200}
    assert said["capacity"]["lines"][0] == "research 12 -> 19 GPUs at peak"
    assert said["explanation"]["sites"][0]["site"] == VERIFY.fingerprint
    assert said["next"] == ['fanout-baseline accept --agent research --reason "why it may cost this"']


def test_unknown_is_null_and_zero_is_zero() -> None:
    """A sample that the provider did not give stays null; a measured zero stays zero."""
    unknown = result("support", "invalid", metric("tokens.mean", 5, None, 6))
    measured = run(trial("support", "refund", samples={"fanout": 0, "input_tokens": None}))
    said = document(measured, Verdict("invalid", (unknown,), (), BASE, HEAD))["classes"][0]

    assert said["metrics"][0]["run"] is None
    assert said["tasks"][0]["samples"] == {"fanout": 0, "input_tokens": None}


def test_figures_that_json_cannot_hold_are_null(tmp_path: Path) -> None:
    """A projection that came out infinite is not known, and the report is still written."""
    infinite = replace(projection("support", 1, 1), run=load(float("inf")))
    said = document(run(), Verdict("pass", (CALM,), (), BASE, HEAD, projections=(infinite,)))
    write_report(tmp_path / "r.json", said)

    assert said["capacity"]["classes"][0]["run"]["gpus"] is None


def test_the_order_in_which_trials_ended_does_not_change_the_document() -> None:
    """Parallel processes finish in any order; the bytes are the same."""
    measured, verdict = cases()["stale"]
    backwards = replace(measured, tasks=measured.tasks[::-1])

    assert json.dumps(document(backwards, verdict)) == json.dumps(document(measured, verdict))


def test_a_class_that_ran_but_was_not_judged_is_kept_with_verdict_null() -> None:
    """When a file is broken nothing is judged, yet what was measured is not lost."""
    said = document(run(trial("support", "refund")), Verdict("integrity", (), (), BASE, HEAD))["classes"]

    assert [(entry["name"], entry["verdict"], [trial["task"] for trial in entry["tasks"]]) for entry in said] == [
        ("support", None, ["refund"])
    ]


def test_call_sites_are_said_once_even_when_two_share_a_fingerprint(tmp_path: Path) -> None:
    """Two sites that differ only in their model but not in their fingerprint both come back."""
    twin = replace(VERIFY, model="other")
    measured = run(trial("support", "a", call_sites=(VERIFY, twin)), trial("support", "b", call_sites=(twin,)))
    said = document(measured, Verdict("pass", (), (), BASE, HEAD))
    write_report(tmp_path / "r.json", said)

    assert sorted(said["call_sites"]) == [VERIFY.fingerprint, f"{VERIFY.fingerprint}~2"]
    assert read_report(tmp_path / "r.json") == measured


@pytest.mark.parametrize(
    ("definition", "record", "apart"),
    [
        ("trial", TaskRun, {"agent", "calls"}),
        ("class", ClassResult, {"agent"}),
        ("control_trial", records.ControlTrial, {"agent"}),
        ("cause", records.Cause, set()),
        ("problem", Problem, set()),
        ("stale", StaleNote, set()),
        ("session", SessionFacts, set()),
        ("totals", Totals, set()),
        ("metric", records.MetricResult, set()),
        ("base", records.Base, set()),
        ("head", records.Head, set()),
        ("call_site", CallSite, set()),
        ("site_delta", records.SiteDelta, set()),
        ("projection", records.Projection, set()),
        ("load", records.Load, set()),
        ("task_delta", records.TaskDelta, set()),
        ("explanation", records.Explanation, set()),
        ("class_total", records.ClassTotal, set()),
        ("part", records.Part, set()),
        ("explained_site", records.ExplainedSite, set()),
        ("finding", records.Finding, set()),
        ("finding_share", records.Share, set()),
        ("example", records.Example, set()),
        ("tree_line", records.TreeLine, set()),
    ],
)
def test_the_schema_knows_every_field_of_the_records(definition: str, record: type, apart: set[str]) -> None:
    """A field added to a record without the schema would make reports that nobody can read."""
    schema = json.loads((files("pytest_fanout") / "schemas" / "report.schema.json").read_text(encoding="utf-8"))
    known = set(schema["$defs"][definition]["properties"]) - {"name", "outcome"}
    if record is ClassResult:
        known -= {"tasks", "control"}  # what the run itself holds

    assert known - {"verdict"} == {field.name for field in fields(record)} - apart - {"verdict", "name"}  # type: ignore[arg-type]


def test_the_schema_itself_is_valid() -> None:
    """It holds against the metaschema of Draft 2020-12."""
    from jsonschema import Draft202012Validator

    schema = json.loads((files("pytest_fanout") / "schemas" / "report.schema.json").read_text(encoding="utf-8"))

    assert Draft202012Validator.check_schema(schema) is None  # type: ignore[func-returns-value]


# --- a run and its file are the same -------------------------------------------------------------------------------

TEXT = st.text(max_size=8)
COUNT = st.integers(0, 2**53)
SAMPLES = st.dictionaries(TEXT, st.none() | COUNT, max_size=3)
PROBLEMS = st.lists(
    st.builds(Problem, TEXT, TEXT, st.sampled_from((*records.VERDICTS, "notice")), st.none() | TEXT, st.none() | TEXT),
    max_size=2,
).map(tuple)
TEXTS = st.lists(TEXT, max_size=2).map(tuple)
SITES = st.builds(CallSite, st.sampled_from(("aa", "bb")), TEXT, st.none() | TEXT, TEXTS, TEXT)
CALLS = st.just((ModelCall((Attempt("openai.chat"),)),))
TRIALS = st.builds(
    TaskRun,
    agent=st.sampled_from(("research", "support")),
    task=TEXT,
    trial=st.integers(1, 3),
    status=st.sampled_from(("ok", "failed", "capped", "timeout", "stale", "invalid", "crashed")),
    passed=st.booleans(),
    samples=SAMPLES,
    calls=CALLS,
    aside=st.dictionaries(TEXT, COUNT, max_size=2),
    problems=PROBLEMS,
    definition=st.none() | TEXT,
    recording=st.none() | TEXT,
    new_draw=st.booleans(),
    draw=st.integers(1, 9),
    redraws=st.integers(0, 9),
    shared_prefix=st.none() | TEXT,
    saved_calls=COUNT,
    begun_at=st.none() | COUNT,
    models_requested=TEXTS,
    models_served=TEXTS,
    unknown_usage=COUNT,
    capped=st.none() | TEXT,
    error=st.none() | TEXT,
    no_calls=st.booleans(),
    stale=st.none() | st.builds(StaleNote, COUNT, TEXT, TEXTS, COUNT, COUNT, COUNT, TEXTS),
    leftover=COUNT,
    sites=st.dictionaries(TEXT, COUNT, max_size=2),
    site_tokens=st.dictionaries(TEXT, COUNT, max_size=2),
    call_sites=st.lists(SITES, max_size=2).map(tuple),
    hosts=TEXTS,
    ignored=st.dictionaries(TEXT, st.integers(1, 2**53), max_size=2),
    volatile=TEXTS,
    failures=st.dictionaries(TEXT, st.integers(1, 2**53), max_size=2),
    other=COUNT,
    unclassified=COUNT,
    spent_calls=COUNT,
)
CONTROLS = st.builds(
    records.ControlTrial,
    st.just("support"),
    st.just("a"),
    st.integers(1, 9),
    st.sampled_from(("ok", "failed")),
    st.booleans(),
    st.dictionaries(TEXT, st.none() | COUNT, max_size=2),
    TEXTS,
)
BASES = st.builds(records.Base, st.none() | TEXT, TEXT, st.booleans(), st.none() | TEXT)
RUNS = st.builds(
    Run,
    run_id=st.text(min_size=1, max_size=8),
    mode=st.sampled_from(("replay", "record", "rerecord", "live")),
    begun_at=COUNT,
    agents=st.lists(TEXT, max_size=2).map(tuple),
    tasks=st.lists(TRIALS, max_size=4).map(tuple),
    definitions=st.dictionaries(TEXT, st.dictionaries(TEXT, TEXT, max_size=2), max_size=2),
    evalsets=st.dictionaries(TEXT, st.none() | TEXT, max_size=2),
    session=st.builds(
        SessionFacts, *[COUNT] * 5, st.none() | TEXT, st.integers(0, 255), st.booleans(), st.none() | TEXT
    ),
    totals=st.builds(Totals, *[COUNT] * 8),
    problems=PROBLEMS,
    base=st.none() | BASES,
    head=st.none() | st.builds(records.Head, st.none() | TEXT, st.booleans()),
    inputs=st.dictionaries(TEXT, TEXT, max_size=2),
    ci=st.booleans(),
    sealed=st.booleans(),
    volatile=TEXTS,
    control=st.lists(CONTROLS, max_size=2).map(tuple),
    tool=st.none(),  # the document says which version wrote it
)


def test_the_property_below_varies_every_field() -> None:
    """A field left at its default could be lost by the file without being missed."""
    assert set(TRIALS.wrapped_strategy.kwargs) == {field.name for field in fields(TaskRun)}  # type: ignore[attr-defined]
    assert set(RUNS.wrapped_strategy.kwargs) == {field.name for field in fields(Run)}  # type: ignore[attr-defined]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(measured=RUNS)
def test_any_run_comes_back_from_its_report(measured: Run, tmp_path: Path) -> None:
    """Document and file lose nothing of a run but its calls, whatever its texts hold."""
    path = tmp_path / "fanout-report.json"
    write_report(path, document(measured, Verdict("invalid", (), PROBLEM, BASE, HEAD)))

    assert read_report(path) == stored(measured)


PROBLEM = (Problem("s", "text", "invalid"),)


# --- the file ------------------------------------------------------------------------------------------------------


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "fanout-report.json"
    write_report(path, document(*cases()["pass"]))
    return path


def told(path: Path) -> str:
    """The full text of the error that reading gives, with the folder taken out."""
    with pytest.raises(IntegrityError) as caught:
        read_report(path)
    with pytest.raises(IntegrityError):
        read_verdict(path)
    assert caught.value.exit_code == 4
    return str(caught.value).replace(f"{path.parent}/", "")


def test_a_missing_report_says_how_to_make_one(tmp_path: Path) -> None:
    """report-missing: no file."""
    assert told(tmp_path / "fanout-report.json") == (
        "fanout-report.json: there is no report\n  mend: pytest --fanout-budget\n  see: docs/messages.md#report-missing"
    )


def test_a_link_or_a_folder_is_no_report(report: Path, tmp_path: Path) -> None:
    """report-missing: what a link points at can change after it was checked."""
    link = tmp_path / "link.json"
    link.symlink_to(report)

    assert told(link) == (
        f"link.json: is not a regular file\n  mend: remove it, then {AGAIN}\n  see: docs/messages.md#report-missing"
    )
    assert "is not a regular file" in told(tmp_path / "..")


@pytest.mark.parametrize("kept", [0, 1, 100, 1000])
def test_a_report_that_was_cut_off_is_no_report(report: Path, kept: int) -> None:
    """report-truncated: a full disk or a broken download."""
    report.write_bytes(report.read_bytes()[:kept])

    assert told(report) == (
        f"fanout-report.json: is cut off: its end is missing\n  mend: {AGAIN}\n  see: docs/messages.md#report-truncated"
    )


def test_a_report_of_another_version_is_not_guessed_at(report: Path) -> None:
    """report-version: both are named."""
    report.write_text(report.read_text().replace("report/1", "report/2"))

    assert told(report) == (
        "fanout-report.json: has schema 'pytest-fanout/report/2'; this version of pytest-fanout reads "
        f"'pytest-fanout/report/1'\n  mend: use one version of pytest-fanout for both steps, then {AGAIN}\n"
        "  see: docs/messages.md#report-version"
    )


@pytest.mark.parametrize(
    ("old", "new"), [('"verdict":"pass"', '"verdict":"stale"'), ('"ran":1', '"ran":2'), (":7", ":6")]
)
def test_a_report_that_was_edited_is_refused(report: Path, old: str, new: str) -> None:
    """report-altered: one changed value is enough."""
    text = report.read_text()
    assert old in text
    report.write_text(text.replace(old, new, 1))

    assert told(report) == (
        f"fanout-report.json: was changed after it was written\n  mend: {AGAIN}\n  see: docs/messages.md#report-altered"
    )


def resealed(path: Path, **changes: object) -> None:
    from pytest_fanout.store.files import digest

    said = {key: value for key, value in {**json.loads(path.read_text()), **changes}.items() if key != "digest"}
    path.write_text(json.dumps({**said, "digest": digest(said)}))


def test_a_report_holds_one_line_a_trial_and_may_be_laid_out_anew(report: Path) -> None:
    """Its digest is of what it says, not of its line ends: what `jq` or git writes is the same report."""
    text = report.read_text()
    run = read_report(report)

    assert len([line for line in text.splitlines() if '"models_served"' in line]) == len(run.tasks)
    for changed in (json.dumps(json.loads(text), indent=2), text.replace("\n", "\r\n"), text.replace("\n", "")):
        report.write_bytes(changed.encode())
        assert read_report(report) == run


def test_a_report_with_a_field_that_nobody_knows_is_refused(report: Path) -> None:
    """report-malformed: unknown fields are not skipped over, even under a fitting digest."""
    resealed(report, extra=1)

    assert told(report) == (
        "fanout-report.json: does not fit its schema: the document has unknown key 'extra'\n"
        f"  mend: {AGAIN}\n  see: docs/messages.md#report-malformed"
    )


def test_an_outcome_that_is_not_the_verdicts_is_refused(report: Path) -> None:
    """report-malformed: 'within' beside 'regressed' would be a false green."""
    resealed(report, verdict="regressed")

    assert "says outcome 'within' beside verdict 'regressed'" in told(report)


@pytest.mark.parametrize("text", ["[]}", "{}", '{"schema": 1}', '{"a": NaN}', '{"a": 1, "a": 2}', "{" * 100_000 + "}"])
def test_what_is_no_report_is_an_integrity_error_and_no_traceback(report: Path, text: str) -> None:
    """Wrong shapes, NaN, duplicate keys and absurd nesting all end in one clear error."""
    report.write_text(text)

    assert told(report).startswith("fanout-report.json")


def test_a_call_site_that_is_not_described_is_refused(tmp_path: Path) -> None:
    """report-malformed: a trial may only name the sites that the report holds."""
    path = tmp_path / "r.json"
    write_report(path, document(run(trial("support", "a", call_sites=(VERIFY,))), Verdict("pass", (), (), BASE, HEAD)))
    resealed(path, call_sites={})

    with pytest.raises(IntegrityError, match="names the call site '00aa11bb22cc33dd' that it does not describe"):
        read_report(path)


def test_a_document_that_does_not_fit_is_not_written(report: Path) -> None:
    """What stood there before stays whole."""
    before = report.read_bytes()
    wrong = {**document(*cases()["pass"]), "mode": "guess"}

    with pytest.raises(IntegrityError, match="does not fit its schema: mode must be"):
        write_report(report, wrong)
    assert report.read_bytes() == before


def test_a_report_that_cannot_be_written_names_the_file(tmp_path: Path) -> None:
    """A file where a folder should be is one clear error."""
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageError, match="could not be written"):
        write_report(tmp_path / "file" / "r.json", document(*cases()["pass"]))


def test_an_unfinished_run_leaves_a_report_that_says_so(tmp_path: Path) -> None:
    """run-not-finished: it is valid, not measured, and judged again it is still not measured."""
    path = tmp_path / "fanout-report.json"
    write_unfinished(path, "run-1", mode="record", begun_at=5)
    read = read_report(path)

    assert read_verdict(path) == ("not_measured", "invalid")
    assert (read.run_id, read.mode, read.begun_at, read.session.pytest_exit) == ("run-1", "record", 5, 2)
    assert read.problems == (Problem("run-not-finished", "run not finished", "invalid"),)


def test_the_file_is_ascii_where_it_must_be_and_sorted(tmp_path: Path) -> None:
    """A24: UTF-8 with \\n; accents and CJK stand as they are, lone surrogates, C1 controls and overrides as escapes."""
    path = tmp_path / "r.json"
    odd = "café東\ud800\x9b\u202e\u2028<<<<<<< "
    measured = run(trial("support", odd))
    write_report(path, document(measured, Verdict("pass", (), (), BASE, HEAD)))
    data = path.read_bytes()

    assert "café東\\ud800\\u009b\\u202e\\u2028<<<<<<< ".encode() in data
    assert b"\r" not in data
    assert data.endswith(b"}\n")
    assert read_report(path) == measured
    first, *others = json.loads(data)
    assert (first, others) == ("digest", sorted(others))


def test_a_character_that_a_stream_split_in_two_does_not_look_like_an_edit(tmp_path: Path) -> None:
    """Two surrogates that form one emoji are read back as that emoji, and the digest still fits."""
    measured = run(trial("support", "a", error="\ud83d\ude00"))
    write_report(tmp_path / "r.json", document(measured, Verdict("pass", (), (), BASE, HEAD)))

    assert read_report(tmp_path / "r.json").tasks[0].error == "\U0001f600"


def test_records_have_no_field_that_needs_reading_in_another_way() -> None:
    """Fields of TaskRun that hold records or tuples are those that the reader turns back."""
    held = {
        field.name for field in dataclasses.fields(TaskRun) if "tuple" in str(field.type) or "Note" in str(field.type)
    }

    turned = {"calls", "problems", "models_requested", "models_served", "stale", "call_sites", "hosts", "volatile"}
    assert held == turned
