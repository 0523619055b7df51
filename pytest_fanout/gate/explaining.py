"""Why the classes of a run moved: recordings of the base commit beside those of the run, explained.

Both sides are read from recordings: the base's from its commit, the run's from the work tree. What cannot be read, or
is another recording than the numbers came from, is a note of the explanation, and never a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_fanout.config import Settings
from pytest_fanout.errors import FanoutError
from pytest_fanout.explain.examples import example, most_grown, typical
from pytest_fanout.explain.explain import Matched, Side, explain
from pytest_fanout.explain.places import AddedLine, added_lines
from pytest_fanout.explain.visits import is_visit, visited_trial
from pytest_fanout.gate.costs import EXPLAINED, anchors_beside
from pytest_fanout.gate.listing import listed
from pytest_fanout.gate.tree import kept_in
from pytest_fanout.records import (
    MEASURED,
    Baseline,
    Example,
    Exchange,
    Explanation,
    Recording,
    Run,
    TaskRun,
    Turn,
    Verdict,
    VisitedTrial,
)
from pytest_fanout.store import tape
from pytest_fanout.store.git import Repository
from pytest_fanout.store.recordings import MEND, RecordingStore, slug_of

#: The meter's reading of a trial: its model calls put together as they are counted.
Reading = Callable[[Iterable[Exchange]], tuple[Turn, ...]]


def with_explanations(
    verdict: Verdict, run: Run, repo: Repository | None, settings: Settings, reading: Callable[[], Reading]
) -> Verdict:
    """The verdict with an explanation of each class that is over a limit, or would be without an approval.

    Args:
        reading: gives the meter's reading; asked only when something is to be explained.
    """
    moved = [result.agent for result in verdict.classes if result.verdict in EXPLAINED]
    if repo is None or not moved:
        return verdict
    found = explanations(verdict, run, repo, settings, reading, agents=moved)
    return replace(verdict, explanations=found)


def explanations(
    verdict: Verdict,
    run: Run,
    repo: Repository,
    settings: Settings,
    reading: Callable[[], Reading],
    *,
    agents: Sequence[str],
    task: str | None = None,
) -> tuple[Explanation, ...]:
    """The explanations of some classes; those that stand on the very recordings of their anchor have none.

    Args:
        verdict: names the two commits.
        task: whose example is shown; None: those that grew most.
    """
    anchors = anchors_beside(verdict.base.rev, verdict.head.rev, repo, settings)
    lines: dict[str, tuple[AddedLine, ...]] = {}
    found = []
    for agent in agents:
        trials = [trial for trial in run.tasks if trial.agent == agent and trial.status in MEASURED]
        if agent not in anchors or not trials:
            continue
        anchor, rev = anchors[agent]
        if not _moved(anchor, trials):
            continue
        if rev not in lines:
            lines[rev] = _lines(repo, rev, settings)
        sides = _Sides(agent, repo, rev, settings, reading())
        explanation = sides.explained(anchor, trials, lines[rev], task)
        if explanation is not None:
            found.append(explanation)
    return tuple(found)


def _moved(anchor: Baseline, trials: Sequence[TaskRun]) -> bool:
    """Whether any trial ran on another recording than the anchor's, or asked for less of it."""
    own = {fact.recording for task in anchor.tasks.values() for fact in task.trials}
    tasks = {trial.task for trial in trials}
    return tasks != set(anchor.tasks) or any(trial.recording not in own or trial.leftover for trial in trials)


def _lines(repo: Repository, rev: str, settings: Settings) -> tuple[AddedLine, ...]:
    """What was added since the commit, without what pytest-fanout itself writes there; empty where git fails."""
    try:
        return added_lines(repo.diff(rev, kept_in(settings)[:2]))
    except FanoutError:
        return ()


@dataclass(slots=True)
class _Sides:
    """Both sides of one class, each recording read once."""

    agent: str
    repo: Repository
    rev: str
    settings: Settings
    reading: Reading
    _texts: dict[str, str] = field(default_factory=dict)
    _visited: dict[str, VisitedTrial] = field(default_factory=dict)  # by digest of the recording
    _blobs: dict[str, bytes] = field(default_factory=dict)
    _unread: list[str] = field(default_factory=list)

    def explained(
        self, anchor: Baseline, trials: Sequence[TaskRun], lines: Sequence[AddedLine], task: str | None
    ) -> Explanation | None:
        run = self._of_run(trials)
        base = self._of_anchor(anchor)
        matched = explain(self.agent, base, run, lines, self._notes())
        if matched is None:
            return None
        wanted = most_grown(base, run, matched.tasks) if task is None else (task,) if task in matched.tasks else ()
        examples = tuple(self._example(name, base, run, matched) for name in wanted)
        return replace(matched.explanation, examples=examples)

    def _notes(self) -> list[str]:
        if not self._unread:
            return []
        return [f"recordings that the numbers did not come from, or that cannot be read: {listed(self._unread, 3)}"]

    def _of_run(self, trials: Sequence[TaskRun]) -> Side:
        store = RecordingStore(self.settings.recordings)
        visited = []
        for trial in trials:
            if trial.recording is None:
                continue
            name = f"{trial.task}, trial {trial.trial}, of this run"
            try:
                recording = store.load(trial.agent, trial.task, trial.trial)
            except FanoutError as error:
                self._unread.append(f"{name} ({error.slug})")
                continue
            if recording.digest == trial.recording:
                visited.append(self._visit(recording))
            else:
                self._unread.append(f"{name} (recorded anew since)")
        samples: dict[str, list[Mapping[str, int | None]]] = {}
        for trial in trials:
            samples.setdefault(trial.task, []).append(trial.samples)
        return Side(samples, visited, {trial.task: trial.definition for trial in trials})

    def _of_anchor(self, anchor: Baseline) -> Side:
        self._read_blobs(anchor)
        visited = []
        samples: dict[str, list[Mapping[str, int | None]]] = {}
        for name, task in anchor.tasks.items():
            for at, fact in enumerate(task.trials):
                if fact.status not in MEASURED:
                    continue
                samples.setdefault(name, []).append({metric: values[at] for metric, values in task.samples.items()})
                if fact.recording in self._visited:
                    visited.append(replace(self._visited[str(fact.recording)], trial=at + 1))
                    continue
                recording = self._of_base(name, at + 1)
                if recording is None or recording.digest != fact.recording:
                    missing = "cannot be read" if recording is None else "recorded anew since its anchor"
                    self._unread.append(f"{name}, trial {at + 1}, of the base ({missing})")
                if recording is not None:
                    visited.append(self._visit(recording))
        return Side(samples, visited, {name: task.definition for name, task in anchor.tasks.items()})

    def _read_blobs(self, anchor: Baseline) -> None:
        wanted = {
            _path(name, at + 1)
            for name, task in anchor.tasks.items()
            for at, fact in enumerate(task.trials)
            if fact.recording not in self._visited
        }
        folder = f"{self._folder()}/{self.agent}"
        try:
            self._blobs = self.repo.read_below(self.rev, folder, wanted)
        except FanoutError as error:
            self._unread.append(f"those of commit {self.rev[:12]} ({error.slug})")

    def _folder(self) -> str:
        root, folder = self.settings.root, self.settings.recordings
        return folder.relative_to(root).as_posix() if folder.is_relative_to(root) else folder.name

    def _of_base(self, task: str, trial: int) -> Recording | None:
        """The recording of a trial in the base commit, where it can be read."""
        path = _path(task, trial)
        data = self._blobs.get(path)
        if data is None:
            return None
        try:
            return tape.decode(data, path, MEND)
        except FanoutError:
            return None

    def _visit(self, recording: Recording) -> VisitedTrial:
        if recording.digest not in self._visited:
            texts = self._texts
            self._visited[recording.digest] = visited_trial(
                recording.task,
                recording.trial,
                self.reading(recording.exchanges),
                lambda text: texts.setdefault(text, text),
                timed=not recording.imported,
                version=recording.version,
            )
        return self._visited[recording.digest]

    def _example(self, task: str, base: Side, run: Side, matched: Matched) -> Example:
        before, after = typical(base.trials, task), typical(run.trials, task)
        old = self._of_base(task, before.trial)
        new = RecordingStore(self.settings.recordings).load(self.agent, task, after.trial)
        sent = tuple(
            [turn.exchanges[-1].request for turn in self.reading((one or new).exchanges) if is_visit(turn)]
            for one in (old, new)
        )
        return example(
            before,
            after,
            (matched.keys[0][task, before.trial], matched.keys[1][task, after.trial]),
            matched.labels,
            (sent[0], sent[1]),
        )


def _path(task: str, trial: int) -> str:
    return f"{slug_of(task)}/t{trial}.jsonl"
