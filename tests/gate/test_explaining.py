"""Both sides of an explanation come from git and the work tree: recordings, the diff, the words of the command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from gate_world import NOW, World, git, make_run, sha
from made_agents import Made

from pytest_fanout.cli.baseline import main
from pytest_fanout.errors import GitError
from pytest_fanout.gate.explaining import explanations, with_explanations
from pytest_fanout.meter.samples import measure_trial, turns_of
from pytest_fanout.records import Explanation, Recording, Run, TaskRun, Verdict
from pytest_fanout.report.json import document
from pytest_fanout.store.git import Repository
from pytest_fanout.store.recordings import RecordingStore, slug_of
from pytest_fanout.store.reports import write_report

PLAN = "You plan the research. List what to look up, one a line."
WIDE = "You plan the research. List six alternatives to look up, one a line."
TASKS = tuple(f"t{number:02d}" for number in range(1, 13))
SOURCE = 'MODEL = "m-1"\nPLANNER = "{}"\n'


def researcher(prompt: str, reads: int) -> Callable[[Made], None]:
    def agent(made: Made) -> None:
        made.call(prompt, [f"the question of {made.task}"], "one\ntwo")
        for number in range(reads):
            made.call("You read a source and note what it says.", [f"source {number} of {made.task}"], "a note")

    return agent


def recorded(world: World, agent: Callable[[Made], None]) -> tuple[TaskRun, ...]:
    """The trials of an agent, measured and stored in the work tree."""
    store = RecordingStore(world.settings.recordings, {})
    runs = []
    for task in TASKS:
        made = Made(task)
        agent(made)
        measured = measure_trial(made.exchanges, made.clock)
        definition = sha(f"definition of {task}")
        recording = store.save(
            Recording(
                "support", task, 1, definition, NOW, made.clock, "ok", True, tuple(made.exchanges), ("m-1",), ("m-1",)
            )
        )
        runs.append(
            TaskRun(
                "support", task, 1, "ok", True, dict(measured.samples), definition=definition,
                recording=recording.digest, begun_at=NOW, models_requested=("m-1",), models_served=("m-1",),
            )
        )  # fmt: skip
    return tuple(runs)


def run_of(tasks: tuple[TaskRun, ...]) -> Run:
    return replace(make_run({task: [1] for task in TASKS}), tasks=tasks)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Run]:
    """On main the anchor of a planner that reads two sources; on a branch one that reads six, and its run."""
    made = World.make(tmp_path_factory.mktemp("explained"))
    made.write("shop/agents.py", SOURCE.format(PLAN))
    made.anchor(run_of(recorded(made, researcher(PLAN, 2))))
    made.commit("start")
    made.branch()
    made.write("shop/agents.py", SOURCE.format(WIDE))
    run = run_of(recorded(made, researcher(WIDE, 6)))
    made.commit("wider")
    return made, run


@pytest.fixture
def own_world(world: tuple[World, Run], tmp_path: Path) -> tuple[World, Run]:
    """The same, to be changed."""
    shutil.copytree(world[0].root, tmp_path / "w")
    return World(tmp_path / "w", tmp_path / "w"), world[1]


@pytest.fixture(scope="module")
def judged(world: tuple[World, Run]) -> tuple[Verdict, Explanation]:
    return explained(*world)


def explained(world: World, run: Run) -> tuple[Verdict, Explanation]:
    verdict = with_explanations(world.judge(run), run, world.repo, world.settings, lambda: turns_of)
    (explanation,) = verdict.explanations
    return verdict, explanation


def test_the_change_is_named_with_its_share_and_its_line(judged: tuple[Verdict, Explanation]) -> None:
    """Four reads a task more, all by the planner's prompt, which stands in line 2 of the diff."""
    verdict, explanation = judged
    first = explanation.findings[0]

    assert verdict.classes[0].outcome == "over"
    assert (first.kind, first.label, first.places) == ("prompt", "observed", ("shop/agents.py:2",))
    assert [share.share for share in first.shares if (share.metric, share.scope) == ("fanout", "mean")] == [1]
    assert first.detail == (f"-{PLAN}", f"+{WIDE}")
    assert explanation.notes == ()


def test_each_class_has_three_examples_with_the_first_call_that_differs(judged: tuple[Verdict, Explanation]) -> None:
    """The two sides part at the first call, whose system prompt is another one; two reads beside six."""
    example = judged[1].examples[0]

    assert len(judged[1].examples) == 3
    assert (example.task, example.parts_at, len(example.base), len(example.run)) == ("t01", 1, 3, 7)
    assert example.differs[0].startswith("system prompt: ")


def test_a_run_on_the_anchors_own_recordings_reads_none(
    own_world: tuple[World, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where every recording is the anchor's there is nothing to explain, and nothing is loaded."""
    made, _ = own_world
    tasks = recorded(made, researcher(PLAN, 2))
    run = run_of(tasks)
    verdict = made.judge(run)
    monkeypatch.setattr(RecordingStore, "load", lambda *_: pytest.fail("loaded"))

    found = explanations(verdict, run, made.repo, made.settings, lambda: turns_of, agents=["support"])

    assert found == ()
    assert with_explanations(verdict, run, made.repo, made.settings, lambda: pytest.fail("read")) is verdict


def test_without_a_diff_the_rest_is_explained(own_world: tuple[World, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where git cannot tell what was changed in the code, no line is named and nothing else is lost."""

    def broken(*_: object) -> str:
        raise GitError("git-failed", "git diff failed: broken")

    made, run = own_world
    before = explained(made, run)[1]
    monkeypatch.setattr(Repository, "diff", broken)
    after = explained(made, run)[1]

    assert after.parts == before.parts
    assert "shop/agents.py" in str(before)
    assert "shop/agents.py" not in str(after)


def test_a_recording_that_cannot_be_read_is_a_note(own_world: tuple[World, Run]) -> None:
    """The others are explained, what it held is told as not shown, and the verdict stays."""
    made, run = own_world
    RecordingStore(made.settings.recordings).remove("support", "t03", 1)
    verdict, explanation = explained(made, run)

    assert explanation.notes == (
        "recordings that the numbers did not come from, or that cannot be read: "
        "t03, trial 1, of this run (recording-missing)",
    )
    mean = [part for part in explanation.parts if (part.metric, part.scope) == ("fanout", "mean")]
    assert {part.kind: part.value for part in mean}["untold"] * 12 == 4
    assert sum(part.value for part in mean) == explanation.totals[0].delta == 4
    assert verdict.classes[0].outcome == "over"


def test_recordings_of_the_base_that_do_not_fit_its_anchor_are_notes(own_world: tuple[World, Run]) -> None:
    """One that its commit does not hold, and one that was recorded anew while the anchor stayed."""
    made, run = own_world
    places = {task: f"fixtures/recordings/support/{slug_of(task)}/t1.jsonl" for task in ("t03", "t04")}
    branch = git(made.root, "rev-parse", "HEAD")
    git(made.root, "switch", "-q", "main")
    git(made.root, "checkout", "-q", branch, "--", places["t04"])
    git(made.root, "rm", "-q", "-f", places["t03"])
    made.commit("other recordings, the same anchor")
    git(made.root, "switch", "-q", "-")

    _, explanation = explained(made, run)

    assert explanation.notes == (
        "recordings that the numbers did not come from, or that cannot be read: "
        "t03, trial 1, of the base (cannot be read), t04, trial 1, of the base (recorded anew since its anchor)",
    )


def test_each_class_that_is_asked_for_is_looked_at(world: tuple[World, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """One that no commit knows, or that measured nothing, stops none behind it; the diff of a commit is read once."""
    made, run = world
    asked: list[str] = []
    monkeypatch.setattr(Repository, "diff", lambda self, rev, without: asked.append(rev) or "")
    verdict = made.judge(run)

    def found(*agents: str, of: Run = run, task: str | None = None) -> list[list[str]]:
        words = explanations(verdict, of, made.repo, made.settings, lambda: turns_of, agents=agents, task=task)
        return [[example.task for example in each.examples] for each in words]

    assert found("ghost", "support", "support", task="t07") == [["t07"], ["t07"]]
    assert asked == [verdict.base.rev]
    assert found("support", task="t99") == [[]]
    assert found("support", of=replace(run, tasks=())) == []
    crashed = tuple(replace(trial, status="crashed") for trial in run.tasks)
    others = tuple(replace(trial, agent=agent) for trial in run.tasks for agent in ("aaa", "zzz"))
    assert found("support", of=replace(run, tasks=crashed + others)) == []


def test_tasks_that_stand_on_the_anchors_recordings_have_no_part_in_it(own_world: tuple[World, Run]) -> None:
    """Half of the tasks as they were: two more calls on the mean instead of four, and all of it by the other half."""
    made, _ = own_world
    old, new = researcher(PLAN, 2), researcher(WIDE, 6)
    run = run_of(recorded(made, lambda each: (old if each.task <= "t06" else new)(each)))

    _, explanation = explained(made, run)

    assert (explanation.notes, explanation.totals[0].delta) == ((), 2)
    assert [example.task for example in explanation.examples] == ["t07", "t08", "t09"]
    assert sum(part.value for part in explanation.parts if (part.metric, part.scope) == ("fanout", "mean")) == 2


def test_what_makes_a_class_worth_explaining(world: tuple[World, Run], own_world: tuple[World, Run]) -> None:
    """Another recording, another set of tasks, or less that was asked of the same recordings."""
    made, _ = own_world
    tasks = recorded(made, researcher(PLAN, 2))
    verdict = made.judge(run_of(tasks))

    def is_read(*trials: TaskRun) -> bool:
        asked: list[bool] = []
        run = replace(run_of(trials), session=replace(run_of(trials).session, partial=True))
        explanations(
            verdict, run, made.repo, made.settings, lambda: asked.append(True) or turns_of, agents=["support"]
        )  # fmt: skip
        return bool(asked)

    assert not is_read(*tasks)
    assert is_read(*tasks[1:])
    assert is_read(replace(tasks[0], leftover=1), *tasks[1:])
    assert is_read(*tasks[:-1], replace(tasks[-1], recording=sha("another")))
    assert is_read(*tasks[:-1], replace(tasks[-1], recording=None))


def test_recordings_of_the_run_that_are_not_its_own_are_notes(own_world: tuple[World, Run]) -> None:
    """One that was recorded anew since; a trial without a recording is none of them, and those behind it are read."""
    made, run = own_world
    last = run.tasks[-1]
    run = replace(
        run, tasks=(replace(run.tasks[0], recording=None), *run.tasks[1:-1], replace(last, recording=sha("older")))
    )

    assert explained(made, run)[1].notes == (
        "recordings that the numbers did not come from, or that cannot be read: "
        "t12, trial 1, of this run (recorded anew since)",
    )


def test_recordings_of_the_base_that_cannot_be_read_are_notes(
    own_world: tuple[World, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is no recording; where git fails, and there is none, nothing is explained."""
    made, run = own_world
    place = f"fixtures/recordings/support/{slug_of('t03')}/t1.jsonl"
    git(made.root, "switch", "-q", "main")
    made.write(place, "{}")
    made.commit("broken")
    git(made.root, "switch", "-q", "-")
    assert explained(made, run)[1].notes == (
        "recordings that the numbers did not come from, or that cannot be read: "
        "t03, trial 1, of the base (cannot be read)",
    )

    def broken(*_: object) -> dict[str, bytes]:
        raise GitError("git-failed", "git cat-file failed: broken")

    monkeypatch.setattr(Repository, "read_below", broken)
    verdict = made.judge(run)
    found = explanations(verdict, run, made.repo, made.settings, lambda: turns_of, agents=["support"])
    assert found == ()


@pytest.mark.parametrize(
    ("gone", "told"),
    [(3, "t01, {0}, t02, {0}, t03, {0}"), (4, "t01, {0}, t02, {0}, t03, {0} and 1 more")],
)
def test_three_recordings_are_named_and_the_others_counted(own_world: tuple[World, Run], gone: int, told: str) -> None:
    """A note is one line."""
    made, run = own_world
    for task in TASKS[:gone]:
        RecordingStore(made.settings.recordings).remove("support", task, 1)

    (note,) = explained(made, run)[1].notes

    assert note.partition(": ")[2] == told.format("trial 1, of this run (recording-missing)")


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def why(
    world: tuple[World, Run], judged: tuple[Verdict, Explanation], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    made, run = world
    verdict = judged[0]
    if not (made.folder / "fanout-report.json").exists():
        measured = replace(run, base=verdict.base, head=verdict.head)
        write_report(made.folder / "fanout-report.json", document(measured, verdict))
    monkeypatch.chdir(made.folder)

    def said(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, ["why", "--base", "main", *words])
        assert done.exit_code == code, done.output
        return done.output

    return said


def test_why_says_all_of_it(why: Callable[..., str]) -> None:
    """Findings with share, diff and place; parts that add up; sites; examples; the rule."""
    text = why()

    assert text.startswith("support: 3 -> 7 calls and ")
    assert (
        '  observed: 100 % of the growth in calls: "You plan the research. List six alternatives to look up, one": '
        "system prompt changed (shop/agents.py:2)\n"
    ) in text
    assert f"      -{PLAN}\n      +{WIDE}\n" in text
    assert "calls a task, mean: 3 -> 7 (+4)\n" in text
    assert "  they part at call 1: system prompt: " in text
    assert "rule: Shapley values of two factors" in text
    assert why() == text


@pytest.mark.parametrize("words", [(), ("--agent", "support")])
def test_why_of_one_task(why: Callable[..., str], words: tuple[str, ...]) -> None:
    """One line on the class, then that task call by call, each side in its own words, and nothing else."""
    lines = why(*words, "--task", "t07").splitlines()

    assert lines[0].startswith("support: 3 -> 7 calls and ")
    assert lines[1:3] == ["", "task t07, trial 1 of the base and 1 of the run"]
    assert lines[3].startswith("  they part at call 1: system prompt: ")
    assert lines[5].split(" (")[0] == "  >  1 You plan the research. List what to…"
    assert len(lines) == 5 + 7
    assert "You plan the research. List six alt…" in lines[5]


def test_why_of_one_task_in_other_forms(why: Callable[..., str]) -> None:
    """JSON is whole, with that task as its one example; Markdown folds its calls."""
    (one,) = json.loads(why("--task", "t07", "--format", "json"))

    assert [example["task"] for example in one["examples"]] == ["t07"]
    assert "task t07, trial 1 of the base" in why("--task", "t07", "--format", "md")


def test_why_as_json_holds_exact_numbers(why: Callable[..., str]) -> None:
    """Each fraction stands there exactly; the parts of each total add up to it."""
    from fractions import Fraction

    (one,) = json.loads(why("--format", "json"))

    for total in one["totals"]:
        own = [p for p in one["parts"] if (p["metric"], p["scope"]) == (total["metric"], total["scope"])]
        whole = Fraction(total["run"]["exact"]) - Fraction(total["base"]["exact"])
        assert sum(Fraction(part["value"]["exact"]) for part in own) == whole


def test_why_as_markdown_folds_the_rest(why: Callable[..., str]) -> None:
    """The findings are a list, everything else is folded and inert."""
    text = why("--format", "md")

    assert text.startswith("### Why `support` moved\n\n- **observed** ")
    assert text.rstrip().endswith("</details>")


@pytest.mark.parametrize("form", ["text", "json", "md"])
def test_redacted_shows_no_words_of_prompts(why: Callable[..., str], form: str) -> None:
    """Shapes, names and numbers are left: no prompt, no question, no source."""
    text = why("--redacted", "--format", form)

    assert "system prompt changed" in text
    assert "1 lines removed, 1 added" in text
    for words in ("You plan", "alternatives", "You read", "the question of", "source 0"):
        assert words not in text


@pytest.mark.parametrize(
    ("words", "what", "mend"),
    [
        (
            ("--agent", "sales"),
            "the report holds no class 'sales'; it holds: support",
            "fanout-baseline why, for all of them",
        ),
        (
            ("--task", "t99"),
            "the report holds no task 't99'; the first are: t01, t02, t03, t04, t05",
            "give the id of a task as the report has it",
        ),
    ],
)
def test_why_of_what_is_not_there(why: Callable[..., str], words: tuple[str, ...], what: str, mend: str) -> None:
    """It says what there is, and exits by usage."""
    assert why(*words, code=2) == (
        f"error: fanout-report.json: {what}\n  mend: {mend}\n  see: docs/messages.md#why-unknown\n"
    )
