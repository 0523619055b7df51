"""Examples that capacity planning is told by, worked by hand: what the model says of each of them.

Those that other pages hold: demand and fanout (test_project), flight (test_littles_law), cliffs and reservation
(test_plan), constraints (test_constraints).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from fractions import Fraction
from typing import Any

import pytest

from pytest_fanout.capacity.cliffs import with_fanout
from pytest_fanout.capacity.forecast import Forecaster
from pytest_fanout.capacity.means import TaskRow
from pytest_fanout.capacity.plan import plan_fleet
from pytest_fanout.capacity.profiles import BUILT_IN, Profile, calibrated
from pytest_fanout.capacity.project import project, sides_of
from pytest_fanout.judge.limits import is_over
from pytest_fanout.records import (
    Calibration,
    CalibrationPoint,
    Caps,
    ClassDemand,
    CliffInputs,
    Fleet,
    Limit,
    Load,
    Outlook,
    Prices,
    WorstCase,
)
from pytest_fanout.report.explained_fleet import of_fleet

#: 1,000 tokens a GPU-second either way, so that GPU-seconds can be read off.
PLAIN = Profile("plain", "g", "TP1", 1_000.0, 1_000.0, "a test")
#: 10 tasks a second.
TEN = ClassDemand("support", 864_000, 1.0, 1.0)
START = date(2026, 11, 30)


def fleet(demand: ClassDemand = TEN, **more: Any) -> Fleet:
    return Fleet("", "fleet.toml", demand={"support": demand}, **more)


def task(given: int = 1_000, written: int = 500, ms: int = 90_000, calls: int = 1) -> list[dict[str, int]]:
    return [
        {
            "fanout": calls, "input_tokens": given, "cached_input_tokens": 0, "output_tokens": written,
            "duration_ms": ms,
        }
    ]  # fmt: skip


def worst(run: dict[str, list[dict[str, int]]], where: Fleet, caps: Caps) -> WorstCase:
    plan = plan_fleet([sides_of("support", None, run, where)], where, PLAIN, None, {"support": caps}, windows=50).fleet
    assert plan is not None
    return plan.worst_case[0]


def test_reading_is_not_ten_times_as_cheap_at_full_load():
    """ "A written token costs 10 read ones" does not hold at full load: in the built-in profiles it is 0.5 to 2.1."""
    ratios = [profile.prefill_tokens_per_s / profile.decode_tokens_per_s for profile in BUILT_IN]

    assert (min(ratios), max(ratios)) == (pytest.approx(0.55, abs=0.01), pytest.approx(2.08, abs=0.01))


@pytest.mark.parametrize(("batch", "itl_ms", "ratio"), [(128, 28.81, 9.5), (8, 8.89, 46.9)])
def test_the_price_of_a_written_token_is_one_of_the_batch(batch: int, itl_ms: float, ratio: float):
    """8,192 tokens are read in 194.1 ms: 42,200 a second. 128 calls at 28.81 ms write 4,443, 8 at 8.89 write 900."""
    points = tuple(CalibrationPoint(c, 1_000 * c / itl_ms, itl_ms) for c in (1, batch))
    measured = Calibration("h200", "a model of it", "gpt-oss-120b", "H200", 1, points, 8_192 / 0.1941, 0, 1_024, 4_096)

    profile = calibrated(measured)

    assert profile.prefill_tokens_per_s / profile.decode_tokens_per_s == pytest.approx(ratio, abs=0.05)


def test_multiples_of_agents_over_chat_are_nobodys_default():
    """4, 14.6 or 15 times the tokens of a chat are scenarios: without a word in fleet.toml no cliff is taken."""
    assert (CliffInputs().fanout_ratio, CliffInputs().tasks_per_user_ratio) == (None, None)
    chat = TaskRow("chat", 1.0, 1.0, 300.0, 0.0, 200.0)

    multi = with_fanout(chat, 15.0)

    assert (multi.calls, multi.new_input, multi.output) == (15.0, 4_500.0, 3_000.0)


def test_a_few_long_tasks_are_nearly_all_of_the_tokens():
    """95 % at 5,000 tokens, 5 % at 800,000: these are 89.4 % of 44,750 a task; 8.95 times the usual, a 17.9th."""
    where = fleet()

    def tokens_of(weights: dict[str, float], names: tuple[str, ...] = ("usual", "huge")) -> float:
        run = {name: task(5_000 if name == "usual" else 800_000, 0) for name in names}
        rate = project("support", None, run, where, weights=weights).run.tokens_per_s
        assert rate is not None
        return rate / 10

    mean = tokens_of({"usual": 95, "huge": 5})
    assert mean == pytest.approx(44_750)
    assert 0.05 * tokens_of({"huge": 5}, ("huge",)) / mean == pytest.approx(0.894, abs=5e-4)
    assert mean / tokens_of({"usual": 1}, ("usual",)) == pytest.approx(8.95)
    assert tokens_of({"huge": 1}, ("huge",)) / mean == pytest.approx(17.9, abs=0.05)


def test_two_a_week_to_twelve_a_day():
    """A mean of 2.4 -> 14.4 tasks per user and day is 6 times the demand; of who went from 2 a week to 12 a day, 42."""
    run = {"t": task()}
    before, after = (fleet(ClassDemand("support", 200_000, per_day, 3.0)) for per_day in (2.4, 14.4))
    one, other = (fleet(ClassDemand("support", 1_000, per_day, 3.0)) for per_day in (2 / 7, 12.0))

    def rate(where: Fleet) -> float:
        return project("support", None, run, where).demand.tasks_per_second

    assert rate(after) / rate(before) == pytest.approx(6.0)
    assert rate(other) / rate(one) == pytest.approx(42.0)


def loop(calls: int) -> list[dict[str, int]]:
    """A first context of 4,000, 800 more with each call, 250 written; the rest is a cache hit."""
    new, given = 4_000 + 800 * (calls - 1), 4_000 * calls + 400 * calls * (calls - 1)
    return [
        {
            "fanout": calls, "input_tokens": given, "cached_input_tokens": given - new, "output_tokens": 250 * calls,
            "context_max": new,
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("calls", "more", "raw", "new", "usd"),
    [(10, 0.25, 1.397, 1.1667, 1.2533), (12, 0.5, 1.853, 1.3333, 1.5199), (22, 1.75, 5.015, 2.1667, 3.0523)],
)
def test_a_quarter_a_half_and_175_percent_more_calls(calls: int, more: float, raw: float, new: float, usd: float):
    """8 -> 10, 12, 22 calls of the loop: calls and output rise alike, raw input faster, new input and money less.

    10 calls: 76,000 in, of them 11,200 new and 64,800 cached, and 2,500 out are 9.05 cents in place of 7.22. A limit of
    less than that growth fails, one of as much does not: of 8 calls that is one call more or less of 10, 12, 22.
    """
    where = fleet(prices=Prices(3.0, 0.3, 15.0))
    before, after = (project("support", None, {"loop": loop(each)}, where).run for each in (8, calls))

    def figures(load: Load) -> list[float]:
        new, cached, written = load.new_input_per_s, load.cached_input_per_s, load.output_per_s
        known = (load.calls_per_s, written, (new or 0) + (cached or 0), new, load.usd_per_1000_tasks)
        return [value for value in known if value is not None]

    ratios = [one / other for one, other in zip(figures(after), figures(before), strict=True)]
    assert ratios == pytest.approx([1 + more, 1 + more, raw, new, usd], rel=1e-3)
    limits = [Limit("fanout", "p95", Fraction(round(100 * more) + points, 100), 1) for points in (-1, 0)]
    assert [is_over(limit, 8, calls) for limit in limits] == [True, False]


@pytest.mark.parametrize(
    ("calls", "rpm", "with_cached", "without", "written"),
    [(8, 8_000, 56.4e6, 9.6e6, 2.0e6), (22, 22_000, 278.3e6, 20.8e6, 5.5e6)],
)
def test_quotas_before_and_after_the_regression(
    calls: int, rpm: float, with_cached: float, without: float, written: float
):
    """8 -> 22 calls: calls and output x2.75, tokens with cached ones x4.93, without them x2.17. Means of a minute."""
    where = fleet(ClassDemand("support", 200_000, 2.4, 3.0))
    load = project("support", None, {"loop": loop(calls)}, where).run

    assert 60 * (load.calls_per_s or 0) == pytest.approx(rpm)
    assert 60 * (load.tokens_per_s or 0) == pytest.approx(with_cached, rel=1e-3)
    assert 60 * (load.new_input_per_s or 0) == pytest.approx(without)
    assert 60 * (load.output_per_s or 0) == pytest.approx(written)


def test_the_regression_by_points_of_a_simulator():
    """35,000 tokens read a second, 0.225 ms a token at 4,000 of context to 0.53 ms at 32,000: 0.78 -> 2.3, x3.0."""
    slope = (0.53e-3 - 0.225e-3) / 28_000
    profile = Profile("points", "H200", "TP1", 35_000.0, 1 / (0.225e-3 - 4_000 * slope), "a simulator", slope)
    sides = [sides_of("support", None, {"loop": loop(calls)}, fleet()) for calls in (8, 22)]

    before, after = (
        profile.gpu_seconds(side.run.new_input, side.run.output, (side.run.new_input + side.run.cached_input) / calls)
        for side, calls in zip(sides, (8, 22), strict=True)
    )

    assert (before, after) == (pytest.approx(0.78, rel=0.03), pytest.approx(2.32, rel=0.03))
    assert after / before == pytest.approx(2.97, rel=0.03)


def test_a_cliff_of_fanout_is_dearer_than_its_calls():
    """Three times the capacity of today: 2.75 times the calls fit if GPUs rise as calls do, by a fit of context not.

    The regression of the loop costs x2.31 by one fit of the published rows and x4.16 by the other.
    """
    where = fleet(ClassDemand("support", 200_000, 2.4, 3.0), cliffs=CliffInputs(fanout_ratio=2.75))
    sides = [sides_of("support", None, {"loop": loop(8)}, where)]
    first = BUILT_IN[0]
    assert first.other is not None
    fits = {}
    for fit in (first, first.other):
        alone = plan_fleet(sides, replace(where, gpus_reserved=1), fit, windows=50).fleet
        assert alone is not None
        assert alone.run.cliffs is not None
        today = alone.run.cliffs.cells[0].gpus
        assert today is not None
        plan = plan_fleet(sides, replace(where, gpus_reserved=round(3 * today)), fit, windows=50).fleet
        assert plan is not None
        assert plan.run.cliffs is not None
        fits[plan.run.cliffs.cells[-1].fits] = plan.run.cliffs.cells[-1].demand_ratio

    assert fits == {True: pytest.approx(2.31, abs=0.01), False: pytest.approx(4.16, abs=0.01)}


def test_the_ceiling_of_tokens_in_flight_and_a_second():
    """1.2 million tokens a task x 971 in flight are 1.17e9; if no task takes less than 240 s, 4.9 million a second.

    The mean of 900 in flight in place of the 971 of 99 % of moments are 1.08e9 and 4.5 million.
    """
    run = {"quick": task(ms=90_000)}
    found = worst(run, fleet(), Caps(tokens=1_200_000))
    slow = worst({"slow": task(ms=240_000)}, fleet(replace(TEN, dau=324_000)), Caps(tokens=1_200_000))

    assert found.tokens_in_flight == 1_200_000 * 971
    assert found.tokens_per_s == pytest.approx(1_200_000 * 971 / 90)
    # 3.75 tasks/s x 240 s are the same 900 in flight
    assert (slow.tokens_in_flight, slow.wall_s_min) == (1_200_000 * 971, 240.0)
    assert slow.tokens_per_s == pytest.approx(1_200_000 * 971 / 240)
    assert slow.tokens_per_s * 900 / 971 == pytest.approx(4.5e6)


def test_how_the_worst_case_is_explained():
    """Each line holds its formula with its values: a planner checks it with a pocket calculator."""
    where = fleet(replace(TEN, dau=324_000), prices=Prices(3.0, 0.3, 15.0))
    sides = [sides_of("support", None, {"slow": task(ms=240_000)}, where)]
    plan = plan_fleet(sides, where, PLAIN, None, {"support": Caps(tokens=1_200_000)}, windows=50).fleet
    unbounded = plan_fleet(sides, where, PLAIN, None, {"support": Caps(tokens=None)}, windows=50).fleet

    lines = of_fleet(plan, sides, where, PLAIN)
    assert [line for line in lines if line.startswith(("tokens in", "tokens/s at", "USD a day at"))] == [
        "tokens in flight at worst, support = cap x tasks in flight in 99 % of moments = 1,200,000 x 971 = "
        "1,165,200,000",
        "tokens/s at worst, support = tokens in flight / seconds of the quickest task = 1,165,200,000 / 240 = "
        "4,855,000",
        "USD a day at worst, support = tokens/s x dearest price x 86,400 = 4,855,000 x 15 / 1,000,000 x 86,400 = "
        "6,292,080",
    ]
    assert of_fleet(unbounded, sides, where, PLAIN)[-1] == (
        "worst case of support = unbounded: budget.toml has no cap on tokens"
    )


def test_the_worst_day_by_the_caps():
    """At 15 dollars a million tokens 4.855 million a second are 6.29 million dollars a day. No price, no dollars."""
    run = {"slow": task(ms=240_000)}
    where = fleet(replace(TEN, dau=324_000), prices=Prices(3.0, 0.3, 15.0))

    found = worst(run, where, Caps(tokens=1_200_000))

    assert found.usd_per_day == pytest.approx(1_200_000 * 971 / 240 * 15 / 1e6 * 86_400)
    assert worst(run, fleet(), Caps(tokens=1_200_000)).usd_per_day is None


def test_without_a_cap_the_worst_case_is_unbounded():
    """Nothing is multiplied with infinity: no figure, and the page says unbounded."""
    found = worst({"t": task()}, fleet(), Caps(tokens=None))

    assert (found.tokens_in_flight, found.tokens_per_s, found.usd_per_day) == (None, None, None)


def test_without_times_the_worst_second_is_not_known():
    """A cap without a shortest task is no rate."""
    run = {"t": [{key: value for key, value in task()[0].items() if key != "duration_ms"}]}

    assert worst(run, fleet(), Caps(tokens=1_000)).tokens_per_s is None


def test_a_long_task_beside_a_short_one():
    """500 tokens in 2 s and 1.2 million in 4 minutes: x2,400 the tokens, x120 the tasks in flight, x288,000 both."""
    short = project("support", None, {"t": task(300, 200, 2_000)}, fleet()).run
    long = project("support", None, {"t": task(1_000_000, 200_000, 240_000)}, fleet()).run

    tokens, in_flight = long.tokens_per_s / short.tokens_per_s, long.tasks_in_flight / short.tasks_in_flight

    assert (tokens, in_flight, tokens * in_flight) == (
        pytest.approx(2_400), pytest.approx(120), pytest.approx(288_000)
    )  # fmt: skip


def test_one_loop_for_eleven_days():
    """47,000 dollars in 11 days are 4,273 a day and 2.97 a minute: what one slot can burn at this cap and price.

    A million tokens in 303.3 s at 15 dollars a million, one after the other: so long is what has to be found within
    a day, and a cap of a tenth of it makes it 30 cents a minute.
    """
    run = {"loop": task(ms=303_300)}
    rare = fleet(ClassDemand("support", 1, 1.0, 1.0), prices=Prices(15.0, 15.0, 15.0))

    found = worst(run, rare, Caps(tokens=1_000_000))

    # one task a day is in flight in no more than 1 % of moments; the slot itself is what a loop takes
    assert found.usd_per_task == pytest.approx(15.0)
    a_day = found.usd_per_task / found.wall_s_min * 86_400
    assert a_day == pytest.approx(47_000 / 11, rel=1e-3)
    assert a_day / 1_440 == pytest.approx(2.97, abs=0.005)


def test_eight_weeks_of_headroom():
    """A fleet of D x 1.1^8 holds for eight weeks of 10 % growth, and not for the ninth."""
    run = {f"t{number}": task(300, 200) for number in range(10)}
    sides = [sides_of("support", None, run, fleet())]
    now = plan_fleet(sides, fleet(), PLAIN, windows=200).fleet.run.gpus_spread.p95
    where = fleet(gpus_reserved=int(now * 1.1**8) + 1)

    weeks = Forecaster(sides, where, PLAIN, windows=200).forecast(Outlook((), 0.1), START, 10).weeks

    assert [week.state for week in weeks] == ["holds"] * 9 + ["short"]
    assert weeks[9].causes == ("growth of users",)


def test_from_eight_weeks_of_headroom_to_140_percent_in_one_step():
    """140 % of that fleet is a step of 1.4 x 1.1^8 = 3.0 times today's demand, and the fleet is short by 29 %."""
    run = {"t": task(300, 200)}
    step = 1.4 * 1.1**8
    held = 10 * 0.5 / 0.85 * 1.1**8  # 10 tasks/s of 0.5 GPU-seconds at 85 %
    where = fleet(gpus_reserved=round(held), cliffs=CliffInputs(tasks_per_user_ratio=step))

    plan = plan_fleet([sides_of("support", None, run, where)], where, PLAIN, windows=50).fleet

    cell = plan.run.cliffs.cells[-1]
    assert step == pytest.approx(3.0, abs=0.002)
    assert (cell.fits, cell.degradation) == (False, pytest.approx(1 - 1 / 1.4, abs=0.03))
