"""The environments of the matrix: what each holds, where it lies, and whether it is there."""

from __future__ import annotations

import hashlib
import json
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def requirements() -> dict[str, list[str]]:
    """Name of an environment -> what is installed in it beside this package."""
    table = tomllib.loads((HERE / "environments.toml").read_text(encoding="utf-8"))
    return {name: list(entry["requires"]) for name, entry in table.items()}


def folder_of(name: str, into: Path) -> Path:
    """Its folder: the name and a digest of all that it is built from, so that a change builds a new one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    built_from = [requirements()[name], project["dependencies"], sys.version_info[:2]]
    return into / f"{name}-{hashlib.sha256(json.dumps(built_from).encode()).hexdigest()[:10]}"


def python_of(name: str, into: Path) -> Path | None:
    """Its interpreter; None when it has not been built, or not to its end."""
    folder = folder_of(name, into)
    return folder / "bin" / "python" if (folder / "built.txt").exists() else None
