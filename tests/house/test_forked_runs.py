"""A project's commands run as forks of a warm interpreter: what a process is given and leaves is as if started anew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from project import FORKS, Project

PROBE = """
import os, sys
def test_probe():
    print("out", os.getcwd(), sys.argv, os.environ["GREETING"], os.environ.get("HOME"), sys.path[0], sys.stdin.read())
    print("err", "httpx" in sys.modules, "numpy" in sys.modules, file=sys.stderr)
    assert os.environ["GREETING"] != "bad"
"""


@pytest.fixture
def probe(tmp_path: Path) -> Project:
    made = Project(tmp_path / "probe", "http://127.0.0.1:9")
    made.write("test_probe.py", PROBE)
    return made


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:fanout", *words]


def test_a_fork_is_what_a_fresh_process_is(probe: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folder, arguments, environment, standard input, both texts and exit code are those of a process of its own."""

    def facts(text: str) -> str:
        return next(line for line in text.splitlines() if line.startswith(("out", "err", "..", ".out")))

    for greeting, exit_code in (("good", 0), ("bad", 1)):
        monkeypatch.delenv("FRESH_INTERPRETERS", raising=False)
        assert FORKS.suits(command(), probe.environ)
        forked = probe.run(*command("test_probe.py"), GREETING=greeting, HOME="/nowhere")
        monkeypatch.setenv("FRESH_INTERPRETERS", "1")
        fresh = probe.run(*command("test_probe.py"), GREETING=greeting, HOME="/nowhere")
        assert forked.exit == fresh.exit == exit_code
        assert str(probe.root) in facts(forked.out)
        assert (facts(forked.out), forked.err) == (facts(fresh.out), fresh.err)


def test_settings_of_python_get_an_interpreter_of_their_own(probe: Project) -> None:
    """What an interpreter reads when it starts is not the fork's to change."""
    assert not FORKS.suits(command(), probe.environ | {"PYTHONHASHSEED": "7"})
    assert not FORKS.suits(command(), probe.environ | {"LC_ALL": "C"})
    assert not FORKS.suits([sys.executable, "-X", "dev", "-m", "pytest"], probe.environ)
    assert not FORKS.suits([sys.executable, "-m", "http.server"], probe.environ)


def test_a_fork_that_hangs_is_ended(probe: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time a fork is killed, and what it said so far is in the error."""
    monkeypatch.delenv("FRESH_INTERPRETERS", raising=False)
    probe.write("test_hang.py", "import time\ndef test_hang():\n    print('here', flush=True)\n    time.sleep(600)\n")
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        probe.run(*command("test_hang.py"), timeout=10)
    assert b"here" in caught.value.stdout
