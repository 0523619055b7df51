"""The process that proves recordings, when it does not do what it is there for: nothing is taken for proved."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_fanout.session.beside.process import arguments
from pytest_fanout.session.outside.processes import Reaper
from pytest_fanout.session.proof import Proof, ProofNotRun, Prover
from pytest_fanout.session.proof.prover import environment

WORK = SimpleNamespace(agent="support", task="refund", trial=1)
HEAD = "the recording could not be proved, so it was not stored: "
MEND = (
    "\n  mend: find out why it fails there (fixtures must stand being used in two processes at once), then record again"
    "\n  see: docs/messages.md#proof-not-run"
)
BEGUN = """
import json, os, signal, sys, time
given = json.load(sys.stdin)
jobs = os.fdopen(given["jobs"])
def tell(**answer):
    os.write(given["answers"], json.dumps(answer).encode() + b"\\n")
tell(begun=True)
"""


def config(folder: Path, *args: str, plugins: Any = None, installed: tuple[str, ...] = ()) -> Any:
    invocation = SimpleNamespace(args=args, plugins=plugins, dir=folder)
    manager = SimpleNamespace(hasplugin=lambda name: name in installed)
    return SimpleNamespace(invocation_params=invocation, pluginmanager=manager)


@pytest.fixture
def prover(tmp_path: Path) -> Iterator[Callable[..., Prover]]:
    """Makes a prover whose process runs the given lines."""
    reaper, made = Reaper(), []

    def make(lines: str, **limits: float) -> Prover:
        command = (sys.executable, "-S", "-c", textwrap.dedent(lines))
        made.append(Prover(config(tmp_path), reaper, command=command, **limits))
        return made[-1]

    yield make
    for each in made:
        each.end()
    reaper.stop()


def refusal(prover: Prover, folder: Path, wall_seconds: int | None = 900) -> str:
    with pytest.raises(ProofNotRun) as caught:
        prover.prove(WORK, folder, wall_seconds)
    assert caught.value.slug == "proof-not-run"
    return str(caught.value)


def test_each_job_gets_its_answer(prover: Callable[..., Prover], tmp_path: Path) -> None:
    """One process answers one job after another."""
    lines = BEGUN + "for job in jobs:\n    tell(differences=[job[:21], str(os.getpid())], volatile=['x'])\n"
    made = prover(lines)
    first, second = made.prove(WORK, tmp_path, 900), made.prove(WORK, tmp_path, None)

    assert first == second
    assert (first.differences[0], first.volatile) == ('{"agent": "support", ', ("x",))


def test_one_that_dies_before_it_begins(prover: Callable[..., Prover], tmp_path: Path) -> None:
    """What it has said last is shown; it is not started again for each of a thousand trials."""
    made = prover(f"open('{tmp_path}/started', 'a').write('x'); import sys; sys.exit('no such option')")
    text = f"{HEAD}the process that proves recordings exited with 1; its last lines:\nno such option{MEND}"

    assert [refusal(made, tmp_path), refusal(made, tmp_path)] == [text, text]
    assert (tmp_path / "started").read_text() == "x"


def test_one_that_dies_amid_a_trial(prover: Callable[..., Prover], tmp_path: Path) -> None:
    """The trial is not proved, and the next one gets a new process, also where a forked child holds the pipe open."""
    lines = f"""
    if os.path.exists('{tmp_path}/again'):
        jobs.readline(); tell(differences=[], volatile=[])
    open('{tmp_path}/again', 'w').close()
    jobs.readline()
    if os.fork():
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)
    """
    made = prover(BEGUN + textwrap.dedent(lines))

    assert refusal(made, tmp_path) == f"{HEAD}the process that proves recordings was ended by SIGKILL{MEND}"
    assert made.prove(WORK, tmp_path, 900) == Proof()


def test_one_that_hangs(prover: Callable[..., Prover], tmp_path: Path) -> None:
    """Neither a start nor a trial is waited for without end."""
    late = prover("import time; time.sleep(60)", start_s=0.1)
    stuck = prover(BEGUN + "time.sleep(60)", more_s=0.1)

    assert refusal(late, tmp_path) == f"{HEAD}the process that proves recordings did not begin in time{MEND}"
    assert refusal(stuck, tmp_path, 0) == f"{HEAD}the process that proves recordings did not end a trial in time{MEND}"


def test_a_task_that_it_has_not_collected(prover: Callable[..., Prover], tmp_path: Path) -> None:
    """Why it could not prove a trial is handed on as it says it."""
    made = prover(BEGUN + "jobs.readline(); tell(failed='did not collect this task')")

    assert refusal(made, tmp_path) == f"{HEAD}did not collect this task{MEND}"


def test_one_that_cannot_be_started(tmp_path: Path) -> None:
    """No interpreter, no proof."""
    reaper = Reaper()
    made = Prover(config(tmp_path), reaper, command=(str(tmp_path / "none"),))
    text = refusal(made, tmp_path)
    reaper.stop()

    assert text == f"{HEAD}the process that proves recordings cannot be started: No such file or directory{MEND}"


def test_it_dies_with_a_run_that_is_killed(tmp_path: Path) -> None:
    """After kill -9 of the run that records, nothing of it is left."""
    lines = f"""
    import os, signal, sys
    sys.path.insert(0, {str(Path(__file__).parent)!r})
    from pathlib import Path
    from test_prover import BEGUN, Prover, Reaper, config
    lines = BEGUN.replace("True", "os.getpid()") + "time.sleep(60)"
    made = Prover(config(Path.cwd()), Reaper(), command=(sys.executable, "-S", "-c", lines))
    made.begin()
    print(made._child._receive(made._child._begin_until, "")["begun"], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    environ = os.environ | {"TMPDIR": str(tmp_path)}  # nobody is left to remove what it has put there
    command = [sys.executable, "-c", textwrap.dedent(lines)]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    pid = int(done.stdout)
    for _ in range(500):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            break
        state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
        if not state or state.startswith("Z"):
            break
    else:
        pytest.fail("it is still there")


def test_its_arguments_are_those_of_the_run(tmp_path: Path) -> None:
    """It runs what the run runs, but without workers and coverage."""
    words = ("--fanout-budget", "-n", "4", "--", "tests")
    given = config(tmp_path, *words, plugins=["shop.hooks", object()], installed=("xdist", "pytest_cov"))

    quiet = ["-W", "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"]
    assert arguments(given) == [
        "--fanout-budget", "-n", "4", *quiet, "-p", "shop.hooks", "-n0", "--no-cov", "--", "tests"
    ]  # fmt: skip
    assert arguments(config(tmp_path, "-q", "tests")) == ["-q", "tests", *quiet]


def test_its_temporary_files_are_its_own(prover: Callable[..., Prover], tmp_path: Path) -> None:
    """Two pytest runs in one base folder would empty it for each other. The folder is gone with the process."""
    lines = BEGUN + "for job in jobs:\n    tell(differences=given['argv'], volatile=[])\n"
    made = prover(lines)
    *_, argument = made.prove(WORK, tmp_path, 900).differences
    made.end()

    option, _, folder = argument.partition("=")
    assert (option, Path(folder).name, Path(folder).parent.exists()) == ("--basetemp", "tmp", False)


@pytest.mark.parametrize(("here", "there"), [(None, "20011"), ("0", "20011"), ("20011", "20021")])
def test_its_hashes_are_others(monkeypatch: pytest.MonkeyPatch, here: str | None, there: str) -> None:
    """Whatever seed this run has, the process that proves has another."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    if here is not None:
        monkeypatch.setenv("PYTHONHASHSEED", here)

    assert environment()["PYTHONHASHSEED"] == there


def test_credentials_of_aws_are_dummies_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """They cannot be sealed, and a day on temporary ones have run out: where there are any, it signs with others."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ROLE_ARN"):
        monkeypatch.delenv(name, raising=False)
    assert "AWS_ACCESS_KEY_ID" not in environment()
    monkeypatch.setenv("AWS_PROFILE", "dev")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "FwoGZXIvYXdzEJ")
    there = environment()

    assert (there["AWS_ACCESS_KEY_ID"], there["AWS_SECRET_ACCESS_KEY"]) == ("fanout-dummy", "fanout-dummy")
    assert "AWS_SESSION_TOKEN" not in there
