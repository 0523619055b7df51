"""Trees, files, waivers and words of the gate, on what is made by hand: each condition from both of its sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from gate_world import NOW, TODAY, TWENTY, make_run, trial, with_trials, without
from test_accept_on_trees import planned
from test_verdict_on_trees import BASE, GROWN, HEAD, LOOSE, SETTINGS, Files, Trees, anchored, approved

from pytest_fanout.config import Settings
from pytest_fanout.errors import ConfigError, FanoutError, IntegrityError, StorageError
from pytest_fanout.gate.costs import with_costs
from pytest_fanout.gate.few_trials import agents_of, enough, few_words, fewest_of, record_others
from pytest_fanout.gate.plan import carry_out
from pytest_fanout.gate.tree import Tree, Unreadable, folder_of, problem_of, read_file, read_sites, read_tree
from pytest_fanout.gate.trials import trials_of
from pytest_fanout.gate.waiving import Waiver, plan_waiver
from pytest_fanout.records import Base, ClassResult, Head, JudgeRules, Problem, Run, SessionFacts, Verdict
from pytest_fanout.store.baselines import build_baseline
from pytest_fanout.store.budget import parse_budget

# --- trees -----------------------------------------------------------------------------------------------------------


class Linked(Trees):
    """A commit in which one folder is none."""

    where = "baselines"

    def prefetch(self, rev: str, folder: str) -> None:
        if folder == self.where:
            raise IntegrityError("not-a-folder", "is a link", where=folder, mend="git rm")


def tree(files: Files, *, history: bool = False) -> Tree:
    return read_tree(Trees({HEAD: files}), HEAD, SETTINGS, "HEAD", is_history=history)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("files", "anchors", "lost", "slugs"),
    [
        (anchored(), ["support"], [], []),
        (anchored() | {"support.sites.json": "{"}, ["support"], [], []),
        (anchored() | {"notes.txt": "x", "support.json.txt": "x"}, ["support"], [], []),
        (anchored() | {"aaa.json": "{", "zzz.json": "{"}, ["support"], ["aaa", "zzz"], ["bad-json", "bad-json"]),
        (anchored() | {"Bad Name.json": "{", "budget.json": "{"}, ["support"], [], ["misplaced", "misplaced"]),
        ({"aaa.json": anchored()["support.json"]}, [], ["aaa"], ["misplaced"]),
        ({"budget.toml": "x = ["}, [], ["budget"], ["bad-toml"]),
        ({"fleet.toml": "x = ["}, [], ["fleet"], ["bad-toml"]),
        ({"approvals/x.json": "{", "approvals/x.txt": "{"}, [], [], ["bad-json"]),
    ],
)
def test_what_a_commit_holds(files: Files, anchors: list[str], lost: list[str], slugs: list[str]) -> None:
    """Anchors by name; what cannot be read is lost by its name, and a problem."""
    found = tree(files)

    assert (sorted(found.anchors), sorted(found.unreadable)) == (anchors, lost)
    assert [problem.slug for problem in found.problems] == slugs
    assert all(problem.verdict == "integrity" and "(in HEAD)" in problem.text for problem in found.problems)


@pytest.mark.parametrize(
    ("files", "slugs"),
    [
        ({"Bad Name.json": "{"}, []),
        ({"approvals/x.json": "{"}, []),
        ({"aaa.json": "{"}, ["bad-json"]),
        ({"budget.toml": "x = ["}, ["bad-toml"]),
    ],
)
def test_what_binds_nothing_any_more_is_no_problem_of_the_past(files: Files, slugs: list[str]) -> None:
    """Approvals, and files that name no class."""
    assert [problem.slug for problem in tree(files, history=True).problems] == slugs


def test_broken_approvals_hide_none_behind_them() -> None:
    """Each is told, and the others hold."""
    given = approved(None)
    found = tree({"approvals/0.json": "{", **given, "approvals/z.json": "["})

    assert [f"baselines/{name}" for name in given] == [approval.path for approval in found.approvals]
    assert len(found.problems) == 2


@pytest.mark.parametrize("where", ["baselines", "baselines/approvals"])
def test_a_folder_that_is_none_loses_what_it_held(where: str) -> None:
    """The whole of it; or the approvals alone."""
    repo = Linked({HEAD: anchored() | approved(None)})
    repo.where = where

    found = read_tree(repo, HEAD, SETTINGS, "HEAD")  # type: ignore[arg-type]

    assert [problem.slug for problem in found.problems] == ["not-a-folder"]
    assert (list(found.anchors), found.approvals) == ([] if where == "baselines" else ["support"], ())
    assert (found.lost("support") is None) == (where != "baselines")
    assert (found.origin("other") is None) == (where != "baselines")
    if where == "baselines":
        assert found.budget.digest == found.fleet == found.origin("support")


def test_what_stands_in_place_of_an_anchor() -> None:
    """The anchor itself first; else what cannot be read of that name, else the folder."""
    made = build_baseline(make_run(), "support")
    mine, whole = (Unreadable(name, Problem("x", "y", "integrity")) for name in ("mine", "whole"))

    def origin(anchors: Mapping[str, Any], unreadable: Mapping[str, Unreadable]) -> str | None:
        return Tree(anchors, parse_budget(None), None, (), (), unreadable).origin("support")

    assert origin({}, {}) is None
    assert origin({"support": made}, {"": whole}) == made.digest
    assert origin({}, {"support": mine, "": whole}) == "mine"
    assert origin({}, {"": whole}) == "whole"
    assert origin({}, {"aaa": mine, "zzz": mine}) is None


@pytest.mark.parametrize(
    ("error", "commit", "text"),
    [
        (ConfigError("x", "is wrong"), "", "is wrong"),
        (ConfigError("x", "is wrong", where="a.toml"), "", "a.toml: is wrong"),
        (ConfigError("x", "is wrong", mend="mend it"), "", "is wrong; mend: mend it"),
        (ConfigError("x", "is wrong", where="a.toml", mend="mend it"), "HEAD",
         "a.toml: is wrong (in HEAD); mend: mend it"),
        (ConfigError("x", "is wrong"), "HEAD", "is wrong (in HEAD)"),
    ],
)  # fmt: skip
def test_an_error_in_one_line(error: FanoutError, commit: str, text: str) -> None:
    """Where, what, in which commit, and its mend: those that are known."""
    assert problem_of(error, "invalid", "support", commit) == Problem("x", text, "invalid", "support")


def test_files_of_the_work_tree(tmp_path: Path) -> None:
    """None where there is none; a link, even one that leads nowhere, and a folder are refused."""
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")

    assert (read_file(tmp_path / "file"), read_file(tmp_path / "none")) == (b"x", None)
    for name, slug in (("link", "not-a-regular-file"), ("lost", "not-a-regular-file"), ("folder", "cannot-read")):
        with pytest.raises(IntegrityError) as caught:
            read_file(tmp_path / name)
        assert caught.value.slug == slug


def test_baselines_lie_in_the_project() -> None:
    """However deep; else no commit of it holds them. Call sites that are not there are none."""
    assert folder_of(replace(SETTINGS, baselines=Path("/p/a/b"))) == "a/b"
    with pytest.raises(ConfigError) as caught:
        folder_of(replace(SETTINGS, baselines=Path("/q/baselines")))
    assert caught.value.slug == "baselines-outside"
    assert read_sites(Trees({HEAD: {}}), HEAD, SETTINGS, "support") is None  # type: ignore[arg-type]


# --- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["files", "links", "none"])
def test_a_class_that_is_given_up_leaves_no_file(tmp_path: Path, kind: str) -> None:
    """Anchor and call sites, also where they are links that lead nowhere; what is not there is not told."""
    files = anchored() | anchored(make_run(agent="triage"), "triage") | {"triage.sites.json": "{}"}
    plan = planned(tmp_path, make_run(), files, agents=["triage"])
    settings = Settings(tmp_path / "p", "pyproject.toml", tmp_path / "p/baselines", tmp_path / "recordings", {})
    for name in ("triage.json", "triage.sites.json"):
        if kind != "files":
            (settings.baselines / name).unlink()
        if kind == "links":
            (settings.baselines / name).symlink_to(tmp_path / "nowhere")

    done = carry_out(plan, settings)

    gone = ("baselines/triage.json", "baselines/triage.sites.json")
    assert done.removed == (() if kind == "none" else gone)
    assert [path for path in settings.baselines.iterdir() if path.name.startswith("triage")] == []
    assert len(done.written) == 1


def test_a_file_that_cannot_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before it stays."""
    files = anchored() | anchored(make_run(agent="triage"), "triage")
    plan = planned(tmp_path, make_run(), files, agents=["triage"])
    settings = Settings(tmp_path / "p", "pyproject.toml", tmp_path / "p/baselines", tmp_path / "recordings", {})

    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", denied)
    with pytest.raises(StorageError) as caught:
        carry_out(plan, settings)

    assert str(caught.value).splitlines()[0] == "baselines/triage.json: could not be removed: Permission denied"


# --- waivers ---------------------------------------------------------------------------------------------------------

MIDNIGHT = int(datetime(TODAY.year, TODAY.month, TODAY.day, tzinfo=UTC).timestamp())
HOUR = 3600


def waiver(now: int = NOW, hours: int = 24, base: str | None = BASE, **changes: Any) -> Waiver:
    repo = Trees({BASE: {}, HEAD: anchored(make_run(agent="kept"), "kept")})
    words = {"agent": "support", "reason": "Hotfix of the outage, FAN-311.", "requested_by": "dana", "environ": {}}
    return plan_waiver(repo, SETTINGS, hours=hours, now=now, ci=False, base=Base(base, "test"), **(words | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now", "hours", "ends", "left", "shortened"),
    [
        (MIDNIGHT, 72, MIDNIGHT + 72 * HOUR, 72, False),
        (MIDNIGHT + 1, 72, MIDNIGHT + 72 * HOUR, 71, True),
        (MIDNIGHT + 1, 71, MIDNIGHT + 71 * HOUR + 1, 71, False),
        (MIDNIGHT, 1, MIDNIGHT + HOUR, 1, False),
        (MIDNIGHT + 24 * HOUR - 1, 48, MIDNIGHT + 72 * HOUR - 1, 48, False),
        (MIDNIGHT + 24 * HOUR - 1, 49, MIDNIGHT + 72 * HOUR, 48, True),
    ],
)
def test_how_long_a_waiver_lasts(now: int, hours: int, ends: int, left: int, shortened: bool) -> None:
    """As long as was asked, and no longer than 72 hours from the start of its day."""
    made = waiver(now, hours)

    assert (made.approval.expires_at, made.hours, made.shortened) == (ends, left, shortened)
    assert (made.approval.kind, made.approval.requested_on) == ("waiver", TODAY.isoformat())


@pytest.mark.parametrize(("hours", "slug"), [(0, "bad-hours"), (73, "bad-hours"), (-1, "bad-hours")])
def test_hours_that_are_none(hours: int, slug: str) -> None:
    """Too few, too many."""
    with pytest.raises(FanoutError) as caught:
        waiver(hours=hours)
    assert caught.value.slug == slug


def test_a_class_is_known_by_settings_or_anchor() -> None:
    """Either will do; without a base HEAD's names are taken."""
    assert [waiver(agent=agent).approval.subject for agent in ("support", "kept")] == ["support", "kept"]
    assert waiver(base=None).approval.path == waiver().approval.path
    with pytest.raises(FanoutError) as caught:
        waiver(agent="zzz")
    assert "known: kept, support" in str(caught.value)


# --- few trials ------------------------------------------------------------------------------------------------------

RECORD = "pytest --fanout-budget --fanout-mode=record --fanout-trials={}".format


def of(trials: Mapping[str, int], **changes: Any) -> Run:
    return make_run({task: [1] * number for task, number in trials.items()}, **changes)


@pytest.mark.parametrize(("rules", "number"), [(1, 5), (4, 5), (5, 5), (6, 6), (9, 9)])
def test_how_many_trials_an_anchor_is_to_hold(rules: int, number: int) -> None:
    """Five, or as many as the rules run."""
    assert enough(JudgeRules(trials=rules)) == number


def test_trials_are_counted_by_task() -> None:
    """The fewest of a measured one; those of other classes, and what crashed, do not count."""
    run = of({"a": 3, "b": 2})
    others = tuple(trial(agent, "c", 1, 1) for agent in ("aaa", "zzz"))
    crashed = replace(run.tasks[0], task="d", status="crashed")
    run = replace(run, tasks=(*run.tasks, *others, crashed))

    assert (fewest_of(run, "support"), fewest_of(run, "aaa"), fewest_of(run, "nobody")) == (2, 1, 0)
    assert agents_of(run) == {"aaa", "support", "zzz"}
    assert agents_of(replace(run, agents=("listed",))) == {"aaa", "listed", "support", "zzz"}
    assert record_others(run, "support", JudgeRules(), alone=False) == RECORD(5)
    assert record_others(of({"a": 7, "b": 2}), "support", JudgeRules(), alone=True) == (
        f"{RECORD(7)} --fanout-agent=support"
    )
    assert record_others(of({}), "support", JudgeRules(trials=6), alone=False) == RECORD(6)


ACCEPT = 'fanout-baseline accept --agent support --reason "…"'


@pytest.mark.parametrize(
    ("held", "run", "committed", "other", "mend"),
    [
        ({"a": 5}, {"a": 5}, True, False, None),
        ({"a": 6, "b": 5}, {"a": 1}, True, False, None),
        ({"a": 5, "b": 4}, {"a": 4}, True, False, f"record the others: {RECORD(5)}, then {ACCEPT}"),
        ({"a": 4}, {"a": 5}, True, False, ACCEPT),
        ({"a": 4}, {"a": 6}, True, True, ACCEPT),
        ({"a": 4}, {"a": 5}, False, False, f"record the others first: {RECORD(5)}, then accept"),
        ({"a": 4}, {"a": 4}, True, True,
         f"record the others: {RECORD(5)} --fanout-agent=support, then pytest --fanout-budget, then {ACCEPT}"),
        ({"a": 4}, {"a": 4}, False, True,
         f"record the others first: {RECORD(5)} --fanout-agent=support, then pytest --fanout-budget, then accept"),
    ],
)  # fmt: skip
def test_how_an_anchor_gets_its_trials(
    held: dict[str, int], run: dict[str, int], committed: bool, other: bool, mend: str | None
) -> None:
    """By recording them, where the run has none yet; by accepting a run that has."""
    made = of(run, agents=("support", "triage") if other else ("support",))

    said = few_words(build_baseline(of(held), "support"), made, JudgeRules(), is_committed=committed)

    assert said == (mend and f"the anchor holds tasks with only 4 of 5 trials; mend: {mend}")


def test_trials_of_a_class_in_their_order() -> None:
    """Sorted out once for a run, and anew for what may have changed since."""
    run = make_run({"b": [1, 2], "a": [3]})
    both = (*run.tasks, *make_run({"x": [1]}, "aaa").tasks)

    for trials in (both, list(both), both[::-1], both):
        for agent in ("support", "aaa", "zzz"):
            assert trials_of(trials, agent) == tuple(each for each in trials if each.agent == agent)
    growing = list(run.tasks)
    assert len(trials_of(growing, "support")) == 3
    growing.append(run.tasks[0])
    assert len(trials_of(growing, "support")) == 4


# --- secrets ---------------------------------------------------------------------------------------------------------

KEY = {"SHOP_TOKEN": "tea-for-two-42"}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"models_served": ("tea-for-two-42",)}, "baselines/support.json"),
        ({}, None),
    ],
)
def test_a_secret_in_an_anchor_is_not_taken(tmp_path: Path, changes: dict[str, Any], place: str | None) -> None:
    """Whatever of it holds the secret."""
    from pytest_fanout.gate.secrets import refuse_secrets

    run = with_trials(make_run(GROWN), "t03", **changes)
    plan = planned(tmp_path, run)
    settings = replace(SETTINGS, recordings=tmp_path / "none")
    if place is None:
        refuse_secrets(plan, {}, settings, KEY)
        return
    with pytest.raises(FanoutError) as caught:
        refuse_secrets(plan, {}, settings, KEY)
    assert str(caught.value).startswith(f"{place}: not accepted: what would be written there holds the value")


def test_a_secret_in_an_approval_of_the_budget_is_not_taken(tmp_path: Path) -> None:
    """It is committed like any other."""
    from pytest_fanout.gate.secrets import refuse_secrets

    plan = planned(tmp_path, make_run(), None, None, anchored() | {"budget.toml": LOOSE})
    (approval,) = plan.budget
    plan = replace(plan, budget=(replace(approval, reason="The token is tea-for-two-42."),))

    with pytest.raises(FanoutError) as caught:
        refuse_secrets(plan, {}, replace(SETTINGS, recordings=tmp_path / "none"), KEY)
    assert str(caught.value).startswith(f"{approval.path}: not accepted")


# --- costs -----------------------------------------------------------------------------------------------------------

CLASS = ClassResult("support", "pass", "same", (), (), 20, 20, 20)
GREEN = Verdict("pass", (CLASS,), (), Base(BASE, "x"), Head(HEAD))


@pytest.mark.parametrize(
    ("run", "files", "rev", "read"),
    [
        (make_run(), anchored(), BASE, True),
        (make_run(GROWN), anchored(), BASE, True),
        (without(make_run(), "t20", defined=False), anchored(), BASE, False),
        (make_run({**TWENTY, "new": [1]}), anchored(), BASE, False),
        (make_run(), {}, BASE, False),
        (with_trials(make_run(), "t01", status="stale"), anchored(), BASE, False),
        (make_run(), anchored(), None, True),  # HEAD's own, which is the same here
    ],
)
def test_call_sites_are_those_of_the_same_tasks(
    tmp_path: Path, run: Run, files: Files, rev: str | None, read: bool
) -> None:
    """Beside fewer or more they would show what nobody changed; a class that was not measured has none."""
    held = files | {"support.sites.json": "{"}
    repo = Trees({BASE: held, HEAD: held})
    verdict = replace(GREEN, base=Base(rev, "x"))
    if run.tasks[0].status == "stale":
        verdict = replace(verdict, classes=(replace(verdict.classes[0], verdict="stale"),))
    settings = Settings(tmp_path, "pyproject.toml", tmp_path / "baselines", tmp_path / "recordings", {})

    found = with_costs(verdict, run, repo, settings)  # type: ignore[arg-type]

    assert (found.verdict == "integrity") == read
    assert with_costs(verdict, run, None, settings).verdict == "pass"
    assert len(found.projections) == (verdict.classes[0].verdict != "stale")


@pytest.mark.parametrize("session", [SessionFacts(), SessionFacts(partial=True), SessionFacts(shard="1/2")])
def test_a_part_is_projected_beside_the_same_part(tmp_path: Path, session: SessionFacts) -> None:
    """One task of 20 calls beside itself; a whole run beside all of its anchor, of 10.5 calls on the mean."""
    (tmp_path / "baselines").mkdir()
    demand = "[demand.support]\ndau = 864_000\ntasks_per_user_day = 1\npeak_factor = 1\n"
    (tmp_path / "baselines/fleet.toml").write_text(f"schema = 1\n{demand}")
    settings = Settings(tmp_path, "pyproject.toml", tmp_path / "baselines", tmp_path / "recordings", {})
    run = make_run({"t20": [20]}, session=session)

    found = with_costs(GREEN, run, Trees({BASE: anchored(), HEAD: {}}), settings)  # type: ignore[arg-type]

    (projection,) = found.projections
    assert projection.base is not None
    assert projection.run.calls_per_s == pytest.approx(200)
    assert projection.base.calls_per_s == pytest.approx(200 if session != SessionFacts() else 105)
    assert (found.fleet is None) == (session != SessionFacts())
