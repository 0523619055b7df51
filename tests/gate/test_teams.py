"""Several people at once: what git itself refuses, what it merges, and which approvals still hold after that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from gate_world import TODAY, TWENTY, World, git, make_run

from pytest_fanout.gate import accept
from pytest_fanout.records import Base, Run, Verdict

ROOT = Path(__file__).resolve().parents[2]
TWO = """[tool.fanout.agents.support]
entrypoint = "shop.agents:answer"
evalset = "fixtures/support.jsonl"
[tool.fanout.agents.triage]
entrypoint = "shop.agents:triage"
evalset = "fixtures/triage.jsonl"
"""


def grown(*tasks: str, by: int = 6) -> dict[str, list[int]]:
    """Twenty tasks, some of which take more calls than on main."""
    return {task: [value + by * (task in tasks) for value in values] for task, values in TWENTY.items()}


def both(support: dict[str, list[int]], triage: dict[str, list[int]]) -> Run:
    """One run of the two classes."""
    one, other = make_run(support), make_run(triage, "triage")
    return replace(
        one,
        agents=("support", "triage"),
        tasks=one.tasks + other.tasks,
        definitions={**one.definitions, **other.definitions},
        evalsets={**one.evalsets, **other.evalsets},
    )


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two classes with their anchors on main."""
    world = World.make(tmp_path / "project")
    world.write("pyproject.toml", TWO)
    world.anchor(make_run())
    world.anchor(make_run(TWENTY, "triage"), "triage")
    world.commit("start")
    return world


def branch(world: World, name: str, run: Run, agent: str, base: str = "main") -> None:
    """A pull request: the run is accepted for one class and committed."""
    git(world.root, "switch", "-q", "-c", name, base)
    words: dict[str, Any] = {"reason": f"Worth it, says {name}: see the ticket.", "requested_by": "dana@example.com"}
    accept(
        world.measured(run),
        world.repo,
        world.settings,
        agents=(agent,),
        today=TODAY,
        ci=False,
        base=Base(world.repo.resolve(base), "test"),
        **words,
    )
    world.commit(name)


def merged(world: World, name: str, into: str = "main") -> bool:
    """Whether git merges the branch without a conflict."""
    git(world.root, "switch", "-q", into)
    git(world.root, "merge", "-q", "--no-ff", "-m", f"merge {name}", name, check=False)
    return not git(world.root, "ls-files", "--unmerged")


def judged(world: World, run: Run, base: str) -> Verdict:
    return world.judge(run, base=base)


def test_two_requests_that_change_one_class_conflict(world: World) -> None:
    """Although each moved another task, so that git alone would have made an anchor that nobody measured."""
    branch(world, "one", both(grown("t19", "t20"), TWENTY), "support")
    branch(world, "two", both(grown("t01", by=30), TWENTY), "support")

    assert merged(world, "one")
    assert not merged(world, "two")
    assert "baselines/support.json" in git(world.root, "diff", "--name-only", "--diff-filter=U")


def test_two_requests_that_change_two_classes_merge_and_both_approvals_hold(world: World) -> None:
    """The merge of each is judged against what main was before it, and both together against the start."""
    start = git(world.root, "rev-parse", "main")
    support, triage = grown("t19", "t20"), grown("t18", "t19", "t20", by=9)
    branch(world, "one", both(support, TWENTY), "support")
    branch(world, "two", both(TWENTY, triage), "triage")

    assert merged(world, "one")
    between = git(world.root, "rev-parse", "main")
    assert judged(world, both(support, TWENTY), start).verdict == "approved"
    assert merged(world, "two")

    assert judged(world, both(support, triage), between).verdict == "approved"
    together = judged(world, both(support, triage), start)
    assert {result.agent: result.verdict for result in together.classes} == {
        "support": "approved",
        "triage": "approved",
    }


def test_a_merge_queue_takes_a_chain_of_two_growths_of_one_class(world: World) -> None:
    """B to H1 to H2: the second request was accepted on top of the first; the group is tested from B as a whole."""
    start = git(world.root, "rev-parse", "main")
    first, second = grown("t19", "t20"), grown("t19", "t20", by=12)
    branch(world, "one", both(first, TWENTY), "support")
    branch(world, "two", both(second, TWENTY), "support", base="one")
    git(world.root, "switch", "-q", "-c", "queue", "main")
    assert merged(world, "one", "queue")
    group = git(world.root, "rev-parse", "queue")
    assert merged(world, "two", "queue")

    assert judged(world, both(second, TWENTY), start).verdict == "approved"
    assert judged(world, both(second, TWENTY), group).verdict == "approved"
    # what was approved as a chain covers no more than its last link
    assert judged(world, both(grown("t19", "t20", by=30), TWENTY), start).outcome == "over"


@pytest.mark.parametrize("way", ["squash", "rebase", "merge"])
def test_an_approval_holds_however_the_request_is_merged(world: World, way: str) -> None:
    """It binds content, not commits. Meanwhile main went on, in another class too."""
    support = grown("t19", "t20")
    branch(world, "one", both(support, TWENTY), "support")
    world.write("notes.txt", "a second commit of the branch")
    world.commit("notes")
    triage = grown("t20", by=9)
    branch(world, "other", both(TWENTY, triage), "triage")
    assert merged(world, "other")
    before = git(world.root, "rev-parse", "main")
    if way == "squash":
        git(world.root, "merge", "-q", "--squash", "one")
        world.commit("one, squashed")
    elif way == "rebase":
        git(world.root, "switch", "-q", "one")
        git(world.root, "rebase", "-q", "main")
    else:
        assert merged(world, "one")

    verdict = judged(world, both(support, triage), before)

    assert {result.agent: result.verdict for result in verdict.classes} == {"support": "approved", "triage": "pass"}


def test_the_hooks_for_pre_commit_run_commands_that_exist() -> None:
    """Each entry is one of ours, over the whole project, before a push."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))

    assert [hook["id"] for hook in hooks] == ["fanout-budget", "fanout-verify"]
    for hook in hooks:
        assert hook["entry"].split()[:2] in (["pytest", "--fanout-budget"], ["fanout-baseline", "verify"])
        assert (hook["language"], hook["pass_filenames"], hook["always_run"]) == ("system", False, True)
        assert hook["stages"] == ["pre-push", "manual"]
