"""What every report says, in the same words: the deciding number, groups of stale tasks and problems, capacity."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_fanout.capacity.figures import counted
from pytest_fanout.capacity.figures import number as figure
from pytest_fanout.records import VERDICTS, ClassResult, MetricResult, Problem, Projection, Run, Verdict

OUTCOME_WORDS = {
    "within": "within budget",
    "over": "over budget",
    "not_measured": "not measured",
    "waived": "waived",
}


def number(value: int | None) -> str:
    """With thousands separators; what is not known says so and is never a zero."""
    return "unknown" if value is None else f"{value:,}"


def moved(base: int | None, run: int | None) -> str:
    """``7 -> 11``, or ``11`` where base has no value or the same one."""
    if base is None or base == run:
        return number(run)
    return f"{number(base)} -> {number(run)}"


def change(base: int | None, run: int | None) -> str:
    """Relative change in percent, with a decimal unless it is whole; never a rounded zero for something that moved."""
    if base is None or run is None:
        return "-"
    if base == run:
        return "0 %"
    if base == 0:
        return f"{run - base:+,}"
    percent = (run - base) * 100 / base
    if percent == int(percent):
        return f"{int(percent):+,} %"
    text = f"{percent:+,.1f}"
    return f"{percent:+.2g} %" if text in ("+0.0", "-0.0") else f"{text} %"


def mean(values: Sequence[int | None]) -> float | None:
    """Mean over trials; one unknown value makes it unknown."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def mean_text(values: Sequence[int | None]) -> str:
    """The mean with at most one decimal; ``unknown`` where a value is missing, ``-`` where there are none."""
    if not values:
        return "-"
    value = mean(values)
    return "unknown" if value is None else f"{value:,.1f}".removesuffix(".0")


def means(base: Sequence[int | None], run: Sequence[int | None]) -> str:
    return f"{mean_text(base)} -> {mean_text(run)}"


def shortened(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def listed(names: Iterable[str], most: int = 10) -> str:
    """``a, b, c and 4 more``; a name of more than 60 characters is shortened."""
    everything = list(names)
    more = len(everything) - most
    return ", ".join(shortened(name, 60) for name in everything[:most]) + (f" and {more:,} more" if more > 0 else "")


def toml_list(texts: Iterable[str]) -> str:
    """Texts as an array of TOML on one line, each once."""
    return f"[{', '.join(map(toml_text, dict.fromkeys(texts)))}]"


def toml_text(text: str) -> str:
    """A text of TOML: a literal one, in which nothing is escaped, where that can be."""
    return f"'{text}'" if "'" not in text and text.isprintable() else json.dumps(text)


def severity(verdict: str) -> int:
    """Place in the order worst first; an unknown code counts as invalid, never as something milder."""
    return VERDICTS.index(verdict) if verdict in VERDICTS else VERDICTS.index("invalid")


def ordered_classes(verdict: Verdict) -> list[ClassResult]:
    """Worst first, then by name."""
    return sorted(verdict.classes, key=lambda item: (severity(item.verdict), item.agent))


# --- the deciding number -------------------------------------------------------------------------------------------


def over_metrics(result: ClassResult) -> list[MetricResult]:
    return [metric for metric in result.metrics if metric.gated and metric.over]


def nearness(metric: MetricResult) -> float:
    """How much of its limit a metric uses; unknown values and missing limits last."""
    if metric.run is None or not metric.limit:
        return -1.0
    return metric.run / metric.limit


def metric_text(metric: MetricResult) -> str:
    text = f"{metric.name} {moved(metric.base, metric.run)}"
    return f"{text}, limit {number(metric.limit)}" if metric.limit is not None else text


def headline(run: Run, verdict: Verdict) -> str:
    """Outcome in words, verdict code: and the number that decided it. One line, not escaped."""
    partial = ""
    if run.session.partial:
        ran = len({(trial.agent, trial.task) for trial in run.tasks})
        expected = max(run.session.expected, _expected(run, verdict))
        # of marked tests that no anchor names, nobody knows how many were left out
        partial = f", partial {ran}/{expected}" if ran < expected else ", partial"
    return f"{OUTCOME_WORDS[verdict.outcome]} ({verdict.verdict}{partial}): {reason(run, verdict)}"


def _expected(run: Run, verdict: Verdict) -> int:
    """Tasks of all classes: those of the eval sets, and of the anchors where a class was judged."""
    judged = {result.agent: result.tasks_expected for result in verdict.classes}
    return sum(judged.get(agent, len(run.definitions.get(agent, ()))) for agent in {*judged, *run.definitions})


def reason(run: Run, verdict: Verdict) -> str:
    """What decided the verdict, with its number."""
    deciding = [result for result in ordered_classes(verdict) if result.verdict == verdict.verdict]
    run_wide = [problem for problem in verdict.problems if problem.verdict == verdict.verdict]
    if not deciding:
        if run_wide:
            return first_line(run_wide[0].text) + _more(len(run_wide) - 1, "problem")
        return "nothing was measured" if verdict.outcome != "within" else "nothing to judge"
    text = class_reason(run, verdict, deciding[0])
    others = len(deciding) - 1
    if verdict.verdict not in ("pass", "shard") and others:
        text += f"; {counted(others, 'more class', 'more classes')} alike"
    return text


def class_reason(run: Run, verdict: Verdict, result: ClassResult) -> str:
    """What decided the verdict on one class, with its number."""
    run_wide = [problem for problem in verdict.problems if problem.verdict == result.verdict]
    # growth that evidence found stands in a problem, with its size: the percentile itself may be within the limit
    agent, over = result.agent, [metric for metric in over_metrics(result) if metric.evidence is None]
    if result.verdict == "stale":
        if all(t.is_unrecorded for t in run.tasks if t.agent == agent and t.task in result.stale):
            return f"{counted(len(result.stale), 'task')} of {agent} {_has(len(result.stale))} yet"
        return f"{counted(len(result.stale), 'task')} of {agent} no longer {_fit(len(result.stale))}"
    if result.verdict == "incomplete" and result.missing:
        return f"{len(result.missing):,} of {counted(result.tasks_expected, 'task')} of {agent} did not run"
    if result.verdict == "no-baseline":
        return f"{agent} has no accepted baseline; {counted(result.tasks_ran, 'task')} ran"
    if result.verdict == "shard":
        return (
            f"shard {run.session.shard or '?'} ran {result.tasks_ran:,} of {counted(result.tasks_expected, 'task')}"
            f" of {agent}; only the combined shards are judged"
        )
    if result.verdict in ("regressed", "inconclusive", "waived", "approved") and over:
        text = f"{agent} {metric_text(over[0])}"
        if result.verdict == "approved" and over[0].ceiling is not None:
            text += f", approved up to {number(over[0].ceiling)}"
        return text + _more(len(over) - 1, "limit exceeded", "limits exceeded")
    own = [problem for problem in result.problems if problem.verdict == result.verdict] or run_wide
    if own:
        return f"{agent}: {first_line(own[0].text.removeprefix(f'{agent}: '))}" + _more(len(own) - 1, "problem")
    if result.verdict == "waived" and result.stale:
        return f"{counted(len(result.stale), 'task')} of {agent} no longer {_fit(len(result.stale))}"
    if result.verdict in ("pass", "approved"):
        gated = [metric for metric in result.metrics if metric.gated]
        if gated:
            return f"{agent} {metric_text(max(gated, key=nearness))}"
    return f"{agent}, {counted(result.tasks_ran, 'task')} ran"


def _has(count: int) -> str:
    return "has no recording" if count == 1 else "have no recordings"


def _fit(count: int) -> str:
    return "fits its recording" if count == 1 else "fit their recordings"


def _more(count: int, noun: str, many: str | None = None) -> str:
    return f"; {counted(count, 'more ' + noun, 'more ' + many if many else None)}" if count > 0 else ""


def first_line(text: str) -> str:
    """The first line as a sentence of its own: without a last clause that announces the lines below it."""
    line = text.strip().split("\n", 1)[0].strip()
    return line.rpartition("; ")[0] or line.rstrip(":") if line.endswith(":") else line


def one_line(text: str) -> str:
    """The lines of a message (what, mend, see) after one another, so that no text can forge a line of the report."""
    return "; ".join(filter(None, (line.strip() for line in text.split("\n"))))


# --- what stands in the way ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StaleGroup:
    """Tasks of one class whose requests differ from their recordings in the same way, told by the first of them."""

    agent: str
    changes: tuple[str, ...]
    tasks: tuple[str, ...]
    trials: int
    role: str = ""  # model or tool: whose request differs; empty where none is known
    calls: tuple[int, ...] = ()  # its number in the trials, each once

    @property
    def where(self) -> str:
        """``research, call 2``, ``research, calls 2 to 7``, ``research, request 3, a tool's``."""
        if not self.calls:
            return self.agent
        first, last = self.calls[0], self.calls[-1]
        numbers = f" {first}" if first == last else f"s {first} to {last}"
        return f"{self.agent}, " + (f"request{numbers}, a tool's" if self.role == "tool" else f"call{numbers}")


_Way = tuple[str, str, tuple[str, ...]]  # agent, role, what changed, as it groups


def stale_groups(run: Run, verdict: Verdict) -> list[StaleGroup]:
    """The same change said once, the most frequent first. A stale task without a note is a group of its own kind."""
    found: dict[_Way, dict[str, None]] = {}
    first: dict[_Way, tuple[str, ...]] = {}
    calls: dict[_Way, list[int]] = {}
    trials: Counter[_Way] = Counter()
    told: set[tuple[str, str]] = set()
    for trial in sorted(run.tasks, key=lambda trial: (trial.agent, trial.task, trial.trial)):
        note = trial.stale
        if note is None and trial.status != "stale":
            continue
        told.add((trial.agent, trial.task))
        if note is not None and note.changes:
            way, changes = (trial.agent, note.role, note.kinds or note.changes), note.changes
        elif trial.leftover or (note is not None and note.leftover):
            changes = ("asks for less than was recorded",)
            way = trial.agent, "", changes
        else:
            changes = ("what changed is not known",)
            way = trial.agent, "", changes
        found.setdefault(way, {})[trial.task] = None
        first.setdefault(way, changes)
        calls.setdefault(way, []).extend([note.call] if note is not None and way[1] else [])
        trials[way] += 1
    for result in verdict.classes:
        for task in result.stale:
            if (result.agent, task) not in told:
                way = result.agent, "", ("what changed is not known",)
                found.setdefault(way, {})[task] = None
                first.setdefault(way, way[2])
    groups = [
        StaleGroup(way[0], first[way], tuple(tasks), trials[way], way[1], tuple(sorted({*calls.get(way, ())})))
        for way, tasks in found.items()
    ]
    return sorted(groups, key=lambda group: (-len(group.tasks), group.agent, group.changes))


@dataclass(frozen=True, slots=True)
class ProblemGroup:
    """One problem, with the tasks that have it."""

    verdict: str
    slug: str
    text: str
    agent: str | None
    tasks: tuple[str, ...]

    @property
    def where(self) -> str:
        """``research refund``, ``research, 7 tasks``, ``research`` or nothing."""
        if len(self.tasks) == 1:
            return f"{self.agent or ''} {self.tasks[0]}".strip()
        return ", ".join(filter(None, (self.agent, counted(len(self.tasks), "task") if self.tasks else "")))


def problem_groups(run: Run, verdict: Verdict, *, notices: bool) -> list[ProblemGroup]:
    """Problems of run, classes and trials (or only the notices), each said once, worst first."""
    found: list[tuple[str | None, str | None, Problem]] = [
        (problem.agent, problem.task, problem) for problem in (*verdict.problems, *run.problems)
    ]
    for result in ordered_classes(verdict):
        found += [
            (problem.agent or result.agent, problem.task, problem) for problem in (*result.problems, *result.notices)
        ]
    for trial in run.tasks:
        found += [(problem.agent or trial.agent, problem.task or trial.task, problem) for problem in trial.problems]
    groups: dict[tuple[str, str, str, str | None], dict[str, None]] = {}
    for agent, task, problem in found:
        if (problem.verdict == "notice") == notices:
            text = problem.text.removeprefix(f"{agent}: ")  # stands before it wherever a group is told
            tasks = groups.setdefault((problem.verdict, problem.slug, text, agent), {})
            if task is not None:
                tasks[task] = None
    said = [ProblemGroup(code, slug, text, agent, tuple(tasks)) for (code, slug, text, agent), tasks in groups.items()]
    return said if notices else sorted(said, key=lambda group: severity(group.verdict))


# --- capacity ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CapacityLine:
    """GPUs of one class, or of all (``agent`` None)."""

    agent: str | None
    text: str


def _gpus(base: float | None, run: float | None, *, per_1000: bool) -> str:
    unit = "per 1,000 tasks/hour" if per_1000 else "at peak"
    if run is None:
        return f"GPUs {unit} unknown"
    show = figure
    noun = "GPU" if show(run) == "1" else "GPUs"
    if base is None:
        return f"{show(run)} {noun} {unit} (no base to compare with)"
    if show(base) == show(run):
        return f"{show(run)} {noun} {unit}, unchanged"
    return f"{show(base)} -> {show(run)} {noun} {unit}"


def _shown(projection: Projection) -> tuple[float | None, float | None]:
    """GPUs base and run: whole ones where demand is known, else the fraction, because rounding up would hide growth."""
    if projection.demand.per_1000:
        return projection.base.gpus if projection.base else None, projection.run.gpus
    return projection.gpus_base, projection.gpus_run


NO_GPUS = "no GPUs of our own: a provider serves the model"


def capacity(verdict: Verdict) -> list[CapacityLine]:
    """One line for each class and one for all; each holds the word GPU, also where nothing can be said."""
    by_agent = {projection.agent: projection for projection in verdict.projections}
    outcomes = {result.agent: result.outcome for result in verdict.classes}
    agents = sorted({*by_agent, *outcomes})
    lines = []
    for agent in agents:
        projection = by_agent.get(agent)
        if projection is None:
            why = ": not measured" if outcomes[agent] == "not_measured" else ""
            lines.append(CapacityLine(agent, f"GPUs not projected{why}"))
        else:
            base, run = _shown(projection)
            if projection.serves == "provider":
                text = NO_GPUS + _dollars(projection)
            else:
                text = _gpus(base, run, per_1000=projection.demand.per_1000) + _dollars(projection)
            lines.append(CapacityLine(agent, text))
    plan = verdict.fleet
    if plan is not None and plan.run.gpus is not None:
        # one fleet: whole replicas and spare ones once, not once a class
        of_all = _gpus(plan.base.gpus if plan.base else None, plan.run.gpus, per_1000=False)
        if sum(each.gpus_run or 0 for each in by_agent.values()) != plan.run.gpus:
            of_all += ", rounded up once for all"
    else:
        of_all = _capacity_of_all(agents, by_agent)
    lines.append(CapacityLine(None, of_all))
    return lines


def _dollars(projection: Projection) -> str:
    """What it costs where fleet.toml gives prices: the GPUs of a day, or 1,000 tasks by token prices."""
    said = ""
    for field, unit in (("usd_per_day", "a day of GPUs"), ("usd_per_1000_tasks", "per 1,000 tasks")):
        run = getattr(projection.run, field)
        base = getattr(projection.base, field) if projection.base else None
        if projection.serves == "provider":
            unit = unit.removesuffix(" of GPUs")
        if run is not None and not (field == "usd_per_day" and projection.demand.per_1000):
            now = figure(run)
            before = f"{figure(base)} -> " if base is not None and figure(base) != now else ""
            said += f"; {before}{now} USD {unit}"
    return said


def _capacity_of_all(agents: Sequence[str], by_agent: dict[str, Projection]) -> str:
    if not agents or len(by_agent) < len(agents):
        return (
            "GPUs not summed: not every class could be projected"
            if agents
            else "GPUs not projected: no class was judged"
        )
    if all(projection.serves == "provider" for projection in by_agent.values()):
        return NO_GPUS
    if len({projection.demand.per_1000 for projection in by_agent.values()}) > 1:
        return "GPUs not summed: demand is given for some classes only"
    shown = [_shown(by_agent[agent]) for agent in agents]
    runs = [run for _, run in shown if run is not None]
    bases = [base for base, _ in shown if base is not None]
    run = sum(runs) if len(runs) == len(shown) else None
    base = sum(bases) if len(bases) == len(shown) else None
    return _gpus(base, run, per_1000=by_agent[agents[0]].demand.per_1000)


# --- what to do ----------------------------------------------------------------------------------------------------


def joined_by(step: str) -> str:
    """How a step stands to the first one: ``then`` what follows it, ``or`` what may take its place."""
    return "then" if step.endswith(", once accepted") else "or"


def next_steps(run: Run, verdict: Verdict) -> tuple[str, ...]:
    """The gate's own advice, or what usually helps with this verdict; never empty."""
    if verdict.next:
        return verdict.next
    again = "pytest --fanout-budget" + (f" --fanout-mode={run.mode}" if run.mode != "replay" else "")
    if run.session.partial:
        return (again,)
    agents = [result.agent for result in ordered_classes(verdict) if result.verdict == verdict.verdict]
    accept = f'fanout-baseline accept{"".join(" --agent " + agent for agent in agents[:1])} --reason "..."'
    return {
        "integrity": (f"restore the file named above, then: {again}",),
        "no-base": ("git fetch --unshallow",),
        "invalid": (f"mend what is named above, then: {again}",),
        "incomplete": (again,),
        "stale": ("pytest --fanout-budget --fanout-mode=record",),
        "shard": ("fanout-baseline combine --report GLOB",),
        "approved": ("nothing to do",),
        "pass": ("nothing to do",),
    }.get(verdict.verdict, (accept,))
