"""A fork's change is recorded with a real key that its code never sees: not in a variable, a process, or an answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from model_server import ModelServer
from project import FOREIGN_PLUGINS_OFF, Project
from workflow_runner import Event, Ran, Runner

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
_ADDOPTS = f"-p no:cacheprovider {FOREIGN_PLUGINS_OFF} --fanout-trials=1"
KEY = "sk-real-0123456789abcdef"
#: Another user, who may read files all the same: the tests' Python can lie in root's own folder. That opens neither the
#: environments nor the memory of other users' processes.
_AS_USER = "--clear-groups --inh-caps=+dac_read_search --ambient-caps=+dac_read_search"
_SUDO = f"""#!/bin/bash
# As sudo on GitHub's machines: anything as root; with -u as that user.
if [ "$1" = -u ]; then
  exec setpriv --reuid="$(id -u "$2")" --regid="$(id -g "$2")" {_AS_USER} -- "${{@:3}}"
fi
exec "$@"
"""
#: What a fork might do with its chance: look wherever a key could be, and have it sent to a server of its own.
_THIEF = """

import pathlib, socket, threading

def _look():
    found = [repr(dict(os.environ))]
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            found.append(path.read_bytes().decode("utf-8", "replace"))
        except OSError as error:
            found.append(type(error).__name__)
    listener = socket.create_server(("127.0.0.1", 0))
    def listen():
        connection, _ = listener.accept()
        found.append(connection.recv(65536).decode("utf-8", "replace"))
        connection.close()
    threading.Thread(target=listen, daemon=True).start()
    said = httpx.post(f"http://127.0.0.1:{listener.getsockname()[1]}/v1/chat/completions", json={"model": "m"},
                      headers={"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}).text
    with open("stolen.txt", "a") as file:
        file.write("\\n".join([*found, said]))
    link = pathlib.Path("fixtures/recordings/support/task-1-link/t1.jsonl")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to("SECRET_FILE")

_original = answer

def answer(task):
    _look()
    return _original(task)
"""


def can_switch() -> str | None:
    """Why no other user can run our Python here; None where it can."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return "needs root, as the machines of CI have it by sudo"
    words = ["setpriv", "--reuid=65534", "--regid=65534", *_AS_USER.split(), "--", "/bin/bash", "-c", '"$@"', "bash"]
    done = subprocess.run([*words, sys.executable, "-c", "import pytest_fanout"], cwd="/", capture_output=True)
    return None if done.returncode == 0 else "needs a machine that lets root become another user"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can enter."""
    folder = Path(tempfile.mkdtemp(prefix="fanout-record-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def record(folder: Path, project: Project, branch: str, **inputs: str) -> Ran:
    """The workflow as shipped, for a user that is there already and in a home of the test's."""
    document: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "fanout-record.yml").read_text())
    document["jobs"]["record"]["env"] |= {
        "AGENT_USER": "nobody",
        "AGENT_HOME": str(folder / "agent"),
        "AGENT_ENV": f"OPENAI_BASE_URL={project.environ['OPENAI_BASE_URL']}\nPYTEST_ADDOPTS={_ADDOPTS}",
    }
    remote = folder / "shop.git"
    project.git("clone", "-q", "--bare", str(project.root), str(remote))
    runner = Runner(folder / "runner", remote, project.environ, {"OPENAI_API_KEY": KEY})
    runner.shims.joinpath("sudo").write_text(_SUDO)
    runner.shims.joinpath("sudo").chmod(0o755)
    payload = {"inputs": {"ref": branch, "tasks": "stale", "calls": "100"} | inputs}
    return runner.run(
        document, Event("workflow_dispatch", payload, project.git("rev-parse", "main"), "refs/heads/main")
    )


@pytest.mark.skipif(can_switch() is not None, reason=str(can_switch()))
def test_a_fork_is_recorded_and_sees_no_key(project: Project, model: ModelServer, open_folder: Path) -> None:
    """The server is paid with the real key; what the change found, and what leaves the machine, does not hold it."""
    secret = open_folder / "secret.txt"
    secret.write_text("of the machine")
    secret.chmod(0o600)
    shutil.copytree(ROOT / ".github", project.root / ".github")
    project.commit("the gate")
    project.git("switch", "-q", "-c", "theirs")
    project.write_tasks({"task-1": {"ask": "another question", "items": 1}})
    project.write("shop.py", (project.root / "shop.py").read_text() + _THIEF.replace("SECRET_FILE", str(secret)))
    project.commit("from a fork")

    ran = record(open_folder, project, "theirs")

    stolen = (open_folder / "agent" / "change" / "stolen.txt").read_text()
    recorded = open_folder / "runner" / "artifacts" / "fanout-recording"
    files = [path for path in recorded.rglob("*") if path.is_file()]
    assert {entry.headers["authorization"] for entry in model.generated} == {f"Bearer {KEY}"}, ran.log
    assert "PermissionError" in stolen
    assert "key-misled" in stolen
    assert "task-1-link" not in "".join(map(str, files))
    assert [path.name for path in sorted(files)].count("t1.jsonl") >= 1
    assert (recorded / "fanout-report.json").exists()
    for text in (stolen, ran.log, *(path.read_text() for path in files)):
        assert KEY not in text
        assert "of the machine" not in text


def test_the_scripts_refuse_a_key_that_is_no_dummy(tmp_path: Path) -> None:
    """Started without the gateway around it, the change would be given the real key: it is not begun."""
    shim = tmp_path / "sudo"
    shim.write_text('#!/bin/bash\n[ "$1" = install ] || echo started\n')
    shim.chmod(0o755)
    (tmp_path / "roots.pem").touch()
    environ = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "AGENT_USER": "nobody",
        "AGENT_HOME": str(tmp_path / "agent"),
        "AGENT_KEYS": "ANTHROPIC_API_KEY OPENAI_API_KEY",
        "SSL_CERT_FILE": str(tmp_path / "roots.pem"),
    }
    script = [str(ROOT / ".github" / "actions" / "fanout-record" / "as-agent.sh"), "pytest"]
    real = subprocess.run(script, env=environ | {"OPENAI_API_KEY": KEY}, capture_output=True, text=True)
    dummy = subprocess.run(
        script, env=environ | {"OPENAI_API_KEY": "fanout-sealed-OPENAI_API_KEY-0"}, capture_output=True, text=True
    )

    assert (real.returncode, real.stdout) == (1, "")
    assert real.stderr == "as-agent.sh: OPENAI_API_KEY is no dummy: run this under fanout-gateway\n"
    assert (dummy.returncode, dummy.stdout) == (0, "started\n")
