"""What the session says when something is lost, refused or cannot be trusted: in full, and without a subprocess."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import subprocess
import sys
import textwrap
import uuid
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from gate_world import started
from model_server import ModelServer
from project import Project

import pytest_fanout
from pytest_fanout.config import find_settings
from pytest_fanout.errors import TaskStopped, UsageError
from pytest_fanout.meter import Meter
from pytest_fanout.records import (
    Base,
    Budget,
    Caps,
    ClassResult,
    Head,
    JudgeRules,
    MeasureRules,
    Problem,
    Run,
    TaskRun,
    Verdict,
)
from pytest_fanout.session import api
from pytest_fanout.session.failures import first_error
from pytest_fanout.session.finish import Finish, Told
from pytest_fanout.session.interrupted import command_of
from pytest_fanout.session.items import EvalItem, MeasuredTask, TrialFailed, read_out
from pytest_fanout.session.masking import MaskedReports
from pytest_fanout.session.proof import Proof
from pytest_fanout.session.run import FanoutSession
from pytest_fanout.session.trial import TrialRunner
from pytest_fanout.store.masking import Masker
from pytest_fanout.store.recordings import RecordingStore
from pytest_fanout.wire.canonical import compile_volatile

SEE = "\n  see: docs/messages.md#"
BUDGET = Budget("digest", {"default": ()}, {"default": Caps()}, {"default": JudgeRules()}, MeasureRules())
NOTHING_RAN = Problem(
    "nothing-ran",
    "no task was measured; mend: name an eval set in [tool.fanout.agents.<class>] of pyproject.toml, or mark a test "
    'with @pytest.mark.fanout(agent="…"), and look at what -k, -m or --fanout-agent leave out',
    "incomplete",
)


# --- the end of a run --------------------------------------------------------------------------------------------


def finish_of(told: Told, folder: Path) -> Finish:
    return Finish(
        told=told, settings=find_settings(folder), evalsets={}, budget=BUDGET, store=RecordingStore(folder),
        mode="replay", run_id="run", begun_at=0, shard=None, expected=0, narrowed=False,
        base_option=None, pytest_exit=0, masker=Masker({}),
    )  # fmt: skip


def run_of(told: Told, folder: Path) -> Run:
    run, verdict = finish_of(told, folder).judge()
    assert verdict.outcome == "not_measured"
    return run


def measured_as(*nodes: str) -> Told:
    runs = [TaskRun("support", node, 1, "ok", True, {"fanout": 1}) for node in nodes]
    return Told(task_runs=runs, selected=set(nodes), measured=set(nodes))


def test_nothing_ran(tmp_path: Path) -> None:
    """A run without a single number says so, and what to look at."""
    assert run_of(Told(), tmp_path).problems == (NOTHING_RAN,)


@pytest.mark.parametrize(
    ("mode", "slugs"), [("replay", ["trials-left-out"]), ("record", ["trials-left-out"]), ("live", [])]
)
def test_recorded_trials_that_did_not_run_make_a_run_incomplete(tmp_path: Path, mode: str, slugs: list[str]) -> None:
    """A recording of trial 2 lies there, and trial 1 alone ran; in live mode recordings are of no account."""
    finish = finish_of(measured_as("a"), tmp_path)
    path = finish.store.path("support", "a", 2)
    path.parent.mkdir(parents=True)
    path.touch()
    run, _ = replace(finish, mode=mode).judge()

    assert [problem.slug for problem in run.problems] == slugs


def test_collection_failed(tmp_path: Path) -> None:
    """After a failed collection what ran is not all there is."""
    told = measured_as("a")
    told.collection_failed = True

    assert run_of(told, tmp_path).problems == (
        Problem(
            "collection-failed",
            "the collection failed, so tasks are missing; mend: the errors above, then run again",
            "incomplete",
        ),
    )


@pytest.mark.parametrize(
    ("lost", "shown"),
    [
        (1, "1 trial began or waited and gave no number: lost-0"),
        (5, "5 trials began or waited and gave no number: lost-0, lost-1, lost-2, lost-3, lost-4"),
        (7, "7 trials began or waited and gave no number: lost-0, lost-1, lost-2, lost-3, lost-4 and 2 more"),
    ],
)
def test_tasks_lost(tmp_path: Path, lost: int, shown: str) -> None:
    """Trials that were selected and neither measured nor skipped are named, the first five of them."""
    told = measured_as("a")
    told.selected |= {f"lost-{n}" for n in range(lost)} | {"left-out"}
    told.skipped.add("left-out")

    assert run_of(told, tmp_path).problems == (
        Problem("tasks-lost", f"{shown}; mend: find out what ended them, and run again", "incomplete"),
    )


def test_a_warning_is_shown_without_the_secret_that_it_holds() -> None:
    """Its text, and the line of source that pytest shows below it; its category and its place stay what they are."""
    key = "sk-proj-" + "Ab1" * 10
    found = warnings.WarningMessage(FutureWarning(f"no {key}"), FutureWarning, "shop.py", 3, line=f"warn('{key}')")
    plain = warnings.WarningMessage(UserWarning("no key"), UserWarning, "shop.py", 4)
    for warning in (found, plain):
        MaskedReports(Masker({})).pytest_warning_recorded(warning)

    assert warnings.formatwarning(str(found.message), found.category, found.filename, found.lineno, found.line) == (
        "shop.py:3: FutureWarning: no [masked]\n  warn('[masked]')\n"
    )
    assert (str(plain.message), plain.line) == ("no key", None)


# --- workers -----------------------------------------------------------------------------------------------------


def session_of(**more: Any) -> FanoutSession:
    """A session as far as one of its hooks looks at it."""
    session = FanoutSession.__new__(FanoutSession)
    known = {"told": Told(), "workers": [], "works": {}, "only": [], "run_id": "run", "shard": None, "trials": None} | {
        "budget": BUDGET
    }
    for name, value in (known | more).items():
        setattr(session, name, value)
    return session


def node_of(name: str, **more: Any) -> Any:
    return SimpleNamespace(gateway=SimpleNamespace(id=name), workerinput={}, **more)


def test_a_worker_is_awaited_until_its_last_word() -> None:
    """A worker that crashes, or is cut off by an early stop, stays awaited; what the others told is added up."""
    session = session_of()
    words = {"fanout": pickle.dumps(Told(late=2, deselected=1).portable()).hex()}
    spoke, crashed, cut_off = node_of("gw0", workeroutput=words), node_of("gw1"), node_of("gw2")
    for node in (spoke, crashed, cut_off):
        session.pytest_configure_node(node)
    session.pytest_testnodedown(spoke, None)
    session.pytest_testnodedown(crashed, "Not properly terminated")

    assert session.workers == ["gw1", "gw2"]
    assert (session.told.late, session.told.deselected) == (2, 1)


def test_a_worker_that_is_interrupted_has_one_last_word() -> None:
    """xdist tells twice that it went down: what it told is added once, and the controller goes on to its report."""
    session = session_of()
    node = node_of("gw0", workeroutput={"fanout": pickle.dumps(Told(unattributed=1).portable()).hex()})
    session.pytest_configure_node(node)
    session.pytest_testnodedown(node, None)
    session.pytest_testnodedown(node, "keyboard-interrupt")

    assert session.workers == []
    assert session.told.unattributed == 1


def test_worker_lost(accepted: Project) -> None:
    """A11: a worker that dies after all its numbers were told still makes the run incomplete, and says why."""
    accepted.write(
        "conftest.py",
        "import os\n\ndef pytest_runtest_teardown(item):\n"
        "    if '::task-2::t1' in item.nodeid:\n        os.kill(os.getpid(), 9)\n",
    )
    result = accepted.pytest("-n", "1", "--fanout-trials=1", PYTHONPATH=str(Path(pytest_fanout.__file__).parents[1]))

    assert result.report is not None, result.text
    problems = {problem["slug"]: problem for problem in result.report["problems"]}
    assert {task["task"] for task in result.agent["tasks"]} == {"task-1", "task-2", "task-3"}
    assert "tasks-lost" not in problems
    assert problems["worker-lost"]["text"] == (
        "the worker gw0 ended without its last word, which tells of late calls and of those that no task owns: even "
        "where each trial has its number, they cannot be trusted; mend: find out why it ended, and run again"
    )
    assert (result.verdict, result.exit) == ("incomplete", 1)


# --- collection --------------------------------------------------------------------------------------------------


def marked_item(nodeid: str, agent: str = "support", task: str | None = None) -> Any:
    mark = pytest.mark.fanout(agent=agent, task=task).mark
    return type("Item", (), {"nodeid": nodeid, "get_closest_marker": lambda self, name: mark})()


def test_duplicate_task(tmp_path: Path) -> None:
    """A task that stands twice names both places; as a problem of the run it is seen through xdist as well."""
    session = session_of(settings=find_settings(tmp_path), mode="live")
    items = [marked_item("a.py::test_one", task="same"), marked_item("b.py::test_two", task="same")]
    with pytest.raises(pytest.UsageError) as caught:
        session.pytest_collection_modifyitems(items)

    text = "the task 'same' of class 'support' stands twice: a.py::test_one and b.py::test_two"
    mend = "mend: give one of them another id or task="
    assert str(caught.value) == f"{text}\n  {mend}{SEE}duplicate-task"
    assert session.told.problems == [Problem("duplicate-task", f"{text}; {mend}", "incomplete")]


def test_unknown_agent(tmp_path: Path) -> None:
    """A class that --fanout-agent names and nobody knows is refused, also beside one that is known."""
    session = session_of(settings=find_settings(tmp_path), mode="live", only=["support", "suport"])
    with pytest.raises(pytest.UsageError) as caught:
        session.pytest_collection_modifyitems([marked_item("a.py::test_one"), marked_item("a.py::test_b", "research")])

    assert str(caught.value) == (
        "--fanout-agent=suport: no setting and no marked test that was collected has this agent class;"
        f" known: research, support\n  mend: name one of these{SEE}unknown-agent"
    )


def test_what_is_not_committed_is_the_next_step_in_its_turn(tmp_path: Path) -> None:
    """Anchors first, for the verdict waits for them; a budget.toml of one's own after what the verdict asks for."""
    world = started(tmp_path / "project")
    finish = finish_of(Told(), world.folder)
    kept = ["baselines", "fixtures/recordings"]
    stale = Verdict(
        "stale", (ClassResult("support", "stale", "none", (), (), 1, 0, 0),), (), Base(None, "x"), Head(None)
    )

    def steps(*, next_: tuple[str, ...]) -> tuple[str, ...]:
        return finish._with_what_is_loose(replace(stale, next=next_), world.repo, world.repo.uncommitted(kept)).next

    assert steps(next_=("record",)) == ("record",)
    world.write("fixtures/recordings/support/t1.jsonl", "{}")
    within = replace(stale, verdict="approved", next=("fanout-baseline accept",))
    assert finish._with_what_is_loose(within, world.repo, world.repo.uncommitted(kept)).next == (
        "fanout-baseline accept", "git add baselines fixtures/recordings fixtures/support.jsonl && git commit",
    )  # fmt: skip
    (world.folder / "fixtures/recordings/support/t1.jsonl").unlink()
    world.write("baselines/budget.toml", "schema = 1\n# mine\n")
    assert steps(next_=("record",)) == (
        "record", "git add baselines/budget.toml && git commit: only what is committed holds",
    )  # fmt: skip
    assert steps(next_=("accept", "git add baselines x, once accepted")) == (
        "accept", "git add baselines x, once accepted",
    )  # fmt: skip
    world.write("baselines/support.json", "{}")
    assert steps(next_=("record",)) == ("git add baselines && git commit", "record")


# --- meters ------------------------------------------------------------------------------------------------------


def test_already_measuring() -> None:
    """measure() inside measure() is refused; the outer one goes on and ends well."""
    with pytest_fanout.measure(agent="support", task="outer") as outer:
        with pytest.raises(UsageError) as caught, pytest_fanout.measure(agent="support", task="inner"):
            pass
        assert outer.fanout == 0

    assert str(caught.value) == (
        "measure() was called while this process is measuring a task\n"
        f"  mend: use the fanout_meter fixture inside a measured test{SEE}already-measuring"
    )
    assert outer.problems == ()


def test_a_wrong_number_of_measure_is_not_silent(model: ModelServer) -> None:
    """What makes the numbers of a block untrustworthy is a warning at its with statement, and stands in `problems`."""
    model.restart([{"json": {}}])
    with pytest.warns(pytest_fanout.MeasurementWarning) as caught:
        with pytest_fanout.measure(agent="support", task="refund") as meter:
            httpx.post(f"{model.base_url}/v1/chat/completions", json={"model": "m", "messages": []})

    url = f"{model.base_url}/v1/chat/completions"
    assert [str(warning.message) for warning in caught] == [
        f"the numbers of 'refund' cannot be trusted: POST {url}: answered 200 with no content and no usage, "
        "so nothing was measured [empty-answer]"
    ]
    assert caught[0].filename == __file__
    assert [problem.slug for problem in meter.problems] == ["empty-answer"]


def test_measure_stops_at_its_caps(model: ModelServer) -> None:
    """TaskStopped, which is no Exception, ends what goes beyond; the counts stand."""
    meters = []

    def script() -> None:
        with pytest_fanout.measure(agent="support", task="refund", caps=Caps(fanout=1)) as meter:
            meters.append(meter)
            for _ in range(2):
                httpx.post(f"{model.base_url}/v1/chat/completions", json={"model": "m", "messages": []})

    with pytest.raises(TaskStopped, match="its cap fanout = 1"):
        script()

    assert (meters[0].fanout, len(model.generated)) == (1, 1)


def test_a_cap_that_the_script_swallows_is_a_warning(model: ModelServer) -> None:
    """Whoever catches TaskStopped inside of the block has the number of a stopped task."""

    def script() -> None:
        caps = Caps(attempts=1)
        with pytest_fanout.measure(agent="support", task="refund", caps=caps), contextlib.suppress(TaskStopped):
            for _ in range(2):
                httpx.post(f"{model.base_url}/v1/chat/completions", json={"model": "m", "messages": []})

    with pytest.warns(pytest_fanout.MeasurementWarning) as caught:
        script()

    assert [str(warning.message) for warning in caught] == [
        "the numbers of 'refund' cannot be trusted: pytest-fanout: 'refund' of support reached its cap attempts = 1: "
        "it was stopped and every further call of it is refused"
    ]


def test_meter_without_task() -> None:
    """The fixture in a test without a mark names that test."""
    with pytest.raises(UsageError) as caught:
        session_of().meter_of(marked_item("a.py::test_one"))

    assert str(caught.value) == (
        "a.py::test_one: fanout_meter needs a test marked as a task\n"
        f'  mend: @pytest.mark.fanout(agent="support"){SEE}meter-without-task'
    )


def test_meter_before_its_task() -> None:
    """Read in set-up, the fixture shows no counts of the task before it; in the task it shows its own."""
    item, runner = marked_item("a.py::test_two"), SimpleNamespace(scope=None)
    session = session_of(works={item: MeasuredTask("support", "two", 1, "d")}, runner=runner)
    meter = session.meter_of(item)
    texts = []
    for scope in (None, SimpleNamespace(agent="support", task="one", trial=1, fanout=9)):
        runner.scope = scope
        with pytest.raises(UsageError) as caught:
            _ = meter.fanout
        texts.append(str(caught.value))
    runner.scope = SimpleNamespace(agent="support", task="two", trial=1, fanout=4)

    assert (
        texts
        == [
            "a.py::test_two: fanout_meter was read before its task began\n"
            f"  mend: read it in the test itself, not in a fixture's set-up{SEE}meter-without-task"
        ]
        * 2
    )
    assert meter.fanout == 4


def test_forked_call() -> None:
    """A child made by fork that calls a model is answered by a refusal, and makes its task invalid in the parent."""
    root = Path(__file__).parents[2]
    code = """
        import os, httpx
        from metering import metering, run_task, chat
        def agent():
            child = os.fork()
            if child == 0:
                print(httpx.post("http://127.0.0.1:9/v1/chat/completions", json=chat()).text, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
        with metering() as meter:
            first, second = run_task(meter, agent), run_task(meter, lambda: None)
            for problem in first.trace.problems:
                print(problem.slug, problem.verdict, problem.task, problem.text)
            print(second.trace.problems, meter.finish().problems)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        env={
            "PYTHONPATH": f"{root}:{root / 'tests' / 'meter'}",
            "PATH": "/usr/bin:/bin",
            # from Python 3.12 on the interpreter itself warns of fork beside threads
            "PYTHONWARNINGS": "ignore:This process:DeprecationWarning",
        },
    )

    assert (done.stdout.splitlines(), done.stderr) == (
        [
            '{"error": {"type": "pytest_fanout", "code": "forked-call", "message": "pytest-fanout: a model call in a '
            'forked child process cannot be counted; see docs/messages.md#forked-call"}}',
            "forked-call invalid t a child process made by fork called a model; it was refused, because it cannot be "
            "counted; mend: call models from this process, or start children with the method spawn",
            "() ()",
        ],
        "",
    )


class NumpyFalse:
    """Equal to False and not False, as numpy.False_ is."""

    def __eq__(self, other: object) -> bool:
        return other == 0

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("said", "passes"),
    [(None, True), (True, True), ("", True), ([], True), (False, False), (0, False), (NumpyFalse(), False)],
)
def test_what_a_check_returns(said: Any, passes: bool) -> None:
    """A check fails a trial by False and by what equals it; by nothing else than that or an error."""
    item = EvalItem.__new__(EvalItem)
    agent = SimpleNamespace(name="support", check="shop:polite")
    item.runner = SimpleNamespace(agent=agent, call=lambda task: "answer", check=lambda task, answer: said)  # type: ignore[assignment]
    item.eval_task = SimpleNamespace(input=1, expect=None)  # type: ignore[assignment]
    item.measured = MeasuredTask("support", "refund", 1, "definition")
    item.aside = pytest_fanout.aside
    if passes:
        assert item.runtest() is None  # type: ignore[func-returns-value]
    else:
        with pytest.raises(TrialFailed, match=r"^check shop:polite returned False$"):
            item.runtest()


def pieces() -> Iterator[str]:
    yield from ("re", "fund")


async def async_pieces() -> AsyncIterator[str]:
    await asyncio.sleep(0)
    for piece in pieces():
        yield piece


async def returns(made: Callable[[], Any]) -> Any:
    return made()


async def counts() -> AsyncIterator[int]:
    yield 1
    yield 2


@pytest.mark.parametrize(
    ("returned", "answer"),
    [
        (pieces, "refund"),
        (async_pieces, "refund"),
        (lambda: returns(pieces), "refund"),
        (lambda: returns(async_pieces), "refund"),
        (lambda: iter([{"text": "re"}, "fund"]), [{"text": "re"}, "fund"]),
        (counts, [1, 2]),
        (lambda: iter(()), ""),
        (lambda: ["re", "fund"], ["re", "fund"]),
        (lambda: {"re": 1}, {"re": 1}),
        (lambda: returns(lambda: "refund"), "refund"),
        (lambda: None, None),
    ],
)
def test_a_streamed_answer_is_read_to_its_end(returned: Callable[[], Any], answer: Any) -> None:
    """Of generators and other iterators, sync and async, the pieces are the answer: a text where all are texts."""
    assert read_out(returned()) == answer


# --- trials ------------------------------------------------------------------------------------------------------


class ProvedHere:
    """Proves in this process, which is fresh enough for an agent that draws its ids anew at each call."""

    def __init__(self, runner: TrialRunner, call: Callable[[], Any]) -> None:
        self.runner, self.call = runner, call

    def begin(self) -> None:
        return

    def prove(self, work: MeasuredTask, folder: Path, wall_seconds: int | None) -> Proof:
        return self.runner.proof_of(work, self.call, RecordingStore(folder).load(work.agent, work.task, work.trial))


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Callable[..., tuple[TaskRun, BaseException | None]]]:
    """Runs a call as trial 1 of task `refund` in record mode, into an empty store."""
    meter = Meter(mode="record", measure=BUDGET.measure)
    assert meter.start() == ()
    api.activate(meter)
    runner = TrialRunner(
        meter=meter,
        store=RecordingStore(tmp_path),
        budget=BUDGET,
        mode="record",
        volatile=compile_volatile((), ""),
        codecs=(),
        redact=lambda request, answer: (request, answer),
    )

    def run(call: Callable[[], Any]) -> tuple[TaskRun, BaseException | None]:
        runner.prover = ProvedHere(runner, call)  # type: ignore[assignment]
        return runner.run(MeasuredTask("support", "refund", 1, "definition"), call)

    yield run
    api.activate(None)
    meter.stop()


def ask(base_url: str, text: str = "hi") -> str:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    answer = httpx.post(base_url + "/v1/chat/completions", json=body)
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["message"]["content"])


def test_no_model_answered(record: Any, model: ModelServer, tmp_path: Path) -> None:
    """A trial in which every request failed is not recorded; the last failure and the host are told."""
    model.restart([{"status": 503}])
    task_run, _ = record(lambda: ask(model.base_url))

    text = (
        f"no model answered (HTTP 503, at 127.0.0.1:{model.port}); nothing was recorded."
        " Is its server up, are URL and key set?"
    )
    assert task_run.problems == (Problem("no-model-answered", text, "invalid", "support", "refund", 1),)
    assert not any(tmp_path.iterdir())


def test_unproved_recording(record: Any, model: ModelServer, tmp_path: Path) -> None:
    """An agent with a random id in its prompt cannot be replayed: its recording is not stored, the difference shown."""
    task_run, _ = record(lambda: ask(model.base_url, uuid.uuid4().hex))

    (problem,) = [problem for problem in task_run.problems if problem.slug == "unproved-recording"]
    assert problem.text == (
        "the recording does not replay, so it was not stored: call 1: messages[0] (user): a fresh id; mend: make the"
        " requests steady from run to run, or let [measure] of budget.toml ignore what changes:"
        " volatile = ['^[0-9a-f]{32}']"
    )
    assert task_run.volatile == ("^[0-9a-f]{32}",)
    assert (problem.verdict, task_run.recording) == ("invalid", None)
    assert not any(tmp_path.iterdir())


def test_a_skip_after_calls_is_a_failed_trial(record: Any, model: ModelServer) -> None:
    """A trial that spent calls and then skips stays in the distribution: its number may be the large one."""

    def agent() -> None:
        ask(model.base_url)
        pytest.skip("too hard")

    try:
        task_run, error = record(agent)
    except pytest.skip.Exception:
        pytest.fail("the skip came through, and its calls are in no distribution")

    assert (task_run.status, task_run.passed, task_run.samples["fanout"]) == ("failed", False, 1)
    assert str(error) == "skipped after it had called a model: too hard"


def test_a_skip_before_any_call_is_a_skip(record: Any) -> None:
    """A trial that skips before it did anything has no number, and its item is skipped."""
    with pytest.raises(pytest.skip.Exception, match="no GPU here"):
        record(lambda: pytest.skip("no GPU here"))


def report_of(longrepr: Any, when: str = "setup") -> Any:
    return SimpleNamespace(longrepr=longrepr, when=when)


@pytest.mark.parametrize(
    ("longrepr", "said"),
    [
        (SimpleNamespace(reprcrash=SimpleNamespace(message="ValueError: no\nmore")), "ValueError: no"),
        (
            "ImportError while importing test module 'x.py'.\nTraceback:\nx.py:1: in <module>\n"
            "E   ModuleNotFoundError: No module named 'shop'",
            "ModuleNotFoundError: No module named 'shop'",
        ),
        (
            "pyproject.toml: 'nope' is no program\n  mend: install it\n  see: docs/messages.md#command-not-found",
            "pyproject.toml: 'nope' is no program; mend: install it",
        ),
        (None, "no reason was given"),
    ],
    ids=["raised", "import", "ours", "none"],
)
def test_the_first_error_of_a_report(longrepr: Any, said: str) -> None:
    """The error itself, whatever pytest builds around it, and a mend of ours."""
    assert first_error(report_of(longrepr)) == said


def test_a_failed_collection_names_its_errors(tmp_path: Path) -> None:
    """Each once, the first three; and nothing is said of agents that were not configured."""
    told = Told(collection_failed=True, collection_errors=["a: x", "a: x", "b: y", "c: z", "d: w"])

    assert [problem.text for problem in run_of(told, tmp_path).problems] == [
        "the collection failed, so tasks are missing: a: x; b: y; c: z and 1 more; mend: these, then run again"
    ]


def test_a_failed_set_up_is_told_apart_from_what_was_lost(tmp_path: Path) -> None:
    """Its error is the reason why there is no number; other trials without one are lost."""
    told = measured_as("a")
    told.selected |= {"b", "c"}
    told.setup_failed["b"] = "OSError: no database"

    assert [(problem.slug, problem.text) for problem in run_of(told, tmp_path).problems] == [
        (
            "setup-failed",
            "the set-up of 1 trial failed, so that there is no number: b: OSError: no database; "
            "mend: the fixtures that fail above, then run again",
        ),
        ("tasks-lost", "1 trial began or waited and gave no number: c; mend: find out what ended them, and run again"),
    ]


def test_what_ended_the_collection_is_all_that_is_said(tmp_path: Path) -> None:
    """After a usage error nothing ran, and that is no reason to advise on settings."""
    bad = Problem("bad-mark", "a fanout mark needs agent=", "incomplete")

    assert run_of(Told(problems=[bad], refused=True, selected={"a"}), tmp_path).problems == (bad,)


@pytest.mark.parametrize("name", ["", "two\nlines", "x" * 65])
def test_a_call_site_has_a_name_of_one_line(name: str) -> None:
    """Anything else is refused where it is written, and nothing runs under it."""
    with pytest.raises(UsageError) as caught:
        with pytest_fanout.call_site(name):
            pytest.fail("entered")

    assert str(caught.value) == (
        f"call_site() takes a name of 1 to 64 printable characters, not {name!r:.80}\n"
        '  mend: with pytest_fanout.call_site("planner"): ...' + SEE + "bad-call-site"
    )


GIVEN = ("--fanout-budget", "--fanout-mode=record", "--fanout-trials=3")


@pytest.mark.parametrize("early", [True, False])
def test_an_interrupted_run_is_told_to_run_the_same_command_again(tmp_path: Path, early: bool) -> None:
    """Nobody has to find out what ended it, or to configure what is there; what stands next is a command to copy."""
    told = Told() if early else measured_as("a")
    if not early:
        told.selected |= {"b", "c"}
    finish = replace(finish_of(told, tmp_path), pytest_exit=2, mode="record", command=command_of(GIVEN))

    run, verdict = finish.judge()

    lost = "" if early else ", and 2 trials gave no number"
    command = "pytest --fanout-budget --fanout-mode=record --fanout-trials=3"
    text = f"the run was interrupted{lost}; what was recorded is kept; mend: run the same command again: {command}"
    assert run.problems == (Problem("interrupted", text, "incomplete"),)
    assert verdict.outcome == "not_measured"
    assert command in verdict.next
    assert "configure an agent" not in str(verdict)
    assert "pytest-stopped" not in {problem.slug for problem in verdict.problems}


def test_a_command_with_options_of_other_plugins_is_not_repeated(tmp_path: Path) -> None:
    """They may hold a password; a live run has kept nothing."""
    assert command_of(["tests", "-k", "a or b", "--fanout-budget"]) == "pytest tests -k 'a or b' --fanout-budget"
    assert command_of(["--password=x", "--fanout-budget"]) is None
    run, verdict = replace(finish_of(measured_as("a"), tmp_path), pytest_exit=2, mode="live").judge()

    assert [problem.text for problem in run.problems] == ["the run was interrupted; mend: run the same command again"]
    assert "run the same command again" in verdict.next
