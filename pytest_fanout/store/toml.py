"""Reads the TOML files of ``baselines/``, which are written by hand: an error names the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from pytest_fanout.errors import ConfigError
from pytest_fanout.store.files import digest

_AT = re.compile(r" ?\(at (?:line (\d+), column \d+|end of document)\)")
_MOST_DIGITS = 100


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
        document = tomllib.loads(text.replace("\r\n", "\n"), parse_float=Decimal if decimals else float)
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
    except ValueError:  # int() refuses more than 4300 digits
        raise _endless(where) from None
    if any(map(_is_endless, _values(document))):
        raise _endless(where)
    return document


def _values(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping | list):
        for entry in value.values() if isinstance(value, Mapping) else value:
            yield from _values(entry)
    else:
        yield value


def _is_endless(value: Any) -> bool:
    """TOML has integers of 64 bits; an exact fraction of 1e-999999999 would fill the memory with zeros."""
    if isinstance(value, Decimal):
        return value.is_finite() and abs(value.adjusted()) > _MOST_DIGITS
    return isinstance(value, int) and abs(value) >= 2**63


def _endless(where: str) -> ConfigError:
    return ConfigError("bad-toml", "holds a number of too many digits", where=where, mend="mend the file")


def toml_digest(document: Mapping[str, Any]) -> str:
    """Digest of the parsed document: comments, layout and line endings never change it."""
    return digest(_plain(document))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, str | int) else str(value)  # decimals, dates and times by their text
