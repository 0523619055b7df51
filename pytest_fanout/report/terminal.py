"""The report on a terminal: outcome first, evidence in the middle, the next command last; never wider than asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_fanout.records import ClassResult, MetricResult, Run, SiteDelta, TaskDelta, TaskRun, Verdict
from pytest_fanout.report import summary
from pytest_fanout.report.printable import escape, width, wrap
from pytest_fanout.report.summary import number, plural

LABEL = 10  # columns of the label at the left
MOST_PROBLEMS = 10
MOST_TASKS = 5
MOST_SITES = 6
MOST_CHANGES = 6
MOST_ID = 60  # characters of a task id in running text
MOST_CHARACTERS = 1_000  # of one paragraph
CALM_ROWS = 3  # rows of a class that is within budget
_COLOURS = {"within": "32", "waived": "33", "over": "31", "not_measured": "31"}


def render(run: Run, verdict: Verdict, *, width: int = 80, ascii_only: bool = False, color: bool = False) -> str:
    """The whole report, lines of at most ``width`` columns (40 at least), without a final newline.

    Everything that came from outside (ids, prompts, model text) is escaped. ``ascii_only``: for consoles that cannot
    encode the rest. ``color`` paints the first line and the exceeded rows and changes no text.
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
    _grew(page, verdict)
    _sites(page, verdict)
    _capacity(page, verdict)
    _problems(page, run, verdict, notices=True)
    _session(page, run, verdict)
    _next(page, run, verdict)
    lines = page.lines
    if color:
        lines = [_painted(line, index < first, verdict.outcome) for index, line in enumerate(lines)]
    return "\n".join(lines)


def _painted(line: str, is_first: bool, outcome: str) -> str:
    if is_first:
        return f"\x1b[1;{_COLOURS[outcome]}m{line}\x1b[0m"
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
        """``label`` in the first columns, each line of the text beside it, what is wrapped hanging ``hang`` further."""
        start = f"{label:<{LABEL}}" + " " * indent
        for paragraph in summary.shortened(text, MOST_CHARACTERS).split("\n"):
            for line in wrap(self.safe(paragraph.strip()), self.columns - LABEL - indent - hang):
                self.lines.append(_joined(start, line))
                start = " " * (LABEL + indent + hang)
            start = " " * (LABEL + indent)

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


def state(result: ClassResult, metric: MetricResult) -> str:
    """The last column: what this row means for the verdict. Only a judged, known value is ever ``ok``."""
    if metric.over:
        if result.verdict == "approved" and metric.ceiling is not None:
            return "approved"
        return "waived" if result.verdict == "waived" else "OVER"
    if metric.run is None:
        return "unknown"
    return "-" if result.outcome == "not_measured" else "ok"


def shown_metrics(result: ClassResult) -> list[MetricResult]:
    """Gated metrics; of a class that passes only those nearest to their limit, in their own order."""
    gated = [metric for metric in result.metrics if metric.gated or metric.over]
    if result.verdict != "pass" or len(gated) <= CALM_ROWS:
        return gated
    nearest = sorted(range(len(gated)), key=lambda index: -summary.nearness(gated[index]))[:CALM_ROWS]
    return [gated[index] for index in sorted(nearest)]


HEADERS = ("class", "metric", "base", "run", "change", "limit", "state")


def metric_rows(result: ClassResult) -> list[tuple[str, ...]]:
    """Cells of HEADERS for each row that is shown, unescaped."""
    rows: list[tuple[str, ...]] = []
    for metric in shown_metrics(result):
        name = metric.name if metric.scope == "all" else f"{metric.name} ({metric.scope})"
        base = "-" if metric.base is None else number(metric.base)
        limit = "-" if metric.limit is None else number(metric.limit)
        moved = summary.change(metric.base, metric.run)
        rows.append((result.agent, name, base, number(metric.run), moved, limit, state(result, metric)))
    return rows


def _table(page: _Page, verdict: Verdict) -> None:
    from tabulate import tabulate

    rows: list[list[str]] = []
    for result in summary.ordered_classes(verdict):
        for row in metric_rows(result):
            # tabulate pads by characters, so cells are ASCII whatever the console takes
            rows.append([escape(cell, ascii_only=True) for cell in row])
    if not rows:
        return
    page.blank()
    for drop in ((), ("change",)):
        keep = [index for index, header in enumerate(HEADERS) if header not in drop]
        table = tabulate(
            [[row[index] for index in keep] for row in rows],
            headers=[HEADERS[index] for index in keep],
            tablefmt="simple",
            disable_numparse=True,
            colalign=["left" if HEADERS[index] in ("class", "metric", "state") else "right" for index in keep],
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
    """Which evidence stands behind the rows: tasks, trials, draw, quality, the largest trial of each metric."""
    trials = [trial for trial in run.tasks if trial.agent == result.agent]
    draw = {"same": "same draw", "new": "new draw", "mixed": "partly a new draw", "none": "no draw to compare"}[
        result.draw
    ]
    nth = max((trial.draw for trial in trials), default=1)
    facts = [
        f"{result.verdict}: {result.tasks_ran:,} of {plural(result.tasks_expected, 'task')}",
        plural(result.trials, "trial") + f", {draw}" + (f" (draw {nth})" if nth > 1 else ""),
    ]
    if result.pass_share[1]:
        quality = f"{result.pass_share[0]:,} of {result.pass_share[1]:,} trials passed"
        if result.pass_share_base[1]:
            quality += f" (base {result.pass_share_base[0]:,} of {result.pass_share_base[1]:,})"
        facts.append(quality)
    texts = ["; ".join(facts)]
    largest: dict[str, str] = {}
    for metric in shown_metrics(result):
        if metric.max is not None:
            where = f" in {metric.max_task}" if metric.max_task is not None else ""
            largest.setdefault(metric.name.partition(".")[0], f"{number(metric.max)}{where}")
    if largest:
        texts.append("max " + ", ".join(f"{name} {text}" for name, text in largest.items()))
    hidden = sum(metric.gated for metric in result.metrics) - len(shown_metrics(result))
    if hidden > 0:
        texts.append(f"{plural(hidden, 'more limit')} kept, in the report")
    ended = [f"{count:,} {status}" for status, count in _statuses(trials)]
    if ended:
        texts.append("trials that ended otherwise: " + ", ".join(ended))
    for word, tasks in (("new", result.new), ("removed", result.removed)):
        if tasks:
            texts.append(f"{plural(len(tasks), word + ' task')}: {summary.listed(tasks)}")
    if result.approval:
        texts.append(f"approval in force: {result.approval}")
    elif result.approval_why:
        texts.append(f"no approval covers it: {result.approval_why}")
    label = result.agent
    if len(label) >= LABEL:
        page.text(label, indent=2)
        label = ""
    page.all_labelled(label, texts)


def _statuses(trials: Sequence[TaskRun]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for trial in trials:
        if trial.status not in ("ok", "stale"):
            counts[trial.status] = counts.get(trial.status, 0) + 1
    return sorted(counts.items())


def _stale(page: _Page, run: Run, verdict: Verdict) -> None:
    groups = summary.stale_groups(run, verdict)
    label = "stale"
    for group in groups[:MOST_PROBLEMS]:
        ids = summary.listed(group.tasks)
        page.labelled(label, f"{plural(len(group.tasks), 'task')} of {group.agent}: {ids}")
        label = ""
        for change in group.changes[:MOST_CHANGES]:
            page.labelled("", change, indent=2)
        if len(group.changes) > MOST_CHANGES:
            page.labelled("", f"{plural(len(group.changes) - MOST_CHANGES, 'more change')} in the report", indent=2)
    if len(groups) > MOST_PROBLEMS:
        page.labelled("", f"{plural(len(groups) - MOST_PROBLEMS, 'more kind')} of change in the report")


def _missing(page: _Page, verdict: Verdict) -> None:
    page.all_labelled(
        "missing",
        (
            f"{plural(len(result.missing), 'task')} of {result.agent} without a completed run: "
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
        where = f"{group.where}: " if group.where and not group.text.startswith(f"{group.where}:") else ""
        texts.append(f"{code}{where}{group.text.strip()} [{group.slug}]")
    if len(groups) > MOST_PROBLEMS:
        texts.append(f"{len(groups) - MOST_PROBLEMS:,} more in the report")
    page.all_labelled("notice" if notices else "problem" if len(groups) == 1 else "problems", texts)


def growth(result: ClassResult) -> list[TaskDelta]:
    """The tasks whose mean fanout or tokens rose, in the order given."""

    def rose(base: Sequence[int | None], run: Sequence[int | None]) -> bool:
        before, after = summary.mean(base), summary.mean(run)
        return before is not None and after is not None and after > before

    return [
        delta
        for delta in result.top
        if rose(delta.fanout_base, delta.fanout_run) or rose(delta.tokens_base, delta.tokens_run)
    ]


def _grew(page: _Page, verdict: Verdict) -> None:
    texts = []
    for result in summary.ordered_classes(verdict):
        grown = growth(result)
        for delta in grown[:MOST_TASKS]:
            fanout = f"{summary.mean_text(delta.fanout_base)} -> {summary.mean_text(delta.fanout_run)}"
            tokens = f"{summary.mean_text(delta.tokens_base)} -> {summary.mean_text(delta.tokens_run)}"
            texts.append(f"{summary.shortened(delta.task, MOST_ID)}  fanout {fanout}, tokens {tokens}")
        if len(grown) > MOST_TASKS:
            texts.append(f"{len(grown) - MOST_TASKS:,} more of {result.agent} in the report")
    page.all_labelled("grew most", texts)


def site_text(delta: SiteDelta) -> str:
    """``new call site in research: "You verify…" (gpt-4o): 1.25 calls a trial``."""
    calls = f"{_hundredths(delta.calls_base)} -> {_hundredths(delta.calls_run)}"
    if delta.change == "new":
        calls = _hundredths(delta.calls_run)
    word = {"new": "new call site", "more": "more often", "gone": "gone"}.get(delta.change, delta.change)
    label = delta.site.label or "no system prompt"
    return f'{word} in {delta.agent}: "{label}" ({delta.site.model or delta.site.api}), {calls} calls a trial'


def _hundredths(value: int | None) -> str:
    return "unknown" if value is None else f"{value / 100:,.2f}".removesuffix("0").removesuffix(".0")


def told_sites(verdict: Verdict) -> list[SiteDelta]:
    """Call sites that are new, run more often, or are gone; what costs most first."""
    order = {"new": 0, "more": 1, "gone": 2}
    told = [delta for delta in verdict.sites if delta.change in order]
    return sorted(
        told,
        key=lambda delta: (
            order[delta.change],
            (delta.calls_base or 0) - (delta.calls_run or 0),
            delta.site.fingerprint,
        ),
    )


def _sites(page: _Page, verdict: Verdict) -> None:
    told = told_sites(verdict)
    texts = [site_text(delta) for delta in told[:MOST_SITES]]
    if len(told) > MOST_SITES:
        texts.append(f"{len(told) - MOST_SITES:,} more in the report")
    page.all_labelled("sites", texts)


def _capacity(page: _Page, verdict: Verdict) -> None:
    texts = [f"{line.agent or 'all classes:'} {line.text}" for line in summary.capacity(verdict)]
    for profile in dict.fromkeys(projection.profile for projection in verdict.projections):
        texts.append(f"indicative, GPU profile {profile}")
    assumptions = {text for projection in verdict.projections for text in projection.assumptions}
    if assumptions:
        texts.append(f"{plural(len(assumptions), 'assumption')} behind it, in the report")
    page.all_labelled("capacity", texts)


def session_texts(run: Run, verdict: Verdict) -> list[str]:
    """How it was measured: mode, trials, what did not run, what was counted beside the agents' calls."""
    facts, totals = run.session, run.totals
    tasks = len({(trial.agent, trial.task) for trial in run.tasks})
    texts = [f"{run.mode}: {plural(len(run.tasks), 'trial')} of {plural(tasks, 'task')}, {facts.expected:,} expected"]
    if facts.shard:
        texts.append(f"shard {facts.shard}: only the combined shards are judged")
    if facts.partial:
        texts.append(f"partial {tasks}/{facts.expected}: a selection left tasks out; nothing can be accepted from it")
    left = [
        f"{count:,} {word}" for word, count in (("deselected", facts.deselected), ("skipped", facts.skipped)) if count
    ]
    if left:
        texts.append("pytest items " + ", ".join(left))
    if facts.stopped:
        texts.append(f"ended early: {facts.stopped}")
    if facts.pytest_exit:
        texts.append(f"pytest itself ended with exit {facts.pytest_exit}")
    if not run.sealed:
        texts.append("API keys were not sealed: calls that bypass the count go unseen")
    counted = [plural(totals.calls, "model call"), plural(totals.attempts, "attempt"), plural(totals.tokens, "token")]
    beside = [
        f"{count:,} {word}"
        for word, count in (
            ("aside", totals.aside), ("late", totals.late), ("unattributed", totals.unattributed),
            ("unclassified", totals.unclassified), ("other", totals.other),
        )
        if count
    ]  # fmt: skip
    texts.append("counted " + ", ".join(counted) + (f"; {', '.join(beside)}" if beside else ""))
    return texts


def _session(page: _Page, run: Run, verdict: Verdict) -> None:
    page.all_labelled("run", session_texts(run, verdict))


def _next(page: _Page, run: Run, verdict: Verdict) -> None:
    first, *others = summary.next_steps(run, verdict)
    page.all_labelled("or", others)
    page.blank()
    text = page.safe(first)
    lines = list(wrap(text, page.columns - LABEL - 2))
    is_command = first.startswith(("pytest ", "fanout-", "git "))
    start = f"{'next':<{LABEL}}"
    for index, line in enumerate(lines):
        more = " \\" if is_command and index < len(lines) - 1 else ""
        page.lines.append(_joined(start, line) + more)
        start = " " * LABEL
