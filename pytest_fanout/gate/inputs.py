"""Digests of what a run depends on, so that a report is never taken for one of another tree."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fanout.config import Settings
from pytest_fanout.errors import ConfigError, IntegrityError
from pytest_fanout.gate.tree import read_file
from pytest_fanout.records import MEASURED, Run, TaskRun
from pytest_fanout.store.calibration import fleet_digest
from pytest_fanout.store.evalsets import read_evalset
from pytest_fanout.store.toml import load_toml, toml_digest

if TYPE_CHECKING:
    from pytest_fanout.store.recordings import RecordingStore

_AT_ONCE = 2**16  # bytes; most recordings are shorter


def inputs_now(run: Run, settings: Settings) -> dict[str, str]:
    """``current_inputs`` to compare with those of a run: of a part of the tasks, its recordings alone."""
    return current_inputs(settings, run.tasks if run.session.partial else None)


def current_inputs(settings: Settings, only: Iterable[TaskRun] | None = None) -> dict[str, str]:
    """Name -> digest of eval sets, recordings, budget and fleet as they stand in the work tree now.

    The session stores it in ``Run.inputs`` when the run has ended (recording changes it); ``accept`` and ``verify``
    compare. Line endings do not change a digest. Names: ``evalset:<agent>``, ``recordings:<agent>``, ``budget`` and
    ``fleet``.

    Args:
        only: the tasks whose recordings are read, where a part of them ran; None: all, also those of no task.
    """
    ran = None
    if only is not None:
        from pytest_fanout.store.recordings import slug_of  # and with it all that reads a recording

        ran = {(run.agent, slug_of(run.task)) for run in only}
    inputs = {"budget": _toml(settings.baselines / "budget.toml"), "fleet": _fleet(settings.baselines)}
    for name, agent in settings.agents.items():
        inputs[f"evalset:{name}"] = _file(agent.evalset)
    folders = {path.name for path in settings.recordings.iterdir()} if settings.recordings.is_dir() else set()
    for name in sorted(folders | set(settings.agents)):
        if (settings.recordings / name).is_dir() or name in settings.agents:
            inputs[f"recordings:{name}"] = _folder(
                settings.recordings / name, None if ran is None else {slug for agent, slug in ran if agent == name}
            )
    return inputs


def changed_inputs(measured: dict[str, str], now: dict[str, str]) -> tuple[str, ...]:
    """Names whose digest is another one now, in words."""
    names = [name for name in sorted(now.keys() | measured.keys()) if now.get(name) != measured.get(name)]
    return tuple(_words(name) for name in names)


def other_tasks(run: Run, settings: Settings) -> tuple[str, ...]:
    """The eval sets, in words, whose tasks are not those that a run of all of them was expected to make."""
    found = []
    for name, agent in settings.agents.items():
        if run.session.partial and name not in run.definitions:
            continue
        try:
            evalset = read_evalset(agent.evalset, name)
        except (ConfigError, IntegrityError):
            continue  # its digest is none, and has been compared
        tasks = {task.id: task.definition for task in evalset.tasks}
        if run.evalsets.get(name) != evalset.digest or dict(run.definitions.get(name, {})) != tasks:
            found.append(_words(f"evalset:{name}"))
    return tuple(found)


def other_recordings(run: Run, agents: Collection[str], store: RecordingStore) -> tuple[str, ...]:
    """The trials of some classes whose recording is not the one any more that they ran on, as ``class::task::t1``.

    The digests of ``current_inputs`` are taken when a run has ended, so two runs that record at once may agree on them.
    """
    found = []
    for trial in run.tasks:
        if trial.agent in agents and trial.recording is not None and trial.status in MEASURED:
            try:
                digest = store.digest(trial.agent, trial.task, trial.trial) or trial.recording  # gone: ``inputs`` tell
            except IntegrityError:
                digest = ""
            if digest != trial.recording:
                found.append(f"{trial.agent}::{trial.task}::t{trial.trial}")
    return tuple(found)


def _words(name: str) -> str:
    kind, _, agent = name.partition(":")
    return {
        "evalset": f"the eval set of {agent}",
        "recordings": f"the recordings of {agent}",
        "budget": "budget.toml",
        "fleet": "fleet.toml",
    }.get(kind, name)


def _sha(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


def _file(path: Path | str) -> str:
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return "none"
    try:
        data = os.read(file, _AT_ONCE)
        while more := os.read(file, _AT_ONCE):
            data += more
    except OSError:  # a folder
        return "none"
    finally:
        os.close(file)
    return _sha(data)


def _toml(path: Path) -> str:
    try:
        return toml_digest(load_toml(path.read_bytes(), path.name))
    except OSError:
        return "none"
    except ConfigError:
        return _file(path)


def _fleet(baselines: Path) -> str:
    """Of fleet.toml with its calibration; of its bytes where it is no TOML."""
    path = baselines / "fleet.toml"
    try:
        return fleet_digest(read_file(path), path.name, lambda name: read_file(baselines / name)) or "none"
    except (ConfigError, IntegrityError):
        return _file(path)


def _folder(folder: Path, names: Collection[str] | None = None) -> str:
    """Digest of all files below a folder, or below those of its folders that are named."""
    whole = hashlib.sha256()
    found: list[tuple[str, str]] = []
    for name in ("",) if names is None else names:
        found += _files(os.path.join(folder, name), f"{name}/" if name else "")
    for shown, path in sorted(found):
        whole.update(f"{shown}\0{_file(path)}\n".encode("utf-8", "surrogateescape"))
    return "sha256:" + whole.hexdigest()


def _files(folder: str, shown: str) -> Iterator[tuple[str, str]]:
    """The files below a folder, with the name that each is shown by. Folders that are links are left out.

    Tens of thousands of files: what the folder itself says of its entries spares a question for each.
    """
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir():
            if not entry.is_symlink():
                yield from _files(entry.path, f"{shown}{entry.name}/")
        elif entry.is_file() and not entry.name.startswith("."):  # those are temporary files of an interrupted write
            yield f"{shown}{entry.name}", entry.path
