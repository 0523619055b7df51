"""What a live run that was stopped or slowed says at its end."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_fanout.records import Problem
from pytest_fanout.session.flow.allowance import Slowed, Spent
from pytest_fanout.session.flow.limits import SpendLimit
from pytest_fanout.session.flow.words import counted, number, span

_GOES_ON = {
    "record": "pytest --fanout-budget --fanout-mode=record --fanout-spend-limit={limit}{only} goes on with what is "
    "missing",
    "rerecord": "--fanout-mode=rerecord with a higher limit draws all of it; what was not drawn anew keeps its older "
    "recordings, and --fanout-mode=record runs only what is missing of it",
    "live": "run it again with a higher limit: live mode keeps nothing",
}


def stopped_problem(
    limit: SpendLimit, spent: Spent, mode: str, done: int, selected: int, only: Sequence[str] = ()
) -> Problem:
    """The run was stopped by its spend limit: how far it came, and how it goes on.

    Args:
        only: the classes that were selected by name.
    """
    amounts = {"calls": counted(spent.calls, "call"), "tokens": counted(spent.tokens, "token")}
    used = amounts[limit.unit]
    if limit.unit == "tokens" and spent.tokens > limit.amount:
        over = counted(spent.tokens - limit.amount, "token")
        used += f", {over} over it by calls that were under way"
    kept = "" if mode == "live" else " and stored"
    rest = [
        f"{number(count)} {'was' if count == 1 else 'were'} {what}"
        for count, what in ((spent.cut, "stopped in the middle and not kept"), (spent.unbegun, "not begun"))
        if count
    ]
    return Problem(
        "spend-limit",
        f"the run stopped before its spend limit of {limit.told}, after {used}: {number(done)} of "
        f"{counted(selected, 'trial')} {'is' if done == 1 else 'are'} complete{kept}"
        f"{''.join(f', {part}' for part in rest)}; mend: {_goes_on(limit, mode, only)}",
        "incomplete",
    )


def unbegun_problem(agent: str, tasks: int, limit: SpendLimit, mode: str, only: Sequence[str] = ()) -> Problem:
    """A class of which nothing ran before the spend limit was reached. Without a word it would look left out."""
    return Problem(
        "spend-limit",
        f"{agent}: none of its {counted(tasks, 'task')} was completed before the run came to its spend limit of "
        f"{limit.told}; mend: {_goes_on(limit, mode, only)}",
        "incomplete",
        agent,
    )


def _goes_on(limit: SpendLimit, mode: str, only: Sequence[str]) -> str:
    return _GOES_ON[mode].format(limit=limit, only="".join(f" --fanout-agent={agent}" for agent in only))


def slowed_problem(slowed: Slowed) -> Problem:
    """Calls waited for their turn: a notice, because some samples show it."""
    after = f", after {counted(slowed.throttled, 'answer')} 429" if slowed.throttled else ""
    return Problem(
        "calls-slowed",
        f"{slowed.agent or 'set-up'}: model calls waited {span(slowed.waited_s)} in all for their turn{after}; that "
        "is left out of duration_ms, but peak_concurrency and rounds are as they went",
        "notice",
        slowed.agent or None,
    )
