"""Every slug that the package can show is explained in docs/messages.md, once, and its full text is tested."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "pytest_fanout"
PAGE = ROOT / "docs" / "messages.md"
SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
#: Beside errors: what carries a slug first or as `slug=`. Helpers that hand one on are found by their parameter.
RECORDS = {"Problem", "Reason"}


@cache
def error_classes() -> frozenset[str]:
    """The names of FanoutError and of all that is derived from it, anywhere in the package."""
    bases: dict[str, set[str]] = {}
    for tree in package_trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, set()).update(ast.unparse(base).split(".")[-1] for base in node.bases)
    found = {"FanoutError"}
    while more := {name for name, parents in bases.items() if parents & found} - found:
        found |= more
    return frozenset(found)


def position_of_slug(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int | None:
    """At which position a function takes a slug; -1 for by keyword only, None when it takes none."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    if "slug" in names:
        return names.index("slug")
    return -1 if "slug" in [argument.arg for argument in function.args.kwonlyargs] else None


def hands_on(function: ast.AST, takers: dict[str, int]) -> bool:
    """Whether a function gives its own `slug` to something that shows it, or shows its link itself."""
    for node in ast.walk(function):
        if isinstance(node, ast.JoinedStr) and "messages.md#{slug}" in ast.unparse(node):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in takers:
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            if any(isinstance(value, ast.Name) and value.id == "slug" for value in given):
                return True
    return False


def slug_positions(trees: dict[Path, ast.Module]) -> dict[str, int]:
    """Callables that show a slug: errors, Problem, and each helper that hands its own `slug` on to one of them."""
    takers = dict.fromkeys(error_classes() | RECORDS, 0)
    for tree in trees.values():
        for node in ast.walk(tree):
            hint = ast.unparse(node.annotation) if isinstance(node, ast.arg) and node.annotation else ""
            if isinstance(node, ast.arg) and re.fullmatch(r"Callable\[\[str, .*\], Problem\]", hint):
                takers[node.arg] = 0
    helpers = {
        node.name: (node, position)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name != "__init__"
        if (position := position_of_slug(node)) is not None
    }
    while more := {name: at for name, (node, at) in helpers.items() if name not in takers and hands_on(node, takers)}:
        takers.update(more)
    return takers


def literals(node: ast.expr) -> list[str] | None:
    """The texts that an expression can be; None when it is no literal (a slug handed on)."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.IfExp):
        both = literals(node.body), literals(node.orelse)
        return None if None in both else [*(both[0] or []), *(both[1] or [])]
    return None


def slugs_of(trees: dict[Path, ast.Module]) -> dict[str, list[str]]:
    """Each slug with the places that use it."""
    all_takers = slug_positions(trees)
    shown = error_classes() | RECORDS
    found: dict[str, list[str]] = {}
    for path, tree in trees.items():
        # The wire notes what it reads (`note("no_codec")`), in a helper with a popular name: facts, no messages.
        takers = {n: at for n, at in all_takers.items() if n in shown} if "wire" in path.parts else all_takers
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func).split(".")[-1]
            if name not in takers:
                continue
            position = takers[name]
            argument = next((keyword.value for keyword in node.keywords if keyword.arg == "slug"), None)
            if argument is None and 0 <= position < len(node.args):
                argument = node.args[position]
            for slug in (literals(argument) if argument is not None else None) or []:
                found.setdefault(slug, []).append(f"{path.name}:{node.lineno}")
    return found


@cache
def package_trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def anchors() -> list[str]:
    return re.findall(r"^### (.+?)\s*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@cache
def slugs() -> dict[str, list[str]]:
    """Each slug of the package with the places that use it. Not found while tests are collected: that costs seconds."""
    return slugs_of(package_trees())


def test_slugs_are_found_at_all() -> None:
    """The reader of slugs is not blind: it sees one that has stood in the settings from the first day."""
    assert "unknown-key" in slugs()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("raise ConfigError('bad-toml', 'x')", {"bad-toml"}),
        ("Problem(slug='no-calls', text='x')", {"no-calls"}),
        ("errors.GitError('no-git' if a else 'old-git', 'x')", {"no-git", "old-git"}),
        ("def note(path, slug): Problem(slug, path)\nnote('x', 'one-more')", {"one-more"}),
        ("class A:\n    def note(self, slug): Problem(slug, '')\n    def f(self): self.note('mine')", {"mine"}),
        ("def deep(slug): return note(slug)\ndef note(slug): Problem(slug, '')\ndeep('far')", {"far"}),
        ("def note(slug): notes.append(slug)\nnote('not_shown')", set()),
        ("def f(note: Callable[[str, str], Problem]): note('by-callback', '')", {"by-callback"}),
        ("def f(n, slug): return f'see docs/messages.md#{slug}'\nf(1, 'in-a-body')", {"in-a-body"}),
        ("dict(slug='other')", set()),
    ],
)
def test_the_reader_of_slugs_sees_each_kind(source: str, expected: set[str]) -> None:
    """Positional, by keyword, chosen by a condition, or handed on through a helper: each is seen."""
    assert set(slugs_of({Path("x.py"): ast.parse(source)})) == expected


def test_each_slug_is_explained_once() -> None:
    """docs/messages.md has exactly one heading of that name, in the form that its link needs."""
    explained = Counter(anchors())

    assert [slug for slug in slugs() if not SLUG.match(slug)] == []
    assert {slug: places for slug, places in slugs().items() if explained[slug] != 1} == {}


def test_nothing_is_explained_that_cannot_be_shown() -> None:
    """A heading whose slug is gone from the code would send readers to a message that does not exist."""
    assert sorted(set(anchors()) - set(slugs())) == []


def test_each_explanation_says_something() -> None:
    """Between a slug's heading and the next one stands at least one sentence."""
    parts = re.split(r"^#{2,3} .*$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    headings = re.findall(r"^(#{2,3}) (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    silent = [name for (mark, name), text in zip(headings, parts[1:], strict=True) if mark == "###" and "." not in text]

    assert silent == []


@cache
def words_of_tests() -> frozenset[str]:
    """Everything that could be a slug in any other file of tests."""
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    return frozenset(word for path in tests for word in re.findall(r"[\w-]+", path.read_text(encoding="utf-8")))


def test_each_slug_stands_in_a_test() -> None:
    """Some test names the slug as it is shown (`#slug`) or as it is stored, so its text cannot change unseen."""
    assert {slug: places for slug, places in slugs().items() if slug not in words_of_tests()} == {}
