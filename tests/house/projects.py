"""Tiny projects in temporary folders, and pytest run on them as a user would: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

#: What would make a child behave differently on a developer's machine, in an editor, and in CI.
_FOREIGN = ("PYTEST_", "GITHUB_", "FANOUT_", "COV_", "PYTHONWARNINGS", "PYTHONPATH", "CI", "FORCE_COLOR", "NO_COLOR")


def clean_environment(**more: str) -> dict[str, str]:
    """The environment of a child: ours, without what steers pytest, git or CI, and with no API key."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_FOREIGN) and not name.startswith("GIT_") and not name.endswith("_API_KEY")
    }
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1", **more}


def run_python(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, python: str = sys.executable, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """One child process of Python; its output as text, its exit code as it is."""
    return subprocess.run(
        [python, *arguments],
        cwd=cwd,
        env=dict(clean_environment() if env is None else env),
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def run_pytest(
    cwd: Path, *arguments: str, env: Mapping[str, str] | None = None, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """`pytest` with these arguments in that folder."""
    return run_python("-m", "pytest", *arguments, cwd=cwd, env=env, python=python)


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """The folder, holding these files."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def git(folder: Path, *words: str) -> str:
    """git in that folder, as a person of its own, away from the settings of this machine."""
    env = clean_environment(
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_CONFIG_NOSYSTEM="1",
        GIT_AUTHOR_NAME="Dana",
        GIT_AUTHOR_EMAIL="dana@example.com",
        GIT_COMMITTER_NAME="Dana",
        GIT_COMMITTER_EMAIL="dana@example.com",
    )
    done = subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=True)
    return done.stdout
