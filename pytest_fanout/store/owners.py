"""CODEOWNERS of the work tree: who is asked to review a path. For advice only; the forge decides by its own reading."""

from __future__ import annotations

import re
from pathlib import Path

_PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS")
_MOST_BYTES = 3 * 2**20  # a larger one is not read by GitHub either
_WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def owners_of(root: Path, path: str) -> tuple[str, ...] | None:
    """The owners of a file, as the last line that matches it names them; () where none does, None without a file.

    Args:
        root: of the repository.
        path: from there, with ``/``.
    """
    for place in _PLACES:
        try:
            text = (root / place).read_bytes()[:_MOST_BYTES].decode("utf-8", "replace")
        except OSError:
            continue
        found: tuple[str, ...] = ()
        for line in text.splitlines():
            words = re.sub(r"(^|\s)#.*", "", line).split()
            if words and not words[0].startswith(("[", "^[")) and _matches(words[0], path):
                found = tuple(words[1:])
        return found
    return None


def _matches(pattern: str, path: str) -> bool:
    body = pattern.strip("/")
    start = "" if "/" in pattern.rstrip("/") else "(?:.*/)?"
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", body)
    middle = "".join(_WILD.get(part, re.escape(part)) for part in parts)
    # `folder/*` is its files, not those of the folders below it
    end = "/.*" if pattern.endswith("/") else "" if body.endswith("/*") else "(?:/.*)?"
    return re.fullmatch(start + middle + end, path) is not None
