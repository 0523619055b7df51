"""Shards of one run made one run again: only all of them together are judged, and only where they fit each other."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace

from pytest_fanout.errors import IntegrityError
from pytest_fanout.records import Run, SessionFacts, Totals

_SHARD = re.compile(r"([1-9][0-9]{0,8})/([1-9][0-9]{0,8})\Z")
#: What all shards of one run have in common: the field of the report, in words.
_SHARED = {
    "mode": "the mode",
    "tool": "the version of pytest-fanout",
    "definitions": "the eval sets",
    "evalsets": "the eval sets",
    "sealed": "seal_keys",
    "volatile": "volatile in budget.toml",
}
_AGAIN = "let every job check out the same commit and run `pytest --fanout-budget --fanout-shard=I/N`, then combine"


def combine(reports: Mapping[str, Run]) -> Run:
    """One whole run of all its shards, to be judged like any other.

    Args:
        reports: name of the report, for messages -> its run.

    Raises:
        IntegrityError: a report of no shard; a shard that is missing or there twice, or a task that two shards ran;
            shards of other commits, eval sets or recordings than the first.
    """
    names = _in_order(reports)
    runs = [reports[name] for name in names]
    for name in names[1:]:
        _refuse_mixed(names[0], runs[0], name, reports[name])
    _refuse_overlaps(names, runs)
    first = runs[0]
    ids = "\0".join(run.run_id for run in runs)
    heads = [run.head for run in runs if run.head is not None]
    return replace(
        first,
        run_id=hashlib.sha256(ids.encode("utf-8", "surrogatepass")).hexdigest()[:32],
        begun_at=min(run.begun_at for run in runs),
        agents=tuple(sorted({agent for run in runs for agent in run.agents})),
        tasks=tuple(sorted((t for run in runs for t in run.tasks), key=lambda t: (t.agent, t.task, t.trial))),
        session=_session([run.session for run in runs]),
        totals=Totals(**{f.name: sum(getattr(run.totals, f.name) for run in runs) for f in fields(Totals)}),
        problems=tuple(dict.fromkeys(problem for run in runs for problem in run.problems)),
        head=replace(heads[0], dirty=any(head.dirty for head in heads)) if heads else None,
        ci=any(run.ci for run in runs),
        control=tuple(made for run in runs for made in run.control),
    )


def _in_order(reports: Mapping[str, Run]) -> list[str]:
    """The names of the reports by number of their shard, which are 1 to N without gaps."""
    if not reports:
        raise IntegrityError("shards-missing", "there are no reports to combine", mend=_AGAIN)
    numbers: dict[int, str] = {}
    parts: dict[int, str] = {}
    for name, run in sorted(reports.items()):
        match = _SHARD.match(run.session.shard or "")
        if match is None or int(match[1]) > int(match[2]):
            raise IntegrityError(
                "not-a-shard",
                "is the report of no shard: there is nothing to combine it with",
                where=name,
                mend="fanout-baseline verify, for the report of a whole run",
            )
        number, count = int(match[1]), int(match[2])
        parts.setdefault(count, name)
        if number in numbers and len(parts) == 1:
            raise IntegrityError(
                "shards-overlap",
                f"shard {run.session.shard} is there twice, in {numbers[number]} and in {name}",
                mend="give each job its own number, and keep only the reports of one run",
            )
        numbers[number] = name
    if len(parts) > 1:
        said = ", ".join(f"{name} is one of {count}" for count, name in sorted(parts.items()))
        raise IntegrityError("shards-mixed", f"the shards are parts of different wholes: {said}", mend=_AGAIN)
    (count,) = parts
    if len(numbers) != count:
        missing = [number for number in range(1, min(count, len(numbers) + 6) + 1) if number not in numbers][:5]
        left = count - len(numbers) - len(missing)
        more = f" and {left} more" if left else ""
        raise IntegrityError(
            "shards-missing",
            f"{len(numbers)} of {count} shards left a report; missing: "
            f"{', '.join(f'{number}/{count}' for number in missing)}{more}",
            mend="see why these jobs left no report; a part of the tasks is never judged as the whole",
        )
    return [numbers[number] for number in sorted(numbers)]


def _refuse_mixed(one: str, first: Run, other: str, run: Run) -> None:
    differs = [words for field, words in _SHARED.items() if getattr(first, field) != getattr(run, field)]
    if (first.head.rev if first.head else None) != (run.head.rev if run.head else None):
        differs.insert(0, "the commit")
    if (first.base.rev if first.base else None) != (run.base.rev if run.base else None):
        differs.append("the base")
    inputs = {name for name in {*first.inputs, *run.inputs} if first.inputs.get(name) != run.inputs.get(name)}
    differs += [_input_words(name) for name in sorted(inputs)]
    if not differs:
        return
    mend = _AGAIN
    if differs == [_SHARED["tool"]]:
        mend = f"install one version in all jobs ({first.tool} and {run.tool} ran), then let them run again"
    elif first.mode in ("record", "rerecord") and all(word.startswith("the recordings") for word in differs):
        mend = "each shard recorded its own part: commit the recordings of all of them, then let the shards replay"
    raise IntegrityError(
        "shards-mixed",
        f"{one} and {other} are not of one run; what differs: {', '.join(dict.fromkeys(differs))}",
        mend=mend,
    )


def _input_words(name: str) -> str:
    kind, _, agent = name.partition(":")
    return {"evalset": f"the eval set of {agent}", "recordings": f"the recordings of {agent}"}.get(kind, f"{name}.toml")


def _refuse_overlaps(names: Iterable[str], runs: Iterable[Run]) -> None:
    owner: dict[tuple[str, str], str] = {}
    for name, run in zip(names, runs, strict=True):
        for key in {(trial.agent, trial.task) for trial in run.tasks}:
            if key in owner:
                raise IntegrityError(
                    "shards-overlap",
                    f"{key[0]}::{key[1]} ran in two shards, {owner[key]} and {name}",
                    mend="use one version of pytest-fanout in all jobs, and keep only the reports of one run",
                )
            owner[key] = name


def _session(parts: Sequence[SessionFacts]) -> SessionFacts:
    """Sums; the worst of the exits; a shard that was partial or ended early makes the whole so."""
    exits = [part.pytest_exit for part in parts if part.pytest_exit]
    stopped = [f"shard {part.shard}: {part.stopped}" for part in parts if part.stopped]
    return SessionFacts(
        expected=sum(part.expected for part in parts),
        collected=sum(part.collected for part in parts),
        ran=sum(part.ran for part in parts),
        deselected=sum(part.deselected for part in parts),
        skipped=sum(part.skipped for part in parts),
        pytest_exit=max(exits, default=0),
        partial=any(part.partial for part in parts),
        stopped="; ".join(stopped) or None,
        withheld=sum(part.withheld for part in parts),
    )
