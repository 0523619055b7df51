"""From records and a git tree to a verdict: evaluate, accept, verify. The session and the commands both call it."""

from __future__ import annotations

from pytest_fanout.gate.acceptance import accept, plan_accept
from pytest_fanout.gate.check import Verified, exit_code, verify
from pytest_fanout.gate.combine import combine
from pytest_fanout.gate.inputs import current_inputs
from pytest_fanout.gate.judgement import committed_budget, evaluate, read_anchors
from pytest_fanout.gate.plan import Accepted, Plan, carry_out
from pytest_fanout.gate.tree import read_sites

__all__ = [
    "Accepted",
    "Plan",
    "Verified",
    "accept",
    "carry_out",
    "combine",
    "committed_budget",
    "current_inputs",
    "evaluate",
    "exit_code",
    "plan_accept",
    "read_anchors",
    "read_sites",
    "verify",
]
