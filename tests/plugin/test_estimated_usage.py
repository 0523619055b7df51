"""A model that tells no usage, with the extra ``tokenizer`` installed."""

from __future__ import annotations

import sys

import pytest
from model_server import ModelServer
from project import Project


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the extra has no wheel for this Python")
def test_estimates_are_summed_told_and_do_not_settle_a_limit_on_tokens(project: Project, model: ModelServer) -> None:
    """Without any usage a limit on tokens is not judged; the estimates are there, and the report says so."""
    model.restart({"default": {"text": "hello world", "usage": False}})
    result = project.pytest("--fanout-mode=live", "--fanout-trials=1")

    trial = result.agent["tasks"][0]
    assert (trial["samples"]["fanout"], trial["samples"]["output_tokens"], trial["unknown_usage"]) == (2, 4, 2)
    assert {problem["slug"] for problem in result.agent["problems"]} >= {"usage-unknown"}
    text = " ".join(result.out.split())
    assert (
        "model calls came without usage: their tokens are estimated from the text, and count as unknown usage" in text
    )
    assert "support, 3 tasks" in text
    assert (result.verdict, result.exit) == ("invalid", 1)
