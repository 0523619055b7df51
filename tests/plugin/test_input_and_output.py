"""Input and output tokens are limited apart: a context that swells is seen although the answers stay as short."""

from __future__ import annotations

import pytest
from model_server import ModelServer
from project import Project

pytestmark = pytest.mark.slow

BUDGET = """\
schema = 1
[default.limits]
"fanout.p95" = { increase = "10%", at_least = 1 }
"input_tokens.p95" = { increase = "10%", at_least = 10 }
"output_tokens.p95" = { increase = "10%", at_least = 1 }
"""


def test_a_swelling_context_is_red_though_the_output_is_the_same(project: Project, model: ModelServer) -> None:
    """A20: 30 turns whose context grows by 300 words a turn instead of 100: only the input regressed."""
    model.restart({"default": {"text": "short answer"}})
    project.write("baselines/budget.toml", BUDGET)
    project.edit("shop.py", "STEPS_PER_ITEM = 1", "STEPS_PER_ITEM = 1\nGROWTH = 100")
    project.edit("shop.py", 'step {step}")', 'step {step}" + " more" * (GROWTH * step))')
    project.write_tasks({"long": {"ask": "go on", "items": 29}})
    project.commit("a long conversation")
    project.record_and_accept()
    project.git("switch", "-q", "-c", "work")
    project.edit("shop.py", "GROWTH = 100", "GROWTH = 300")
    project.commit("carry more context")
    result = project.pytest("--fanout-mode=record")

    metrics = {metric["name"]: metric for metric in result.agent["metrics"]}
    words = sum(step for step in range(29))  # times GROWTH: what the turns carry beside their few fixed words
    assert metrics["input_tokens.p95"]["run"] - metrics["input_tokens.p95"]["base"] == 200 * words
    assert metrics["output_tokens.p95"]["run"] == metrics["output_tokens.p95"]["base"]
    assert metrics["fanout.p95"]["run"] == metrics["fanout.p95"]["base"] == 30
    assert {name for name, metric in metrics.items() if metric["gated"] and metric["run"] > metric["limit"]} == {
        "input_tokens.p95"
    }
    # one task is never enough for evidence on a new draw, and never enough to pass
    assert (result.verdict, result.exit) == ("inconclusive", 1)
