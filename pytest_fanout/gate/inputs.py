"""Digests of what a run depends on, so that a report is never taken for one of another tree."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from pytest_fanout.config import Settings
from pytest_fanout.errors import ConfigError, IntegrityError
from pytest_fanout.gate.tree import read_file
from pytest_fanout.records import MEASURED, Run, TaskRun
from pytest_fanout.store.calibration import fleet_digest
from pytest_fanout.store.evalsets import read_evalset
from pytest_fanout.store.recordings import RecordingStore, slug_of
from pytest_fanout.store.toml import load_toml, toml_digest


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
    ran = None if only is None else {(run.agent, slug_of(run.task)) for run in only}
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
        with open(path, "rb") as file:
            return _sha(file.read())
    except OSError:
        return "none"


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
    tops = (folder,) if names is None else tuple(folder / name for name in names)
    found: dict[str, str] = {}
    for top in tops:
        # tens of thousands of files: plain strings take a third of the time of Path
        for place, _, files in os.walk(top):
            for name in files:
                if not name.startswith("."):  # those are temporary files of an interrupted write
                    path = os.path.join(place, name)
                    found[os.path.relpath(place, folder).replace(os.sep, "/") + "/" + name] = path
    for shown, path in sorted((shown.removeprefix("./"), path) for shown, path in found.items()):
        if os.path.isfile(path):
            whole.update(f"{shown}\0{_file(path)}\n".encode("utf-8", "surrogateescape"))
    return "sha256:" + whole.hexdigest()
