"""The base commit of each kind of run, from real clones and event payloads; and how blobs are read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from gate_world import World, git, make_run, started

from pytest_fanout.errors import GitError, IntegrityError
from pytest_fanout.records import Base
from pytest_fanout.store import git as git_module
from pytest_fanout.store.git import Repository

SEE = "  see: docs/messages.md#"
DEPTH = "set `fetch-depth: 0` on actions/checkout (elsewhere: `git fetch --unshallow`)"


def find(folder: Path) -> Repository:
    repo = Repository.find(folder)
    assert repo is not None
    return repo


def event(tmp_path: Path, payload: Any, name: str = "event.json") -> dict[str, str]:
    path = tmp_path / name
    path.write_text(payload if isinstance(payload, str) else json.dumps(payload))
    return {"CI": "true", "GITHUB_EVENT_PATH": str(path)}


@pytest.fixture
def merged(tmp_path: Path) -> World:
    """main moved on after feature forked; HEAD is the merge that CI tests."""
    world = started(tmp_path / "project")
    world.write("feature.txt", "x")
    feature = world.commit("feature")
    git(world.root, "tag", "fork", "main")
    git(world.root, "switch", "-q", "main")
    world.write("main.txt", "x")
    world.commit("main moved")
    git(world.root, "switch", "-q", "--detach")
    git(world.root, "merge", "-q", "--no-ff", "-m", "merge", feature)
    return world


def payload(world: World) -> dict[str, Any]:
    head, base = git(world.root, "rev-parse", "feature"), git(world.root, "rev-parse", "main")
    return {"pull_request": {"base": {"sha": base}, "head": {"sha": head}}}


def test_a_pull_request_is_compared_with_the_parent_that_the_merge_was_built_on(tmp_path: Path, merged: World) -> None:
    """A16: the tested tree holds what main accepted meanwhile; the fork point would blame this change for it."""
    base = merged.repo.resolve_base(None, event(tmp_path, payload(merged)))

    assert base == Base(git(merged.root, "rev-parse", "main"), "event.pull_request:HEAD^1")


def test_a_feature_head_alone_is_compared_with_its_fork_point(tmp_path: Path, merged: World) -> None:
    """A16: without the merge, main's newer baseline is not in the tree, and the report says so."""
    git(merged.root, "switch", "-q", "feature")
    base = merged.repo.resolve_base(None, event(tmp_path, payload(merged)))

    source = "event.pull_request: merge-base of HEAD and base.sha, as HEAD is not the merge commit"
    assert base == Base(git(merged.root, "rev-parse", "fork"), source)


def test_a_feature_head_on_top_of_main_is_compared_with_main(tmp_path: Path) -> None:
    """An up-to-date branch: base.sha is an ancestor of HEAD."""
    world = started(tmp_path / "project")
    world.commit("feature")

    base = world.repo.resolve_base(None, event(tmp_path, payload(world)))

    assert base == Base(git(world.root, "rev-parse", "main"), "event.pull_request.base.sha")


def test_a_merge_queue_is_compared_with_its_parent(tmp_path: Path, merged: World) -> None:
    """The payload names it."""
    main = git(merged.root, "rev-parse", "main")

    assert merged.repo.resolve_base(None, event(tmp_path, {"merge_group": {"base_sha": main}})) == Base(
        main, "event.merge_group.base_sha"
    )


def test_a_push_is_compared_with_what_was_there_before(tmp_path: Path, merged: World) -> None:
    """before, or for a new branch the first parent."""
    fork, main = git(merged.root, "rev-parse", "fork"), git(merged.root, "rev-parse", "main")

    pushed = merged.repo.resolve_base(
        None, event(tmp_path, {"before": fork, "after": git(merged.root, "rev-parse", "HEAD")})
    )
    created = merged.repo.resolve_base(
        None, event(tmp_path, {"before": "0" * 40, "after": git(merged.root, "rev-parse", "HEAD")})
    )

    assert pushed == Base(fork, "event.push.before")
    assert created == Base(main, "event.push:HEAD^1")


def test_a_first_commit_is_no_gate_result(tmp_path: Path) -> None:
    """There is nothing before it."""
    world = World.make(tmp_path / "project")
    rev = world.commit()

    base = world.repo.resolve_base(None, event(tmp_path, {"before": "0" * 40, "after": rev}))

    assert base == Base(rev, "event.push: first commit", False)


def test_a_push_over_a_commit_that_is_gone_has_no_base(tmp_path: Path, merged: World) -> None:
    """A forced push: the commit before it cannot be read, and nothing stands in for it."""
    base = merged.repo.resolve_base(
        None, event(tmp_path, {"before": "1" * 40, "after": git(merged.root, "rev-parse", "HEAD")})
    )

    assert base == Base(None, "event.push.before", problem=f"the base commit {'1' * 40} is not in this clone: {DEPTH}")


@pytest.mark.parametrize(("depth", "readable"), [(1, False), (2, True)])
def test_shallow_clones(tmp_path: Path, merged: World, depth: int, readable: bool) -> None:
    """Depth 1 hides the parent and is said so; depth 2 is enough for a pull request."""
    main, told = git(merged.root, "rev-parse", "main"), event(tmp_path, payload(merged))
    git(merged.root, "branch", "merge-ref", "HEAD")
    git(tmp_path, "clone", "-q", f"--depth={depth}", "-b", "merge-ref", merged.root.as_uri(), "clone")

    base = find(tmp_path / "clone").resolve_base(None, told)

    expected = Base(main, "event.pull_request:HEAD^1")
    problem = f"the base commit {main} is not in this clone (this clone is shallow): {DEPTH}"
    assert base == (expected if readable else Base(None, "event.pull_request:HEAD^1", problem=problem))


def test_ci_without_event_and_main_branch_has_no_base(tmp_path: Path) -> None:
    """Elsewhere than on a developer's machine a missing base is never made up."""
    world = World.make(tmp_path / "project")
    world.commit()
    git(world.root, "branch", "-m", "trunk")

    assert world.repo.resolve_base(None, {"CI": "true"}) == Base(
        None, "CI", problem=f"CI names no base commit and no merge-base is in this clone: {DEPTH}"
    )
    assert world.repo.resolve_base(None, {}) == Base(
        git(world.root, "rev-parse", "HEAD"), "HEAD, as no main branch was found", False
    )


def test_at_home_the_base_is_where_the_branch_left_main(tmp_path: Path, merged: World) -> None:
    """The remote's main branch first, then the local one."""
    git(merged.root, "switch", "-q", "feature")
    assert merged.repo.resolve_base(None, {}) == Base(git(merged.root, "rev-parse", "fork"), "merge-base main")

    git(tmp_path, "clone", "-q", "-b", "feature", str(merged.root), "clone")
    clone = tmp_path / "clone"
    git(clone, "remote", "set-head", "origin", "main")
    assert find(clone).resolve_base(None, {}) == Base(git(merged.root, "rev-parse", "fork"), "merge-base origin/HEAD")


def test_a_pushed_branch_is_not_its_own_base(tmp_path: Path) -> None:
    """The upstream of a pushed branch holds the same approvals: they would look spent, its anchors approved."""
    origin = started(tmp_path / "project")
    origin.commit("feature")
    git(origin.root, "branch", "-m", "main", "trunk")
    git(tmp_path, "clone", "-q", "-b", "feature", str(origin.root), "clone")
    git(tmp_path / "clone", "remote", "set-head", "origin", "-d")

    assert find(tmp_path / "clone").resolve_base(None, {}).source == "HEAD, as no main branch was found"


def test_on_main_itself_the_base_is_head(tmp_path: Path) -> None:
    """That is judged, and is no gate result."""
    world = World.make(tmp_path / "project")
    rev = world.commit()

    assert world.repo.resolve_base(None, {}) == Base(rev, "merge-base main", False)
    assert world.repo.resolve_base("HEAD", {}) == Base(rev, "option", False)


@pytest.mark.parametrize("option", ["nowhere", "--exec=x", "HEAD:pyproject.toml", "a\0b"])
def test_an_option_that_names_no_commit_has_no_base(tmp_path: Path, option: str) -> None:
    """Words that look like options or blobs are no commits."""
    world = started(tmp_path / "project")

    assert world.repo.resolve_base(option, {}) == Base(
        None, "option", problem=f"the base commit {option} is not in this clone: {DEPTH}"
    )


def test_a_repository_without_commits(tmp_path: Path) -> None:
    """The mend is to commit."""
    repo = World.make(tmp_path / "project").repo

    assert repo.head().rev is None
    assert repo.resolve_base(None, {}).problem == "HEAD has no commit yet: commit the project first"


@pytest.mark.parametrize(("text", "why"), [("{", "it is not JSON"), ("[]", "it is not an object")])
def test_an_event_that_cannot_be_read_is_an_error(tmp_path: Path, text: str, why: str) -> None:
    """A payload that is there and unreadable is never skipped."""
    world, told = started(tmp_path / "project"), event(tmp_path, text)

    with pytest.raises(GitError) as caught:
        world.repo.resolve_base(None, told)

    assert str(caught.value) == (
        f"{told['GITHUB_EVENT_PATH']}: GITHUB_EVENT_PATH cannot be read: {why}\n"
        f"  mend: unset GITHUB_EVENT_PATH, or name the base with --fanout-base\n{SEE}bad-event"
    )


def test_no_repository_is_none(tmp_path: Path) -> None:
    """A folder outside git is no error of git's."""
    assert Repository.find(tmp_path) is None


def test_git_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(GitError) as caught:
        Repository.find(tmp_path)

    assert str(caught.value) == (
        f"the git command was not found\n  mend: install git 2.18 or newer and put it on PATH\n{SEE}no-git"
    )


def test_a_broken_repository_says_what_git_said(tmp_path: Path) -> None:
    """An object that is gone is an error, not an absent file."""
    world = started(tmp_path / "project")
    entry = world.repo.list("HEAD", "baselines")["support.json"]
    (world.root / ".git" / "objects" / entry.blob[:2] / entry.blob[2:]).unlink()

    with pytest.raises(GitError) as caught:
        world.repo.read("HEAD", "baselines/support.json")

    assert str(caught.value) == (
        f"git cat-file failed: fatal: git cat-file {entry.blob}: bad file\n"
        f"  mend: run `git fsck`, and fetch what is missing\n{SEE}git-failed"
    )


def test_a_project_in_a_subfolder_reads_its_own_folder(tmp_path: Path) -> None:
    """A monorepo: paths are relative to the project."""
    world = started(tmp_path / "project", subfolder="services/shop")

    assert world.repo.prefix == "services/shop/"
    assert (world.repo.read("HEAD", "baselines/support.json") or b"").startswith(b"{")
    assert set(world.repo.list("HEAD", "")) == {"baselines", "pyproject.toml"}
    assert world.judge(make_run()).verdict == "pass"


def test_a_worktree_and_a_detached_head(tmp_path: Path) -> None:
    """Linked work trees and detached heads are like any other."""
    world = started(tmp_path / "project")
    git(world.root, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"), "feature")
    linked = World(tmp_path / "linked", tmp_path / "linked")

    assert linked.judge(make_run()).verdict == "pass"


def test_git_replace_does_not_change_what_is_read(tmp_path: Path) -> None:
    """A replacement ref shows another blob to git, and not to us."""
    world = started(tmp_path / "project")
    real = world.repo.read("HEAD", "pyproject.toml")
    blob = world.repo.list("HEAD", "")["pyproject.toml"].blob
    other = git(world.root, "hash-object", "-w", str(world.write("other", "[tool.other]\n")))
    git(world.root, "replace", blob, other)

    assert git(world.root, "cat-file", "blob", blob) == "[tool.other]"
    assert world.repo.read("HEAD", "pyproject.toml") == real


def test_grafts_do_not_change_where_a_branch_began(tmp_path: Path) -> None:
    """.git/info/grafts gives commits other parents, and so another merge base; that is not read either."""
    world = started(tmp_path / "project")
    main, head = world.repo.resolve("main"), world.commit("the change")
    grafts = world.root / ".git" / "info" / "grafts"
    grafts.parent.mkdir(exist_ok=True)
    grafts.write_text(f"{main} {head}\n{head}\n")

    assert git(world.root, "merge-base", "main", "HEAD") == head
    assert world.repo.fork_point("main", head) == main


def test_git_variables_of_the_environment_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIT_DIR cannot point the gate at another repository."""
    world, other = started(tmp_path / "project"), World.make(tmp_path / "other")
    other.commit()
    monkeypatch.setenv("GIT_DIR", str(other.root / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.root))

    assert world.repo.root == world.root.resolve()
    assert world.judge(make_run()).verdict == "pass"


def test_the_work_tree_is_not_read(tmp_path: Path) -> None:
    """A CRLF checkout, or an edited file, changes nothing."""
    world = started(tmp_path / "project")
    path = world.folder / "baselines" / "support.json"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))

    assert world.repo.head().dirty
    assert world.judge(make_run()).verdict == "pass"


def test_a_committed_crlf_anchor_has_the_same_digest(tmp_path: Path) -> None:
    """Digests are of the parsed document."""
    world = started(tmp_path / "project")
    path = world.folder / "baselines" / "support.json"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    world.commit("crlf")

    assert world.judge(make_run()).verdict == "pass"


@pytest.mark.parametrize("kind", ["link", "folder above", "submodule"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    """A symbolic link, a linked folder or a submodule where a file is looked for is an integrity error."""
    world = started(tmp_path / "project")
    folder, where, mode = world.folder / "baselines", "baselines/support.json", "a symbolic link"
    if kind == "link":
        (folder / "support.json").rename(world.folder / "real.json")
        os.symlink("../real.json", folder / "support.json")
    elif kind == "folder above":
        folder.rename(world.folder / "real")
        os.symlink("real", folder)
        where = "baselines"
    else:
        rev = git(world.root, "rev-parse", "HEAD")
        git(world.root, "rm", "-q", "--cached", where)
        git(world.root, "update-index", "--add", "--cacheinfo", f"160000,{rev},{where}")
        git(world.root, "commit", "-q", "-m", "submodule")
        mode = "a submodule"
    if kind != "submodule":
        world.commit()
    rev = git(world.root, "rev-parse", "HEAD")

    with pytest.raises(IntegrityError) as caught:
        world.repo.read(rev, "baselines/support.json")

    assert str(caught.value) == (
        f"{where}: is {mode} in commit {rev[:12]}; only regular files and folders are read here\n"
        f"  mend: git rm --cached {where}, then commit a regular file\n{SEE}not-a-regular-file"
    )
    assert world.judge(make_run()).verdict == "integrity"


def test_dirty_is_tracked_changes_and_untracked_files_of_the_project(tmp_path: Path) -> None:
    """An ignored file is no difference, and neither is an untracked one elsewhere in a monorepo."""
    world = started(tmp_path / "project", subfolder="shop")
    (world.root / "elsewhere.txt").write_text("x")
    world.write(".gitignore", "ignored.json\n")
    world.commit()
    (world.root / "untracked.txt").write_text("x")
    world.write("ignored.json", "{}")
    assert not world.repo.head().dirty

    world.write("new.txt", "x")
    assert world.repo.head().dirty


def test_what_the_run_itself_writes_is_no_dirt(tmp_path: Path) -> None:
    """An untracked report or page at a path of the run's own; another untracked file is, and so is a tracked page."""
    world = World.make(tmp_path / "p")
    world.anchor(make_run())
    world.commit("start")
    outputs = [world.folder / "out/run.json", world.folder / "out/page.html"]
    for path in outputs:
        world.write(path.relative_to(world.folder).as_posix(), "made by the run")

    assert world.repo.head().dirty
    assert not world.repo.head(outputs).dirty
    assert not world.repo.head([world.folder / "x" / ".." / "out/run.json", outputs[1]]).dirty
    assert world.repo.head(outputs[:1]).dirty
    world.commit("the page is committed")
    world.write("out/page.html", "another page")
    assert world.repo.head(outputs).dirty


def test_git_is_never_started_through_a_shell() -> None:
    """Names with spaces and quotes are one word."""
    assert "shell=True" not in Path(git_module.__file__).read_text()
