"""What a commit holds of the baselines folder: anchors, budget, approvals. Committed blobs, never the work tree."""

from __future__ import annotations

import hashlib
import os
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_fanout.config import AGENT_NAME, RESERVED_NAMES, Settings
from pytest_fanout.errors import ConfigError, FanoutError, IntegrityError
from pytest_fanout.judge import stats_of
from pytest_fanout.records import Approval, Baseline, Budget, Problem, SiteStats
from pytest_fanout.store.approvals import parse_approval
from pytest_fanout.store.baselines import parse_baseline
from pytest_fanout.store.budget import parse_budget
from pytest_fanout.store.calibration import fleet_digest
from pytest_fanout.store.git import Entry, Repository
from pytest_fanout.store.sites import parse_sites


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A committed file that cannot be read: the digest of what stands there, and why."""

    digest: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Tree:
    """The baselines folder at one commit. What could not be read is a problem of verdict ``integrity``.

    Attributes:
        unreadable: what could not be read, by class, "budget" or "fleet", and as "" the folder itself: an approval of
            what stands in its place at a later commit departs from its digest.
    """

    anchors: Mapping[str, Baseline]
    budget: Budget
    fleet: str | None  # digest of the parsed fleet.toml and of the calibration that it names
    approvals: tuple[Approval, ...]
    problems: tuple[Problem, ...] = ()
    unreadable: Mapping[str, Unreadable] = field(default_factory=dict)

    def origin(self, agent: str) -> str | None:
        """The digest that an approval of a new anchor departs from; None: there is nothing to depart from."""
        if agent in self.anchors:
            return self.anchors[agent].digest
        lost = self.lost(agent)
        return lost.digest if lost else None

    def lost(self, name: str) -> Unreadable | None:
        """What stands where an anchor (or "budget", "fleet") should, and cannot be read."""
        return self.unreadable.get(name) or self.unreadable.get("")


def folder_of(settings: Settings) -> str:
    """The baselines folder relative to the project's folder, with ``/``.

    Raises:
        ConfigError: it lies outside the project, where no commit of the project holds it.
    """
    try:
        return settings.baselines.relative_to(settings.root).as_posix()
    except ValueError:
        raise ConfigError(
            "baselines-outside",
            "baselines must be a folder inside the project",
            where=f"{settings.source}: [tool.fanout]",
            mend='baselines = "baselines"',
        ) from None


def settings_at(repo: Repository, rev: str, settings: Settings) -> Settings:
    """The settings with the baselines folder that the pyproject.toml of a commit names.

    A change that moves the folder is compared with what stood in the old one: nothing begins anew by being moved.
    """
    try:
        data = repo.read(rev, "pyproject.toml") or b""
        table = tomllib.loads(data.decode("utf-8")).get("tool", {}).get("fanout", {})
        named = table.get("baselines", "baselines")
    except (FanoutError, ValueError, AttributeError, RecursionError):
        return settings  # it was no project then, or none that can be read
    if not isinstance(named, str):
        return settings
    moved = replace(settings, baselines=Path(os.path.normpath(settings.root / named)))
    return moved if moved.baselines.is_relative_to(settings.root) else settings


def kept_in(settings: Settings) -> tuple[str, ...]:
    """What a verdict stands on and has to be committed with it: baselines, recordings and eval sets, relative to the
    project's folder; those that lie outside of it are left out."""
    paths = (settings.baselines, settings.recordings, *(agent.evalset for agent in settings.agents.values()))
    inside = (path.relative_to(settings.root).as_posix() for path in paths if path.is_relative_to(settings.root))
    return tuple(dict.fromkeys(inside))


def to_commit(settings: Settings) -> str:
    """The folders that are to be added after accepting, as words of a command."""
    return shlex.join(kept_in(settings)[:2])


def problem_of(error: FanoutError, verdict: str, agent: str | None = None, commit: str = "") -> Problem:
    """An error as a problem of the report: one line, with its mend."""
    text = f"{error.where}: {error.what}" if error.where else error.what
    if commit:
        text = f"{text} (in {commit})"
    if error.mend:
        text += f"; mend: {error.mend}"
    return Problem(error.slug, text, verdict, agent)


def read_tree(repo: Repository, rev: str, settings: Settings, commit: str, *, is_history: bool = False) -> Tree:
    """The baselines folder at ``rev``.

    Args:
        commit: names it in messages ("HEAD", "the base commit").
        is_history: approvals of this commit bind nothing any more, so that one that cannot be read is no problem.
    """
    folder = folder_of(settings)
    problems: list[Problem] = []
    unreadable: dict[str, Unreadable] = {}
    anchors: dict[str, Baseline] = {}
    entries: Mapping[str, Entry] = {}

    def lose(name: str, error: FanoutError, entry: Entry | None, agent: str | None = None) -> str:
        problem = problem_of(error, "integrity", agent, commit)
        problems.append(problem)
        unreadable[name] = Unreadable(_digest_of(entry, error), problem)
        return unreadable[name].digest

    try:
        repo.prefetch(rev, folder)
        entries = repo.list(rev, folder)
    except IntegrityError as error:
        lost = lose("", error, None)
        return Tree({}, replace(parse_budget(None), digest=lost), lost, (), tuple(problems), unreadable)
    for name in sorted(entries):
        if not name.endswith(".json") or name.endswith(".sites.json"):
            continue
        agent, where = name.removesuffix(".json"), f"{folder}/{name}"
        if not AGENT_NAME.match(agent) or agent in RESERVED_NAMES:
            if not is_history:  # it has never bound anything
                misplaced = IntegrityError(
                    "misplaced",
                    f"is misplaced: {agent!r} cannot name an agent class",
                    where=where,
                    mend=f"git rm {where}",
                )
                known = agent if AGENT_NAME.match(agent) else None
                problems.append(problem_of(misplaced, "integrity", known, commit))
            continue
        try:
            anchors[agent] = parse_baseline(repo.read(rev, where) or b"", agent, where, stats_of)
        except IntegrityError as error:
            lose(agent, error, entries[name], agent)
    budget, fleet = parse_budget(None), None
    try:
        where = f"{folder}/budget.toml"
        budget = parse_budget(repo.read(rev, where), where)
    except (IntegrityError, ConfigError) as error:
        budget = replace(budget, digest=lose("budget", error, entries.get("budget.toml")))
    try:
        where = f"{folder}/fleet.toml"
        fleet = fleet_digest(repo.read(rev, where), where, lambda name: repo.read(rev, f"{folder}/{name}"))
    except (IntegrityError, ConfigError) as error:
        fleet = lose("fleet", error, entries.get("fleet.toml"))
    approvals = _approvals(repo, rev, f"{folder}/approvals", commit, [] if is_history else problems)
    return Tree(anchors, budget, fleet, approvals, tuple(problems), unreadable)


def refuse_lost(tree: Tree, names: Iterable[str]) -> None:
    """Raise IntegrityError where one of these (a class, "budget", "fleet") cannot be read: no default stands in."""
    for name in names:
        lost = tree.lost(name)
        if lost is not None:
            text, _, mend = lost.problem.text.partition("; mend: ")
            raise IntegrityError(lost.problem.slug, text, mend=mend or None)


def _digest_of(entry: Entry | None, error: FanoutError) -> str:
    """Of what cannot be read: by kind and content where git names them, else by what is wrong with it."""
    text = f"{entry.mode} {entry.blob}" if entry is not None else f"{error.slug} {error.where}"
    return "sha256:" + hashlib.sha256(f"unreadable {text}".encode("utf-8", "surrogatepass")).hexdigest()


def _approvals(repo: Repository, rev: str, folder: str, commit: str, problems: list[Problem]) -> tuple[Approval, ...]:
    found: list[Approval] = []
    try:
        repo.prefetch(rev, folder)
        names = sorted(repo.list(rev, folder))
    except IntegrityError as error:
        problems.append(problem_of(error, "integrity", commit=commit))
        return ()
    for name in names:
        if not name.endswith(".json"):
            continue
        path = f"{folder}/{name}"
        try:
            found.append(parse_approval(repo.read(rev, path) or b"", path))
        except IntegrityError as error:
            problems.append(problem_of(error, "integrity", commit=commit))
    return tuple(found)


def read_sites(repo: Repository, rev: str, settings: Settings, agent: str) -> SiteStats | None:
    """The call sites beside the anchor of ``agent`` at a commit, or None when it holds none.

    Raises:
        IntegrityError: the file is malformed.
    """
    where = f"{folder_of(settings)}/{agent}.sites.json"
    data = repo.read(rev, where)
    return None if data is None else parse_sites(data, agent, where)


def work_tree_budget(settings: Settings) -> Budget:
    """The budget as it stands in the work tree: what `accept` would have committed.

    Raises:
        ConfigError: naming file and key.
    """
    path = settings.baselines / "budget.toml"
    return parse_budget(read_file(path), f"{folder_of(settings)}/budget.toml")


def read_file(path: Path) -> bytes | None:
    """The bytes of a file of the work tree, None where there is none.

    Raises:
        IntegrityError: it is there and cannot be read, or is a symbolic link.
    """
    if path.is_symlink():
        raise IntegrityError(
            "not-a-regular-file", "is a symbolic link", where=str(path), mend="put a regular file in its place"
        )
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IntegrityError(
            "cannot-read", f"could not be read: {error.strerror}", where=str(path), mend="mend its permissions"
        ) from None
