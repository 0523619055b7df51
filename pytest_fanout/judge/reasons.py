"""The reasons of a verdict by evidence, in words: what grew, what was ruled out, and what is not known."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from pytest_fanout.judge.arranged import FEWEST_TASKS, SHARES, Shown, Test
from pytest_fanout.judge.case import Case
from pytest_fanout.judge.foreseen import Foreseen
from pytest_fanout.judge.smallest import Sight
from pytest_fanout.records import Needs, Reason, Runaway

RECORD = "pytest --fanout-budget --fanout-mode=record"
#: Above this SD of the logarithm within tasks, so few tasks cannot show what the dearest of them do.
NOISY = 0.5
#: Tasks that a reason names; the others are counted.
NAMED = 5


def reasons_of(
    case: Case, verdicts: Mapping[Test, str], strays: Sequence[Runaway], needs: Needs, foreseen: Foreseen
) -> tuple[Reason, ...]:
    """All that is to say of a class on a new draw: what stands against it first, then notices."""
    return (*_against(case, verdicts, strays, needs), *_notices(case, verdicts, strays, foreseen))


def _against(case: Case, verdicts: Mapping[Test, str], strays: Sequence[Runaway], needs: Needs) -> Iterator[Reason]:
    arranged = case.arranged
    tasks = len(arranged.tasks)
    if not tasks:
        yield Reason("coverage-short", "no task of the anchor was measured; mend: run the whole class", "invalid")
    for metric in arranged.unknown:
        text = f"more than 5 % of the samples of {metric} are not known; mend: let the client ask for usage"
        yield Reason("value-unknown", text, "invalid")
    for test, word in verdicts.items():
        finding = case.findings.get(test)
        if word == "regressed" and finding is not None:
            again = "at the last look, and its last trials alone show it"
            if finding.trials != case.most_trials:
                again = f"after {_trials(finding.trials)}, and later ones show it too"
            p = case.seen[finding.look].p[test]
            exact = test.metric in case.seen[finding.look].exact
            chance = "nothing in it is chance: each task repeats exactly" if exact else f"p {_p(p)}"
            text = (
                f"{_grown(case.told(test), chance)}, above {_allowed(case.told(test))}: found {again}; "
                'mend: bring it back, or have it approved: fanout-baseline accept --reason "…"'
            )
            yield Reason("growth-found", text, "regressed")
    repeated = [stray for stray in strays if stray.repeated]
    grew = any(word == "regressed" for word in verdicts.values())
    if repeated:
        why, mend = "it repeats" if len(repeated) == 1 else "they repeat", "find the loop"
        if any(word == "regressed" and _grew_as_a_whole(case, test) for test, word in verdicts.items()):
            why, mend = f"{why}, and the class grew as a whole", "bring it back"
        text = (
            f"{_strays(repeated)}, in {_beyond_of(repeated)}: {why}; mend: {mend}, or "
            'have it approved: fanout-baseline accept --reason "…"'
        )
        yield Reason("runaway-repeated", text, "regressed")
    if grew or repeated:
        return
    for test, word in verdicts.items():
        finding = case.findings.get(test)
        if word == "unconfirmed" and finding is not None:
            chance = f"p {_p(case.seen[finding.look].p[test])}"
            said = f"{_grown(case.told(test), chance)}, above {_allowed(case.told(test))}"
            if needs.why == "confirm":
                text = f"{said}: found after {_trials(finding.trials)}, and no further trial tells yet; mend: {RECORD}"
            else:
                text = (
                    f"{said}: found only after all {_trials(finding.trials)}, and the last one alone does not show it; "
                    'mend: bring it back, or have it approved: fanout-baseline accept --reason "…"'
                )
            yield Reason("growth-unconfirmed", text, "inconclusive")
        elif word == "high":
            entry = case.seen[-1].plain[test]
            text = (
                f"{_of(test)} may have grown: best guess {_size(entry.effect, entry)}{_ends(entry)}, above "
                f"{_allowed(entry)}, and {_trials(arranged.whole)} of {tasks} tasks cannot tell; mend: bring it back, "
                'add tasks, or have it approved: fanout-baseline accept --reason "…"'
            )
            yield Reason("growth-not-shown", text, "inconclusive")
    if tasks and tasks < FEWEST_TASKS:
        text = (
            f"a new draw of {tasks} task{'' if tasks == 1 else 's'} cannot be shown to be within budget, at least "
            f"{FEWEST_TASKS} are needed; mend: accept it as the new anchor, or add tasks"
        )
        yield Reason("few-tasks-new-draw", text, "inconclusive")
    elif needs.why == "look" and arranged.tests:
        still = sorted({_of(test) for test, word in verdicts.items() if word == "open"})
        what = f"the evidence on {', '.join(still)} is open" if still else "there is nothing to judge yet"
        text = f"after {_trials(arranged.whole)} {what}; mend: run {_trials(needs.trials, 'more')}: {RECORD}"
        yield Reason("evidence-open", text, "inconclusive")
    if needs.why == "backstop":
        unsure = [stray for stray in strays if stray.task in needs.tasks]
        if unsure:
            again = "it repeats" if len(unsure) == 1 else "they repeat"
            text = f"{_strays(unsure)}: whether {again} has to be seen; mend: {RECORD}"
            yield Reason("runaway-open", text, "inconclusive")


def _grew_as_a_whole(case: Case, test: Test) -> bool:
    """Whether most tasks took more than the limit allows: what all of them do is no loop of some."""
    if test.statistic != "body":
        return False
    before, after = case.arranged.anchor.column(test.metric), case.arranged.run.column(test.metric)
    ratios = []
    for task in case.arranged.tasks:
        known = [value for value in before[task] if value is not None]
        new = [value for value in after[task] if value is not None]
        if known and new:
            ratios.append(statistics.median(new) / max(statistics.median(known), 1))
    return bool(ratios) and statistics.median(ratios) > case.told(test).threshold


def _notices(
    case: Case, verdicts: Mapping[Test, str], strays: Sequence[Runaway], foreseen: Foreseen
) -> Iterator[Reason]:
    for test, word in verdicts.items():
        if word == "low":
            entry = case.seen[-1].plain[test]
            text = f"~ {_of(test)}: best guess {_size(entry.effect, entry)}{_ruled_out(entry)}"
            yield Reason("growth-not-ruled-out", text, "notice")
    alone = [stray for stray in strays if not stray.repeated]
    if alone:
        yield Reason("runaway", f"{_strays(alone)}, in {_beyond_of(alone)}", "notice")
    noises = {metric: noise for metric, noise in (case.seen[-1].noises if case.seen else {}).items() if noise}
    yield from _beyond(foreseen)
    noisy = {metric: noise for metric, noise in noises.items() if noise > NOISY and metric not in SHARES}
    if noisy and case.arranged.draw.rules.inconclusive != "warn":
        metric = max(noisy, key=lambda name: noisy[name])
        text = (
            f"two trials of one task differ by a factor of {math.exp(noisy[metric]):.1f} in {metric} (SD of the "
            f"logarithm {noisy[metric]:.2f}, in this draw and its anchor): growth of its dearest tasks cannot be told "
            "from that; caps and a limit on capped.share hold such a class; proposed: "
            'inconclusive = "warn" in its [judge]'
        )
        yield Reason("noisy-class", text, "notice")


def _beyond(foreseen: Foreseen) -> Iterator[Reason]:
    """Limits below what the tasks can show."""
    tasks, trials = foreseen.tasks, foreseen.trials
    for metric, sight in foreseen.sights.items():
        found = sight.finds(tasks, trials)
        if found <= sight.should_find:
            continue
        text = (
            f"the limit allows {metric} {_more(sight.allowed)} more, and by {foreseen.whose} {tasks} tasks x {trials} "
            f"trials find growth of {_more(found)} and more; mend: {_mend(sight, tasks, trials)}"
        )
        yield Reason("budget-beyond-evidence", text, "notice")


def _mend(sight: Sight, tasks: int, trials: int) -> str:
    """What makes the notice go away, each by itself; trials and a wider limit only where they are in proportion."""
    needed = sight.tasks_for(sight.should_find, trials, tasks + 1) or 0
    ways = [f"add {needed - tasks} task{'' if needed == tasks + 1 else 's'}"]
    more = sight.trials_for(sight.should_find, tasks, trials)
    if more is not None:
        ways.append(f"set trials = {more} in its [judge]")
    text = f"to find {_more(sight.should_find)}, {' or '.join(ways)} (fanout-baseline power)"
    increase = sight.increase_for(tasks, trials)
    if increase is not None:
        text += f'; or allow what can be told apart: increase = "{increase}%", and fanout-baseline accept'
    return text


def _more(ratio: float) -> str:
    return percent(ratio).lstrip("+")


def percent(effect: float) -> str:
    """A ratio as growth in percent: 1.14 -> ``+14 %``, 0.97 -> ``-3 %``; from tenfold on as ``x12``."""
    if effect >= 10:
        return f"x{effect:,.0f}"
    value = (effect - 1) * 100
    return f"{value:+.0f} %" if abs(value) >= 10 or value == round(value) else f"{value:+.1f} %"


def _size(effect: float, entry: Shown) -> str:
    return f"{effect * 100:+.0f} points" if entry.scale == "share" else percent(effect)


def _ends(entry: Shown) -> str:
    low, high = entry.interval
    if low is None or high is None:
        return ""
    return f" (90 %: {_size(low, entry)} to {_size(high, entry)})"


def _ruled_out(entry: Shown) -> str:
    high = entry.interval[1]
    return "" if high is None else f"; growth above {_size(high, entry).lstrip('+')} ruled out (95 %)"


def _allowed(entry: Shown) -> str:
    return f"the {_size(entry.threshold, entry).lstrip('+')} that the limit allows"


def _of(test: Test) -> str:
    if test.statistic == "share":
        return f"the share of {test.metric} trials"
    return f"{test.metric} of a typical task" if test.statistic == "body" else f"{test.metric} of the dearest tasks"


def _grown(entry: Shown, chance: str) -> str:
    verb = "rose" if entry.scale == "share" else "grew"
    size = _size(entry.effect, entry).lstrip("+")
    return f"{_of(entry.test)} {verb} by {size}{_ends(entry)}, {chance}"


def _strays(strays: Sequence[Runaway]) -> str:
    """The tasks of a class that ran away: one with its figures; of several the names, and figures of the furthest."""
    furthest = _furthest(strays)
    if len(strays) == 1:
        return _stray(furthest)
    names = ", ".join(stray.task for stray in strays[:NAMED])
    more = f" and {len(strays) - NAMED} more" if len(strays) > NAMED else ""
    return f"{len(strays)} tasks ran away: {names}{more}; furthest: {_stray(furthest)}"


def _furthest(strays: Sequence[Runaway]) -> Runaway:
    return max(strays, key=lambda stray: stray.value / stray.bound)


def _beyond_of(strays: Sequence[Runaway]) -> str:
    furthest = _furthest(strays)
    return f"{furthest.beyond} of {_trials(furthest.trials)}"


def _stray(stray: Runaway) -> str:
    return (
        f"{stray.metric} of {stray.task} ran away to {stray.value:,}, and three times all that the anchor knows of it "
        f"is {stray.bound:,}"
    )


def _trials(count: int, more: str = "") -> str:
    word = f"{more} " if more else ""
    return f"{count} {word}trial{'' if count == 1 else 's'}"


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "below 0.0001"
