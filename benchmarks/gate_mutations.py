"""Are the gate's tests worth their name? Small changes are made to the gate's own code, one at a time, and the tests of
tests/gate that run the changed line have to notice.

    pip install cosmic-ray coverage     # the changes are cosmic-ray's; which test runs which line is coverage's
    python benchmarks/gate_mutations.py --count 220 --seed 1 --json outcomes.json

Changes are drawn at random among all that are possible; the order hangs on the text of the changed line, so that a seed
draws the same ones while other lines change. What changes only an annotation is left out.

One process holds all the tests, collected, and has run each once on the unchanged code. For each change a child is
forked, in which the changed functions get their new code, and runs the tests of the line until one fails, or until
``--seconds`` are over: then it was not noticed. In turn that is a fast one, one of each file, and one of those that run
little else. What lies outside of functions (a constant, the fields of a class) is tried with all tests, in a child that
has not imported our package and imports the changed text.

Prints each that was not noticed, as file, line and change, and the share that was. Exits with 1 below 98 %. What the
file of ``--json`` holds already is not tried again; ``--again`` tries those of it that were not noticed, with the tests
as they are now.
"""

from __future__ import annotations

import argparse
import ast
import gc
import hashlib
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: Those that run the gate in their own process: a change is in no other one. Fixtures of a project run others.
ELSEWHERE = {"project", "accepted", "grown", "granted", "gated"}
TESTS = [
    "tests/gate",
    *(f"tests/cli/test_{name}.py" for name in ("baseline_cli", "init_and_owners", "what_people_see")),
    *(f"tests/session/test_{name}.py" for name in ("junit", "session_messages", "unbegun_classes")),
    "tests/judge/test_causes.py",
    "tests/store/test_worktree.py",
]
SUBJECTS = [*sorted((ROOT / "pytest_fanout" / "gate").glob("*.py")), ROOT / "pytest_fanout" / "store" / "base.py"]
LIMIT_S = 60  # of one test
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
#: Our tests are quiet, run on plain asserts, and draw the same examples each time.
OPTIONS = [
    "-q",
    "-s",
    "--assert=plain",
    "--hypothesis-seed=0",
    *(f"-pno:{name}" for name in ("cacheprovider", "xdist")),
]


class Place(NamedTuple):
    """Where an operator can change what: the number counts its places in the module."""

    path: Path
    operator: str
    number: int
    key: str  # the same while the line is


class Change(NamedTuple):
    key: str
    path: Path
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.before.strip()}  ->  {self.after.strip()}"


class Outcome(NamedTuple):
    key: str
    change: str
    tests: int
    noticed_by: str | None
    seconds: float


def places(seed: int) -> list[Place]:
    """All there are, in the order in which the seed draws them."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    found = []
    for path in SUBJECTS:
        source = path.read_text(encoding="utf-8")
        lines, nodes = source.splitlines(), list(ast_nodes(get_ast(source)))
        for name in OPERATORS:
            operator = get_operator(name)()
            seen: Counter[str] = Counter()
            at = (start for node in nodes for start, _ in operator.mutation_positions(node))
            for number, (line, column) in enumerate(at):
                text = f"{path.relative_to(ROOT)} {name} {lines[line - 1]} {column}"
                seen[text] += 1
                found.append(Place(path, name, number, f"{text} {seen[text]}"))
    return sorted(found, key=lambda place: hashlib.sha256(f"{seed} {place.key}".encode()).digest())


def change_of(place: Place) -> Change | None:
    """The module with one change, None where it is no change: of an annotation, or to what is no Python."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source = place.path.read_text(encoding="utf-8")
    made = mutate_code(source, get_operator(place.operator)(), place.number)
    try:
        if made is None or _meaning(made) == _meaning(source):
            return None
    except SyntaxError:
        return None
    lines = zip(source.splitlines(), made.splitlines(), strict=False)
    at, (before, after) = next((n, pair) for n, pair in enumerate(lines, 1) if pair[0] != pair[1])
    return Change(place.key, place.path, at, before, after, made)


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


class Known:
    """What the tests did on the unchanged code: which run which line, and how long each took."""

    def __init__(self, lines: dict[tuple[str, int], list[str]], seconds: dict[str, float]) -> None:
        self._lines = lines
        self._seconds = seconds
        self._spread = Counter(node for nodes in lines.values() for node in nodes)  # how many lines each test runs

    @classmethod
    def read(cls, path: Path) -> Known:
        held = json.loads(path.read_text())
        return cls({(name, line): nodes for name, line, nodes in held["lines"]}, held["seconds"])

    def write(self, path: Path) -> None:
        path.write_text(
            json.dumps({"lines": [[*key, nodes] for key, nodes in self._lines.items()], "seconds": self._seconds})
        )

    def has(self, node: str) -> bool:
        return node in self._seconds

    def learn(self, items: list[pytest.Item]) -> None:
        """Run these once under coverage; ends the program if one fails."""
        import coverage

        measured = coverage.Coverage(data_file=None, include=[str(path) for path in SUBJECTS], config_file=False)
        measured.start()
        for item, after in itertools.zip_longest(items, items[1:]):
            measured.switch_context(item.nodeid)
            begun = time.monotonic()
            failed = first_failure(item, after)
            self._seconds[item.nodeid] = round(time.monotonic() - begun, 3)
            if failed:
                pytest.exit(f"on the unchanged code: {failed}", returncode=3)
        measured.stop()
        for path in SUBJECTS:
            for line, nodes in measured.get_data().contexts_by_lineno(str(path)).items():
                self._lines.setdefault((str(path.relative_to(ROOT)), line), []).extend(filter(None, nodes))
                self._spread.update(filter(None, nodes))

    def tests_of(self, change: Change) -> list[str]:
        """Those that run the line, or any of its module where none does."""
        name = str(change.path.relative_to(ROOT))
        nodes = set(self._lines.get((name, change.line), ()))
        nodes = nodes or {node for (path, _), nodes in self._lines.items() if path == name for node in nodes}
        return self._in_turn(nodes)

    def all_tests(self) -> list[str]:
        return self._in_turn(self._seconds)

    def _in_turn(self, nodes: Iterable[str]) -> list[str]:
        """Fast ones first; and of each file one soon, for where hundreds run a line those that look at it are few; and
        those that run few other lines, which are likely to."""
        fast = sorted(nodes, key=lambda node: (self._seconds[node], node))
        narrow = sorted(fast, key=lambda node: self._spread[node])
        files: dict[str, list[str]] = {}
        for node in fast:
            files.setdefault(node.partition("::")[0], []).append(node)
        each = [node for row in itertools.zip_longest(*files.values()) for node in row if node is not None]
        return list(dict.fromkeys(itertools.chain.from_iterable(zip(fast, each, narrow, strict=True))))


def first_failure(item: pytest.Item, after: pytest.Item | None) -> str | None:
    """Run one test; what failed of it, None if nothing did."""
    from _pytest.runner import runtestprotocol

    for report in runtestprotocol(item, nextitem=after, log=False):
        if report.failed:
            said = getattr(report.longrepr, "reprcrash", None)
            return f"{item.nodeid}: {str(said.message if said else report.longrepr).strip().splitlines()[0][:100]}"
    return None


def new_code(source: str, other: str, path: str) -> list[tuple[CodeType, CodeType]] | None:
    """The functions that differ between two texts of a module, each with its new code; None if anything else does."""
    pairs: list[tuple[CodeType, CodeType]] = []

    def is_alike(one: CodeType, two: CodeType) -> bool:
        if (one.co_code, one.co_names, len(one.co_consts)) != (two.co_code, two.co_names, len(two.co_consts)):
            return False
        for mine, its in zip(one.co_consts, two.co_consts, strict=True):
            if not isinstance(mine, CodeType) or not isinstance(its, CodeType):
                if (type(mine), mine) != (type(its), its):
                    return False
            elif not mine.co_flags & 1:  # the body of a class, which runs as it is imported
                if not is_alike(mine, its):
                    return False
            elif mine != its:
                pairs.append((mine, its))
        return True

    return pairs if is_alike(compile(source, path, "exec"), compile(other, path, "exec")) and pairs else None


class Trying:
    """A plugin of pytest: instead of running the tests once it runs those of each change, in a child for each."""

    def __init__(self, changes: list[Change], known: Path, outcomes: Path, until: float, seconds: float) -> None:
        self._changes = changes
        self._known = known
        self._outcomes = outcomes
        self._until = until
        self._seconds = seconds

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not ELSEWHERE & set(getattr(item, "fixturenames", ()))]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        known = Known.read(self._known) if self._known.exists() else Known({}, {})
        known.learn([item for item in session.items if not known.has(item.nodeid)])
        known.write(self._known)
        self._prepare()
        functions: dict[str, list[FunctionType]] = {}
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType):
                functions.setdefault(thing.__code__.co_filename, []).append(thing)
        gc.freeze()
        for change in self._changes:
            if time.monotonic() > self._until:
                break
            source = change.path.read_text(encoding="utf-8")
            pairs = new_code(source, change.source, str(change.path))
            mine = functions[str(change.path)]
            if pairs is None or not all(any(function.__code__ == old for function in mine) for old, _ in pairs):
                continue
            nodes = known.tests_of(change)
            begun = time.monotonic()
            noticed_by = in_child(partial(self._run, mine, pairs, [items[node] for node in nodes if node in items]))
            keep(self._outcomes, change, len(nodes), noticed_by, time.monotonic() - begun)
        return True

    def _prepare(self) -> None:
        """Projects of tests are copies of one that each child would have to make."""
        from gate_world import started

        started(Path(tempfile.mkdtemp()) / "project")

    def _run(
        self, functions: list[FunctionType], pairs: list[tuple[CodeType, CodeType]], items: list[pytest.Item]
    ) -> str:
        for function in functions:
            for old, new in pairs:
                if function.__code__ == old:
                    function.__code__ = new
                    break
        until = time.monotonic() + self._seconds
        for item, after in itertools.zip_longest(items, items[1:]):
            if time.monotonic() > until:
                break
            signal.alarm(LIMIT_S)
            failed = first_failure(item, after)
            if failed:
                return failed
        return ""


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


class FirstFailure:
    """A plugin of pytest that remembers it."""

    said = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.said:
            self.said = report.nodeid


class Until:
    """A plugin of pytest that lets no test begin after some moment."""

    def __init__(self, until: float) -> None:
        self._until = until

    def pytest_runtest_setup(self) -> None:
        if time.monotonic() > self._until:
            pytest.exit("out of time", returncode=0)


def imported_anew(change: Change, nodes: list[str], seconds: float) -> str:
    sys.meta_path.insert(0, Changed(change))
    first = FirstFailure()
    signal.alarm(int(seconds) + 2 * LIMIT_S)
    code = pytest.main([*OPTIONS, "-x", *nodes], plugins=[first, Until(time.monotonic() + seconds)])
    return "" if code == 0 else first.said or f"pytest: exit code {int(code)}"


def in_child(work: Callable[[], str]) -> str | None:
    """What the work says in a child of this process, None if nothing; its end by a signal counts as a word."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.chdir(ROOT)
        said = "ended early"
        try:
            said = work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(write, said.encode()[:1000])
            os._exit(0)
    os.close(write)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read, "rb") as said_to_us:
        os.set_blocking(said_to_us.fileno(), False)  # a program that it started may live on and hold the other end
        said_of_it = (said_to_us.read() or b"").decode()
    if os.WIFSIGNALED(status):
        return "took too long" if os.WTERMSIG(status) == signal.SIGALRM else f"signal {os.WTERMSIG(status)}"
    return said_of_it or None


def outcomes_of(path: Path) -> list[Outcome]:
    return [Outcome(*json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def keep(path: Path, change: Change, tests: int, noticed_by: str | None, seconds: float) -> None:
    """One line for each try; the last one of a change counts."""
    with path.open("a") as file:
        file.write(json.dumps(Outcome(change.key, str(change), tests, noticed_by, round(seconds, 1))) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=220)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no further change after that")
    parser.add_argument("--seconds", type=float, default=600.0, help="give up a change after that")
    parser.add_argument("--known", type=Path, help="keeps which test runs which line, for later runs on the same tests")
    parser.add_argument("--json", type=Path, help="where the outcome of each change goes, a line for each try")
    parser.add_argument("--again", action="store_true", help="try those that were not noticed once more")
    given = parser.parse_args()
    begun = time.monotonic()
    until = begun + given.minutes * 60
    folder = Path(tempfile.mkdtemp())
    known_at, outcomes_at = given.known or folder / "known.json", given.json or folder / "outcomes.json"
    made = (change_of(place) for place in places(given.seed))
    drawn = list(itertools.islice((change for change in made if change is not None), given.count))
    earlier = outcomes_of(outcomes_at)
    before = {outcome.key: outcome for outcome in earlier}
    todo = [
        change
        for change in drawn
        if change.key not in before or (given.again and before[change.key].noticed_by is None)
    ]
    print(f"{len(drawn)} changes drawn, {len(todo)} to try, {time.monotonic() - begun:.0f} s to prepare", flush=True)
    for name in ("hypothesis", "jsonschema", "numpy", "click", "httpx", "tabulate"):
        __import__(name)  # what every child needs is loaded once
    child = os.fork()  # by itself, for we must not have imported our package when we try the rest
    if child == 0:
        code = 3
        try:
            code = int(
                pytest.main([*OPTIONS, *TESTS], plugins=[Trying(todo, known_at, outcomes_at, until, given.seconds)])
            )
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 5):
        return 3
    known, tried = Known.read(known_at), {outcome.key for outcome in outcomes_of(outcomes_at)[len(earlier) :]}
    for change in todo:
        if time.monotonic() > until or change.key in tried:
            continue
        at, nodes = time.monotonic(), known.all_tests()
        noticed_by = in_child(partial(imported_anew, change, nodes, given.seconds))
        keep(outcomes_at, change, len(nodes), noticed_by, time.monotonic() - at)
    last = {outcome.key: outcome for outcome in outcomes_of(outcomes_at)}
    outcomes = [last[change.key] for change in drawn if change.key in last]
    for outcome in outcomes:
        if outcome.noticed_by is None:
            print(f"not noticed ({outcome.tests} tests): {outcome.change}")
    noticed = sum(outcome.noticed_by is not None for outcome in outcomes)
    share = noticed / max(len(outcomes), 1)
    print(f"{noticed} of {len(outcomes)} noticed ({share:.1%}), {time.monotonic() - begun:.0f} s")
    return 0 if share >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
