"""Which changes carry the growth. Every part goes to exactly one place, so that the shares of findings add up too.

Where a part goes, the first that fits:
1. what calls do whatever was changed (new and gone sites, repeated and rejected calls, retries, lost cache hits)
   stands for itself;
2. more conversations of a site, those made again among them, go to the nearest changed site that is called before it;
3. more input in each call goes there too, as far as that site and those called since have said more, which the calls
   may carry; the rest to the site's own prompt where that is no system prompt, or else it stands for itself;
4. a part of a site goes to what changed in that site's own requests: the tokens of its prompt to the prompt, those of
   tool definitions and calls that carry the results of an added tool to the tools, thinking to settings; anything else
   evenly to all that changed there;
5. the part stands for itself: nothing that was sent explains it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from pytest_fanout.explain.changes import Change
from pytest_fanout.explain.learning import place_of
from pytest_fanout.explain.matching import Pair
from pytest_fanout.explain.places import AddedLine, places_of
from pytest_fanout.records import ClassTotal, Finding, Part, Share

#: Findings with a smaller share of everything are not told, and changes that carry less are not observed.
LEAST_SHARE = Fraction(5, 100)
_LEAST_REST = Fraction(2, 100)  # of what is told of other sites already
_MOST_LINES = 20  # of the prompt of a new site
#: Parts that are told as they are.
_FOR_THEMSELVES = frozenset({"new", "gone", "repeated", "reasked", "retries", "cache", "evalset", "refused", "untold"})
_OF_THOSE_BEFORE = frozenset({"begun", "wider", "again"})
_WORDS: Mapping[str, str] = {
    "new": "new call site",
    "gone": "call site gone",
    "begun": "called more often",
    "wider": "more calls at once",
    "turn": "longer conversations",
    "repeated": "repeats identical calls",
    "again": "makes calls again that it has made before",
    "reasked": "rejects answers and asks again",
    "prompt": "prompt takes more tokens",
    "tools": "tool definitions take more tokens",
    "asked": "more input in each call",
    "resent": "more context sent again in each call",
    "results": "more tool results in each call",
    "output": "longer answers",
    "reasoning": "more reasoning",
    "retries": "more retries",
    "cache": "cache hits lost",
    "evalset": "eval set: tasks came, went or were redefined",
    "refused": "attempts that no model answered",
    "untold": "not shown by the recordings",
}
_LESS: Mapping[str, str] = {
    "begun": "called less often",
    "wider": "fewer calls at once",
    "turn": "shorter conversations",
    "repeated": "repeats fewer identical calls",
    "again": "makes fewer calls again",
    "reasked": "rejects fewer answers",
    "prompt": "prompt takes fewer tokens",
    "tools": "tool definitions take fewer tokens",
    "asked": "less input in each call",
    "resent": "less context sent again in each call",
    "results": "fewer tool results in each call",
    "output": "shorter answers",
    "reasoning": "less reasoning",
    "retries": "fewer retries",
    "cache": "more cache hits",
}


@dataclass(slots=True)
class _Carried:
    """What one finding carries, by metric and scope."""

    amounts: dict[tuple[str, str], Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    sites: dict[str, None] = field(default_factory=dict)
    beside: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Said:
    """What the sites of a scope say, by key: calls a task, the mean of both sides, and how many tokens a task their
    answers grew by."""

    calls: Mapping[str, Fraction]
    growth: Mapping[str, Fraction]


def words_of(kind: str, value: Fraction) -> str:
    """A part in words."""
    return _LESS[kind] if value < 0 and kind in _LESS else _WORDS[kind]


def findings_of(
    parts: Sequence[Part],
    totals: Sequence[ClassTotal],
    changes: Sequence[Change],
    pairs: Sequence[Pair],
    lines: Sequence[AddedLine],
    versions: Sequence[tuple[str, str]],
    said: Mapping[str, Said],
) -> tuple[Finding, ...]:
    """What changed and what calls do now, with the share of each delta that it carries; largest first.

    Args:
        said: by scope.
    """
    order = _flow(pairs)
    of_site: dict[str, list[Change]] = defaultdict(list)
    for change in changes:
        for key in change.sites:
            of_site[key].append(change)
    carried: dict[Change | tuple[str, str | None], _Carried] = defaultdict(_Carried)
    for part in parts:
        for owners, value in _owed(part, of_site, order, said.get(part.scope)):
            targets: Sequence[Change | tuple[str, str | None]] = owners or [(part.kind, part.site)]
            for target in targets:
                into = carried[target]
                into.amounts[part.metric, part.scope] += value / len(targets)
                into.beside |= {other.kind for other in owners if other is not target}
                if part.site is not None:
                    into.sites[part.site] = None
    deltas = {(total.metric, total.scope): total.delta for total in totals if _has_moved(total)}
    by_key = {pair.key: pair for pair in pairs}
    found = [_of_change(change, carried.get(change, _Carried()), deltas, lines) for change in changes]
    small: dict[str, list[_Carried]] = defaultdict(list)
    for target, held in carried.items():
        if not isinstance(target, Change):
            shares = _shares(held, deltas)
            if _largest(shares) >= LEAST_SHARE:
                found.append(_of_part(*target, shares, by_key, lines))
            elif target[1] is not None:
                small[target[0]].append(held)
    known = {finding.kind for finding in found}
    found += [one for kind, several in small.items() for one in _together(kind, several, deltas, kind in known)]
    found += [Finding(kind, "also changed", text) for kind, text in versions]
    return tuple(sorted(found, key=lambda finding: (-_largest(finding.shares), finding.kind, finding.text)))


def _of_change(
    change: Change,
    held: _Carried,
    deltas: Mapping[tuple[str, str], Fraction],
    lines: Sequence[AddedLine],
) -> Finding:
    shares = _shares(held, deltas)
    forth = max((share.share for share in shares if share.share is not None), default=Fraction(0))
    return Finding(
        kind=change.kind,
        label="observed" if forth >= LEAST_SHARE else "also changed",
        text=f"{change.text}{' changed' if change.kind == 'prompt' else ''}",
        sites=change.sites,
        reaches=tuple(key for key in held.sites if key not in change.sites),
        detail=change.detail,
        places=places_of(change.found, lines),
        shares=shares,
        beside=tuple(sorted(held.beside)),
    )


def _of_part(
    kind: str, key: str | None, shares: tuple[Share, ...], by_key: Mapping[str, Pair], lines: Sequence[AddedLine]
) -> Finding:
    text = words_of(kind, max(shares, key=_size).value)
    if key is None:
        return Finding(kind, "observed", text, shares=shares)
    detail: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    if kind in ("new", "gone"):
        told = by_key[key].site.text.splitlines()
        detail = tuple(("+" if kind == "new" else "-") + line for line in told[:_MOST_LINES])
        places = places_of(told, lines) if kind == "new" else ()
    return Finding(kind, "observed", text, (key,), detail=detail, places=places, shares=shares)


def _together(
    kind: str, several: Sequence[_Carried], deltas: Mapping[tuple[str, str], Fraction], is_known: bool
) -> Iterator[Finding]:
    """What is small at each of several sites, as one finding where it is not small in all, as of a cache that is off,
    or where it completes what is told of larger sites."""
    whole = _Carried()
    for held in several:
        whole.sites |= held.sites
        for at, value in held.amounts.items():
            whole.amounts[at] += value
    shares = _shares(whole, deltas)
    if _largest(shares) >= (_LEAST_REST if is_known else LEAST_SHARE):
        yield Finding(kind, "observed", words_of(kind, max(shares, key=_size).value), tuple(whole.sites), shares=shares)


def _size(share: Share) -> Fraction:
    return abs(share.share or Fraction(0))


def _owed(
    part: Part, of_site: Mapping[str, Sequence[Change]], order: Mapping[str, float], said: Said | None
) -> Iterator[tuple[list[Change], Fraction]]:
    """The changes that a part goes to, with how much of it; no changes where it stands for itself."""
    if part.kind != "asked" or part.site is None:
        yield _owners(part, of_site, order), part.value
        return
    before = _before(part.site, of_site, order)
    carried = Fraction(0)
    if before is not None and said is not None:
        since = [key for key, place in order.items() if order[before] <= place < order[part.site]]
        heard = sum((said.growth.get(key, Fraction(0)) for key in since), Fraction(0)) * said.calls.get(part.site, 0)
        if heard * part.value > 0:
            carried = heard if abs(heard) < abs(part.value) else part.value
            yield list(of_site[before]), carried
    if rest := part.value - carried:
        yield (
            [change for change in of_site.get(part.site, ()) if change.kind == "prompt" and not change.is_system],
            rest,
        )


def _before(site: str, of_site: Mapping[str, Sequence[Change]], order: Mapping[str, float]) -> str | None:
    """The nearest changed site that is called before one."""
    if site not in order:
        return None
    before = [key for key in of_site if key != site and order.get(key, 1.0e9) < order[site]]
    return max(before, key=lambda key: (order[key], key), default=None)


def _owners(part: Part, of_site: Mapping[str, Sequence[Change]], order: Mapping[str, float]) -> list[Change]:
    if part.kind in _FOR_THEMSELVES or part.site is None:
        return []
    before = _before(part.site, of_site, order) if part.kind in _OF_THOSE_BEFORE else None
    if before is not None:
        return list(of_site[before])
    own = list(of_site.get(part.site, ()))
    wanted = {"prompt": "prompt", "tools": "tools", "reasoning": "settings"}.get(part.kind)
    if part.kind == "turn" and any(set(part.after) & change.added for change in own):
        wanted = "tools"
    return [change for change in own if change.kind == wanted] or own


def _flow(pairs: Sequence[Pair]) -> dict[str, float]:
    """Where each site of the run is first visited."""
    return {pair.key: place_of(pair.run) for pair in pairs if pair.run is not None}


def _shares(held: _Carried, deltas: Mapping[tuple[str, str], Fraction]) -> tuple[Share, ...]:
    return tuple(
        Share(metric, scope, value, value / deltas[metric, scope] if (metric, scope) in deltas else None)
        for (metric, scope), value in held.amounts.items()
        if value
    )


def _has_moved(total: ClassTotal) -> bool:
    """By more than a hundredth: of less, shares are large numbers that say nothing."""
    return abs(total.delta) * 100 > max(total.base, total.run)


def _largest(shares: Sequence[Share]) -> Fraction:
    return max((abs(share.share) for share in shares if share.share is not None), default=Fraction(0))
