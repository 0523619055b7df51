"""What is accepted is committed and pushed: secrets in it are looked for once more, by whoever accepts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pytest_fanout.config import Settings
from pytest_fanout.errors import IntegrityError, NotAccepted
from pytest_fanout.gate.plan import Plan
from pytest_fanout.gate.tree import folder_of
from pytest_fanout.judge import stats_of
from pytest_fanout.records import Approval, Baseline
from pytest_fanout.store.approvals import write_approval
from pytest_fanout.store.baselines import write_baseline
from pytest_fanout.store.files import read_committed
from pytest_fanout.store.findings import findings
from pytest_fanout.store.recordings import MEND, RecordingStore
from pytest_fanout.store.scanner import Scanner
from pytest_fanout.store.sites import write_sites
from pytest_fanout.store.tape import checked_lines, decode


def refuse_secrets(
    plan: Plan, committed: Mapping[str, Baseline], settings: Settings, environ: Mapping[str, str]
) -> None:
    """Look through what would be written, and through the recordings that no committed anchor names yet.

    Args:
        committed: HEAD's anchors by class.
        environ: where the values of secret-looking variables stand.

    Raises:
        NotAccepted: a secret was found; the place is named, the secret is not.
    """
    scanner = Scanner(environ)
    for place, data in _written(plan, folder_of(settings)):
        if kinds := scanner.scan(data.decode("utf-8", "replace")):
            raise _refused(place, "what would be written there", kinds)
    store = RecordingStore(settings.recordings, environ)
    for agent in (*(planned.agent for planned in plan.classes if planned.anchor), *plan.unchanged):
        anchor = committed.get(agent)
        known = {trial.recording for task in anchor.tasks.values() for trial in task.trials} if anchor else set()
        for folder, trials in store.folders(agent):
            for trial in trials:
                path = settings.recordings / agent / folder / f"t{trial}.jsonl"
                try:
                    data = read_committed(path, settings.recordings)
                    if checked_lines(data, str(path), MEND)[1] in known:
                        continue
                    if kinds := scanner.scan(data.decode("utf-8", "replace")):
                        place, kinds = next(findings(decode(data, str(path), MEND), data, scanner))
                        raise _refused(_shown(path, settings), place, kinds)
                except (IntegrityError, FileNotFoundError):
                    continue  # nothing was measured on it, and the gate says so where it should have been


def refuse_secrets_in(approval: Approval, environ: Mapping[str, str]) -> None:
    """Look through the file of one approval. Raises NotAccepted as ``refuse_secrets`` does."""
    if kinds := Scanner(environ).scan(write_approval(approval).decode("utf-8", "replace")):
        raise _refused(approval.path, "what would be written there", kinds)


def _written(plan: Plan, folder: str) -> Iterator[tuple[str, bytes]]:
    for approval in (*plan.budget, *(planned.approval for planned in plan.classes)):
        if approval is not None:
            yield approval.path, write_approval(approval)
    for planned in plan.classes:
        if planned.anchor is not None:
            yield f"{folder}/{planned.agent}.json", write_baseline(planned.anchor, stats_of(planned.anchor))
        if planned.sites is not None:
            yield f"{folder}/{planned.agent}.sites.json", write_sites(planned.sites)


def _shown(path: Path, settings: Settings) -> str:
    return path.relative_to(settings.root).as_posix() if path.is_relative_to(settings.root) else str(path)


def _refused(where: str, place: str, kinds: Sequence[str]) -> NotAccepted:
    return NotAccepted(
        "secret-not-accepted",
        f"not accepted: {place} holds {' and '.join(kinds)}",
        where=where,
        mend="take it out of --reason, of the agent's prompts and tools, or have the hook pytest_fanout_redact remove "
        "it, and record anew; a key that stands in git or in a report of CI is to be renewed",
    )
