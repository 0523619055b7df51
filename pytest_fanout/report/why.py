"""An explanation in words: a few lines for the terminal and the summary, all of it for ``fanout-baseline why``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from pytest_fanout.capacity.figures import counted
from pytest_fanout.explain.causes import LEAST_SHARE, words_of
from pytest_fanout.records import ClassTotal, Example, Explanation, Finding, Part, Share, TreeLine

_UNITS = {"fanout": "call", "attempts": "attempt", "tokens": "token", "uncached_tokens": "token"}
#: The metrics in words.
NAMES = {
    "fanout": "calls",
    "attempts": "attempts",
    "tokens": "tokens",
    "uncached_tokens": "tokens that no cache served",
}
_SCOPES = {"mean": "mean", "p95": "mean of the tasks at or above p95"}
_MOST_PARTS = 12
_MOST_CALLS = 40  # of a tree
_MOST_DETAIL = 20
_REDACTED = "redacted: prompts, settings and requests are left out"


def figure(value: Fraction | None) -> str:
    """At most two decimals, with thousands separators."""
    if value is None:
        return "unknown"
    hundredths = math.floor(abs(value) * 100 + Fraction(1, 2))
    text = f"{hundredths // 100:,}.{hundredths % 100:02d}".rstrip("0").rstrip(".")
    return f"-{text}" if value < 0 and hundredths else text


def percent(share: Fraction | None) -> str:
    """A share as a whole number of percent."""
    return "no share" if share is None else f"{math.floor(share * 100 + Fraction(1, 2))} %"


def headline(explanation: Explanation) -> str:
    """``research: 8 -> 22 calls and 900 -> 2,400 tokens a task``."""
    moved = [
        f"{figure(total.base)} -> {figure(total.run)} {NAMES[total.metric]}"
        for total in explanation.totals
        if total.scope == "mean" and total.metric in ("fanout", "tokens")
    ]
    return f"{explanation.agent}: {' and '.join(moved) or 'nothing that was counted'} a task"


def short_lines(explanation: Explanation, most: int) -> list[str]:
    """The largest findings, one line each, without what only changed beside them or went the other way."""
    carrying = [
        finding
        for finding in _observed(explanation)
        if (main := _main_share(explanation, finding)) is None or (main.share or 0) >= 0
    ]
    return [finding_text(explanation, finding) for finding in carrying[:most]]


def finding_text(explanation: Explanation, finding: Finding) -> str:
    """``96 % of the growth in calls: "You plan…": system prompt changed (shop/agents.py:12)``."""
    main = _main_share(explanation, finding)
    start = ""
    if main is not None:
        total = next(t for t in explanation.totals if (t.metric, t.scope) == (main.metric, main.scope))
        word = "growth" if total.delta > 0 else "fall"
        start = f"{percent(main.share)} of the {word} in {NAMES[main.metric]}: "
    where = f" ({', '.join(finding.places[:2])})" if finding.places else ""
    beside = f", together with: {', '.join(finding.beside)}" if finding.beside else ""
    name = _quoted(explanation, finding.sites)
    return f"{start}{name}{finding.text}{where}{beside}"


def all_lines(explanation: Explanation, *, redacted: bool = False) -> Iterator[str]:
    """All of it, as lines."""
    told = worth_telling(explanation.totals)
    yield headline(explanation)
    yield ""
    yield "findings"
    if not explanation.findings:
        yield "  none: nothing changed in what was sent, and no part carries 5 % of anything"
    for finding in explanation.findings:
        yield f"  {finding.label}: {finding_text(explanation, finding)}"
        yield from (f"      {line}" for line in share_lines(explanation, finding))
        if finding.reaches:
            yield f"      through the sites called after it: {_quoted(explanation, finding.reaches, end='')}"
        yield from (f"      {line}" for line in finding.detail[:_MOST_DETAIL])
        if len(finding.detail) > _MOST_DETAIL:
            yield f"      and {counted(len(finding.detail) - _MOST_DETAIL, 'more line')} in the report"
        for place in finding.places:
            yield f"      at {place}"
    yield ""
    for total in explanation.totals:
        if total.delta and (total.metric, total.scope) in told:
            yield from _total_lines(explanation, total)
    yield "call sites, calls and tokens a task"
    for site in explanation.sites:
        calls = f"{figure(site.calls_base)} -> {figure(site.calls_run)}"
        tokens = f"{figure(site.tokens_base)} -> {figure(site.tokens_run)}"
        models = ", ".join(site.models_run or site.models_base)
        yield f'  {site.state:<8} "{site.label}" ({models}): calls {calls}, tokens {tokens}'
    for shown in explanation.examples:
        yield ""
        yield from _example_lines(shown)
    if explanation.notes:
        yield ""
        yield from (f"note: {note}" for note in explanation.notes)
    yield ""
    yield f"rule: {explanation.rule}"
    if redacted:
        yield _REDACTED


def task_lines(explanation: Explanation, task: str, *, redacted: bool = False) -> Iterator[str]:
    """One task, call by call, below one line on its class."""
    yield headline(explanation)
    own = [example for example in explanation.examples if example.task == task]
    if not own:
        yield f"task {task}: nothing to lay side by side: it is not on both sides, or its recordings cannot be read"
    for shown in own:
        yield ""
        yield from _example_lines(shown)
    yield from (f"note: {note}" for note in explanation.notes)
    if redacted:
        yield _REDACTED


def share_lines(explanation: Explanation, finding: Finding) -> Iterator[str]:
    """What a finding carries, a line for each metric and scope that is worth telling."""
    told = worth_telling(explanation.totals)
    for share in finding.shares:
        if (share.metric, share.scope) in told:
            kind = " that no cache served" if share.metric == "uncached_tokens" else ""
            yield f"{signed(share.value)} {_unit(share)}{kind} a task ({_SCOPES[share.scope]}), {percent(share.share)}"


def worth_telling(totals: Sequence[ClassTotal]) -> set[tuple[str, str]]:
    """Metric and scope of totals; attempts without any retry, and tokens where no cache is used, say nothing new."""
    plain = {"attempts": "fanout", "uncached_tokens": "tokens"}
    known = {(total.metric, total.scope): (total.base, total.run) for total in totals}
    return {
        (metric, scope)
        for (metric, scope), values in known.items()
        if known.get((plain.get(metric, ""), scope)) != values
    }


def _total_lines(explanation: Explanation, total: ClassTotal) -> Iterator[str]:
    where = f", {counted(len(total.tasks), 'task')}" if total.scope == "p95" else ""
    yield (
        f"{NAMES[total.metric]} a task, {_SCOPES[total.scope]}{where}: "
        f"{figure(total.base)} -> {figure(total.run)} ({signed(total.delta)})"
    )
    own = [part for part in explanation.parts if (part.metric, part.scope) == (total.metric, total.scope)]
    for part in own[:_MOST_PARTS]:
        yield f"  {signed(part.value):>10}  {part_text(explanation, part)}"
    if rest := own[_MOST_PARTS:]:
        value = sum((part.value for part in rest), Fraction(0))
        yield f"  {signed(value):>10}  {counted(len(rest), 'smaller part')}"
    yield ""


def part_text(explanation: Explanation, part: Part) -> str:
    """A part in words, with its call site."""
    after = f" after {', '.join(part.after)}" if part.after else ""
    name = _quoted(explanation, (part.site,)) if part.site else ""
    return f"{name}{words_of(part.kind, part.value)}{after}"


def _example_lines(example: Example) -> Iterator[str]:
    yield f"task {example.task}, trial {example.trial_base} of the base and {example.trial_run} of the run"
    if example.parts_at is None:
        yield "  the same requests on both sides"
    else:
        yield f"  they part at call {example.parts_at}: {'; '.join(example.differs) or 'another request'}"
    width = max((len(_call_text(line)) for line in example.base[:_MOST_CALLS]), default=4)
    width = min(max(width, 4), 58)
    yield f"  {'':4} {'base':<{width}}   run"
    for number in range(min(max(len(example.base), len(example.run)), _MOST_CALLS)):
        left, right = (_call_text(side[number]) if number < len(side) else "" for side in (example.base, example.run))
        mark = ">" if example.parts_at == number + 1 else " "
        yield f"  {mark}{number + 1:>3} {left[:width]:<{width}}   {right}".rstrip()
    for name, side in (("base", example.base), ("run", example.run)):
        if len(side) > _MOST_CALLS:
            yield f"       {name}: {counted(len(side) - _MOST_CALLS, 'more call')}"


def _call_text(line: TreeLine) -> str:
    tokens = "?" if line.tokens is None else f"{line.tokens:,}"
    kind = {"begun": "", "turn": "..", "repeated": "= ", "again": "= ", "reasked": "! "}[line.kind]
    after = f" <- {', '.join(line.tools)}" if line.tools else ""
    label = line.label if len(line.label) <= 36 else f"{line.label[:35]}…"
    return f"{'  ' * line.depth}{kind}{label}{after} ({tokens})"


def _observed(explanation: Explanation) -> list[Finding]:
    # what the recordings do not show is no reason; it stands in the whole text, and its note says which they are
    return [finding for finding in explanation.findings if finding.label == "observed" and finding.kind != "untold"]


def _main_share(explanation: Explanation, finding: Finding) -> Share | None:
    """Of calls where it carries some of them, or else of the metric that it moves most."""
    known = [share for share in finding.shares if share.scope == "mean" and share.share is not None]
    known = known or [share for share in finding.shares if share.share is not None]
    calls = [share for share in known if share.metric == "fanout" and not _is_small(share)]
    order = {"tokens": 1, "uncached_tokens": 2, "attempts": 3, "fanout": 4}
    told = calls or sorted(known, key=lambda share: (_is_small(share), order[share.metric]))
    return told[0] if told else None


def _is_small(share: Share) -> bool:
    return abs(share.share or Fraction(0)) < LEAST_SHARE


def signed(value: Fraction) -> str:
    """A figure with its sign; a zero has none."""
    told = figure(value)
    return told if told.startswith("-") or told == "0" else f"+{told}"


def _unit(share: Share) -> str:
    return _UNITS[share.metric] + ("" if abs(share.value) == 1 else "s")


def _quoted(explanation: Explanation, keys: Sequence[str], end: str = ": ") -> str:
    labels = {site.key: site.label for site in explanation.sites}
    names = [f'"{labels[key]}"' for key in keys[:3]]
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return f"{', '.join(names)}{more}{end}" if names else ""
