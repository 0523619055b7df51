"""What a run depends on, by digest: of each class its own, and nothing of another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gate_world import make_run, trial

from pytest_fanout.config import AgentSettings, Settings
from pytest_fanout.gate.inputs import changed_inputs, current_inputs, inputs_now, other_recordings, other_tasks
from pytest_fanout.records import SessionFacts
from pytest_fanout.store.evalsets import read_evalset
from pytest_fanout.store.recordings import RecordingStore, slug_of

CLASSES = ("aaa", "support", "zzz")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Three classes with an eval set of one task each, which has a recording; and recordings of a fourth one."""
    for name in CLASSES:
        (tmp_path / f"{name}.jsonl").write_text('{"id": "t", "input": "hello"}\n')
    for name in (*CLASSES, "gone"):
        for task in ("t", "other"):
            folder = tmp_path / "recordings" / name / slug_of(task)
            folder.mkdir(parents=True)
            (folder / "t1.jsonl").write_text("{}\n")
    return Settings(
        root=tmp_path,
        source="pyproject.toml",
        baselines=tmp_path / "baselines",
        recordings=tmp_path / "recordings",
        agents={name: AgentSettings(name, "x:y", tmp_path / f"{name}.jsonl") for name in CLASSES},
    )


def changed(settings: Settings, path: str, *, partial: bool = False) -> set[str]:
    """The inputs that are others once a file has been written, for a run of one task of each class."""
    run = make_run({})
    run = replace(run, tasks=tuple(trial(name, "t", 1, 1) for name in CLASSES), session=SessionFacts(partial=partial))
    before = inputs_now(run, settings)
    file = settings.root / path.replace("/t/", f"/{slug_of('t')}/").replace("/other/", f"/{slug_of('other')}/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("schema = 1\nx = 2\n")
    after = inputs_now(run, settings)
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("name", CLASSES)
def test_a_recording_is_an_input_of_its_own_class(settings: Settings, name: str, partial: bool) -> None:
    """Whatever the classes are called that sort before and after it."""
    assert changed(settings, f"recordings/{name}/t/t1.jsonl", partial=partial) == {f"recordings:{name}"}
    assert changed(settings, f"{name}.jsonl", partial=partial) == {f"evalset:{name}"}


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize(
    ("path", "whole", "part"),
    [
        ("recordings/support/other/t1.jsonl", {"recordings:support"}, set()),
        ("recordings/gone/t/t1.jsonl", {"recordings:gone"}, set()),
        ("recordings/support/t/t2.jsonl", {"recordings:support"}, {"recordings:support"}),
        ("recordings/support/t/.t1.jsonl.tmp", set(), set()),
        ("recordings/loose.jsonl", set(), set()),
        ("baselines/budget.toml", {"budget"}, {"budget"}),
        ("baselines/fleet.toml", {"fleet"}, {"fleet"}),
        ("notes.txt", set(), set()),
    ],
)
def test_what_is_an_input_of_a_whole_run_and_of_a_part(
    settings: Settings, path: str, whole: set[str], part: set[str], partial: bool
) -> None:
    """Of a part the recordings of its tasks alone; files of an interrupted write and files of nobody never."""
    assert changed(settings, path, partial=partial) == (part if partial else whole)


def test_without_any_recordings_each_class_has_none(settings: Settings, tmp_path: Path) -> None:
    """The names are there all the same, so that recordings that come into being are a change."""
    bare = replace(settings, recordings=tmp_path / "nowhere")

    assert {name for name in current_inputs(bare) if name.startswith("recordings:")} == {
        f"recordings:{name}" for name in CLASSES
    }


@pytest.mark.parametrize("digest", ["sha256:" + digit * 64 for digit in "0f"])
def test_a_run_of_other_tasks_is_named_whichever_digest_sorts_first(settings: Settings, digest: str) -> None:
    """The eval set's own digest, and the definition of a task."""
    evalsets = {name: read_evalset(settings.agents[name].evalset, name) for name in CLASSES}
    run = replace(
        make_run({}),
        evalsets={name: evalset.digest for name, evalset in evalsets.items()},
        definitions={name: {task.id: task.definition for task in e.tasks} for name, e in evalsets.items()},
    )
    assert other_tasks(run, settings) == ()

    assert other_tasks(replace(run, evalsets={**run.evalsets, "support": digest}), settings) == (
        "the eval set of support",
    )
    other = {**run.definitions, "support": {"t": digest}}
    assert other_tasks(replace(run, definitions=other), settings) == ("the eval set of support",)


@pytest.mark.parametrize("partial", [False, True])
def test_a_part_answers_for_the_classes_that_it_knows(settings: Settings, partial: bool) -> None:
    """A whole run that leaves a class out is a run of other tasks."""
    run = replace(make_run({}), definitions={}, evalsets={}, session=SessionFacts(partial=partial))

    assert other_tasks(run, settings) == (() if partial else tuple(f"the eval set of {name}" for name in CLASSES))


def test_recordings_of_chosen_classes_alone_are_looked_at(settings: Settings) -> None:
    """And only those that a trial was measured on."""
    run = replace(make_run({}), tasks=tuple(trial(name, "t", 1, 1, recording="sha256:x") for name in CLASSES))
    store = RecordingStore(settings.recordings)

    assert other_recordings(run, ["support"], store) == ("support::t::t1",)
    for changes in ({"recording": None}, {"status": "crashed"}):
        tasks = tuple(replace(task, **changes) for task in run.tasks)  # type: ignore[arg-type]
        assert other_recordings(replace(run, tasks=tasks), ["support"], store) == ()


@pytest.mark.parametrize(
    ("name", "one", "other", "same"),
    [
        ("budget.toml", "schema = 1\n", "# more\nschema = 1\r\n", True),
        ("budget.toml", "schema = 1\n", "schema = 2\n", False),
        ("budget.toml", "x = [\n", "x = [\r\n", True),  # what is no TOML counts by its bytes
        ("budget.toml", "x = [\n", "x = [ \n", False),
        ("fleet.toml", "schema = 1\n", "# more\nschema = 1\r\n", True),
        ("fleet.toml", "x = [\n", "x = [ \n", False),
        ("aaa.jsonl", "{}\n" * 40_000, "{}\n" * 40_000, True),
        ("aaa.jsonl", "{}\n" * 40_000, "{}\n" * 39_999 + "{ \n", False),  # beyond what is read at once
        ("recordings/aaa/x/t1.jsonl", "{}\n", "{}\r\n", True),
    ],
)
def test_by_what_a_file_counts(settings: Settings, name: str, one: str, other: str, same: bool) -> None:
    """Not by its comments or line ends, and by the last of its bytes."""
    folder = settings.baselines if name.endswith(".toml") else settings.root
    digests = []
    for text in (one, other):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
        digests.append(current_inputs(settings))

    assert (digests[0] == digests[1]) == same


def test_a_folder_in_place_of_a_file_is_none(settings: Settings) -> None:
    """As is one that is not there."""
    before = current_inputs(settings)
    (settings.root / "aaa.jsonl").unlink()
    missing = current_inputs(settings)
    (settings.root / "aaa.jsonl").mkdir()
    (settings.baselines / "budget.toml").mkdir(parents=True)

    assert (before["budget"], before["fleet"], missing["evalset:aaa"]) == ("none", "none", "none")
    assert current_inputs(settings) == missing != before


def test_which_files_of_a_folder_count(settings: Settings) -> None:
    """However deep; not what a write that was cut off has left, nor what a link to a folder leads to."""
    folder = settings.recordings / "aaa"
    before = current_inputs(settings)["recordings:aaa"]
    (folder / ".t1.jsonl.tmp").write_text("half")
    (folder / "link").symlink_to(settings.recordings / "zzz", target_is_directory=True)
    (folder / "empty").mkdir()
    assert current_inputs(settings)["recordings:aaa"] == before

    for path in ("deep/er/t1.jsonl", "top.jsonl"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("{}\n")
        after = current_inputs(settings)["recordings:aaa"]
        assert after != before
        before = after


def test_a_recording_that_is_broken_or_gone(settings: Settings) -> None:
    """A broken one is another; of one that is gone the digests of folders tell; the others behind both are seen."""
    store = RecordingStore(settings.recordings)
    path = store.path("support", "broken", 1)
    path.parent.mkdir(parents=True)
    path.write_text("{")
    run = replace(
        make_run({}),
        tasks=tuple(trial("support", task, 1, 1, recording="sha256:x") for task in ("gone", "broken", "t")),
    )

    assert other_recordings(run, ["support"], store) == ("support::broken::t1", "support::t::t1")


def test_an_eval_set_that_cannot_be_read_is_passed_over(settings: Settings) -> None:
    """Its digest has been compared; the classes behind it are looked at."""
    (settings.root / "aaa.jsonl").write_text("{")
    (settings.root / "support.jsonl").unlink()

    assert other_tasks(replace(make_run({}), definitions={}, evalsets={}), settings) == ("the eval set of zzz",)


@pytest.mark.parametrize(
    ("name", "words"),
    [("budget", "budget.toml"), ("fleet", "fleet.toml"), ("evalset:a:b", "the eval set of a:b"), ("new", "new")],
)
def test_inputs_in_words(name: str, words: str) -> None:
    """A kind that this version does not know has its own name."""
    assert changed_inputs({name: "1"}, {name: "2"}) == (words,)
