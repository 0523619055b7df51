"""Runs and verdicts built by hand, one for each thing that a report must be able to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_fanout.records import (
    Base,
    CallSite,
    ClassResult,
    Demand,
    Head,
    Load,
    MetricResult,
    Problem,
    Projection,
    Run,
    SessionFacts,
    SiteDelta,
    StaleNote,
    TaskDelta,
    TaskRun,
    Totals,
    Verdict,
)

BASE = Base("ba997004d097e546cc94cacfe9fdb4ce46a1d3cf", "merge-base origin/main")
HEAD = Head("12ee226f4c1b0a9d8e7f6a5b4c3d2e1f0a9b8c7d")
VERIFY = CallSite("00aa11bb22cc33dd", "openai.chat", "gpt-4o-mini", ("search",), "You verify each citation")
PLAN = CallSite("ff00ee11dd22cc33", "openai.chat", "gpt-4o-mini", (), "You plan the research")


def trial(agent: str, task: str, number: int = 1, **fields: object) -> TaskRun:
    samples = {"fanout": 7, "input_tokens": 1000, "output_tokens": 200}
    values: dict[str, object] = {"status": "ok", "passed": True, "samples": samples, **fields}
    return TaskRun(agent, task, number, **values)  # type: ignore[arg-type]


def run(*tasks: TaskRun, **fields: object) -> Run:
    agents = tuple(dict.fromkeys(task.agent for task in tasks))
    expected = len({(task.agent, task.task) for task in tasks})
    values: dict[str, object] = {
        "run_id": "run-1",
        "mode": "replay",
        "begun_at": 1_796_000_000,
        "agents": agents,
        "tasks": tasks,
        "definitions": {},
        "evalsets": {},
        "session": SessionFacts(expected=expected, collected=len(tasks), ran=len(tasks)),
        "totals": Totals(calls=700, attempts=712, tokens=1_250_000),
        "base": BASE,
        "head": HEAD,
        **fields,
    }
    return Run(**values)  # type: ignore[arg-type]


def metric(
    name: str, base: int | None, now: int | None, limit: int | None, over: bool = False, **fields: object
) -> MetricResult:
    values: dict[str, object] = {"gated": True, "n": 20, "trials": 100, **fields}
    return MetricResult(name, base, now, limit, over, **values)  # type: ignore[arg-type]


def result(agent: str, verdict: str, *metrics: MetricResult, **fields: object) -> ClassResult:
    values: dict[str, object] = {
        "draw": "same",
        "problems": (),
        "tasks_expected": 20,
        "tasks_ran": 20,
        "trials": 100,
        "pass_share": (98, 100),
        "pass_share_base": (97, 100),
        **fields,
    }
    return ClassResult(agent, verdict, metrics=metrics, **values)  # type: ignore[arg-type]


def load(gpus: float | None) -> Load:
    return Load(12.5, 9000.0, 1000.0, 800.0, 10800.0, 45.0, gpus)


def projection(agent: str, base: int, now: int, *, per_1000: bool = False) -> Projection:
    return Projection(
        agent,
        Demand(agent, 1000 / 3600 if per_1000 else 2.0, per_1000),
        load(base - 0.5),
        load(now - 0.25),
        "h100-sxm-llama-70b (vendor page, 2025)",
        base,
        now,
        ("cached input costs nothing to read",),
    )


CALM = result(
    "support",
    "pass",
    metric("fanout.p95", 3, 3, 4, max=4, max_task="refund"),
    metric("tokens.p95", 2100, 2180, 2600, max=2900, max_task="refund"),
)
GROWN = (
    metric("fanout.p95", 7, 11, 8, True, max=14, max_task="invoice-017"),
    metric("tokens.p95", 18400, 31250, 20240, True, max=40210, max_task="invoice-003"),
)
TRIALS = (trial("research", "invoice-017"), trial("research", "invoice-003"), trial("support", "refund"))


def _regressed() -> tuple[Run, Verdict]:
    research = result(
        "research",
        "regressed",
        *GROWN,
        top=(
            TaskDelta("invoice-017", (4, 4), (11, 12), (9000, 9000), (30000, 31000)),
            TaskDelta("invoice-003", (6, None), (6, 6), (8000,), (8500,)),
        ),
        approval_why="no approval departs from this anchor",
    )
    return run(*TRIALS), Verdict(
        "regressed",
        (CALM, research),
        (),
        BASE,
        HEAD,
        projections=(projection("research", 12, 19), projection("support", 3, 3)),
        sites=(
            SiteDelta("research", PLAN, 100, 150, 900, 1400, "more"),
            SiteDelta("research", VERIFY, None, 325, None, 4000, "new"),
        ),
        next=('fanout-baseline accept --agent research --reason "why it may cost this"',),
    )


def _simple(
    verdict: str, *classes: ClassResult, problems: tuple[Problem, ...] = (), **fields: object
) -> tuple[Run, Verdict]:
    run_fields = dict(fields)
    base = run_fields.pop("verdict_base", BASE)
    tasks = run_fields.pop("tasks", TRIALS)
    return run(*tasks, **run_fields), Verdict(verdict, classes, problems, base, HEAD)  # type: ignore[arg-type,misc]


def _stale() -> tuple[Run, Verdict]:
    note = StaleNote(1, "model", ('system prompt: "You plan" became "You plan and verify"',), 4, 1)
    other = StaleNote(2, "tool", ("GET /search: query q changed",), 4, 2)
    tasks = (
        *(
            trial("research", task, number, status="stale", passed=False, stale=note)
            for task in ("a", "b", "c")
            for number in (1, 2)
        ),
        trial("research", "d", status="stale", passed=False, stale=other),
        trial("support", "refund"),
    )
    research = result(
        "research", "stale", metric("fanout.p95", 7, 2, 8), draw="none", stale=("a", "b", "c", "d"), pass_share=(0, 0)
    )
    return run(*tasks), Verdict(
        "stale", (research, CALM), (), BASE, HEAD, next=("pytest --fanout-budget --fanout-mode=record",)
    )


NO_TRAFFIC = Problem("no-calls", "no model call was counted", "invalid", "research", "invoice-017", 1)


def cases() -> Mapping[str, tuple[Run, Verdict]]:
    notice = Problem(
        "noise-not-considered", "the limits were applied to raw numbers; noise was not considered", "notice"
    )
    approved = replace(
        result("research", "approved", *(replace(item, ceiling=(item.run or 0) + 1) for item in GROWN)),
        approval="baselines/approvals/2026-11-29-research-3f6a0c2be1d9.json",
    )
    integrity = Problem("bad-json", "baselines/research.json:3: is not valid JSON: Expecting value", "integrity")
    no_base = Problem("no-merge-base", "HEAD and origin/main share no commit", "no-base")
    nobody = Base(None, "none", True, "HEAD and origin/main share no commit")
    return {
        "pass": _simple("pass", CALM, problems=(notice,), tasks=(TRIALS[2],)),
        "regressed": _regressed(),
        "approved": _simple("approved", approved, CALM),
        "waived": _simple("waived", result("research", "waived", *GROWN, approval="baselines/approvals/w.json"), CALM),
        "stale": _stale(),
        "incomplete": _simple(
            "incomplete",
            result("research", "incomplete", tasks_ran=18, missing=("invoice-004", "invoice-009")),
            session=SessionFacts(20, 100, 90, 0, 10, None, 1, False, "-x"),
        ),
        "invalid": _simple("invalid", result("research", "invalid", *GROWN[:1], problems=(NO_TRAFFIC,)), sealed=False),
        "no-baseline": _simple(
            "no-baseline", result("research", "no-baseline", metric("fanout.p95", None, 11, None), draw="none")
        ),
        "integrity": _simple("integrity", problems=(integrity,), tasks=()),
        "no-base": _simple("no-base", problems=(no_base,), verdict_base=nobody),
        "shard": _simple(
            "shard", result("support", "shard", tasks_ran=7), session=SessionFacts(20, 7, 7, 0, 0, "1/3"),
            tasks=(TRIALS[2],),
        ),
        "partial": _simple(
            "pass", CALM, session=SessionFacts(20, 100, 1, 99, 0, None, 0, True), tasks=(TRIALS[2],),
            verdict_base=replace(BASE, is_gate=False),
        ),
    }  # fmt: skip


def golden() -> Mapping[str, str]:
    """File name -> text of each golden file; ``python tests/report/report_cases.py`` writes them, eyes check them."""
    from pytest_fanout.report import markdown, terminal

    texts = {f"{name}.txt": terminal.render(*case) + "\n" for name, case in cases().items()}
    return texts | {f"{name}.md": markdown.render(*cases()[name]) for name in ("regressed", "stale", "approved")}


if __name__ == "__main__":
    from pathlib import Path

    for file_name, text in golden().items():
        (Path(__file__).parent / "golden" / file_name).write_text(text, encoding="utf-8", newline="\n")
