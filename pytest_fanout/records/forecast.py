"""What is to come: signed customers, growth, and what the fleet takes week by week."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date


@dataclass(frozen=True, slots=True)
class Customer:
    """A customer who has signed. ``classes``: shares of its tasks by agent class, relative; empty: as today's tasks."""

    name: str
    live: date
    dau: int  # daily active users
    tasks_per_user_day: float
    classes: Mapping[str, float] = field(default_factory=dict)
    where: str = field(default="", compare=False)  # file and place that it stands in


@dataclass(frozen=True, slots=True)
class Outlook:
    """Customers and growth: shares a week (0.01 is 1 %), of all users from the day on that they are live."""

    customers: tuple[Customer, ...] = ()
    dau_growth_per_week: float = 0.0
    tasks_per_user_growth_per_week: float = 0.0


@dataclass(frozen=True, slots=True)
class ForecastWeek:
    """One week at its peak hour. None: not known, or no number; ``refused`` says why.

    ``state``: ``holds``, ``bursts`` (beyond what is reserved), ``short`` (beyond what can be had), ``no number``, or
    ``not judged`` where nothing says what is held.
    """

    start: date
    live: tuple[str, ...]  # customers who begin in this week
    dau: int
    tasks_per_s: float
    gpus_p50: float | None
    gpus_p95: float | None
    gpus_p95_interval: tuple[float, float] | None  # what 90 % of eval sets of this size would give
    gpus: int | None  # for the mean, in whole replicas, with the spare ones
    gpus_for_p95: int | None  # for the 95th percentile, in whole replicas, with the spare ones: what a week is held to
    quota_share: float | None  # of a provider, the fullest
    usd_per_day: float | None
    state: str
    causes: tuple[str, ...] = ()  # what makes it short: without any one of them it would hold
    together: bool = False  # none of them alone: taken away together, the first is the largest
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """All weeks, on the GPUs that can be had."""

    weeks: tuple[ForecastWeek, ...]
    gpus_reserved: int | None
    gpus_burst: int
    outlook: Outlook
    since: str | None  # the commit whose anchors stand for fanout before
    notes: tuple[str, ...] = ()
