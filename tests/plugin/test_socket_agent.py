"""An agent on a WebSocket, from its first recording to the prompt that makes it stale."""

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


PROMPT = "hi"


def answer(task):
    with connect(os.environ["RESPONSES"]) as socket:
        for _ in range(task["items"]):
            socket.send(json.dumps({"type": "response.create", "model": "m-x", "input": PROMPT}))
            while json.loads(socket.recv())["type"] != "response.completed":
                pass
    return "done"
"""


def test_recorded_replayed_and_stale(tmp_path: Path, model: ModelServer) -> None:
    """Calls on sockets are recorded and proved, replayed without a server with the same numbers, and stale when the
    prompt is another."""
    shop = Project(tmp_path / "shop", model.base_url)
    shop.lay_out()
    shop.write("shop.py", AGENT)
    shop.commit("a shop with an agent on a socket")

    with ResponsesSocket() as server:
        url = f"ws://127.0.0.1:{server.port}/v1/responses"
        recorded = shop.pytest("--fanout-mode=record", "--fanout-trials=1", RESPONSES=url)
    replayed = shop.pytest(RESPONSES=url)
    shop.write("shop.py", AGENT.replace('PROMPT = "hi"', 'PROMPT = "hello"'))
    stale = shop.pytest(RESPONSES=url)

    assert len(server.creates) == 6
    for run in (recorded, replayed):
        assert run.verdict == "no-baseline", run.text
        assert run.report is not None
        assert (run.report["totals"]["calls"], run.report["totals"]["tokens"]) == (6, 42)
    assert stale.verdict == "stale", stale.text
    assert '"hi" -> "hello"' in stale.text
