"""The first step of a project: budget.toml with its defaults spelled out, the report kept out of git, line endings."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_fanout.config import Settings
from pytest_fanout.errors import IntegrityError
from pytest_fanout.gate.tree import folder_of, read_file, work_tree_budget
from pytest_fanout.store.budget import DEFAULT_TEXT
from pytest_fanout.store.files import refuse_links, write_atomically

REPORT, PAGE = "fanout-report.json", "fanout-report.html"


@dataclass(frozen=True, slots=True)
class Started:
    """What was written and what stood there already, as paths relative to the project."""

    written: tuple[str, ...]
    kept: tuple[str, ...]


def start(settings: Settings) -> Started:
    """Write what a project needs and does not have; nothing that stands there is overwritten.

    Raises:
        StorageError: a file could not be written.
        ConfigError: the budget.toml that stands there cannot be read.
        IntegrityError: .gitignore or .gitattributes is not a text file; the baselines folder is a link.
    """
    written, kept = [], []
    budget = settings.baselines / "budget.toml"
    refuse_links(settings.baselines, settings.root)
    name = f"{folder_of(settings)}/budget.toml"
    if read_file(budget) is None:
        write_atomically(budget, DEFAULT_TEXT.encode("utf-8"))
        written.append(name)
    else:
        work_tree_budget(settings)  # one that cannot be read is said to be: nobody is advised to commit it
        kept.append(name)
    wanted = [(".gitignore", (REPORT, PAGE)), (".gitattributes", _attributes(settings))]
    for name, lines in wanted:
        (written if _add_lines(settings, name, lines) else kept).append(name)
    return Started(tuple(written), tuple(kept))


def _attributes(settings: Settings) -> tuple[str, ...]:
    """What keeps the files alike on every platform, and recordings folded in reviews."""
    lines = [f"{folder_of(settings)}/** text eol=lf"]
    if settings.recordings.is_relative_to(settings.root):
        recordings = settings.recordings.relative_to(settings.root).as_posix()
        lines.append(f"{recordings}/** text eol=lf linguist-generated")
    return tuple(lines)


def _add_lines(settings: Settings, name: str, lines: tuple[str, ...]) -> bool:
    """Add those lines to a file that it does not hold, at its end; whether there were any.

    A pattern that the file speaks of already is left to its owner, whatever the file says of it.
    """
    path = settings.root / name
    present = read_file(path) or b""
    try:
        text = present.decode("utf-8")
    except UnicodeDecodeError:
        raise IntegrityError(
            "not-utf8", "is not UTF-8 text", where=name, mend=f"add by hand: {', '.join(lines)}"
        ) from None
    known = {line.split()[0].lstrip("/") for line in text.splitlines() if line.strip()}
    missing = [line for line in lines if line.split()[0] not in known]
    if not missing:
        return False
    end = b"\r\n" if b"\r\n" in present else b"\n"
    gap = b"" if not present or present.endswith(b"\n") else end
    write_atomically(path, present + gap + b"".join(line.encode() + end for line in missing))
    return True
