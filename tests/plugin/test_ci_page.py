"""docs/ci.md is run: the plain shell of any runner, and the script of the GitLab job."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from project import Project

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "ci.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return found


def shell(project: Project, script: str, **environ: str) -> tuple[int, str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), project.environ["PATH"]))
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=project.root,
        env=project.environ | {"PATH": path} | environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_plain_runner(gated: Project) -> None:
    """Green for a harmless change; a leftover report of it is no help when pytest never starts."""
    code, text = shell(gated, block("sh"))
    assert code == 0, text
    assert (gated.root / "fanout-report.json").exists()

    gated.write("conftest.py", "import os\nos._exit(0)\n")
    gated.commit("ends at once, with 0")
    code, text = shell(gated, block("sh"))
    assert code == 4, text
    assert "0 reports match" in text


@pytest.mark.parametrize("is_stale", [False, True], ids=["harmless", "stale"])
def test_the_gitlab_job(gated: Project, is_stale: bool) -> None:
    """Its script line by line, with the variables of a merge request: the exit code, and each file it keeps."""
    if is_stale:
        gated.edit("shop.py", "Plan briefly.", "Plan at length.")
        gated.commit("another prompt")
    gated.git("update-ref", "refs/remotes/origin/main", "main")
    job = yaml.safe_load(block("yaml"))["fanout-gate"]
    variables = {
        "CI": "true",
        "GITLAB_CI": "true",
        "CI_DEFAULT_BRANCH": "main",
        "CI_COMMIT_SHA": gated.git("rev-parse", "HEAD"),
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": gated.git("rev-parse", "main"),
    }
    code, text = shell(gated, "set -e\n" + "\n".join(job["script"]), **variables)

    kept = [*job["artifacts"]["paths"], *job["artifacts"]["reports"].values()]
    assert code == (3 if is_stale else 0), text
    assert [name for name in kept if not (gated.root / name).exists()] == []
    metrics = (gated.root / "fanout-metrics.txt").read_text()
    assert f'fanout_within_budget{{agent="support"}} {int(not is_stale)}\n' in metrics
    assert "gitlab merge request.base.sha" in (gated.root / "fanout-report.json").read_text()
