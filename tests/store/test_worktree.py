"""The base commit beside the work tree: what it holds, what it leaves behind, and which paths are mapped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gate_world import git

from pytest_fanout.errors import GitError
from pytest_fanout.store.git import Repository
from pytest_fanout.store.worktree import Worktree


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    """Two commits of a project: ``shop/agents.py`` says "old" in the first and "new" in the second."""
    root = tmp_path / "project"
    (root / "shop").mkdir(parents=True)
    git(tmp_path, "init", "-q", "-b", "main", "project")
    (root / "shop/agents.py").write_text("old")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "old")
    (root / "shop/agents.py").write_text("new")
    (root / "shop/added.py").write_text("new")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "new")
    (root / ".venv").mkdir()
    found = Repository.find(root)
    assert found is not None
    return found


def test_it_is_the_commit_and_leaves_nothing(repo: Repository) -> None:
    """The work tree and git's list of worktrees are as they were."""
    made = Worktree(repo, git(repo.root, "rev-parse", "HEAD~1"))
    assert (made.moved.root / "shop/agents.py").read_text() == "old"
    (made.moved.root / "shop/agents.py").write_text("changed, and a file beside it")
    (made.moved.root / "left").write_text("by the agent")
    made.remove()

    assert not made.moved.root.parent.exists()
    assert git(repo.root, "worktree", "list").splitlines() == [git(repo.root, "worktree", "list")]
    assert (repo.root / "shop/agents.py").read_text() == "new"
    assert git(repo.root, "status", "--porcelain") == ""


def test_no_hook_of_the_repository_runs(repo: Repository) -> None:
    """A post-checkout hook may install, build or ask."""
    hook = repo.root / ".git/hooks/post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {repo.root.parent}/ran\n")
    hook.chmod(0o755)

    Worktree(repo, "HEAD~1").remove()

    assert not (repo.root.parent / "ran").exists()


def test_a_commit_that_is_not_there(repo: Repository) -> None:
    """It is git's error in one line, and no folder stays."""
    with pytest.raises(GitError) as caught:
        Worktree(repo, "0" * 40)

    assert "git worktree failed: fatal: " in str(caught.value)
    assert len(git(repo.root, "worktree", "list").splitlines()) == 1


def test_paths_of_the_project_are_those_of_the_commit(repo: Repository) -> None:
    """Whatever it does not hold, and what lies elsewhere, stays: a virtual environment, a new file, an option."""
    made = Worktree(repo, "HEAD~1")
    root = str(repo.root)
    try:
        for text, path in (
            (f"{root}/shop", "shop"),
            (root, "."),
            (f"{root}/shop/agents.py::test_x", "shop/agents.py::test_x"),
        ):
            assert made.moved.path(text) == os.path.normpath(f"{made.moved.root}/{path}")
        for text in (f"{root}/.venv", f"{root}/shop/added.py", "shop", "-q", "/usr/lib", f"{root}2/shop", ""):
            assert made.moved.path(text) == text
    finally:
        made.remove()


def test_what_was_imported_from_the_work_tree_instead(repo: Repository) -> None:
    """A module of the project that an installed package led to is the head's and not the base's."""
    made = Worktree(repo, "HEAD~1")
    try:
        theirs, base = f"{repo.root}/shop/agents.py", f"{made.moved.root}/shop/agents.py"
        files = [theirs, base, f"{repo.root}/.venv/x.py", "/usr/x.py"]
        assert made.moved.strays(files) == (theirs,)
    finally:
        made.remove()


LEFT = """
import os, signal, sys
from pathlib import Path
from pytest_fanout.store.git import Repository
from pytest_fanout.store.worktree import Worktree
made = Worktree(Repository.find(Path(sys.argv[1])), "HEAD~1")
print(made.moved.root, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="files have no such locks there")
def test_what_a_killed_process_left_is_removed_by_the_next_and_nothing_else(repo: Repository, tmp_path: Path) -> None:
    """One of a process that lives, and one that somebody made by hand under such a name, stay."""
    living = Worktree(repo, "HEAD~1")
    by_hand = tmp_path / "fanout-base-mine" / "tree"
    repo.add_worktree(by_hand, "HEAD~1")
    done = subprocess.run([sys.executable, "-c", LEFT, str(repo.root)], capture_output=True, text=True, check=False)
    left = Path(done.stdout.strip())
    assert (done.returncode, left in repo.worktrees(), left.is_dir()) == (-9, True, True), done.stderr

    made = Worktree(repo, "HEAD~1")

    assert set(repo.worktrees()) == {repo.root.resolve(), living.moved.root, by_hand.resolve(), made.moved.root}
    assert not left.parent.exists()
    assert (by_hand / "shop/agents.py").read_text() == "old"
    for tree in (living, made):
        tree.remove()
