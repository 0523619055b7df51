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

WITH_AIOHTTP = """\
import warnings

import aiohttp
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


def test_not_recorded_where_a_part_is_not_replayed(tmp_path: Path, model: ModelServer) -> None:
    """Of a trial that opens a socket of aiohttp record mode keeps nothing, and says so and what to do."""
    more = """\


async def look():
    async with aiohttp.ClientSession() as session, session.ws_connect(os.environ["RESPONSES"]):
        pass
"""
    shop = Project(tmp_path / "shop", model.base_url)
    shop.lay_out()
    text = AGENT.replace("import json\n", "import asyncio\nimport json\n").replace("import warnings\n", WITH_AIOHTTP)
    shop.write("shop.py", text.replace('    return "done"', '    asyncio.run(look())\n    return "done"') + more)
    shop.commit("a shop with an agent on two kinds of sockets")

    with ResponsesSocket() as server:
        url = f"ws://127.0.0.1:{server.port}/v1/responses"
        recorded = shop.pytest("--fanout-mode=record", "--fanout-trials=1", RESPONSES=url)

    assert (recorded.exit, recorded.verdict) == (1, "invalid"), recorded.text
    text = (
        "support::task-1::t1: calls by WebSockets of aiohttp are counted, but not replayed yet: nothing was recorded;"
        " mend: measure this agent with --fanout-mode=live [stack-not-replayed]"
    )
    assert text in " ".join(recorded.text.split())
    assert not list((shop.root / "fixtures" / "recordings").rglob("*.*"))
