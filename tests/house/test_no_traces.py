"""Nothing in the tree tells on the machine that it was made on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Folders of one machine: a home, a work folder, a build's temporary place.
MACHINE = re.compile(r"(?<![\w.~/-])/(?:root|home/\w+|Users/\w+|work|workspace|tmp/\w+)\b")
#: This file holds examples of what it looks for.
MEANT = {Path(__file__).resolve()}


def tracked() -> list[Path]:
    """Files that git knows; in an unpacked sdist, which has no git, all files."""
    done = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=False)
    names = [name.decode() for name in done.stdout.split(b"\0") if name]
    if names:
        return [ROOT / name for name in names]
    return [p for p in ROOT.rglob("*") if p.is_file() and not any(part.startswith(".venv") for part in p.parts)]


@pytest.mark.parametrize("text", ["in /Users/x", '"/home/dana/a"', "(/workspace/a)", "=/Users/dana", "at /tmp/abc/d"])
def test_the_pattern_sees_such_paths(text: str) -> None:
    """The pattern is not blind."""
    assert MACHINE.search(text)


@pytest.mark.parametrize(
    "text", ["../home/a/b", "https://x.example/home/a", "a/tmp/b", "~/workspace", "homework", "/v1/workspace"]
)
def test_the_pattern_leaves_other_paths_alone(text: str) -> None:
    """Relative paths and URLs are not taken for a machine's folders."""
    assert not MACHINE.search(text)


def test_no_tracked_file_names_a_folder_of_a_machine() -> None:
    """Code, tests, docs, recordings and baselines can be read anywhere and name no place of their author."""
    hits = []
    assert ROOT / "README.md" in tracked()
    for path in tracked():
        if path.resolve() in MEANT or not path.is_file():
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        hits += [f"{path.relative_to(ROOT)}:{text[: m.start()].count(chr(10)) + 1}" for m in MACHINE.finditer(text)]

    assert hits == []
