"""What call sites are called: by their names, or the first words of their prompts. Two sites never sound the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pytest_fanout.explain.learning import Site
from pytest_fanout.explain.matching import Pair
from pytest_fanout.wire.text import first_words

_START, _REST = 20, 38  # characters of a label that is told from others by what comes later
_BEFORE = 1  # words before the one that differs

Labels = Mapping[str, str]  # key -> label


def labels_of(pairs: Sequence[Pair]) -> tuple[Labels, Labels]:
    """The labels of the base and of the run; a site that one side does not have is called there as on the other.

    Sites that begin with the same words are told apart by the words in which they differ, or else by tools or API.
    """
    sites = {(pair.key, side): site for pair in pairs for side, site in enumerate((pair.base, pair.run)) if site}
    by_label: dict[str, dict[tuple[str, int], Site]] = defaultdict(dict)
    for at, site in sites.items():
        by_label[site.label][at] = site
    told: dict[tuple[str, int], str] = {}
    for label, own in by_label.items():
        alike = len({key for key, _ in own}) == 1
        told.update(dict.fromkeys(own, label) if alike else _apart(label, own))
    base, run = (
        {pair.key: told.get((pair.key, side)) or told[pair.key, 1 - side] for pair in pairs} for side in (0, 1)
    )
    return base, run


def _apart(label: str, sites: Mapping[tuple[str, int], Site]) -> dict[tuple[str, int], str]:
    """Labels of sites that begin alike."""
    if len({site.name for site in sites.values()}) == 1 and label in {site.name for site in sites.values()}:
        return {at: f"{label} ({_frame(site)})" for at, site in sites.items()}
    words = {at: site.prompt.split() for at, site in sites.items()}
    found = {at: _by_words(label, own, list(words.values())) for at, own in words.items()}
    taken: dict[str, set[str]] = defaultdict(set)
    for (key, _), text in found.items():
        taken[text].add(key)
    return {at: text if len(taken[text]) == 1 else f"{text} ({_frame(sites[at])})" for at, text in found.items()}


def _by_words(label: str, own: Sequence[str], all_of_them: Sequence[Sequence[str]]) -> str:
    """The first words, then those from where the next of the others has other ones."""
    apart = [_shared(own, other) for other in all_of_them if other != own]
    if not apart:
        return label
    at = max(apart)  # the other that is alike for longest
    if at >= len(own):
        return f"{first_words(' '.join(own), _START)}… {first_words(' '.join(own[-3:]), _REST)}"
    return f"{first_words(' '.join(own), _START)}… {first_words(' '.join(own[max(at - _BEFORE, 0) :]), _REST)}"


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _frame(site: Site) -> str:
    tools = f"tools {', '.join(site.tools[:3])}" if site.tools else "no tools"
    return f"{site.api}, {tools}"
