"""Commands that ask a project's own hooks: pytest loads them, and no test is run."""

from __future__ import annotations

import re
from pathlib import Path

from project import Project

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
