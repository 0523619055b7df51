"""Files with version, digest and atomic writes: strict JSON in, canonical JSON out.

Canonical form: RFC 8785 for documents of objects, arrays, strings, integers, booleans and null (floats are refused
in what we commit; eval lines and request bodies may hold them). A digest is ``sha256:`` and 64 hex digits of it.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import math
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from pytest_fanout.errors import IntegrityError, StorageError

LITTER_AGE_S = 60  # a write takes milliseconds, on a slow disk seconds
CONFLICT_MARKS = ("<<<<<<< ", "=======", ">>>>>>> ")


def canonical(document: Any) -> bytes:
    """The one byte form of a document (RFC 8785): sorted keys, no spaces, UTF-8, numbers as JavaScript prints them.

    Raises ValueError for NaN and infinities. Lone surrogates, which RFC 8785 forbids, are kept as their three bytes.
    """
    text = _plain(document)
    if _ODD.search(text) or not (text.isascii() or _BEYOND.search(text) is None):
        text = _jcs(document)  # not what we commit, but a report may hold it, or a string that looks so
    return text.encode("utf-8", "surrogatepass")


def canonical_of_whole_numbers(document: Any) -> bytes:
    """The same for a document that is known to hold no fraction, which need not be looked for then."""
    text = _plain(document)
    if not (text.isascii() or _BEYOND.search(text) is None):
        text = _jcs(document)
    return text.encode("utf-8", "surrogatepass")


#: json.dumps and RFC 8785 differ in two things: numbers that are no integers, and the order of keys outside the BMP.
_ODD = re.compile(r"(?:\A|[\[:,])(?:N|-?(?:I|[0-9]+(?:\.[0-9]|e[+-])))")
_BEYOND = re.compile("[\ud800-\U0010ffff]")


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False)


def _jcs(value: Any) -> str:
    if _is_plain(value):
        return _plain(value)
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{_jcs(value[key])}" for key in keys) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(_jcs(item) for item in value) + "]"
    return _number(value)


def _is_plain(value: Any) -> bool:
    """Whether there is no float and no key outside the BMP."""
    level: list[Any] = [value]
    while level:  # a report holds hundreds of thousands of values: a whole level is looked at in one go
        if any(issubclass(kind, float) for kind in set(map(type, level))):
            return False
        dicts = [item for item in level if isinstance(item, dict)]
        if not all(key.isascii() or max(key) < "\ud800" for key in set().union(*dicts)):
            return False
        lists = [item for item in level if isinstance(item, list | tuple)]
        level = list(chain(*lists, *(item.values() for item in dicts)))
    return True


def _number(value: float) -> str:
    """A double as ECMAScript's Number::toString prints it; Python's repr has the same shortest digits."""
    if not math.isfinite(value):
        raise ValueError("NaN and infinities are not JSON")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    leading = len(whole + fraction) - len(digits)
    point = len(whole) - leading + int(exponent or 0)  # the value is 0.digits x 10^point
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        return sign + digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{sign}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{tail}e{'+' if point > 0 else '-'}{abs(point - 1)}"


def digest(document: Any) -> str:
    """SHA-256 of the canonical form, as ``sha256:<64 hex>``."""
    return sha256_of(canonical(document))


def sha256_of(data: bytes) -> str:
    """SHA-256 of some bytes, as ``sha256:<64 hex>``."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


class BadJson(IntegrityError):
    """What ``parse_json`` found, before a file is known; ``line`` counts from 1 (None: not known)."""

    def __init__(self, slug: str, what: str, line: int | None) -> None:
        self.line = line
        super().__init__(slug, what)


def _refuse(name: str) -> NoReturn:
    raise BadJson("bad-json", f"holds {name}, which is not JSON", None)


def _number_of(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise BadJson("bad-json", f"holds {digits[:40]}, which is too large for a number", None)
    return value


def _unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(items)
    if len(out) != len(items):
        names = [key for key, _ in items]
        twice = next(key for at, key in enumerate(names) if key in names[:at])
        raise BadJson("duplicate-key", f"holds the key {twice!r} twice", None)
    return out


#: Made once: a decoder costs as much as a short line.
_STRICT = json.JSONDecoder(parse_constant=_refuse, parse_float=_number_of, object_pairs_hook=_unique)


def parse_json(data: str | bytes) -> Any:
    """Strict JSON: duplicate keys, NaN, infinities (1e999 too), a byte-order mark and conflict marks are refused.

    Raises:
        BadJson: and nothing else, on any input.
    """
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise BadJson("not-utf8", "is not UTF-8 text", error.object[: error.start].count(b"\n") + 1) from None
    for mark in CONFLICT_MARKS:
        # only "\n" ends a line here: str.splitlines would also cut at U+2028, which may stand inside a JSON text
        if text.startswith(mark) or f"\n{mark}" in text:
            at = 0 if text.startswith(mark) else text.index(f"\n{mark}") + 1
            line = text.count("\n", 0, at) + 1
            raise BadJson("conflict-marks", "holds the marks of an unresolved merge conflict", line)
    try:
        return json.loads(text) if text.startswith("\ufeff") else _STRICT.decode(text)  # a mark is an error of its own
    except json.JSONDecodeError as error:
        raise BadJson("bad-json", f"is not valid JSON: {error.msg}", error.lineno) from None
    except RecursionError:
        raise BadJson("bad-json", "is nested too deeply", None) from None
    except ValueError:  # int() refuses more than 4300 digits
        raise BadJson("bad-json", "holds a number with too many digits", None) from None


def load_json(text: str | bytes, where: str, *, mend: str | None = None) -> Any:
    """``parse_json`` for committed files.

    Raises:
        IntegrityError: naming ``where`` and the line.
    """
    try:
        return parse_json(text)
    except BadJson as bad:
        if bad.slug == "conflict-marks" and mend is None:
            mend = "resolve the conflict, then run `pytest --fanout-budget` and `fanout-baseline accept` again"
        at = where if bad.line is None else f"{where}:{bad.line}"
        raise IntegrityError(bad.slug, bad.what, where=at, mend=mend) from None


def refuse_links(path: Path, root: Path | None = None) -> None:
    """Raises IntegrityError when the file, or a folder from it up to ``root``, is a symbolic link."""
    for part in (path, *path.parents):
        if part.is_symlink():
            raise IntegrityError(
                "symlink",
                "is a symbolic link; files that the gate reads must be regular files",
                where=str(part),
                mend=f"replace the link {part.name} by what it points to",
            )
        if root is None or part == root:
            return


def read_committed(path: Path, root: Path | None = None) -> bytes:
    """The bytes of a committed file. Links are refused: what a reviewer reads must be what is loaded.

    Args:
        root: the folder that holds all files of this kind; no folder from the file up to it may be a link either.

    Raises:
        FileNotFoundError: there is nothing, so that callers can say what is missing.
        IntegrityError: it is a link, a folder, or cannot be read.
    """
    refuse_links(path, root)
    try:
        if path.exists() and not path.is_file():
            raise IntegrityError("not-a-file", "is not a regular file", where=str(path), mend="remove it")
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except NotADirectoryError:
        raise FileNotFoundError(str(path)) from None
    except OSError as error:
        raise IntegrityError(
            "not-readable", f"cannot be read: {error.strerror or error}", where=str(path), mend="mend its permissions"
        ) from None


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` in one step: temporary file beside it, fsync, rename. On failure the old stays.

    Raises:
        StorageError: naming the file and the system's reason.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_litter(path)
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:40]}.", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise StorageError(
            "cannot-write",
            f"could not be written: {error.strerror or error}",
            where=str(path),
            mend="free space or mend the permissions, then run the same command again; what stood there is unchanged",
        ) from None


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other commands from writing to a folder meanwhile; where folders have no locks (Windows) nothing does.

    What killed commands left in it is removed, however young it is: no living one writes there.

    Raises:
        StorageError: another command is writing there now.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StorageError(
                    "already-writing",
                    "another command is writing there now, and nothing was written",
                    where=str(folder),
                    mend="wait until it has ended, then look at what it wrote before you run this again",
                ) from None
            remove_litter(folder, age_s=0)
        yield


def _remove_litter(path: Path) -> None:
    """Temporary files of this target that a killed process left; young ones may belong to a writer that still runs."""
    _remove_old(path.parent.glob(f".{glob.escape(path.name[:40])}.*.tmp"))


def remove_litter(folder: Path, *, age_s: float = LITTER_AGE_S) -> None:
    """The same for all files below a folder, so that nobody commits what a killed process left."""
    _remove_old(folder.glob("**/.*.json*.tmp"), age_s)


def _remove_old(names: Iterable[Path], age_s: float = LITTER_AGE_S) -> None:
    for name in names:
        with contextlib.suppress(OSError):
            if time.time() - name.stat().st_mtime >= age_s:
                name.unlink()


def sync_folder(folder: Path) -> None:
    """Make a rename durable; where folders cannot be opened (Windows) the rename alone must do."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def jsonl(documents: Iterable[Any]) -> bytes:
    """One canonical document a line."""
    return b"".join(canonical(document) + b"\n" for document in documents)
