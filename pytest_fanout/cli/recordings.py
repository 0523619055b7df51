"""``fanout-baseline show --recording`` and ``import-cassettes``: words about recordings."""

from __future__ import annotations

from pathlib import Path

import click

from pytest_fanout.errors import UsageError


def show_recording(folder: Path, words: str, *, agent: str | None, trial: int | None, full: bool) -> None:
    """Print one recording as a conversation.

    Args:
        folder: of all recordings.
        words: what names the task.
        trial: which of its recordings; None: the first.

    Raises:
        UsageError: no such task or trial, or several tasks.
        IntegrityError: the recording is damaged.
    """
    from pytest_fanout.meter.samples import turns_of
    from pytest_fanout.report.conversation import conversation
    from pytest_fanout.store.lookup import find_recorded
    from pytest_fanout.store.recordings import RecordingStore

    store = RecordingStore(folder)
    found = find_recorded(store, words, agent)
    if trial is not None and trial not in found.trials:
        raise UsageError(
            "unknown-recording",
            f"{found.name} has no recording of trial {trial}; it has: {', '.join(map(str, found.trials))}",
            where=str(folder),
            mend="leave --trial out for the first of them",
        )
    recording = store.load(found.agent, found.task, trial or found.trials[0])
    for line in conversation(recording, turns_of(recording.exchanges), full=full):
        click.echo(line)
    others = [str(number) for number in found.trials if number != recording.trial]
    if trial is None and others:
        click.echo(f"\nother trials: {', '.join(others)} (--trial N)")
