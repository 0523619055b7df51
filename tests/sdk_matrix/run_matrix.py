"""Runs cells of the matrix: ``FANOUT_MATRIX_ENVS=DIR python tests/sdk_matrix/run_matrix.py [CELL…] [--save FILE]``.

Prints what each server saw, and every number of ours that differs. Without FANOUT_MATRIX_ENVS the SDKs of this very
environment are used. The exit code is 1 when anything differs. FILE gets the results as coverage.py reads them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from sdk_matrix.driving import CellResult, interpreter_for, run  # noqa: E402
from sdk_matrix.matrix import CELLS  # noqa: E402
from sdk_matrix.results import as_json, as_text  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description="run cells of the SDK matrix")
    parser.add_argument("names", nargs="*", metavar="CELL", help="matrix.py names them; default: all")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the results as JSON")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - {cell.name for cell in CELLS})
    if unknown:
        parser.error(f"no such cell: {', '.join(unknown)}")
    results = []
    for cell in CELLS:
        if not options.names or cell.name in options.names:
            with tempfile.TemporaryDirectory() as scratch:
                results.append(run(cell, interpreter_for(cell), Path(scratch)))
            show(results[-1])
    if options.save:
        options.save.write_text(as_text(as_json(results)), encoding="utf-8")
    return 1 if any(result.faults for result in results) else 0


def show(result: CellResult) -> None:
    print(f"{result.cell.name} {' '.join(f'{name} {version}' for name, version in result.versions.items())}")
    for outcome in result.outcomes:
        truth = outcome.truth
        seen = f"{truth.calls} calls, {truth.attempts} attempts, {sum(truth.tool_calls.values())} tool calls"
        layers = ", ".join(outcome.ours["layers"])
        print(f"  {outcome.pair.form}, {outcome.pair.story}: {seen}, {truth.tokens} by {layers}")
    print("\n".join(f"  {fault}" for fault in result.faults) or "  exact", flush=True)


if __name__ == "__main__":
    sys.exit(main())
