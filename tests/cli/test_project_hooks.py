"""Commands that ask a project's own hooks: pytest loads them, and no test is run."""

from __future__ import annotations

import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gate_world import TWENTY, make_run, started
from project import Project

from pytest_fanout.cli.baseline import main
from pytest_fanout.records import Exchange, HttpAnswer, HttpRequest
from pytest_fanout.report.json import document
from pytest_fanout.store.reports import write_report

WIRE = Path(__file__).resolve().parents[2] / "docs" / "wire.md"
CODEC = re.findall(r"^```python\n(.*?)^```$", WIRE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[0]
REDACT = """
from dataclasses import replace

def pytest_fanout_redact(request, response):
    clean = lambda body: body.replace(b"Mallory Canary", b"NAME")
    return replace(request, body=clean(request.body)), replace(response, chunks=tuple(map(clean, response.chunks)))
"""
CASSETTE = """
version: 1
interactions:
- request:
    method: POST
    uri: http://oracle.example/tool/oracle
    body: '{"model":"m-x","messages":[{"role":"user","content":"I am Mallory Canary"}]}'
    headers: {content-type: [application/json]}
  response:
    status: {code: 200, message: OK}
    headers: {content-type: [application/json]}
    body: {string: '{"choices":[{"message":{"content":"hello Mallory Canary"}}],"used":{"prompt":7,"written":2}}'}
"""


def test_a_cassette_is_read_and_redacted_by_the_hooks_of_its_project(project: Project) -> None:
    """An API that only the project's codec knows is a model call, and what its redaction takes out is not stored."""
    project.write("conftest.py", CODEC + REDACT)
    project.write("tests/test_none.py", "raise AssertionError('no test is collected')\n")
    project.write("tapes/task-1.yaml", CASSETTE)

    imported = project.baseline("import-cassettes", "tapes", "--agent", "support")

    assert imported.exit == 0, imported.text
    assert (
        "task-1.yaml -> support::task-1, trial 1 (an id of the eval set): 1 model calls, 0 other requests"
        in imported.out
    )
    (path,) = project.root.glob("fixtures/recordings/support/*/t1.jsonl")
    stored = path.read_text(encoding="utf-8")
    assert ("Canary" in stored, stored.count("NAME")) == (False, 2)

    shown = project.baseline("show", "--recording", "task-1")
    assert "asked for m-x" in shown.out, shown.text
    assert "tokens 7 in, 2 out" in shown.out


def test_why_reads_with_the_codecs_of_the_project_and_asks_for_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As replay does: an API that only the project knows is a call, and pytest is started only if one is to be read."""
    asked: list[Path] = []
    made: list[int] = []
    codec = types.ModuleType("codec")
    exec(CODEC, codec.__dict__)

    def with_hooks(root: Path, do: Callable[[Any], Any]) -> Any:
        asked.append(root)
        return do(types.SimpleNamespace(codecs=codec.pytest_fanout_codecs))

    def explanations(*_given: Any, agents: Any, task: Any) -> tuple[()]:
        reading = _given[4]
        if agents == ("support",):
            request = HttpRequest(
                "POST",
                "http://oracle.example/tool/oracle",
                (("content-type", "application/json"),),
                b'{"model":"m-x","messages":[{"role":"user","content":"hi"}]}',
            )
            answer = HttpAnswer(
                200,
                (("content-type", "application/json"),),
                (b'{"choices":[{"message":{"content":"hello"}}],"used":{"prompt":7,"written":2}}',),
                (1,),
                1,
            )
            exchange = Exchange(0, "httpx", "model", "agent", request, answer, 0)
            made.extend(turn.attempts[0].input_tokens or 0 for _ in range(2) for turn in reading()([exchange]))
        return ()

    world = started(tmp_path / "project")
    world.write(".gitignore", "fanout-report.json\n")
    run = world.measured(make_run(TWENTY))
    write_report(world.folder / "fanout-report.json", document(run, world.judge(run)))
    monkeypatch.chdir(world.folder)
    monkeypatch.setattr("pytest_fanout.cli.why.with_hooks", with_hooks)
    monkeypatch.setattr("pytest_fanout.gate.explaining.explanations", explanations)

    for words in ((), ("--agent", "support")):
        result = CliRunner().invoke(main, ["why", *words], catch_exceptions=False)
        assert result.exit_code == 0

    assert made == [7, 7]
    assert asked == [world.folder]


def test_a_project_that_pytest_cannot_load_is_told(project: Project) -> None:
    """pytest says what is wrong, and the command what it needed it for; nothing is imported."""
    project.write("conftest.py", "raise RuntimeError('boo')\n")
    project.write("tapes/task-1.yaml", CASSETTE)

    imported = project.baseline("import-cassettes", "tapes", "--agent", "support")

    assert imported.exit == 2
    assert "RuntimeError: boo" in imported.err
    assert imported.err.endswith(
        f"error: {project.root}: pytest could not load the project and its hooks, and ended with exit code 4\n"
        "  mend: mend what pytest says above (try: pytest --collect-only), then run the same command again\n"
        "  see: docs/messages.md#hooks-not-loaded\n"
    )
    assert not (project.root / "fixtures" / "recordings").exists()
