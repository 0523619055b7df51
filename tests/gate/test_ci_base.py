"""What CI says of the change is borne out by the commits of real clones, or there is no base."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from gate_world import World, git, make_run, started

from pytest_fanout.records import Base
from pytest_fanout.store.git import Repository

DEPTH = "set `fetch-depth: 0` on actions/checkout (elsewhere: `git fetch --unshallow`)"
GITLAB_DEPTH = 'set `GIT_DEPTH: "0"` under `variables:` of the job'


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """origin/main moved on after feature forked, and HEAD is the merge of both."""
    folder = tmp_path_factory.mktemp("ci")
    origin = started(folder / "origin")
    git(origin.root, "tag", "fork", "main")
    git(origin.root, "switch", "-q", "main")
    origin.write("main.txt", "x")
    origin.commit("main moved")
    git(folder, "clone", "-q", str(origin.root), "clone")
    clone = folder / "clone"
    git(clone, "switch", "-q", "--detach", "origin/main")
    git(clone, "merge", "-q", "--no-ff", "-m", "merge", "origin/feature")
    git(clone, "branch", "-D", "-q", "main")
    return folder


@pytest.fixture
def world(tmp_path: Path, template: Path) -> World:
    """A clone as CI makes it, beside its origin."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return World(tmp_path / "clone", tmp_path / "clone")


def of(world: World, rev: str) -> str:
    return git(world.root, "rev-parse", rev)


def base(world: World, payload: dict[str, Any]) -> Base:
    """The base that GitHub's event leads to."""
    path = world.root.parent / "event.json"
    path.write_text(json.dumps(payload))
    return world.repo.resolve_base(None, {"CI": "true", "GITHUB_EVENT_PATH": str(path)})


def pull(world: World, **changes: str) -> dict[str, Any]:
    sides = {"base": of(world, "origin/main"), "head": of(world, "origin/feature"), "ref": "main"} | changes
    return {"pull_request": {"base": {"sha": sides["base"], "ref": sides["ref"]}, "head": {"sha": sides["head"]}}}


def pushed(world: World, **changes: str) -> dict[str, Any]:
    event: dict[str, Any] = {"before": of(world, "fork"), "after": of(world, "HEAD"), "ref": "refs/heads/main"}
    return {**event, **changes, "repository": {"default_branch": "main"}}


def test_the_merge_of_a_pull_request(world: World) -> None:
    """The first parent is on the target branch, the second is the change."""
    assert base(world, pull(world)) == Base(of(world, "origin/main"), "event.pull_request:HEAD^1")


def test_another_commit_than_the_change_has_no_base(world: World) -> None:
    """A job that checks out the target branch judges a tree that does not hold the change: it would always be green."""
    git(world.root, "switch", "-q", "--detach", "origin/main")
    change, head = of(world, "origin/feature"), of(world, "HEAD")

    found = base(world, pull(world, base=of(world, "fork")))

    said = f"HEAD is {head[:12]}, which does not hold the change {change[:12]} that CI is to test"
    problem = f"{said}: check that commit out, or, where HEAD is its merge, {DEPTH}"
    assert found == Base(None, "event.pull_request", problem=problem)


def test_a_change_that_moved_on_is_still_compared(world: World) -> None:
    """The branch was checked out by its name, and holds a commit more than the event knew."""
    git(world.root, "switch", "-q", "--detach", "origin/feature")
    event = pull(world)
    world.commit("one more")

    assert base(world, event).rev == of(world, "fork")


def test_a_merge_that_the_branch_made_itself_is_no_base(world: World) -> None:
    """HEAD^1 is a commit of the author's own, with whatever anchors: only what the target branch holds is accepted."""
    git(world.root, "switch", "-q", "--detach", "fork")
    evil = world.commit("anchors of my own")
    git(world.root, "merge", "-q", "--no-ff", "-m", "merge", "origin/feature")

    found = base(world, pull(world))

    said = f"the base commit {evil} is not on the target branch main: run CI again on its present state"
    assert found == Base(None, "event.pull_request", problem=said)


def test_a_pull_request_without_its_head_has_no_base(world: World) -> None:
    """A payload that was cut says nothing of what is to be tested."""
    event = pull(world)
    del event["pull_request"]["head"]

    assert base(world, event).rev is None


def test_a_queue_tests_what_it_names(world: World) -> None:
    """HEAD is the queue's own commit, on top of its base; anything else has no base."""
    main, head = of(world, "origin/main"), of(world, "HEAD")
    assert base(world, {"merge_group": {"base_sha": main, "head_sha": head}}) == Base(
        main, "event.merge_group.base_sha"
    )

    other = base(world, {"merge_group": {"base_sha": main, "head_sha": main}})
    assert (other.rev, other.source) == (None, "event.merge_group")

    git(world.root, "switch", "-q", "--detach", "fork")
    beside = base(world, {"merge_group": {"base_sha": main, "head_sha": of(world, "fork")}})
    said = f"HEAD does not hold the base commit {main} of its queue: {DEPTH}"
    assert beside == Base(None, "event.merge_group", problem=said)


def test_a_push_to_the_default_branch(world: World) -> None:
    """Compared with what was there before; a run on another commit than the pushed one has no base."""
    assert base(world, pushed(world)) == Base(of(world, "fork"), "event.push.before")
    assert base(world, pushed(world, before="0" * 40)) == Base(of(world, "origin/main"), "event.push:HEAD^1")
    assert base(world, pushed(world, after=of(world, "fork"))).rev is None


@pytest.mark.parametrize("before", ["the first push", "0" * 40], ids=["pushed again", "pushed first"])
def test_a_push_beside_the_default_branch_is_no_step_of_its_own(world: World, before: str) -> None:
    """What one push of a branch loosened is not accepted by the next one, nor by a first push of two commits."""
    git(world.root, "switch", "-q", "--detach", "origin/main")
    first = world.commit("an anchor that nobody approved")
    world.commit("nothing")
    known = first if before == "the first push" else before

    found = base(world, pushed(world, before=known, after=of(world, "HEAD"), ref="refs/heads/feature"))

    assert found == Base(of(world, "origin/main"), "event.push to feature: merge-base origin/main")


@pytest.mark.parametrize("payload", [{"inputs": {"tasks": "stale"}}, {"schedule": "17 4 * * 1"}, {"action": "created"}])
def test_a_run_by_hand_or_on_a_schedule(world: World, payload: dict[str, Any]) -> None:
    """On a branch: where it left the default branch. On that branch itself: HEAD, which is no gate result."""
    event = {**payload, "repository": {"default_branch": "main"}}
    assert base(world, event) == Base(of(world, "origin/main"), "event: merge-base origin/main")

    git(world.root, "switch", "-q", "--detach", "origin/main")
    assert base(world, event) == Base(of(world, "origin/main"), "event: merge-base origin/main", False)


def test_a_default_branch_of_another_name(world: World) -> None:
    """The event names it: a branch `main` that lies about beside it is not taken for it."""
    git(world.root, "update-ref", "refs/remotes/origin/trunk", "origin/main")
    git(world.root, "update-ref", "refs/remotes/origin/main", "HEAD")
    event = {"inputs": {}, "repository": {"default_branch": "trunk"}}

    assert base(world, event) == Base(of(world, "origin/trunk"), "event: merge-base origin/trunk")

    git(world.root, "update-ref", "-d", "refs/remotes/origin/trunk")
    said = f"no commit that HEAD shares with the default branch trunk is in this clone: {DEPTH}"
    assert base(world, event) == Base(None, "event", problem=said)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_shallow_clone_of_a_branch_hides_the_default_branch(tmp_path: Path, world: World, depth: int) -> None:
    """Started by hand on a branch, checked out as actions/checkout does by default."""
    git(tmp_path, "clone", "-q", f"--depth={depth}", "--single-branch", "-b", "feature", world_uri(tmp_path), "shallow")
    shallow = World(tmp_path / "shallow", tmp_path / "shallow")

    found = base(shallow, {"inputs": {}, "repository": {"default_branch": "main"}})

    said = f"no commit that HEAD shares with the default branch main is in this clone: {DEPTH}"
    assert found == Base(None, "event", problem=said)


def world_uri(tmp_path: Path) -> str:
    return (tmp_path / "origin").as_uri()


# --- GitLab ----------------------------------------------------------------------------------------------------------


def gitlab(world: World, **variables: str) -> Base:
    environ = {"CI": "true", "GITLAB_CI": "true", "CI_DEFAULT_BRANCH": "main", "CI_COMMIT_SHA": of(world, "HEAD")}
    return world.repo.resolve_base(None, environ | variables)


def test_gitlab_tests_the_branch_of_a_merge_request(world: World) -> None:
    """HEAD is the branch's tip; the base is where it left the target branch, as GitLab names it."""
    git(world.root, "switch", "-q", "--detach", "origin/feature")

    found = gitlab(world, CI_MERGE_REQUEST_TARGET_BRANCH_NAME="main", CI_MERGE_REQUEST_DIFF_BASE_SHA=of(world, "fork"))

    assert found == Base(of(world, "fork"), "gitlab merge request.base.sha")


def test_gitlab_tests_the_merged_result_or_a_train(world: World) -> None:
    """HEAD is a merge whose second parent is the branch's tip: the first one is the base."""
    found = gitlab(
        world,
        CI_MERGE_REQUEST_TARGET_BRANCH_NAME="main",
        CI_MERGE_REQUEST_DIFF_BASE_SHA=of(world, "fork"),
        CI_MERGE_REQUEST_SOURCE_BRANCH_SHA=of(world, "origin/feature"),
    )

    assert found == Base(of(world, "origin/main"), "gitlab merge request:HEAD^1")


def test_a_pipeline_file_cannot_name_a_base_of_its_own_in_gitlab(world: World) -> None:
    """`variables:` outrank what GitLab sets; a base that the target branch does not hold is none."""
    git(world.root, "switch", "-q", "--detach", "origin/feature")
    evil = world.commit("anchors of my own")
    world.commit("nothing")

    found = gitlab(world, CI_MERGE_REQUEST_TARGET_BRANCH_NAME="main", CI_MERGE_REQUEST_DIFF_BASE_SHA=evil)

    said = f"the base commit {evil} is not on the target branch main: run CI again on its present state"
    assert found == Base(None, "gitlab merge request", problem=said)


@pytest.mark.parametrize("name", ["feature~1", "feature^", "feature@{0}", "feature^{commit}", "feature..main"])
def test_a_branch_is_not_named_by_a_revision(world: World, name: str) -> None:
    """An older commit of one's own branch, where its anchors stand already, is no target branch."""
    git(world.root, "switch", "-q", "--detach", "origin/feature")
    own = world.commit("anchors of my own")
    git(world.root, "update-ref", "refs/remotes/origin/feature", world.commit("nothing"))

    asked = gitlab(world, CI_MERGE_REQUEST_TARGET_BRANCH_NAME=name, CI_MERGE_REQUEST_DIFF_BASE_SHA=own)
    pushed = gitlab(world, CI_DEFAULT_BRANCH=name, CI_COMMIT_BRANCH="feature", CI_PIPELINE_SOURCE="web")

    assert asked == Base(
        None, "gitlab merge request", problem=f"the target branch {name} is not in this clone: {GITLAB_DEPTH}"
    )
    assert pushed.rev is None


def test_a_push_to_a_branch_that_is_not_there_has_no_base(world: World) -> None:
    """A pipeline's file that calls its own branch the default one, by a name that no clone knows, is not believed."""
    git(world.root, "switch", "-q", "--detach", "origin/feature")
    own = world.commit("anchors of my own")
    world.commit("nothing")

    found = gitlab(
        world, CI_PIPELINE_SOURCE="push", CI_DEFAULT_BRANCH="x", CI_COMMIT_BRANCH="x", CI_COMMIT_BEFORE_SHA=own
    )

    assert found == Base(None, "gitlab push", problem=f"the default branch x is not in this clone: {GITLAB_DEPTH}")


def test_gitlab_has_to_fetch_the_target_branch(world: World) -> None:
    """With its default depth only the branch itself is there, and nothing bears the base out."""
    git(world.root, "update-ref", "-d", "refs/remotes/origin/main")

    found = gitlab(world, CI_MERGE_REQUEST_TARGET_BRANCH_NAME="main", CI_MERGE_REQUEST_DIFF_BASE_SHA=of(world, "fork"))

    said = f"the target branch main is not in this clone: {GITLAB_DEPTH}"
    assert found == Base(None, "gitlab merge request", problem=said)


def test_gitlab_pushes_and_schedules(world: World) -> None:
    """A push to the default branch is a step; a branch's push, a schedule and a run by hand are not."""
    git(world.root, "switch", "-q", "--detach", "origin/main")
    before = {"CI_COMMIT_BEFORE_SHA": of(world, "fork")}
    step = gitlab(world, CI_PIPELINE_SOURCE="push", CI_COMMIT_BRANCH="main", **before)
    assert step == Base(of(world, "fork"), "gitlab push.before")
    assert not gitlab(world, CI_PIPELINE_SOURCE="schedule", CI_COMMIT_BRANCH="main").is_gate

    git(world.root, "switch", "-q", "--detach", "origin/feature")
    world.commit("more")
    for variables in ({"CI_PIPELINE_SOURCE": "push", **before}, {"CI_PIPELINE_SOURCE": "web"}):
        found = gitlab(world, CI_COMMIT_BRANCH="feature", **variables)
        assert found == Base(of(world, "fork"), "gitlab pipeline: merge-base origin/main")


def test_gitlab_does_not_read_a_github_event(world: World) -> None:
    """A file in the repository is no event of the CI that runs."""
    path = world.write("event.json", json.dumps({"before": of(world, "HEAD"), "after": of(world, "HEAD")}))

    found = gitlab(world, GITHUB_EVENT_PATH=str(path), CI_PIPELINE_SOURCE="web", CI_COMMIT_BRANCH="feature")

    assert found.source == "gitlab pipeline: merge-base origin/main"


# --- other places ----------------------------------------------------------------------------------------------------


def test_a_plain_runner_finds_the_fork_point(world: World) -> None:
    """CI=true and a clone with the main branch are enough."""
    assert world.repo.resolve_base(None, {"CI": "true"}) == Base(of(world, "origin/main"), "merge-base origin/HEAD")


def test_an_archive_without_git_has_no_base(tmp_path: Path) -> None:
    """A tree that was unpacked is measured, and is never within budget."""
    world = started(tmp_path / "project")
    (tmp_path / "unpacked").mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=world.root, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(tmp_path / "unpacked")], input=archive, check=True)

    assert Repository.find(tmp_path / "unpacked") is None


def test_a_submodule_is_judged_by_its_own_commits(tmp_path: Path) -> None:
    """The project is a submodule: its repository decides, and an event of the outer one names no commit of it."""
    inner = started(tmp_path / "inner")
    outer = World.make(tmp_path / "outer")
    git(outer.root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.root), "shop")
    before = outer.commit("with a submodule")
    after = outer.commit("next")
    shop = World(outer.root / "shop", outer.root / "shop")

    assert shop.repo.root == (outer.root / "shop").resolve()
    assert shop.judge(make_run(), base="origin/main").verdict == "pass"
    assert base(shop, {"before": before, "after": after}).rev is None


def test_a_worktree_and_a_subfolder_share_the_history(tmp_path: Path) -> None:
    """A linked work tree, detached, with the project in a folder of it."""
    world = started(tmp_path / "project", subfolder="services/shop")
    world.commit("feature")
    git(world.root, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"), "feature")
    linked = World(tmp_path / "linked", tmp_path / "linked" / "services" / "shop")

    assert linked.repo.prefix == "services/shop/"
    assert linked.repo.resolve_base(None, {}) == Base(of(world, "main"), "merge-base main")


def test_a_work_tree_whose_repository_is_gone_has_none(tmp_path: Path) -> None:
    """A linked work tree or a submodule that was copied elsewhere points nowhere."""
    world = started(tmp_path / "project")
    git(world.root, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"), "feature")
    shutil.rmtree(world.root)

    assert Repository.find(tmp_path / "linked") is None
