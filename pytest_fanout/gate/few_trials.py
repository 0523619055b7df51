"""An anchor of few trials depends on chance, and draws of an unchanged agent are red more often: how it gets others."""

from __future__ import annotations

from collections import Counter

from pytest_fanout.gate.commands import WHOLE
from pytest_fanout.gate.trials import trials_of
from pytest_fanout.records import MEASURED, Baseline, JudgeRules, Run

FEW_TRIALS = 5


def enough(rules: JudgeRules) -> int:
    """How many trials of each task an anchor is to hold."""
    return max(FEW_TRIALS, rules.trials)


def agents_of(run: Run) -> frozenset[str]:
    """The classes of a run, those of marked tests among them."""
    return frozenset({*run.agents, *(task.agent for task in run.tasks)})


def fewest_of(run: Run, agent: str) -> int:
    """The fewest trials that a measured task of a class has in a run; 0 where none was measured."""
    return min(_counted(run, agent).values(), default=0)


def record_others(run: Run, agent: str, rules: JudgeRules, *, alone: bool) -> str:
    """The command that records the trials that are missing, and no others.

    Args:
        alone: of this class alone, though the run has others: then a whole run has to follow.
    """
    trials = max([enough(rules), *_counted(run, agent).values()])  # below what is recorded a run would leave trials out
    narrowed = f" --fanout-agent={agent}" if alone else ""
    return f"{WHOLE} --fanout-mode=record --fanout-trials={trials}{narrowed}"


def few_words(anchor: Baseline, run: Run, rules: JudgeRules, *, is_committed: bool) -> str | None:
    """That an anchor holds few trials, and what mends it; None where it holds enough.

    Args:
        run: the one that it is made of, or that is judged beside it.
    """
    agent, fewest = anchor.agent, min(len(task.trials) for task in anchor.tasks.values())
    if fewest >= enough(rules):
        return None
    others = len(agents_of(run)) > 1
    accept = f'fanout-baseline accept --agent {agent} --reason "…"' if is_committed else "accept"
    if is_committed and fewest_of(run, agent) >= enough(rules):
        mend = f"{WHOLE}, then {accept}" if run.session.partial else accept
    else:
        command = record_others(run, agent, rules, alone=others)
        whole = f"{WHOLE}, then " if others else ""
        mend = f"record the others{'' if is_committed else ' first'}: {command}, then {whole}{accept}"
    return f"the anchor holds tasks with only {fewest} of {enough(rules)} trials; mend: {mend}"


def _counted(run: Run, agent: str) -> Counter[str]:
    return Counter(task.task for task in trials_of(run.tasks, agent) if task.status in MEASURED)
