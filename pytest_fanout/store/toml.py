"""Reads the TOML files of ``baselines/``, which are written by hand: an error names the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pytest_fanout.errors import ConfigError
from pytest_fanout.store.files import digest

_AT = re.compile(r" ?\(at (?:line (\d+), column \d+|end of document)\)")


def load_toml(data: bytes, where: str, *, decimals: bool = True) -> dict[str, Any]:
    """A TOML document; with ``decimals``, decimal numbers are kept exact.

    Raises:
        ConfigError: naming ``where`` and the line.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError(
            "bad-toml", "is not UTF-8 text", where=f"{where}:{line}", mend="save the file as UTF-8"
        ) from None
    for number, line_text in enumerate(text.splitlines(), 1):
        if line_text.startswith(("<<<<<<< ", ">>>>>>> ")):
            raise ConfigError(
                "conflict-marks",
                "holds the marks of an unresolved merge conflict",
                where=f"{where}:{number}",
                mend="resolve the conflict and commit the file",
            )
    try:
        return tomllib.loads(text.replace("\r\n", "\n"), parse_float=Decimal if decimals else float)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        at = _AT.search(str(error))
        line_no = at.group(1) if at and at.group(1) else None
        reason = str(error)[: at.start()] if at else str(error)
        if not line_no:
            reason += ", at the end of the file" if at else ""
        raise ConfigError(
            "bad-toml",
            f"is not valid TOML: {reason}",
            where=f"{where}:{line_no}" if line_no else where,
            mend="mend the line" if line_no else "mend the file",
        ) from None


def toml_digest(document: Mapping[str, Any]) -> str:
    """Digest of the parsed document: comments, layout and line endings never change it."""
    return digest(_plain(document))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, str | int) else str(value)  # decimals, dates and times by their text
