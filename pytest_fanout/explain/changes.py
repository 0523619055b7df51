"""What changed in the requests of a call site: its prompt, tools, model, settings, API. Each with its evidence."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from pytest_fanout.explain.learning import Site
from pytest_fanout.explain.matching import Pair
from pytest_fanout.explain.templates import without_values
from pytest_fanout.records import Visit, VisitedTrial
from pytest_fanout.wire.text import one_line

_MOST_LINES = 60  # of one diff
_MOST_VALUES = 3  # a setting with more values on one side is no setting, but an input
_AROUND = 1  # lines of context


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs between the two sides of one or more sites. ``found``: texts to look for in a git diff."""

    kind: str  # prompt tools model settings api
    text: str
    sites: tuple[str, ...]
    detail: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    added: frozenset[str] = frozenset()  # tools
    is_system: bool = False  # prompt


@dataclass(slots=True)
class _Told:
    """What the calls of a site say beside their words."""

    tools: dict[str, str] = field(default_factory=dict)
    models: Counter[str] = field(default_factory=Counter)
    served: set[str] = field(default_factory=set)
    settings: dict[str, Counter[str]] = field(default_factory=dict)
    calls: int = 0


def changes_of(pairs: Sequence[Pair], base: Sequence[VisitedTrial], run: Sequence[VisitedTrial]) -> tuple[Change, ...]:
    """Every change of every site that both sides have; what changed alike at several sites is told once."""
    found: dict[tuple[str, str, tuple[str, ...]], Change] = {}
    for pair in pairs:
        if pair.base is None or pair.run is None:
            continue
        for change in _of_site(pair.key, pair.base, pair.run, _told(pair.base, base), _told(pair.run, run)):
            same = (change.kind, change.text, tuple(line for line in change.detail if line[:1] in "+-"))
            if same in found:
                change = replace(found[same], sites=(*found[same].sites, pair.key), added=change.added)
            found[same] = change
    return tuple(found.values())


def _of_site(key: str, old: Site, new: Site, before: _Told, after: _Told) -> Iterable[Change]:
    if old.text != new.text:
        diff = text_diff(old.text, new.text)
        told = tuple(line[1:] for line in diff if line.startswith("+"))
        text = "system prompt" if new.has_system else "prompt"
        yield Change("prompt", text, (key,), diff, told, is_system=new.has_system)
    yield from _of_tools(key, before.tools, after.tools)
    if set(before.models) != set(after.models):
        text = f"model: {_names(before.models)} -> {_names(after.models)}"
        yield Change("model", text, (key,), (), tuple(sorted(set(after.models) - set(before.models))))
    elif before.served and after.served and not before.served & after.served:
        # the same name, and another model behind it: as long as the old one answers as well, it may be chance
        served = f"{_names(before.served)} -> {_names(after.served)}"
        yield Change("model", f"model served as {_names(after.models)}: {served}", (key,))
    for name in sorted({*before.settings, *after.settings}):
        values = [_values(side, name) for side in (before, after)]
        if values[0] != values[1] and all(len(one) <= _MOST_VALUES for one in values):
            words = [", ".join(one_line(value, 80) for value in sorted(one)) for one in values]
            leaf = name.rpartition(".")[2]
            looked = tuple(f"{leaf}\0{value}" for value in sorted(values[1] - values[0]))
            yield Change("settings", f"{one_line(name, 60)}: {words[0]} -> {words[1]}", (key,), (), looked)
    if old.api != new.api:
        yield Change("api", f"API: {old.api} -> {new.api}", (key,))


def _of_tools(key: str, before: dict[str, str], after: dict[str, str]) -> Iterable[Change]:
    added = [name for name in after if name not in before]
    removed = [name for name in before if name not in after]
    other = [name for name in after if name in before and without_values(before[name]) != without_values(after[name])]
    said = [
        f"{what} {', '.join(one_line(name, 60) for name in names)}"
        for what, names in (("added", added), ("removed", removed), ("schema changed", other))
        if names
    ]
    if not said:
        return
    detail: list[str] = []
    for name in (*removed, *other, *added):
        detail += text_diff(_pretty(before.get(name)), _pretty(after.get(name)))
    looked = (*added, *(line[1:].strip() for line in detail if line.startswith("+")))
    yield Change("tools", f"tools: {'; '.join(said)}", (key,), tuple(detail[:_MOST_LINES]), looked, frozenset(added))


def version_changes(base: Sequence[VisitedTrial], run: Sequence[VisitedTrial]) -> tuple[tuple[str, str], ...]:
    """Kind (``sdk``, ``plugin``) and text, ``SDK: OpenAI/Python 2.8.0 -> OpenAI/Python 2.9.1``, of what differs.

    What one side does not know is no difference.
    """
    sides = (base, run)
    sdks = [{visit.sdk for trial in side for visit in trial.visits if visit.sdk} for side in sides]
    plugins = [{trial.version for trial in side if trial.version} for side in sides]
    return tuple(
        (kind, f"{word}: {', '.join(sorted(old))} -> {', '.join(sorted(new))}")
        for kind, word, (old, new) in (("sdk", "SDK", sdks), ("plugin", "pytest-fanout", plugins))
        if old and new and old != new
    )


def text_diff(old: str, new: str) -> tuple[str, ...]:
    """The lines of a unified diff without its header, at most 60."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=_AROUND)
    told = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    if len(told) > _MOST_LINES:
        told = [*told[: _MOST_LINES - 1], f" and {len(told) - _MOST_LINES + 1} more lines"]
    return tuple(told)


def _told(site: Site, trials: Sequence[VisitedTrial]) -> _Told:
    told = _Told()
    for at, number in site.visits:
        visit: Visit = trials[at].visits[number]
        told.calls += 1
        told.models[visit.model or "unknown"] += 1
        if visit.served:
            told.served.add(visit.served)
        told.tools.update(visit.tools)
        for name, value in visit.settings:
            told.settings.setdefault(name, Counter())[value] += 1
    return told


def _values(side: _Told, name: str) -> set[str]:
    values = side.settings.get(name, Counter())
    is_left_out = values.total() < side.calls
    return {*values, *(("(not set)",) if is_left_out else ())}


def _names(models: Iterable[str]) -> str:
    return ", ".join(one_line(name, 60) for name in sorted(models))


def _pretty(definition: str | None) -> str:
    if definition is None:
        return ""
    try:
        return json.dumps(json.loads(definition), ensure_ascii=False, indent=1, sort_keys=True)
    except ValueError:
        return definition
