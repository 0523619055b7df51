"""Files with version, digest and atomic writes: strict JSON in, canonical JSON out.

Canonical form: RFC 8785 for documents of objects, arrays, strings, integers, booleans and null (floats are refused
in what we commit; eval lines and request bodies may hold them). A digest is ``sha256:`` and 64 hex digits of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from pytest_fanout.errors import IntegrityError, StorageError

CONFLICT_MARKS = ("<<<<<<< ", "=======", ">>>>>>> ")


def canonical(document: Any) -> bytes:
    """The one byte form of a document: sorted keys, no spaces, UTF-8. Raises ValueError for NaN and infinities."""
    text = json.dumps(
        document, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False
    )
    return text.encode("utf-8", "surrogatepass")


def digest(document: Any) -> str:
    """SHA-256 of the canonical form, as ``sha256:<64 hex>``."""
    return "sha256:" + hashlib.sha256(canonical(document)).hexdigest()


def load_json(text: str | bytes, where: str, *, mend: str | None = None) -> Any:
    """Strict JSON: duplicate keys, NaN and infinities, a byte-order mark, conflict marks are refused.

    Raises:
        IntegrityError: naming ``where`` and the line.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            line = text[: error.start].count(b"\n") + 1
            raise IntegrityError("not-utf8", "is not UTF-8 text", where=f"{where}:{line}", mend=mend) from None
    for number, line_text in enumerate(text.splitlines(), 1):
        if line_text.startswith(CONFLICT_MARKS):
            raise IntegrityError(
                "conflict-marks",
                "holds the marks of an unresolved merge conflict",
                where=f"{where}:{number}",
                mend=mend
                or "resolve the conflict, then run `pytest --fanout-budget` and `fanout-baseline accept` again",
            )

    def refuse(name: str) -> NoReturn:
        raise IntegrityError("bad-json", f"holds {name}, which is not JSON", where=where, mend=mend)

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in items:
            if key in out:
                raise IntegrityError("duplicate-key", f"holds the key {key!r} twice", where=where, mend=mend)
            out[key] = value
        return out

    try:
        return json.loads(text, parse_constant=refuse, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise IntegrityError(
            "bad-json", f"is not valid JSON: {error.msg}", where=f"{where}:{error.lineno}", mend=mend
        ) from None
    except RecursionError:
        raise IntegrityError("bad-json", "is nested too deeply", where=where, mend=mend) from None


def write_atomically(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` in one step: temporary file beside it, fsync, rename. The old file stays whole on any failure.

    Raises:
        StorageError: naming the file and the system's reason.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
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
