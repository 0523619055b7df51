"""What a delta is made of. Exact: the parts of a metric in a scope add up to its delta.

Rule: Shapley values of two factors, how many calls and how much a call. Calls of one call site and one kind are a
group. A group grew from N0 to N1 calls a task, and a component (say its output) from m0 to m1 tokens a call: of the
growth N1 m1 - N0 m0 the part of the calls is (N1 - N0) (m0 + m1) / 2, that of the component (N0 + N1) / 2 (m1 - m0).
A group that one side does not have is all calls. A site that one side does not have is one part, new or gone.

Parts of calls: new, gone, begun (more conversations), wider (begun while another one of the site is under way), turn
(longer conversations), repeated (identical calls, one directly after the other), again (identical calls with others
between them), reasked (answers that were rejected).
Input that is alike to the letter on both sides has no part: its tokens are only known by its share of characters.
Parts of a call: prompt, tools, asked (what is new in it), resent (what was said before), results (of tools), output,
reasoning, retries, cache (input that the cache no longer serves; in uncached_tokens only).
Of no site: evalset (tasks that came, went or were redefined), refused (attempts of calls that no model answered),
untold (what the recordings do not show).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pytest_fanout.explain.learning import Site
from pytest_fanout.explain.matching import Pair
from pytest_fanout.records import Part, Visit, VisitedTrial

RULE = (
    "Shapley values of two factors, calls and size of a call, for each call site and kind of call: half of what both "
    "together make goes to each"
)
METRICS = ("fanout", "attempts", "tokens", "uncached_tokens")
#: Kinds of parts that count calls.
OF_CALLS = ("new", "gone", "begun", "wider", "turn", "repeated", "again", "reasked")
_INPUT = ("prompt", "tools", "asked", "resent", "results")
_CHARACTERS_A_TOKEN = 4  # where only a part of the context is in the request

#: Calls of one site and one kind; of turns, with the tools whose results they carry.
Group = tuple[str, str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Sums:
    """Of one side and scope, per task: calls and each component of each group."""

    calls: Mapping[Group, Fraction]
    amounts: Mapping[tuple[Group, str], Fraction]

    @property
    def total(self) -> Fraction:
        return sum(self.amounts.values(), Fraction(0))


@dataclass(frozen=True, slots=True)
class Groups:
    """The group of each visit of one side, and the components of its tokens; by trial and visit."""

    group: Mapping[tuple[int, int], Group]
    tokens: Mapping[tuple[int, int], Mapping[str, int] | None]  # None: not known


def grouped(trials: Sequence[VisitedTrial], sites: Sequence[tuple[str, Site]], *, reasoning: bool) -> Groups:
    """Each visit of a side in its group.

    Args:
        sites: key and site.
        reasoning: whether every call tells its reasoning tokens; else they are output.
    """
    group: dict[tuple[int, int], Group] = {}
    tokens: dict[tuple[int, int], Mapping[str, int] | None] = {}
    for key, site in sites:
        own: dict[int, list[int]] = defaultdict(list)
        for at, number in site.visits:
            own[at].append(number)
        for at, numbers in own.items():
            trial = trials[at]
            beside = _beside(trial, numbers) if trial.timed else frozenset()
            for number in numbers:
                visit = trial.visits[number]
                kind = visit.kind
                if kind == "begun" and number in beside:
                    kind = "wider"
                group[at, number] = (key, kind, visit.after if kind == "turn" else ())
                tokens[at, number] = _components(visit, site, reasoning=reasoning)
    return Groups(group, tokens)


def sums(trials: Sequence[VisitedTrial], groups: Groups, metric: str, tasks: Iterable[str], count: int) -> Sums | None:
    """What each group of a side comes to per task. Each task counts once, by the mean of its trials.

    Args:
        tasks: those that are summed.
        count: how many tasks the mean is over.

    Returns:
        None where tokens of a call are not known.
    """
    wanted = set(tasks)
    of_task: dict[str, int] = defaultdict(int)
    for trial in trials:
        of_task[trial.task] += 1
    calls: dict[tuple[str, Group], int] = defaultdict(int)
    amounts: dict[tuple[str, Group, str], int] = defaultdict(int)
    for (at, number), group in groups.group.items():
        task = trials[at].task
        if task not in wanted:
            continue
        told = _told(trials[at].visits[number], groups.tokens[at, number], metric)
        if told is None:
            return None
        calls[task, group] += 1
        for name, value in told.items():
            amounts[task, group, name] += value
    per_call: dict[Group, Fraction] = defaultdict(Fraction)
    per_amount: dict[tuple[Group, str], Fraction] = defaultdict(Fraction)
    for (task, group), value in sorted(calls.items()):
        per_call[group] += Fraction(value, of_task[task] * count)
    for (task, group, name), value in sorted(amounts.items()):
        per_amount[group, name] += Fraction(value, of_task[task] * count)
    return Sums(dict(per_call), dict(per_amount))


def unchanged_input(
    pairs: Sequence[Pair], base: Sequence[VisitedTrial], run: Sequence[VisitedTrial]
) -> dict[str, frozenset[str]]:
    """By site, the kinds of input that are alike to the letter in all its calls, ``prompt`` and ``tools``.

    What is told of them by characters alone is no growth of theirs. With another model a text may be other tokens.
    """
    found: dict[str, frozenset[str]] = {}
    for pair in pairs:
        if pair.base is None or pair.run is None:
            continue
        sides = [
            [trials[at].visits[number] for at, number in site.visits]
            for trials, site in ((base, pair.base), (run, pair.run))
        ]
        models = [{(visit.model, visit.served) for visit in side} for side in sides]
        if models[0] != models[1]:
            continue
        visits = [*sides[0], *sides[1]]
        kept = set()
        if len({visit.tools for visit in visits}) == 1:
            kept.add("tools")
        if len({visit.system for visit in visits}) == 1 and pair.base.lead == pair.run.lead:
            kept.add("prompt")
        found[pair.key] = frozenset(kept)
    return found


def decomposed(
    base: Sums,
    run: Sums,
    pairs: Sequence[Pair],
    metric: str,
    scope: str,
    unchanged: Mapping[str, frozenset[str]],
) -> list[Part]:
    """The parts of what the calls of both sides come to, larger first. Parts of 0 are left out.

    Args:
        unchanged: kinds of input by site. What sharing out by characters moves there belongs to the input that moved.
    """
    found: dict[tuple[str, str, tuple[str, ...]], Fraction] = defaultdict(Fraction)
    state = {pair.key: "new" if pair.base is None else "gone" if pair.run is None else "" for pair in pairs}
    names = sorted({name for side in (base, run) for _, name in side.amounts})
    for group in sorted({*base.calls, *run.calls}):
        key, kind, after = group
        n0, n1 = (side.calls.get(group, Fraction(0)) for side in (base, run))
        grown: dict[str, Fraction] = {}
        for name in names:
            a0, a1 = (side.amounts.get((group, name), Fraction(0)) for side in (base, run))
            if state[key]:
                found[state[key], key, ()] += a1 - a0
                continue
            m1 = a1 / n1 if n1 else a0 / n0
            m0 = a0 / n0 if n0 else m1
            found[kind, key, after] += (n1 - n0) * (m0 + m1) / 2
            grown[name] = (n0 + n1) / 2 * (m1 - m0)
        for name, value in _folded(grown, unchanged.get(key, frozenset())).items():
            found[name, key, ()] += value
    parts = [Part(metric, scope, kind, key, value, after) for (kind, key, after), value in found.items() if value]
    return sorted(parts, key=order_of)


def _folded(grown: Mapping[str, Fraction], unchanged: frozenset[str]) -> dict[str, Fraction]:
    """Growth by component, that of input that did not change added to the input that moved most."""
    out = {name: value for name, value in grown.items() if name not in unchanged}
    rest = sum((value for name, value in grown.items() if name in unchanged), Fraction(0))
    if rest:
        moved = [name for name in _INPUT if out.get(name)]
        into = max(moved, key=lambda name: abs(out[name]), default="asked")
        out[into] = out.get(into, Fraction(0)) + rest
    return out


def refused_attempts(trials: Sequence[VisitedTrial], tasks: Sequence[str]) -> Fraction:
    """Attempts of calls that no model answered, the mean per task."""
    of_task: dict[str, list[int]] = defaultdict(list)
    for trial in trials:
        of_task[trial.task].append(trial.refused_attempts)
    means = (Fraction(sum(of_task[task]), len(of_task[task])) for task in tasks if task in of_task)
    return sum(means, Fraction(0)) / len(tasks)


def order_of(part: Part) -> tuple[Fraction, str, str, tuple[str, ...]]:
    """Largest first, then by name."""
    return -abs(part.value), part.kind, part.site or "", part.after


def _beside(trial: VisitedTrial, numbers: Sequence[int]) -> frozenset[int]:
    """Those of the visits of a site during which an earlier one of them is still under way when they begin."""
    found, latest = set(), 0
    for number in sorted(numbers, key=lambda number: (trial.visits[number].started_ms, number)):
        visit = trial.visits[number]
        if latest > visit.started_ms:
            found.add(number)
        latest = max(latest, visit.ended_ms)
    return frozenset(found)


def _told(visit: Visit, tokens: Mapping[str, int] | None, metric: str) -> Mapping[str, int] | None:
    if metric == "fanout":
        return {"calls": 1}
    if metric == "attempts":
        return {"calls": 1, "retries": visit.attempts - 1}
    if tokens is None or metric == "tokens":
        return tokens
    cached = visit.cached_input_tokens
    return None if cached is None else {**tokens, "cache": -cached}


def _components(visit: Visit, site: Site, *, reasoning: bool) -> Mapping[str, int] | None:
    """The tokens of a call by what they are; input is split by characters, and the pieces add up to it."""
    if visit.input_tokens is None or visit.output_tokens is None or visit.retry_tokens is None:
        return None
    sizes = sizes_of(visit, site)
    spent = visit.input_tokens
    rest = 0
    if visit.has_server_state:  # the provider holds what was said before
        rest = max(spent - -(-sum(sizes.values()) // _CHARACTERS_A_TOKEN), 0)
    told = shared_out(spent - rest, sizes)
    told["resent"] += rest
    thought = min(visit.reasoning_tokens or 0, visit.output_tokens) if reasoning else 0
    return {**told, "output": visit.output_tokens - thought, "reasoning": thought, "retries": visit.retry_tokens}


def sizes_of(visit: Visit, site: Site) -> dict[str, int]:
    """Characters of a request by what they are."""
    sizes = dict.fromkeys(_INPUT, 0)
    sizes["prompt"] = len(visit.system)
    sizes["tools"] = sum(len(definition) for _, definition in visit.tools)
    lead = site.lead if visit.turns[: len(site.lead)] == site.lead else ()
    sizes["prompt"] += sum(len(text) for _, text in lead)
    turns = visit.turns[len(lead) :]
    last = -1
    if visit.follows is not None or visit.kind in ("repeated", "again"):
        last = max((at for at, (role, _) in enumerate(turns) if role == "assistant"), default=-1)
    for at, (role, text) in enumerate(turns):
        sizes["resent" if at <= last else "results" if role == "result" else "asked"] += len(text)
    return sizes


def shared_out(total: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """A count of tokens shared out by size, by the largest remainder, so that the pieces add up to it."""
    whole = sum(sizes.values())
    if not whole:
        return {name: total if name == "asked" else 0 for name in sizes}
    pieces = {name: total * size // whole for name, size in sizes.items()}
    by_rest = sorted(sizes, key=lambda name: (-(total * sizes[name] % whole), name))
    for name in by_rest[: total - sum(pieces.values())]:
        pieces[name] += 1
    return pieces
