"""What ``fanout-gateway`` says at its end: a few lines and a table for people, one document for machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pytest_fanout.capacity.figures import counted, number
from pytest_fanout.records import Caps, ModelCall, Problem, TaskRun
from pytest_fanout.report.printable import escape

SCHEMA: Final = "pytest-fanout/gateway-report/1"
NOTHING: Final = (
    "counted no model call: does the command take its base URLs and keys from the environment? (docs/gateway.md)"
)
_HEADERS: Final = ("task", "model", "calls", "attempts", "input", "cached", "output", "tool calls")
_TOKENS: Final = ("input_tokens", "cached_input_tokens", "output_tokens")


@dataclass(slots=True)
class ModelUse:
    """What one task asked of one model. Tokens are None where an answer did not say."""

    model: str
    calls: int = 0
    attempts: int = 0
    tool_calls: int = 0
    tokens: dict[str, int | None] = field(default_factory=lambda: dict.fromkeys(_TOKENS, 0))


def uses_of(calls: Iterable[ModelCall]) -> list[ModelUse]:
    """By the model that served, the one that was asked for where no answer says it; in order of their names."""
    found: dict[str, ModelUse] = {}
    for call in calls:
        name = call.last.model_served or call.last.model_requested or "unknown"
        use = found.setdefault(name, ModelUse(name))
        use.calls += call.reached_model
        use.attempts += len(call.attempts)
        use.tool_calls += len(call.last.tool_calls) if call.reached_model else 0
        for attempt in call.attempts:
            if attempt.usage_source == "none":
                continue
            for part in _TOKENS:
                known, value = use.tokens[part], getattr(attempt, part)
                use.tokens[part] = None if known is None or value is None else known + value
    return [found[name] for name in sorted(found)]


def text(runs: Sequence[TaskRun], problems: Sequence[Problem], caps: Caps) -> str:
    """The summary for a terminal; nothing counted is said in so many words."""
    lines = [f"{_headline(run, len(runs) > 1)}{_capped(run, caps)}" for run in runs]
    rows = [
        [escape(run.task), escape(use.model), *map(number, (use.calls, use.attempts)),
         *(number(use.tokens[part]) for part in _TOKENS), number(use.tool_calls)]
        for run in runs for use in uses_of(run.calls)
    ]  # fmt: skip
    if rows:
        from tabulate import tabulate

        first = 0 if len(runs) > 1 else 1  # one task needs no column
        align = ("left", "left", *("right" for _ in _HEADERS[2:]))[first:]
        shown = [row[first:] for row in rows]
        lines.append(tabulate(shown, _HEADERS[first:], tablefmt="simple", colalign=align, disable_numparse=True))
    for problem in (*(problem for run in runs for problem in run.problems), *problems):
        lines.append(f"{problem.verdict}: {escape(_on_one_line(problem.text))} [{problem.slug}]")
    return "\n".join(lines)


def _headline(run: TaskRun, named: bool) -> str:
    who = f"{escape(run.task)}: " if named else ""
    samples = run.samples
    if not samples.get("attempts"):
        return f"fanout-gateway: {who}{NOTHING}" + (f" {counted(run.other, 'other request')}" if run.other else "")
    tokens = (samples.get("input_tokens"), samples.get("output_tokens"))
    parts = [
        f"{counted(samples.get('fanout') or 0, 'model call')} in {counted(samples.get('attempts') or 0, 'attempt')}",
        counted(samples.get("tool_calls") or 0, "tool call"),
        "tokens unknown"
        if tokens[0] is None or tokens[1] is None
        else f"{number(sum(filter(None, tokens)))} tokens ({number(tokens[0])} in, {number(tokens[1])} out)",
        counted(run.other, "other request"),
    ]
    if samples.get("spawn_depth"):
        parts.append(f"spawn depth {samples['spawn_depth']}")
    return f"fanout-gateway: {who}{', '.join(parts)}"


def _on_one_line(text: str) -> str:
    """Its lines, parted by semicolons where they do not end in a mark of their own."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    parts = [line if line[-1] in ".,;:" else f"{line};" for line in lines[:-1]]
    return " ".join((*parts, *lines[-1:]))


def _capped(run: TaskRun, caps: Caps) -> str:
    return f"; stopped at its cap {run.capped} = {getattr(caps, run.capped)}" if run.capped else ""


def document(
    runs: Sequence[TaskRun],
    problems: Sequence[Problem],
    *,
    command: str,
    exit_code: int | None,
    late: int,
    unattributed: int,
    version: str,
) -> dict[str, Any]:
    """Schema ``pytest-fanout/gateway-report/1``. What is not known is null, never 0."""
    return {
        "schema": SCHEMA,
        "tool": f"pytest-fanout {version}",
        "command": command,
        "exit": exit_code,
        "late": late,
        "unattributed": unattributed,
        "problems": [_problem(problem) for problem in problems],
        "tasks": [_task(run) for run in runs],
    }


def _task(run: TaskRun) -> dict[str, Any]:
    return {
        "task": run.task,
        "status": run.status,
        "capped": run.capped,
        "begun_at": run.begun_at,
        "samples": dict(run.samples),
        "models": [
            {
                "model": use.model,
                "calls": use.calls,
                "attempts": use.attempts,
                "tool_calls": use.tool_calls,
                **use.tokens,
            }
            for use in uses_of(run.calls)
        ],
        "aside": dict(run.aside),
        "other": run.other,
        "unclassified": run.unclassified,
        "unknown_usage": run.unknown_usage,
        "hosts": list(run.hosts),
        "problems": [_problem(problem) for problem in run.problems],
    }


def _problem(problem: Problem) -> dict[str, str]:
    return {"slug": problem.slug, "verdict": problem.verdict, "text": problem.text}
