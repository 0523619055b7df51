"""The results of a run of the matrix as JSON: what docs/coverage.json holds and docs/coverage.md tells."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from sdk_matrix.driving import TOKENS, CellResult, Outcome
from sdk_matrix.matrix import pairs_of


def as_json(results: Iterable[CellResult]) -> dict[str, Any]:
    return {"python": "{}.{}".format(*sys.version_info), "cells": [_cell(result) for result in results]}


def as_text(results: dict[str, Any]) -> str:
    """The file: a line for each run, so that a change of one shows as one."""
    lines = []
    for cell in results["cells"]:
        head = json.dumps({key: value for key, value in cell.items() if key != "runs"})
        runs = ",\n".join(f"  {json.dumps(run)}" for run in cell["runs"])
        lines.append(f'{head[:-1]}, "runs": [\n{runs}\n ]}}')
    cells = ",\n ".join(lines)
    return f'{{"python": {json.dumps(results["python"])}, "cells": [\n {cells}\n]}}\n'


def _cell(result: CellResult) -> dict[str, Any]:
    cell = result.cell
    return {
        "name": cell.name,
        "versions": result.versions,
        "dialect": cell.dialect,
        "variable": cell.variable,
        "problems": list(result.problems),
        "runs": [_run(outcome) for outcome in result.outcomes],
        "uncovered": [
            {"form": pair.form, "story": pair.story, "why": why} for pair, why in pairs_of(cell) if why is not None
        ],
    }


def _run(outcome: Outcome) -> dict[str, Any]:
    truth, samples = outcome.truth, outcome.ours["samples"]
    tokens = asdict(truth.tokens)
    by_name = {f"tool_calls[{name}]": count for name, count in truth.tool_calls.items()}
    return {
        "form": outcome.pair.form,
        "story": outcome.pair.story,
        "layers": outcome.ours["layers"],
        "server": {
            "calls": truth.calls,
            "attempts": truth.attempts,
            "tool_calls": dict(truth.tool_calls),
            "tokens": tokens,
        },
        "exact": {
            "calls": samples["fanout"] == truth.calls,
            "attempts": samples["attempts"] == truth.attempts,
            "tool_calls": samples["tool_calls"] == sum(truth.tool_calls.values())
            and all(samples.get(name) == count for name, count in by_name.items()),
            "tokens": all(samples[name] == tokens[field] for name, field in TOKENS.items()),
        },
        "faults": list(outcome.faults),
    }
