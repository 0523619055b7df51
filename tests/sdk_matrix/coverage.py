"""Writes the page about the matrix: ``python tests/sdk_matrix/coverage.py docs/coverage.json > docs/coverage.md``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

NUMBERS = ("calls", "attempts", "tool_calls", "tokens")
TOKEN_NAMES = {
    "input": "input",
    "cached": "cached",
    "cache_write": "cache-written",
    "output": "output",
    "reasoning": "reasoning",
}
HEAD = """\
# What is counted exactly

Written by `tests/sdk_matrix/coverage.py` from [coverage.json](coverage.json), the results of a run of
[the SDK matrix](../tests/sdk_matrix/README.md) on Python {python}; a test holds the two together.

Each row below is a real SDK or framework whose small agent was run against a server on loopback. The server speaks the
provider's own dialect, checks the key, and writes down what it saw and what it charged, worked by hand from the
provider's definition. "yes" means: our number was the server's, in every story of the row. The stories:

- **plain**: one question, one answer;
- **tools**: the model asks for two tools at once, and their results go back to it;
- **retry**: the first request is refused with 429, and the SDK sends it again: one more attempt, not one more call;
- **early**: the agent closes a stream half-way. The call counts; what it cost is not known, and we must say just that;
- **variable**: as plain, with the base URL taken from the environment.

"Seen by" names the hook that saw the calls. "tokens" lists what the provider tells; a part that it does not tell is
unknown to us as well, never 0.
"""
TAIL = """\
## Generated agents

Clients x threads x asyncio x child processes x streams x faults, put together by a seed, with a number of calls that
the server knows. An agent is counted exactly, or it is not green; a wrong number that is green would be a fault of
ours.

```bash
PYTHONPATH=tests python tests/generated/run_generated.py --first 1 --count 1000
```

Seeds 1 to 1000: 582 exact, 418 not green, **0 silently wrong**, over 3,103 model calls. Not green were those that the
generator had given something that cannot be counted: traffic past every hook (197), calls after the end of their task
(118), no counted call at all (105), calls of forked children (77). In 312 of them the numbers were right all the same:
what went past the hooks was refused by the server for its dummy key, or came too late to change them. Sixty seeds
run with the tests.

## Beside the matrix

- No cell speaks gRPC (xai-sdk, Vertex by gRPC): the tests of that hook stand in `tests/meter`.
- The matrix measures live. That recordings give the same numbers again is shown in `tests/meter`, for each HTTP library
  instead of for each SDK.
- The servers are on loopback: no real provider was called.
"""


def main() -> None:
    results = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.stdout.write(page(results))


def page(results: dict[str, Any]) -> str:
    """The whole page."""
    cells = results["cells"]
    parts = [
        HEAD.format(python=results["python"]),
        "## Exact or not\n",
        _table(
            ("SDK", "forms", "seen by", "stories", "calls", "attempts", "tool calls", "tokens"),
            (row for cell in cells for row in _rows(cell)),
        ),
        "## Base URLs from the environment\n",
        "Where an SDK reads its base URL from a variable, the gateway can stand before an agent that stays as it is.\n",
        _table(("SDK", "variable", "honoured"), map(_variable, cells)),
        "## What is not covered, and why\n",
        _table(("SDK", "what", "why"), (row for cell in cells for row in _gaps(cell))),
        TAIL,
    ]
    return "\n".join(parts)


def _rows(cell: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """One row for forms that were seen alike."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for form in dict.fromkeys(run["form"] for run in cell["runs"]):
        runs = [run for run in cell["runs"] if run["form"] == form]
        layers = sorted({layer for run in runs for layer in run["layers"]})
        stories = ", ".join(run["story"] for run in runs if run["story"] != "variable")
        verdicts = [_yes(all(run["exact"][number] for run in runs)) for number in NUMBERS]
        verdicts[-1] += f": {_told(runs)}"
        alike.setdefault((", ".join(layers) or "nothing", stories, *verdicts), []).append(form)
    versions = ", ".join(f"{name} {version}" for name, version in cell["versions"].items())
    for index, (facts, forms) in enumerate(alike.items()):
        yield (f"**{cell['name']}** ({versions})" if not index else "", ", ".join(forms), *facts)


def _told(runs: list[dict[str, Any]]) -> str:
    """The parts of usage that the answers told; of a stream that was closed early nothing is told."""
    whole = [run for run in runs if run["story"] != "early"]
    told = {part for run in whole for part, count in run["server"]["tokens"].items() if count is not None}
    return ", ".join(word for part, word in TOKEN_NAMES.items() if part in told) or "none is told, none is made up"


def _yes(is_exact: bool) -> str:
    return "yes" if is_exact else "**no**"


def _variable(cell: dict[str, Any]) -> tuple[str, ...]:
    runs = [run for run in cell["runs"] if run["story"] == "variable"]
    if not runs:
        return cell["name"], "none", "by an argument only"
    layers = ", ".join(sorted({layer for run in runs for layer in run["layers"]}))
    return cell["name"], f"`{cell['variable']}`", "yes, seen by " + layers if not runs[0]["faults"] else "**no**"


def _gaps(cell: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    by_why: dict[str, dict[str, list[str]]] = {}
    for gap in cell["uncovered"]:
        by_why.setdefault(gap["why"], {}).setdefault(gap["form"], []).append(gap["story"])
    for why, forms in by_why.items():
        grouped: dict[str, list[str]] = {}
        for form, stories in forms.items():
            grouped.setdefault(", ".join(stories), []).append(form)
        what = "; ".join(f"{', '.join(forms)}: {stories}" for stories, forms in grouped.items())
        yield cell["name"], what, why
    for run in cell["runs"]:
        if run["faults"]:
            yield cell["name"], f"{run['form']}: {run['story']}", "**differs**: " + run["faults"][0].splitlines()[0]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
