"""Which call site of the run is which of the base: by its prompt and tools, or else by what is nearest in all."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_fanout.explain.learning import Site, place_of
from pytest_fanout.explain.templates import alikeness, words
from pytest_fanout.records import CallSite

#: A pair that scores less is one site gone and one new. Of 1: words 0.5, place in the flow 0.2, tools 0.2, API 0.1.
ENOUGH = 0.5


@dataclass(frozen=True, slots=True)
class Pair:
    """A call site on both sides; None where a side does not have it."""

    key: str
    base: Site | None
    run: Site | None

    @property
    def site(self) -> Site:
        """Of the run, or else of the base."""
        found = self.run or self.base
        assert found is not None
        return found


def match(base: Sequence[Site], run: Sequence[Site]) -> tuple[Pair, ...]:
    """Every site of both sides once, in the order of the run's flow, those that are gone last.

    A name given by the code decides alone. Then the same prompt, with the same tools first. What is left is paired by a
    score of words, place in the flow, tools and API, the best pair first.
    """
    left_base, left_run = list(base), list(run)
    found: list[tuple[Site, Site]] = []
    for is_same in (_is_alike, _is_named_alike, _has_same_text, _has_same_prompt):
        for new in tuple(left_run):
            old = next((site for site in left_base if is_same(site, new)), None)
            if old is not None:
                found.append((old, new))
                left_base.remove(old)
                left_run.remove(new)
    orders_base, orders_run = _orders(base), _orders(run)
    words_base, words_run = ([words(site.text) for site in side] for side in (left_base, left_run))
    scores = [
        (
            -likeness(old, new, orders_base[id(old)] - orders_run[id(new)], words_base[at_base], words_run[at_run]),
            at_run,
            at_base,
        )
        for at_base, old in enumerate(left_base)
        for at_run, new in enumerate(left_run)
        if None in (old.name, new.name)
    ]
    taken_base, taken_run = set(), set()
    for score, at_run, at_base in sorted(scores):
        if -score >= ENOUGH and at_run not in taken_run and at_base not in taken_base:
            found.append((left_base[at_base], left_run[at_run]))
            taken_base.add(at_base)
            taken_run.add(at_run)
    olds = {id(new): old for old, new in found}
    matched = {id(old) for old, _ in found}
    pairs = [(olds.get(id(site)), site) for site in run]
    gone = [(site, None) for site in base if id(site) not in matched]
    taken: set[str] = set()
    return tuple(Pair(_key(new or old, taken), old, new) for old, new in (*pairs, *gone))


def _key(site: Site | None, taken: set[str]) -> str:
    """Sixteen hex digits that name a site for as long as its prompt, tools and API stay."""
    assert site is not None
    told = repr((site.name, site.api, site.tools, site.prompt))
    key, number = hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:16], 1
    name = key
    while name in taken:
        number += 1
        name = f"{key}~{number}"
    taken.add(name)
    return name


def _is_alike(old: Site, new: Site) -> bool:
    return _has_same_text(old, new) and old.api == new.api and old.tools == new.tools


def _is_named_alike(old: Site, new: Site) -> bool:
    return new.name is not None and old.name == new.name


def _has_same_text(old: Site, new: Site) -> bool:
    return _has_same_prompt(old, new) and old.text == new.text


def _has_same_prompt(old: Site, new: Site) -> bool:
    return (
        (old.name == new.name or None in (old.name, new.name))
        and old.has_system == new.has_system
        and old.prompt == new.prompt
    )


def _orders(sites: Sequence[Site]) -> dict[int, float]:
    """Where each stands among the sites of its side, from 0 (first) to 1 (last), by its identity."""
    places = sorted(place_of(one) for one in sites)
    last = max(len(places) - 1, 1)
    return {id(site): bisect_left(places, place_of(site)) / last for site in sites}


def likeness(
    old: Site | CallSite, new: Site | CallSite, moved: float, words_old: Sequence[str], words_new: Sequence[str]
) -> float:
    """How much two sites are alike, from 0 to 1; ``moved``: 0 (the same place in the flow) to 1 (its two ends)."""
    tools_old, tools_new = set(old.tools), set(new.tools)
    tools = len(tools_old & tools_new) / len(tools_old | tools_new) if tools_old | tools_new else 1.0
    return 0.5 * alikeness(words_old, words_new) + 0.2 * (1 - abs(moved)) + 0.2 * tools + 0.1 * (old.api == new.api)
