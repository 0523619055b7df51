"""The workflows hold what a required check needs, and three linters agree; nothing here asks the network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))
ACTIONS = sorted((ROOT / ".github" / "actions").glob("*/action.yml"))
#: Those that a pull request starts, with the code of the pull request.
OF_REQUESTS = [FOLDER / name for name in ("ci.yml", "fanout.yml", "sdk-matrix.yml")]


def tool(name: str) -> str:
    """A console script of the environment that runs the tests."""
    return str(Path(sys.executable).parent / name)


def load(name: str) -> dict[str, Any]:
    text = (FOLDER / name).read_text(encoding="utf-8")
    document: dict[Any, Any] = yaml.safe_load(text)
    document["on"] = document.pop(True)  # YAML 1.1 reads the bare word `on` as true
    return document


def steps_of(name: str) -> list[dict[str, Any]]:
    return [step for job in load(name)["jobs"].values() for step in job["steps"]]


def test_the_workflows_are_there() -> None:
    """The project's tests, its gate with what goes with it, the SDK matrix, and nothing that no test looks at."""
    others = ["fanout-comment.yml", "fanout-record.yml", "release.yml"]
    assert [path.name for path in FILES] == sorted([*others, *(path.name for path in OF_REQUESTS)])
    assert [path.parent.name for path in ACTIONS] == ["fanout-gate"]


@pytest.mark.parametrize(
    "command",
    [
        ["zizmor", "--offline", "--quiet", "--persona=pedantic", "--no-progress", str(ROOT / ".github")],
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, FILES)],
        ["check-jsonschema", "--builtin-schema", "vendor.github-actions", *map(str, ACTIONS)],
        ["actionlint", "-no-color", *map(str, FILES)],
    ],
    ids=["zizmor", "schema of workflows", "schema of actions", "actionlint"],
)
def test_a_linter_finds_nothing(command: list[str]) -> None:
    """Each linter ends with 0."""
    done = subprocess.run([tool(command[0]), *command[1:]], capture_output=True, text=True, check=False, timeout=120)

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_linters_can_find_something(tmp_path: Path) -> None:
    """A workflow with an injection and a runner that does not exist is refused by all three that look at it."""
    bad = tmp_path / ".github" / "workflows" / "bad.yml"
    bad.parent.mkdir(parents=True)
    bad.write_text(
        "on: {pull_requests: {}}\njobs:\n  a:\n    runs-on: ubuntu-1\n    steps:\n"
        "      - run: echo ${{ github.event.pull_request.title }}\n"
    )
    commands = [
        ["zizmor", "--offline", "--quiet", str(bad)],
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(bad)],
        ["actionlint", str(bad)],
    ]
    codes = [
        subprocess.run([tool(c[0]), *c[1:]], capture_output=True, check=False, timeout=120).returncode for c in commands
    ]

    assert 0 not in codes


@pytest.mark.parametrize("path", OF_REQUESTS, ids=lambda path: path.name)
def test_workflows_run_always_and_may_do_little(path: Path) -> None:
    """A15, A17: no filter can leave the check pending, no token can write, no secret is asked for."""
    workflow = load(path.name)
    also = {"schedule", "workflow_dispatch"} if path.name == "sdk-matrix.yml" else set()

    assert set(workflow["on"]) == {"pull_request", "merge_group", "push"} | also
    assert not workflow["on"]["pull_request"]
    assert not workflow["on"]["merge_group"]
    assert workflow["on"]["push"] == {"branches": ["main"]}
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in path.read_text(encoding="utf-8")
    assert all("permissions" not in job and job["timeout-minutes"] <= 30 for job in workflow["jobs"].values())


def test_the_comment_runs_no_code_of_the_pull_request() -> None:
    """The one job with a token that writes checks the default branch out, and takes the report as data."""
    workflow = load("fanout-comment.yml")
    (job,) = workflow["jobs"].values()
    checkout = job["steps"][0]

    assert workflow["on"] == {"workflow_run": {"workflows": [load("fanout.yml")["name"]], "types": ["completed"]}}
    assert workflow["permissions"] == {}
    assert job["permissions"] == {"actions": "read", "contents": "read", "pull-requests": "write"}
    assert "ref" not in checkout["with"]
    assert "secrets." not in (FOLDER / "fanout-comment.yml").read_text(encoding="utf-8")
    assert [step["run"] for step in job["steps"] if "pip" in step.get("run", "")] == ["python -m pip install ."]


def test_keys_are_given_to_the_gateway_alone() -> None:
    """One step of one workflow holds secrets, and all that it starts is the gateway; by hand a reviewer lets it."""
    workflow = load("fanout-record.yml")
    (job,) = workflow["jobs"].values()
    with_secrets = [step for step in job["steps"] if "secrets." in json.dumps(step)]

    assert set(workflow["on"]) == {"workflow_dispatch", "schedule"}
    assert workflow["permissions"] == {"contents": "read"}
    assert job["environment"] == "${{ github.event_name == 'schedule' && 'fanout-watch' || 'fanout-record' }}"
    assert [step["name"] for step in with_secrets] == ["Record"]
    assert "secrets." not in json.dumps({key: value for key, value in job.items() if key != "steps"})
    assert "fanout-gateway --proxy --bind-keys " in with_secrets[0]["run"]
    assert "change" not in with_secrets[0]["run"]
    assert [path.name for path in FILES if "secrets." in path.read_text(encoding="utf-8")] == ["fanout-record.yml"]
    assert not any("push" in step.get("run", "") for step in job["steps"])


def test_a_release_is_published_by_trust_and_not_by_a_password() -> None:
    """The job that may publish builds nothing, runs nothing of its own, and waits for the environment's reviewer."""
    workflow = load("release.yml")
    publish = workflow["jobs"]["publish"]

    assert workflow["permissions"] == {}
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"]["name"] == "pypi"
    assert all("run" not in step for step in publish["steps"])
    assert publish["steps"][-1].get("with") is None
    assert all("id-token" not in job.get("permissions", {}) for job in [workflow["jobs"]["build"]])


@pytest.mark.parametrize("path", [*FILES, *ACTIONS], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_actions_are_pinned_by_commit(path: Path) -> None:
    """A tag can be moved; a full commit id cannot. The version stands beside it for people. Ours are of this commit."""
    uses = re.findall(r"uses: (.+)", path.read_text(encoding="utf-8"))
    pinned = r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\$/\.github/actions/[\w-]+"

    assert uses
    assert [line for line in uses if not re.fullmatch(pinned, line)] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_checkouts_leave_no_token_behind(path: Path) -> None:
    """The code under test cannot read a credential out of .git/config."""
    checkouts = [step for step in steps_of(path.name) if step.get("uses", "").startswith("actions/checkout@")]

    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_the_gate_sees_the_history() -> None:
    """Both jobs of the gate fetch everything: the commit to compare with is not the one that is checked out."""
    checkouts = [step for step in steps_of("fanout.yml") if step.get("uses", "").startswith("actions/checkout@")]

    assert [step["with"]["fetch-depth"] for step in checkouts] == [0, 0]


def test_the_required_job_needs_every_other_job_and_always_runs() -> None:
    """A15: the one required check is called fanout-gate, cannot be skipped, and looks at all other jobs."""
    jobs = load("fanout.yml")["jobs"]
    gate = jobs.pop("gate")

    assert gate["name"] == "fanout-gate"
    assert gate["if"] == "${{ always() }}"
    assert sorted(gate["needs"]) == sorted(jobs)
    assert all("if" not in job for job in jobs.values())
    assert all("if" not in step for step in gate["steps"])
    assert not any("continue-on-error" in holder for job in [gate, *jobs.values()] for holder in [job, *job["steps"]])


@pytest.mark.parametrize(
    ("results", "is_green"),
    [
        (["success"], True),
        (["success", "success"], True),
        (["failure"], False),
        (["cancelled"], False),
        (["skipped"], False),
        (["success", "failure"], False),
        (["success", "cancelled"], False),
        (["success", "skipped"], False),
        (["neutral"], False),
        ([""], False),
        ([], False),
        (None, False),
    ],
)
def test_only_all_success_is_green(results: list[str] | None, is_green: bool) -> None:
    """A15: the step that reads the needed jobs' results, run as shipped, is 0 for all-success only."""
    step = load("fanout.yml")["jobs"]["gate"]["steps"][0]
    assert step["env"] == {"RESULTS": "${{ toJSON(needs.*.result) }}"}
    environment = {**os.environ, "RESULTS": "" if results is None else json.dumps(results, indent=2)}
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", step["run"]], env=environment, capture_output=True, check=False
    )

    assert (done.returncode == 0) is is_green


def test_verify_expects_a_report_of_each_leg() -> None:
    """Dropping a leg of the matrix, or its upload, is red: the number that verify expects is the number of legs."""
    jobs = load("fanout.yml")["jobs"]
    legs = jobs["replay"]["strategy"]["matrix"]["python"]
    last = jobs["gate"]["steps"][-1]["run"]
    action = yaml.safe_load(ACTIONS[0].read_text(encoding="utf-8"))
    upload = action["runs"]["steps"][-1]
    (use,) = [step["with"] for step in jobs["replay"]["steps"] if step["uses"].startswith("$/")]

    assert last == f"fanout-baseline verify --report 'reports/*/fanout-report.json' --reports-expected {len(legs)}"
    assert use["report"] == "fanout-report-py${{ matrix.python }}"
    assert upload["if"] == "${{ always() }}"
    assert upload["with"]["if-no-files-found"] == "error"
    assert upload["with"]["path"] == "fanout-report.json"


def test_ci_runs_the_command_of_the_readme_on_every_supported_python() -> None:
    """What the README tells a stranger to type is what is tested, on each version that pyproject.toml names."""
    job = load("ci.yml")["jobs"]["tests"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    supported = re.findall(r"Programming Language :: Python :: (3\.\d+)", project)
    command = re.search(r"^python3 -m venv \.venv-test && .*$", readme, re.MULTILINE)

    assert job["strategy"]["matrix"]["python"] == supported
    assert command is not None
    assert job["steps"][-1]["run"] == command.group()


def test_the_matrix_runs_whole_in_a_job_of_its_own() -> None:
    """The job builds every environment and runs every cell; there, an SDK whose environment is missing is a failure."""
    workflow = load("sdk-matrix.yml")
    job = workflow["jobs"]["matrix"]
    commands = [step["run"] for step in job["steps"] if "run" in step]

    assert workflow["on"]["schedule"] == [{"cron": "17 4 * * 1"}]
    assert job["env"] == {"FANOUT_MATRIX": "full", "FANOUT_MATRIX_ENVS": ".venv-matrix"}
    assert commands[-2:] == [
        '.venv-test/bin/python tests/sdk_matrix/build.py --into "$FANOUT_MATRIX_ENVS"',
        ".venv-test/bin/pytest -n auto tests/sdk_matrix",
    ]
    assert all("if" not in step and "continue-on-error" not in step for step in [job, *job["steps"]])
