"""From samples and a fleet to tokens a second, tasks in flight, GPUs and money. Expected values are worked by hand."""

from __future__ import annotations

import dataclasses
import json
from importlib import resources

import jsonschema
import pytest

from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.capacity.project import project, whole_gpus
from pytest_fanout.errors import ConfigError, IntegrityError
from pytest_fanout.records import ClassDemand, Fleet, Prices

PEAK = ClassDemand("support", 200_000, 2.4, 3.0)  # 16.667 tasks a second


def fleet(demand=PEAK, rho=0.6, **more):
    return Fleet("", "baselines/fleet.toml", {demand.agent: demand} if demand else {}, target_utilisation=rho, **more)


def trial(fanout=8, given=54_400, cached=44_800, written=2_000, ms=90_000):
    return {
        "fanout": fanout,
        "input_tokens": given,
        "cached_input_tokens": cached,
        "output_tokens": written,
        "duration_ms": ms,
    }


# A loop whose first context is 4,000 tokens and grows by 800 a call, 250 tokens written a call, all the rest cached.
A = {"loop": [trial()]}
B = {"loop": [trial(22, 272_800, 252_000, 5_500)]}


# --- demand and rates ----------------------------------------------------------------------------------------------


def test_demand_at_peak():
    """200,000 users x 2.4 tasks a day / 86,400 x 3 is 16.667 tasks a second."""
    demand = project("support", None, A, fleet()).demand

    assert demand.tasks_per_second == pytest.approx(16.6667, rel=1e-5)
    assert demand.per_1000 is False


def test_tokens_are_not_multiplied_by_fanout_again():
    """56,400 tokens a task at 16.667 tasks a second are 940,000 a second; times fanout 8 would be 7,520,000."""
    load = project("support", None, A, fleet()).run

    assert load.tokens_per_s == pytest.approx(940_000)


def test_mean_of_sums_is_not_product_of_means():
    """Long tasks have longer contexts: 1 call of 1,000 and 9 calls of 9,000 tokens are 41,000 a task, not 5 x 5,000."""
    run = {"short": [trial(1, 1_000, 0, 0)], "long": [trial(9, 81_000, 0, 0)]}

    load = project("support", None, run, fleet(ClassDemand("support", 86_400, 1.0, 1.0))).run

    assert load.calls_per_s == pytest.approx(5)
    assert load.tokens_per_s == pytest.approx(41_000)


def test_rates_of_the_worked_regression():
    """8 -> 22 calls: calls x2.75, new input x2.17, output x2.75, raw input x5.01."""
    result = project("support", A, B, fleet())

    assert result.base.calls_per_s == pytest.approx(133.33, abs=0.01)
    assert result.run.calls_per_s == pytest.approx(366.67, abs=0.01)
    assert result.run.calls_per_s * 60 == pytest.approx(22_000)
    assert result.base.new_input_per_s == pytest.approx(160_000)
    assert result.run.new_input_per_s == pytest.approx(346_667, abs=1)
    assert result.base.output_per_s == pytest.approx(33_333, abs=1)
    assert result.run.output_per_s == pytest.approx(91_667, abs=1)
    assert result.base.cached_input_per_s == pytest.approx(746_667, abs=1)
    assert result.run.cached_input_per_s == pytest.approx(4_200_000)
    assert result.ratio_calls == 2.75


def test_fourteen_calls_of_the_summarise_task():
    """1 planner, 6 retrieval, 3 tool-argument, 2 re-plan, 1 verifier and 1 summariser call are 14 calls a task."""
    run = {"summarise": [trial(1 + 6 + 3 + 2 + 1 + 1)]}

    load = project("support", None, run, fleet(ClassDemand("support", 86_400, 1.0, 1.0))).run

    assert load.calls_per_s == pytest.approx(14)


def test_growth_of_users_multiplies_growth_of_fanout():
    """5 % more users after 175 % more calls a task are x2.8875 calls a second."""
    before = project("support", None, A, fleet()).run
    after = project("support", None, B, fleet(ClassDemand("support", 210_000, 2.4, 3.0))).run

    assert after.calls_per_s / before.calls_per_s == pytest.approx(2.8875)


def test_tail_decides_the_mean():
    """95 % of tasks at 5,000 tokens and 5 % at 800,000 are 44,750 a task, by weight as by number."""
    run = {"usual": [trial(1, 5_000, 0, 0)], "huge": [trial(1, 800_000, 0, 0)]}
    demand = fleet(ClassDemand("support", 86_400, 1.0, 1.0))

    load = project("support", None, run, demand, weights={"usual": 95, "huge": 5}).run

    assert load.tokens_per_s == pytest.approx(44_750)


def test_each_task_counts_once():
    """Three trials of a 9-call task and one of a 1-call task are 5 calls a task, not 7."""
    run = {"often": [trial(9), trial(9), trial(9)], "once": [trial(1)]}

    load = project("support", None, run, fleet(ClassDemand("support", 86_400, 1.0, 1.0))).run

    assert load.calls_per_s == pytest.approx(5)


def test_without_demand_the_rate_is_1000_an_hour():
    """1,000 tasks an hour of 8 calls are 2.222 calls a second, and the first sentence on demand says so."""
    result = project("support", None, A, fleet(None))

    assert result.demand.per_1000 is True
    assert result.run.calls_per_s == pytest.approx(8_000 / 3_600)
    assert (
        "No demand for support in baselines/fleet.toml: figures are per 1,000 tasks an hour, evenly spread."
        in result.assumptions
    )


def test_demand_for_another_name_is_pointed_out():
    """A class that is misspelt in the file is seen, because the names that it has are listed."""
    result = project("support", None, A, fleet(ClassDemand("suport", 1, 1.0)))

    assert (
        "No demand for support in baselines/fleet.toml (it has: suport): figures are per 1,000 tasks an hour, "
        "evenly spread."
    ) in result.assumptions


# --- in flight -----------------------------------------------------------------------------------------------------


def test_tasks_in_flight():
    """10 tasks a second of 90 s are 900 in flight, 971 in all but 1 % of moments."""
    load = project("support", None, A, fleet(ClassDemand("support", 864_000, 1.0, 1.0))).run

    assert load.tasks_in_flight == pytest.approx(900)
    assert load.tasks_in_flight_p99 == 971


def test_bursty_demand_widens_the_spread():
    """A measured index of dispersion above 1 raises the 99th percentile, not the mean."""
    load = project("support", None, A, fleet(ClassDemand("support", 864_000, 1.0, 1.0, 10.0))).run

    assert load.tasks_in_flight == pytest.approx(900)
    assert load.tasks_in_flight_p99 > 1_100


def test_unknown_duration_gives_no_tasks_in_flight():
    """Without durations there is no number, and the report says why."""
    result = project("support", None, {"a": [trial(ms=None)]}, fleet())

    assert result.run.tasks_in_flight is None
    assert result.run.tasks_in_flight_p99 is None
    assert "Durations are not known: no tasks in flight." in result.assumptions


# --- GPUs and money ------------------------------------------------------------------------------------------------


def test_gpus_of_the_worked_regression():
    """At 60 % utilisation 20.23 GPUs become 46.76: 21 and 47, a factor of 2.311."""
    result = project("support", A, B, fleet())

    assert result.base.gpus == pytest.approx(20.23, abs=0.005)
    assert result.run.gpus == pytest.approx(46.76, abs=0.005)
    assert (result.gpus_base, result.gpus_run) == (21, 47)
    assert result.ratio_gpu_time == pytest.approx(2.311, abs=0.0005)


def test_gpus_without_any_cache():
    """The same regression with no token cached: 3.288 and 16.08 GPU-seconds a task, a factor of 4.891."""
    base, run = {"loop": [trial(cached=0)]}, {"loop": [trial(22, 272_800, 0, 5_500)]}
    per_second = fleet(ClassDemand("support", 86_400, 1.0, 1.0), rho=0.5)

    result = project("support", base, run, per_second)

    assert result.base.gpus * 0.5 == pytest.approx(3.288, abs=0.0005)
    assert result.run.gpus * 0.5 == pytest.approx(16.08, abs=0.005)
    assert result.ratio_gpu_time == pytest.approx(4.891, abs=0.001)


def test_money_of_the_worked_regression():
    """At 3 / 0.3 / 15 dollars a million tokens a task costs 0.07224 and 0.2205; 21 GPUs at 4 an hour 2,016 a day."""
    result = project("support", A, B, fleet(prices=Prices(3.0, 0.3, 15.0, 4.0)))

    assert result.base.usd_per_1000_tasks == pytest.approx(72.24)
    assert result.run.usd_per_1000_tasks == pytest.approx(220.5)
    assert result.base.usd_per_day == 2_016
    assert result.run.usd_per_day == 4_512


def test_no_prices_no_money():
    """Without prices there is no cost, rather than a cost of 0."""
    load = project("support", None, A, fleet()).run

    assert load.usd_per_1000_tasks is None
    assert load.usd_per_day is None


@pytest.mark.parametrize(("gpus", "layout", "expected"), [(20.23, "TP1", 21), (21.0, "TP1", 21), (0.0, "TP1", 0)])
def test_rounding_up(gpus, layout, expected):
    """Part of a GPU is a whole one; none is none."""
    assert whole_gpus(gpus, Profile("p", "g", layout, 1.0, 1.0, "s")) == expected


def test_rounding_up_to_whole_replicas():
    """A replica of four GPUs is bought whole: 20.23 become 24, and the noise of floating point adds none."""
    profile = Profile("p", "g", "DEP4", 1.0, 1.0, "s")

    assert whole_gpus(20.23, profile) == 24
    assert whole_gpus(24 * (1 + 1e-15), profile) == 24
    assert whole_gpus(24.001, profile) == 28


def test_profile_is_named_with_its_source():
    """What the GPU count stands on is in the record: name, label and origin."""
    profile = project("support", None, A, fleet()).profile

    assert profile == (
        "gpt-oss-120b-h200-tp1 (indicative, within a factor of 2: FP8, TensorRT-LLM performance overview, NVIDIA, "
        "max load, no prefix reuse; two-point fit)"
    )


def test_profile_of_a_plugin():
    """1,000 new and 1,000 written tokens at 1,000 and 500 a second are 3 GPU-seconds; at 60 % that is 5 GPUs."""
    mine = Profile("ours", "H100", "TP1", 1_000.0, 500.0, "measured by us")
    run = {"a": [trial(1, 1_000, 0, 1_000)]}

    result = project("support", None, run, fleet(ClassDemand("support", 86_400, 1.0, 1.0), profile="ours"), [mine])

    assert result.gpus_run == 5


# --- base beside run -----------------------------------------------------------------------------------------------


def test_same_samples_same_numbers():
    """Base equal to run, in another order, gives exactly the same load and ratios of exactly 1."""
    tasks = {f"t{n}": [trial(n + 1, 1_000 * n + 7, 333 * n, 91 + n, 1_001 * n)] for n in range(17)}

    result = project("support", dict(reversed(tasks.items())), tasks, fleet())

    assert result.base == result.run
    assert (result.ratio_calls, result.ratio_gpu_time, result.tasks_shared) == (1.0, 1.0, 17)


def test_ratio_is_over_shared_tasks():
    """A new cheap task hides no growth: the ratio looks at the shared task only, and the difference is said."""
    result = project("support", A, B | {"cheap": [trial(1, 10, 0, 1)]}, fleet())

    assert result.ratio_calls == 2.75
    assert (
        result.assumptions[0] == "Run over anchor, on the 1 task that both have: calls x2.75, GPU time x2.31 to 4.16."
    )
    assert result.assumptions[1] == "The task sets differ (1 added, 0 removed): absolute figures compare unlike sets."


def test_ratio_leaves_removed_tasks_out():
    """A cheap task that was removed does not pass for growth."""
    result = project("support", A | {"cheap": [trial(1, 10, 0, 1)]}, A, fleet())

    assert (result.ratio_calls, result.ratio_gpu_time, result.tasks_shared) == (1.0, 1.0, 1)
    assert result.assumptions[1] == "The task sets differ (0 added, 1 removed): absolute figures compare unlike sets."


@pytest.mark.parametrize("base", [None, {}, {"loop": []}])
def test_no_anchor(base):
    """Without an anchor there is no base, no ratio, and a sentence."""
    result = project("support", base, A, fleet())

    assert (result.base, result.gpus_base, result.ratio_calls, result.tasks_shared) == (None, None, None, 0)
    assert result.assumptions[0] == "There is no anchor to compare with."


def test_no_shared_task():
    """Where every task was renamed there is no ratio, rather than one of unlike things."""
    result = project("support", {"old": [trial()]}, {"new": [trial()]}, fleet())

    assert (result.ratio_calls, result.ratio_gpu_time) == (None, None)
    assert result.assumptions[0] == "Anchor and run share no task: no ratio."


def test_ratio_from_nothing_is_none():
    """An anchor without a call has no ratio: anything over 0 is no number."""
    result = project("support", {"a": [trial(0, 0, 0, 0)]}, {"a": [trial()]}, fleet())

    assert (result.ratio_calls, result.ratio_gpu_time) == (None, None)
    assert result.gpus_base == 0


@pytest.mark.parametrize("run", [{}, {"a": []}])
def test_no_task(run):
    """A run without a task projects nothing: every figure is unknown, none is 0."""
    result = project("support", A, run, fleet())

    load = result.run
    figures = (load.calls_per_s, load.new_input_per_s, load.tokens_per_s, load.tasks_in_flight, load.gpus)
    assert figures == (None,) * 5
    assert result.gpus_run is None
    assert result.assumptions[0] == "No task was measured: nothing can be projected."


# --- what is not known ---------------------------------------------------------------------------------------------


def test_unknown_tokens_give_no_gpus():
    """One task whose tokens nobody reported could be the dearest: no tokens, no GPUs, and it is said."""
    result = project("support", A, {"loop": [trial()], "b": [trial(given=None)]}, fleet())

    assert (result.run.tokens_per_s, result.run.new_input_per_s, result.run.gpus) == (None, None, None)
    assert result.gpus_run is None
    assert result.run.calls_per_s == pytest.approx(133.33, abs=0.01)
    assert "Tokens are not known for 1 of 2 trials of the run: no tokens per second and no GPUs." in result.assumptions


def test_a_few_unknown_trials_are_stood_in_for():
    """1 of 20 trials without tokens leaves the other trials of its task to speak, and it is said."""
    run = {f"t{n}": [trial(), trial()] for n in range(9)} | {"t9": [trial(), trial(written=None)]}

    result = project("support", None, run, fleet())

    assert result.run.tokens_per_s == pytest.approx(940_000)
    assert (
        "Tokens are not known for 1 of 20 trials of the run: the other trials of their tasks stand in."
        in result.assumptions
    )


def test_a_task_that_nobody_knows_is_not_stood_in_for():
    """Few as its trials are, a task without any known tokens could be the dearest: the class is unknown."""
    run = {f"t{n}": [trial(), trial(), trial()] for n in range(10)} | {"dark": [trial(200, None, None, None)]}

    result = project("support", None, run, fleet())

    assert (result.run.tokens_per_s, result.gpus_run) == (None, None)
    assert "Tokens are not known for 1 of 31 trials of the run: no tokens per second and no GPUs." in result.assumptions


def test_more_than_a_few_unknown_trials_are_not():
    """1 of 19 trials is more than 5 %: the tokens of the class are unknown."""
    run = {f"t{n}": [trial(), trial()] for n in range(8)} | {"t9": [trial(), trial(), trial(written=None)]}

    assert project("support", None, run, fleet()).run.tokens_per_s is None


def test_cache_that_one_side_does_not_report():
    """Cached tokens unknown in the anchor count as new on both sides: equal agents stay equal."""
    result = project("support", {"loop": [trial(cached=None)]}, A, fleet())

    assert result.ratio_gpu_time == 1.0
    assert result.run.cached_input_per_s == 0
    assert "Cached tokens are not reported: all input counts as new, on both sides." in result.assumptions


def test_cache_hits_are_flagged_as_optimistic():
    """Where the eval set was served from cache, the report says that production may not be."""
    line = "Cache hits are those of the eval set; production hits less often, and then needs more GPUs."

    assert line in project("support", None, A, fleet()).assumptions
    assert line not in project("support", None, {"a": [trial(cached=0)]}, fleet()).assumptions


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (trial(given=100, cached=101), "101 cached tokens are more than its 100 input tokens"),
        (trial(written=-5), "output_tokens is -5"),
        (trial(fanout=-1), "fanout is -1"),
    ],
)
def test_impossible_samples(bad, what):
    """Numbers that no run can have made are an error that names task and trial, never a GPU count."""
    with pytest.raises(IntegrityError) as error:
        project("support", None, {"refund": [trial(), bad]}, fleet())

    assert str(error.value) == (
        f"support::refund::t2: {what}: no run can have made that\n"
        "  mend: record the task again\n"
        "  see: docs/messages.md#impossible-samples"
    )


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_impossible_weight(weight):
    """A weight that is no share is an error that names the task."""
    with pytest.raises(ConfigError) as error:
        project("support", None, A, fleet(), weights={"loop": weight})

    assert str(error.value) == (
        f"eval set of support: the weight of task 'loop' is {weight}; it must be a finite number, 0 or more\n"
        "  mend: mend its weight in the eval set\n"
        "  see: docs/messages.md#bad-weight"
    )


def test_weights_that_are_all_zero():
    """If no task stands for production there is nothing to project."""
    with pytest.raises(ConfigError) as error:
        project("support", None, A, fleet(), weights={"loop": 0})

    assert str(error.value) == (
        "eval set of support: the weights of all 1 tasks that were measured are 0, so no task stands for production\n"
        "  mend: give at least one task a weight above 0\n"
        "  see: docs/messages.md#bad-weight"
    )


def test_task_of_weight_zero_does_not_count():
    """A task that production never sees changes no figure, not even by being unknown."""
    run = A | {"synthetic": [trial(500, None, None, None)] * 1}
    run |= {f"copy{n}": [trial()] for n in range(20)}  # so that one trial in 22 is unknown

    load = project("support", None, run, fleet(), weights={"synthetic": 0}).run

    assert load.calls_per_s == pytest.approx(133.33, abs=0.01)
    assert load.tokens_per_s == pytest.approx(940_000)


def test_assumptions_of_a_bare_fleet():
    """With nothing but defaults every one of them is said, in this order."""
    defaulted = frozenset(
        {"fleet.profile", "fleet.target_utilisation", "demand.support.peak_factor", "demand.support.iod"}
    )
    bare = fleet(rho=0.7, defaulted=defaulted)

    assert project("support", A, B, bare).assumptions == (
        "Run over anchor, on the 1 task that both have: calls x2.75, GPU time x2.31 to 4.16.",
        "Peak factor 3 is the default; arrivals taken as Poisson (default; real traffic is burstier).",
        "Cache hits are those of the eval set; production hits less often, and then needs more GPUs.",
        "GPU profile gpt-oss-120b-h200-tp1 is the default: indicative, within a factor of 2: FP8, TensorRT-LLM "
        "performance overview, NVIDIA, max load, no prefix reuse; two-point fit.",
        "Not among what GPUs are counted for: memory (how long calls take is not known); latency (the time between "
        "tokens under load is not known without a calibration).",
        "By compute, GPUs are planned at 70 % utilisation (default); no spare, no retries, no failover.",
        "An eval set of 1 task is not traffic (every task counts the same).",
        "Tasks in flight use recorded durations, of an idle server: under load they are more.",
    )


@pytest.mark.parametrize(
    ("base", "run", "prices"), [(A, B, Prices(3.0, 0.3, 15.0, 4.0)), (None, {}, Prices())], ids=["all", "nothing"]
)
def test_projection_fits_the_report(base, run, prices):
    """Every field of a projection, known or not, has its place in the schema of the JSON report."""
    report = json.loads(resources.files("pytest_fanout").joinpath("schemas/report.schema.json").read_bytes())
    schema = {"$defs": report["$defs"], "$ref": "#/$defs/projection"}

    document = json.loads(json.dumps(dataclasses.asdict(project("support", base, run, fleet(prices=prices)))))

    assert list(jsonschema.Draft202012Validator(schema).iter_errors(document)) == []
