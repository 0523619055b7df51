"""The public names: few, sorted, real, and the same for people and type checkers."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest_fanout

SOURCE = Path(pytest_fanout.__file__)


def test_the_list_is_short_and_sorted() -> None:
    """`__all__` has fewer than 12 names, in order, none twice."""
    names = pytest_fanout.__all__

    assert names == sorted(set(names))
    assert len(names) < 12


def test_every_public_name_can_be_had_and_says_what_it_is() -> None:
    """Each name resolves to something with a docstring of its own."""
    for name in pytest_fanout.__all__:
        value = getattr(pytest_fanout, name)
        if name != "__version__":
            assert inspect.getdoc(value), name


def test_dir_shows_exactly_the_list() -> None:
    """Nothing can be found by completion that is not public."""
    assert dir(pytest_fanout) == pytest_fanout.__all__


def test_an_unknown_name_is_an_attribute_error() -> None:
    """Loading on first use does not turn a typing mistake into an import error."""
    missing = getattr(pytest_fanout, "mesure", None)

    assert missing is None


def test_type_checkers_see_what_runs() -> None:
    """The names imported for type checkers are those of `__all__`, from the same modules that the runtime loads."""
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    seen = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                assert isinstance(statement, ast.ImportFrom)
                seen.update({alias.asname or alias.name: statement.module for alias in statement.names})

    assert sorted([*seen, "__version__"]) == pytest_fanout.__all__
    assert seen == pytest_fanout._HOMES


def test_importing_the_package_loads_no_other_part_of_it() -> None:
    """`import pytest_fanout` alone costs one small module."""
    code = "import sys, pytest_fanout; print([m for m in sys.modules if m.startswith('pytest_fanout.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_the_package_is_marked_as_typed() -> None:
    """Type checkers read our annotations only beside a py.typed file."""
    assert (SOURCE.parent / "py.typed").is_file()
