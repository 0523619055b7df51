"""What accepting a run would write, and the writing of it: each file in one step, a class's anchor last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_fanout.config import Settings
from pytest_fanout.errors import StorageError
from pytest_fanout.gate.tree import folder_of
from pytest_fanout.judge import stats_of
from pytest_fanout.records import Approval, Base, Baseline, Change, ClassResult, SiteStats, Verdict
from pytest_fanout.store.approvals import path_name, write_approval
from pytest_fanout.store.baselines import write_baseline
from pytest_fanout.store.files import alone_in, refuse_links, remove_litter, sync_folder, write_atomically
from pytest_fanout.store.sites import write_sites


@dataclass(frozen=True, slots=True)
class PlannedClass:
    """What accepting means for one class."""

    agent: str
    result: ClassResult | None  # the judgement that the table is made from
    anchor: Baseline | None  # None: the class is given up
    sites: SiteStats | None
    approval: Approval | None  # None: nothing got looser
    changes: tuple[Change, ...]
    draw: int  # the highest draw of a trial: 3 means that it was recorded three times
    superseded: tuple[str, ...]  # file names of this branch's older approvals for the class
    endings: Mapping[str, int] = field(default_factory=dict)  # of the anchor's trials: trials passed capped failed
    provisional: str | None = None  # why the anchor is only that
    few: str | None = None  # that it holds few trials, and what mends it


@dataclass(frozen=True, slots=True)
class Plan:
    """What `accept` would write."""

    classes: tuple[PlannedClass, ...]
    budget: tuple[Approval, ...]  # approvals for budget.toml and fleet.toml
    unchanged: tuple[str, ...]  # classes whose anchor is already this one
    base: Base
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Accepted:
    """What was written and removed, as paths relative to the project."""

    written: tuple[str, ...]
    removed: tuple[str, ...]


def carry_out(plan: Plan, settings: Settings) -> Accepted:
    """Write what was planned, each file in one step, a class's anchor last.

    Raises:
        StorageError: naming the file; what stood there is whole. Another command is writing there now.
        IntegrityError: a folder that is to be written to is a link, and may lead anywhere.
    """
    folder = folder_of(settings)
    written: list[str] = []
    removed: list[str] = []

    def write(name: str, data: bytes) -> None:
        refuse_links((settings.baselines / name).parent, settings.root)
        write_atomically(settings.baselines / name, data)
        written.append(f"{folder}/{name}")

    def remove(name: str) -> None:
        path = settings.baselines / name
        if path.is_symlink() or path.exists():
            try:
                path.unlink()
            except OSError as error:
                raise StorageError(
                    "cannot-write",
                    f"could not be removed: {error.strerror}",
                    where=f"{folder}/{name}",
                    mend="mend the permissions, then run the same command again",
                ) from None
            sync_folder(path.parent)
            removed.append(f"{folder}/{name}")

    refuse_links(settings.baselines, settings.root)
    with alone_in(settings.baselines):
        for approval in plan.budget:
            write(f"approvals/{path_name(approval.path)}", write_approval(approval))
        for planned in plan.classes:
            if planned.sites is not None:
                write(f"{planned.agent}.sites.json", write_sites(planned.sites))
            if planned.approval is not None:
                write(f"approvals/{path_name(planned.approval.path)}", write_approval(planned.approval))
            if planned.anchor is not None:
                write(f"{planned.agent}.json", write_baseline(planned.anchor, stats_of(planned.anchor)))
            else:
                remove(f"{planned.agent}.json")
                remove(f"{planned.agent}.sites.json")
            for name in planned.superseded:
                remove(f"approvals/{name}")
    remove_litter(settings.recordings)  # what comes next is git add
    return Accepted(tuple(written), tuple(removed))
