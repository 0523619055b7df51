"""git as a source of committed blobs, through its command: never the work tree, never a checkout filter.

``git replace`` refs, grafts, GIT_* variables and quoting are switched off: what is read is what the commit holds.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from pytest_fanout.errors import GitError, IntegrityError
from pytest_fanout.records import Base, Head
from pytest_fanout.store.base import find_base
from pytest_fanout.store.ci import FETCH_DEPTH as FETCH_DEPTH

_OPTIONS = (
    "--no-replace-objects",
    "--literal-pathspecs",
    "-c",
    "core.quotePath=false",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "safe.directory=*",
)
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_MOST_PATHS = 1_000  # of a diff: they stand on a command line


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a committed folder."""

    mode: str  # 100644 100755 120000 (symlink) 160000 (submodule) 040000 (folder)
    blob: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A git work tree; ``prefix`` is the project's folder inside it ("" or "services/shop/")."""

    root: Path
    prefix: str
    is_shallow: bool
    _blobs: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    _folders: dict[tuple[str, str], dict[str, Entry]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def find(cls, folder: Path) -> Repository | None:
        """The repository that holds the project folder, or None when there is none.

        Raises:
            GitError: git is not installed, or does not answer.
        """
        done = _git(folder, "rev-parse", "--show-toplevel", "--show-prefix", "--is-shallow-repository")
        if done.returncode:
            if "not a git repository" in done.stderr or "must be run in a work tree" in done.stderr:
                return None
            raise _failed("rev-parse", done.stderr)
        lines = done.stdout.decode("utf-8", "surrogateescape").split("\n")
        return cls(Path(lines[0]), lines[1], lines[2] == "true")

    # --- commits -------------------------------------------------------------------------------------------------

    def resolve(self, rev: str) -> str | None:
        """The full id of the commit that ``rev`` names, or None when it is not here."""
        if not rev or "\0" in rev:
            return None
        done = _git(self.root, "rev-parse", "--verify", "--quiet", "--end-of-options", rev + "^{commit}")
        name = done.stdout.decode("ascii", "replace").strip()
        return name if done.returncode == 0 and _SHA.match(name) else None

    def head(self, outputs: Sequence[Path] = ()) -> Head:
        """The commit that is checked out. ``dirty``: a tracked file of the repository differs from it, staged or not,
        or the project's folder holds an untracked file that is not ignored. ``outputs``: files that this run writes;
        untracked, they are no change of the project."""
        rev = self.resolve("HEAD")
        if rev is None:
            return Head(None, dirty=True)
        merges = self.resolve("HEAD^2")
        tracked = self._run("status", "--porcelain=v1", "-z", "--untracked-files=no")
        if tracked:
            return Head(rev, dirty=True, merges=merges)
        own = {os.path.realpath(path) for path in outputs}
        names = (name.decode("utf-8", "surrogateescape") for name in self._untracked().split(b"\0") if name)
        return Head(rev, dirty=any(os.path.realpath(self.root / name) not in own for name in names), merges=merges)

    def _untracked(self) -> bytes:
        where = self.prefix or "."
        return self._run("ls-files", "-z", "--others", "--exclude-standard", "--", where)

    def uncommitted(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Which of these files and folders of the project hold anything that HEAD does not, or lack what it holds."""
        where = {path: self.prefix + path for path in paths}
        if not where or not self._status(*where.values()):
            return ()
        return tuple(path for path in paths if self._status(where[path]))

    def _status(self, *where: str) -> bytes:
        return self._run("status", "--porcelain=v1", "-z", "--untracked-files=all", "--", *where)

    def hidden(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Files of the project at these paths that are there for a run and not for ``git status``: ignored ones, and
        those that the index is told to take for unchanged."""
        where = [self.prefix + path for path in paths]
        found = [
            line[2:]
            for line in self._run("ls-files", "-z", "-v", "--", *where).split(b"\0")
            if line[:1].islower() or line[:1] == b"S"
        ]
        found += self._run("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--", *where).split(b"\0")
        # names that begin with a dot are temporary files, which no run reads
        names = (name.decode("utf-8", "surrogateescape") for name in found if name)
        return tuple(sorted(name for name in names if not name.rsplit("/", 1)[-1].startswith(".")))

    def author(self) -> str:
        """Who works here, for ``requested_by``: user.email, else user.name, else "unknown"."""
        for key in ("user.email", "user.name"):
            done = _git(self.root, "config", "--get", key)
            value = done.stdout.decode("utf-8", "replace").strip()
            if done.returncode == 0 and value:
                return value[:200]
        return "unknown"

    # --- blobs ---------------------------------------------------------------------------------------------------

    def read(self, rev: str, path: str) -> bytes | None:
        """The committed bytes of a file of the project, or None when the commit does not hold it.

        Args:
            path: relative to the project's folder, with ``/``.

        Raises:
            IntegrityError: a symlink, a submodule or a folder stands there or above it.
            GitError: the commit or the blob is not in this clone.
        """
        folder, name = str(PurePosixPath(path).parent), PurePosixPath(path).name
        entry = self.list(rev, "" if folder == "." else folder).get(name)
        if entry is None:
            return None
        if entry.mode not in ("100644", "100755"):
            raise _not_a_file(path, rev, entry.mode)
        if entry.blob not in self._blobs:
            self._blobs[entry.blob] = self._run("cat-file", "blob", entry.blob)
        return self._blobs[entry.blob]

    def prefetch(self, rev: str, folder: str) -> None:
        """Have git tell the files of a folder of the project in one go: ``read`` gives them without asking again.

        Raises IntegrityError and GitError as ``list`` does.
        """
        files = [entry.blob for entry in self.list(rev, folder).values() if entry.mode.startswith("100")]
        self._blobs.update(self._many([blob for blob in files if blob not in self._blobs]))

    def _many(self, blobs: Collection[str]) -> dict[str, bytes]:
        """The bytes of blobs that a tree names."""
        wanted = list(dict.fromkeys(blobs))
        out: dict[str, bytes] = {}
        data, at = self._run("cat-file", "--batch", stdin="".join(f"{blob}\n" for blob in wanted)), 0
        for blob in wanted:
            end = data.index(b"\n", at)
            size = int(data[at:end].rpartition(b" ")[2])
            out[blob] = data[end + 1 : end + 1 + size]
            at = end + size + 2
        return out

    def read_below(self, rev: str, folder: str, wanted: Collection[str]) -> dict[str, bytes]:
        """The bytes of many files at once: those of ``wanted`` (paths below ``folder``) that the commit holds.

        Symbolic links and submodules are left out. Raises GitError.
        """
        where = f"{self.prefix}{folder}/"
        blobs: dict[str, str] = {}
        for line in self._run("ls-tree", "-r", "-z", "--full-tree", rev, "--", where).split(b"\0"):
            facts, _, name = line.partition(b"\t")
            path = name.decode("utf-8", "surrogateescape").removeprefix(where)
            mode, _, blob = facts.decode("ascii").rpartition(" ")
            if path in wanted and mode.startswith("100"):
                blobs[path] = blob
        texts = self._many(blobs.values())
        return {path: texts[blob] for path, blob in blobs.items()}

    def diff(self, rev: str, without: Sequence[str], most_bytes: int = 2**21) -> str:
        """What the work tree of the project adds to a commit and takes from it, as git tells it, without context.

        Args:
            without: folders of the project that are left out.
            most_bytes: of the text; what is beyond is cut.

        Raises:
            GitError: the commit is not in this clone.
        """
        options = ("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--relative")
        where = self.root / self.prefix
        named = _git(where, "diff", *options, "--name-only", "-z", rev)
        if named.returncode:
            raise _failed("diff", named.stderr, shallow=self.is_shallow)
        paths = [os.fsdecode(name) for name in named.stdout.split(b"\0") if name]
        paths = [path for path in paths if not any(path.startswith(f"{folder}/") for folder in without)]
        if not paths:
            return ""
        told = _git(where, "diff", *options, "--unified=0", rev, "--", *paths[:_MOST_PATHS])
        return told.stdout[:most_bytes].decode("utf-8", "replace")

    def list(self, rev: str, folder: str) -> Mapping[str, Entry]:
        """The entries of a folder of the project at a commit: name -> mode and blob. Empty when there is none.

        Raises:
            IntegrityError: a symlink or submodule stands where the folder is looked for.
        """
        key = (rev, folder)
        if key not in self._folders:
            self._folders[key] = self._list(rev, folder)
        return self._folders[key]

    def _list(self, rev: str, folder: str) -> dict[str, Entry]:
        parts = PurePosixPath(folder).parts
        for depth in range(1, len(parts) + 1):
            above = "/".join(parts[:depth])
            found = self._tree(rev, self.prefix + above)
            if not found:
                return {}
            entry = next(iter(found.values()))
            if entry.mode != "040000":
                raise _not_a_file(above, rev, entry.mode)
        where = self.prefix + "".join(part + "/" for part in parts)
        return self._tree(rev, where)

    def _tree(self, rev: str, where: str) -> dict[str, Entry]:
        paths = ("--", where) if where else ()
        out: dict[str, Entry] = {}
        for line in self._run("ls-tree", "-z", "--full-tree", rev, *paths).split(b"\0"):
            if line:
                facts, name = line.split(b"\t", 1)
                mode, _, blob = facts.decode("ascii").split(" ")
                out[name.decode("utf-8", "surrogateescape").rsplit("/", 1)[-1]] = Entry(mode, blob)
        return out

    def history(self, base: str, head: str, path: str, most: int = 200) -> tuple[str, ...]:
        """Commits after ``base`` up to ``head`` that changed a file of the project, newest first, at most ``most``."""
        words = ("rev-list", "--full-history", f"--max-count={most}", f"{base}..{head}", "--", self.prefix + path)
        return tuple(self._run(*words).decode("ascii").split())

    # --- the base ------------------------------------------------------------------------------------------------

    def resolve_base(self, option: str | None, environ: Mapping[str, str] = os.environ) -> Base:
        """The commit to compare with: see ``store.base.find_base``."""
        return find_base(self, option, environ)

    def event_base(self, environ: Mapping[str, str] = os.environ) -> Base:
        """The base that this environment itself dictates, without any option."""
        return self.resolve_base(None, environ)

    def fork_point(self, one: str, other: str) -> str | None:
        """A best common ancestor of two commits; None: this clone holds none."""
        done = _git(self.root, "merge-base", one, other)
        name = done.stdout.decode("ascii", "replace").split("\n", 1)[0]
        return name if done.returncode == 0 and _SHA.match(name) else None

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether ``newer`` holds ``older``; False as well where this clone cannot tell."""
        return _git(self.root, "merge-base", "--is-ancestor", older, newer).returncode == 0

    def parents(self, commit: str) -> tuple[str, ...]:
        """As the commit itself says: a shallow clone hides parents that it does not hold."""
        head, _, _ = self._run("cat-file", "commit", commit).partition(b"\n\n")
        lines = head.decode("utf-8", "replace").split("\n")
        return tuple(line[7:] for line in lines if line.startswith("parent "))

    def upstream(self) -> tuple[str, ...]:
        """The upstream of this branch, unless it is only the branch's own pushed copy: that is no base."""
        done = _git(self.root, "rev-parse", "--symbolic-full-name", "@{upstream}", "HEAD")
        names = done.stdout.decode("utf-8", "replace").split()
        if done.returncode or len(names) != 2:
            return ()
        own = names[1].removeprefix("refs/heads/")
        return () if names[0].endswith(f"/{own}") else (names[0],)

    # --- worktrees -----------------------------------------------------------------------------------------------

    def add_worktree(self, folder: Path, rev: str) -> None:
        """Check a commit out into a new folder, without branch and hooks. Raises GitError."""
        self._run("worktree", "add", "--quiet", "--detach", "--", str(folder), rev)

    def remove_worktree(self, folder: Path) -> None:
        """Forget it, whatever was written there. Raises GitError."""
        self._run("worktree", "remove", "--force", "--", str(folder))

    def worktrees(self) -> tuple[Path, ...]:
        """All that git knows, this one included. Raises GitError."""
        told = os.fsdecode(self._run("worktree", "list", "--porcelain"))
        return tuple(Path(line.removeprefix("worktree ")) for line in told.split("\n") if line.startswith("worktree "))

    def _run(self, *words: str, stdin: str | None = None) -> bytes:
        done = _git(self.root, *words, stdin=stdin)
        if done.returncode:
            raise _failed(words[0], done.stderr, shallow=self.is_shallow)
        return done.stdout


@dataclass(frozen=True, slots=True)
class _Done:
    returncode: int
    stdout: bytes
    stderr: str


def _git(folder: Path, *words: str, stdin: str | None = None) -> _Done:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environ |= {"LC_ALL": "C", "LANGUAGE": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    environ["GIT_GRAFT_FILE"] = os.devnull  # like replace refs, .git/info/grafts gives commits other parents
    try:
        done = subprocess.run(
            ["git", *_OPTIONS, *words],
            cwd=folder,
            env=environ,
            input=stdin.encode("ascii") if stdin else b"",
            capture_output=True,
            check=False,
            timeout=120,
        )
    except FileNotFoundError:
        raise GitError(
            "no-git", "the git command was not found", mend="install git 2.18 or newer and put it on PATH"
        ) from None
    except NotADirectoryError:
        raise GitError(
            "git-failed", "is not a folder", where=str(folder), mend="run from the project's folder"
        ) from None
    except PermissionError as error:
        raise GitError(
            "git-failed",
            f"git could not be started: {error.strerror}",
            mend="mend the permissions of git or the folder",
        ) from None
    except subprocess.TimeoutExpired:
        raise GitError(
            "git-failed", f"git {words[0]} did not answer within 120 seconds", mend="run `git status` there to see why"
        ) from None
    return _Done(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))


def _failed(command: str, stderr: str, *, shallow: bool = False) -> GitError:
    lines = [line for line in stderr.strip().splitlines() if line.strip()]
    why = lines[0].strip() if lines else "no reason given"
    return GitError(
        "git-failed",
        f"git {command} failed: {why}",
        mend=FETCH_DEPTH if shallow else "run `git fsck`, and fetch what is missing",
    )


def _not_a_file(path: str, rev: str, mode: str) -> IntegrityError:
    kind = {"120000": "a symbolic link", "160000": "a submodule", "040000": "a folder"}.get(mode, "a file")
    return IntegrityError(
        "not-a-regular-file",
        f"is {kind} in commit {rev[:12]}; only regular files and folders are read here",
        where=path,
        mend=f"git rm --cached {path}, then commit a regular file",
    )
