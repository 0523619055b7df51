"""Why a trial does not count as passed, beside what an agent itself raises."""

from __future__ import annotations


class TrialFailed(Exception):
    """The trial does not count as passed: the agent's answer does not hold what its eval line expects."""
