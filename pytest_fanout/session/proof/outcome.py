"""What the proof of one recording has shown, in the words of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pytest_fanout.errors import FanoutError
from pytest_fanout.records import Recording
from pytest_fanout.report.summary import toml_list
from pytest_fanout.store.replay import Missed
from pytest_fanout.wire.canonical import body_key, compile_volatile
from pytest_fanout.wire.unsteady import Unsteady, unsteady_parts

_MOST: Final = 8  # differences that are told
_STEADY: Final = "make the requests steady from run to run"


class ProofNotRun(FanoutError):
    """A recording could not be proved: nothing is known of it, so it is not stored."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What did not come out the same on replay, one short text each; none: the recording is proved."""

    differences: tuple[str, ...] = ()
    volatile: tuple[str, ...] = ()  # entries of budget.toml that ignore the differences that can be ignored


@dataclass(frozen=True, slots=True)
class Replay:
    """One more run of a trial, against its own recording."""

    missed: Sequence[Missed]
    leftover: int
    passed: bool
    error: str  # one line, where it did not pass
    samples: Mapping[str, int | None]
    skipped: str | None = None


def compared(stored: Recording, samples: Mapping[str, int | None], replay: Replay) -> Proof:
    """Judge a replay. ``samples``: those of the recording itself."""
    if replay.skipped is not None:
        return Proof((f"the task was skipped on replay: {replay.skipped}",))
    if replay.missed:
        return _of_requests(stored, replay.missed)
    differences = []
    if replay.leftover:
        differences.append(f"{replay.leftover} recorded requests were not made again")
    if replay.passed != stored.passed:
        ended = f"failed on replay: {replay.error}" if stored.passed else "passed on replay"
        differences.append(f"the task {ended}")
    if differences:
        return Proof(tuple(differences))
    if dict(replay.samples) != dict(samples):
        moved = sorted(name for name, value in samples.items() if replay.samples.get(name) != value)
        return Proof((f"other numbers on replay: {', '.join(moved)}",))
    return Proof()


def _of_requests(stored: Recording, missed: Sequence[Missed]) -> Proof:
    heard = "\n".join(exchange.answer.body.decode("utf-8", "replace") for exchange in stored.exchanges)
    differences: dict[str, str] = {}
    entries: dict[str, None] = {}
    for miss in missed:
        parts = _parts(miss, heard)
        if not parts:
            for text in miss.changes:
                differences.setdefault(text, f"call {miss.call}: {text}")
            continue
        for part in parts:
            # the same date in each of a hundred calls is one difference
            differences.setdefault(part.volatile or f"{part.place} {part.what}", _told(miss, part))
            if part.volatile is not None:
                entries[part.volatile] = None
    told = list(differences.values())
    if len(told) > _MOST:
        told[_MOST - 1 :] = [f"and {len(told) - _MOST + 1} more"]
    return Proof(tuple(told), tuple(entries))


def _parts(miss: Missed, heard: str) -> tuple[Unsteady, ...]:
    """What differs in one request; empty where another one was made, or where the entries found do not help."""
    before, after = miss.recorded, miss.requested
    if before is None or before.body == after.body:
        return ()
    parts = unsteady_parts(before.body, after.body, heard)
    entries = [part.volatile for part in parts if part.volatile is not None]
    if len(entries) < len(parts):
        return parts
    volatile = compile_volatile(entries, "")
    types = [next((value for name, value in side.headers if name == "content-type"), "") for side in (before, after)]
    keys = [body_key(side.body, kind, volatile) for side, kind in zip((before, after), types, strict=True)]
    return parts if keys[0] == keys[1] else ()


def _told(miss: Missed, part: Unsteady) -> str:
    text = f"call {miss.call}: {part.place}: {part.what}"
    if part.volatile is None and not part.what.endswith("order"):
        # what it is cannot be named: then at least it is shown
        text += "".join(f" ({change})" for change in miss.changes[:1])
    return text


def unproved_text(proof: Proof, volatile: Sequence[str]) -> str:
    """Why a new recording was not stored, and what would make it replay.

    Args:
        volatile: the entries that stand in budget.toml.
    """
    text = f"the recording does not replay, so it was not stored: {'; '.join(proof.differences)}; mend: {_STEADY}"
    if any(difference.endswith("order") for difference in proof.differences):
        text += " (sort what comes from a set, a folder or parallel work before it is sent: an order cannot be ignored)"
    if proof.volatile:
        line = f"volatile = {toml_list((*volatile, *proof.volatile))}"
        text += f", or let [measure] of budget.toml ignore what changes: {line}"
    return text
