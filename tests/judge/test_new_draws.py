"""New draws judged by evidence: what passes, what is found, what a further trial is asked for."""

from __future__ import annotations

from fractions import Fraction

import pytest
from drawn_agents import BOTH, FANOUT, Calls, calls, drawn, first, table

from pytest_fanout.judge import Draw, TrialTable, judge_draws
from pytest_fanout.judge.looks import level
from pytest_fanout.records import Comparison, JudgeRules, Limit, Needs


def judged(draw: Draw) -> Comparison:
    return judge_draws({"support": draw})["support"]


def words(comparison: Comparison) -> dict[str, str]:
    return {f"{entry.name} {entry.statistic}": entry.verdict for entry in comparison.metrics}


def slugs(comparison: Comparison) -> list[str]:
    return [reason.slug for reason in comparison.reasons]


BASE_50 = calls(50, 5, seed=1)
BASE_20 = calls(20, 5, seed=4)


def test_an_unchanged_agent_passes_and_asks_for_nothing_more() -> None:
    """Two trials of 50 tasks rule growth above 10 % out; growth is never said to be absent."""
    comparison = judged(drawn(BASE_50, calls(50, 2, seed=16), BOTH))

    assert (comparison.verdict, comparison.needs) == ("pass", Needs())
    assert set(words(comparison).values()) == {"shown"}
    assert all(entry.interval[1] is not None for entry in comparison.metrics)
    assert comparison.metrics[0].noise == pytest.approx(0.33, abs=0.04)


def test_one_trial_that_tells_too_little_asks_for_another_of_every_task() -> None:
    """Open evidence is no pass, and the answer is the next look: one further trial of all 20 tasks."""
    comparison = judged(drawn(BASE_20, calls(20, 1, seed=12)))

    assert comparison.verdict == "inconclusive"
    assert comparison.needs == Needs(tuple(BASE_20), 1, "look")
    assert "evidence-open" in slugs(comparison)


def test_a_growth_is_found_by_one_trial_and_confirmed_by_the_next() -> None:
    """+175 %: the first trial finds it, it waits for one further trial, and with that it stands."""
    grown = calls(20, 2, seed=13, times=lambda place: 2.75)

    once = judged(drawn(BASE_20, first(grown, 1)))
    twice = judged(drawn(BASE_20, grown))

    assert (once.verdict, once.needs.why, once.needs.trials) == ("inconclusive", "confirm", 1)
    assert words(once)["fanout body"] == "unconfirmed"
    assert (twice.verdict, twice.needs) == ("regressed", Needs())
    body = twice.metrics[0]
    assert body.effect == pytest.approx(2.75, rel=0.15)
    assert (body.found_at, body.p) == (1, 0.0001)


def test_a_growth_that_the_next_trials_do_not_show_was_luck() -> None:
    """One session is off, the later ones are as ever: no regression, whatever the first trial said."""
    off = calls(20, 1, seed=13, times=lambda place: 1.6)
    later = calls(20, 4, seed=14)
    run = {task: off[task] + later[task] for task in off}

    assert judged(drawn(BASE_20, first(run, 1))).needs.why == "confirm"
    assert judged(drawn(BASE_20, run)).verdict != "regressed"


def test_growth_of_the_dearest_tasks_alone_is_found() -> None:
    """The dearest tenth doubles; all tasks together grow by 7 % only, the dearest fifth by far more."""
    run = calls(50, 3, seed=15, times=lambda place: 2.0 if place >= 45 else 1.0)

    comparison = judged(drawn(BASE_50, run))

    assert comparison.verdict == "regressed"
    assert words(comparison)["fanout heavy"] == "regressed"
    assert words(comparison)["fanout body"] != "regressed"


def test_a_confirmation_of_the_dearest_tasks_runs_only_those() -> None:
    """Found in the dearest fifth of 50 tasks: ten tasks are run once more, not fifty."""
    run = calls(50, 1, seed=15, times=lambda place: 3.0 if place >= 45 else 1.0)

    comparison = judged(drawn(BASE_50, run))

    assert (comparison.needs.why, comparison.needs.trials, len(comparison.needs.tasks)) == ("confirm", 1, 10)
    assert {f"t{place:03d}" for place in range(45, 50)} < set(comparison.needs.tasks)


@pytest.mark.parametrize(("tasks", "statistics"), [(19, ["body"]), (20, ["body", "heavy"])])
def test_the_dearest_tasks_are_gated_from_twenty_tasks_on(tasks: int, statistics: list[str]) -> None:
    """The dearest fifth of 19 tasks are too few to say anything of."""
    comparison = judged(drawn(calls(tasks, 5, seed=3), calls(tasks, 1, seed=16)))

    assert [entry.statistic for entry in comparison.metrics] == statistics


def test_below_ten_tasks_a_new_draw_never_passes() -> None:
    """Nine tasks, even without any noise, and nothing more is asked for; ten may pass."""
    nine, ten = calls(9, 5, seed=4, noise=0), calls(10, 5, seed=4, noise=0)

    few = judged(drawn(nine, first(nine, 1)))

    assert (few.verdict, few.needs, slugs(few)) == ("inconclusive", Needs(), ["few-tasks-new-draw"])
    assert judged(drawn(ten, first(ten, 1))).verdict == "pass"


def test_fewer_than_ten_tasks_pass_nowhere_and_nothing_more_is_spent_on_them() -> None:
    """Where doubt is a notice neither: what cannot pass whatever further trials say is not drawn again."""
    comparison = judged(drawn(calls(8, 5, seed=5), calls(8, 1, seed=30), rules=JudgeRules(inconclusive="warn")))

    assert (comparison.verdict, comparison.needs) == ("inconclusive", Needs())


def test_an_anchor_without_noise_is_compared_exactly() -> None:
    """12 tasks repeat to the call: one call more is within at_least 2, three more are found and confirmed."""
    base: Calls = {f"t{place:02d}": [10 + place] * 5 for place in range(12)}
    limits = (Limit("fanout", "p95", Fraction(0), 2),)

    def run(more: int, trials: int) -> Calls:
        return {task: [row[0] + more] * trials for task, row in base.items()}

    within = judged(drawn(base, run(1, 1), limits))
    once = judged(drawn(base, run(3, 1), limits))
    twice = judged(drawn(base, run(3, 2), limits))

    assert (within.verdict, within.needs) == ("pass", Needs())
    assert (once.verdict, once.needs.why) == ("inconclusive", "confirm")
    assert twice.verdict == "regressed"
    assert twice.metrics[0].p is None


def test_noise_in_the_new_draw_ends_the_exact_comparison() -> None:
    """The anchor repeats exactly and the new trials do not: what they show is chance until evidence says otherwise."""
    base: Calls = {f"t{place:02d}": [10] * 5 for place in range(20)}
    run: Calls = {f"t{place:02d}": [9, 12] for place in range(20)}

    assert judged(drawn(base, run)).metrics[0].p is not None


def test_all_classes_of_a_run_share_one_family() -> None:
    """Holm over limits x statistics x classes: what one class alone shows is held to a tenth of it among ten."""
    alone = judged(drawn(BASE_20, calls(20, 1, seed=12), BOTH))
    many = judge_draws({f"c{number}": drawn(BASE_20, calls(20, 1, seed=12), BOTH) for number in range(10)})["c0"]

    assert (alone.tests, many.tests) == (4, 40)
    assert alone.level == pytest.approx(level(0.05 / 4, (1, 2, 3, 4, 5), 5.0), rel=1e-5)
    assert alone.level_one_less == pytest.approx(level(0.05 / 2, (1, 2, 3, 4, 5), 5.0), rel=1e-5)
    assert many.level is not None
    assert many.level < (alone.level or 0) / 8


def test_two_limits_on_one_metric_are_one_question() -> None:
    """p95 and mean of fanout both ask whether fanout grew: the tighter one decides, and Holm counts them once."""
    limits = (*FANOUT, Limit("fanout", "mean", Fraction(1, 20), 0))

    comparison = judged(drawn(BASE_20, calls(20, 1, seed=12), limits))

    assert comparison.tests == 2
    assert {entry.threshold for entry in comparison.metrics} == {1.05}


def test_a_median_limit_asks_nothing_of_the_dearest_tasks() -> None:
    """A limit on p50 alone is judged on all tasks together."""
    comparison = judged(drawn(BASE_20, calls(20, 1, seed=12), (Limit("fanout", "p50", Fraction(1, 10), 0),)))

    assert [entry.statistic for entry in comparison.metrics] == ["body"]


def test_at_least_widens_what_a_small_base_allows() -> None:
    """p95 of the anchor is 4: one call more is 25 %, half a call rounds to one, and nothing below 12.5 % is over."""
    base: Calls = {f"t{place:02d}": [3, 4, 4, 4, 4] for place in range(20)}

    comparison = judged(drawn(base, {task: [4] for task in base}))

    assert {entry.threshold for entry in comparison.metrics} == {1.125}


def test_the_order_of_tasks_and_classes_changes_nothing() -> None:
    """The same samples in any order, judged in company or again: the same bytes."""
    run = calls(20, 3, seed=19)
    forward = {"a": drawn(BASE_20, run, BOTH), "b": drawn(BASE_20, first(run, 1), BOTH)}
    backward = {
        name: drawn(dict(reversed(BASE_20.items())), dict(reversed(rows.items())), BOTH)
        for name, rows in (("b", first(run, 1)), ("a", run))
    }

    found, again = judge_draws(forward), judge_draws(backward)

    assert {name: one.to_dict() for name, one in found.items()} == {name: again[name].to_dict() for name in found}


def test_tasks_on_the_anchors_own_recordings_have_no_noise() -> None:
    """47 of 50 tasks replay what they are, and only three were drawn anew: one trial of those is enough."""
    fresh = calls(50, 1, seed=20)
    still = frozenset(sorted(BASE_50)[3:])
    run = {task: BASE_50[task] if task in still else fresh[task] for task in BASE_50}

    comparison = judged(drawn(BASE_50, run, same=still))

    assert (comparison.verdict, comparison.needs) == ("pass", Needs())
    assert comparison.metrics[0].interval[1] == pytest.approx(1.0, abs=0.08)


def test_more_capped_trials_are_a_finding_of_their_own() -> None:
    """8 of 20 tasks hit their cap, twice, and none did in the anchor; their counts alone would look harmless."""
    run = table(first(BASE_20, 2), frozenset(sorted(BASE_20)[:8]))

    comparison = judged(Draw(table(BASE_20), run, FANOUT, JudgeRules()))

    assert words(comparison)["capped share"] == "regressed"
    assert comparison.verdict == "regressed"
    (share,) = [entry for entry in comparison.metrics if entry.statistic == "share"]
    assert share.effect == 0.4


def test_raw_limits_are_no_question_for_evidence() -> None:
    """evidence = "off" and a bare maximum are judged by raw numbers elsewhere: nothing is tested, nothing waits."""
    limits = (Limit("fanout", "p95", Fraction(1, 10), 1, evidence=False), Limit("tokens", "p95", None, 0, max=10**9))

    comparison = judged(drawn(BASE_20, calls(20, 1, seed=12), limits))

    assert (comparison.verdict, comparison.metrics, comparison.tests) == ("pass", (), 0)


def test_a_metric_with_zeros_is_compared_by_its_mean() -> None:
    """A tool that is called in some trials only: logarithms know no zero. 0 or 1 calls become 3 or 4."""
    base = table(BASE_20)
    run = table(first(BASE_20, 2))
    few = {task: {**row, "tool_calls": (0, 1, 0, 1, 1)} for task, row in base.samples.items()}
    more = {task: {**row, "tool_calls": (3, 4)} for task, row in run.samples.items()}
    limits = (Limit("tool_calls", "mean", Fraction(1, 10), 1),)

    anchor, new = TrialTable(few, base.statuses, base.passed), TrialTable(more, run.statuses, run.passed)

    comparison = judged(Draw(anchor, new, limits, JudgeRules()))

    assert comparison.verdict == "regressed"
    assert comparison.metrics[0].effect == pytest.approx(3.5 / 0.6, rel=1e-4)


def test_unknown_samples_are_taken_the_unfavourable_way_round() -> None:
    """One unknown count of 120 is the largest of its task; more than 5 % unknown is no measurement."""
    run = table(first(BASE_20, 1))
    task = sorted(BASE_20)[0]

    def with_unknown(tasks: list[str]) -> Draw:
        samples = {
            name: {**row, "fanout": (None,) if name in tasks else row["fanout"]} for name, row in run.samples.items()
        }
        return Draw(table(BASE_20), TrialTable(samples, run.statuses, run.passed), FANOUT, JudgeRules())

    assert judged(with_unknown([task])).verdict != "invalid"
    assert judged(with_unknown(sorted(BASE_20)[:7])).verdict == "invalid"


def test_ten_trials_are_looked_at_five_times() -> None:
    """With trials = 10 the first look is at two: one trial asks for one more, and two for two more."""
    rules = JudgeRules(trials=10)

    one = judged(drawn(BASE_20, calls(20, 1, seed=21), rules=rules))
    two = judged(drawn(BASE_20, calls(20, 2, seed=21), rules=rules))

    assert (one.needs.why, one.needs.trials, one.looks) == ("look", 1, 1)
    assert (two.needs.why, two.needs.trials) == ("look", 2)


def test_a_class_of_which_nothing_ran_is_invalid() -> None:
    """No task in common: nothing was measured, and nothing passes."""
    comparison = judged(drawn(BASE_20, {"other": [1]}))

    assert (comparison.verdict, slugs(comparison)) == ("invalid", ["coverage-short"])
    assert comparison.new == ("other",)
