"""The first step of a project: budget.toml with its defaults spelled out, and the report kept out of git."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_fanout.config import Settings
from pytest_fanout.errors import IntegrityError
from pytest_fanout.gate.tree import folder_of, read_file
from pytest_fanout.store.budget import DEFAULT_TEXT
from pytest_fanout.store.files import write_atomically

REPORT = "fanout-report.json"


@dataclass(frozen=True, slots=True)
class Started:
    """What was written and what stood there already, as paths relative to the project."""

    written: tuple[str, ...]
    kept: tuple[str, ...]


def start(settings: Settings) -> Started:
    """Write what a project needs and does not have; nothing that stands there is overwritten.

    Raises:
        StorageError: a file could not be written.
        IntegrityError: .gitignore is not a text file.
    """
    written, kept = [], []
    budget = settings.baselines / "budget.toml"
    name = f"{folder_of(settings)}/budget.toml"
    if read_file(budget) is None:
        write_atomically(budget, DEFAULT_TEXT.encode("utf-8"))
        written.append(name)
    else:
        kept.append(name)
    ignore = settings.root / ".gitignore"
    present = read_file(ignore) or b""
    try:
        lines = present.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise IntegrityError(
            "not-utf8", "is not UTF-8 text", where=".gitignore", mend=f"add the line {REPORT} by hand"
        ) from None
    if REPORT in (line.strip().lstrip("/") for line in lines):
        kept.append(".gitignore")
    else:
        gap = b"" if not present or present.endswith(b"\n") else b"\n"
        write_atomically(ignore, present + gap + REPORT.encode() + b"\n")
        written.append(".gitignore")
    return Started(tuple(written), tuple(kept))
