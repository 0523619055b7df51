"""From two trees of files to a verdict, without git: each way in which a tree, a base or a run stands in the way."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from gate_world import EVALSET, NOW, TODAY, TWENTY, make_run, slugs

from pytest_fanout.config import AgentSettings, Settings
from pytest_fanout.errors import GitError
from pytest_fanout.gate import evaluate
from pytest_fanout.gate.costs import anchors_beside
from pytest_fanout.gate.judgement import anchors_between
from pytest_fanout.gate.past import past_of, trends_of
from pytest_fanout.judge import stats_of
from pytest_fanout.records import Approval, Base, Baseline, Change, Head, Past, Problem, Run, SessionFacts, Verdict
from pytest_fanout.store.approvals import approval_name, write_approval
from pytest_fanout.store.baselines import build_baseline, write_baseline
from pytest_fanout.store.git import Entry

BASE, HEAD = "b" * 40, "c" * 40
GROWN = {**TWENTY, "t19": [25], "t20": [25]}
LOOSE, STRICT = (
    f'schema = 1\n[default.limits]\n"fanout.p95" = {{ increase = "{share}%" }}\n"tokens.p95" = "none"\n'
    for share in (90, 10)
)
Files = dict[str, bytes | str]


@dataclass
class Trees:
    """Stands for a repository: what each commit holds below ``baselines``, and which lie between two."""

    commits: Mapping[str, Files]
    between: Sequence[str] = ()
    broken: bool = False
    asked: list[str] = field(default_factory=list)

    def resolve(self, rev: str) -> str | None:
        return rev if rev in self.commits else None

    def head(self) -> Head:
        return Head(HEAD)

    def prefetch(self, rev: str, folder: str) -> None:
        if self.broken:
            raise GitError("git-failed", "git died")

    def read(self, rev: str, path: str) -> bytes | None:
        data = self.commits[rev].get(path.removeprefix("baselines/"))
        return data.encode() if isinstance(data, str) else data

    def list(self, rev: str, folder: str) -> Mapping[str, Entry]:
        below = folder.removeprefix("baselines").strip("/")
        names = [name.removeprefix(f"{below}/") for name in self.commits[rev] if name.startswith(below)]
        return {
            name: Entry("100644", hashlib.sha256(str(self.commits[rev]).encode()).hexdigest())
            for name in names
            if "/" not in name
        }

    def history(self, base: str, head: str, path: str) -> Sequence[str]:
        self.asked.append(path)
        return self.between


SETTINGS = Settings(
    Path("/p"), "pyproject.toml", Path("/p/baselines"), Path("/elsewhere"),
    {"support": AgentSettings("support", "x:y", Path("/p/support.jsonl"))},
)  # fmt: skip


def anchored(run: Run | None = None, agent: str = "support") -> Files:
    made = build_baseline(run or make_run(), agent)
    return {f"{agent}.json": write_baseline(made, stats_of(made))}


def approved(origin: Baseline | None, **changes: Any) -> Files:
    made = Approval(
        "", "baseline", "support", origin.digest if origin else None, None, EVALSET,
        {"fanout.p95": 27, "tokens.p95": 3000}, (Change("metric", "fanout.p95", "all", 19, 25),),
        "The planner now verifies its citations.", "dana@example.com", "2026-11-28", "5b1f0c9e7d3a2468",
    )  # fmt: skip
    made = replace(made, **changes)
    return {f"approvals/{approval_name(made)}": write_approval(made)}


def judged(
    run: Run,
    base: Files | None,
    head: Files,
    *,
    rev: str | None = BASE,
    between: Sequence[str] = (),
    more: Mapping[str, Files] | None = None,
    found: tuple[Base, Head] | None = None,
) -> Verdict:
    commits = {HEAD: head, **(more or {})}
    if base is not None:
        commits[BASE] = base
    of_run = found or (Base(rev, "test", is_gate=rev != HEAD), Head(HEAD))
    run = replace(run, base=of_run[0], head=of_run[1])
    return evaluate(run, Trees(commits, between), SETTINGS, today=TODAY, now=NOW)  # type: ignore[arg-type]


def verdicts(found: Verdict) -> dict[str, str]:
    return {result.agent: result.verdict for result in found.classes}


# --- commits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        (Base(BASE, "test"), Head(HEAD), []),
        (Base(BASE, "test", is_gate=False), Head(HEAD), ["notice not-a-gate"]),
        (Base(HEAD, "test"), Head(HEAD), ["notice not-a-gate"]),
        (Base(BASE, "test"), Head(HEAD, dirty=True), ["notice uncommitted"]),
        (Base(HEAD, "test"), Head(HEAD, dirty=True), ["notice not-a-gate", "notice uncommitted"]),
        (Base(None, "test"), Head(HEAD), ["no-base no-base"]),
        (Base("a" * 40, "test"), Head(HEAD), ["no-base no-base"]),
        (Base("d" * 40, "test"), Head(HEAD), ["no-base no-base"]),
        (Base(BASE, "test"), Head("a" * 40), ["no-base no-base"]),
        (Base(BASE, "test"), Head("d" * 40), ["no-base no-base"]),
        (Base(BASE, "test"), Head(None), ["no-base no-commit"]),
    ],
)
def test_what_stands_against_the_two_commits(base: Base, head: Head, said: list[str]) -> None:
    """Where one is not there nothing is within budget; a base that is HEAD, and what is not committed, are told."""
    found = judged(make_run(), anchored(), anchored(), found=(base, head))

    assert [f"{problem.verdict} {problem.slug}" for problem in found.problems] == said
    assert found.verdict == ("no-base" if any(word.startswith("no-base") for word in said) else "pass")


@pytest.mark.parametrize(
    ("rev", "verdict"), [(BASE, "unapproved"), (HEAD, "pass"), (None, "no-base"), ("d" * 40, "no-base")]
)
def test_without_a_base_the_numbers_stand_beside_heads_own_anchor(rev: str | None, verdict: str) -> None:
    """p95 25 at HEAD beside 19 at the base, and a run of 25."""
    found = judged(make_run(GROWN), anchored(), anchored(make_run(GROWN)), rev=rev)

    (metric,) = [m for m in found.classes[0].metrics if m.name == "fanout.p95"]
    assert (found.verdict, metric.base) == (verdict, 19 if rev == BASE else 25)


# --- classes ---------------------------------------------------------------------------------------------------------

PART = SessionFacts(partial=True, expected=20)
SPENT = Problem("spend-limit", "spent", "incomplete", "triage")


@pytest.mark.parametrize(
    ("session", "ci", "problems", "judges"),
    [
        (SessionFacts(expected=20), False, (), True),
        (PART, False, (), False),
        (PART, True, (), True),
        (SessionFacts(shard="1/2"), False, (), False),
        (SessionFacts(shard="1/2"), True, (), False),
        (PART, False, (SPENT,), True),  # its turn never came
        (PART, False, (replace(SPENT, slug="aaa"),), False),
        (PART, False, (replace(SPENT, slug="zzz"),), False),
        (PART, False, (replace(SPENT, agent="aaa"),), False),
        (PART, False, (replace(SPENT, agent="zzz"),), False),
        (PART, False, (replace(SPENT, agent=None),), False),
    ],
)
def test_a_class_of_which_nothing_ran(
    session: SessionFacts, ci: bool, problems: tuple[Problem, ...], judges: bool
) -> None:
    """A part leaves it out, but in CI; so does a shard; a limit on spending does not."""
    files = anchored() | anchored(make_run(agent="triage"), "triage")
    run = make_run(session=session, ci=ci, problems=problems, agents=("support", "triage"))

    assert ("triage" in verdicts(judged(run, files, files))) == judges


def test_a_class_whose_anchor_is_broken_is_told_with_it() -> None:
    """Also where a part left it out; one that nobody lists is told of the run as a whole; the others are judged."""
    files = anchored() | {"triage.json": "{", "zzz.json": "["}
    found = judged(make_run(session=PART, agents=("support", "triage")), anchored(), files)

    assert (found.verdict, verdicts(found)) == ("integrity", {"support": "pass", "triage": "integrity"})
    assert [problem.agent for problem in found.classes[1].problems if problem.verdict == "integrity"] == ["triage"]
    assert [problem.agent for problem in found.problems if problem.verdict == "integrity"] == ["zzz"]


@pytest.mark.parametrize("shard", [None, "1/2"])
@pytest.mark.parametrize(
    ("of_run", "verdict"), [((), "pass"), (("unapproved",), "unapproved"), (("stale",), "stale"), (("notice",), "pass")]
)
def test_a_shard_without_a_class_is_no_verdict_either(shard: str | None, of_run: tuple[str, ...], verdict: str) -> None:
    """What is worse than that stays as it is."""
    run = replace(
        make_run({}, agents=(), definitions={}, evalsets={}),
        session=SessionFacts(shard=shard),
        problems=tuple(Problem("x", "y", word) for word in of_run),
    )
    found = judged(run, {}, {})
    worse = {"stale": "stale"}.get(verdict, "shard")

    assert found.verdict == (worse if shard else {"stale": "incomplete"}.get(verdict, "incomplete"))


def test_a_problem_is_told_once() -> None:
    """Of one slug and text; another text is another problem."""
    twice = Problem("x", "y", "notice")
    run = make_run(problems=(twice, twice, replace(twice, text="z"), replace(twice, slug="w")))

    assert [(p.slug, p.text) for p in judged(run, anchored(), anchored()).problems] == [
        ("x", "y"), ("x", "z"), ("w", "y")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("base", "head", "session", "said"),
    [
        ("", "ghost", {}, "invalid"),
        ("ghost", "ghost", {}, "notice"),
        ("ghost", "", {}, None),
        ("aaa", "ghost", {}, "invalid"),
        ("", "support", {}, None),
        ("", "ghost", {"partial": True}, None),
        ("", "ghost", {"shard": "1/2"}, None),
    ],
)
def test_a_limit_of_a_class_that_is_nowhere(base: str, head: str, session: dict[str, Any], said: str | None) -> None:
    """A misspelt name is invalid; an old entry, which the base has too, is told. A part does not know all classes."""
    budgets = [
        {"budget.toml": LOOSE + (f'[agents.{name}.limits]\n"fanout.p95" = {{ max = 99 }}\n' if name else "")}
        for name in (base, head)
    ]
    run = make_run(session=SessionFacts(expected=20, **session))
    found = judged(run, anchored() | budgets[0], anchored() | budgets[1])

    told = {problem.verdict for problem in found.problems if problem.slug == "budget-of-no-class"}
    assert told == ({said} if said else set())


def test_names_of_no_class_are_all_told() -> None:
    """With those that there are."""
    budget = LOOSE + "".join(f'[agents.{name}.limits]\n"fanout.p95" = {{ max = 9 }}\n' for name in ("two", "one"))
    found = judged(make_run(), anchored(), anchored() | {"budget.toml": budget})

    (text,) = [problem.text for problem in found.problems if problem.slug == "budget-of-no-class"]
    assert text == (
        "budget.toml has an entry for one, two, and no class is called so: it limits nothing; mend: name one of "
        "support in [agents.<class>]"
    )


# --- approvals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "missed"),
    [
        ({}, True),
        ({"nonce": "5b1f0c9e7d3a2468"}, False),
        ({"reason": "Another reason altogether, that is."}, True),
        ({"nonce": "f" * 16}, True),
    ],
)
def test_an_approval_is_kept_by_all_that_it_says(head: dict[str, str], missed: bool) -> None:
    """15 -> 19 within the window: HEAD has to hold the file as the base does, under whatever name."""
    said = {"requested_on": "2026-11-01", "changes": (Change("metric", "fanout.p95", "all", 15, 19),)}
    (old,) = approved(None, **said).values()
    kept = (
        {"approvals/2026-11-01-support-first-2.json": next(iter(approved(None, **said, **head).values()))}
        if head
        else {}
    )

    found = judged(make_run(), anchored() | {"approvals/2026-11-01-support-first.json": old}, anchored() | kept)

    assert ("approval-removed" in slugs(found)) == missed


def test_a_looser_budget_by_an_approval_holds_and_one_without_does_not() -> None:
    """A run of 25 is within 90 % and beyond 10 %."""
    from pytest_fanout.store.budget import parse_budget

    digests = [parse_budget(text.encode()).digest for text in (STRICT, LOOSE)]
    given = approved(
        None, kind="budget", subject="budget", from_digest=digests[0], to_digest=digests[1], evalset=None, ceilings={},
        changes=(Change("budget", "x", None, 1, 2),),
    )  # fmt: skip

    def held(*files: Files) -> Verdict:
        head = anchored() | {"budget.toml": LOOSE}
        for each in files:
            head |= each
        return judged(make_run(GROWN), anchored() | {"budget.toml": STRICT}, head)

    assert (held(given).verdict, slugs(held(given)) & {"budget-approved", "budget-loosened"}) == (
        "pass", {"budget-approved"}
    )  # fmt: skip
    assert verdicts(held()) == {"support": "regressed"}
    (text,) = [problem.text for problem in held().problems if problem.slug == "budget-loosened"]
    assert text == (
        "budget.toml got looser without an approval: default.limits.fanout.p95.increase 10% -> 90% (HEAD holds no "
        'approval for it); mend: fanout-baseline accept --reason "…"'
    )


# --- anchors in between ----------------------------------------------------------------------------------------------


def test_an_anchor_on_the_way_is_found_behind_broken_and_missing_ones() -> None:
    """Newest first, as git tells them; without a base there is no way."""
    more: dict[str, Files] = {"1": {"support.json": "{"}, "2": {}, "3": anchored(), "4": anchored(make_run(GROWN))}
    repo = Trees(more, ["1", "2", "3", "1", "4"])

    found = anchors_between(repo, BASE, HEAD, SETTINGS, "support")  # type: ignore[arg-type]

    assert [made.digest for made in found] == [build_baseline(make_run(f), "support").digest for f in (TWENTY, GROWN)]
    assert repo.asked == ["baselines/support.json"]
    assert anchors_between(repo, None, HEAD, SETTINGS, "support") == ()  # type: ignore[arg-type]


def test_a_chain_leads_over_an_anchor_that_only_history_holds() -> None:
    """19 -> 25 -> 40, each step with its own approval; where no base was found nobody looks for a way."""
    larger = make_run({**TWENTY, "t19": [40], "t20": [40]})
    first = approved(build_baseline(make_run(), "support"))
    second = approved(
        build_baseline(make_run(GROWN), "support"), ceilings={"fanout.p95": 44, "tokens.p95": 4500}, nonce="0" * 16
    )
    head = anchored(larger) | first | second
    more = {"1": {"support.json": "{"}, "2": anchored(make_run(GROWN))}

    assert judged(larger, anchored(), head, between=["1", "2"], more=more).verdict == "approved"
    assert judged(larger, anchored(), head, between=["1"], more=more).verdict == "unapproved"
    assert judged(larger, None, head, rev="d" * 40, between=["2"], more=more).verdict == "no-base"


# --- the past --------------------------------------------------------------------------------------------------------


def test_the_anchor_beside_a_run_is_the_bases_or_else_heads() -> None:
    """With the commit that holds it; a commit that is none, or not there, has none."""
    files = {BASE: anchored(), HEAD: anchored(make_run(GROWN)) | anchored(make_run(agent="triage"), "triage")}

    def beside(base: str | None, head: str | None) -> dict[str, str]:
        return {agent: rev for agent, (_, rev) in anchors_beside(base, head, Trees(files), SETTINGS).items()}  # type: ignore[arg-type]

    assert beside(BASE, HEAD) == {"support": BASE, "triage": HEAD}
    assert beside(None, HEAD) == beside("d" * 40, HEAD) == {"support": HEAD, "triage": HEAD}
    assert beside(BASE, None) == beside(BASE, "d" * 40) == {"support": BASE}
    assert beside(None, None) == anchors_beside(BASE, HEAD, None, SETTINGS) == {}


def test_where_git_fails_there_is_no_past() -> None:
    """The verdict itself says so; and a verdict on no commit has the past of its base."""
    verdict = judged(make_run(), anchored(), anchored() | approved(None))
    commits = {BASE: anchored(), HEAD: anchored() | approved(None)}

    assert past_of(verdict, Trees(commits, broken=True), SETTINGS) == Past({}, ())  # type: ignore[arg-type]
    assert [t.metric for t in past_of(verdict, Trees(commits), SETTINGS).trends] == ["fanout.p95"]  # type: ignore[arg-type]
    headless = replace(verdict, head=Head(None))
    found = past_of(headless, Trees(commits), SETTINGS)  # type: ignore[arg-type]
    assert (list(found.anchors), found.trends) == (["support"], ())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (Change("metric", "fanout.p95", "all", 19, 25), [("fanout.p95", 25)]),
        (Change("metric", "fanout.p95", None, 19, 25), [("fanout.p95", 25)]),
        (Change("metric", "fanout.p95", "common", 19, 25), []),
        (Change("drift", "fanout.p95", "all", 19, 25), []),
        (Change("task_added", "fanout.p95", "all", 19, 25), []),
        (Change("metric", "pass.share", "all", "20/20", "19/20"), []),
        (Change("metric", "fanout.p95", "all", 19, None), []),
        (Change("metric", "aaa.p95", "all", 1, 0), [("aaa.p95", 0)]),
    ],
)
def test_which_lines_make_a_trend(change: Change, told: list[tuple[str, int]]) -> None:
    """Numbers of all tasks; the lines behind one that makes none are looked at too."""
    made = Approval("p", "baseline", "support", None, None, None, {}, (change, Change("metric", "z.p95", "all", 1, 2)),
                    "a reason", "dana", "2026-11-28", "n")  # fmt: skip

    found = [(trend.metric, trend.steps[0].value) for trend in trends_of([made], "support")]

    assert found == [*told, ("z.p95", 2)]
