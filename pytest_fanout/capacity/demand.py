"""From users to tasks a second at peak."""

from __future__ import annotations

from pytest_fanout.records import Demand, Fleet

SECONDS_PER_DAY = 86_400
#: Without figures of demand: 1,000 tasks an hour, evenly spread.
RATE_PER_1000 = 1_000 / 3_600


def peak_demand(agent: str, fleet: Fleet) -> Demand:
    """Tasks a second in the peak hour: dau x tasks per user and day / 86,400 x peak factor; else 1,000 an hour."""
    figures = fleet.demand.get(agent)
    if figures is None:
        return Demand(agent, RATE_PER_1000, per_1000=True)
    per_second = figures.dau * figures.tasks_per_user_day / SECONDS_PER_DAY * figures.peak_factor
    return Demand(agent, per_second, per_1000=False)
