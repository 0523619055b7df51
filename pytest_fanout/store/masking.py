"""Secrets taken out of what is shown: a report is never refused, and says that something was masked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeVar

from pytest_fanout.records import Problem
from pytest_fanout.store.scanner import Scanner

T = TypeVar("T")
_SHORTEST: Final = 8  # what is shorter holds no secret
_REMEMBERED: Final = 10_000
#: Digests, and what nobody shows.
_PLAIN_FIELDS: Final = frozenset({"body_hash", "fingerprint", "definition", "recording", "digest"})
_NO_TEXT: Final = frozenset({int, bool, float, type(None), bytes})


class Masker:
    """Masks texts and records, and remembers of what kinds the secrets were."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._scanner = Scanner(environ)
        self._clean: set[str] = set()
        self._kinds: dict[str, None] = {}
        self._told: set[str] = set()

    def text(self, text: str) -> str:
        """``text`` without secrets."""
        if len(text) < _SHORTEST or text in self._clean:
            return text
        masked, kinds = self._scanner.mask(text)
        if not kinds:
            if len(self._clean) >= _REMEMBERED:
                self._clean.clear()
            self._clean.add(text)
            return text
        self._kinds.update(dict.fromkeys(kinds))
        return masked

    def take(self, agent: str | None = None) -> tuple[Problem, ...]:
        """The notice of what has been masked since the last one; none where nothing was.

        Args:
            agent: whose texts these are; None: of no class, and what another notice tells is not told again.
        """
        kinds, self._kinds = sorted(self._kinds.keys() - (self._told if agent is None else ())), {}
        self._told.update(kinds)
        if not kinds:
            return ()
        # without numbers, so that it is told once for all tasks
        text = (
            f"a text of this report held {' and '.join(kinds)}: [masked] stands in its place\n"
            "  mend: keep secrets out of what the agent sends, raises and prints; renew a key that others have seen"
        )
        return (Problem("secret-masked", text, "notice", agent),)

    def record(self, value: T) -> T:
        """A record, or a collection of them, whose texts are masked; the very same where there is nothing to mask."""
        # one look at all texts together is enough where there is nothing, which is nearly always
        texts: dict[str, None] = {}
        _collect(value, texts)
        if not self._scanner.mask("\n".join(texts))[1]:
            return value
        out: Any = self._masked(value)
        return out  # type: ignore[no-any-return]

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, tuple | list):
            items = [self._masked(item) for item in value]
            return value if all(map(_same, items, value)) else type(value)(items)
        if isinstance(value, Mapping):
            pairs = {self._masked(key): self._masked(item) for key, item in value.items()}
            is_same = all(map(_same, pairs, value)) and all(map(_same, pairs.values(), value.values()))
            return value if is_same else pairs
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            changes = {}
            for name in _fields(value.__class__):
                before = getattr(value, name)
                after = self._masked(before)
                if after is not before:
                    changes[name] = after
            return dataclasses.replace(value, **changes) if changes else value
        return value


def _collect(value: Any, into: dict[str, None]) -> None:
    """All texts of a record that are long enough to hold a secret. Called for each trial, so it is made to be quick."""
    kind: Any = type(value)
    if kind is str:
        if len(value) >= _SHORTEST:
            into[value] = None
    elif kind is tuple or kind is list:
        for item in value:
            _collect(item, into)
    elif kind is dict or isinstance(value, Mapping):
        for key, item in value.items():
            _collect(key, into)
            _collect(item, into)
    elif kind not in _NO_TEXT:
        for name in _fields(kind):
            _collect(getattr(value, name), into)


@cache
def _fields(kind: Any) -> tuple[str, ...]:
    """The fields of a record that may hold texts; none of what is no record."""
    if not dataclasses.is_dataclass(kind):
        return ()
    return tuple(field.name for field in dataclasses.fields(kind) if field.name not in _PLAIN_FIELDS)


def _same(one: Any, other: Any) -> bool:
    return one is other
