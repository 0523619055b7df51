"""Agents in Node on the npm packages openai and @anthropic-ai/sdk, run by fanout-gateway.

They stand aside from the core suite: ``tests/sdk_matrix/node/run`` installs the packages and runs them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer

HERE = Path(__file__).resolve().parent
BINARIES = HERE / "node_modules" / ".bin"
NEW_NODE = BINARIES / "node"  # its fetch honours a proxy; that of the system may be too old
TOOL = Path(sys.executable).with_name("fanout-gateway")
INSTALLED = (HERE / "node_modules" / "openai").is_dir() and NEW_NODE.exists()
pytestmark = pytest.mark.skipif(
    not INSTALLED and os.environ.get("FANOUT_NODE_AGENTS") != "required",
    reason="the npm packages are not installed: tests/sdk_matrix/node/run",
)
SCRIPT: list[dict[str, Any]] = [
    {"tool_calls": [{"name": "find", "arguments": {"q": "a"}}, {"name": "find", "arguments": {"q": "b"}}]},
    {},
    {},
    {"status": 429, "headers": {"retry-after-ms": "1"}},
    {"text": "you get it back", "usage": {"input": 40, "cached": 30, "output": 9, "reasoning": 4}},
    {"text": "a draft of four", "usage": {"cached": 1}},
    {"text": "all is well", "usage": {"input": 50, "cached": 20, "cache_write": 10, "output": 7}},
]


def nodes() -> list[Path]:
    """The newer Node of the packages, and the system's where there is one."""
    found = shutil.which("node")
    return [NEW_NODE, *([Path(found)] if found else [])]


def run(model: ModelServer, report: Path, node: Path, *words: str, proxy: bool) -> tuple[str, dict[str, Any]]:
    env = {
        **os.environ,
        "OPENAI_BASE_URL": model.base_url + "/v1",
        "ANTHROPIC_BASE_URL": model.base_url,
        "OPENAI_API_KEY": "sk-o",
        "ANTHROPIC_API_KEY": "sk-a",
    }
    done = subprocess.run(
        [TOOL, *(["--proxy"] if proxy else []), "--report", report, "--", node, HERE / "agent.mjs", *words],
        env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (task,) = json.loads(report.read_bytes())["tasks"]
    return done.stdout, task


@pytest.mark.parametrize("which", [0, 1], ids=["newer", "system"])
def test_a_node_agent_with_tools(which: int, model: ModelServer, tmp_path: Path) -> None:
    """Plain, streamed, tools and a retry of the SDK's own: all numbers are the server's. A Node whose fetch heeds the
    proxy has its tools counted too."""
    if which >= len(nodes()):
        pytest.skip("no node on this system")
    model.restart(SCRIPT)
    said, task = run(model, tmp_path / "r.json", nodes()[which], model.base_url + "/tool/", "whole", proxy=not which)

    answered = [entry.usage for entry in model.generated if entry.usage]
    samples = task["samples"]
    assert said == "all is well\n"
    assert (samples["fanout"], samples["attempts"], samples["tool_calls"]) == (4, len(model.generated), 2) == (4, 5, 2)
    for name, of in (("input_tokens", "input"), ("cached_input_tokens", "cached"), ("output_tokens", "output")):
        assert samples[name] == sum(usage[of] for usage in answered)
    assert task["other"] == (0 if which else 2)
    assert len([entry for entry in model.log if not entry.dialect]) == 2
    assert [problem for problem in task["problems"] if problem["verdict"] != "notice"] == []
    assert {use["model"]: use["calls"] for use in task["models"]} == {"m-chat": 2, "m-draft": 1, "m-check": 1}


def test_a_stream_that_a_node_agent_leaves_early(model: ModelServer, tmp_path: Path) -> None:
    """It is a call whose tokens are not known; the next one is counted as ever."""
    model.restart([{"text": "one two three four five", "chunk_delay_s": 0.2}, {}])
    said, task = run(model, tmp_path / "r.json", nodes()[0], model.base_url + "/tool/", "early", proxy=False)

    assert said == "echo: again\n"
    assert (task["samples"]["fanout"], task["samples"]["attempts"], len(model.generated)) == (2, 2, 2)
    assert (task["samples"]["input_tokens"], task["unknown_usage"]) == (None, 1)
