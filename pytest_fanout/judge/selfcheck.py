"""An anchor judged against itself: how often draws that are made of its own trials are red."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pytest_fanout.judge.comparison import TrialTable, Values
from pytest_fanout.judge.draw import Draw
from pytest_fanout.judge.evidence import judge_draws
from pytest_fanout.judge.shuffles import SEED
from pytest_fanout.records import JudgeRules, Limit, SelfCheck


def selfcheck(anchor: TrialTable, limits: Sequence[Limit], rules: JudgeRules, draws: int = 100) -> SelfCheck:
    """Judge draws that are made of the anchor's own trials, whole ones with replacement, as a session would.

    Seeded: the same anchor gives the same answer.
    """
    verdicts = {"regressed": 0, "inconclusive": 0}
    spent = 0
    for number in range(draws):
        chance = random.Random(SEED + number)
        base = _resampled(anchor, None, chance)
        run = _resampled(anchor, rules.trials, chance)
        counts = dict.fromkeys(run.statuses, 1)
        while True:
            found = judge_draws({"": Draw(base, _first(run, counts), tuple(limits), rules)})[""]
            asked = [task for task in found.needs.tasks if counts[task] < rules.trials]
            if not asked:
                break
            for task in asked:
                counts[task] = min(rules.trials, counts[task] + found.needs.trials)
        spent += sum(counts.values())
        if found.verdict in verdicts:
            verdicts[found.verdict] += 1
    tasks = max(len(anchor.statuses), 1)
    return SelfCheck(draws, verdicts["regressed"], verdicts["inconclusive"], spent / tasks / max(draws, 1))


def _resampled(table: TrialTable, trials: int | None, chance: random.Random) -> TrialTable:
    """Whole trials of each task, drawn with replacement; None: as many as it has."""
    samples: dict[str, dict[str, Values]] = {}
    statuses: dict[str, tuple[str, ...]] = {}
    for task in sorted(table.statuses):
        of_task = table.statuses[task]
        picks = [chance.randrange(len(of_task)) for _ in range(trials or len(of_task))]
        samples[task] = {name: tuple(row[pick] for pick in picks) for name, row in table.samples[task].items()}
        statuses[task] = tuple(of_task[pick] for pick in picks)
    return TrialTable(samples, statuses)


def _first(table: TrialTable, counts: dict[str, int]) -> TrialTable:
    return TrialTable(
        {task: {name: values[: counts[task]] for name, values in row.items()} for task, row in table.samples.items()},
        {task: row[: counts[task]] for task, row in table.statuses.items()},
    )
