"""New trials that share their beginnings with trials of the anchor: what is compared with what, worked by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pytest_fanout.judge import Draw, TrialTable, judge_draws
from pytest_fanout.judge.arranged import Arranged, look
from pytest_fanout.judge.arranged import Test as Hypothesis
from pytest_fanout.judge.shuffles import Block, Sum, p_values
from pytest_fanout.judge.strata import Stratum, strata_of
from pytest_fanout.records import Comparison, JudgeRules, Limit

LIMITS = (Limit("fanout", "p95", Fraction(1, 10), 0),)
ANCHOR = ("A", "B", "C", "D", "E")  # of each trial, the recording that its beginning was drawn for


@pytest.mark.parametrize(
    ("base", "run", "expected"),
    [
        # each new trial beside the one that it shares its beginning with; the rest of the anchor tells nothing more
        (ANCHOR, ("A", "B"), [((0,), (0,), 0.5), ((1,), (1,), 0.5)]),
        # two continuations of one branch point count for one beginning
        (ANCHOR, ("A", "A"), [((0,), (0, 1), 1.0)]),
        # a trial that ran whole is compared with those of the anchor that no other one is compared with
        (ANCHOR, ("A", None), [((0,), (0,), 0.5), ((1, 2, 3, 4), (1,), 0.5)]),
        (ANCHOR, ("A", "Z"), [((0,), (0,), 0.5), ((1, 2, 3, 4), (1,), 0.5)]),
        # none is left: it joins the smallest stratum
        (("A", "B"), ("A", "A", "B", None), [((0,), (0, 1), 0.5), ((1,), (2, 3), 0.5)]),
        # an anchor that was branched itself: two of its trials share a beginning
        (("A", "A", "B"), ("A", "B"), [((0, 1), (0,), 0.5), ((2,), (1,), 0.5)]),
        # nothing is shared: all of a task's trials may change sides
        (ANCHOR, (None, None), [((0, 1, 2, 3, 4), (0, 1), 1.0)]),
        # two that are not known share nothing
        ((None, None), (None,), [((0, 1), (0,), 1.0)]),
    ],
)
def test_what_is_compared_with_what(
    base: tuple[str | None, ...],
    run: tuple[str | None, ...],
    expected: list[tuple[tuple[int, ...], tuple[int, ...], float]],
) -> None:
    """Every new trial is in one stratum, and counts as much as any other."""
    assert strata_of(base, run, 1, len(run)) == [Stratum(*entry) for entry in expected]


def test_later_trials_alone_have_strata_of_their_own() -> None:
    """What confirms a growth is compared with its own like, not with that of the trials that found it."""
    assert strata_of(ANCHOR, ("A", "B", "C"), 2, 3) == [Stratum((1,), (1,), 0.5), Stratum((2,), (2,), 0.5)]


def test_three_pairs_by_hand() -> None:
    """Three pairs that grew by 1, 2 and 3: of the eight ways to change sides one shows as much, so that p is 1/8."""
    values = np.array([[[5.0, 6.0], [9.0, 11.0], [2.0, 5.0]]])
    pairs = Block(np.array([0, 0, 0]), values, 1, shares=np.full(3, 1 / 3))
    (p,), (score,), _ = p_values([pairs], [Sum(0, np.array([1.0]), 0)], 0.01)

    assert p == pytest.approx(1 / 8, abs=0.03)
    # 2 over its standard error: the root of (1 + 4 + 9) / 9, with a twentieth of the variance added
    assert score == pytest.approx(2 / np.sqrt(14 / 9 * 1.05))


def table(samples: dict[str, tuple[int, ...]], beginnings: dict[str, tuple[str | None, ...]]) -> TrialTable:
    statuses = {task: ("ok",) * len(row) for task, row in samples.items()}
    return TrialTable({task: {"fanout": row} for task, row in samples.items()}, statuses, {}, beginnings)


def test_the_effect_is_that_of_the_pair() -> None:
    """The first trial of the anchor took 2 calls, and 4 after the edit: twice as many, though the anchor's other trials
    took 8. A second trial, 8 after 8, halves the growth on the scale of logarithms."""
    anchor = table({"t": (2, 8, 8, 8, 8)}, {"t": ANCHOR})
    effects = []
    for run in ((4,), (4, 8)):
        arranged = Arranged(Draw(anchor, table({"t": run}, {"t": ANCHOR[: len(run)]}), LIMITS, JudgeRules()))
        effects.append(look(arranged, len(run)).shown[Hypothesis("fanout", "body")][0].effect)

    assert effects == pytest.approx([2.0, 2**0.5])


NOISY = (5, 10, 20, 40, 80)


def judged(factor: float, *, is_branched: bool) -> Comparison:
    """Twenty tasks, whose trials differ by a factor of 16, and all grow by one factor."""
    tasks = [f"t{number}" for number in range(20)]
    anchor = table(dict.fromkeys(tasks, NOISY), {task: tuple(f"{task}{name}" for name in ANCHOR) for task in tasks})
    grown = tuple(round(factor * value) for value in NOISY)
    beginnings = anchor.beginnings if is_branched else {}
    return judge_draws({"": Draw(anchor, table(dict.fromkeys(tasks, grown), beginnings), LIMITS, JudgeRules())})[""]


def test_what_beginnings_differ_by_is_no_noise() -> None:
    """A growth of 40 % drowns in trials that differ sixteenfold, and stands out where each has its like beside it."""
    drowned, found = judged(1.4, is_branched=False), judged(1.4, is_branched=True)

    assert drowned.verdict != "regressed"
    assert found.verdict == "regressed"
    assert found.metrics[0].effect == pytest.approx(1.4, abs=0.01)
    assert judged(1.0, is_branched=True).verdict == "pass"


def test_the_order_of_tasks_does_not_matter() -> None:
    """The same trials told in another order are judged alike, to the last digit."""
    tasks = [f"t{number}" for number in range(12)]
    rng = np.random.default_rng(7)
    base = {task: tuple(int(x) for x in rng.integers(5, 40, 5)) for task in tasks}
    run = {task: tuple(int(x) for x in rng.integers(5, 40, 3)) for task in tasks}

    def told(order: list[str]) -> Comparison:
        anchor = table({task: base[task] for task in order}, dict.fromkeys(order, ANCHOR))
        new = table({task: run[task] for task in order}, dict.fromkeys(order, ("A", "A", "C")))
        return judge_draws({"": Draw(anchor, new, LIMITS, JudgeRules())})[""]

    assert told(tasks).to_dict() == told(tasks[::-1]).to_dict()
