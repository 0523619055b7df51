"""What prompts have in common: their words, and what of them stays where inputs, ids, dates and numbers change."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

#: Stands in a template where the texts it was learned from differ.
GAP = "…"
#: So much of two prompts must be alike for them to be one prompt with other values.
ALIKE = 0.7
_MOST_WORDS = 600  # beyond what two texts share at both ends, more is not compared word by word
_WORD = re.compile(r"\s*\S+\s*")
#: What changes from one day or one run to the next, and says nothing about the agent.
_VALUES = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"  # UUIDs
    r"|\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"  # ISO dates and times
    r"|\b\d{1,2}:\d{2}(?::\d{2})?\b"
    r"|\b(?:\d{1,2}\.? )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.? \d{1,2}(?:, \d{4})?\b"
    r"|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b"
    r"|\b\d{9,}\b"  # times in seconds, numbers of orders
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{10,}\b",  # digests
)


def words(text: str) -> list[str]:
    """The words of a text with the blanks around them, so that joining gives the text back."""
    return _WORD.findall(text) or ([text] if text else [])


def without_values(text: str) -> str:
    """The text with dates, times and ids as gaps."""
    return _VALUES.sub(GAP, text)


def alikeness(one: Sequence[str], other: Sequence[str]) -> float:
    """From 0 to 1: which share of the words of two texts is alike, numbers and ids counting as alike."""
    a, b = bare(one), bare(other)
    if not a or not b:
        return float(not a and not b)
    start, end = _ends(a, b)
    shared = start + end
    rest_a, rest_b = a[start : len(a) - end], b[start : len(b) - end]
    if rest_a and rest_b and max(len(rest_a), len(rest_b)) <= _MOST_WORDS:
        blocks = difflib.SequenceMatcher(None, rest_a, rest_b, autojunk=False).get_matching_blocks()
        shared += sum(block.size for block in blocks)
    return 2 * shared / (len(a) + len(b))


def common(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """The words that two texts have in common, in order, a gap where they differ."""
    a, b = [word.strip() for word in one], [word.strip() for word in other]
    start, end = _ends(a, b)
    rest_a, rest_b = a[start : len(a) - end], b[start : len(b) - end]
    middle: list[str] = []
    at_a = at_b = 0
    if max(len(rest_a), len(rest_b)) <= _MOST_WORDS:
        for block in difflib.SequenceMatcher(None, rest_a, rest_b, autojunk=False).get_matching_blocks():
            if (block.a > at_a or block.b > at_b) and middle[-1:] != [f"{GAP} "]:
                middle.append(f"{GAP} ")
            middle += one[start + block.a : start + block.a + block.size]
            at_a, at_b = block.a + block.size, block.b + block.size
    elif rest_a or rest_b:
        middle.append(f"{GAP} ")
    out: list[str] = []
    for word in (*one[:start], *middle, *one[len(one) - end :]):
        if word.strip() == GAP and out and out[-1].strip() == GAP:
            continue
        out.append(word)
    return out


def stable_words(template: Iterable[str]) -> int:
    """How many words of a template are no gap."""
    return sum(word.strip() != GAP for word in template)


def bare(parts: Iterable[str]) -> list[str]:
    """Words as they are compared: without blanks around them, all numbers alike."""
    return [_bare(word) for word in parts]


@lru_cache(maxsize=2**16)  # the same words stand in all prompts of a class
def _bare(word: str) -> str:
    return re.sub(r"\d+", "0", word.strip())


def _ends(a: Sequence[str], b: Sequence[str]) -> tuple[int, int]:
    """How many words two texts share at their start, and of the rest at their end."""
    most = min(len(a), len(b))
    start = next((at for at in range(most) if a[at] != b[at]), most)
    left = most - start
    end = next((at for at in range(left) if a[len(a) - 1 - at] != b[len(b) - 1 - at]), left)
    return start, end
