"""Which recording somebody means who names a task in words of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from recording_samples import chat, recording

from pytest_fanout.errors import IntegrityError, UsageError
from pytest_fanout.store.lookup import find_recorded
from pytest_fanout.store.recordings import RecordingStore, slug_of

REFUND = "tests/test_shop.py::test_refund[eu]"


@pytest.fixture
def store(tmp_path: Path) -> RecordingStore:
    """support: the refund test (trials 1 and 3) and "price"; research: "price"."""
    store = RecordingStore(tmp_path, {})
    for task, trial, agent in ((REFUND, 1, "support"), (REFUND, 3, "support"), ("price", 1, "support")):
        store.save(recording(chat("hi"), task, trial, agent))
    store.save(recording(chat("hi"), "price", 1, "research"))
    return store


@pytest.mark.parametrize(
    "words", [REFUND, f"support::{REFUND}", slug_of(REFUND), "test_refund", "REFUND[EU]", "support::tests"]
)
def test_a_task_is_found_by_id_folder_or_a_part_of_its_own(store: RecordingStore, words: str) -> None:
    """The id, with its class or without, the folder's name, or what only one ``class::id`` contains in any case."""
    found = find_recorded(store, words)

    assert (found.agent, found.task, found.trials) == ("support", REFUND, (1, 3))


def test_an_exact_id_is_found_without_a_look_at_the_others(store: RecordingStore, tmp_path: Path) -> None:
    """A damaged file of another task does not matter to who names a task exactly."""
    for path in (tmp_path / "research").glob("*/t1.jsonl"):
        path.write_bytes(b"no recording")

    assert find_recorded(store, REFUND).task == REFUND
    assert find_recorded(store, "price", "support").agent == "support"


def test_one_id_in_two_classes_is_ambiguous(store: RecordingStore) -> None:
    """The classes are told, and --agent decides."""
    with pytest.raises(UsageError) as caught:
        find_recorded(store, "price")

    assert str(caught.value) == (
        f"{store.folder}: 'price' names 2 recorded tasks: research::price, support::price\n"
        "  mend: give one of these names whole, or --agent NAME\n"
        "  see: docs/messages.md#ambiguous-task"
    )
    assert find_recorded(store, "price", "research").agent == "research"
    assert find_recorded(store, "research::price").agent == "research"


def test_an_unknown_task_tells_the_nearest(store: RecordingStore) -> None:
    """By the words of ids as well, because the ids of tests are long."""
    with pytest.raises(UsageError) as caught:
        find_recorded(store, "test_refnud")

    assert str(caught.value) == (
        f"{store.folder}: no recorded task is called 'test_refnud'; the nearest are: support::{REFUND}\n"
        "  mend: give a task id, or a part of one; to record: pytest --fanout-budget --fanout-mode=record\n"
        "  see: docs/messages.md#unknown-recording"
    )


def test_where_nothing_is_recorded(tmp_path: Path) -> None:
    """No folder is as good as an empty one."""
    with pytest.raises(UsageError, match="no recorded task of support is called 'x'; there is none at all"):
        find_recorded(RecordingStore(tmp_path / "nowhere", {}), "x", "support")


def test_a_damaged_header_is_told_when_its_folder_is_named(store: RecordingStore) -> None:
    """The task id cannot be read, but the folder still names it."""
    store.path("support", "price", 1).write_bytes(b"{")

    with pytest.raises(IntegrityError, match="recording-malformed"):
        find_recorded(store, slug_of("price"), "support")


def test_a_folder_that_was_moved_to_another_task_is_told(store: RecordingStore) -> None:
    """Whose header names another task than its folder is for is misplaced, not shown under either name."""
    store.path("support", "price", 1).parent.rename(store.folder / "support" / slug_of("other"))

    with pytest.raises(IntegrityError, match=r"is a recording of support::price, whose folder is another"):
        find_recorded(store, slug_of("other"), "support")
