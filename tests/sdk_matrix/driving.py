"""Runs one cell against servers of its dialect, and says where our numbers are not the servers'."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sdk_matrix.environments import python_of
from sdk_matrix.matrix import Cell, Pair, pairs_of
from sdk_matrix.provider import Provider, Truth

HERE = Path(__file__).resolve().parent
KEY = "key-that-only-the-provider-knows"
TIME_LIMIT_S = 240
#: our sample -> field of the server's tokens
TOKENS = {
    "input_tokens": "input",
    "cached_input_tokens": "cached",
    "cache_write_tokens": "cache_write",
    "output_tokens": "output",
    "reasoning_tokens": "reasoning",
}
#: Variables that SDKs read and that must not come from whoever runs the tests.
_QUIET = {
    "NO_PROXY": "127.0.0.1,localhost",
    "OTEL_SDK_DISABLED": "true",
    "DO_NOT_TRACK": "1",
    "PYTHONUTF8": "1",
    "PYTHONWARNINGS": "ignore",
}


@dataclass(frozen=True)
class Outcome:
    """One run: what the server saw, what we say, and where the two differ (nothing: exact)."""

    pair: Pair
    truth: Truth
    ours: dict[str, Any]
    faults: tuple[str, ...]


@dataclass(frozen=True)
class CellResult:
    cell: Cell
    versions: dict[str, str]
    problems: tuple[str, ...]  # of the run as a whole
    outcomes: tuple[Outcome, ...]

    @property
    def faults(self) -> list[str]:
        found = [f"{self.cell.name}: {problem}" for problem in self.problems]
        for outcome in self.outcomes:
            name = f"{self.cell.name}/{outcome.pair.form}/{outcome.pair.story}"
            found += [f"{name}: {fault}" for fault in outcome.faults]
        return found


def run(cell: Cell, python: str, scratch: Path) -> CellResult:
    """Run every covered pair of ``cell`` with the interpreter ``python``, one server for each.

    Raises:
        AssertionError: the process did not come to its end; the text holds what it wrote.
    """
    pairs = [pair for pair, why in pairs_of(cell) if why is None]
    job, result = scratch / "job.json", scratch / "result.json"
    with ExitStack() as stack:
        servers = [stack.enter_context(Provider(cell.dialect, pair.story, KEY)) for pair in pairs]
        runs = [
            {"form": pair.form, "story": pair.story, "url": server.url + _path(cell, pair)}
            for pair, server in zip(pairs, servers, strict=True)
        ]
        asked = {
            "cell": cell.module,
            "variable": cell.variable,
            "at_import": cell.reads_variable_at_import,
            "distributions": cell.distributions,
            "runs": runs,
        }
        job.write_text(json.dumps(asked), encoding="utf-8")
        log = scratch / "log.txt"
        with open(log, "wb") as out:
            command = [python, str(HERE / "run_cell.py"), str(job), str(result)]
            done = subprocess.run(
                command,
                cwd=scratch,
                env=_environment(cell, scratch),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=TIME_LIMIT_S,
                check=False,
            )
    if done.returncode or not result.exists():
        raise AssertionError(f"{cell.name} ended with {done.returncode}:\n{log.read_text(errors='replace')[-4000:]}")
    told = json.loads(result.read_text(encoding="utf-8"))
    outcomes = [
        Outcome(pair, server.truth(), ours, tuple(faults_in(pair, server.truth(), ours)))
        for pair, server, ours in zip(pairs, servers, told["runs"], strict=True)
    ]
    return CellResult(cell, told["versions"], tuple(told["problems"]), tuple(outcomes))


def _path(cell: Cell, pair: Pair) -> str:
    by_variable = pair.story == "variable" and cell.variable_path is not None
    return cell.variable_path or "" if by_variable else cell.path


def _environment(cell: Cell, scratch: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT", "TMPDIR") if name in os.environ}
    return {**kept, **_QUIET, "HOME": str(scratch), cell.key: KEY, **cell.environ}


def faults_in(pair: Pair, truth: Truth, ours: dict[str, Any]) -> list[str]:
    """Where our numbers are not the server's, one line each; also what shows that the run was not what it should be."""
    samples = ours["samples"]
    faults = [f"problem {problem}" for problem in ours["problems"]]
    if ours["error"]:
        faults.append(f"the agent failed: {ours['error']}")
    expected = {"fanout": truth.calls, "attempts": truth.attempts, "tool_calls": sum(truth.tool_calls.values())}
    expected |= {f"tool_calls[{name}]": count for name, count in truth.tool_calls.items()}
    tokens = asdict(truth.tokens)
    expected |= {name: tokens[field] for name, field in TOKENS.items()}
    faults += [
        f"{name}: the server says {count}, we say {samples.get(name)}"
        for name, count in expected.items()
        if samples.get(name) != count
    ]
    if ours["logical_calls"] != truth.calls:  # a refused attempt and its retry are one
        faults.append(f"logical calls: the server says {truth.calls}, we say {ours['logical_calls']}")
    faults += _not_the_story(pair, truth)
    return faults


def _not_the_story(pair: Pair, truth: Truth) -> list[str]:
    """A run that did not do what its story is about proves nothing, however equal the numbers are."""
    faults = []
    if truth.calls < 1:
        faults.append("the server answered no call")
    if 401 in truth.statuses or 404 in truth.statuses:
        faults.append(f"the server refused a request: {truth.statuses}")
    if pair.story in ("tools", "retry") and not (truth.tool_calls and truth.brought_results):
        faults.append("no tool call went there and back")
    if pair.story == "retry" and truth.attempts <= truth.calls:
        faults.append("nothing was retried")
    if pair.story == "early" and truth.hung_up < 1:
        faults.append("the stream was read to its end")
    return faults


def interpreter_for(cell: Cell) -> str:
    """The interpreter of its environment, where FANOUT_MATRIX_ENVS says that there are any; else this one.

    Raises:
        LookupError: there is no such environment; the text says how to build it.
    """
    envs = os.environ.get("FANOUT_MATRIX_ENVS")
    if not envs:
        return sys.executable
    python = python_of(cell.environment, Path(envs).resolve())
    if python is None:
        command = f"python tests/sdk_matrix/build.py {cell.environment} --into {envs}"
        raise LookupError(f"{cell.name} has no environment; build it by: {command}")
    return str(python)
