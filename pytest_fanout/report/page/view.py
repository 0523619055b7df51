"""The page before it is written: the first screen, then classes worst first, their cost, and how it was measured."""

from __future__ import annotations

from pytest_fanout.capacity.figures import counted
from pytest_fanout.records import ClassResult, MetricResult, Past, Run, Verdict
from pytest_fanout.report import facts, summary, why
from pytest_fanout.report.page.data import data_of
from pytest_fanout.report.page.of_capacity import capacity_part
from pytest_fanout.report.page.of_class import DRAWN, TONES, class_part, without_mend
from pytest_fanout.report.page.parts import Figure, Hero, PagePart, Step, Table
from pytest_fanout.report.summary import number

_MOST_OPEN = 3  # classes within budget that are shown unfolded
_LATER = ", once accepted"  # stands beside a command, and is none
_COMMANDS = ("pytest ", "fanout-", "git ")


def page_part(run: Run, verdict: Verdict, past: Past) -> PagePart:
    """Everything that stands on the page."""
    classes = summary.ordered_classes(verdict)
    top = hero(run, verdict)
    data = data_of(run, verdict, past)
    parts = tuple(
        class_part(
            f"c{at}", run, verdict, result, past, data, is_open=result.outcome != "within" or len(classes) <= _MOST_OPEN
        )
        for at, result in enumerate(classes, 1)
    )
    return PagePart(
        title=f"fanout: {top.words}" + (f", {top.agent}" if top.agent else ""),
        hero=top,
        commits=_commits(run, verdict),
        overview=_overview(verdict) if len(classes) > 1 else None,
        problems=tuple(_problems(run, verdict)),
        is_measured=verdict.outcome != "not_measured",
        classes=parts,
        capacity=capacity_part(verdict),
        notices=tuple(
            f"{group.where}: {text}" if group.where else text
            for group in summary.problem_groups(run, verdict, notices=True)
            for text in [f"{summary.one_line(group.text)} [{group.slug}]"]
        ),
        measured=(*facts.session_texts(run, verdict), *facts.ignored_texts(run)),
        data=data.text(),
    )


def hero(run: Run, verdict: Verdict) -> Hero:
    """The first screen. Green is what the required check would let pass, and nothing else."""
    words, _, reason = summary.headline(run, verdict).partition(": ")
    classes = [result for result in summary.ordered_classes(verdict) if result.verdict == verdict.verdict]
    focus = classes[0] if classes else None
    caveats = _caveats(run, verdict)
    tone = TONES[verdict.outcome]
    if verdict.verdict == "shard" or (tone == "good" and caveats):
        tone = "warn"
    return Hero(
        tone=tone,
        words=summary.OUTCOME_WORDS[verdict.outcome],
        code=words.partition(" (")[2].removesuffix(")"),
        reason=without_mend(reason),
        agent=focus.agent if focus else "",
        figures=tuple(_figures(focus)) if focus and verdict.outcome != "not_measured" else (),
        why=tuple(_why(verdict, focus)) if focus else (),
        cost=tuple(_cost(verdict, focus)),
        steps=tuple(_steps(run, verdict)),
        caveats=tuple(caveats),
    )


def _caveats(run: Run, verdict: Verdict) -> list[str]:
    """What keeps a green verdict from being the last word."""
    texts = []
    if run.session.pytest_exit and verdict.outcome in ("within", "waived"):
        texts.append(f"pytest itself ended with exit {run.session.pytest_exit}, so that the check cannot pass.")
    if not verdict.base.is_gate:
        texts.append("Not a gate result: there is no other commit to compare with.")
    if run.session.partial:
        texts.append("A part of the tasks ran: nothing can be accepted from it.")
    return texts


def _figures(result: ClassResult) -> list[Figure]:
    """The two limits that say most: those that are exceeded first, else calls and tokens."""
    gated = [metric for metric in result.metrics if metric.gated and metric.scope == "all"]
    order = {name: at for at, name in enumerate(DRAWN)}

    def rank(metric: MetricResult) -> tuple[bool, int, float]:
        return not metric.over, order.get(metric.name.partition(".")[0], len(order)), -summary.nearness(metric)

    return [
        Figure(
            metric.name,
            DRAWN.get(metric.name.partition(".")[0], ""),
            number(metric.base) if metric.base is not None else "",
            number(metric.run),
            "" if metric.base in (None, metric.run) else summary.change(metric.base, metric.run),
            number(metric.limit) if metric.limit is not None else "",
            metric.over,
        )
        for metric in sorted(gated, key=rank)[:2]
    ]


def _why(verdict: Verdict, focus: ClassResult) -> list[str]:
    for explanation in verdict.explanations:
        if explanation.agent == focus.agent:
            return why.short_lines(explanation, 2)
    told = facts.told_sites(verdict)
    return [facts.site_text(delta, told) for delta in told if delta.agent == focus.agent][:2]


def _steps(run: Run, verdict: Verdict) -> list[Step]:
    """Of a growth the first way out is to undo it: accepting is the other one."""
    told = [step for step in summary.next_steps(run, verdict) if step != "nothing to do"]
    steps = []
    if told and verdict.verdict in ("regressed", "inconclusive") and "accept" in told[0]:
        steps.append(Step("Next", "bring it back under its limit", False))
    for step in told:
        word = summary.joined_by(step).title() if steps else "Next"
        command, later, _ = step.partition(_LATER)
        steps.append(Step(word + later, command, step.startswith(_COMMANDS)))
    return steps


def _cost(verdict: Verdict, focus: ClassResult | None) -> list[str]:
    lines = summary.capacity(verdict) if verdict.classes else []
    mine = [line.text for line in lines if focus is not None and line.agent == focus.agent]
    whole = [f"all classes: {line.text}" for line in lines if line.agent is None]
    return [*mine, *(whole if len(lines) > 2 or not mine else [])]


def _commits(run: Run, verdict: Verdict) -> tuple[tuple[str, str], ...]:
    base, head = verdict.base, verdict.head
    after = (head.rev[:12] if head.rev else "no commit") + (" with uncommitted changes" if head.dirty else "")
    before = f"{base.rev[:12]} ({base.source})" if base.rev else base.problem or base.source or "none"
    return (("base", before), ("head", after), ("mode", run.mode))


def _overview(verdict: Verdict) -> Table:
    """One row a class: its verdict, calls, tokens and GPUs."""
    gpus = {line.agent: line.text for line in summary.capacity(verdict)}
    rows, marked = [], set()
    for at, result in enumerate(summary.ordered_classes(verdict)):
        metrics = {metric.name: metric for metric in result.metrics if metric.scope == "all"}
        cells = []
        for name in DRAWN:
            metric = metrics.get(f"{name}.p95")
            cells.append("-" if metric is None else summary.moved(metric.base, metric.run))
            cells.append("-" if metric is None or metric.limit is None else number(metric.limit))
        rows.append(
            (
                result.agent,
                f"{summary.OUTCOME_WORDS[result.outcome]} ({result.verdict})",
                *cells,
                gpus.get(result.agent, "-").partition("; ")[0],
            )
        )
        if result.outcome != "within":
            marked.add(at)
    good = sum(result.outcome == "within" for result in verdict.classes)
    caption = f"{good:,} of {counted(len(verdict.classes), 'agent class', 'agent classes')} within budget"
    headers = ("class", "verdict", "fanout p95", "limit", "tokens p95", "limit", "GPUs")
    return Table(caption, headers, tuple(rows), "/report", words=2, marked=frozenset(marked))


def _problems(run: Run, verdict: Verdict) -> list[str]:
    """What stands in the way, each said once."""
    texts = []
    for group in summary.stale_groups(run, verdict):
        tasks = f"{counted(len(group.tasks), 'task')} of {group.where}: {summary.listed(group.tasks)}"
        texts.append("; ".join((f"stale: {tasks}", *group.changes)))
    for result in summary.ordered_classes(verdict):
        if result.missing:
            count = counted(len(result.missing), "task")
            listed = summary.listed(result.missing)
            texts.append(f"missing: {count} of {result.agent} without a completed run: {listed}")
    for problem in summary.problem_groups(run, verdict, notices=False):
        where = f"{problem.where}: " if problem.where else ""
        texts.append(f"{problem.verdict}: {where}{summary.one_line(problem.text)} [{problem.slug}]")
    return texts
