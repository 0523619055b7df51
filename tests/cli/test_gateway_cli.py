"""``fanout-gateway``: a command behind the gateway, its streams, signals and exit code; what is said at the end."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest
from model_server import ModelServer

from pytest_fanout.cli.gateway import main, parse_caps
from pytest_fanout.errors import UsageError
from pytest_fanout.records import Caps, Problem
from pytest_fanout.report import gateway as report_of
from pytest_fanout.wire.hosts import KEY_VARIABLES

SCHEMA = Path(__file__).resolve().parents[2] / "pytest_fanout" / "schemas" / "gateway-report.schema.json"
TOOL = str(Path(sys.executable).with_name("fanout-gateway"))
ASK = """curl -sS "$OPENAI_BASE_URL/chat/completions" -H "Authorization: Bearer $OPENAI_API_KEY" -o /dev/null \
-w '%{http_code} ' --data-binary '{"model":"m","messages":[{"role":"user","content":"hi"}]}'"""
ASK_QUOTED = ASK.replace("'", "'\\''")


def environ(model: ModelServer, **more: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in KEY_VARIABLES and not name.upper().endswith("_PROXY") and not name.startswith("FANOUT_")
    }
    return {**kept, "OPENAI_BASE_URL": model.base_url + "/v1", "PYTHONIOENCODING": "utf-8", **more}


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


class Here:
    """The tool in this very process, which saves the start of a second one; its command is a process all the same."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.patch, self.capfd = monkeypatch, capfd

    def __call__(self, model: ModelServer, *words: str, **more: str) -> Done:
        for name in {*os.environ} - {*environ(model)}:
            self.patch.delenv(name)
        for name, value in environ(model, **more).items():
            self.patch.setenv(name, value)
        self.patch.setattr(sys, "argv", ["fanout-gateway", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = self.capfd.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Here:
    return Here(monkeypatch, capfd)


def call(
    model: ModelServer, *words: str, given: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TOOL, *words], input=given, capture_output=True, text=True, timeout=60, check=False,
        env=dict(env or environ(model)),
    )  # fmt: skip


def test_it_runs_a_command_and_says_what_it_counted(model: ModelServer, tmp_path: Path) -> None:
    """The command's own output and exit code are untouched; a table and a JSON report tell calls, tokens and models."""
    model.restart(
        [{"tool_calls": [{"name": "find"}], "model": "m-1"}, {"status": 503}, {"text": "a b c", "model": "m-2"}]
    )
    report = tmp_path / "out.json"
    done = call(
        model,
        "--report",
        str(report),
        "--task",
        "ask",
        "--",
        "sh",
        "-c",
        f"cat; {ASK}; {ASK}; {ASK}; exit 7",
        given="in ",
    )
    document = json.loads(report.read_bytes())

    assert (done.returncode, done.stdout) == (7, "in 200 503 200 ")
    assert done.stderr == (
        "fanout-gateway: 2 model calls in 3 attempts, 1 tool call, 5 tokens (2 in, 3 out), 0 other requests\n"
        "model      calls    attempts    input    cached    output    tool calls\n"
        "-------  -------  ----------  -------  --------  --------  ------------\n"
        "m-1            1           1        1         0         0             1\n"
        "m-2            1           2        1         0         3             0\n"
    )
    jsonschema.validate(document, json.loads(SCHEMA.read_bytes()))
    (task,) = document["tasks"]
    assert (document["command"], document["exit"], task["task"]) == ("sh", 7, "ask")
    wanted = {"fanout": 2, "attempts": 3, "tool_calls": 1, "tool_calls[find]": 1, "input_tokens": 2, "output_tokens": 3}
    assert {name: task["samples"][name] for name in wanted} == wanted
    assert [(use["model"], use["calls"]) for use in task["models"]] == [("m-1", 1), ("m-2", 1)]


def test_what_counts_nothing_says_so(model: ModelServer, here: Here) -> None:
    """A command that makes no call through the gateway is told plainly, not shown as a table of zeros."""
    done = here(model, "--", "true")

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        "fanout-gateway: counted no model call: does the command take its base URLs and keys from the environment?"
        " (docs/gateway.md)\n"
    )


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--", "no-such"], 127, "fanout-gateway: no-such cannot be run: No such file or directory\n"),
        (["--", "/"], 126, "fanout-gateway: / cannot be run: Permission denied\n"),
        (["--", "sh", "-c", "kill -TERM $$"], 143, None),
        (["--", "serve-is-a-command-after-the-dashes"], 127, None),
        ([], 2, None),
        (["--nonsense", "--", "true"], 2, None),
        (["--cap", "calls=5", "--", "true"], 2, "error: --cap calls=5 is not NAME=N"),
    ],
)  # fmt: skip
def test_exit_codes(words: list[str], code: int, text: str | None, model: ModelServer, here: Here) -> None:
    """The command's code, 128 + n for a signal, 127 and 126 for what cannot be run, 2 for words of our own."""
    done = here(model, *words)

    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if text is not None:
        assert done.stderr.startswith(text)


def test_a_cap_that_cannot_be_read_is_named() -> None:
    """The message lists the caps there are."""
    with pytest.raises(UsageError) as caught:
        parse_caps(["fanout=5", "tokens=0"])

    assert str(caught.value) == (
        "--cap tokens=0 is not NAME=N, with a whole number from 1 and a name of: fanout, attempts, tokens, tool_calls,"
        " parallel_calls, spawn_depth, wall_seconds, identical_errors\n  mend: --cap fanout=50\n"
        "  see: docs/messages.md#bad-cap"
    )


def test_caps_hold(model: ModelServer, here: Here) -> None:
    """Under a cap of two the third call is refused, the warning came before, and the summary names the cap."""
    done = here(model, "--cap", "fanout=2", "--", "sh", "-c", f"{ASK}; {ASK}; {ASK}")

    assert (done.stdout, len(model.generated)) == ("200 200 400 ", 2)
    assert done.stderr.startswith("fanout-gateway: command has used 100 % of its cap fanout\n")
    assert "; stopped at its cap fanout = 2\n" in done.stderr


def test_a_command_that_runs_too_long_is_ended(model: ModelServer, here: Here) -> None:
    """The cap on wall time ends the command itself, one that never calls again too."""
    done = here(model, "--cap", "wall_seconds=1", "--", "sh", "-c", f"{ASK}; exec sleep 60")

    assert (done.returncode, done.stdout) == (143, "200 ")
    assert "; stopped at its cap wall_seconds = 1\n" in done.stderr


def test_the_summary_names_the_cap_of_a_command_that_called_nothing(model: ModelServer, here: Here) -> None:
    """What was stopped at its cap says so, counted calls or none."""
    done = here(model, "--cap", "wall_seconds=1", "--", "sleep", "60")

    assert done.returncode == 143
    assert "counted no model call" in done.stderr
    assert done.stderr.endswith("; stopped at its cap wall_seconds = 1\n")


@pytest.mark.parametrize(
    ("deaf", "code"), [("", 143), ("trap '' TERM; ", 137)], ids=["asked", "killed"]
)  # fmt: skip
def test_a_command_that_goes_on_after_a_cap_is_ended(
    deaf: str, code: int, model: ModelServer, here: Here, tmp_path: Path
) -> None:
    """Two seconds after a cap it and what it has started are asked to end; a second later they have to."""
    alive = tmp_path / "alive"  # a pipe that the helper of the command holds open
    os.mkfifo(alive)
    end = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    helper = tmp_path / "helper.sh"
    helper.write_text(f"{deaf}exec 3> {alive}; echo on >&3; while :; do sleep 0.1; done")
    loop = f"{deaf}sh {helper} & while :; do {ASK}; sleep 0.2; done"
    begun = time.monotonic()
    done = here(model, "--cap", "fanout=1", "--", "sh", "-c", loop)

    assert done.returncode == code
    assert done.stdout.startswith("200 400 400 ")
    assert "; stopped at its cap fanout = 1\n" in done.stderr
    assert 2 <= time.monotonic() - begun < 10
    assert os.read(end, 100) == b"on\n"
    assert select.select([end], [], [], 10)[0] == [end]
    assert os.read(end, 100) == b""  # nobody holds it any more
    os.close(end)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_the_command(number: signal.Signals, model: ModelServer) -> None:
    """A signal to the tool is the command's, which may end in its own way; what was counted is said all the same."""
    script = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(9))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(60)\n"
    )
    running = subprocess.Popen(
        [TOOL, "--", sys.executable, "-c", script], env=environ(model), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    running.send_signal(number)
    _, said = running.communicate(timeout=30)

    assert running.returncode == 9
    assert said.startswith("fanout-gateway: counted no model call")


def test_ctrl_c_on_a_terminal_reaches_the_command_once(model: ModelServer) -> None:
    """The terminal itself sends Ctrl-C to the command: it is not sent a second one."""
    script = (
        "import signal, sys, time\n"
        "hits = []\n"
        "signal.signal(signal.SIGINT, lambda *_: hits.append(1))\n"
        "print('ready', flush=True)\n"
        "until = time.monotonic() + 30\n"
        "while not hits and time.monotonic() < until: time.sleep(0.05)\n"
        "time.sleep(0.5)\n"
        "sys.exit(40 + len(hits))\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(TOOL, [TOOL, "--", sys.executable, "-c", script], environ(model))
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)

    assert os.waitstatus_to_exitcode(status) == 41


def test_serve_stays_up_and_tells_at_the_end(model: ModelServer, tmp_path: Path) -> None:
    """It prints what an agent is to export, for each task; a signal ends it with a summary and a report of each."""
    report = tmp_path / "out.json"
    running = subprocess.Popen(
        [TOOL, "serve", "--task", "one", "--task", "two", "--report", str(report)],
        env=environ(model, OPENAI_API_KEY="sk-real"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert running.stdout is not None
    assert running.stderr is not None
    listening = running.stderr.readline()
    blocks: dict[str, list[str]] = {}
    while not (len(blocks) == 2 and "export XAI_API_BASE=" in "".join(blocks["two"])):
        line = running.stdout.readline()
        assert line, running.stderr.read()
        if line.startswith("# task "):
            block = blocks.setdefault(line.split()[2], [])
        else:
            block.append(line)
    for name, times in (("one", 2), ("two", 1)):
        subprocess.run(
            ["sh"], input="".join(blocks[name]) + f"{ASK}\n" * times, text=True, check=True, capture_output=True
        )
    running.send_signal(signal.SIGTERM)
    _, said = running.communicate(timeout=30)

    assert listening.startswith("fanout-gateway: listening on http://127.0.0.1:")
    assert running.returncode == 0
    assert said.splitlines()[:2] == [
        "fanout-gateway: one: 2 model calls in 2 attempts, 0 tool calls, 6 tokens (2 in, 4 out), 0 other requests",
        "fanout-gateway: two: 1 model call in 1 attempt, 0 tool calls, 3 tokens (1 in, 2 out), 0 other requests",
    ]
    assert said.splitlines()[2].split() == [
        "task",
        "model",
        "calls",
        "attempts",
        "input",
        "cached",
        "output",
        "tool",
        "calls",
    ]
    names = {line.split("=")[0] for line in blocks["one"]}
    assert {"export OPENAI_API_KEY", "export OPENAI_BASE_URL", "export ANTHROPIC_BASE_URL"} <= names
    assert "export GROQ_API_KEY" not in names  # no real key stands behind it
    assert "sk-real" not in "".join(blocks["one"])
    document = json.loads(report.read_bytes())
    jsonschema.validate(document, json.loads(SCHEMA.read_bytes()))
    assert [task["samples"]["fanout"] for task in document["tasks"]] == [2, 1]


def test_one_inside_another_is_one_deeper(model: ModelServer, here: Here) -> None:
    """A nested one joins: the outer one counts both, knows how deep, and its cap on depth refuses what is deeper."""
    script = f"{ASK}; {TOOL} --cap fanout=1 -- {TOOL} -- sh -c '{ASK_QUOTED}'"
    done = here(model, "--", "sh", "-c", script, OPENAI_API_KEY="sk-real")
    capped = here(model, "--cap", "spawn_depth=1", "--", "sh", "-c", script)

    assert (done.returncode, done.stdout, len(model.generated)) == (0, "200 200 ", 3)
    assert [line for line in done.stderr.splitlines() if "gateway around" in line or "heeded" in line] == [
        "fanout-gateway: joined the gateway around it, at depth 1: that one counts",
        "fanout-gateway: --cap, --report and --proxy are for the outer one to say, and not heeded here",
        "fanout-gateway: joined the gateway around it, at depth 2: that one counts",
    ]
    assert [entry.headers["authorization"] for entry in model.generated[:2]] == ["Bearer sk-real"] * 2
    assert "fanout-gateway: 2 model calls in 2 attempts" in done.stderr
    assert ", spawn depth 2\n" in done.stderr
    assert capped.stdout == "200 400 "
    assert "; stopped at its cap spawn_depth = 1\n" in capped.stderr


def test_an_outer_gateway_that_is_gone_is_an_error(model: ModelServer, here: Here) -> None:
    """A variable that is left over would send every call to nobody."""
    home = "http://127.0.0.1:9/t-0123456789abcdef"
    done = here(model, "--", "true", FANOUT_GATEWAY=home)

    assert done.returncode == 2
    assert done.stderr == (
        f"error: FANOUT_GATEWAY={home} names a gateway that does not answer\n"
        "  mend: unset FANOUT_GATEWAY, or start the gateway around this command anew\n"
        "  see: docs/messages.md#gateway-gone\n"
    )


def test_the_lines_of_a_problem_are_parted() -> None:
    """On one line the parts of a message stay apart: what happened, and how to mend it."""
    lines = "POST /v1/x came without the key of a task: it was refused with 401\n  mend: take the key\n  see: this."
    said = report_of.text([], [Problem("gateway-unattributed", lines, "invalid")], Caps())

    assert said == (
        "invalid: POST /v1/x came without the key of a task: it was refused with 401; mend: take the key; see: this."
        " [gateway-unattributed]"
    )


def test_the_help_of_serve_names_it_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The usage line is what one types."""
    monkeypatch.setattr(sys, "argv", ["/any/where/fanout-gateway", "serve", "--help"])
    with pytest.raises(SystemExit):
        main()

    assert capsys.readouterr().out.startswith("Usage: fanout-gateway serve [OPTIONS]\n")


def test_with_proxy_the_tools_are_seen(model: ModelServer, here: Here) -> None:
    """--proxy gives the command the proxy's variables: a tool's request is counted as another request."""
    done = call(
        model, "--proxy", "--", "sh", "-c", f"{ASK}; curl -sS {model.base_url}/tool/x -o /dev/null -w '%{{http_code}}'"
    )

    assert done.stdout == "200 200"
    assert (
        "fanout-gateway: 1 model call in 1 attempt, 0 tool calls, 3 tokens (1 in, 2 out), 1 other request\n"
        in done.stderr
    )
