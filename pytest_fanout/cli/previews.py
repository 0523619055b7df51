"""What accepting would write, for other programs and for pull requests: JSON and Markdown beside the plain text."""

from __future__ import annotations

import json
from typing import Any

from pytest_fanout.capacity.figures import number
from pytest_fanout.cli.console import CREEPING, change_lines, is_creeping, masker, metric_rows, what_of
from pytest_fanout.gate import Plan
from pytest_fanout.gate.plan import PlannedClass
from pytest_fanout.records import Approval, Change
from pytest_fanout.report.markdown import code


def plan_json(plan: Plan) -> str:
    """One object; unknown numbers are null."""
    document = {
        "base": {"rev": plan.base.rev, "source": plan.base.source},
        "verdict": plan.verdict.verdict,
        "classes": [_class(planned) for planned in plan.classes],
        "budget": [_approval(approval) for approval in plan.budget],
        "unchanged": list(plan.unchanged),
    }
    return json.dumps(_masked(document), indent=1, ensure_ascii=True)


def _class(planned: PlannedClass) -> dict[str, Any]:
    result = planned.result
    metrics = result.metrics if result is not None else ()
    return {
        "agent": planned.agent,
        "draw": planned.draw,
        "anchor": planned.anchor.digest if planned.anchor else None,
        "trials": dict(planned.endings),
        "provisional": planned.provisional,
        "metrics": [
            {"name": m.name, "scope": m.scope, "base": m.base, "run": m.run, "limit": m.limit, "over": m.over}
            for m in metrics
            if m.gated
        ],
        "changes": [_change(change) for change in planned.changes],
        "approval": _approval(planned.approval) if planned.approval else None,
        "removes": list(planned.superseded),
    }


def _approval(approval: Approval) -> dict[str, Any]:
    return {
        "path": approval.path,
        "subject": approval.subject,
        "from": approval.from_digest,
        "ceilings": dict(sorted(approval.ceilings.items())),
        "changes": [_change(change) for change in approval.changes],
        "reason": approval.reason,
    }


def _change(change: Change) -> dict[str, Any]:
    return {"what": change.what, "name": change.name, "scope": change.scope, "old": change.old, "new": change.new}


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return masker().text(value)
    if isinstance(value, dict):
        return {key: _masked(item) for key, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list) else value


def plan_markdown(plan: Plan) -> str:
    """A section to paste into a pull request; names from outside stand in code spans, where they do nothing."""
    lines = []
    results = [planned.result for planned in plan.classes if planned.result is not None]
    if results:
        headers, rows = metric_rows(results)
        lines += ["| " + " | ".join(headers) + " |", "|---|---|" + "--:|" * (len(headers) - 3) + "---|"]
        lines += [f"| {code(row[0])} | {code(row[1])} | " + " | ".join(row[2:]) + " |" for row in rows]
        lines.append("")
    for planned in plan.classes:
        draw = f" (draw {planned.draw})" if planned.draw > 1 else ""
        lines += [f"**{code(planned.agent)}{draw}**: {what_of(planned)}", ""]
        if is_creeping(planned):
            lines.append(f"- {CREEPING}")
        lines += [f"- {code(line)}" for line in change_lines(planned.changes)]
        if planned.approval is not None:
            lines += [
                f"- covered up to: {code(name)} {number(bound)}"
                for name, bound in sorted(planned.approval.ceilings.items())
            ]
        lines.append("")
    for approval in plan.budget:
        lines += [f"**{code(approval.subject + '.toml')}**: gets looser, and a reviewer has to approve that", ""]
        lines += [*(f"- {code(line)}" for line in change_lines(approval.changes)), ""]
    lines += [f"{code(agent)}: its committed anchor is this run already\n" for agent in plan.unchanged]
    return "\n".join(lines).rstrip("\n")
