"""Are the gate's tests worth their name? Small changes are made to the gate's own code, one at a time, and the tests of
tests/gate that run the changed line have to notice.

    pip install cosmic-ray pytest-cov     # the changes are cosmic-ray's; which test runs which line is coverage's
    python benchmarks/gate_mutations.py --count 200 --seed 1 --minutes 20

Changes are drawn at random among all that are possible, the same ones for the same seed. What changes only an
annotation is left out. Prints each that was not noticed, as file, line and change, and the share that was. Exits with
1 below 98 %.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "gate"
SUBJECTS = [*sorted((ROOT / "pytest_fanout" / "gate").glob("*.py")), ROOT / "pytest_fanout" / "store" / "base.py"]
LIMIT_S = 240
WANTED = 0.98
_WORDS = ("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE")
OPERATORS = [
    "core/ReplaceTrueWithFalse",
    "core/ReplaceFalseWithTrue",
    "core/ReplaceAndWithOr",
    "core/ReplaceOrWithAnd",
    "core/AddNot",
    "core/ReplaceUnaryOperator_Delete_Not",
    "core/NumberReplacer",
    "core/ReplaceBreakWithContinue",
    "core/ReplaceContinueWithBreak",
    "core/ZeroIterationForLoop",
    "core/ExceptionReplacer",
    "core/ReplaceComparisonOperator_Is_IsNot",
    "core/ReplaceComparisonOperator_IsNot_Is",
    *(f"core/ReplaceComparisonOperator_{one}_{other}" for one in _WORDS for other in _WORDS if one != other),
    *(
        f"core/ReplaceBinaryOperator_{pair}"
        for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "BitOr_BitAnd", "BitAnd_BitOr")
    ),
]


class Change(NamedTuple):
    path: Path
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.before.strip()}  ->  {self.after.strip()}"


def places() -> list[tuple[Path, str, int]]:
    """Where each operator can change what: module, operator, and the number of the place."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    found = []
    for path in SUBJECTS:
        nodes = list(ast_nodes(get_ast(path.read_text(encoding="utf-8"))))
        for name in OPERATORS:
            operator = get_operator(name)()
            count = sum(1 for node in nodes for _ in operator.mutation_positions(node))
            found += [(path, name, number) for number in range(count)]
    return found


def change_of(path: Path, name: str, number: int) -> Change | None:
    """The module with one change, None where it is no change: of an annotation, or to what is no Python."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source = path.read_text(encoding="utf-8")
    made = mutate_code(source, get_operator(name)(), number)
    try:
        if made is None or _meaning(made) == _meaning(source):
            return None
    except SyntaxError:
        return None
    lines = zip(source.splitlines(), made.splitlines(), strict=False)
    at, (before, after) = next((n, pair) for n, pair in enumerate(lines, 1) if pair[0] != pair[1])
    return Change(path, at, before, after, made)


def _meaning(source: str) -> str:
    """The module without its annotations, which nothing reads while it runs."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(tree)


def tests_by_line(folder: Path) -> dict[tuple[str, int], list[str]]:
    """(path, line) -> node ids of the tests that run it, from one run under coverage."""
    data = folder / "coverage"
    names = [f"--cov={name}" for name in ("pytest_fanout.gate", "pytest_fanout.store.base")]
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *names,
        "--cov-context=test",
        "--cov-report=",
    ]
    subprocess.run([*words, str(TESTS)], cwd=ROOT, env={**os.environ, "COVERAGE_FILE": str(data)}, check=True)
    found: dict[tuple[str, int], list[str]] = {}
    from coverage.numbits import numbits_to_nums

    with sqlite3.connect(data) as base:
        rows = base.execute(
            "select file.path, context.context, numbits from line_bits "
            "join file on file.id = file_id join context on context.id = context_id"
        )
        for path, context, numbits in rows:
            node = context.rpartition("|")[0]
            for line in numbits_to_nums(numbits) if node else ():
                found.setdefault((path, line), []).append(node)
    return found


def in_turn(nodes: list[str], seed: int) -> list[str]:
    """One test of each file after the other, so that those which look at other things come soon."""
    files: dict[str, list[str]] = {}
    for node in dict.fromkeys(nodes):
        files.setdefault(node.partition("::")[0], []).append(node)
    for mine in files.values():
        random.Random(seed).shuffle(mine)
    return [node for row in itertools.zip_longest(*files.values()) for node in row if node is not None]


class Changed(MetaPathFinder, Loader):
    """Imports one module from the text of a change."""

    def __init__(self, change: Change) -> None:
        self._change = change
        self._name = ".".join(change.path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        is_package = self._change.path.name == "__init__.py"
        spec = spec_from_loader(fullname, self, origin=str(self._change.path), is_package=is_package)
        if spec is not None and is_package:
            spec.submodule_search_locations = [str(self._change.path.parent)]
        return spec

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self._change.path)
        exec(compile(self._change.source, str(self._change.path), "exec"), module.__dict__)


def is_noticed(change: Change, tests: list[str]) -> bool:
    """Run the tests in a process of their own that has loaded all but our package already."""
    import pytest

    child = os.fork()
    if child == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        sys.meta_path.insert(0, Changed(change))
        os.chdir(ROOT)
        code = 1
        try:
            options = ["-x", "-q", "-p", "no:cacheprovider", "--assert=plain", "-p", "no:xdist", "-p", "no:cov"]
            code = int(pytest.main([*options, *tests]))
        finally:
            os._exit(code)
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) != 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)  # the group of our own child: a change that never ends is noticed
    os.waitpid(child, 0)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=20.0, help="begin no further change after that")
    parser.add_argument("--skip", type=int, default=0, help="changes that an earlier run has tried already")
    parser.add_argument("--lines", type=Path, help="keeps which test runs which line, for later runs on the same tests")
    parser.add_argument("--json", type=Path, help="where the outcome of each change goes")
    given = parser.parse_args()
    begun = time.monotonic()
    possible = places()
    random.Random(given.seed).shuffle(possible)
    made = (change_of(*place) for place in possible)
    drawn = list(itertools.islice((change for change in made if change is not None), given.count))
    if given.lines and given.lines.exists():
        tests = {(path, line): nodes for path, line, nodes in json.loads(given.lines.read_text())}
    else:
        with tempfile.TemporaryDirectory() as folder:
            tests = tests_by_line(Path(folder))
        if given.lines:
            given.lines.write_text(json.dumps([[*key, nodes] for key, nodes in tests.items()]))
    import hypothesis  # noqa: F401  (what every child needs is loaded once)
    import jsonschema  # noqa: F401
    import numpy  # noqa: F401

    print(
        f"{len(possible)} places, {len(drawn)} changes drawn, {time.monotonic() - begun:.0f} s to prepare", flush=True
    )
    outcomes: list[tuple[str, bool]] = []
    for change in drawn[given.skip :]:
        if time.monotonic() - begun > given.minutes * 60:
            print(f"out of time after {len(outcomes)} changes")
            break
        mine = tests.get((str(change.path), change.line)) or sorted(
            {node for (path, _), nodes in tests.items() if path == str(change.path) for node in nodes}
        )
        noticed = bool(mine) and is_noticed(change, in_turn(mine, given.seed))
        outcomes.append((str(change), noticed))
        if given.json:
            given.json.write_text(json.dumps(outcomes, indent=1))
        if not noticed:
            print(f"not noticed ({len(mine)} tests): {change}", flush=True)
    share = sum(noticed for _, noticed in outcomes) / max(len(outcomes), 1)
    print(f"{share:.1%} of {len(outcomes)} noticed, {time.monotonic() - begun:.0f} s")
    return 0 if share >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
