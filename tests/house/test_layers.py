"""The rooms and which of them may know which others. Read from the source, function-level imports included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "pytest_fanout"

_BASE = {"records", "errors"}
#: room -> the rooms that it may import. `session` stands on top, `errors` at the bottom.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "records": {"errors"},
    "config": set(_BASE),
    "wire": {"config", *_BASE},
    "meter": {"wire", "config", *_BASE},
    "store": {"wire", "config", *_BASE},
    "judge": {"wire", "config", *_BASE},
    "capacity": {"judge", "wire", "config", *_BASE},
    "explain": {"capacity", "judge", "wire", "config", *_BASE},
    "report": {"explain", "capacity", "judge", "wire", "config", *_BASE},
    "gate": {"report", "explain", "capacity", "judge", "store", "wire", "config", *_BASE},
    "cli": {"gate", "report", "explain", "capacity", "judge", "store", "meter", "wire", "config", *_BASE},
    "session": {"gate", "report", "explain", "capacity", "judge", "store", "meter", "wire", "config", *_BASE},
    # The doors: pytest's hooks hand over to the session, the package shows names, hookspecs name types.
    "plugin": {"session", "hookspecs", "config", *_BASE},
    "hookspecs": set(),
    "__init__": set(),
}
#: The doors may name types of any room under TYPE_CHECKING, because nothing of that exists at run time.
TYPES_ARE_FREE = {"plugin", "hookspecs", "__init__"}
HTTP_LIBRARIES = {"httpx", "httpx2", "aiohttp", "requests", "urllib3", "botocore", "vcr", "openai", "anthropic"} | {
    "websockets", "grpc", "google", "uvloop", "trio", "lm15"
}  # fmt: skip


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def dotted(path: Path) -> tuple[str, ...]:
    return ("pytest_fanout", *path.relative_to(PACKAGE).with_suffix("").parts)


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def imports(
    node: ast.AST, here: tuple[str, ...], *, in_function: bool = False, types_only: bool = False
) -> Iterator[tuple[str, int, bool, bool]]:
    """Each imported dotted name, its line, whether it stands in a function, whether only type checkers see it."""
    for child in ast.iter_child_nodes(node):
        inside = in_function or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield alias.name, child.lineno, in_function, types_only
        elif isinstance(child, ast.ImportFrom):
            start = ".".join(here[: -child.level]) if child.level else ""
            module = ".".join(part for part in (start, child.module or "") if part)
            for alias in child.names:
                yield f"{module}.{alias.name}", child.lineno, in_function, types_only
        elif isinstance(child, ast.Call) and ast.unparse(child.func).endswith("import_module"):
            argument = child.args[0] if child.args else None
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value, child.lineno, in_function, types_only
            yield from imports(child, here, in_function=inside, types_only=types_only)
        elif isinstance(child, ast.If) and is_type_checking(child.test):
            for statement in child.body:
                yield from imports(ast.Module([statement], []), here, in_function=inside, types_only=True)
            for statement in child.orelse:
                yield from imports(ast.Module([statement], []), here, in_function=inside, types_only=types_only)
        else:
            yield from imports(child, here, in_function=inside, types_only=types_only)


def imports_of(path: Path) -> list[tuple[str, int, bool, bool]]:
    here = dotted(path)
    if path.name == "__init__.py":
        here = (*here[:-1], "__init__")
    return list(imports(ast.parse(path.read_text(encoding="utf-8")), here))


def imported_room(name: str) -> str | None:
    """The room that a dotted name belongs to; None when it is not ours."""
    parts = name.split(".")
    if parts[0] != "pytest_fanout":
        return None
    if len(parts) == 1:
        return "__init__"
    return parts[1] if parts[1] in ALLOWED else "__init__" if not (PACKAGE / parts[1]).exists() else parts[1]


def test_every_module_belongs_to_a_room_of_the_table() -> None:
    """A new room is a decision: it gets a line in the table of what it may import."""
    rooms = {room_of(path) for path in modules()}

    assert rooms - set(ALLOWED) == set()


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    """A module imports only rooms that its own room may know, wherever in the file the import stands."""
    room = room_of(path)
    wrong = [
        f"{path.name}:{line} imports {name}"
        for name, line, _, types_only in imports_of(path)
        if (target := imported_room(name)) is not None
        and target != room
        and target not in ALLOWED[room]
        and not (types_only and room in TYPES_ARE_FREE)
    ]

    assert wrong == []


def test_the_table_itself_has_no_cycle() -> None:
    """Rooms can be put in a row in which each knows only those before it."""
    left = {room: set(known) for room, known in ALLOWED.items()}
    while ready := [room for room, known in left.items() if not known & set(left)]:
        for room in ready:
            del left[room]

    assert left == {}


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Inside a room, too, imports have an order (type hints aside)."""
    names = {".".join(dotted(path)).removesuffix(".__init__"): path for path in modules()}
    known: dict[str, set[str]] = {}
    for name, path in names.items():
        targets = set()
        for target, _, _, types_only in imports_of(path):
            if types_only:
                continue
            found = target if target in names else target.rpartition(".")[0]
            if found in names and found != name:
                targets.add(found)
        known[name] = targets
    left = dict(known)
    while ready := [name for name, targets in left.items() if not targets & set(left)]:
        for name in ready:
            del left[name]

    assert {name: sorted(targets & set(left)) for name, targets in left.items()} == {}


@pytest.mark.parametrize("upper", ["report", "explain", "capacity", "judge"])
def test_pure_rooms_know_neither_files_nor_network(upper: str) -> None:
    """What judges, explains, prices and tells can be called with plain records: it never reaches for store or meter."""
    assert ALLOWED[upper] & {"store", "meter"} == set()


def test_store_and_meter_do_not_know_each_other() -> None:
    """They meet in the session: the meter is given a sink, the replay a source."""
    assert "meter" not in ALLOWED["store"]
    assert "store" not in ALLOWED["meter"]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_http_libraries_are_imported_inside_functions(path: Path) -> None:
    """An agent that does not use an HTTP library never pays for its import (type hints aside)."""
    early = [
        f"{path.name}:{line} imports {name}"
        for name, line, in_function, types_only in imports_of(path)
        if name.split(".")[0] in HTTP_LIBRARIES and not in_function and not types_only
    ]

    assert early == []


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_file_is_longer_than_500_lines(path: Path) -> None:
    """A file can be read in one sitting."""
    lines = len(path.read_text(encoding="utf-8").splitlines())

    assert lines <= 500


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import pytest_fanout.store", ("pytest_fanout.store", 1, False, False)),
        ("def f():\n    from pytest_fanout.meter import Meter", ("pytest_fanout.meter.Meter", 2, True, False)),
        ("if TYPE_CHECKING:\n    import httpx", ("httpx", 2, False, True)),
        ("class A:\n    import httpx", ("httpx", 2, False, False)),
        ("from ..store import files", ("pytest_fanout.store.files", 1, False, False)),
        ("import importlib\ndef f():\n    importlib.import_module('vcr')", ("vcr", 3, True, False)),
        ("try:\n    import vcr\nexcept ImportError:\n    pass", ("vcr", 2, False, False)),
    ],
)
def test_the_reader_of_imports_sees_each_kind(source: str, expected: tuple[str, int, bool, bool]) -> None:
    """Top-level, function-level, relative, typing-only and dynamic imports are all seen, and told apart."""
    found = list(imports(ast.parse(source), ("pytest_fanout", "judge", "limits")))

    assert expected in found
