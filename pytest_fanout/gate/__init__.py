"""From records and a git tree to a verdict: evaluate, accept, verify. The session and the commands both call it.

Names are loaded on first use: the required check runs often, and needs the fewest of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_fanout.gate.combine import combine  # has the name of its module, which loads it whenever it likes

if TYPE_CHECKING:
    from pytest_fanout.gate.acceptance import accept, plan_accept
    from pytest_fanout.gate.check import Verified, exit_code, verify
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

_HOMES = {
    "Accepted": "plan",
    "Plan": "plan",
    "Verified": "check",
    "accept": "acceptance",
    "carry_out": "plan",
    "committed_budget": "judgement",
    "current_inputs": "inputs",
    "evaluate": "judgement",
    "exit_code": "check",
    "plan_accept": "acceptance",
    "read_anchors": "judgement",
    "read_sites": "tree",
    "verify": "check",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
