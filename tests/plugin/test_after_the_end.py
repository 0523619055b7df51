"""Model calls of what a task leaves behind, when everything has been reported already."""

from __future__ import annotations

import re
import sys

import pytest
from model_server import ModelServer
from project import Project

LEFT_BEHIND = """

def again():
    try:
        httpx.post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json={"model": "m-x", "messages": []})
    except Exception:
        pass


def by_thread():
    import threading
    import time

    threading.Thread(target=lambda: (time.sleep(2.6), again())).start()


def by_short_thread():
    import threading
    import time

    threading.Thread(target=lambda: (time.sleep(0.4), again()), daemon=True).start()


def by_timer():
    import threading

    timer = threading.Timer(2.6, again)
    timer.start()


def by_exit_handler():
    import atexit

    atexit.register(again)


def past_the_hooks():
    import atexit
    import socket
    import urllib.parse

    def ask():
        peer = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
        with socket.create_connection((peer.hostname, peer.port)) as raw:
            raw.sendall(b"POST /v1/chat/completions HTTP/1.0\\r\\ncontent-length: 2\\r\\n\\r\\n{}")

    atexit.register(ask)
"""


def leave_behind(project: Project, way: str) -> None:
    """Each task of the agent starts something that calls the model later, and answers without it."""
    project.edit("shop.py", "        return said\n", f"        {way}()\n        return said\n")
    project.write("shop.py", (project.root / "shop.py").read_text(encoding="utf-8") + LEFT_BEHIND)
    project.commit(way)


@pytest.mark.parametrize("way", ["by_thread", "by_timer", "by_exit_handler"])
def test_a_call_after_the_report_takes_the_green_back(way: str, gated: Project, model: ModelServer) -> None:
    """It is refused and told, the report turns invalid, and neither pytest nor the required check ends with 0."""
    leave_behind(gated, way)
    result = gated.pytest()
    verify = gated.baseline("verify")

    # which task's call comes first after the end is a matter of time
    whose = "" if way == "by_exit_handler" else r" for task 'task-[123]' of support"
    said = (
        rf"pytest-fanout: not measured \(invalid\): POST 127\.0\.0\.1:{model.port} was called{whose} after the run had "
        r"ended; it was refused, because it cannot be counted; mend: let the agent wait for what it starts, then run"
        r" again\n"
    )
    assert re.search(said, result.err)
    assert (result.verdict, result.exit, verify.exit) == ("invalid", 1, 3)
    assert "call-after-end" in {problem["slug"] for problem in result.report["problems"]}
    assert model.log == []


def test_an_exit_handler_cannot_go_round_the_hooks(gated: Project, model: ModelServer) -> None:
    """A connection to a model server known from the run is refused until the process is gone."""
    leave_behind(gated, "past_the_hooks")
    result = gated.pytest()

    assert (result.verdict, result.exit) == ("invalid", 1)
    assert model.log == []


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_threads_at_work_get_a_moment(options: tuple[str, ...], gated: Project, model: ModelServer) -> None:
    """A thread that is still at work when the last task has ended is waited for, so that its call is late, not lost."""
    leave_behind(gated, "by_short_thread")
    result = gated.pytest(*options)

    assert (result.verdict, result.exit) == ("invalid", 1)
    assert result.report["totals"]["late"] == 15  # three tasks, five trials
    assert model.log == []


def test_a_later_run_of_the_same_process_begins_anew(gated: Project, model: ModelServer) -> None:
    """A program that runs pytest and then asks a model itself is let by; a second run in it measures as the first."""
    gated.write(
        "outer.py",
        "import os, sys, httpx, pytest\n"
        "codes = [int(pytest.main(['-q', '-p', 'no:cacheprovider', '--fanout-budget'])) for _ in range(2)]\n"
        "body = {'model': 'm-x', 'messages': [{'role': 'user', 'content': 'hi'}]}\n"
        "answer = httpx.post(os.environ['OPENAI_BASE_URL'] + '/chat/completions', json=body)\n"
        "print('codes', codes, answer.status_code)\n",
    )
    gated.commit("a program around pytest")
    done = gated.run(sys.executable, "outer.py")

    assert "codes [0, 0] 200" in done.out, done.text
    assert done.exit == 0
    assert len(model.log) == 1
