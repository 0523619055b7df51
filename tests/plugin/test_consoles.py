"""The console may be poor; verdict and report are the same."""

from __future__ import annotations

import json

import pytest
from project import Project, Result

pytestmark = pytest.mark.slow

IDS = ["café-№1", "見積もり", "naïve 🚀"]


@pytest.fixture
def gated(project: Project) -> Project:
    """An accepted project whose task ids are not ASCII."""
    project.write_tasks({name: {"ask": "hello", "items": number} for number, name in enumerate(IDS, 1)})
    project.commit("ids in many scripts")
    project.pytest("--fanout-mode=record", "--fanout-trials=1")
    assert project.baseline("accept", "--reason", "the first anchor of this project", "--yes").exit == 0
    project.commit("accepted")
    project.git("switch", "-q", "-c", "work")
    project.commit("work")
    return project


def lasting(result: Result) -> str:
    """The report without what differs from run to run."""
    assert result.report is not None, result.text
    kept = {key: value for key, value in result.report.items() if key not in ("run_id", "begun_at", "digest")}
    return json.dumps(kept, ensure_ascii=False, sort_keys=True)


def test_a_poor_console_changes_nothing_but_letters(gated: Project) -> None:
    """A24: exit code and report equal those of a UTF-8 console, and the table is printed."""
    rich = gated.pytest(PYTHONIOENCODING="utf-8")
    for encoding in ("ascii", "cp1252", "latin-1"):
        poor = gated.pytest(PYTHONIOENCODING=encoding)

        assert (encoding, poor.exit, lasting(poor)) == (encoding, 0, lasting(rich))
        assert "fanout" in poor.out
        assert "within budget" in poor.out
        assert "INTERNALERROR" not in poor.text


def test_a_red_gate_on_a_poor_console_is_red(gated: Project) -> None:
    """A24: when ids must be shown, the verdict is the same and the text is plain ASCII."""
    gated.edit("shop.py", "Plan briefly.", "Plan – at length.")
    gated.commit("edit")
    result = gated.pytest(PYTHONIOENCODING="ascii")
    report = (gated.root / "fanout-report.json").read_bytes()

    assert (result.verdict, result.exit) == ("stale", 1)
    assert result.out.isascii()
    assert "INTERNALERROR" not in result.text
    assert b"\r\n" not in report
    assert set(IDS) <= {trial["task"] for trial in json.loads(report.decode("utf-8"))["classes"][0]["tasks"]}
