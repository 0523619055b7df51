"""Under GitHub Actions: annotations, a step summary, and text that cannot run commands of the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from project import Project

pytestmark = pytest.mark.slow


@pytest.fixture
def pull_request(gated: Project, tmp_path: Path) -> dict[str, str]:
    """The environment of a pull_request run whose merge commit is checked out."""
    base = gated.git("rev-parse", "main")
    head = gated.git("rev-parse", "work")
    gated.git("switch", "-q", "--detach", "main")
    gated.git("merge", "-q", "--no-ff", "-m", "merge", "work")
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"base": {"sha": base}, "head": {"sha": head}}}))
    return {
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": "pull_request",
        "GITHUB_EVENT_PATH": str(event),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }


def test_a_green_pull_request(gated: Project, pull_request: dict[str, str]) -> None:
    """The base is the merge's first parent, the check passes, the summary says so, and nothing is annotated."""
    result = gated.pytest(**pull_request)
    verify = gated.baseline("verify", "--report", "fanout-report.json", "--reports-expected", "1", **pull_request)

    assert (result.verdict, result.exit, verify.exit) == ("pass", 0, 0), result.text + verify.text
    assert result.report["base"]["rev"] == gated.git("rev-parse", "main")
    assert "::error" not in result.out
    assert "within budget (pass)" in Path(pull_request["GITHUB_STEP_SUMMARY"]).read_text().lower()


def test_a_red_pull_request(gated: Project, pull_request: dict[str, str]) -> None:
    """A stale class is annotated as an error, and the summary names the verdict first."""
    gated.edit("shop.py", "Plan briefly.", "Plan ::error::at length.")
    result = gated.pytest(**pull_request)

    assert result.exit == 1
    errors = [line for line in result.out.splitlines() if line.startswith("::error")]
    assert len(errors) == 1
    assert "support" in errors[0]
    assert "::stop-commands::" in result.out
    assert Path(pull_request["GITHUB_STEP_SUMMARY"]).read_text().splitlines()[1].startswith("###")


def test_no_keys_are_needed(gated: Project, pull_request: dict[str, str]) -> None:
    """A17: a run of a fork has no secrets; SDK clients construct all the same and the verdict is the same."""
    gated.edit("shop.py", "import httpx\n", "import httpx\nimport openai\n\nclient = openai.OpenAI()\n")
    result = gated.pytest(**pull_request)

    assert "OPENAI_API_KEY" not in gated.environ
    assert (result.verdict, result.exit) == ("pass", 0), result.text
