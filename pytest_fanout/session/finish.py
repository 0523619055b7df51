"""The end of a run: what was told becomes a Run, the gate judges it, the report is written, GitHub is told."""

from __future__ import annotations

import functools
import os
import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fanout import gate
from pytest_fanout.config import Settings, is_ci
from pytest_fanout.errors import FanoutError, GitError, UsageError
from pytest_fanout.gate.costs import EXPLAINED, with_costs
from pytest_fanout.gate.tree import kept_in
from pytest_fanout.meter import RunFacts
from pytest_fanout.meter.samples import turns_of
from pytest_fanout.records import (
    MEASURED,
    Base,
    Budget,
    ControlTrial,
    EvalSet,
    Head,
    Problem,
    Run,
    SessionFacts,
    TaskRun,
    Totals,
    Verdict,
)
from pytest_fanout.session.interrupted import interrupted
from pytest_fanout.session.looks.ending import left_out, superseded
from pytest_fanout.store.git import Repository
from pytest_fanout.store.masking import Masker
from pytest_fanout.store.recordings import RecordingStore
from pytest_fanout.store.reports import write_report

if TYPE_CHECKING:
    from pytest_fanout.session.control.arm import ControlArm
    from pytest_fanout.session.page import Page

_NOTHING_RAN = (
    "no task was measured; mend: name an eval set in [tool.fanout.agents.<class>] of pyproject.toml, or mark a test "
    'with @pytest.mark.fanout(agent="…"), and look at what -k, -m or --fanout-agent leave out'
)


@dataclass(slots=True)
class Told:
    """What one process knows of the session; workers send theirs to the controller."""

    task_runs: list[TaskRun] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    selected: set[str] = field(default_factory=set)  # node ids that were to run
    measured: set[str] = field(default_factory=set)  # node ids that a TaskRun came from
    skipped: set[str] = field(default_factory=set)
    withheld: set[str] = field(default_factory=set)  # node ids that no look asked for
    collected: int = 0
    deselected: int = 0
    unmarked: int = 0
    late: int = 0
    unattributed: int = 0
    aside: int = 0
    collection_failed: bool = False
    refused: bool = False  # a usage error ended the collection, and stands among the problems
    collection_errors: list[str] = field(default_factory=list)  # place and first line of each
    setup_failed: dict[str, str] = field(default_factory=dict)  # node id -> first line of the error
    node_ids_given: bool = False
    stopped: str | None = None
    control: list[ControlTrial] = field(default_factory=list)
    _places: dict[tuple[str, str, int, str], int] = field(default_factory=dict)  # of trials among task_runs

    def add_trial(self, run: TaskRun) -> None:
        """Add an execution of a trial. One that replays a recording once more, with the same numbers, is no further
        trial: it would weigh twice, and stand for one that is missing. Whether it passed is what the worse one says."""
        key = (run.agent, run.task, run.trial, run.recording or "")
        place = self._places.setdefault(key, len(self.task_runs))
        if place < len(self.task_runs) and _repeats(run, self.task_runs[place]):
            if not run.passed:
                self.task_runs[place] = replace(
                    self.task_runs[place], passed=False, status=run.status, error=run.error, capped=run.capped
                )
            return
        self.task_runs.append(run)

    def take(self, facts: RunFacts) -> None:
        """Add what the meter found outside every task."""
        self.problems.extend(problem for problem in facts.problems if problem not in self.problems)
        self.late += facts.late
        self.unattributed += facts.unattributed
        self.aside += facts.setup

    def add_control(self, arm: ControlArm) -> None:
        """End a control arm, and take what came of it."""
        arm.end()
        self.control += arm.trials
        self.problems.extend(problem for problem in arm.problems if problem not in self.problems)

    def portable(self) -> dict[str, Any]:
        """What a worker tells beside its test reports."""
        return {
            "problems": self.problems,
            "deselected": self.deselected,
            "collection_failed": self.collection_failed,
            "counts": (self.late, self.unattributed, self.aside),
            "control": self.control,
        }

    def add(self, told: Mapping[str, Any]) -> None:
        """Add a worker's word. Workers collect the same, so what they deselect is not summed."""
        self.problems.extend(p for p in told["problems"] if p not in self.problems)
        self.deselected = max(self.deselected, told["deselected"])
        self.collection_failed |= told["collection_failed"]
        late, unattributed, aside = told["counts"]
        self.late += late
        self.unattributed += unattributed
        self.aside += aside
        self.control += told["control"]


def _repeats(run: TaskRun, other: TaskRun) -> bool:
    """Whether ``run`` only replays the recording of ``other``, and nothing else came of it."""
    against = {problem for problem in run.problems if problem.verdict != "notice"}
    return (
        run.recording is not None
        and not run.new_draw
        and run.samples == other.samples
        and {run.status, other.status} <= MEASURED
        and against <= {*other.problems}
    )


@dataclass(slots=True, kw_only=True)
class Finish:
    """Everything that turns what was told into a verdict."""

    told: Told
    settings: Settings
    evalsets: Mapping[str, EvalSet]
    budget: Budget
    store: RecordingStore
    mode: str
    run_id: str
    begun_at: int
    shard: str | None
    expected: int  # tasks of the eval sets that belong to this shard
    narrowed: bool
    base_option: str | None
    pytest_exit: int
    masker: Masker
    page: Page | None = None
    report: Path | None = None
    command: str | None = None  # that was given, where it may be shown

    def judge(
        self, profiles: Callable[[], Sequence[Any]] = tuple, codecs: Callable[[], Sequence[Any]] = tuple
    ) -> tuple[Run, Verdict]:
        """The Run and its Verdict. Errors of ours that a user can mend become the verdict; they never hide one.

        Args:
            profiles: gives the GPU profiles of users' hooks.
            codecs: gives their codecs; asked where calls are to be explained.
        """
        run, repo = self._run(), None
        known: Sequence[Any] = ()
        try:
            known = profiles()
        except UsageError as error:
            run = replace(run, problems=(*run.problems, Problem(error.slug, str(error), "invalid")))
        try:
            repo = Repository.find(self.settings.root)
            if repo is not None:
                run = replace(run, base=repo.resolve_base(self.base_option), head=repo.head(self.outputs()))
            verdict = gate.evaluate(run, repo, self.settings, today=datetime.now(UTC).date(), now=int(time.time()))
            verdict = with_costs(
                verdict,
                run,
                repo,
                self.settings,
                profiles=tuple(known),
                weights={name: {t.id: t.weight for t in evalset.tasks} for name, evalset in self.evalsets.items()},
                caps={result.agent: self.budget.caps_for(result.agent) for result in verdict.classes},
            )
            if any(result.verdict in EXPLAINED for result in verdict.classes):
                from pytest_fanout.gate.explaining import with_explanations  # a run that passes pays nothing for it

                verdict = with_explanations(
                    verdict, run, repo, self.settings, lambda: functools.partial(turns_of, codecs=tuple(codecs()))
                )
        except FanoutError as error:
            kind = "no-base" if isinstance(error, GitError) else "integrity"
            problem = Problem(error.slug, str(error), kind)
            base, head = run.base or Base(None, "none", problem=error.what), run.head or Head(None)
            verdict = Verdict(kind, (), (problem,), base, head)
        if repo is not None and verdict.head.rev is not None:
            verdict = self._with_what_is_loose(verdict, repo, repo.uncommitted(kept_in(self.settings)))
        run = replace(run, base=run.base or verdict.base, head=run.head or verdict.head)
        if self.page is None:
            return self._shown(run, verdict)
        from pytest_fanout.gate.past import past_of

        past = self.masker.record(past_of(verdict, repo, self.settings))
        run, verdict = self._shown(run, verdict)
        written = self.page.written(run, verdict, past)
        return run, written if written is verdict else self.masker.record(written)

    def outputs(self) -> tuple[Path, ...]:
        """What this run writes beside recordings, wherever it was told to."""
        return tuple(filter(None, (self.report, self.page.path if self.page is not None else None)))

    def _shown(self, run: Run, verdict: Verdict) -> tuple[Run, Verdict]:
        """Both without secrets. Trials were masked where they were measured."""
        masker = self.masker
        shown = replace(masker.record(replace(run, tasks=())), tasks=run.tasks)
        verdict = masker.record(verdict)
        told = masker.take()
        verdict = replace(verdict, problems=(*verdict.problems, *told))
        return replace(shown, problems=(*shown.problems, *told)), verdict

    def _with_what_is_loose(self, verdict: Verdict, repo: Repository, loose: Sequence[str]) -> Verdict:
        """The verdict with the commit that it still takes as its next step."""
        if not loose:
            return verdict
        folder = kept_in(self.settings)[0]
        accepted = [f"{folder}/approvals", *(f"{folder}/{result.agent}.json" for result in verdict.classes)]
        accepts = tuple(other for other in verdict.next if other.startswith("fanout-baseline accept"))
        if verdict.outcome == "within" and accepts:  # the anchor of what was recorded, and all of it in one commit
            return replace(verdict, next=(*verdict.next, f"git add {shlex.join(kept_in(self.settings))} && git commit"))
        if verdict.outcome == "within" or (folder in loose and repo.uncommitted(accepted)):
            step = f"git add {shlex.join(loose)} && git commit"
            return replace(verdict, next=(step, *(other for other in verdict.next if other != step)))
        rules = repo.uncommitted([f"{folder}/budget.toml", f"{folder}/fleet.toml"])
        if not rules or any(step.startswith(f"git add {shlex.quote(folder)} ") for step in verdict.next):
            return verdict
        step = f"git add {shlex.join(rules)} && git commit: only what is committed holds"
        return replace(verdict, next=(*verdict.next, step))

    def _run(self) -> Run:
        told = self.told
        never_begun = sorted((told.selected - told.measured - told.skipped) & told.setup_failed.keys())
        lost = sorted(told.selected - told.measured - told.skipped - told.withheld - told.setup_failed.keys())
        problems = list(told.problems)
        if told.collection_failed:
            problems.append(
                Problem(
                    "collection-failed",
                    f"the collection failed, so tasks are missing{_listed(told.collection_errors)}; "
                    f"mend: {'these' if told.collection_errors else 'the errors above'}, then run again",
                    "incomplete",
                )
            )
        if never_begun:
            said = [f"{name}: {told.setup_failed[name]}" for name in never_begun]
            count = f"{len(said)} trial{'s' if len(said) > 1 else ''}"
            problems.append(
                Problem(
                    "setup-failed",
                    f"the set-up of {count} failed, so that there is no number{_listed(said)}; "
                    "mend: the fixtures that fail above, then run again",
                    "incomplete",
                )
            )
        ended_well = not (told.collection_failed or told.refused)
        if self.pytest_exit == pytest.ExitCode.INTERRUPTED and ended_well and not told.stopped:
            problems.append(interrupted(lost, self.command, records=self.mode in ("record", "rerecord")))
        elif lost and ended_well:
            shown = ", ".join(lost[:5]) + (f" and {len(lost) - 5} more" if len(lost) > 5 else "")
            problems.append(
                Problem(
                    "tasks-lost",
                    f"{len(lost)} trial{'s' if len(lost) > 1 else ''} began or waited and gave no number: {shown}; "
                    "mend: find out what ended them, and run again",
                    "incomplete",
                )
            )
        is_empty = self.shard is not None and not self.expected and not told.deselected
        if not is_empty and not any(problem.verdict == "incomplete" for problem in problems):
            if not told.task_runs:
                problems.append(Problem("nothing-ran", _NOTHING_RAN, "incomplete"))
            elif self.mode != "live" and not told.stopped:
                problems += left_out(self.store, told.task_runs)
        if self.mode != "live":
            problems += superseded(self.store, told.task_runs)
        selection = told.deselected > 0 or self.narrowed or told.node_ids_given
        partial = bool(
            selection
            and told.task_runs
            and not (lost or never_begun)
            and not told.stopped
            and not told.collection_failed
        )
        agents = sorted({*self.settings.agents, *(run.agent for run in told.task_runs)})
        runs = tuple(sorted(told.task_runs, key=lambda r: (r.agent, r.task, r.trial)))
        return Run(
            run_id=self.run_id,
            mode=self.mode,
            begun_at=self.begun_at,
            agents=tuple(agents),
            tasks=runs,
            definitions={name: {t.id: t.definition for t in evalset.tasks} for name, evalset in self.evalsets.items()},
            evalsets={name: evalset.digest for name, evalset in self.evalsets.items()},
            session=SessionFacts(
                expected=self.expected + len({(r.agent, r.task) for r in runs} - self._listed()),
                collected=told.collected,
                ran=len(told.measured),
                deselected=told.deselected,
                skipped=len(told.skipped),
                withheld=len(told.withheld),
                shard=self.shard,
                pytest_exit=self.pytest_exit,
                partial=partial and self.shard is None,
                stopped=told.stopped,
            ),
            totals=totals_of(runs, told),
            problems=tuple(problems),
            inputs=gate.current_inputs(self.settings, runs if partial and self.shard is None else None),
            ci=is_ci(),
            sealed=self.budget.measure.seal_keys,
            volatile=self.budget.measure.volatile,
            control=tuple(sorted(told.control, key=lambda made: (made.agent, made.task, made.trial))),
        )

    def _listed(self) -> set[tuple[str, str]]:
        """The tasks of the eval sets."""
        return {(name, task.id) for name, evalset in self.evalsets.items() for task in evalset.tasks}

    def write_report(self, path: Path, run: Run, verdict: Verdict) -> FanoutError | None:
        """Write the JSON report, last of all files. Returns the error when that fails: then nothing is green."""
        from pytest_fanout.report.json import document

        problem = None
        try:
            write_report(path, document(run, verdict))
        except FanoutError as error:
            problem = error
        if self.page is not None:
            kept = self.page.keep_with(run, verdict, is_stored=problem is None)
            problem = problem or kept
        return problem

    def text(self, run: Run, verdict: Verdict, *, width: int, encoding: str) -> str:
        """The terminal report, in characters that the terminal can show."""
        from pytest_fanout.report.terminal import render

        page_at = self.page.shown_at if self.page is not None else ""
        text = render(run, verdict, width=width, page_at=page_at)
        try:
            text.encode(encoding)
        except (UnicodeEncodeError, LookupError):
            text = render(run, verdict, width=width, ascii_only=True, page_at=page_at)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            from pytest_fanout.report.github import stop_commands

            text = stop_commands(text, secrets.token_hex(16))
        return text

    def tell_github(self, run: Run, verdict: Verdict, encoding: str) -> list[str]:
        """Write the step summary; return the annotations, each a line for the log. Under GitHub Actions only."""
        if os.environ.get("GITHUB_ACTIONS") != "true":
            return []
        from pytest_fanout.report.github import annotations
        from pytest_fanout.report.markdown import render

        lines = [line.encode(encoding, "backslashreplace").decode(encoding) for line in annotations(run, verdict)]
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary:
            try:
                with open(summary, "a", encoding="utf-8", newline="\n") as file:
                    file.write(render(run, verdict) + "\n")
            except OSError as error:
                lines.append(f"::warning title=fanout budget::the step summary cannot be written: {error.strerror}")
        return lines


def _listed(said: Sequence[str], most: int = 3) -> str:
    """``: a; b and 2 more``, each once; nothing for nothing."""
    lines = list(dict.fromkeys(said))
    if not lines:
        return ""
    return f": {'; '.join(lines[:most])}" + (f" and {len(lines) - most} more" if len(lines) > most else "")


def worker_lost(name: str) -> Problem:
    """Trials that it lost are named apart. Even with a number for each, calls that no task owns may be missing."""
    return Problem(
        "worker-lost",
        f"the worker {name} ended without its last word, which tells of late calls and of those that no task owns: "
        "even where each trial has its number, they cannot be trusted; mend: find out why it ended, and run again",
        "incomplete",
    )


def totals_of(runs: Sequence[TaskRun], told: Told) -> Totals:
    """Sums over all trials that ran."""
    return Totals(
        calls=sum(run.samples.get("fanout") or 0 for run in runs),
        attempts=sum(run.samples.get("attempts") or 0 for run in runs),
        tokens=sum((run.samples.get("input_tokens") or 0) + (run.samples.get("output_tokens") or 0) for run in runs),
        aside=sum(sum(run.aside.values()) for run in runs) + told.aside,
        late=told.late,
        unattributed=told.unattributed,
        unclassified=sum(run.unclassified for run in runs),
        other=sum(run.other for run in runs),
    )
