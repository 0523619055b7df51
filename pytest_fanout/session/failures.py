"""Why a trial does not count as passed, beside what an agent itself raises; and what pytest says of a failure."""

from __future__ import annotations

from typing import Any


class TrialFailed(Exception):
    """The trial does not count as passed: the agent's answer does not hold what its eval line expects."""


def first_error(report: Any) -> str:
    """What a failed report of pytest's says, on one line: the error that was raised last, and a mend of ours."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else report.longrepr or "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line.removeprefix("E").strip() for line in lines if line.startswith("E   ")]
    said = (raised or lines or ["no reason was given"])[0]
    mend = next((line for line in lines if line.startswith("mend: ")), None)
    return "; ".join(part[:300] for part in (said, mend) if part)
