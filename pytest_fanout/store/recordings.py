"""Recordings on disk: ``<folder>/<class>/<slug>-<hash10>/t<trial>.jsonl``, one file a trial, complete or absent.

A recording is evidence: what is altered, cut off, misplaced or empty is refused by name, never replayed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pytest_fanout.config import AGENT_NAME, check_agent_name
from pytest_fanout.errors import IntegrityError, StorageError
from pytest_fanout.records import Exchange, HttpAnswer, Recording, TaskRun
from pytest_fanout.store import files, tape
from pytest_fanout.store.findings import findings, path_of
from pytest_fanout.store.scanner import Scanner

SLUG_LENGTH = 60
MAX_BYTES = 256 * 2**20  # a recording is read whole
_MAX_HEADER = 2**20
_MAX_END = 200
MEND = "restore the file from git, or remove it and record anew: pytest --fanout-budget --fanout-mode=record"
_TRIAL = re.compile(r"t([1-9][0-9]{0,5})\.jsonl\Z")


def slug_of(task: str) -> str:
    """A readable, safe folder name for any task id: ``<slug>-<ten hex digits of its SHA-256>``."""
    ascii_text = unicodedata.normalize("NFKD", task).encode("ascii", "ignore").decode("ascii").lower()
    slug = re.sub(r"[^a-z0-9]+", "-", ascii_text).strip("-")[:SLUG_LENGTH].rstrip("-") or "task"
    return f"{slug}-{hashlib.sha256(task.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


class Drawn(NamedTuple):
    """How many times a trial has been recorded, and when it was last."""

    draw: int
    begun_at: int  # unix seconds

    def is_older_than(self, runs: Iterable[TaskRun]) -> bool:
        """Whether it was left behind by the draw that some trials of its task, replayed now, belong to.

        A trial that was added to a draw later is recorded for the first time, and is of that draw all the same.
        """
        runs = tuple(runs)
        begun = [run.begun_at for run in runs if run.begun_at is not None]
        return self.draw < min(run.draw for run in runs) and not (begun and self.begun_at > min(begun))


class RecordingStore:
    """The recordings below one folder. ``environ`` is searched for secrets that must not be saved.

    When keys are sealed, hand over the environment as it was before: it holds the real ones.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._environ = environ
        self._scanner: Scanner | None = None

    def elsewhere(self, folder: Path) -> RecordingStore:
        """A store below another folder that searches for the same secrets."""
        store = RecordingStore(folder, self._environ)
        store._scanner = self._scanner
        return store

    def path(self, agent: str, task: str, trial: int) -> Path:
        """Where the recording of a trial stands, whether it exists or not."""
        return self._task_folder(agent, task) / f"t{trial}.jsonl"

    def trials(self, agent: str, task: str) -> tuple[int, ...]:
        """The trials of a task that are recorded, in order."""
        try:
            names = os.listdir(self._task_folder(agent, task))
        except (FileNotFoundError, NotADirectoryError):
            return ()
        return tuple(sorted(int(match.group(1)) for name in names if (match := _TRIAL.match(name))))

    def superseded(self, agent: str, task: str) -> tuple[int, ...]:
        """Recorded trials that another recording of the task names among those that it replaces, in order.

        A draw that ended with fewer trials than the one before has removed them; here they were left beside it.
        """
        numbers = self.trials(agent, task)
        replaced: set[str] = set()
        for number in numbers if len(numbers) > 1 else ():
            with contextlib.suppress(IntegrityError, OSError):
                replaced.update(self._header(self.path(agent, task, number))["replaced"])
        if not replaced:
            return ()
        return tuple(number for number in numbers if self._end(self.path(agent, task, number)) in replaced)

    def agents(self) -> tuple[str, ...]:
        """The classes that have a folder of recordings, by name."""
        try:
            names = sorted(entry.name for entry in os.scandir(self.folder) if entry.is_dir(follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return ()
        return tuple(name for name in names if AGENT_NAME.match(name))

    def folders(self, agent: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The task folders of a class with the trials in them, by name, without a look into any file."""
        found: dict[str, list[int]] = {}
        for path in sorted((self.folder / check_agent_name(agent, str(self.folder))).glob("*/t*.jsonl")):
            if match := _TRIAL.match(path.name):
                found.setdefault(path.parent.name, []).append(int(match.group(1)))
        yield from ((name, tuple(sorted(trials))) for name, trials in found.items())

    def task_in(self, agent: str, folder: str, trial: int) -> str:
        """The task whose recordings a folder holds, as the header of one of them says.

        Raises:
            IntegrityError: the header cannot be read, or names a task that has another folder.
        """
        path = self.folder / agent / folder / f"t{trial}.jsonl"
        header = self._header(path)
        task = str(header["task"])
        if header["agent"] != agent or slug_of(task) != folder:
            raise IntegrityError(
                "recording-misplaced",
                f"is a recording of {header['agent']}::{task}, whose folder is another",
                where=str(path),
                mend=MEND,
            )
        return task

    def most_trials(self, agent: str) -> int:
        """The highest trial number that any task of a class has recorded; 0 when there is none."""
        numbers = [int(m.group(1)) for p in (self.folder / agent).glob("*/t*") if (m := _TRIAL.match(p.name))]
        return max(numbers, default=0)

    def load(self, agent: str, task: str, trial: int) -> Recording:
        """The recording of a trial.

        Raises:
            IntegrityError: it is missing, altered, cut off, malformed, of another class, task or trial, or holds an
                answer of a model that is empty.
        """
        path = self.path(agent, task, trial)
        recording = tape.decode(self._read(path), str(path), MEND)
        found = (recording.agent, recording.task, recording.trial)
        if found != (agent, task, trial):
            raise IntegrityError(
                "recording-misplaced",
                f"is the recording of {_named(*found)}, not of {_named(agent, task, trial)}",
                where=str(path),
                mend=MEND,
            )
        refuse_empty_answers(recording.exchanges, str(path), MEND)
        return recording

    def save(self, recording: Recording) -> Recording:
        """Store a trial in one step and give back what is stored: canonical bodies, digest set.

        Raises:
            StorageError: secrets were found (``secret-in-recording``), or the disk refused; the old file stands.
            IntegrityError: a model's answer is empty or cut off, or the file is huge: what could not be loaded is not
                saved.
        """
        path = self.path(recording.agent, recording.task, recording.trial)
        data = tape.encode(recording)
        refuse_huge(len(data), path)
        stored = tape.decode(data, str(path), MEND)
        refuse_empty_answers(stored.exchanges, str(path), MEND)
        self._refuse_secrets(stored, data, path)
        files.write_atomically(path, data)
        return stored

    def remove(self, agent: str, task: str, trial: int) -> None:
        """Remove a recording and the folder it leaves empty; nothing happens when there is none."""
        path = self.path(agent, task, trial)
        try:
            path.unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as error:
            raise StorageError(
                "cannot-write",
                f"could not be removed: {error.strerror or error}",
                where=str(path),
                mend="mend the permissions, then run the same command again",
            ) from None
        with contextlib.suppress(OSError):
            path.parent.rmdir()

    def digest(self, agent: str, task: str, trial: int) -> str | None:
        """The digest of a recording, proved to fit the file's bytes but without reading its exchanges; None: no file.

        Raises:
            IntegrityError: altered, cut off, conflict marks.
        """
        path = self.path(agent, task, trial)
        try:
            data = self._bytes(path)
        except FileNotFoundError:
            return None
        return tape.checked_lines(data, str(path), MEND)[1]

    def drawn(self, agent: str, task: str, trial: int) -> Drawn | None:
        """Which draw a trial is of, from its header line; None: no file, or one without a header."""
        path = self.path(agent, task, trial)
        try:
            header = self._header(path)
        except (IntegrityError, OSError):
            return None
        return Drawn(int(header["draw"]), int(header["begun_at"]))

    def hosts(self, tasks: Iterable[tuple[str, str]]) -> frozenset[str]:
        """``host:port`` of every model request on record of some tasks (class, id), from the header lines alone.

        A file that cannot be read is passed over here: ``load`` refuses it, so its trial is never measured.
        """
        hosts: set[str] = set()
        for path in (self.path(*task, trial) for task in tasks for trial in self.trials(*task)):
            with contextlib.suppress(IntegrityError, OSError):
                hosts.update(self._header(path)["hosts"])
        return frozenset(hosts)

    def _header(self, path: Path) -> dict[str, Any]:
        """The checked first line of a file, without a look at the rest."""
        files.refuse_links(path, self.folder)
        if path.is_fifo():
            raise OSError(errno.EINVAL, "is a pipe")  # opening it would wait for a writer
        with path.open("rb") as file:
            return tape.header_of(file.readline(_MAX_HEADER).removesuffix(b"\n"), str(path), MEND)

    def _end(self, path: Path) -> str | None:
        """The digest that a file ends with, unproved; None: it has none."""
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _MAX_END))
                return tape.end_of(file.read())
        except OSError:
            return None

    def _task_folder(self, agent: str, task: str) -> Path:
        return self.folder / check_agent_name(agent, str(self.folder)) / slug_of(task)

    def _bytes(self, path: Path) -> bytes:
        with contextlib.suppress(OSError):
            refuse_huge(path.stat().st_size, path)
        return files.read_committed(path, self.folder)

    def _read(self, path: Path) -> bytes:
        try:
            return self._bytes(path)
        except FileNotFoundError:
            raise IntegrityError(
                "recording-missing",
                "does not exist",
                where=str(path),
                mend="restore it from git, or record it: pytest --fanout-budget --fanout-mode=record",
            ) from None

    def _refuse_secrets(self, stored: Recording, data: bytes, path: Path) -> None:
        if self._scanner is None:
            self._scanner = Scanner(os.environ if self._environ is None else self._environ)
        for place, kinds in findings(stored, data, self._scanner):
            raise StorageError(
                "secret-in-recording",
                f"not saved: {place} holds {' and '.join(kinds)}",
                where=str(path),
                mend="keep the secret out of what the agent sends, or remove it in the hook pytest_fanout_redact",
            )


def refuse_huge(size: int, path: Path) -> None:
    """Reading it would take many times its size of memory, in each worker."""
    if size > MAX_BYTES:
        raise IntegrityError(
            "recording-too-large",
            f"has {size:,} bytes, more than {MAX_BYTES:,}",
            where=str(path),
            mend="let the trial do less, or keep its large files out of its requests and answers with the hook "
            "pytest_fanout_redact",
        )


def refuse_empty_answers(exchanges: tuple[Exchange, ...], where: str, mend: str) -> None:
    """A 200 of a model without content, or with half of it, is no answer: replaying it would measure nothing."""
    for number, exchange in enumerate(exchanges, 1):
        answer = exchange.answer
        if exchange.role != "model" or answer.status != 200 or answer.outcome != "complete":
            continue
        if _is_empty(answer.body):
            raise IntegrityError(
                "recording-empty-answer",
                f"recorded response is empty: answer {number} ({exchange.request.method}"
                f" {path_of(exchange.request.url)}) has status 200 and no content",
                where=where,
                mend=mend,
            )
        if _is_cut_off(answer):
            raise IntegrityError(
                "recording-truncated-answer",
                f"recorded response is cut off: answer {number} ({exchange.request.method}"
                f" {path_of(exchange.request.url)}) has status 200 and JSON without its end",
                where=where,
                mend=mend,
            )


def _is_cut_off(answer: HttpAnswer) -> bool:
    """JSON that does not end as it began. All of it is read elsewhere; here it would cost as much as the replay."""
    if not any(name == "content-type" and "json" in value for name, value in answer.headers) or not answer.chunks:
        return False
    begin, end = answer.body[:64].lstrip()[:1], answer.body[-64:].rstrip()[-1:]
    return begin in (b"{", b"[") and end not in (b"}", b"]")


def _is_empty(body: bytes) -> bool:
    """Nothing but space, or an event stream that only comments, or says that it is done."""
    if len(body) > 2000:  # cheap: what is long is not empty
        return False
    lines = [line.strip() for line in body.splitlines()]
    return all(not line or line.startswith(b":") or line.replace(b" ", b"") == b"data:[DONE]" for line in lines)


def _named(agent: str, task: str, trial: int) -> str:
    return f"trial {trial} of {agent}::{task}"
