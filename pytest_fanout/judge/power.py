"""Planning before spending: what an anchor's own noise lets the judge of new draws see, and how often it errs."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

from pytest_fanout.judge.arranged import SHARES, Arranged, look
from pytest_fanout.judge.comparison import TrialTable, Values
from pytest_fanout.judge.draw import Draw
from pytest_fanout.judge.evidence import judge_draws
from pytest_fanout.judge.looks import level, schedule
from pytest_fanout.judge.shuffles import SEED
from pytest_fanout.judge.smallest import smallest_growth, standard_error, tasks_for
from pytest_fanout.records import JudgeRules, Limit, Power, SelfCheck

#: The growth that every eval set should be able to show.
QUARTER = 1.25


def power_of(anchor: TrialTable, limits: Sequence[Limit], rules: JudgeRules, tests: int | None = None) -> list[Power]:
    """What new draws of a class can show, by metric that is gated by evidence.

    The standard error of the mean log ratio of n tasks is noise x sqrt((1/k + 1/T) / n) for k new trials beside T of
    the anchor. A growth has to pass the p value's bound and the limit itself.

    Args:
        tests: hypotheses of the whole run; by default those of this class alone.
    """
    # as a new draw of the same agent, whose trials begin for themselves: as pairs they would have no noise
    arranged = Arranged(Draw(anchor, replace(anchor, beginnings={}), tuple(limits), rules))
    family = tests or len(arranged.tests)
    # anchor beside itself: effects are nothing, the noise is that of all its trials
    noises = look(arranged, arranged.trials).noises if arranged.trials else {}
    counts = [len(row) for row in anchor.statuses.values()]
    base = len(counts) / sum(1 / count for count in counts) if counts else 1.0
    out = []
    for metric in arranged.metrics:
        if metric in SHARES:
            continue
        noise, allowed = noises.get(metric), arranged.threshold(metric, 1.0)
        if noise is None or not any(count > 1 for count in counts):
            out.append(Power(metric, len(counts), min(counts, default=0), None, allowed, (), None, None))
            continue
        looks = schedule(rules.trials)
        needed_p = level(float(rules.alpha) / family, looks, base)
        errors = {trials: standard_error(noise, len(counts), trials, base) for trials in looks}
        finds = tuple((trials, smallest_growth(error, needed_p, allowed)) for trials, error in errors.items())
        last = errors[looks[-1]]
        red = 0.5 * math.erfc(math.log(allowed) / last / math.sqrt(2)) if last else 0.0
        enough = tasks_for(QUARTER, last, len(counts), needed_p, allowed)
        out.append(Power(metric, len(counts), min(counts), noise, allowed, finds, red, enough))
    return out


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
