"""``fanout-baseline show --recording`` and ``import-cassettes``: words about recordings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from pytest_fanout.cli.console import clean, masker
from pytest_fanout.cli.hooks import Hooks, with_hooks
from pytest_fanout.config import Settings, check_agent_name
from pytest_fanout.errors import FanoutError, UsageError
from pytest_fanout.store.scanner import MASKED


def show_recording(settings: Settings, words: str, *, agent: str | None, trial: int | None, full: bool) -> None:
    """Print one recording as a conversation.

    Args:
        settings: of the project.
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

    folder = settings.recordings
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
    turns = turns_of(recording.exchanges)
    if any(turn.exchanges[0].role == "model" and not turn.attempts for turn in turns):
        # no built-in codec reads it: one of the project may
        turns = with_hooks(settings.root, lambda hooks: turns_of(recording.exchanges, hooks.codecs()))
    lines = list(conversation(recording, turns, full=full))
    text = masker().text("\n".join(lines))  # whole, because a secret may have several lines
    click.echo(text if text != MASKED else "\n".join(map(masker().text, lines)))
    others = [str(number) for number in found.trials if number != recording.trial]
    if trial is None and others:
        click.echo(f"\nother trials: {', '.join(others)} (--trial N)")


def import_cassettes(settings: Settings, paths: Sequence[Path], agent: str, task: str | None, trial: int) -> int:
    """Store cassettes as recordings, and say of each what it became. Gives back the exit code.

    The project's own hooks are asked: its codecs read its APIs, and what is stored is redacted as in a run.

    One that cannot be taken is told, and does not keep the others from being stored.

    Raises:
        UsageError: nothing to import, or a file of which no task can be told; nothing is stored.
    """
    check_agent_name(agent, "--agent")
    return with_hooks(settings.root, lambda hooks: _import(settings, paths, agent, task, trial, hooks))


def _import(settings: Settings, paths: Sequence[Path], agent: str, task: str | None, trial: int, hooks: Hooks) -> int:
    from pytest_fanout.meter.reader import Reader
    from pytest_fanout.meter.samples import turns_of
    from pytest_fanout.store.cassettes import definitions_of, find_cassettes, import_cassette
    from pytest_fanout.store.recordings import RecordingStore

    codecs = hooks.codecs()
    reader = Reader(codecs)
    own = settings.agents.get(agent)
    definitions = definitions_of(agent, own.evalset if own else None)
    cassettes = find_cassettes(paths, settings.root, task=task, trial=trial, known=definitions)
    store = RecordingStore(settings.recordings)
    code = stored = 0
    for cassette in cassettes:
        try:
            made = import_cassette(
                cassette, agent, definitions.get(cassette.task), settings.root, store, hooks.redact, reader
            )
        except FanoutError as error:
            click.echo(f"error: {clean(str(error), keep_lines=True)}", err=True)
            code = max(code, error.exit_code)
            continue
        turns = turns_of(made.exchanges, codecs)
        calls = sum(bool(turn.attempts) for turn in turns)
        stored += 1
        click.echo(
            clean(f"{cassette.path} -> {agent}::{made.task}, trial {made.trial} ({cassette.how}): ")
            + f"{calls} model calls, {len(turns) - calls} other requests"
        )
    if stored:
        click.echo(
            f"\nimported {stored} of {len(cassettes)}; not proved yet: a cassette may hold less than the agent asks.\n"
            "The next run replays them: a task that does not fit is stale, and --fanout-mode=record records it anew.\n"
            "Durations, pauses between chunks and the order of concurrent calls are unknown (docs/cassettes.md).\n"
            "\nnext:\n  pytest --fanout-budget"
        )
    return code
