"""A project in a real git repository, and hand-made runs of it: what the tests of the gate stand on."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from pytest_fanout.config import Settings, find_settings
from pytest_fanout.gate import evaluate
from pytest_fanout.gate.inputs import inputs_now
from pytest_fanout.judge import stats_of
from pytest_fanout.records import (
    METRICS,
    Approval,
    Base,
    Baseline,
    Change,
    Head,
    Run,
    SessionFacts,
    TaskRun,
    Verdict,
)
from pytest_fanout.store.approvals import approval_name, write_approval
from pytest_fanout.store.baselines import build_baseline, write_baseline
from pytest_fanout.store.git import Repository

TODAY = date(2026, 11, 29)
NOW = int(datetime(2026, 11, 29, 12, tzinfo=UTC).timestamp())
PYPROJECT = """[tool.fanout.agents.support]
entrypoint = "shop.agents:answer"
evalset = "fixtures/support.jsonl"
"""
#: Twenty tasks with fanout 1 to 20: p95 is the 19th of them, 19; tokens are 100 a call, so that their p95 is 1900.
TWENTY = {f"t{number:02d}": [number] for number in range(1, 21)}
EVALSET = "sha256:" + "e" * 64


def sha(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def git(folder: Path, *words: str, check: bool = True) -> str:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "-c", "user.name=Dana", "-c", "user.email=dana@example.com", "-c", "commit.gpgsign=false", *words],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


def trial(agent: str, task: str, number: int, fanout: int, **changes: Any) -> TaskRun:
    """One trial, on the same recording whatever its ``fanout``: calls of 80 input and 20 output tokens each."""
    samples: dict[str, int | None] = dict.fromkeys(METRICS, 0)
    samples |= {"fanout": fanout, "attempts": fanout, "input_tokens": 80 * fanout, "output_tokens": 20 * fanout}
    made = TaskRun(
        agent=agent,
        task=task,
        trial=number,
        status="ok",
        passed=True,
        samples=samples,
        definition=sha(f"definition of {task}"),
        recording=sha(f"{agent} {task} {number}"),
        begun_at=NOW - 3600,
        models_requested=("small",),
        models_served=("small-1",),
    )
    return replace(made, **changes)


def make_run(fanout: Mapping[str, Sequence[int]] = TWENTY, agent: str = "support", **changes: Any) -> Run:
    """A whole replay of an eval set: task -> fanout of each trial."""
    tasks = tuple(
        trial(agent, task, number, value) for task, values in fanout.items() for number, value in enumerate(values, 1)
    )
    made = Run(
        run_id="run-1",
        mode="replay",
        begun_at=NOW,
        agents=(agent,),
        tasks=tasks,
        definitions={agent: {task: sha(f"definition of {task}") for task in fanout}},
        evalsets={agent: EVALSET},
        session=SessionFacts(expected=len(fanout), collected=len(tasks), ran=len(tasks)),
    )
    return replace(made, **changes)


def with_trials(run: Run, tasks: str | Sequence[str], **changes: Any) -> Run:
    """The run with every trial of some tasks changed; ``samples`` entries are laid over those that stand there."""
    names = (tasks,) if isinstance(tasks, str) else tuple(tasks)
    samples = changes.pop("samples", {})
    return replace(
        run,
        tasks=tuple(
            replace(task, samples={**task.samples, **samples}, **changes) if task.task in names else task
            for task in run.tasks
        ),
    )


def redrawn(run: Run) -> Run:
    """The run as another draw from the model: every trial ran live, and its recording is new."""
    return replace(
        run,
        mode="record",
        tasks=tuple(
            replace(task, new_draw=True, recording=sha(f"anew {task.agent} {task.task} {task.trial}"))
            for task in run.tasks
        ),
    )


def without(run: Run, *tasks: str, defined: bool = True) -> Run:
    """The run without some tasks; ``defined`` False: the eval set no longer holds them either."""
    definitions = run.definitions
    if not defined:
        definitions = {
            agent: {task: digest for task, digest in entries.items() if task not in tasks}
            for agent, entries in definitions.items()
        }
    return replace(run, tasks=tuple(task for task in run.tasks if task.task not in tasks), definitions=definitions)


@dataclass
class World:
    """A project; ``root`` is the repository, ``folder`` the project in it."""

    root: Path
    folder: Path

    @classmethod
    def make(cls, root: Path, subfolder: str = "") -> World:
        root.mkdir(parents=True, exist_ok=True)
        git(root, "init", "-q", "-b", "main")
        world = cls(root, root / subfolder)
        world.write("pyproject.toml", PYPROJECT)
        return world

    @property
    def settings(self) -> Settings:
        return find_settings(self.folder)

    @property
    def repo(self) -> Repository:
        found = Repository.find(self.folder)
        assert found is not None
        return found

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def commit(self, message: str = "change") -> str:
        git(self.root, "add", "-A")
        git(self.root, "commit", "-q", "--allow-empty", "-m", message)
        return git(self.root, "rev-parse", "HEAD")

    def commit_between(self, low: str, high: str) -> str:
        """A commit whose number lies between the two texts; they leave a quarter of all numbers or more."""
        return next(rev for number in range(100) if low < (rev := self.commit(f"{number}")) < high)

    def branch(self, name: str = "feature") -> None:
        git(self.root, "switch", "-q", "-c", name)

    def anchor(self, run: Run, agent: str = "support") -> Baseline:
        """Write the anchor of a run into the work tree."""
        made = build_baseline(run, agent)
        self.write(f"baselines/{agent}.json", write_baseline(made, stats_of(made)))
        return made

    def approve(self, origin: Baseline | None, ceilings: Mapping[str, int], **changes: Any) -> Approval:
        """Write an approval into the work tree."""
        made = Approval(
            path="",
            kind="baseline",
            subject="support",
            from_digest=origin.digest if origin else None,
            to_digest=None,
            evalset=EVALSET,
            ceilings=ceilings,
            changes=(Change("metric", "fanout.p95", "all", None, 1),),
            reason="The planner now verifies its citations.",
            requested_by="dana@example.com",
            requested_on="2026-11-28",
            nonce="5b1f0c9e7d3a2468",
        )
        made = replace(made, **changes)
        path = f"baselines/approvals/{approval_name(made)}"
        self.write(path, write_approval(made))
        return replace(made, path=path)

    def judge(self, run: Run, base: str = "main", today: date = TODAY, now: int = NOW, **changes: Any) -> Verdict:
        """Evaluate the run of HEAD against a commit."""
        repo = self.repo
        rev = repo.resolve(base)
        found = Base(rev, "test", is_gate=rev != repo.resolve("HEAD"))
        run = replace(run, base=found, head=Head(repo.resolve("HEAD")), **changes)
        return evaluate(run, repo, self.settings, today=today, now=now)

    def measured(self, run: Run) -> Run:
        """The run with the digests of the present work tree, as a session would report it."""
        return replace(run, inputs=inputs_now(run, self.settings))


_TEMPLATES: dict[str, Path] = {}


def started(root: Path, subfolder: str = "") -> World:
    """A project whose main branch holds an accepted anchor of TWENTY; a branch ``feature`` is checked out."""
    template = _TEMPLATES.get(subfolder)
    if template is None or not template.exists():
        template = _TEMPLATES[subfolder] = root.parent / "template"
        world = World.make(template, subfolder)
        world.anchor(make_run())
        world.commit("start")
        world.branch()
        world.commit("feature")
    shutil.copytree(template, root)
    return World(root, root / subfolder)


def slugs(verdict: Verdict) -> set[str]:
    """Every problem and notice of a verdict by its slug."""
    found = {problem.slug for problem in verdict.problems}
    for result in verdict.classes:
        found |= {problem.slug for problem in (*result.problems, *result.notices)}
    return found
