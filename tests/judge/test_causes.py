"""Code or environment: the anchor, the base commit's agent of today, and the head's, on the same tasks."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pytest_fanout.gate.control import of_causes
from pytest_fanout.judge import TrialTable
from pytest_fanout.judge.causes import causes
from pytest_fanout.records import JudgeRules, Limit

LIMITS = (Limit("fanout", "p95", Fraction(1, 10), 1),)
RULES = JudgeRules()


def table(fanout: dict[str, list[int]]) -> TrialTable:
    samples: dict[str, Any] = {
        task: {"fanout": tuple(values), "input_tokens": tuple(values), "output_tokens": (0,) * len(values)}
        for task, values in fanout.items()
    }
    return TrialTable(
        samples,
        {task: ("ok",) * len(values) for task, values in fanout.items()},
        {task: (True,) * len(values) for task, values in fanout.items()},
    )


class World:
    """Twenty tasks of an agent as noisy as those of public runs: a rerun moves a task by a third."""

    def __init__(self, seed: int, tasks: int = 20) -> None:
        self.rng = np.random.default_rng(seed)
        self.size = np.exp(self.rng.normal(2.4, 0.43, tasks))

    def draw(self, trials: int, growth: float = 1.0) -> TrialTable:
        noise = np.exp(self.rng.normal(0, 0.33, (len(self.size), trials)))
        values = np.maximum(1, np.round(self.size[:, None] * noise * growth)).astype(int)
        return table({f"t{index:02d}": row.tolist() for index, row in enumerate(values)})


def labels(code: float, environment: float, seeds: int = 24) -> dict[str, int]:
    """How often each label comes out; five trials of the anchor, two of the others."""
    out: dict[str, int] = {}
    for seed in range(seeds):
        world = World(seed)
        anchor, control, run = world.draw(5), world.draw(2, environment), world.draw(2, environment * code)
        (cause,) = causes(anchor, run, control, LIMITS, RULES)
        out[cause.label] = out.get(cause.label, 0) + 1
    return out


def test_a_swapped_model_is_found_and_no_innocent_change_is_blamed() -> None:
    """The provider's model now takes half as many calls again; the code is as it was. Two dozen worlds."""
    found = labels(code=1.0, environment=1.5)

    assert found.get("environment", 0) >= 23
    assert found.get("code", 0) == 0
    assert found.get("both", 0) <= 1


def test_a_change_of_the_code_is_not_laid_to_the_environment() -> None:
    """The other way round."""
    found = labels(code=1.5, environment=1.0)

    assert found.get("code", 0) >= 23
    assert found.get("environment", 0) == 0


def test_both_at_once() -> None:
    """Each is half as much again."""
    assert labels(code=1.5, environment=1.5).get("both", 0) >= 22


def test_where_nothing_grew_nothing_is_named() -> None:
    """Noise of a third a trial gives no cause to anybody, but for one world in twenty."""
    assert labels(code=1.0, environment=1.0).get("unknown", 0) >= 23


def test_without_noise_the_parts_are_exact() -> None:
    """4 -> 6 is x1.5 by the environment, 6 -> 6 nothing by the code; tasks that one side lacks take no part."""
    same = {f"t{index:02d}": [4, 4, 4] for index in range(12)}
    grown = {task: [6] for task in same}

    (cause,) = causes(table(same), table({**grown, "new": [9]}), table(grown), LIMITS, RULES)

    assert (cause.metric, cause.label, cause.tasks, cause.trials) == ("fanout", "environment", 12, 12)
    assert (cause.environment.effect, cause.code.effect) == (pytest.approx(1.5), pytest.approx(1.0))


@pytest.mark.parametrize(("grown", "label"), [(21, "code"), (20, "unknown")], ids=["5 %", "less"])
def test_a_part_counts_from_half_of_what_the_limit_allows(grown: int, label: str) -> None:
    """The limit allows 10 %: half of its logarithm is a growth of 4.88 %; 20 -> 21 is 5 %."""
    same = {f"t{index:02d}": [20, 20, 20] for index in range(12)}
    run = {task: [grown] for task in same}

    (cause,) = causes(table(same), table(run), table({task: [20] for task in same}), LIMITS, RULES)

    assert cause.label == label


def test_no_common_task() -> None:
    """There is nothing to tell apart."""
    assert causes(table({"a": [1]}), table({"b": [1]}), table({"a": [1]}), LIMITS, RULES) == ()


def test_of_what_did_not_move_no_cause_is_sought() -> None:
    """Three tasks, one trial each: too few to tell anything apart, and only where something moved is that said."""
    base = table({"a": [4], "b": [6], "c": [9]})
    grown = table({"a": [8], "b": [12], "c": [18]})
    still, moved = (next(of_causes("support", causes(base, run, base, LIMITS, RULES))) for run in (base, grown))

    assert still.text.startswith("support: ~ neither the code nor the environment is seen to have moved fanout: ")
    assert moved.text.startswith("support: ~ what moved fanout cannot be told apart: ")
