"""The workflows as shipped, their shell steps run on a real repository: what makes `fanout-gate` green."""

from __future__ import annotations

import copy
import shutil
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from model_server import ModelServer
from project import Project
from workflow_runner import Event, Ran, Runner

from pytest_fanout.records import Approval
from pytest_fanout.store.approvals import approval_name, write_approval

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
GREEN = {"replay": ["success", "success"], "gate": ["success"]}


@dataclass
class Server:
    """A repository whose branches are pull requests, and the environment of its machines."""

    project: Project
    remote: Path

    def pull(self, branch: str) -> Event:
        """The pull_request event of a branch: the server has made the merge commit that is tested."""
        project = self.project
        base, head = project.git("rev-parse", "main"), project.git("rev-parse", branch)
        project.git("switch", "-q", "--detach", "main")
        project.git("merge", "-q", "--no-ff", "-m", "merge", branch)
        sha = project.git("rev-parse", "HEAD")
        project.git("push", "-q", "--force", str(self.remote), "HEAD:refs/pull/1/merge")
        change = {"number": 1, "base": {"sha": base, "ref": "main"}, "head": {"sha": head}}
        payload = {"pull_request": change, "repository": {"default_branch": "main"}}
        return Event("pull_request", payload, sha, "refs/pull/1/merge")

    def runner(self, folder: Path) -> Runner:
        """A machine without any secret, as for a fork."""
        return Runner(folder / "runner", self.remote, self.project.environ)


def lay_out_requests(project: Project) -> None:
    """The branches: one a kind of pull request."""

    def branch(name: str, start: str = "main") -> None:
        project.git("switch", "-q", "-c", name, start)

    branch("harmless")
    project.write("notes.txt", "a change that touches nothing")
    project.commit("notes")
    branch("stale")
    project.edit("shop.py", "Plan briefly.", "Plan ::error::at length.")
    project.commit("another prompt")
    branch("grown")
    project.edit("shop.py", "STEPS_PER_ITEM = 1", "STEPS_PER_ITEM = 3")
    project.commit("more steps")
    assert project.pytest("--fanout-mode=record").verdict == "regressed"
    project.commit("recorded")
    branch("approved", "grown")
    done = project.baseline("accept", "--reason", "three steps are worth their price", "--yes")
    assert done.exit == 0, done.text
    project.commit("accepted")
    branch("waived", "grown")
    project.write(*waiver())
    project.commit("waived")
    branch("crashed")
    project.edit(
        "shop.py", "def answer(task):", "def answer(task):\n    if task['items'] == 2: os.kill(os.getpid(), 9)"
    )
    addopts = "-n 1 --max-worker-restart=0"
    project.edit("pyproject.toml", "[tool.fanout", f"[tool.pytest.ini_options]\naddopts = '{addopts}'\n\n[tool.fanout")
    project.commit("its worker dies")
    branch("exits")
    project.write("conftest.py", "import os\n\ndef pytest_collection_finish(session):\n    os._exit(0)\n")
    project.commit("it ends the process, and says that all is well")


def waiver() -> tuple[str, str]:
    """Path and text of a waiver that is in force for a day."""
    now = int(time.time())
    made = Approval(
        path="",
        kind="waiver",
        subject="support",
        from_digest=None,
        to_digest=None,
        evalset=None,
        ceilings={},
        changes=(),
        reason="The hotfix of the checkout goes out first.",
        requested_by="dana@example.com",
        requested_on=datetime.fromtimestamp(now, UTC).date().isoformat(),
        nonce="5b1f0c9e7d3a2468",
        expires_at=now + 86_400 - 3600,
    )
    return f"baselines/approvals/{approval_name(made, 2)}", write_approval(made).decode()


@pytest.fixture(scope="session")
def server(_accepted_once: Project, tmp_path_factory: pytest.TempPathFactory) -> Server:
    folder = tmp_path_factory.mktemp("server")
    with ModelServer() as model:
        project = _accepted_once.copy_to(folder / "shop", model.base_url)
        shutil.copytree(ROOT / ".github", project.root / ".github")
        project.commit("the gate")
        lay_out_requests(project)
    remote = folder / "shop.git"
    project.git("clone", "-q", "--bare", str(project.root), str(remote))
    subprocess.run(["git", "config", "uploadpack.allowAnySHA1InWant", "true"], cwd=remote, check=True)
    return Server(project, remote)


def one_leg(**inputs: str) -> dict[str, Any]:
    """The gate's workflow with one leg, for what does not depend on how many there are; with inputs of its action."""
    document = yaml.safe_load((WORKFLOWS / "fanout.yml").read_text())
    document["jobs"]["replay"]["strategy"]["matrix"]["python"] = ["3.13"]
    document["jobs"]["replay"]["steps"][-1]["with"] |= inputs
    last = document["jobs"]["gate"]["steps"][-1]
    last["run"] = last["run"].replace("--reports-expected 2", "--reports-expected 1")
    return dict(document)


@pytest.fixture(scope="session")
def whole(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Event, Path]:
    """The workflow as shipped on a harmless pull request: what it did, and the artifacts it left."""
    event, runner = server.pull("harmless"), server.runner(tmp_path_factory.mktemp("whole"))
    return runner.run(WORKFLOWS / "fanout.yml", event), event, runner.artifacts


def test_a_harmless_change_is_green(whole: tuple[Ran, Event, Path]) -> None:
    """Both legs keep their reports and pages, the gate reads the reports, the summary says so; no secret is needed."""
    ran, _, artifacts = whole

    assert ran.results == GREEN, ran.log
    kept = [f"fanout-{what}-py{version}" for what in ("page", "report") for version in ("3.11", "3.13")]
    assert sorted(path.name for path in artifacts.iterdir()) == kept
    assert "✓ Within budget" in (artifacts / kept[0] / "fanout-report.html").read_text(encoding="utf-8")
    assert ran.pip == [".[demo,html]", ".[demo,html]", "."]
    assert ran.summary.lower().count("within budget (pass)") == 2


@pytest.mark.parametrize(
    ("branch", "replay", "gate", "said"),
    [
        ("grown", "failure", "failure", "regressed"),
        ("approved", "success", "success", "approved"),
        ("waived", "success", "success", "waived"),
        ("stale", "failure", "failure", "stale"),
        ("crashed", "failure", "failure", "incomplete"),
        ("exits", "success", "failure", "did not finish"),
    ],
)
def test_what_each_kind_of_pull_request_gets(
    server: Server, tmp_path: Path, branch: str, replay: str, gate: str, said: str
) -> None:
    """Without secrets, as a fork's; a process that ends itself with 0 has a green job and a red gate."""
    runner, event = server.runner(tmp_path), server.pull(branch)
    ran = runner.run(one_leg(), event)

    assert (ran.result("replay"), ran.result("gate")) == (replay, gate), ran.log
    assert said in ran.log
    assert "\n::error::" not in ran.log, "the prompt of a pull request gives no command to the log"
    if replay == "failure":  # a job that goes on after its error is a success to those that need it
        assert runner.run(one_leg(), event, given={"replay": "success"}).result("gate") == "failure"


def gate_alone(server: Server, folder: Path, whole: tuple[Ran, Event, Path], *, given: str = "success") -> Runner:
    """A machine on which the replay jobs have left what ``whole`` left."""
    runner = server.runner(folder)
    shutil.copytree(whole[2], runner.artifacts, dirs_exist_ok=True)
    return runner


@pytest.mark.parametrize("result", ["failure", "cancelled", "skipped"])
def test_a_job_that_did_not_succeed_is_never_green(
    server: Server, tmp_path: Path, whole: tuple[Ran, Event, Path], result: str
) -> None:
    """Also with two good reports at hand: the gate runs always, and looks at the jobs first."""
    runner = gate_alone(server, tmp_path, whole)

    assert runner.run(WORKFLOWS / "fanout.yml", whole[1], given={"replay": result}).result("gate") == "failure"


def test_a_missing_report_is_never_green(server: Server, tmp_path: Path, whole: tuple[Ran, Event, Path]) -> None:
    """One leg of two kept none."""
    runner = gate_alone(server, tmp_path, whole)
    shutil.rmtree(runner.artifacts / "fanout-report-py3.11")

    ran = runner.run(WORKFLOWS / "fanout.yml", whole[1], given={"replay": "success"})

    assert ran.result("gate") == "failure"
    assert "1 report matches 'reports/*/fanout-report.json', and 2 should" in ran.log


def test_a_report_of_an_earlier_run_is_never_green(
    server: Server, tmp_path: Path, whole: tuple[Ran, Event, Path]
) -> None:
    """The branch was approved, pushed on, and the artifact of the commit before is still there."""
    runner = gate_alone(server, tmp_path, whole)
    event = server.pull("approved")

    ran = runner.run(WORKFLOWS / "fanout.yml", event, given={"replay": "success"})

    assert ran.result("gate") == "failure"
    assert f"the report is of commit {whole[1].sha[:12]}, and HEAD is {event.sha[:12]}" in ran.log


def test_a_copy_of_one_legs_report_is_never_green(
    server: Server, tmp_path: Path, whole: tuple[Ran, Event, Path]
) -> None:
    """Two artifacts of one run of pytest are one report."""
    runner = gate_alone(server, tmp_path, whole)
    one, other = (
        runner.artifacts / f"fanout-report-py{version}" / "fanout-report.json" for version in ("3.11", "3.13")
    )
    shutil.copy(one, other)

    ran = runner.run(WORKFLOWS / "fanout.yml", whole[1], given={"replay": "success"})

    assert ran.result("gate") == "failure"
    assert "are of one and the same run" in ran.log


def test_a_committed_report_is_not_kept_for_a_new_one(
    server: Server, tmp_path: Path, whole: tuple[Ran, Event, Path]
) -> None:
    """A report that lies in the tree, and a pytest that ends before it has begun: nothing is uploaded."""
    project = server.project
    project.git("switch", "-q", "-C", "leftover", "main")
    shutil.copy(whole[2] / "fanout-report-py3.13" / "fanout-report.json", project.root)
    project.git("add", "-f", "fanout-report.json")
    project.write("conftest.py", "import os\nos._exit(0)\n")
    project.commit("a report, and an end")
    project.git("push", "-q", "--force", str(server.remote), "leftover")

    ran = server.runner(tmp_path).run(one_leg(), server.pull("leftover"))

    assert ran.results == {"replay": ["failure"], "gate": ["failure"]}
    assert "no files were found with the provided path: fanout-report.json" in ran.log


def test_shards_that_nobody_combined_are_never_green(server: Server, tmp_path: Path) -> None:
    """Each job of them is green, and their gate is not."""
    ran = server.runner(tmp_path).run(one_leg(shard="1", shards="2"), server.pull("harmless"))

    assert (ran.result("replay"), ran.result("gate")) == ("success", "failure"), ran.log


def sharded() -> dict[str, Any]:
    """The gate's workflow with two shards instead of two Pythons, its last step as docs/ci.md gives it."""
    document = yaml.safe_load((WORKFLOWS / "fanout.yml").read_text())
    replay, gate = document["jobs"]["replay"], document["jobs"]["gate"]
    replay["strategy"]["matrix"] = {"shard": ["1", "2"]}
    shard = "${{ matrix.shard }}"
    replay["steps"][-1]["with"] = {"shard": shard, "shards": "2", "report": f"fanout-report-{shard}"}
    gate["steps"][-3]["with"]["pattern"] = "fanout-report-*"
    page = (ROOT / "docs" / "ci.md").read_text()
    gate["steps"][-1]["run"] = page.partition("**Shards.**")[2].partition("```bash\n")[2].partition("```")[0]
    return dict(document)


def test_shards_are_combined_to_one_verdict_and_a_lost_one_is_never_green(server: Server, tmp_path: Path) -> None:
    """Two jobs keep their parts, the gate combines and checks them; without the second part it is red."""
    event, runner = server.pull("harmless"), server.runner(tmp_path)

    ran = runner.run(sharded(), event)

    assert ran.results == GREEN, ran.log
    assert sorted(path.name for path in runner.artifacts.iterdir()) == ["fanout-report-1", "fanout-report-2"]
    assert "combined 2 shards into fanout-report.json" in ran.log

    shutil.rmtree(runner.artifacts / "fanout-report-2")
    again = runner.run(sharded(), event, given={"replay": "success"})

    assert again.result("gate") == "failure"
    assert "1 of 2 shards left a report; missing: 2/2" in again.log


def test_a_change_that_is_over_budget_in_one_shard_is_over_budget_as_a_whole(server: Server, tmp_path: Path) -> None:
    """Each job of a grown agent ends green, as only the whole is judged; the gate is red by the whole's verdict."""
    ran = server.runner(tmp_path).run(sharded(), server.pull("grown"))

    assert ran.results == {"replay": ["success", "success"], "gate": ["failure"]}, ran.log
    assert "over budget: regressed" in ran.log


def test_a_queue_and_a_push_are_judged_as_well(server: Server, tmp_path: Path, whole: tuple[Ran, Event, Path]) -> None:
    """The events of the merge queue and of main lead to their own base; the report of another base is refused."""
    base, sha = server.project.git("rev-parse", "main"), whole[1].sha
    queue = Event("merge_group", {"merge_group": {"base_sha": base, "head_sha": sha}}, sha, "refs/heads/gh-queue")
    pushed = {"before": sha, "after": sha, "ref": "refs/heads/main", "repository": {"default_branch": "main"}}
    runner = gate_alone(server, tmp_path, whole)

    assert runner.run(WORKFLOWS / "fanout.yml", queue, given={"replay": "success"}).result("gate") == "success"
    other = runner.run(
        WORKFLOWS / "fanout.yml", Event("push", pushed, sha, "refs/heads/main"), given={"replay": "success"}
    )
    assert other.result("gate") == "failure"
    assert "the base here is" in other.log


def test_the_runner_reads_expressions_as_github_does() -> None:
    """The stand-in itself: precedence, status functions, and an expression that it does not know is no silent text."""
    document = copy.deepcopy(yaml.safe_load((WORKFLOWS / "fanout-record.yml").read_text()))
    watch = document["jobs"]["record"]["environment"]
    assert watch == "${{ github.event_name == 'schedule' && 'fanout-watch' || 'fanout-record' }}"
    runner = Runner.__new__(Runner)
    runner.secrets = None
    for event, name in (("schedule", "fanout-watch"), ("workflow_dispatch", "fanout-record")):
        assert runner._text(watch, {"github": {"event_name": event}}) == name
    with pytest.raises((AssertionError, KeyError)):
        runner._text("${{ fromJSON('1') }}", {})
