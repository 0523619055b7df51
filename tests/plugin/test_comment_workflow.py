"""The comment of a pull request: written once, renewed, kept from strangers, and never the reason for a red run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer
from project import Project
from workflow_runner import Event, Ran, Runner

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / ".github" / "actions" / "fanout-comment" / "upsert.py"
MARKER = "<!-- pytest-fanout -->"
HEAD = "a" * 40


class GitHub:
    """GitHub's REST interface, as far as the comment needs it. ``log``: method, path and text of each call."""

    def __init__(self) -> None:
        self.pulls = [{"number": 7, "head": {"sha": HEAD}}, {"number": 8, "head": {"sha": "b" * 40}}]
        self.comments: list[dict[str, Any]] = []
        self.forbidden = self.broken = False
        self.log: list[tuple[str, str, str | None]] = []
        handler = type("Handler", (_Handler,), {"github": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def add(self, text: str, kind: str = "Bot") -> None:
        self.comments.append({"id": len(self.comments) + 1, "body": text, "user": {"type": kind, "login": "x"}})

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def written(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path, _ in self.log if method != "GET"]


class _Handler(BaseHTTPRequestHandler):
    github: GitHub

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        assert self.headers["authorization"] == "Bearer ghs_token"
        if path == "/repos/o/shop/pulls":
            assert "head=stranger%3Afix%2F1" in query
            return self._answer(self.github.pulls)
        page = int(query.rpartition("page=")[2])
        return self._answer(self.github.comments[(page - 1) * 100 : page * 100])

    def do_POST(self) -> None:
        self._write()

    def do_PATCH(self) -> None:
        self._write()

    def _write(self) -> None:
        text = json.loads(self.rfile.read(int(self.headers["content-length"])))["body"]
        self.github.log.append((self.command, self.path, text))
        if self.github.forbidden or self.github.broken:
            return self._answer({"message": "no"}, 403 if self.github.forbidden else 500)
        return self._answer({"id": 1}, 201)

    def _answer(self, value: Any, status: int = 200) -> None:
        if self.command == "GET":
            self.github.log.append((self.command, self.path, None))
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def github() -> Iterator[GitHub]:
    made = GitHub()
    yield made
    made.stop()


def upsert(github: GitHub, folder: Path, text: str) -> tuple[int, str, str]:
    """Exit code, output and step summary of the step."""
    folder.joinpath("comment.md").write_text(text, encoding="utf-8")
    folder.joinpath("summary.md").touch()
    environ = {
        "PATH": os.environ["PATH"],
        "GITHUB_API_URL": github.url,
        "GITHUB_REPOSITORY": "o/shop",
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "GH_TOKEN": "ghs_token",
        "HEAD_SHA": HEAD,
        "HEAD_OWNER": "stranger",
        "HEAD_BRANCH": "fix/1",
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder / "comment.md")], env=environ, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr, folder.joinpath("summary.md").read_text(encoding="utf-8")


def test_a_first_comment_is_written_to_the_request_of_this_head(github: GitHub, tmp_path: Path) -> None:
    """Another request of the same branch, whose head has moved on, gets none."""
    code, out, summary = upsert(github, tmp_path, f"{MARKER}\n### ✅")

    assert (code, out, summary) == (0, "comment of #7 written\n", "")
    assert github.log[-1] == ("POST", "/repos/o/shop/issues/7/comments", f"{MARKER}\n### ✅")


def test_our_comment_is_renewed_wherever_it_stands(github: GitHub, tmp_path: Path) -> None:
    """On a later page, after a stranger's that holds the marker too: only a bot's own one is written over.

    Nor is one of an account that is gone, of which GitHub tells no user.
    """
    github.add(f"{MARKER} mine", kind="User")
    github.add(f"{MARKER} nobody's")
    github.comments[-1]["user"] = None
    for number in range(100):
        github.add(f"chat {number}", kind="User")
    github.add(f"{MARKER}\nold")

    assert upsert(github, tmp_path, f"{MARKER}\nnew")[:2] == (0, "comment of #7 renewed\n")
    assert github.written == [("PATCH", "/repos/o/shop/issues/comments/103")]


def test_a_token_that_may_not_write_is_no_failure(github: GitHub, tmp_path: Path) -> None:
    """403: the text stands in the step summary, and a warning says so."""
    github.forbidden = True

    code, out, summary = upsert(github, tmp_path, f"{MARKER}\n### ❌ over")

    assert (code, summary) == (0, f"{MARKER}\n### ❌ over\n")
    assert out == (
        "::warning title=fanout comment::the token may not write comments; the report is in the step summary\n"
    )


def test_any_other_refusal_is_a_failure(github: GitHub, tmp_path: Path) -> None:
    """500 and a server that is not there: told, with the text in the summary; no traceback."""
    github.broken = True
    code, out, summary = upsert(github, tmp_path, f"{MARKER}\nx")
    assert (code, summary) == (1, f"{MARKER}\nx\n")
    assert out == (
        f"::error title=fanout comment::GitHub answered 500 to {github.url}/repos/o/shop/issues/7/comments\n"
    )

    github.url = "http://127.0.0.1:9"
    code, out, _ = upsert(github, tmp_path, f"{MARKER}\nx")
    assert code == 1
    assert out.startswith("::error title=fanout comment::GitHub could not be reached: ")
    assert "Traceback" not in out


def test_a_head_that_nobody_asks_for_any_more(github: GitHub, tmp_path: Path) -> None:
    """The branch moved on, or the request was closed."""
    github.pulls = [{"number": 8, "head": {"sha": "b" * 40}}]

    code, out, summary = upsert(github, tmp_path, f"{MARKER}\nx")

    assert (code, summary, github.written) == (0, f"{MARKER}\nx\n", [])
    assert out == "::notice title=fanout comment::no open pull request has this head any more\n"


@pytest.mark.parametrize("text", ["### no marker", f"{MARKER}\n" + "x" * 65_000], ids=["not ours", "too long"])
def test_what_is_no_comment_of_ours_is_not_sent(github: GitHub, tmp_path: Path, text: str) -> None:
    """A text that GitHub would cut, or that would never be found again."""
    code, out, _ = upsert(github, tmp_path, text)

    assert (code, github.log) == (1, [])
    assert out == "::error title=fanout comment::no comment of ours, or more than 65000 characters\n"


# --- the whole workflow ----------------------------------------------------------------------------------------------


def has_comment() -> bool:
    """Whether `fanout-baseline comment` is there."""
    from pytest_fanout.cli.baseline import main

    return "comment" in main.commands


@pytest.mark.skipif(not has_comment(), reason="needs `fanout-baseline comment`")
@pytest.mark.parametrize("report", ["of the head", "none", "of another head"])
def test_the_workflow_on_a_forks_report(
    gated: Project, model: ModelServer, github: GitHub, tmp_path: Path, report: str
) -> None:
    """The report comes as an artifact from code that nobody trusts; a missing or foreign one is told in the comment."""
    remote = tmp_path / "shop.git"
    github_folder = gated.root / ".github"
    (github_folder / "actions" / "fanout-comment").mkdir(parents=True)
    (github_folder / "actions" / "fanout-comment" / "upsert.py").write_bytes(SCRIPT.read_bytes())
    head = gated.commit("the workflow")
    gated.git("clone", "-q", "--bare", str(gated.root), str(remote))
    runner = Runner(tmp_path / "runner", remote, gated.environ | {"GITHUB_API_URL": github.url}, {})
    if report != "none":
        assert gated.pytest().exit == 0
        folder = runner.artifacts / "fanout-report-py3.13"
        folder.mkdir()
        (gated.root / "fanout-report.json").rename(folder / "fanout-report.json")
    told = head if report == "of the head" else "c" * 40 if report == "of another head" else head
    github.pulls = [{"number": 7, "head": {"sha": told}}]
    run = {
        "id": 1,
        "event": "pull_request",
        "head_sha": told,
        "head_branch": "fix/1",
        "head_repository": {"owner": {"login": "stranger"}},
    }
    ran: Ran = runner.run(
        ROOT / ".github" / "workflows" / "fanout-comment.yml",
        Event("workflow_run", {"workflow_run": run}, head, "refs/heads/main"),
    )

    assert ran.result("comment") == "success", ran.log
    (text,) = [text for method, _, text in github.log if method == "POST"]
    assert text is not None
    assert text.startswith(MARKER)
    assert ("within budget" in text) == (report == "of the head")
    assert ("there is no readable report" in ran.log) == (report != "of the head")
