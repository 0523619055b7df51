"""Compiles pytest_fanout once for all the subprocesses of a run, which may not write byte code themselves.

Projects in tests are edited within one second, which byte code cannot tell; so Python must not keep any of theirs. Our
own modules, which pytest rewrites like those of every plugin, would then be compiled anew by each of hundreds of runs.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from pathlib import Path

import pytest_fanout

_IMPORT_ALL = "import importlib, pkgutil, pytest_fanout\n" + (
    "for module in pkgutil.walk_packages(pytest_fanout.__path__, 'pytest_fanout.'):\n"
    "    importlib.import_module(module.name)\n"
)


def compile_package(folder: Path) -> None:
    """Leave byte code of every module beside its source, plain and as pytest rewrites it. ``folder``: a scratch one."""
    for path in pytest_fanout.__path__:
        compileall.compile_dir(path, quiet=2)
    write_imports(folder)
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "CI")}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--co", str(folder)],
        env=environ,
        cwd=folder,
        capture_output=True,
    )


def write_imports(folder: Path) -> None:
    """Leave a ``conftest.py`` that imports every module of ours."""
    folder.joinpath("conftest.py").write_text(_IMPORT_ALL, encoding="utf-8")
