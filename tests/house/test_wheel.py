"""What is shipped: sdist and wheel build, and the wheel alone, in a fresh environment, gates a project."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from model_server import ModelServer
from projects import clean_environment, git, run_pytest, run_python, write

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
AGENT = """
import os
import httpx

def answer(question):
    url = os.environ["MODEL_URL"] + "/v1/chat/completions"
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    with httpx.Client(trust_env=False) as client:
        for _ in range(ROUNDS):
            body = {"model": "tiny", "messages": [{"role": "user", "content": question}]}
            reply = client.post(url, json=body, headers=headers).raise_for_status().json()
    return reply["choices"][0]["message"]["content"]
"""
PROJECT = """
[project]
name = "shop"
version = "0"

[tool.fanout.agents.support]
entrypoint = "shop:answer"
evalset = "fixtures/support.jsonl"
"""
QUESTIONS = "".join(json.dumps({"id": f"q{n}", "input": f"question number {n}"}) + "\n" for n in range(1, 4))


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An sdist of this tree and the wheel built from that sdist, without the network."""
    out = tmp_path_factory.mktemp("dist")
    done = run_python("-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT), cwd=out)
    assert done.returncode == 0, done.stdout + done.stderr
    return {"sdist": next(out.glob("*.tar.gz")), "wheel": next(out.glob("*.whl"))}


@pytest.fixture(scope="module")
def installed(dist: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment with the wheel; its dependencies are those of the tests' environment."""
    home = tmp_path_factory.mktemp("fresh") / "env"
    venv.create(home, symlinks=os.name != "nt")
    python = str(home / "bin" / "python")
    pip = ("-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index")
    done = run_python(*pip, str(dist["wheel"]), cwd=home)
    assert done.returncode == 0, done.stdout + done.stderr
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = run_python("-c", ask, cwd=home, python=python).stdout.strip()
    shared = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(own, "zz_dependencies.pth").write_text("\n".join(shared), encoding="utf-8")
    return home / "bin"


def run_command(installed: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The console script `fanout-baseline` of the fresh environment."""
    command = [str(installed / "fanout-baseline"), *arguments]
    return subprocess.run(command, cwd=cwd, env=clean_environment(), capture_output=True, text=True, check=False)


def test_the_wheel_holds_the_package_and_nothing_else(dist: dict[str, Path]) -> None:
    """Every module of the tree, the type mark, the schemas and the licence; no tests, no recordings."""
    with zipfile.ZipFile(dist["wheel"]) as archive:
        names = set(archive.namelist())
        points = archive.read(next(name for name in names if name.endswith("entry_points.txt"))).decode()
    tree = [path for path in (ROOT / "pytest_fanout").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    expected = {str(path.relative_to(ROOT)) for path in tree}

    assert {name for name in names if not name.startswith("pytest_fanout-")} == expected
    assert "pytest_fanout/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "[pytest11]\nfanout = pytest_fanout.plugin" in points
    assert "fanout-baseline = pytest_fanout.cli.baseline:main" in points


def test_the_sdist_holds_what_a_packager_tests_with(dist: dict[str, Path]) -> None:
    """Tests, docs, benchmarks, the demo with its baselines, and the pages at the top stand in the sdist."""
    with tarfile.open(dist["sdist"]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    tops = {name.split("/")[0] for name in names}

    assert {"pytest_fanout", "tests", "docs", "fixtures", "baselines", "benchmarks"} <= tops
    assert {"README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "pyproject.toml"} <= names


def test_the_commands_come_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    """In the fresh environment the package is the wheel's, not the tree's, and its command answers."""
    ask = "import pytest_fanout; print(pytest_fanout.__file__)"
    where = run_python("-c", ask, cwd=tmp_path, python=str(installed / "python"))
    answer = run_command(installed, "--help", cwd=tmp_path)

    assert Path(where.stdout.strip()).is_relative_to(installed.parent)
    assert answer.returncode == 0, answer.stderr
    assert "accept" in answer.stdout


def test_the_wheel_alone_gates_a_project(installed: Path, tmp_path: Path) -> None:
    """A17: record, accept, commit; then replay without any key is green, and red when each task makes more calls."""
    python = str(installed / "python")
    project = write(
        tmp_path / "shop",
        {
            "pyproject.toml": PROJECT,
            "shop.py": "ROUNDS = 1\n" + AGENT,
            "fixtures/support.jsonl": QUESTIONS,
            ".gitignore": "fanout-report.json\n__pycache__/\n.pytest_cache/\n",
        },
    )
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "agent")

    def gate(*arguments: str, **more: str) -> tuple[int, dict[str, object], str]:
        options = ["-p", "no:cacheprovider", "--fanout-budget", *arguments]
        # byte code of the fresh environment is kept from run to run, as anybody's is
        kept = clean_environment(PYTHONDONTWRITEBYTECODE="", **more)
        done = run_pytest(project, *options, env=kept, python=python)
        output = done.stdout + done.stderr
        report = project / "fanout-report.json"
        assert report.exists(), output
        return done.returncode, json.loads(report.read_text(encoding="utf-8")), output

    with ModelServer() as server:
        live = {"MODEL_URL": server.base_url, "OPENAI_API_KEY": "test-key"}
        code, report, output = gate("--fanout-mode=record", "--fanout-trials=2", **live)
        assert (code, report["verdict"]) == (1, "no-baseline"), output
        assert report["totals"]["calls"] == len(server.generated) == 6, output

        reason = "The first baseline of the support agent."
        accepted = run_command(installed, "accept", "--yes", "--reason", reason, cwd=project)
        assert accepted.returncode == 0, accepted.stdout + accepted.stderr
        git(project, "add", "-A")
        git(project, "commit", "-qm", "baseline")

        code, report, output = gate(MODEL_URL=server.base_url)
        assert (code, report["outcome"]) == (0, "within"), output
        assert report["totals"]["calls"] == 6
        assert len(server.generated) == 6, "replay asked the model"

        git(project, "switch", "-qc", "feature")
        write(project, {"shop.py": "ROUNDS = 3\n" + AGENT})
        git(project, "commit", "-qam", "ask three times")
        code, report, output = gate(MODEL_URL=server.base_url)
        assert (code, report["verdict"]) == (1, "stale"), output

        code, report, output = gate("--fanout-mode=record", **live)
        # three tasks of two trials each are too few for evidence, and never enough to pass
        assert (code, report["outcome"], report["verdict"]) == (1, "over", "inconclusive"), output
        assert "support" in output
        git(project, "add", "-A")
        git(project, "commit", "-qm", "recordings")
        code, report, output = gate(MODEL_URL=server.base_url)
        assert (code, report["outcome"], report["verdict"]) == (1, "over", "inconclusive"), output
