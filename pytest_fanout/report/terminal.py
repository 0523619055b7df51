"""The report on a terminal: outcome first, evidence in the middle, the next command last; never wider than asked."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pytest_fanout.capacity.figures import counted
from pytest_fanout.records import ClassResult, Run, Verdict
from pytest_fanout.report import capacity, facts, summary
from pytest_fanout.report.printable import escape, width, wrap

LABEL = 10  # columns of the label at the left
MOST_PROBLEMS = 10
MOST_TASKS = 5
MOST_SITES = 6
MOST_FINDINGS = 2  # of a class
MOST_CHANGES = 6
MOST_ID = 60  # characters of a task id in running text
MOST_CHARACTERS = 1_000  # of one paragraph
_COLOURS = {"within": "32", "waived": "33", "over": "31", "not_measured": "31"}


def render(
    run: Run, verdict: Verdict, *, width: int = 80, ascii_only: bool = False, color: bool = False, page_at: str = ""
) -> str:
    """The whole report, lines of at most ``width`` columns (40 at least), without a final newline.

    Everything that came from outside (ids, prompts, model text) is escaped. ``ascii_only``: for consoles that cannot
    encode the rest. ``color`` paints the first line and the exceeded rows and changes no text. ``page_at``: where the
    HTML page stands.
    """
    page = _Page(max(width, 40), ascii_only)
    page.text(summary.headline(run, verdict), indent=2)
    first = len(page.lines)
    _commits(page, verdict)
    _table(page, verdict)
    for result in summary.ordered_classes(verdict):
        _class_facts(page, run, result)
    _stale(page, run, verdict)
    _missing(page, verdict)
    _problems(page, run, verdict, notices=False)
    _ignored(page, run)
    _grew(page, verdict)
    _sites(page, verdict)
    _capacity(page, verdict)
    _problems(page, run, verdict, notices=True)
    _session(page, run, verdict)
    if page_at:
        page.labelled("page", page_at)
    _next(page, run, verdict)
    lines = page.lines
    if color:
        colour = _COLOURS["waived" if verdict.verdict == "shard" else verdict.outcome]
        lines = [_painted(line, index < first, colour) for index, line in enumerate(lines)]
    return "\n".join(lines)


def _painted(line: str, is_first: bool, colour: str) -> str:
    if is_first:
        return f"\x1b[1;{colour}m{line}\x1b[0m"
    return f"\x1b[31m{line}\x1b[0m" if line.endswith("  OVER") else line


class _Page:
    """Lines under construction; the one place where text is escaped, wrapped and degraded."""

    def __init__(self, columns: int, ascii_only: bool) -> None:
        self.columns = columns
        self.ascii_only = ascii_only
        self.lines: list[str] = []

    def safe(self, text: str) -> str:
        return escape(text, ascii_only=self.ascii_only)

    def blank(self) -> None:
        self.lines.append("")

    def text(self, text: str, *, indent: int = 0) -> None:
        """A paragraph whose lines after the first are indented."""
        start = ""
        for line in wrap(self.safe(text), self.columns - indent):
            self.lines.append(_joined(start, line))
            start = " " * indent

    def labelled(self, label: str, text: str, *, indent: int = 0, hang: int = 2) -> None:
        """``label`` in the first columns, the text beside it, what is wrapped hanging ``hang`` further."""
        start = f"{label:<{LABEL}}" + " " * indent
        safe = self.safe(summary.shortened(text, MOST_CHARACTERS))
        for line in wrap(safe, self.columns - LABEL - indent - hang):
            self.lines.append(_joined(start, line))
            start = " " * (LABEL + indent + hang)

    def all_labelled(self, label: str, texts: Iterable[str]) -> None:
        for text in texts:
            self.labelled(label, text)
            label = ""


def _joined(start: str, line: str) -> str:
    """A build log runs a line that begins with two colons as a command: a bar stands before such text."""
    if line.startswith("::") and not start.strip():
        start = start[:-1] + "|"
    return start + line


# --- sections ------------------------------------------------------------------------------------------------------


def _commits(page: _Page, verdict: Verdict) -> None:
    base, head = verdict.base, verdict.head
    text = f"{base.rev[:12]} from {base.source}" if base.rev else f"none ({base.problem or base.source or 'not known'})"
    head_text = (head.rev[:12] if head.rev else "no commit") + (" with uncommitted changes" if head.dirty else "")
    page.labelled("base", f"{text}; head {head_text}")
    if not base.is_gate:
        page.labelled("", "not a gate result: there is no other commit to compare with")


def _table(page: _Page, verdict: Verdict) -> None:
    from tabulate import tabulate

    rows: list[list[str]] = []
    for result in summary.ordered_classes(verdict):
        for row in facts.metric_rows(result):
            # tabulate pads by characters, so cells are ASCII whatever the console takes
            rows.append([escape(cell, ascii_only=True) for cell in row])
    if not rows:
        return
    page.blank()
    for drop in ((), ("change",)):
        keep = [index for index, header in enumerate(facts.HEADERS) if header not in drop]
        table = tabulate(
            [[row[index] for index in keep] for row in rows],
            headers=[facts.HEADERS[index] for index in keep],
            tablefmt="simple",
            disable_numparse=True,
            colalign=["left" if facts.HEADERS[index] in ("class", "metric", "state") else "right" for index in keep],
        )
        lines = [line.rstrip() for line in table.split("\n")]
        if all(width(line) <= page.columns for line in lines):
            page.lines += lines
            break
    else:
        for agent, name, base, value, change, limit, word in rows:
            page.text(f"{agent} {name}: base {base}, run {value}, change {change}, limit {limit}  {word}", indent=2)
    page.blank()


def _class_facts(page: _Page, run: Run, result: ClassResult) -> None:
    label = result.agent
    if len(label) >= LABEL:
        page.text(label, indent=2)
        label = ""
    page.all_labelled(label, facts.class_texts(run, result))


def _stale(page: _Page, run: Run, verdict: Verdict) -> None:
    groups = summary.stale_groups(run, verdict)
    label = "stale"
    for group in groups[:MOST_PROBLEMS]:
        ids = summary.listed(group.tasks)
        page.labelled(label, f"{counted(len(group.tasks), 'task')} of {group.where}: {ids}")
        label = ""
        for change in group.changes[:MOST_CHANGES]:
            page.labelled("", change, indent=2)
        if len(group.changes) > MOST_CHANGES:
            page.labelled("", f"{counted(len(group.changes) - MOST_CHANGES, 'more change')} in the report", indent=2)
    if len(groups) > MOST_PROBLEMS:
        page.labelled("", f"{counted(len(groups) - MOST_PROBLEMS, 'more kind')} of change in the report")


def _missing(page: _Page, verdict: Verdict) -> None:
    page.all_labelled(
        "missing",
        (
            f"{counted(len(result.missing), 'task')} of {result.agent} without a completed run: "
            + summary.listed(result.missing)
            for result in summary.ordered_classes(verdict)
            if result.missing
        ),
    )


def _problems(page: _Page, run: Run, verdict: Verdict, *, notices: bool) -> None:
    groups = summary.problem_groups(run, verdict, notices=notices)
    texts = []
    for group in groups[:MOST_PROBLEMS]:
        code = "" if notices else f"{group.verdict}: "
        where = f"{group.where}: " if group.where else ""
        texts.append(f"{code}{where}{summary.one_line(group.text)} [{group.slug}]")
    if len(groups) > MOST_PROBLEMS:
        texts.append(f"{len(groups) - MOST_PROBLEMS:,} more in the report")
    page.all_labelled("notice" if notices else "problem" if len(groups) == 1 else "problems", texts)


def _ignored(page: _Page, run: Run) -> None:
    page.all_labelled("ignored", facts.ignored_texts(run))
    entries = facts.could_be_ignored(run)
    if not entries:
        return
    # one entry a line, so that none is broken where it need not be: it is there to be copied
    page.labelled("to ignore", "what has no bearing on the answers, in [measure] of baselines/budget.toml:")
    page.labelled("", "volatile = [", indent=2)
    for entry in dict.fromkeys((*run.volatile, *entries)):
        page.labelled("", f"{summary.toml_text(entry)},", indent=4, hang=0)
    page.labelled("", "]", indent=2)


def _grew(page: _Page, verdict: Verdict) -> None:
    texts = []
    for result in summary.ordered_classes(verdict):
        grown = facts.growth(result)
        for delta in grown[:MOST_TASKS]:
            fanout = summary.means(delta.fanout_base, delta.fanout_run)
            tokens = summary.means(delta.tokens_base, delta.tokens_run)
            texts.append(f"{summary.shortened(delta.task, MOST_ID)}  fanout {fanout}, tokens {tokens}")
        if len(grown) > MOST_TASKS:
            texts.append(f"{len(grown) - MOST_TASKS:,} more of {result.agent} in the report")
    page.all_labelled("grew most", texts)


def _sites(page: _Page, verdict: Verdict) -> None:
    for explanation in verdict.explanations:
        from pytest_fanout.report.why import headline, short_lines  # not for a run that passes

        if lines := short_lines(explanation, MOST_FINDINGS):
            page.labelled("why", headline(explanation))
            for line in lines:
                page.labelled("", line, indent=2)
            page.labelled("", f"all of it: fanout-baseline why --agent {explanation.agent}", indent=2)
    told = facts.told_sites(verdict)
    texts = [facts.site_text(delta, told) for delta in told[:MOST_SITES]]
    if len(told) > MOST_SITES:
        texts.append(f"{len(told) - MOST_SITES:,} more in the report")
    page.all_labelled("sites", texts)


def _capacity(page: _Page, verdict: Verdict) -> None:
    texts = [f"{line.agent or 'all classes:'} {line.text}" for line in summary.capacity(verdict)]
    texts += capacity.details(verdict)
    for profile in dict.fromkeys(projection.profile for projection in verdict.projections):
        texts.append(f"GPU profile {profile}")
    assumptions = {text for projection in verdict.projections for text in projection.assumptions}
    if assumptions:
        texts.append(f"{counted(len(assumptions), 'assumption')} behind it, in the report")
    page.all_labelled("capacity", texts)


def _session(page: _Page, run: Run, verdict: Verdict) -> None:
    page.all_labelled("run", facts.session_texts(run, verdict))


def _next(page: _Page, run: Run, verdict: Verdict) -> None:
    first, *others = summary.next_steps(run, verdict)
    for word in ("or", "then"):
        page.all_labelled(word, (step for step in others if summary.joined_by(step) == word))
    page.blank()
    start = f"{'next':<{LABEL}}"
    if not first.startswith(("pytest ", "fanout-", "git ")):
        page.labelled("next", first, hang=0)
        return
    # a command that is too long goes on behind a backslash, broken between its words only: it stays fit to copy
    lines = [""]
    for word in re.findall(r"""(?:"[^"]*"|'[^']*'|\S)+""", page.safe(first)):
        if lines[-1] and width(f"{lines[-1]} {word}") > page.columns - LABEL - 2:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    for line in [part for whole in lines for part in wrap(whole, page.columns - LABEL - 2)]:
        page.lines.append(_joined(start, line) + " \\")
        start = " " * LABEL
    page.lines[-1] = page.lines[-1].removesuffix(" \\")
