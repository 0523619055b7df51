"""The report as GitHub-flavoured Markdown, for step summary and comment: verdict first, details folded.

Everything that came from outside stands in code spans, where nothing pings, links or breaks out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from pytest_fanout.capacity.figures import counted
from pytest_fanout.records import Explanation, Run, Verdict
from pytest_fanout.report import capacity, facts, summary
from pytest_fanout.report.printable import escape

MARKER = "<!-- pytest-fanout -->"
MOST_BYTES = 900 * 1024  # a step summary over 1 MiB is dropped whole
MOST_ROWS = 50
MOST_FINDINGS = 5  # of a class
MOST_CHARACTERS = 300  # of one id or text
REPORT = "fanout-report.json"
_SIGNS = {"within": "✅", "over": "❌", "not_measured": "⚠️", "waived": "🟡"}
_STATES = {"OVER": "❌ over", "approved": "☑️ approved", "waived": "🟡 waived", "ok": "✅"}
# Characters that mean nothing to Markdown, HTML, mentions or links, wherever they stand in a line.
_HARMLESS = re.compile(r"[A-Za-z0-9 ,:;()+%/.-]*\Z")


def render(run: Run, verdict: Verdict, *, most_bytes: int = MOST_BYTES) -> str:
    """Marker, headline, table, the ways out, then folded details, cut from their end to ``most_bytes`` of UTF-8."""
    head = "\n".join(_head(run, verdict)) + "\n"
    foot = _foot(run, verdict)
    room = most_bytes - len((head + foot).encode())
    return head + _fitted(_details(run, verdict), room) + foot


def code(text: str) -> str:
    """A code span for any text: one line, shown as it is, inert in tables and HTML."""
    clean = escape(summary.shortened(text, MOST_CHARACTERS))
    if clean.strip() and not re.search(r"[`|<@]", clean) and clean == clean.strip():
        return f"`{clean}`"
    # backslashes do not escape inside backticks, character references do inside <code>
    return "<code>" + re.sub(r"[!-/:-@\[-`{-~]", lambda match: f"&#{ord(match[0])};", clean) + "</code>"


def _words(text: str) -> str:
    """Our own words as they are; in a code span as soon as anything in them could be markup."""
    plain = text.replace(" -> ", " to ")
    if _HARMLESS.match(plain) and not re.search(r"www\.|GH-|://", plain):
        return summary.shortened(text, MOST_CHARACTERS).replace(" -> ", " → ")
    return code(text)


def explained(explanation: Explanation, lines_of: Callable[..., Iterable[str]], *, redacted: bool = False) -> str:
    """One explanation whole: its findings as a list, what ``lines_of`` makes of it as a block of text."""
    from pytest_fanout.report.why import finding_text

    lines = [f"### Why {code(explanation.agent)} moved", ""]
    lines += [f"- **{one.label}** {code(finding_text(explanation, one))}" for one in explanation.findings]
    fence = "````"
    block = "\n".join(lines_of(explanation, redacted=redacted)).replace(fence, "'" * len(fence))
    fold = "<details><summary>Parts, call sites and examples</summary>"
    return "\n".join((*lines, "", fold, "", f"{fence}text", block, fence, "", "</details>"))


def _head(run: Run, verdict: Verdict) -> list[str]:
    words, _, reason = summary.headline(run, verdict).partition(": ")
    priced = summary.capacity(verdict)
    growing = [line for line in priced if " -> " in line.text]
    if verdict.outcome in ("over", "waived") and growing:
        words += f": {_capacity_name(growing[0].agent)} {_words(growing[0].text)}"
    lines = [MARKER, f"### {_SIGNS[verdict.outcome]} fanout {words}", "", f"**{_words(reason)}**", ""]
    classes = summary.ordered_classes(verdict)
    if len(classes) > 1:
        good = sum(result.outcome == "within" for result in classes)
        lines += [f"{good:,} of {counted(len(classes), 'agent class', 'agent classes')} within budget.", ""]
    if not verdict.base.is_gate:
        lines += ["Not a gate result: there is no other commit to compare with.", ""]
    lines += _table(verdict)
    # what was measured, quality beside it, and what it costs
    lines += [f"- {code(item.agent)} {_words(facts.class_texts(run, item)[0])}" for item in classes[:MOST_ROWS]]
    lines += [f"- {_capacity_name(line.agent)} {_words(line.text)}" for line in priced[-MOST_ROWS:]]
    ways_out = _ways_out(run, verdict)
    return [*lines, "", *ways_out, ""] if ways_out else [*lines, ""]


def _capacity_name(agent: str | None) -> str:
    return code(agent) if agent is not None else "all classes:"


def _table(verdict: Verdict) -> list[str]:
    rows = [row for result in summary.ordered_classes(verdict) for row in facts.metric_rows(result)]
    if not rows:
        return []
    lines = ["| agent class | metric | base | run | change | limit | |", "|---|---|--:|--:|--:|--:|---|"]
    for agent, metric, base, value, change, limit, state in rows[:MOST_ROWS]:
        shown = f"**{value}**" if state == "OVER" else value
        cells = (code(agent), code(metric), base, shown, change, limit, _STATES.get(state, state))
        lines.append("| " + " | ".join(cells) + " |")
    if len(rows) > MOST_ROWS:
        lines += ["", f"{counted(len(rows) - MOST_ROWS, 'more row')} in {REPORT}."]
    return [*lines, ""]


def _ways_out(run: Run, verdict: Verdict) -> list[str]:
    """Mend it or accept it; where nothing was measured there is one way only."""
    steps = summary.next_steps(run, verdict)
    if verdict.outcome == "within":
        return [] if steps == ("nothing to do",) else [f"Next: {code(steps[0])}"]
    if verdict.verdict in ("regressed", "inconclusive") and "accept" in steps[0]:
        back = "**Either** bring it back under its limit"
        return [
            f"{back}, **or** accept the growth: {code(steps[0])}, commit `baselines/`, and have it reviewed.",
            *(f"Or: {code(step)}" for step in steps[1:] if summary.joined_by(step) == "or"),
        ]
    if verdict.outcome == "waived":
        return [f"A waiver is in force and runs out. Before it does: {code(steps[0])}"]
    return [f"Next: {code(steps[0])}", *(f"{summary.joined_by(step).title()}: {code(step)}" for step in steps[1:])]


# --- details ---------------------------------------------------------------------------------------------------------


def _details(run: Run, verdict: Verdict) -> list[tuple[str, list[str]]]:
    """Folded sections, most telling first: a title of our own words, and lines that each stand alone."""
    sections: list[tuple[str, list[str]]] = []
    groups = summary.stale_groups(run, verdict)
    if groups:
        lines = []
        for group in groups:
            lines.append(f"- {counted(len(group.tasks), 'task')} of {code(group.where)}: {_ids(group.tasks)}")
            lines += [f"  - {code(change)}" for change in group.changes]
        sections.append((counted(len(groups), "kind") + " of change since the recordings", lines))
    missing = [result for result in summary.ordered_classes(verdict) if result.missing]
    if missing:
        count = sum(len(result.missing) for result in missing)
        lines = [f"- {code(result.agent)}: {_ids(result.missing, 200)}" for result in missing]
        sections.append((f"{counted(count, 'task')} without a completed run", lines))
    for notices, noun in ((False, "problem"), (True, "notice")):
        problems = summary.problem_groups(run, verdict, notices=notices)
        if problems:
            lines = [
                "- "
                + (code(group.where) + " " if group.where else "")
                + code(f"{summary.one_line(group.text)} [{group.slug}]")
                for group in problems
            ]
            sections.append((counted(len(problems), noun), lines))
    entries = facts.could_be_ignored(run)
    if entries:
        lines = [f"- {code(summary.toml_text(entry))}" for entry in dict.fromkeys((*run.volatile, *entries))]
        sections.append(("What volatile in budget.toml could ignore", lines))
    ignored = [f"- {code(text)}" for text in facts.ignored_texts(run)]
    if ignored:
        sections.append(("What was ignored in requests", ignored))
    measured = [
        f"- {code(result.agent)} {_words(text)}"
        for result in summary.ordered_classes(verdict)
        for text in facts.class_texts(run, result)[1:]
    ]
    if measured:
        sections.append(("What was measured", measured))
    grown = [delta for result in summary.ordered_classes(verdict) for delta in facts.growth(result)]
    if grown:
        lines = [
            f"- {code(delta.task)} fanout {summary.means(delta.fanout_base, delta.fanout_run)},"
            f" tokens {summary.means(delta.tokens_base, delta.tokens_run)}".replace(" -> ", " → ")
            for delta in grown
        ]
        sections.append((f"What grew: {counted(len(grown), 'task')}", lines))
    why = []
    for explanation in verdict.explanations:
        from pytest_fanout.report.why import short_lines  # not for a run that passes

        lines = short_lines(explanation, MOST_FINDINGS)
        why += [f"- {code(explanation.agent)} {code(line)}" for line in lines]
    if why:
        sections.append(("Why it moved", why))
    sites = facts.told_sites(verdict)
    if sites:
        sections.append(
            (counted(len(sites), "call site") + " moved", [f"- {code(facts.site_text(d, sites))}" for d in sites])
        )
    assumptions = [
        f"- {code(item.agent)} {code(text)}"
        for item in verdict.projections
        for text in (f"GPU profile {item.profile}", *item.assumptions)
    ]
    told = [f"- {code(text)}" for text in capacity.details(verdict)]
    if told:
        sections.append(("Capacity: ratio, percentiles, cliffs, money", told))
    if assumptions:
        sections.append(("What the GPU figures stand on", assumptions))
    return [(title, _capped(lines)) for title, lines in sections]


def _capped(lines: list[str]) -> list[str]:
    if len(lines) <= MOST_ROWS:
        return lines
    return [*lines[:MOST_ROWS], f"- {len(lines) - MOST_ROWS:,} more in {REPORT}"]


def _ids(tasks: tuple[str, ...], most: int = 10) -> str:
    more = len(tasks) - most
    return ", ".join(map(code, tasks[:most])) + (f" and {more:,} more" if more > 0 else "")


def _fitted(sections: list[tuple[str, list[str]]], room: int) -> str:
    """As many lines as fit, every section that is begun also closed."""
    cut_note = f"The rest is in {REPORT}.\n\n"
    room -= len(cut_note)
    text = ""
    for title, lines in sections:
        opening, closing = f"<details><summary>{title}</summary>\n\n", "\n</details>\n\n"
        room -= len((opening + closing).encode())
        kept = []
        for line in lines:
            room -= len(line.encode()) + 1
            if room < 0:
                break
            kept.append(line + "\n")
        if kept:
            text += opening + "".join(kept) + closing
        if len(kept) < len(lines):
            return text + cut_note
    return text


def _foot(run: Run, verdict: Verdict) -> str:
    base, head = verdict.base, verdict.head
    base_text = (
        f"{code(base.rev[:12])} ({code(base.source)})" if base.rev else code(base.problem or base.source or "none")
    )
    head_text = code(head.rev[:12]) if head.rev else "no commit"
    measured = "; ".join(map(_words, facts.session_texts(run, verdict)))
    return f"<sub>base {base_text} → head {head_text}; {measured}</sub>\n"
