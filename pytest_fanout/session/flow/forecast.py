"""What a live run will cost, told before its first call: by the last draw, and unknown where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pytest_fanout.capacity.means import TaskMeans, task_means
from pytest_fanout.errors import FanoutError
from pytest_fanout.records import MEASURED, Baseline, Prices, Recording, Samples
from pytest_fanout.session.flow.limits import Pace, SpendLimit
from pytest_fanout.session.flow.words import counted, dollars, number, span

#: Recordings of a class that are read for it, spread evenly: reading all of a large class would hold up its start.
MOST_READ: Final = 24


class Trial(NamedTuple):
    """One trial that was selected."""

    agent: str
    task: str
    trial: int


class LastDraw(NamedTuple):
    """Means per trial of a class, and where they come from."""

    means: TaskMeans
    source: str  # as in "24 recordings"


@dataclass(frozen=True, slots=True)
class Cost:
    """What some trials will take. None: not known."""

    calls: float | None = 0.0
    tokens: float | None = 0.0
    usd: float | None = None  # None without prices, too
    seconds: float | None = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            _sum(self.calls, other.calls),
            _sum(self.tokens, other.tokens),
            _sum(self.usd, other.usd),
            _sum(self.seconds, other.seconds),
        )


def last_draw(
    agent: str,
    recorded: Sequence[tuple[str, int]],
    load: Callable[[str, str, int], Recording],
    measure: Callable[[Recording], Samples],
    anchor: Baseline | None,
) -> LastDraw | None:
    """What is known of a class: from its recordings, else from HEAD's anchor, else None.

    Args:
        recorded: its tasks and trials that are on record.
    """
    trials: dict[str, list[Samples]] = {}
    for task, trial in _spread(recorded, MOST_READ):
        try:
            trials.setdefault(task, []).append(measure(load(agent, task, trial)))
        except FanoutError:
            continue  # the run itself names a recording that cannot be used
    read = sum(map(len, trials.values()))
    source = counted(read, "recording")
    if not read and anchor is not None:
        source = "HEAD's anchor"
        for task, entry in anchor.tasks.items():
            trials[task] = [
                {metric: values[index] for metric, values in entry.samples.items()}
                for index, facts in enumerate(entry.trials)
                if facts.status in MEASURED
            ]
    try:
        means = task_means(agent, {task: rows for task, rows in trials.items() if rows}, {})
    except FanoutError:
        return None
    return LastDraw(means, source) if means.trials else None


def cost_of(trials: int, draw: LastDraw | None, prices: Prices, workers: int, pace: Pace) -> Cost:
    """What so many trials of a class will take on so many workers, within what its provider allows."""
    if not trials:
        return Cost(usd=0.0)
    if draw is None:
        return Cost(None, None, None, None)
    means = draw.means
    calls, tokens = _times(means.calls, trials), _times(means.tokens, trials)
    seconds = _times(means.residency_s, trials / min(workers, trials))
    if seconds is not None:
        seconds = max(
            seconds,
            60 * (calls or 0) / (pace.requests_per_minute or float("inf")),
            60 * (tokens or 0) / (pace.tokens_per_minute or float("inf")),
        )
    return Cost(
        calls, tokens, _times(price(prices, means.new_input, means.cached_input, means.output), trials), seconds
    )


def price(prices: Prices, new_input: float | None, cached_input: float | None, output: float | None) -> float | None:
    """US dollars of so many tokens; None where a price or a count is not known."""
    parts = (
        (new_input, prices.usd_per_million_new_input_tokens),
        (cached_input, prices.usd_per_million_cached_input_tokens),
        (output, prices.usd_per_million_output_tokens),
    )
    total = 0.0
    for tokens, usd in parts:
        if tokens is None or usd is None:
            return None
        total += tokens * usd / 1e6
    return total


def forecast(
    mode: str,
    trials: Iterable[Trial],
    is_recorded: Callable[[Trial], bool],
    draw_of: Callable[[str], LastDraw | None],
    *,
    is_spared: Callable[[Trial], bool] = lambda trial: False,
    prices: Prices,
    workers: int,
    paces: Mapping[str, Pace],
    limit: SpendLimit | None,
) -> tuple[str, ...]:
    """The lines to show; none when nothing was selected.

    In record mode only missing trials run live for sure. What is stale comes out when it is met.

    Args:
        is_spared: whether evidence may stand before this trial is needed.
    """
    by_class: dict[str, list[Trial]] = {}
    for trial in trials:
        by_class.setdefault(trial.agent, []).append(trial)
    lines: list[str] = []
    sure_in_all, more_in_all, any_more, any_spared = Cost(usd=0.0), Cost(usd=0.0), False, False
    for agent, own in sorted(by_class.items()):
        spared = {trial for trial in own if is_spared(trial)}
        sure = [trial for trial in own if trial not in spared and (mode != "record" or not is_recorded(trial))]
        draw, more = draw_of(agent), len(own) - len(sure)
        pace = paces.get(agent, Pace())
        cost, on_top = (cost_of(count, draw, prices, workers, pace) for count in (len(sure), more))
        sure_in_all, more_in_all = sure_in_all + cost, more_in_all + on_top
        any_more, any_spared = any_more or more > 0, any_spared or bool(spared)
        source = f", by {draw.source}" if draw is not None else ", for there is no recording and no anchor"
        lines.append(f"fanout: {agent}: {_said(mode, sure, cost, more, on_top, bool(spared))}{source}")
    if len(lines) > 1:
        top = f"; {_on_top(mode, any_spared)}, at most {_amounts(more_in_all)}" if any_more else ""
        at_least = ", at least" if mode == "record" or any_spared else ""
        lines.append(f"fanout: in all{at_least}: {_amounts(sure_in_all)}{top}")
    foreseen = sure_in_all.calls if limit is not None and limit.unit == "calls" else sure_in_all.tokens
    if limit is not None and foreseen is not None and foreseen > limit.amount:
        lines.append(f"fanout: that is more than its spend limit of {limit.told}, before which it will stop")
    return tuple(lines)


def _said(mode: str, sure: Sequence[Trial], cost: Cost, more: int, on_top: Cost, is_spared: bool) -> str:
    tasks = counted(len({trial.task for trial in sure}), "task")
    these = f"{counted(len(sure), 'trial')} of {tasks}"
    top = f"; {_on_top(mode, is_spared)}, at most {number(more)}: {_amounts(on_top)}" if more else ""
    if mode != "record":
        at_least = "at least " if more else ""
        return f"{at_least}{these} run{'s' if len(sure) == 1 else ''} live: {_amounts(cost)}{top}"
    if not sure and is_spared and more:
        # some are not recorded, and whether they run is decided by what the first ones show
        return (
            f"stale trials run live, and those that evidence needs: none to at most {number(more)}, {_amounts(on_top)}"
        )
    if not sure:
        return f"no trial is missing{top}"
    return f"at least {these} {'is' if len(sure) == 1 else 'are'} missing: {_amounts(cost)}{top}"


def _on_top(mode: str, is_spared: bool) -> str:
    """What may run live beside what is sure."""
    if not is_spared:
        return "stale ones come on top"
    return ("stale ones and " if mode == "record" else "") + "those that evidence needs come on top"


def _amounts(cost: Cost) -> str:
    unknown = [
        name
        for name, value in (("calls", cost.calls), ("tokens", cost.tokens), ("time", cost.seconds))
        if value is None
    ]
    known = [
        text
        for value, text in (
            (cost.calls, counted(cost.calls or 0, "call")),
            (cost.tokens, counted(cost.tokens or 0, "token")),
            (cost.usd if cost.tokens is not None else None, dollars(cost.usd or 0)),
            (cost.seconds, span(cost.seconds or 0)),
        )
        if value is not None
    ]
    said = [f"about {', '.join(known)}"] if known else []
    if unknown:
        names = " and ".join([", ".join(unknown[:-1]), unknown[-1]]) if len(unknown) > 1 else unknown[0]
        said.append(f"{names} unknown")
    return ", ".join(said)


def _spread(items: Sequence[tuple[str, int]], most: int) -> Iterable[tuple[str, int]]:
    count = min(len(items), most)
    return (items[number * len(items) // count] for number in range(count))


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
