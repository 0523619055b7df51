"""How long the HTML page takes and how large it is: 20 classes of 200 tasks, every one over its limit and explained.

CPU time of this process, so that other work on the machine does not count: the imports of jinja2 and matplotlib, the
page, and the page once more without them. The worst case: no class passes, each has eight parts and three call trees.

    python benchmarks/html_speed.py [--classes 20] [--tasks 200] [--trials 1] [--out PATH]
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "report")]

from gate_world import make_run, sha  # noqa: E402
from report_cases import BASE, HEAD, metric, projection, result  # noqa: E402

from pytest_fanout.judge.distribution import largest, statistic  # noqa: E402
from pytest_fanout.records import (  # noqa: E402
    ClassResult,
    ClassTotal,
    Example,
    ExplainedSite,
    Explanation,
    Finding,
    Part,
    Past,
    Run,
    Share,
    TaskDelta,
    TreeLine,
    Trend,
    TrendStep,
    Verdict,
)
from pytest_fanout.report.page.curves import of_run  # noqa: E402
from pytest_fanout.store.baselines import build_baseline  # noqa: E402

ALLOWED_SECONDS = 2.0
ALLOWED_BYTES = 3 * 1024 * 1024
KINDS = ("begun", "turn", "resent", "results", "output", "prompt", "retries", "again")


def made(classes: int, tasks: int, trials: int) -> tuple[Run, Verdict, Past]:
    """A run, its verdict and its past."""
    chance = random.Random(20)
    agents = [f"class-{number:02d}" for number in range(classes)]
    parts, anchors, results, explanations, trends = [], {}, [], [], []
    for agent in agents:
        sizes = [2 + int(chance.paretovariate(1.4)) % 60 for _ in range(tasks)]
        names = [f"task-{number:04d}" for number in range(tasks)]

        def drawn(more: float, agent: str = agent, names: list[str] = names, sizes: list[int] = sizes) -> Run:
            rows = {n: [int(s * more) + chance.randrange(4) for _ in range(trials)] for n, s in zip(names, sizes)}  # noqa: B905
            run = make_run(rows, agent)
            return replace(run, tasks=tuple(_varied(trial, chance) for trial in run.tasks))

        before, after = drawn(1.0), drawn(1.5)
        anchors[agent] = build_baseline(before, agent)
        parts.append(after)
        results.append(_judged(agent, before, after))
        explanations.append(_explained(agent, names))
        trends += [
            Trend(agent, name, tuple(TrendStep(f"2026-{m:02d}-01", v + m, "x.json", "A reason.") for m in range(1, 9)))
            for name, v in (("fanout.p95", 20), ("tokens.p95", 20_000))
        ]
    run = replace(
        parts[0],
        agents=tuple(agents),
        tasks=tuple(trial for part in parts for trial in part.tasks),
        definitions={agent: entries for part in parts for agent, entries in part.definitions.items()},
        base=BASE,
        head=HEAD,
    )
    projections = tuple(projection(agent, 12, 19) for agent in agents)
    verdict = Verdict(
        "regressed", tuple(results), (), BASE, HEAD, projections=projections, explanations=tuple(explanations)
    )
    return run, verdict, Past(anchors, tuple(trends))


def _varied(trial, chance):  # type: ignore[no-untyped-def]
    samples = dict(trial.samples)
    for name in ("input_tokens", "output_tokens", "duration_ms", "model_ms", "context_max"):
        samples[name] = (samples.get(name) or 100) * 10 + chance.randrange(500)
    return replace(trial, samples=samples)


def _judged(agent: str, before: Run, after: Run) -> ClassResult:
    rows, tops = [], []
    for name in ("fanout", "tokens"):
        base, run = (of_run(side.tasks, name) for side in (before, after))
        for kind in ("p50", "p95", "p99", "max"):
            old = statistic(base, kind)
            most, where = largest(run)
            is_gated = kind == "p95"
            limit = int((old or 0) * 1.1) if is_gated else None
            rows.append(
                metric(
                    f"{name}.{kind}", old, statistic(run, kind), limit, is_gated, gated=is_gated, max=most,
                    max_task=where,
                )
            )  # fmt: skip
    tops = [TaskDelta(f"task-{n:04d}", (4, 4), (11, 12), (9000, 9000), (30000, 31000)) for n in range(20)]
    return result(agent, "regressed", *rows, top=tuple(tops), tasks_expected=200, tasks_ran=200)


def _explained(agent: str, names: list[str]) -> Explanation:
    sites = tuple(
        ExplainedSite(sha(f"{agent}{at}")[7:23], f"You are step {at} of the research", "changed", "openai.chat",
                      ("m-1",), ("m-1",), Fraction(at + 1), Fraction(at + 3), Fraction(900), Fraction(1400))
        for at in range(6)
    )  # fmt: skip
    totals, shown = [], []
    for name, base in (("fanout", Fraction(8)), ("tokens", Fraction(9000))):
        for scope in ("mean", "p95"):
            step = base / len(KINDS)
            totals.append(ClassTotal(name, scope, base, base * 2, tuple(names if scope == "mean" else names[:10])))
            shown += [Part(name, scope, kind, sites[at % 6].key, step) for at, kind in enumerate(KINDS)]
    share = Share("fanout", "mean", Fraction(8), Fraction(1))
    lines = tuple(f"{sign}You plan the research, line {at}." for at in range(8) for sign in "-+")
    found = tuple(
        Finding(
            kind, "observed", "system prompt changed", (sites[at].key,), (), lines, ("shop/agents.py:12",), (share,)
        )
        for at, kind in enumerate(("prompt", "tools", "model"))
    )
    tree = tuple(
        TreeLine(at % 3, sites[at % 6].key, sites[at % 6].label, "turn", ("search",), 900 + at) for at in range(30)
    )
    examples = tuple(Example(name, 1, 1, tree[:15], tree, 4, ("system prompt changed",)) for name in names[:3])
    return Explanation(agent, "rule", tuple(totals), tuple(shown), sites, found, examples)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    case = made(options.classes, options.tasks, options.trials)
    start = time.process_time()
    for name in ("jinja2", "matplotlib.backends.backend_svg", "matplotlib.ticker"):
        importlib.import_module(name)
    imported = time.process_time() - start
    from pytest_fanout.report.page.render import render

    text = render(*case)
    whole = time.process_time() - start
    start = time.process_time()
    same = render(*case) == text
    again = time.process_time() - start
    size = len(text.encode())
    print(f"{options.classes} classes x {options.tasks} tasks x {options.trials} trials")
    print(
        f"imports {imported:.2f} s, with the page {whole:.2f} s (allowed {ALLOWED_SECONDS}), again {again:.2f} s of CPU"
    )
    print(
        f"{size / 2**20:.2f} MB (allowed {ALLOWED_BYTES / 2**20:.0f}); the same bytes again: {'yes' if same else 'NO'}"
    )
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
