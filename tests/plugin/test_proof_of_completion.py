"""What ends, empties or dresses up a run: pytest may say 0, and the required check never does."""

from __future__ import annotations

import pytest
from project import Project

DRESSED = """
import pytest

@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    session.exitstatus = 0

def pytest_unconfigure(config):
    import os, sys
    sys.stdout.flush()
    os._exit(0)
"""
KILLED = "import os, signal\n\ndef pytest_runtest_teardown(item):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
TIMED_OUT = "import time\nimport httpx\n\ndef answer(task):\n    time.sleep(60)\n"


@pytest.mark.parametrize(
    ("options", "conftest", "code", "said"),
    [
        ("--collect-only", "", 0, "0 reports match"),
        ("--setup-plan", "", None, ""),
        ("", KILLED, -9, "did not finish"),
        ("", DRESSED, 0, "stale"),
    ],
    ids=["collect-only", "setup-plan", "killed", "dressed up"],
)
def test_a_run_that_proves_nothing(gated: Project, options: str, conftest: str, code: int | None, said: str) -> None:
    """Whatever its own exit code: no report, one that is not finished, or one that says what was not measured."""
    if conftest:
        gated.write("conftest.py", conftest)
    if conftest == DRESSED:
        gated.edit("shop.py", "Plan briefly.", "Plan at length.")
    gated.commit("attack")

    ran = gated.pytest(*options.split())
    verified = gated.baseline("verify", "--reports-expected", "1", CI="true")

    assert code is None or ran.exit == code, ran.text
    assert verified.exit != 0, verified.text
    assert said in verified.text


def test_a_plugin_that_ends_what_takes_too_long(gated: Project) -> None:
    """pytest-timeout ends the process from a thread; its report was never finished."""
    gated.write("shop.py", TIMED_OUT)
    gated.commit("slow")

    ran = gated.pytest("--timeout=1", "--timeout-method=thread", PYTEST_ADDOPTS="")
    verified = gated.baseline("verify", CI="true")

    assert ran.exit != 0
    assert verified.exit != 0
    assert "did not finish" in verified.text
