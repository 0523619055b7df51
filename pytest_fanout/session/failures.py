"""Why a trial does not count as passed, beside what an agent itself raises; and what pytest says of a failure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytest_fanout.records import Exchange, Problem


class TrialFailed(Exception):
    """The trial does not count as passed: the agent's answer does not hold what its eval line expects."""


def failed_inputs(exchanges: Iterable[Exchange], agent: str) -> tuple[Problem, ...]:
    """Notices of the live inputs that did not answer: a trial without them may be another one than it seems."""
    failed: dict[str, None] = {}
    for exchange in exchanges:
        status = exchange.answer.status
        if exchange.live_input and (status is None or status >= 400):
            why = exchange.answer.error or "no answer" if status is None else f"HTTP {status}"
            failed[f"{exchange.request.method} {exchange.request.url.partition('?')[0]}: {why}"] = None
    return tuple(
        Problem(
            "live-input-failed",
            f"a live input did not answer, and the agent went on without it ({said})\n"
            "  mend: see that it can be reached, or take its host out of live_inputs and record its answers",
            "notice",
            agent,
        )
        for said in failed
    )


def first_error(report: Any) -> str:
    """What a failed report of pytest's says, on one line: the error that was raised last, and a mend of ours."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else report.longrepr or "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line.removeprefix("E").strip() for line in lines if line.startswith("E   ")]
    said = (raised or lines or ["no reason was given"])[0]
    mend = next((line for line in lines if line.startswith("mend: ")), None)
    return "; ".join(part[:300] for part in (said, mend) if part)
