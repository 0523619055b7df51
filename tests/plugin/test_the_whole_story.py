"""Two stories from begin to end, on a real repository with a bare remote: a growth that is approved, and a hotfix.

pytest runs in real processes; the reviewer's commands run in this one.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner, Result
from project import Project

from pytest_fanout.cli.baseline import main
from pytest_fanout.config import find_settings
from pytest_fanout.gate import evaluate
from pytest_fanout.gate.inputs import inputs_now
from pytest_fanout.records import Run
from pytest_fanout.report.json import document
from pytest_fanout.store.evalsets import read_evalset
from pytest_fanout.store.git import Repository
from pytest_fanout.store.reports import read_report, write_report

pytestmark = pytest.mark.slow

REASON = "Two steps an item are worth their price, FAN-212."


@pytest.fixture
def shop(accepted: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The accepted project with a bare remote, on a developer's machine."""
    for name in [name for name in os.environ if name == "CI" or name.startswith("GITHUB_")]:
        monkeypatch.delenv(name)
    origin = accepted.root.parent / "origin.git"
    accepted.git("init", "-q", "--bare", "-b", "main", str(origin))
    accepted.git("remote", "add", "origin", str(origin))
    accepted.git("push", "-q", "-u", "origin", "main")
    monkeypatch.chdir(accepted.root)
    for name in ("OPENAI_BASE_URL", "PYTEST_ADDOPTS", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.setenv(name, accepted.environ[name])
    return accepted


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


def two_steps(shop: Project) -> None:
    """The prompt changes, and the agent takes two steps an item: every task costs more."""
    shop.edit("shop.py", '"Plan briefly."', '"Plan with care."')
    shop.edit("shop.py", "STEPS_PER_ITEM = 1", "STEPS_PER_ITEM = 2")


def test_from_a_prompt_to_a_merge_and_through_a_conflict(shop: Project) -> None:
    """Stale, recorded and red, accepted and red, committed and green, merged; the next branch's conflict is mended."""
    shop.git("switch", "-q", "-c", "feature")
    two_steps(shop)
    shop.commit("plan with care")
    assert (done := shop.pytest()).verdict == "stale", done.text
    done = shop.pytest("--fanout-mode=record")
    assert (done.exit, done.agent["outcome"]) == (1, "over"), done.text

    assert call("accept", "--reason", REASON, "--yes").exit_code == 0
    done = shop.pytest()
    assert (done.exit, done.agent["outcome"]) == (1, "over"), "an approval that is not committed allows nothing"
    shop.commit("two steps, approved")
    assert (done := shop.pytest()).verdict == "approved", done.text
    assert (call("verify").exit_code, done.exit) == (0, 0)

    # CI: the merge of the pull request in a clone, judged against what main is now
    shop.git("push", "-q", "origin", "feature")
    ci = Project(shop.root.parent / "ci", shop.base_url)
    ci.git("clone", "-q", str(shop.root.parent / "origin.git"), ".")
    for key, value in (("user.name", "CI"), ("user.email", "ci@example.com")):
        ci.git("config", key, value)
    head, base = ci.git("rev-parse", "origin/feature"), ci.git("rev-parse", "origin/main")
    ci.git("switch", "-q", "--detach", "origin/main")
    ci.git("merge", "-q", "--no-ff", "-m", "merge of the pull request", "origin/feature")
    event = ci.root.parent / "event.json"
    event.write_text(json.dumps({"pull_request": {"head": {"sha": head}, "base": {"sha": base, "ref": "main"}}}))
    done = ci.pytest(CI="true", GITHUB_EVENT_PATH=str(event), GITHUB_EVENT_NAME="pull_request")
    assert (done.exit, done.verdict) == (0, "approved"), done.text
    assert done.report is not None
    assert done.report["head"]["merges"] == head
    comment = ci.baseline("comment", "--expect-head", head)
    assert (comment.exit, comment.out.splitlines()[0]) == (0, "<!-- pytest-fanout -->")

    # somebody else began before the merge, and changed the same class
    shop.git("switch", "-q", "-c", "next", "main")
    shop.edit("shop.py", '"Work."', '"Work hard."')
    shop.commit("work hard")
    shop.pytest("--fanout-mode=record")
    shop.commit("recorded anew")
    shop.git("push", "-q", "origin", "feature:main")
    shop.git("fetch", "-q")
    with pytest.raises(AssertionError):
        shop.git("merge", "-q", "origin/main")
    done = call("resolve")
    assert done.exit_code == 3, done.output
    assert "no recording fits the merged code for support::task-1, support::task-2, support::task-3:" in done.output
    done = shop.pytest("--fanout-mode=record")
    shop.git("add", "-A")
    shop.git("commit", "-q", "--no-edit")
    if shop.pytest().agent["outcome"] == "over":  # three tasks never show that a new draw is within budget
        assert call("accept", "--reason", "The merged agent, recorded anew.", "--yes").exit_code == 0
        shop.commit("the merge, approved")
    assert (done := shop.pytest()).agent["outcome"] == "within", done.text
    log = call("log").output
    assert REASON in log
    assert "NO APPROVAL" not in log


def here(shop: Project, run: Run) -> None:
    """The report that a replay of the present commit would write: the same trials, for the tree as it is."""
    settings = find_settings(shop.root)
    repo = Repository.find(shop.root)
    assert repo is not None
    run = replace(run, inputs=inputs_now(run, settings), base=repo.resolve_base(None, {}), head=repo.head())
    verdict = evaluate(run, repo, settings, today=datetime.now(UTC).date(), now=int(time.time()))
    write_report(shop.root / "fanout-report.json", document(run, verdict))


def test_a_hotfix_with_a_waiver_and_what_does_not_help(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over budget at night: seven ways round the gate are red; a waiver is not, for a day, and then it is red again."""
    shop.git("switch", "-q", "-c", "hotfix")
    shop.edit("shop.py", "STEPS_PER_ITEM = 1", "STEPS_PER_ITEM = 4")
    shop.commit("hotfix")
    shop.pytest("--fanout-mode=record")
    shop.commit("recorded")
    done = shop.pytest()
    assert (done.exit, done.agent["outcome"]) == (1, "over"), done.text
    run, start = read_report(shop.root / "fanout-report.json"), shop.git("rev-parse", "HEAD")
    anchor = shop.root / "baselines/support.json"
    (first,) = (shop.root / "baselines/approvals").glob("*.json")

    def attack(what: str, code: int, word: str, run: Run = run, commit: bool = True) -> None:
        if commit:
            shop.commit(what)
        here(shop, run)
        done = call("verify")
        assert (done.exit_code, word in done.output) == (code, True), f"{what}: {done.output}"
        shop.git("reset", "-q", "--hard", start)

    attack("nothing", 1, "support: ")

    text = anchor.read_text()
    anchor.write_text(text.replace('"fanout":[', '"fanout":[9,', 1))
    attack("the anchor edited by hand", 4, "integrity")

    copied = json.loads(first.read_text())
    (first.parent / first.name.replace(".json", "-2.json")).write_text(json.dumps(copied))
    attack("an approval copied from history", 1, "support: ")

    budget = shop.root / "baselines/budget.toml"
    budget.write_text('schema = 1\n[default.limits]\n"fanout.p95" = { increase = "900%", at_least = 1 }\n')
    attack("the limit loosened", 1, "budget.toml got looser without an approval")

    tasks = (shop.root / "fixtures/support.jsonl").read_text().splitlines(keepends=True)
    (shop.root / "fixtures/support.jsonl").write_text("".join(tasks[:2]))
    fewer = replace(
        run,
        tasks=tuple(trial for trial in run.tasks if trial.task != "task-3"),
        definitions={"support": {k: v for k, v in run.definitions["support"].items() if k != "task-3"}},
        evalsets={"support": read_evalset(shop.root / "fixtures/support.jsonl", "support").digest},
    )
    attack("the dearest task removed", 3, "task-3", fewer)

    here(shop, run)
    assert call("accept", "--reason", REASON, "--yes").exit_code == 0
    attack("accepted and not committed", 4, "differ", commit=False)
    shop.git("clean", "-q", "-f", "-d", "baselines")

    here(shop, run)
    monkeypatch.setenv("CI", "true")
    assert call("verify", "--base", "HEAD").exit_code == 4
    monkeypatch.delenv("CI")

    done = call("waive", "--agent", "support", "--reason", "Hotfix of the outage, FAN-311.", "--hours", "12", "--yes")
    assert done.exit_code == 0, done.output
    shop.commit("a waiver")
    here(shop, run)
    done = call("verify")
    assert (done.exit_code, "waived: waived" in done.output) == (0, True), done.output
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 13 * 3600)
    done = call("verify")
    assert (done.exit_code, "over budget" in done.output) == (1, True), done.output
