"""An agent whose calls are counted, and whose recordings cannot answer yet: what its user sees."""

from __future__ import annotations

import sys
from pathlib import Path

from model_server import ModelServer
from project import Project

sys.path.append(str(Path(__file__).parents[1] / "meter"))

from responses_socket import ResponsesSocket

AGENT = """\
import json
import os
import warnings

from websockets.sync.client import connect

warnings.filterwarnings("ignore", category=DeprecationWarning, module="shop")


def answer(task):
    with connect(os.environ["RESPONSES"]) as socket:
        for _ in range(task["items"]):
            socket.send(json.dumps({"type": "response.create", "model": "m-x", "input": "hi"}))
            while json.loads(socket.recv())["type"] != "response.completed":
                pass
    return "done"
"""


def test_counted_live_and_not_recorded(tmp_path: Path, model: ModelServer) -> None:
    """Calls on sockets are counted in live mode; record mode keeps nothing of them, and says so and what to do."""
    shop = Project(tmp_path / "shop", model.base_url)
    shop.lay_out()
    shop.write("shop.py", AGENT)
    shop.commit("a shop with an agent on a socket")

    with ResponsesSocket() as server:
        url = f"ws://127.0.0.1:{server.port}/v1/responses"
        live = shop.pytest("--fanout-mode=live", "--fanout-trials=1", RESPONSES=url)
        recorded = shop.pytest("--fanout-mode=record", "--fanout-trials=1", RESPONSES=url)

    assert len(server.creates) == 12
    assert live.verdict == "no-baseline", live.text
    assert live.report is not None
    assert (live.report["totals"]["calls"], live.report["totals"]["tokens"]) == (6, 42)
    assert (recorded.exit, recorded.verdict) == (1, "invalid"), recorded.text
    said = " ".join(recorded.text.split())
    for number in (1, 2, 3):
        text = (
            "are counted, but not replayed yet: nothing was recorded; mend: measure this agent with --fanout-mode=live"
        )
        assert f"support::task-{number}::t1: calls by websockets {text} [stack-not-replayed]" in said
    assert not list((shop.root / "fixtures" / "recordings").rglob("*.*"))
