"""Anchors, call sites and approvals as files: what they look like, and every way in which they are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from gate_world import EVALSET, TWENTY, make_run, sha, with_trials
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pytest_fanout.errors import IntegrityError
from pytest_fanout.explain.sites import site_stats
from pytest_fanout.judge import stats_of
from pytest_fanout.records import Approval, CallSite, Change
from pytest_fanout.store.approvals import approval_name, parse_approval, write_approval
from pytest_fanout.store.baselines import build_baseline, parse_baseline, write_baseline
from pytest_fanout.store.files import digest
from pytest_fanout.store.schemas import fits_exactly, load
from pytest_fanout.store.sites import parse_sites, write_sites

SEE = "  see: docs/messages.md#"
WHERE = "baselines/support.json"
MEND = f"  mend: git checkout the committed {WHERE}, or run `fanout-baseline accept` again\n"
ANCHOR = build_baseline(make_run(), "support")
BYTES = write_baseline(ANCHOR, stats_of(ANCHOR))


def read(data: bytes, agent: str = "support") -> Any:
    return parse_baseline(data, agent, WHERE, stats_of)


def changed(change: Callable[[dict[str, Any]], None], *, seal: bool = True) -> bytes:
    document = json.loads(BYTES)
    change(document)
    if seal:
        body = {key: value for key, value in document.items() if key not in ("digest", "stats")}
        document["digest"] = digest(body)
    return json.dumps(document).encode()


def test_what_is_written_is_read() -> None:
    """An anchor survives the round trip with its digest."""
    assert read(BYTES) == ANCHOR


def test_two_updates_conflict_and_a_diff_names_the_tasks() -> None:
    """The digest stands on line 2, each task on a line of its own, and the reviewer's figures between them."""
    lines = BYTES.decode().splitlines()

    assert lines[1] == f' "digest": "{ANCHOR.digest}",'
    assert lines[6] == '  "fanout": {"mean":"10.50","p50":10,"p90":18,"p95":19,"p99":20,"max":20},'
    assert sum(line.startswith('  "t') and '"definition"' in line for line in lines) == 20


def test_marked_tests_have_no_definition() -> None:
    """It is null in the file."""
    run = with_trials(make_run({"a": [1]}), "a", definition=None)
    anchor = build_baseline(run, "support")

    assert b'"definition":null' in write_baseline(anchor, stats_of(anchor))
    assert read(write_baseline(anchor, stats_of(anchor))).tasks["a"].definition == ""


def test_tool_metrics_are_zero_where_a_trial_did_not_call_the_tool() -> None:
    """One trial of two called it."""
    run = make_run({"a": [1, 2]})
    run = replace(
        run, tasks=(run.tasks[0], replace(run.tasks[1], samples={**run.tasks[1].samples, "tool_calls[x]": 3}))
    )

    assert build_baseline(run, "support").tasks["a"].samples["tool_calls[x]"] == (0, 3)


def set_fanout(document: dict[str, Any]) -> None:
    document["tasks"]["t01"]["samples"]["fanout"] = [2]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            changed(set_fanout, seal=False),
            f"{WHERE}:2: was edited: its digest does not fit its content\n{MEND}{SEE}digest-mismatch",
        ),
        (
            changed(set_fanout),
            f"{WHERE}: stats: shows its reviewer other numbers than its samples give\n{MEND}{SEE}stats-mismatch",
        ),
        (
            changed(lambda d: d["stats"]["fanout"].update(p95=18)),
            f"{WHERE}: stats: shows its reviewer other numbers than its samples give\n{MEND}{SEE}stats-mismatch",
        ),
        (
            changed(lambda d: d["tasks"]["t01"].update(passed=[1, 1])),
            f"{WHERE}: task 't01' does not hold one value a trial\n{MEND}{SEE}uneven-trials",
        ),
        (
            changed(lambda d: d["tasks"]["t01"]["samples"].update(fanout=[1.0])),
            f"{WHERE}: holds 1.0; only integers, texts and null stand here\n{MEND}{SEE}not-an-integer",
        ),
        (
            changed(lambda d: d["tasks"]["t01"].update(passed=[True])),
            f"{WHERE}: holds true; only integers, texts and null stand here\n{MEND}{SEE}not-an-integer",
        ),
        (
            changed(lambda d: d.update(note="x")),
            f"{WHERE}: the document has unknown key 'note'\n{MEND}{SEE}schema",
        ),
        (
            changed(lambda d: d["tasks"]["t01"]["samples"].pop("fanout")),
            f"{WHERE}: tasks.t01.samples lacks 'fanout'\n{MEND}{SEE}schema",
        ),
        (b"{", f"{WHERE}:1: is not valid JSON: Expecting property name enclosed in double quotes\n{SEE}bad-json"),
        (BYTES[:200], None),
        (b"", f"{WHERE}:1: is not valid JSON: Expecting value\n{SEE}bad-json"),
        (b'{"a": 1, "a": 2}', f"{WHERE}: holds the key 'a' twice\n{SEE}duplicate-key"),
        (b'{"a": NaN}', f"{WHERE}: holds NaN, which is not JSON\n{SEE}bad-json"),
        (
            b'{\n<<<<<<< HEAD\n "digest": 1',
            f"{WHERE}:2: holds the marks of an unresolved merge conflict\n  mend: resolve the conflict, then run "
            f"`pytest --fanout-budget` and `fanout-baseline accept` again\n{SEE}conflict-marks",
        ),
    ],
    ids=str,
)
def test_anchors_that_are_refused(data: bytes, message: str | None) -> None:
    """Altered, malformed, truncated, conflict-marked: one message with file, place and mend."""
    with pytest.raises(IntegrityError) as caught:
        read(data)

    assert message is None or str(caught.value) == message


@pytest.mark.parametrize("key", ["agent", "evalset", "digest"])
def test_a_name_or_digest_with_a_line_end_is_another_one(key: str) -> None:
    """Python's ``$`` takes a line end at the very end of a text for nothing; the anchor's schema does not."""
    document = json.loads(BYTES)
    document[key] += "\n"

    with pytest.raises(IntegrityError, match="schema"):
        read(json.dumps(document).encode())


def test_an_anchor_of_another_class_is_misplaced() -> None:
    """A copied file does not become the anchor of the class that it is named after."""
    with pytest.raises(IntegrityError) as caught:
        read(BYTES, "triage")

    assert str(caught.value) == f"{WHERE}: holds the anchor of 'support'\n{MEND}{SEE}misplaced"


PLACES = st.lists(st.sampled_from(["tasks", "t01", "samples", "fanout", "stats", "status", "digest", "x"]), max_size=4)
VALUES = st.recursive(
    st.none() | st.integers(-2, 2) | st.sampled_from(["ok", "", "sha256:x", EVALSET]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["fanout", "p95"]), inner, max_size=2),
    max_leaves=4,
)


@given(PLACES, VALUES)
def test_the_quick_check_agrees_with_the_schema(place: list[str], value: Any) -> None:
    """Whatever is put anywhere: what the quick check takes, the shipped schema takes, and the other way round."""
    document = json.loads(BYTES)
    here = document
    for key in place[:-1]:
        here = here.get(key) if isinstance(here, dict) else None
        if not isinstance(here, dict):
            return
    if place:
        here[place[-1]] = value

    assert fits_exactly(document, "baseline") == Draft202012Validator(load("baseline")).is_valid(document)


def test_call_sites_survive_the_round_trip() -> None:
    """Sums over the measured trials, beside the anchor."""
    site = CallSite("0123456789abcdef", "openai.chat", "small", ("search",), "You plan")
    run = with_trials(
        make_run({"a": [2, 2]}), "a", call_sites=(site,), sites={site.fingerprint: 2}, site_tokens={site.fingerprint: 9}
    )
    stats = site_stats(run.tasks, "support")

    assert (stats.weight, stats.calls, stats.tokens) == (2, {site.fingerprint: 4}, {site.fingerprint: 18})
    assert parse_sites(write_sites(stats), "support", "s.json") == stats


def test_call_sites_of_another_class_are_misplaced() -> None:
    """They name their class."""
    with pytest.raises(IntegrityError) as caught:
        parse_sites(write_sites(site_stats(make_run().tasks, "support")), "triage", "b/triage.sites.json")

    assert str(caught.value) == (
        "b/triage.sites.json: holds the call sites of 'support'\n"
        f"  mend: run `fanout-baseline accept` again\n{SEE}misplaced"
    )


APPROVAL = Approval(
    path="baselines/approvals/2026-11-28-support-first.json",
    kind="baseline",
    subject="support",
    from_digest=None,
    to_digest=None,
    evalset=EVALSET,
    ceilings={"fanout.p95": 20},
    changes=(Change("class_added", "support"), Change("metric", "fanout.p95", "all", None, 19)),
    reason="The planner now verifies its citations.",
    requested_by="dana@example.com",
    requested_on="2026-11-28",
    nonce="5b1f0c9e7d3a2468",
)
BUDGET = replace(
    APPROVAL,
    kind="budget",
    subject="budget",
    from_digest=sha("a"),
    to_digest=sha("b"),
    ceilings={},
    changes=(),
    path=f"b/2026-11-28-budget-{sha('a')[7:19]}.json",
)
WAIVER = replace(  # until 2026-12-01 00:00 UTC
    APPROVAL, kind="waiver", ceilings={}, changes=(), expires_at=1_796_083_200, path="b/2026-11-28-support-waiver.json"
)


@pytest.mark.parametrize("approval", [APPROVAL, BUDGET, WAIVER], ids=lambda approval: approval.kind)
def test_approvals_survive_the_round_trip(approval: Approval) -> None:
    """Each kind, and named by what it holds."""
    assert approval.path.endswith(approval_name(approval))
    assert parse_approval(write_approval(approval), approval.path) == approval


def test_a_waiver_may_have_the_name_that_earlier_versions_gave_it() -> None:
    """As if it were a first anchor: it stays in the folder for good, and must not break it."""
    for name in ("first", "first-2", "waiver-2"):
        old = replace(WAIVER, path=f"b/2026-11-28-support-{name}.json")
        assert parse_approval(write_approval(old), old.path) == old
    first = replace(APPROVAL, from_digest=None, path="b/2026-11-28-support-waiver.json")
    with pytest.raises(IntegrityError, match=r"it would be named 2026-11-28-support-first\.json"):
        parse_approval(write_approval(first), first.path)


@pytest.mark.parametrize(
    ("approval", "what"),
    [
        (
            replace(APPROVAL, ceilings={"fanout.p95": 18}),
            "the ceiling 18 of fanout.p95 is below the 19 that its own changes show",
        ),
        (replace(APPROVAL, requested_on="2026-02-30"), "requested_on '2026-02-30' is not a date"),
        (
            replace(APPROVAL, subject="budget"),
            "an approval of kind 'baseline' cannot have the subject 'budget'",
        ),
        (replace(BUDGET, subject="support"), "an approval of kind 'budget' cannot have the subject 'support'"),
        (replace(WAIVER, expires_at=None), "`expires_at` stands in waivers, and only there"),
        (replace(APPROVAL, expires_at=1_796_083_200), "`expires_at` stands in waivers, and only there"),
        (
            replace(WAIVER, requested_on="9999-12-31", expires_at=253_402_300_800),
            "expires_at lies behind the last day of the calendar",
        ),
        (
            replace(WAIVER, expires_at=1_796_083_201),
            "a waiver lasts at most 72 hours from the start (UTC) of requested_on",
        ),
        (
            replace(APPROVAL, path="baselines/approvals/2026-11-27-support-first.json"),
            "is misplaced: by its content it would be named 2026-11-28-support-first.json",
        ),
        (
            replace(APPROVAL, path="baselines/approvals/2026-11-28-support-first-copy.json"),
            "is misplaced: by its content it would be named 2026-11-28-support-first.json",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_approvals_that_are_refused(approval: Approval, what: str) -> None:
    """The reviewer must not be shown smaller numbers than are allowed, nor another date, class or kind."""
    with pytest.raises(IntegrityError) as caught:
        parse_approval(write_approval(approval), approval.path)

    mend = f"git rm {approval.path}, then run `fanout-baseline accept` again"
    assert str(caught.value) == f"{approval.path}: {what}\n  mend: {mend}\n{SEE}bad-approval"


def test_an_approval_with_a_short_reason_is_refused() -> None:
    """A reviewer needs a sentence."""
    data = write_approval(replace(APPROVAL, reason="because"))
    with pytest.raises(IntegrityError) as caught:
        parse_approval(data, APPROVAL.path)

    assert str(caught.value).splitlines()[0] == f"{APPROVAL.path}: reason breaks the rule minLength 20"


def test_an_approval_of_a_second_try_on_one_day_has_a_number() -> None:
    """Base holds the first one already."""
    path = APPROVAL.path.replace("-first", "-first-2")

    assert approval_name(APPROVAL, 2) == path.rsplit("/", 1)[-1]
    assert parse_approval(write_approval(APPROVAL), path).path == path


def test_twenty_is_what_the_hand_made_values_say() -> None:
    """The file that every scenario starts from."""
    assert json.loads(BYTES)["stats"]["tokens"]["p95"] == 1900
    assert len(TWENTY) == 20
