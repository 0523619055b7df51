"""``fanout-baseline show --recording``: words, exit codes, what is printed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pytest_fanout.cli.baseline import main
from pytest_fanout.cli.console import masker
from pytest_fanout.records import Exchange, HttpAnswer, HttpRequest, Recording
from pytest_fanout.store.recordings import RecordingStore

JSON = (("content-type", "application/json"),)


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), catch_exceptions=False)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordingStore:
    """A project whose task "refund" has two trials, of one call each."""
    (tmp_path / "pyproject.toml").write_text("[tool.fanout]\n")
    monkeypatch.chdir(tmp_path)
    store = RecordingStore(tmp_path / "fixtures" / "recordings", {})
    for trial in (1, 2):
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": f"try {trial}"}]}).encode()
        request = HttpRequest("POST", "https://api.openai.com/v1/chat/completions", JSON, body)
        answer = HttpAnswer(200, JSON, (b'{"choices": [{"message": {"content": "done"}}]}',), (5,), 5)
        exchange = Exchange(0, "httpx", "model", "agent", request, answer, 0)
        store.save(Recording("support", "refund", trial, None, 0, 9, "ok", True, (exchange,)))
    return store


def test_the_first_trial_is_shown_and_the_others_named(store: RecordingStore) -> None:
    """Without --trial it is the first; --trial N shows another."""
    first, second = call("show", "--recording", "refund"), call("show", "--recording", "refu", "--trial", "2")

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert "  user: try 1" in first.stdout
    assert first.stdout.endswith("\nother trials: 2 (--trial N)\n")
    assert "  user: try 2" in second.stdout
    assert "other trials" not in second.stdout


def test_the_class_may_be_named_both_ways(store: RecordingStore) -> None:
    """As the argument of ``show``, and by --agent."""
    assert call("show", "support", "--recording", "refund").exit_code == 0
    other = call("show", "--recording", "refund", "--agent", "research")

    assert other.exit_code == 2
    assert "no recorded task of research" in other.stderr


def test_a_trial_that_is_not_recorded(store: RecordingStore) -> None:
    """Those that are recorded are named."""
    shown = call("show", "--recording", "refund", "--trial", "7")

    assert shown.exit_code == 2
    assert "support::refund has no recording of trial 7; it has: 1, 2" in shown.stderr


def test_a_damaged_recording_is_not_shown(store: RecordingStore) -> None:
    """The store's own error, exit 4."""
    path = store.path("support", "refund", 1)
    path.write_bytes(path.read_bytes().replace(b"try 1", b"try X"))
    shown = call("show", "--recording", "refund")

    assert (shown.exit_code, shown.stdout) == (4, "")
    assert "was altered: its content does not fit its digest" in shown.stderr


def test_words_for_a_recording_need_one(store: RecordingStore) -> None:
    """--trial and --full say nothing of an anchor."""
    shown = call("show", "--full")

    assert shown.exit_code == 2
    assert shown.stderr == (
        "error: --trial and --full are for a recording\n"
        "  mend: add --recording TASK\n"
        "  see: docs/messages.md#needs-recording\n"
    )


def cassette(said: str) -> str:
    """A cassette of one call in YAML, as vcrpy writes it."""
    body = json.dumps(json.dumps({"choices": [{"message": {"content": said}}]} if said else {}))
    return (
        "version: 1\ninteractions:\n"
        "- request: {method: POST, uri: 'https://api.openai.com/v1/chat/completions', body: '{}', headers: {}}\n"
        f"  response: {{status: {{code: 200, message: OK}}, headers: {{}}, body: {{string: {body}}}}}\n"
    )


def test_cassettes_are_imported_and_what_cannot_be_is_told(store: RecordingStore, tmp_path: Path) -> None:
    """Each line says what became of a file; one that is refused keeps no other out, and the exit code tells."""
    folder = tmp_path / "tests" / "cassettes" / "test_shop"
    folder.mkdir(parents=True)
    (folder / "test_a.yaml").write_text(cassette("hi"))
    (folder / "test_b.yaml").write_text("- no cassette")
    done = call("import-cassettes", "tests", "--agent", "support")

    assert done.exit_code == 4
    assert done.stdout.splitlines()[:3] == [
        "tests/cassettes/test_shop/test_a.yaml -> support::tests/test_shop.py::test_a, trial 1 (the test of "
        "pytest-recording): 1 model calls, 0 other requests",
        "",
        "imported 1 of 2; not proved yet: a cassette may hold less than the agent asks.",
    ]
    assert "test_b.yaml: is no cassette of vcrpy" in done.stderr
    assert store.load("support", "tests/test_shop.py::test_a", 1).imported == ("tests/cassettes/test_shop/test_a.yaml",)
    assert (
        "imported from tests/cassettes/test_shop/test_a.yaml: no times" in call("show", "--recording", "test_a").stdout
    )


def test_one_cassette_may_be_named_with_its_task_and_trial(store: RecordingStore, tmp_path: Path) -> None:
    """As a further trial of a recorded task."""
    (tmp_path / "any.yml").write_text(cassette("hi"))
    done = call("import-cassettes", "any.yml", "--agent", "support", "--task", "refund", "--trial", "3")

    assert done.exit_code == 0, done.output
    assert store.trials("support", "refund") == (1, 2, 3)


def test_a_secret_of_whoever_looks_is_masked(store: RecordingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording made elsewhere may hold what is a secret here; the rest of it is shown, and a note says so."""
    made = store.load("support", "refund", 1)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "say open-sesame-42 now"}]}).encode()
    sent = replace(made.exchanges[0], request=replace(made.exchanges[0].request, body=body))
    store.save(replace(made, task="cave", exchanges=(sent,)))
    monkeypatch.setenv("CAVE_PASSWORD", "open-sesame-42")
    masker.cache_clear()
    try:
        shown = call("show", "--recording", "cave")
    finally:
        masker.cache_clear()

    assert "  user: say [masked] now\n" in shown.stdout
    assert "sesame" not in shown.output
    assert shown.stderr.startswith(
        "note: a text of this report held the value of the environment variable CAVE_PASSWORD: [masked] stands in its "
    )
