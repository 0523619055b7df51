"""Runs the shell steps of a workflow as GitHub's runner would: expressions, files, events, artifacts, needed jobs.

Of other people's actions only what these workflows use is stood in for: checkout, setup-python (nothing is set up),
upload-artifact and download-artifact. ``python -m pip install`` is noted and not done: the tests' environment has all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from typing import Any

import yaml

_TOKEN = re.compile(r"\s*('(?:[^']|'')*'|\|\||&&|==|!=|[!(),]|[A-Za-z_][\w.*-]*|\d+)")
_PIP = """#!/bin/bash
if [ "$1 $2 $3" = "-m pip install" ]; then echo "${*:4}" >> "${RUNNER_PIP_LOG:-/dev/null}"; exit 0; fi
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin" && ln -sf "$0" "$3/bin/python"; exit 0; fi
exec PYTHON "$@"
"""


class Expression:
    """``${{ … }}``: paths, literals, ``!``, ``==``, ``!=``, ``&&``, ``||``, toJSON and the status functions."""

    def __init__(self, text: str, contexts: Mapping[str, Any], ok: bool) -> None:
        self._tokens = _TOKEN.findall(text)
        assert "".join(self._tokens) == re.sub(r"\s+(?=(?:[^']*'[^']*')*[^']*$)", "", text), text
        self._contexts, self._ok, self._at = contexts, ok, 0

    def value(self) -> Any:
        found = self._or()
        assert self._at == len(self._tokens), self._tokens
        return found

    def _take(self, *wanted: str) -> str | None:
        if self._at < len(self._tokens) and (not wanted or self._tokens[self._at] in wanted):
            self._at += 1
            return str(self._tokens[self._at - 1])
        return None

    def _or(self) -> Any:
        left = self._and()
        while self._take("||"):
            right = self._and()
            left = left or right
        return left

    def _and(self) -> Any:
        left = self._equal()
        while self._take("&&"):
            right = self._equal()
            left = left and right
        return left

    def _equal(self) -> Any:
        left = self._unary()
        if sign := self._take("==", "!="):
            return (left == self._unary()) == (sign == "==")
        return left

    def _unary(self) -> Any:
        if self._take("!"):
            return not self._unary()
        token = self._take()
        assert token is not None
        if token == "(":
            inner = self._or()
            assert self._take(")")
            return inner
        if token[0] == "'":
            return token[1:-1].replace("''", "'")
        if self._take("("):
            given = [] if self._take(")") else [self._or()]
            if given:
                assert self._take(")")
            functions = {"always": lambda: True, "success": lambda: self._ok, "failure": lambda: not self._ok}
            return functions[token]() if token in functions else {"toJSON": _to_json}[token](*given)
        if token in ("true", "false"):
            return token == "true"
        return _walk(self._contexts, token.split(".")) if not token.isdigit() else int(token)


def _to_json(value: Any) -> str:
    return json.dumps(value, indent=2)


def _walk(value: Any, names: list[str]) -> Any:
    for at, name in enumerate(names):
        if name == "*":
            return [_walk(entry, names[at + 1 :]) for entry in (value.values() if isinstance(value, dict) else value)]
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


@dataclass
class Event:
    """What started the run: its name, payload, the commit that is tested and the ref it has."""

    name: str
    payload: dict[str, Any]
    sha: str
    ref: str


@dataclass
class Ran:
    """What came of a run. ``results``: job id -> the results of its legs; ``log``: all that the steps printed."""

    results: dict[str, list[str]] = field(default_factory=dict)
    log: str = ""
    summary: str = ""
    pip: list[str] = field(default_factory=list)

    def result(self, job: str) -> str:
        """As ``needs`` sees it: the worst of its legs."""
        found = self.results[job]
        return next((word for word in ("cancelled", "failure", "skipped") if word in found), "success")


class Runner:
    """One repository on the server, and what its runs have kept.

    Args:
        remote: a bare repository.
        environ: of the machine; GITHUB_* and RUNNER_* are added.
        secrets: of the repository and its environments. None: a run that asks for one fails the test, as for a fork.
    """

    def __init__(
        self, folder: Path, remote: Path, environ: Mapping[str, str], secrets: Mapping[str, str] | None = None
    ) -> None:
        self.folder, self.remote, self.secrets = folder, remote, secrets
        self.artifacts = folder / "artifacts"
        self.artifacts.mkdir(parents=True)
        self._count = 0
        shims = folder / "shims"
        shims.mkdir()
        for name in ("python", "python3"):
            shims.joinpath(name).write_text(_PIP.replace("PYTHON", sys.executable))
            shims.joinpath(name).chmod(0o755)
        path = os.pathsep.join((str(shims), str(Path(sys.executable).parent), environ["PATH"]))
        self.shims = shims
        self.environ = {**environ, "PATH": path, "CI": "true", "GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "o/shop"}

    # --- jobs ------------------------------------------------------------------------------------------------------

    def run(self, workflow: Path | dict[str, Any], event: Event, *, given: Mapping[str, str] | None = None) -> Ran:
        """Every job of a workflow, those that need others after them.

        Args:
            given: results of jobs that are not to run: job id -> "cancelled", "skipped", …
        """
        document = yaml.safe_load(workflow.read_text()) if isinstance(workflow, Path) else workflow
        ran, needs = Ran(), dict[str, Any]()
        for name, job in document["jobs"].items():
            wanted = {need: needs[need] for need in job.get("needs", ())}
            ok = all(need["result"] == "success" for need in wanted.values())
            contexts = self._contexts(event) | {"needs": wanted, "env": {}, "inputs": event.payload.get("inputs") or {}}
            if given and name in given:
                ran.results[name] = [given[name]]
            elif not self._holds(job.get("if"), contexts, ok):
                ran.results[name] = ["skipped"]
            else:
                matrix = job.get("strategy", {}).get("matrix", {})
                legs = [dict(zip(matrix, values, strict=True)) for values in product(*matrix.values())]
                ran.results[name] = [self._job(job, event, contexts | {"matrix": leg}, ran) for leg in legs]
            needs[name] = {"result": ran.result(name)}
        return ran

    def _contexts(self, event: Event) -> dict[str, Any]:
        github = {"event": event.payload, "event_name": event.name, "sha": event.sha, "ref": event.ref}
        return {"github": {**github, "token": "ghs_token"}, "secrets": self.secrets or {}}

    def _holds(self, condition: str | None, contexts: Mapping[str, Any], ok: bool) -> bool:
        if condition is None:
            return ok
        text = condition.strip().removeprefix("${{").removesuffix("}}")
        found = bool(Expression(text.strip(), contexts, ok).value())
        return found if re.search(r"\b(always|success|failure)\(", text) else found and ok

    def _job(self, job: dict[str, Any], event: Event, contexts: dict[str, Any], ran: Ran) -> str:
        self._count += 1
        place = self.folder / f"job{self._count}"
        for name in ("workspace", "temp"):
            (place / name).mkdir(parents=True)
        event_file = place / "event.json"
        event_file.write_text(json.dumps(event.payload))
        environ = self.environ | {
            "GITHUB_EVENT_NAME": event.name,
            "GITHUB_EVENT_PATH": str(event_file),
            "GITHUB_SHA": event.sha,
            "GITHUB_REF": event.ref,
            "GITHUB_REF_NAME": event.ref.rsplit("/", 1)[-1],
            "GITHUB_WORKSPACE": str(place / "workspace"),
            "RUNNER_TEMP": str(place / "temp"),
            "RUNNER_PIP_LOG": str(place / "pip.log"),
        }
        contexts = contexts | {"runner": {"temp": str(place / "temp")}, "env": {}}
        environ |= self._filled(job.get("env", {}), contexts)
        contexts["env"] = job.get("env", {})
        for name in ("ENV", "OUTPUT", "PATH", "STEP_SUMMARY"):
            (place / name).touch()
            environ[f"GITHUB_{name}"] = str(place / name)
        ok = self._steps(job["steps"], event, contexts, environ, place / "workspace", ran)
        ran.summary += (place / "STEP_SUMMARY").read_text()
        if (place / "pip.log").exists():
            ran.pip += (place / "pip.log").read_text().splitlines()
        return "success" if ok else "failure"

    # --- steps -----------------------------------------------------------------------------------------------------

    def _steps(
        self,
        steps: list[dict[str, Any]],
        event: Event,
        contexts: dict[str, Any],
        environ: dict[str, str],
        workspace: Path,
        ran: Ran,
    ) -> bool:
        ok = True
        for step in steps:
            if not self._holds(step.get("if"), contexts, ok):
                continue
            environ_here = environ | self._filled(step.get("env", {}), contexts)
            if "run" in step:
                done = self._shell(step, contexts, environ_here, workspace, ran)
            else:
                settings = self._filled(step.get("with", {}), contexts)
                done = self._uses(step["uses"], settings, event, contexts, environ_here, workspace, ran)
            ok = ok and (done or step.get("continue-on-error", False) is True)
        return ok

    def _shell(
        self, step: dict[str, Any], contexts: dict[str, Any], environ: dict[str, str], workspace: Path, ran: Ran
    ) -> bool:
        script = self._text(step["run"], contexts)
        options = ["--noprofile", "--norc", "-eo", "pipefail"] if step.get("shell") == "bash" else ["-e"]
        done = subprocess.run(
            ["bash", *options, "-c", script],
            cwd=workspace,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        ran.log += f"--- {step.get('name', script.splitlines()[0])}\n{done.stdout}\n"
        return done.returncode == 0

    def _uses(
        self,
        uses: str,
        settings: dict[str, str],
        event: Event,
        contexts: dict[str, Any],
        environ: dict[str, str],
        workspace: Path,
        ran: Ran,
    ) -> bool:
        if uses.startswith(("$/", "./")):
            action = yaml.safe_load((workspace / uses[2:] / "action.yml").read_text())
            inputs = {name: entry.get("default", "") for name, entry in action.get("inputs", {}).items()}
            assert set(settings) <= set(inputs), settings
            inner = contexts | {"inputs": inputs | settings, "env": {}}
            return self._steps(action["runs"]["steps"], event, inner, environ, workspace, ran)
        kind = uses.partition("@")[0]
        if kind == "actions/checkout":
            self._checkout(settings, event, workspace / settings.get("path", ""))
            return True
        if kind == "actions/upload-artifact":
            return self._upload(settings, workspace, ran)
        if kind == "actions/download-artifact":
            return self._download(settings, workspace, ran)
        assert kind == "actions/setup-python", uses
        return True

    def _checkout(self, settings: Mapping[str, str], event: Event, folder: Path) -> None:
        def git(*words: str) -> None:
            subprocess.run(["git", *words], cwd=folder, env=self.environ, check=True, capture_output=True)

        folder.mkdir(parents=True, exist_ok=True)
        wanted = settings.get("ref") or event.sha
        git("init", "-q")
        git("remote", "add", "origin", self.remote.as_uri())
        depth = int(settings.get("fetch-depth", 1))
        if depth == 0:
            git("fetch", "-q", "origin", "+refs/heads/*:refs/remotes/origin/*")
        git("fetch", "-q", *([f"--depth={depth}"] if depth else []), "origin", wanted)
        git("checkout", "-q", "--detach", "FETCH_HEAD")

    def _upload(self, settings: Mapping[str, str], workspace: Path, ran: Ran) -> bool:
        source, name = workspace / settings["path"], settings["name"]
        if not source.exists() or (source.is_dir() and not any(source.iterdir())):
            ran.log += f"--- upload-artifact: no files were found with the provided path: {settings['path']}\n"
            return settings.get("if-no-files-found") != "error"
        target = self.artifacts / name
        if target.exists():
            ran.log += f"--- upload-artifact: an artifact with the name {name} already exists\n"
            return False
        target.mkdir()
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)
        return True

    def _download(self, settings: Mapping[str, str], workspace: Path, ran: Ran) -> bool:
        into = workspace / settings["path"]
        if "pattern" in settings:
            for found in sorted(self.artifacts.iterdir()):
                if fnmatch(found.name, settings["pattern"]):
                    shutil.copytree(found, into / found.name)
            return True
        if not (self.artifacts / settings["name"]).exists():
            ran.log += f"--- download-artifact: no artifact of the name {settings['name']}\n"
            return False
        shutil.copytree(self.artifacts / settings["name"], into, dirs_exist_ok=True)
        return True

    # --- expressions -----------------------------------------------------------------------------------------------

    def _text(self, text: str, contexts: Mapping[str, Any]) -> str:
        def value(match: re.Match[str]) -> str:
            if "secrets." in match.group(1):
                assert self.secrets is not None, "a run without secrets asked for one"
            found = Expression(match.group(1).strip(), contexts, True).value()
            return {None: "", True: "true", False: "false"}.get(found, str(found))

        return re.sub(r"\$\{\{(.*?)\}\}", value, text)

    def _filled(self, entries: Mapping[str, Any], contexts: Mapping[str, Any]) -> dict[str, str]:
        words = {True: "true", False: "false"}
        return {
            name: words[value] if isinstance(value, bool) else self._text(str(value), contexts)
            for name, value in entries.items()
        }
