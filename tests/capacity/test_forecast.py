"""GPUs by week: who comes when, what grows, when the fleet does not hold, and why."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from pytest_fanout.capacity.forecast import Forecaster
from pytest_fanout.capacity.plan import plan_fleet
from pytest_fanout.capacity.profiles import find_profile
from pytest_fanout.capacity.project import Sides, sides_of
from pytest_fanout.errors import ConfigError
from pytest_fanout.records import ClassDemand, Customer, Fleet, ForecastWeek, Outlook, Quota

START = date(2026, 11, 30)
#: 100 tasks/s at peak of support, 50 of research.
DEMAND = {
    "support": ClassDemand("support", 864_000, 1.0, peak_factor=10.0),
    "research": ClassDemand("research", 432_000, 1.0, peak_factor=10.0),
}
FLEET = Fleet("", "fleet.toml", demand=DEMAND)
WINDOWS = 200


def sides(agent: str, output: int = 778, fleet: Fleet = FLEET) -> Sides:
    """Ten tasks alike; 778 tokens of output are 0.07 GPU-seconds, and at 70 % utilisation 0.1."""
    sample = {"fanout": 5, "input_tokens": 0, "cached_input_tokens": 0, "output_tokens": output}
    return sides_of(agent, None, {f"t{number}": [sample] for number in range(10)}, fleet)


def forecaster(fleet: Fleet = FLEET, **more: Any) -> Forecaster:
    return Forecaster([sides("support"), sides("research")], fleet, find_profile(fleet), windows=WINDOWS, **more)


def acme(**changes: Any) -> Customer:
    """216,000 users of 1 task: a quarter of support's demand, 25 tasks/s more at peak."""
    return replace(Customer("Acme", date(2026, 12, 16), 216_000, 1.0, {"support": 1.0}), **changes)


def test_demand_grows_by_the_week():
    """1 % more users and 2 % more tasks each: after 3 weeks 890,180 users of 1.0612 tasks."""
    found = forecaster().demand(Outlook((), 0.01, 0.02), START, 3)["support"]

    assert found.dau == round(864_000 * 1.01**3) == 890_180
    assert found.tasks_per_user_day == pytest.approx(1.02**3, rel=1e-6)


def test_a_customer_counts_from_the_week_of_its_date():
    """Live on Wednesday of the third week: not in the second, in the third, and grown by 1 % in the fourth."""
    outlook = Outlook((acme(),), dau_growth_per_week=0.01)

    found = [forecaster().demand(outlook, START, week)["support"].dau for week in (1, 2, 3)]

    assert found == [round(864_000 * 1.01), round(864_000 * 1.01**2 + 216_000), round(864_000 * 1.01**3 + 218_160)]


def test_a_mix_of_classes():
    """3 of 4 tasks are support; without a mix they are as today, 2 of 3. One who is live already counts at once."""
    mixed = Outlook((acme(classes={"support": 3.0, "research": 1.0}, live=date(2026, 1, 1)),))
    usual = Outlook((acme(classes={}),))

    first, third = forecaster().demand(mixed, START, 0), forecaster().demand(usual, START, 2)

    assert (first["support"].dau, first["research"].dau) == (864_000 + 162_000, 432_000 + 54_000)
    assert (third["support"].dau, third["research"].dau) == (864_000 + 144_000, 432_000 + 72_000)


def test_tasks_of_another_kind_of_user_are_added_up():
    """216,000 users of 4 tasks beside 864,000 of 1 are 1,080,000 of 1.6."""
    found = forecaster().demand(Outlook((acme(tasks_per_user_day=4.0),)), START, 2)["support"]

    assert (found.dau, found.tasks_per_user_day) == (1_080_000, pytest.approx(1.6))


def test_a_week_is_planned_like_today():
    """Without growth each week has the figures of a plan: 150 tasks/s x 0.1 GPU-seconds are 15 GPUs in the median."""
    found = forecaster().forecast(Outlook(), START, 2)
    plan = plan_fleet([sides("support"), sides("research")], FLEET, find_profile(FLEET), windows=WINDOWS).fleet

    spread = plan.run.gpus_spread
    assert [(week.gpus_p50, week.gpus_p95) for week in found.weeks] == [(spread.p50, spread.p95)] * 2
    assert found.weeks[0].gpus_p50 == pytest.approx(15.0, rel=0.01)
    assert found.weeks[1].start == date(2026, 12, 7)
    assert {week.state for week in found.weeks} == {"not judged"}
    assert found.notes[-3:] == (
        "No week is judged: [fleet] gpus_reserved says what is held.",
        "No growth is taken, of users or of tasks per user.",
        "Peak factors, spread of arrivals and tokens per task stay as they are today.",
    )


def test_the_customer_who_breaks_the_fleet_is_named():
    """15 GPUs and a few for the spread fit 17; with 25 tasks/s more they are 18 or more. Without Acme it would hold."""
    fleet = replace(FLEET, gpus_reserved=17)

    found = forecaster(fleet).forecast(Outlook((acme(),)), START, 4)

    assert [week.state for week in found.weeks] == ["holds", "holds", "short", "short"]
    assert [week.live for week in found.weeks] == [(), (), ("Acme",), ()]
    assert [week.causes for week in found.weeks] == [(), (), ("onboarding of Acme",), ("onboarding of Acme",)]
    assert not found.weeks[2].together


def test_burst_gpus_carry_it():
    """Beyond what is reserved and within what can be had beside it, a week bursts, and has no cause."""
    fleet = replace(FLEET, gpus_reserved=17, gpus_burst=10)

    found = forecaster(fleet).forecast(Outlook((acme(),)), START, 3)

    assert [(week.state, week.causes) for week in found.weeks][-1] == ("bursts", ())


def test_users_who_ask_for_more_are_a_cause_of_their_own():
    """20 % more tasks per user a week break it in the second; growth of users by 1 % does not."""
    fleet = replace(FLEET, gpus_reserved=17)

    (_, second) = forecaster(fleet).forecast(Outlook((), 0.01, 0.2), START, 2).weeks

    assert (second.state, second.causes) == ("short", ("behaviour (tasks per user)",))


def test_accepted_fanout_is_a_cause():
    """The anchors of today write twice as much as those before: with the old ones 15 GPUs would hold on 17."""
    fleet = replace(FLEET, gpus_reserved=17)
    old = [sides("support"), sides("research")]
    made = Forecaster(
        [sides("support", 1_556), sides("research", 1_556)], fleet, find_profile(fleet), None, old, windows=WINDOWS
    )

    (week,) = made.forecast(Outlook(), START, 1, since="v1").weeks

    assert (week.state, week.causes, week.together) == ("short", ("fanout",), False)


def test_several_causes_are_told_together():
    """No single one of them is too much for 17 GPUs, or little enough: the one that takes most stands first."""
    fleet = replace(FLEET, gpus_reserved=17)

    (_, second) = forecaster(fleet).forecast(Outlook((acme(live=START),), 0.3, 0.1), START, 2).weeks

    assert second.causes == ("growth of users", "onboarding of Acme", "behaviour (tasks per user)")
    assert second.together


def many(count: int) -> tuple[Customer, ...]:
    """Customers of rising size, each with a mix of its own; together 50 tasks/s more."""
    whole = count * (count + 1) / 2
    return tuple(
        Customer(f"c{n:04d}", START, max(1, round(432_000 * n / whole)), 1.0, {"support": n, "research": count - n + 1})
        for n in range(1, count + 1)
    )


def test_of_many_customers_those_without_whom_it_holds_are_found():
    """0.06 GPUs too much for 21: without any of the larger of 60 customers they hold, as trying each of them says."""
    made = forecaster(replace(FLEET, gpus_reserved=21))

    def week_of(customers: tuple[Customer, ...]) -> ForecastWeek:
        return made.forecast(Outlook(customers), START, 1).weeks[0]

    # some more users bring the p95 to just above 21; the largest of the 60 takes 0.16 GPUs, the smallest 0.003
    last = next(
        last
        for last in (replace(many(1)[0], name="last", dau=dau) for dau in range(4_000, 400_000, 4_000))
        if (week_of((*many(60), last)).gpus_p95 or 0.0) > 21.06
    )
    signed = (*many(60), last)

    week = week_of(signed)

    tried = {
        f"onboarding of {left_out.name}"
        for left_out in signed
        if week_of(tuple(each for each in signed if each is not left_out)).state == "holds"
    }
    assert week.state == "short"
    assert not week.together
    assert set(week.causes) == tried
    assert 1 < len(tried) < len(signed)


def test_a_thousand_customers_take_few_tries(monkeypatch: pytest.MonkeyPatch):
    """Some 50 demands are priced for a short week, whoever is live: not one for each customer."""
    made, tries = forecaster(replace(FLEET, gpus_reserved=17)), []
    at = Forecaster._at
    monkeypatch.setattr(Forecaster, "_at", lambda self, *words: tries.append(1) or at(self, *words))

    (week,) = made.forecast(Outlook(many(1_000), 0.01, 0.01), START, 1).weeks

    assert (week.state, week.together, len(week.causes)) == ("short", True, 1_002)
    assert len(tries) < 60


def test_the_first_week_is_todays_plan():
    """Mean, p95 with its interval, GPUs at peak and for p95 of a week without growth are those of plan."""
    fleet = replace(FLEET, spare_replicas=2)
    plan = plan_fleet([sides("support"), sides("research")], fleet, find_profile(fleet)).fleet
    made = Forecaster([sides("support"), sides("research")], fleet, find_profile(fleet))

    (week,) = made.forecast(Outlook(), START, 1).weeks

    side = plan.run
    assert (week.gpus, week.gpus_for_p95) == (side.gpus, side.gpus_for_p95)
    assert (week.gpus_p95, week.gpus_p95_interval) == (side.gpus_spread.p95, side.gpus_spread.p95_interval)


def test_todays_demand_may_be_too_much():
    """Nothing is new, and it does not hold."""
    (week,) = forecaster(replace(FLEET, gpus_reserved=5)).forecast(Outlook(), START, 1).weeks

    assert (week.state, week.causes) == ("short", ("today's demand",))


def test_a_provider_is_held_to_its_quotas():
    """150 tasks/s x 5 calls are 45,000 a minute: a quota of 60,000 holds until tasks grow by a half."""
    fleet = replace(FLEET, serves="provider", quota=Quota(requests_per_minute=60_000))

    found = forecaster(fleet).forecast(Outlook((), 0.0, 0.5), START, 2).weeks

    assert [week.state for week in found] == ["holds", "short"]
    assert found[0].quota_share == pytest.approx(0.8, abs=0.1)
    assert found[0].gpus_p95 is None


def test_a_week_without_a_number_says_why():
    """A context that no replica holds is no number in any week."""
    sample = {
        "fanout": 5, "input_tokens": 10**9, "cached_input_tokens": 0, "output_tokens": 778, "context_max": 10**9,
    }  # fmt: skip
    made = Forecaster([sides_of("support", None, {"t": [sample]}, FLEET)], FLEET, find_profile(FLEET), windows=WINDOWS)

    (week,) = made.forecast(Outlook(), START, 1).weeks

    assert (week.state, week.gpus_p95, week.gpus_for_p95) == ("no number", None, None)
    assert "does not fit one replica" in week.refused


def test_more_never_takes_less():
    """Each customer and each percent of growth takes as many GPUs or more."""
    made = forecaster(replace(FLEET, gpus_reserved=100))

    def last(outlook: Outlook) -> float:
        return made.forecast(outlook, START, 2).weeks[-1].gpus_p95 or 0.0

    here = acme(live=START)
    grown = [Outlook(), Outlook((), 0.01), Outlook((here,), 0.01), Outlook((here,), 0.01, 0.01)]
    values = [last(outlook) for outlook in grown]
    assert values == sorted(values)
    assert len(set(values)) == 4


def test_no_demand_is_no_forecast():
    """no-demand: without users there is nothing to grow."""
    fleet = Fleet("", "fleet.toml")
    with pytest.raises(ConfigError) as caught:
        Forecaster([sides("support", fleet=fleet)], fleet, find_profile(fleet))

    assert str(caught.value) == (
        "fleet.toml: has no demand for a class with an anchor: there is nothing to forecast\n"
        "  mend: add [demand.CLASS]\n  see: docs/messages.md#no-demand"
    )


def test_a_customer_of_a_class_that_is_not_there():
    """customer-of-no-class: a misspelt class would leave its tasks out in silence; the customers' file is named."""
    wrong = replace(acme(classes={"suport": 1.0}), where="signed.toml: customer 1")
    with pytest.raises(ConfigError) as caught:
        forecaster().forecast(Outlook((wrong,)), START, 1)

    assert str(caught.value) == (
        "signed.toml: customer 1: Acme has tasks of suport, which has no anchor or no demand in fleet.toml; "
        "known: research, support\n"
        "  mend: write support there, or add [demand.suport] and accept an anchor of it\n"
        "  see: docs/messages.md#customer-of-no-class"
    )
    with pytest.raises(ConfigError, match=r"mend: add \[demand.x\] and accept an anchor of it, or mend the customer"):
        forecaster().forecast(Outlook((acme(classes={"x": 1.0}),)), START, 1)
