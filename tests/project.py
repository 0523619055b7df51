"""A small project with an agent, in a real git repository; pytest and the tools run in real subprocesses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forked import Forks

AGENT = '''\
"""A small agent: it plans, then takes one model call a step."""
import os
import httpx

PLANNER = "Plan briefly."
STEPS_PER_ITEM = 1


def ask(client, system, text):
    answer = client.post(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json={"model": "m-x", "messages": [{"role": "system", "content": system}, {"role": "user", "content": text}]},
        headers={"authorization": "Bearer " + (os.environ.get("OPENAI_API_KEY") or "none")},
    )
    answer.raise_for_status()
    return answer.json()["choices"][0]["message"]["content"]


def answer(task):
    with httpx.Client(verify=False) as client:  # a TLS context that nobody needs costs 30 ms
        said = ask(client, PLANNER, task["ask"])
        for step in range(task["items"] * STEPS_PER_ITEM):
            said = ask(client, "Work.", f"{task['ask']} step {step}")
        return said
'''

SETTINGS = """\
[tool.fanout.agents.support]
entrypoint = "shop:answer"
evalset    = "fixtures/support.jsonl"
"""

#: Plugins of the tests' environment that no project here needs: loading them costs five times what the gate does.
_FOREIGN_PLUGINS = ("hypothesispytest", "respx", "anyio", "asyncio", "timeout", "requests_mock")
FOREIGN_PLUGINS_OFF = " ".join(f"-p no:{name}" for name in _FOREIGN_PLUGINS)


#: Where this process has its commands started.
FORKS = Forks()


@dataclass
class Result:
    """What a subprocess left: exit code, its text, and the JSON report where there is one."""

    exit: int
    out: str
    err: str
    report: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        return self.out + self.err

    @property
    def verdict(self) -> str:
        assert self.report is not None, self.text
        return str(self.report["verdict"])

    @property
    def agent(self) -> dict[str, Any]:
        assert self.report is not None, self.text
        return dict(self.report["classes"][0])


class Project:
    """Files, git and commands of one project."""

    def __init__(self, root: Path, base_url: str) -> None:
        self.root = root
        self.base_url = base_url
        self.environ = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("GITHUB_", "GIT_", "PYTEST_", "OPENAI_", "ANTHROPIC_", "COV_"))
            and key not in ("CI", "PYTHONPATH")
        } | {
            "OPENAI_BASE_URL": base_url + "/v1",
            "ANTHROPIC_BASE_URL": base_url,
            "PYTHONDONTWRITEBYTECODE": "1",
            "NO_COLOR": "1",
            "COLUMNS": "80",
            "PYTHONIOENCODING": "utf-8",
            "PYTEST_ADDOPTS": FOREIGN_PLUGINS_OFF,
        }

    def lay_out(self, tasks: int = 3) -> None:
        self.write("pyproject.toml", SETTINGS)
        self.write("shop.py", AGENT)
        self.write(".gitignore", "fanout-report.json\n__pycache__/\n.pytest_cache/\n")
        self.write_tasks({f"task-{n}": {"ask": f"question {n}", "items": n} for n in range(1, tasks + 1)})
        self.root.joinpath("empty.ini").touch()
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Dana")
        self.git("config", "user.email", "dana@example.com")

    def copy_to(self, root: Path, base_url: str, *, report: bool = False) -> Project:
        """The same project, with its history, somewhere else and speaking to another server; its report if asked."""
        left = shutil.ignore_patterns("fanout-report.json") if not report else None
        shutil.copytree(self.root, root, symlinks=True, ignore=left)
        return Project(root, base_url)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def write_tasks(self, tasks: dict[str, Any], name: str = "fixtures/support.jsonl", **more: Any) -> None:
        self.write(
            name, "".join(json.dumps({"id": key, "input": value, **more}) + "\n" for key, value in tasks.items())
        )

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.root / name).read_text(encoding="utf-8")
        assert old in text
        self.write(name, text.replace(old, new))

    def git(self, *args: str) -> str:
        self.root.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["git", *args], cwd=self.root, env=self.environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def commit(self, message: str = "change") -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def run(self, *argv: str, cwd: Path | None = None, timeout: float = 120, **environ: str) -> Result:
        whole = self.environ | environ
        if FORKS.suits(argv, whole):
            return Result(*FORKS.run(argv, cwd or self.root, whole, timeout))
        done = subprocess.run(
            argv,
            cwd=cwd or self.root,
            env=whole,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def pytest(self, *args: str, cwd: Path | None = None, **environ: str) -> Result:
        """``pytest --fanout-budget …`` in the project, with its report."""
        result = self.run(
            sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--fanout-budget", *args, cwd=cwd, **environ
        )
        report = (cwd or self.root) / "fanout-report.json"
        if report.exists():
            result.report = json.loads(report.read_text(encoding="utf-8"))
        return result

    def baseline(self, *args: str, cwd: Path | None = None, **environ: str) -> Result:
        """``fanout-baseline …`` in the project."""
        return self.run(sys.executable, "-m", "pytest_fanout.cli.baseline", *args, cwd=cwd, **environ)

    def record_and_accept(self) -> None:
        """Record every trial, accept the first anchor, commit."""
        recorded = self.pytest("--fanout-mode=record")
        assert recorded.verdict == "no-baseline", recorded.text
        accepted = self.baseline("accept", "--reason", "the first anchor of this project", "--yes")
        assert accepted.exit == 0, accepted.text
        self.commit("accept the first anchor")
