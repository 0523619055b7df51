"""The fleet as a whole: percentiles with intervals, paired growth, cliffs, quotas, reservation, what is uncertain."""

from __future__ import annotations

import dataclasses
import json
import math
from importlib import resources
from statistics import NormalDist

import jsonschema
import pytest

from pytest_fanout.capacity.cliffs import cliffs_of, with_fanout
from pytest_fanout.capacity.means import TaskRow
from pytest_fanout.capacity.plan import plan_fleet
from pytest_fanout.capacity.profiles import Profile
from pytest_fanout.capacity.project import sides_of
from pytest_fanout.capacity.reservation import best_reservation, burst_share, hours_of, reservation_cost
from pytest_fanout.capacity.windows import Rows, draw, thinned
from pytest_fanout.records import Caps, ClassDemand, CliffInputs, Fleet, Prices, Quota

#: 1,000 tokens a GPU-second either way, so that GPU-seconds can be read off.
PLAIN = Profile("plain", "g", "TP1", 1_000.0, 1_000.0, "a test")
PEAK = ClassDemand("support", 200_000, 2.4, 3.0)  # 16.667 tasks a second, 1,000 a minute


def fleet(demand=PEAK, rho=0.5, **more):
    return Fleet("", "baselines/fleet.toml", {demand.agent: demand}, target_utilisation=rho, **more)


def trial(calls=2, given=1_000, cached=0, written=500, **more):
    return {
        "fanout": calls,
        "input_tokens": given,
        "cached_input_tokens": cached,
        "output_tokens": written,
        "duration_ms": 60_000,
        **more,
    }


def mixed(count=30, factor=1):
    """Tasks of 1 to 10 calls, and one in ten of 60."""
    return {
        f"t{n:03d}": [trial(k := (60 if n % 10 == 0 else 1 + n % 10) * factor, 1_000 * k, 0, 200 * k)]
        for n in range(count)
    }


def planned(base, run, where=None, profile=PLAIN, **more):
    where = where or fleet()
    return plan_fleet([sides_of("support", base, run, where)], where, profile, windows=2_000, **more).fleet


# --- Monte Carlo ---------------------------------------------------------------------------------------------------

HEAVY = Rows(
    tuple(f"t{n}" for n in range(40)), (1.0,) * 40, tuple(((60.0 if n % 20 == 0 else 1.0 + n % 9),) for n in range(40))
)


def test_moments_of_the_windows():
    """Arrivals alone: the mean is lambda m1 and the variance lambda T m2 / T^2, to 1 %."""
    (found,) = draw("a", [HEAVY], 20.0, windows=40_000, bootstrap=False)
    m1 = sum(cost for (cost,) in HEAVY.costs) / 40
    m2 = sum(cost**2 for (cost,) in HEAVY.costs) / 40

    assert found.rate.mean() == pytest.approx(20 * m1, rel=0.01)
    assert found.rate.var() == pytest.approx(20 * m2 / 60, rel=0.02)


@pytest.mark.parametrize("rate", [0.5, 5.0, 50.0])
def test_windows_are_those_of_exact_thinning(rate):
    """With 30 to 3,000 tasks a window p50, p95 and p99 are those of windows whose arrivals are each drawn, to 2 %."""
    import numpy as np

    (quick,) = draw("a", [HEAVY], rate)
    exact = thinned(HEAVY, rate, windows=20_000)

    for share in (0.5, 0.95, 0.99):
        assert np.quantile(quick.rate, share) == pytest.approx(np.quantile(exact, share), rel=0.02)


def test_uneven_arrivals_by_hand():
    """Tasks that cost 1 in windows of 1,200 with an index of dispersion of 10: a variance of 12,000 tasks."""
    (found,) = draw("a", [Rows(("t",), (1.0,), ((1.0,),))], 20.0, 10.0, windows=40_000)

    assert (found.rate * 60).var() == pytest.approx(12_000, rel=0.03)
    assert (found.rate * 60).mean() == pytest.approx(1_200, rel=0.002)


def test_the_eval_set_is_more_uncertain_than_arrivals():
    """40 tasks, two of them long: their choice spreads windows several times as much as arrivals do."""
    (with_choice,) = draw("a", [HEAVY], 20.0)
    (arrivals,) = draw("a", [HEAVY], 20.0, bootstrap=False)

    assert with_choice.rate.std() / with_choice.rate.mean() > 3 * arrivals.rate.std() / arrivals.rate.mean()


def test_equal_samples_differ_by_exactly_nothing():
    """Anchor and run with the same samples, in another order: the growth is 0 and 1 to the last bit."""
    plan = planned(dict(reversed(mixed().items())), mixed())

    assert plan.growth == dataclasses.replace(
        plan.growth, delta=0.0, delta_interval=(0.0, 0.0), ratio=1.0, ratio_interval=(1.0, 1.0)
    )
    assert plan.base == dataclasses.replace(plan.run, gpus_p95_bursty=None)


def test_growth_of_every_task_is_certain():
    """Twice the tokens in every task are twice the GPUs, whatever the eval set: the interval is narrow."""
    growth = planned(mixed(), mixed(factor=2)).growth

    assert growth.ratio == pytest.approx(2.0, rel=0.01)
    assert growth.ratio_interval[1] - growth.ratio_interval[0] < 0.05


def test_growth_of_a_few_tasks_is_uncertain():
    """Where only 3 of 30 tasks grew, another eval set could show much less or more of it."""
    run = mixed() | {name: [trial(100, 100_000, 0, 20_000)] for name in ("t000", "t010", "t020")}
    growth = planned(mixed(), run).growth

    assert growth.delta_interval[1] > 2 * growth.delta_interval[0] > 0


def test_percentiles_of_gpus():
    """16.667 tasks/s of 1.5 GPU-seconds at 50 % are 50 GPUs; 1,000 Poisson tasks a minute spread by 3.2 %."""
    spread = planned(None, {"t": [trial()]}).run.gpus_spread

    assert spread.p50 == pytest.approx(50, rel=0.005)
    assert spread.p95 == pytest.approx(50 * (1 + 1.645 * 0.0316), rel=0.01)
    assert spread.p95_interval == pytest.approx((spread.p95, spread.p95), rel=0.005)  # one task: nothing to choose
    assert spread.p50 < spread.p95 < spread.p99


def test_a_p99_of_few_uneven_tasks_lies_in_its_own_interval():
    """30 tasks, three of them long: the p99 is one of arrivals, and the eval set's part in it is told by its interval.

    A percentile of all windows together, each with other eval tasks, lay above the p99 of nearly every eval set.
    """
    spread = planned(None, mixed()).run.gpus_spread

    assert spread.p99_interval[0] < spread.p99 < spread.p99_interval[1]
    assert spread.p99 < 1.15 * spread.p50
    assert spread.p99_interval[1] > 1.3 * spread.p99


def test_growth_is_the_difference_of_what_stands_beside_it():
    """The p95 of the run less the p95 of the base, to the last digit, and in its interval."""
    plan = planned(mixed(), mixed() | {"t000": [trial(100, 100_000, 0, 20_000)]})

    assert plan.growth.delta == plan.run.gpus_spread.p95 - plan.base.gpus_spread.p95
    assert plan.growth.delta_interval[0] < plan.growth.delta < plan.growth.delta_interval[1]


def test_whole_gpus_have_two_names():
    """For the mean and for the p95, each in whole replicas of one and with the spare one: 50 + 1, and 53 + 1."""
    run = planned(None, {"t": [trial()]}, fleet(spare_replicas=1)).run

    assert (run.gpus, run.gpus_for_p95) == (51, math.ceil(run.gpus_spread.p95) + 1)
    assert run.gpus_for_p95 == 54


def test_it_says_what_is_uncertain():
    """With 30 uneven tasks the eval set dominates, and buying GPUs is the wrong answer."""
    plan = planned(mixed(), mixed())

    assert plan.run.eval_share > 0.9
    assert plan.notes[0].endswith(
        "of the variance of GPUs is that of 30 eval tasks, not of traffic: add eval tasks before you buy GPUs."
    )
    assert planned(None, {"t": [trial()]}).notes[0].startswith("100 % of the variance of GPUs is that of arrivals")


def test_bursty_minutes_stand_beside():
    """With an index of dispersion of 10 the same 50 GPUs spread by 10 %: a p95 of 58."""
    assert planned(None, {"t": [trial()]}).run.gpus_p95_bursty == pytest.approx(50 * (1 + 1.7 * 0.1), rel=0.02)
    bursty = fleet(dataclasses.replace(PEAK, iod=20.0))
    assert planned(None, {"t": [trial()]}, bursty).run.gpus_p95_bursty is None


def test_few_tasks_make_longer_windows():
    """One task in 6 s is 10 a minute: windows of 120 s hold 20 of them, and it is said."""
    plan = planned(None, {"t": [trial()]}, fleet(ClassDemand("support", 14_400, 1.0, 1.0)))

    assert plan.notes[0] == "Few tasks arrive at peak: windows are 120 s long, not 60."


@pytest.mark.parametrize("where", [Fleet("", "f"), fleet(ClassDemand("other", 1, 1.0))])
def test_without_demand_there_is_no_plan(where):
    """Percentiles of a made-up demand would be a made-up number."""
    assert planned(None, mixed(), where) is None


def test_a_class_of_unknown_tokens_leaves_no_plan():
    """One class whose tokens nobody knows could be the dearest: the fleet has no figure."""
    where = dataclasses.replace(fleet(), demand={"support": PEAK, "dark": ClassDemand("dark", 10, 1.0)})
    sides = [sides_of("support", None, mixed(), where), sides_of("dark", None, {"a": [trial(given=None)]}, where)]

    found = plan_fleet(sides, where, PLAIN, windows=100)

    assert found.fleet is None
    assert set(found.classes) == {"support"}


def test_classes_add_up():
    """Two classes of 50 GPUs each are 100; the fleet's spread is smaller than the sum of both."""
    where = dataclasses.replace(
        fleet(), demand={"a": dataclasses.replace(PEAK, agent="a"), "b": dataclasses.replace(PEAK, agent="b")}
    )
    sides = [sides_of(name, None, {"t": [trial()]}, where) for name in "ab"]

    found = plan_fleet(sides, where, PLAIN, windows=4_000)

    alone = [found.classes[name][1].spread().p95 for name in "ab"]
    assert found.fleet.run.load.gpus == pytest.approx(100)
    assert 100 < found.fleet.run.gpus_spread.p95 < sum(alone)


# --- cliffs --------------------------------------------------------------------------------------------------------

CLIFFS = CliffInputs(fanout_ratio=2.75, tasks_per_user_ratio=6.0)
ONBOARDING = dataclasses.replace(PEAK, onboarding_dau=40_000)


def tried(gpus, survive="all", base=None):
    """50 GPU-seconds a second at peak; at 85 % utilisation 29.41 GPUs without a cliff."""
    where = fleet(ONBOARDING, gpus_reserved=gpus, cliffs=dataclasses.replace(CLIFFS, survive=survive))
    return planned(base, {"t": [trial()]}, where).run.cliffs


def test_every_combination_of_three_cliffs():
    """1.2 x 2.75 x 6 on three times the demand: five of eight combinations do not fit, by these shares."""
    cliffs = tried(round(3 * 25 / 0.85))  # 88 GPUs

    ratios = {cell.cliffs: cell.demand_ratio for cell in cliffs.cells}
    assert ratios == {
        (): pytest.approx(1.0), ("onboarding",): pytest.approx(1.2), ("fanout",): pytest.approx(2.75),
        ("behavioural",): pytest.approx(6.0), ("onboarding", "fanout"): pytest.approx(3.3),
        ("onboarding", "behavioural"): pytest.approx(7.2), ("fanout", "behavioural"): pytest.approx(16.5),
        ("onboarding", "fanout", "behavioural"): pytest.approx(19.8),
    }  # fmt: skip
    assert {cell.cliffs for cell in cliffs.cells if cell.fits} == {(), ("onboarding",), ("fanout",)}
    worst = cliffs.cells[-1]
    assert worst.degradation == pytest.approx(1 - 88 / (19.8 * 25 / 0.85))


@pytest.mark.parametrize(("capacity", "of_all", "of_any"), [(3.0, 0, 1), (3.3, 0, 2), (6.1, 1, 2), (20.0, 3, 3)])
def test_cliffs_survivable(capacity, of_all, of_any):
    """The most cliffs of which every combination fits, or one does."""
    gpus = math.ceil(capacity * 25 / 0.85)

    assert (tried(gpus).survivable, tried(gpus, "any").survivable) == (of_all, of_any)


def test_a_fleet_too_small_for_today():
    """Where not even the peak without a cliff fits there is no number of cliffs."""
    assert tried(29).survivable is None
    assert tried(30).survivable == 0


def test_burst_budget_and_degradation():
    """At 45 % of a fleet with twice its size to burst, 10 times the demand needs 33 % to be shed."""
    where = fleet(gpus_reserved=100, gpus_burst=200, cliffs=CliffInputs(tasks_per_user_ratio=10.0), rho=0.45)
    # 45 GPU-seconds a second: 45 % of 100 GPUs
    task = {"t": [trial(1, 2_700, 0, 0)]}

    cell = planned(None, task, where).run.cliffs.cells[-1]

    # the seed counts full use of each GPU, the model 85 % of it
    assert cell.gpus == pytest.approx(450 / 0.85)
    assert 1 - 300 / (cell.gpus * 0.85) == pytest.approx(1 - 6.667 / 10, rel=0.001)


def test_no_cliffs_without_a_fleet_to_try_them_on():
    """Without gpus_reserved cliffs are not tried, and it is said; without [cliffs] there is nothing to say."""
    plan = planned(None, {"t": [trial()]}, fleet(ONBOARDING, cliffs=CLIFFS))

    assert plan.run.cliffs is None
    assert plan.notes[-1] == "Cliffs are not tried: [fleet] gpus_reserved says what they are tried on."
    assert cliffs_of(fleet(gpus_reserved=5)) == ()


def test_fanout_of_a_loop_grows_with_its_square():
    """8 -> 22 calls of a loop of 4,000 tokens and 800 more a call: 272,800 in, 20,800 of them new, 5,500 out."""
    row = TaskRow("loop", 1.0, 8, 9_600, 44_800, 2_000, context_max=9_600, model_s=8.0, tool_s=4.0, residency_s=12.0)

    after = with_fanout(row, 2.75)

    assert (after.calls, after.output) == (22, 5_500)
    assert (after.new_input, after.new_input + after.cached_input) == (pytest.approx(20_800), pytest.approx(272_800))
    assert after.context_max == pytest.approx(20_800)
    assert (after.model_s, after.tool_s, after.residency_s) == (22.0, 11.0, 33.0)


def test_fanout_of_a_loop_without_cache():
    """Where all 54,400 tokens were read anew, all 272,800 are."""
    after = with_fanout(TaskRow("loop", 1.0, 8, 54_400, 0, 2_000, context_max=9_600), 2.75)

    assert after.new_input == pytest.approx(272_800)
    assert after.cached_input == pytest.approx(0)


def test_fanout_of_what_is_no_loop_grows_in_proportion():
    """Without the longest context, or with one that no loop of these sums has, all grows alike."""
    for longest in (None, 54_000):
        after = with_fanout(TaskRow("t", 1.0, 8, 9_600, 44_800, 2_000, context_max=longest), 2.0)
        assert (after.new_input, after.cached_input, after.output) == (19_200, 89_600, 4_000)


# --- worst case, quotas, money ----------------------------------------------------------------------------------------


def test_worst_case_from_the_caps():
    """1.2 million tokens a task and 971 tasks in flight in 99 % of moments are 1.17 billion tokens in flight."""
    where = fleet(ClassDemand("support", 864_000, 1.0, 1.0), prices=Prices(3.0, 0.3, 15.0))
    run = {"t": [trial(duration_ms=90_000)]}

    (worst,) = planned(None, run, where, caps={"support": Caps(tokens=1_200_000, fanout=200)}).worst_case

    assert worst.tokens_in_flight == 1_200_000 * 971
    assert worst.usd_per_task == pytest.approx(18.0)
    (unbounded,) = planned(None, run, where, caps={"support": Caps(tokens=None)}).worst_case
    assert (unbounded.tokens_per_task, unbounded.tokens_in_flight) == (None, None)


def provider(**quota):
    prices = Prices(3.0, 0.3, 15.0, None, 3.75)
    return fleet(serves="provider", quota=Quota(**quota), prices=prices)


LOOP = {"loop": [trial(8, 54_400, 44_800, 2_000)]}


def used(**quota):
    plan = planned(None, LOOP, provider(**quota))
    return {use.name: use for use in plan.run.quotas}


def test_quotas_of_the_worked_regression():
    """8,000 calls, 56.4 million tokens with cached ones, 9.6 million input tokens without, 2 million out, a minute."""
    both = used(requests_per_minute=10_000, tokens_per_minute=60_000_000, output_tokens_per_minute=4_000_000)
    apart = used(input_tokens_per_minute=10_000_000, counts_cached_tokens=False)
    # 99 % of minutes: 1,000 Poisson tasks spread by 3.2 %
    p99 = 1 + NormalDist().inv_cdf(0.99) * 0.0316

    assert both["requests_per_minute"].used_p99 == pytest.approx(8_000 * p99, rel=0.01)
    assert both["tokens_per_minute"].used_p99 == pytest.approx(56.4e6 * p99, rel=0.01)
    assert both["output_tokens_per_minute"].share == pytest.approx(0.5 * p99, rel=0.01)
    assert apart["input_tokens_per_minute"].used_p99 == pytest.approx(9.6e6 * p99, rel=0.01)


def test_two_buckets_and_reserved_output():
    """A second bucket has no cached tokens; where 1,000 tokens a call are booked ahead, 8 million count as written."""
    found = used(tokens_per_minute=10**9, uncached_tokens_per_minute=10**9, reserved_output_tokens_per_call=1_000)
    p99 = 1 + NormalDist().inv_cdf(0.99) * 0.0316

    assert found["tokens_per_minute"].used_p99 == pytest.approx((54.4e6 + 8e6) * p99, rel=0.01)
    assert found["uncached_tokens_per_minute"].used_p99 == pytest.approx((9.6e6 + 8e6) * p99, rel=0.01)


def test_a_quota_of_a_minute_is_held_by_the_second():
    """140 calls a second in the 99th minute have seconds of 168 in them: 600 a minute let 10 through."""
    found = used(requests_per_minute=600)

    assert found["requests_per_second"].quota == 10
    assert found["requests_per_second"].used_p99 > 1.15 * found["requests_per_minute"].used_p99 / 60


def test_tokens_of_a_day():
    """480,000 tasks a day of 56,400 tokens are 27 billion."""
    assert used(tokens_per_day=10**11)["tokens_per_day"].share == pytest.approx(0.27072)


def test_money_of_a_provider():
    """480,000 tasks a day at 0.07224 dollars are 34,675 a day and 1.04 million in 30; there are no GPUs."""
    plan = planned(None, LOOP, provider(requests_per_minute=10_000))

    assert plan.run.usd_per_month == pytest.approx(480_000 * 0.07224 * 30)
    assert (plan.run.gpus, plan.run.gpus_spread, plan.growth) == (None, None, None)


def test_cache_writes_have_their_price():
    """Of 9,600 new tokens 8,000 are written to the cache at 3.75 a million in place of 3: 0.006 dollars more."""
    plan = planned(None, {"loop": [trial(8, 54_400, 44_800, 2_000, cache_write_tokens=8_000)]}, provider())

    assert plan.run.usd_per_month == pytest.approx(480_000 * (0.07224 + 0.006) * 30)


def test_a_worse_cache():
    """15 points less of 54,400 input tokens cached are 8,160 more new ones: 11.6 -> 19.76 GPU-seconds."""
    run = planned(None, LOOP).run

    assert run.load.gpus == pytest.approx(16.6667 * 11.6 / 0.5, rel=1e-4)
    assert run.gpus_worse_cache == pytest.approx(16.6667 * 19.76 / 0.5, rel=1e-4)
    assert planned(None, {"t": [trial()]}).run.gpus_worse_cache is None


# --- reservation ---------------------------------------------------------------------------------------------------

#: Hourly demand, lognormal around 20 with sigma 0.6, as 20,000 evenly spaced quantiles.
HOURLY = [20 * math.exp(0.6 * NormalDist().inv_cdf((n + 0.5) / 20_000)) for n in range(20_000)]


def test_newsvendor():
    """At 2.5 times the price 23.3 GPUs are reserved, an hour costs 38.1, and 24.6 % of GPU hours are rented."""
    best = best_reservation(HOURLY, 2.5)

    assert best == pytest.approx(23.3, rel=0.01)
    assert reservation_cost(best, HOURLY, 2.5) == pytest.approx(38.1, rel=0.01)
    assert burst_share(best, HOURLY) == pytest.approx(0.246, rel=0.01)


def test_other_reservations_cost_more():
    """Reserving the first percentile costs 52.5, nothing 59.9, and the 99th percentile 81.5."""
    ordered = sorted(HOURLY)

    assert reservation_cost(ordered[200], HOURLY, 2.5) == pytest.approx(52.5, rel=0.01)
    assert reservation_cost(0.0, HOURLY, 2.5) == pytest.approx(59.9, rel=0.01)
    assert reservation_cost(ordered[19_800], HOURLY, 2.5) == pytest.approx(81.5, rel=0.01)


@pytest.mark.parametrize(("ratio", "quantile"), [(1 / 0.7, 0.30), (2.0, 0.50), (2.5, 0.60)])
def test_the_best_reservation_is_a_quantile(ratio, quantile):
    """At 1.43, 2 and 2.5 times the price the 30th, 50th and 60th percentile of hours is reserved."""
    assert best_reservation(list(range(1, 1_001)), ratio) == pytest.approx(1_000 * quantile, abs=1)


def test_blended_cost_of_a_fleet_that_is_always_full():
    """8 % of the work at 2.5 times the price is 12 % dearer."""
    assert reservation_cost(92.0, [100.0], 2.5) / 100 == pytest.approx(1.12)
    assert burst_share(92.0, [100.0]) == pytest.approx(0.08)


@pytest.mark.parametrize("peak", [1.5, 3.0, 12.0])
def test_hours_of_a_day(peak):
    """Of a bell whose peak is so many times its mean; given hours are taken as they are."""
    hours = hours_of(peak)

    assert max(hours) == 1.0
    assert 24 / sum(hours) == pytest.approx(peak, rel=0.001)
    assert hours_of(3.0, (1.0,) * 12 + (2.0,) * 12) == (0.5,) * 12 + (1.0,) * 12


def test_reservation_in_the_plan():
    """Peak 3: the night needs next to nothing, and the newsvendor's fleet is cheaper than either end."""
    found = planned(None, {"t": [trial()]}).run.reservation

    assert found.gpus_minimum < found.gpus_newsvendor < 50
    assert found.cost_newsvendor < min(found.cost_minimum, found.cost_peak)


# --- contract ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where",
    [
        fleet(ONBOARDING, cliffs=CLIFFS, gpus_reserved=100, prices=Prices(3.0, 0.3, 15.0, 4.0)),
        provider(tokens_per_day=5),
    ],
    ids=["gpus", "provider"],
)
def test_plan_fits_the_report(where):
    """Every field of a plan has its place in the schema of the JSON report."""
    report = json.loads(resources.files("pytest_fanout").joinpath("schemas/report.schema.json").read_bytes())
    plan = planned(mixed(), mixed(factor=2), where, caps={"support": Caps()})

    document = json.loads(json.dumps(dataclasses.asdict(plan)))

    schema = {"$defs": report["$defs"], "$ref": "#/$defs/fleet_plan"}
    assert list(jsonschema.Draft202012Validator(schema).iter_errors(document)) == []


def test_monotone():
    """More users, more fanout or a worse cache: no percentile of GPUs falls."""
    usual = planned(None, mixed())
    for more in (
        planned(None, mixed(), fleet(dataclasses.replace(PEAK, dau=220_000))),
        planned(None, mixed(factor=2)),
    ):
        for name in ("p50", "p95", "p99"):
            assert getattr(more.run.gpus_spread, name) > getattr(usual.run.gpus_spread, name)
