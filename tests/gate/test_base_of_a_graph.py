"""Which commit is the base, on a graph of commits made by hand: each way to one, and each reason for none.

a - b - c      the target branch, at c on the server
     \\   \\
      f - g - m   a change of two commits, and its merge into c;  b - p - e - n the same with other names
d is a child of c that nobody accepted, o a merge of three, x a history of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from pytest_fanout.records import Base
from pytest_fanout.store import base as base_module
from pytest_fanout.store.base import find_base
from pytest_fanout.store.ci import FETCH_DEPTH, Change

PARENTS = {
    "a": (), "b": ("a",), "c": ("b",), "d": ("c",), "f": ("b",), "g": ("f",), "m": ("c", "g"), "p": ("b",), "e": ("p",),
    "n": ("c", "e"), "o": ("c", "g", "e"), "q": ("d", "g"), "x": (),
}  # fmt: skip
DEEPER = "make it deeper"
ON_SERVER = {"refs/remotes/origin/main": "c", "refs/remotes/origin/main~1": "b", "refs/remotes/origin/other": "x"}


@dataclass
class Graph:
    """Stands for a repository: its commits, where HEAD is, and what its branches are called."""

    head: str | None
    refs: dict[str, str] = field(default_factory=lambda: dict(ON_SERVER))
    is_shallow: bool = False
    followed: tuple[str, ...] = ()

    def resolve(self, rev: str) -> str | None:
        if rev == "HEAD":
            return self.head
        return self.refs.get(rev) or (rev if rev in PARENTS else None)

    def parents(self, commit: str) -> tuple[str, ...]:
        return PARENTS[commit]

    def is_ancestor(self, older: str, newer: str) -> bool:
        return older == newer or any(self.is_ancestor(older, parent) for parent in PARENTS[newer])

    def fork_point(self, one: str, other: str) -> str | None:
        shared = [each for each in PARENTS if self.is_ancestor(each, one) and self.is_ancestor(each, other)]
        return next((each for each in shared if all(self.is_ancestor(rest, each) for rest in shared)), None)

    def upstream(self) -> tuple[str, ...]:
        return self.followed


def found(repo: Graph, change: Change | None, monkeypatch: pytest.MonkeyPatch, **environ: str) -> Base:
    monkeypatch.setattr(base_module, "read_change", lambda environ: change)
    return find_base(repo, None, environ)


def told(base: Base) -> tuple[str | None, str, bool]:
    """The commit, or why there is none; by which way; and whether it is a gate."""
    assert (base.problem is None) == (base.rev is not None)
    return base.rev or base.problem, base.source, base.is_gate


def pull(
    before: str | None = "c", after: str | None = "g", target: str | None = "main", forgeable: bool = False
) -> Change:
    return Change("pull", "ci", before, after, target, DEEPER, forgeable)


def other(head: str, after: str) -> str:
    return (
        f"HEAD is {head}, which does not hold the change {after} that CI is to test: check that commit out, or, where "
        f"HEAD is its merge, {DEEPER}"
    )


@pytest.mark.parametrize(
    ("head", "change", "base", "source"),
    [
        ("m", pull(), "c", "ci:HEAD^1"),
        ("m", pull(before=None), "c", "ci:HEAD^1"),  # the merge says it itself
        ("m", pull(target=None), "c", "ci:HEAD^1"),
        ("m", pull(target="gone"), "c", "ci:HEAD^1"),
        ("m", pull(target="gone", forgeable=True), f"the target branch gone is not in this clone: {DEEPER}", "ci"),
        ("m", pull(target=None, forgeable=True), f"the target branch None is not in this clone: {DEEPER}", "ci"),
        ("m", pull(target="main~1", forgeable=True), f"the target branch main~1 is not in this clone: {DEEPER}", "ci"),
        ("m", pull(forgeable=True), "c", "ci:HEAD^1"),
        ("m", pull(after="f"), "c", "ci.base.sha"),  # the change has moved on since
        ("n", pull(after="p"), "c", "ci.base.sha"),
        ("o", pull(), "c", "ci.base.sha"),  # a merge of three is none of a change into its target
        ("m", pull(after=None), other("m", "none"), "ci"),
        ("f", pull(), other("f", "g"), "ci"),
        ("m", pull(after="e"), other("m", "e"), "ci"),
        ("m", pull(after="x"), other("m", "x"), "ci"),
        ("g", pull(), "b", "ci: merge-base of HEAD and base.sha, as HEAD is not the merge commit"),
        ("g", pull(before="b"), "b", "ci.base.sha"),
        ("g", pull(before=None), "CI names no commit of the target branch", "ci"),
        ("g", pull(before="gone"), f"the base commit gone is not in this clone: {DEEPER}", "ci.base.sha"),
        ("g", pull(before="x"), f"HEAD and the base commit x share no commit in this clone: {DEEPER}", "ci"),
        ("q", pull(), "the base commit d is not on the target branch main: run CI again on its present state", "ci"),
        ("q", pull(target="gone"), "d", "ci:HEAD^1"),
        ("g", pull(before="f"), "the base commit f is not on the target branch main: run CI again on its present state",
         "ci"),
        ("g", pull(before="f", target="other"),
         "the base commit f is not on the target branch other: run CI again on its present state", "ci"),
    ],
)  # fmt: skip
def test_a_request_to_merge(monkeypatch: pytest.MonkeyPatch, head: str, change: Change, base: str, source: str) -> None:
    """The parent that the merge was built on; else where the change left what CI names; never one that nobody took."""
    assert told(found(Graph(head), change, monkeypatch)) == (base, source, True)


def test_a_clone_that_is_shallow_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit may be there, further back."""
    assert told(found(Graph("g", is_shallow=True), pull(before="gone"), monkeypatch))[0] == (
        f"the base commit gone is not in this clone (this clone is shallow): {DEEPER}"
    )


@pytest.mark.parametrize(
    ("head", "before", "after", "base"),
    [
        ("m", "c", "m", "c"),
        ("m", "c", None, "c"),
        ("m", "c", "g", other("m", "g")),
        ("m", "c", "n", other("m", "n")),
        ("g", "c", "g", f"HEAD does not hold the base commit c of its queue: {DEEPER}"),
        ("m", "gone", "m", f"the base commit gone is not in this clone: {DEEPER}"),
    ],
)
def test_a_queue_to_merge(
    monkeypatch: pytest.MonkeyPatch, head: str, before: str, after: str | None, base: str
) -> None:
    """Its parent, where what is tested is checked out and holds it."""
    change = Change("queue", "ci", before, after, None, DEEPER)

    assert told(found(Graph(head), change, monkeypatch))[0] == base


@pytest.mark.parametrize(
    ("head", "before", "after", "target", "forgeable", "base", "is_gate"),
    [
        ("c", "a", "c", "main", False, "a", True),
        ("c", "a", "b", "main", False, other("c", "b"), True),
        ("c", "a", "d", "main", False, other("c", "d"), True),
        ("c", "a", None, "main", False, other("c", "none"), True),
        ("c", "gone", "c", "main", False, f"the base commit gone is not in this clone: {DEEPER}", True),
        ("q", "d", "q", "main", False, "d", True),  # the event of the server itself is believed
        ("q", "d", "q", "main", True,
         "the base commit d is not on the target branch main: run CI again on its present state", True),
        ("q", "d", "q", "gone", True, f"the default branch gone is not in this clone: {DEEPER}", True),
        ("c", "b", "c", "main", True, "b", True),
        ("m", None, "m", "main", False, "c", True),
        ("a", None, "a", "main", False, "a", False),
        ("x", None, "x", "main", True, "x", False),
    ],
)  # fmt: skip
def test_a_push(
    monkeypatch: pytest.MonkeyPatch,
    head: str, before: str | None, after: str | None, target: str, forgeable: bool, base: str, is_gate: bool,
) -> None:  # fmt: skip
    """What the branch held before; of a new branch the first parent; the first commit of all is no gate."""
    change = Change("push", "ci", before, after, target, DEEPER, forgeable)

    assert told(found(Graph(head), change, monkeypatch))[::2] == (base, is_gate)


@pytest.mark.parametrize(
    ("head", "target", "deepen", "base", "source"),
    [
        ("g", "main", DEEPER, "b", "ci: merge-base origin/main"),
        ("g", None, DEEPER, "b", "merge-base origin/main"),
        ("x", None, DEEPER, f"CI names no base commit and no merge-base is in this clone: {FETCH_DEPTH}", "CI"),
        *(
            ("g", target, deepen,
             f"no commit that HEAD shares with the default branch {target} is in this clone: {deepen or FETCH_DEPTH}",
             "ci")
            for target in ("gone", "other", "main~1", "", "main..", "@{0}")
            for deepen in (DEEPER, "")
        ),
    ],
)  # fmt: skip
def test_a_run_beside_the_default_branch(
    monkeypatch: pytest.MonkeyPatch, head: str, target: str | None, deepen: str, base: str, source: str
) -> None:
    """Where HEAD left it; a revision is no name of a branch."""
    change = Change("branch", "ci", target=target, deepen=deepen)

    assert told(found(Graph(head), change, monkeypatch))[:2] == (base, source)


NAMES = ["refs/remotes/origin/HEAD", "refs/remotes/origin/main", "refs/remotes/origin/master", "refs/heads/main",
         "refs/heads/master", "refs/remotes/up/dev"]  # fmt: skip


@pytest.mark.parametrize("first", range(len(NAMES)))
def test_the_main_branch_is_looked_for_under_its_usual_names(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """In this order; one that shares nothing with HEAD is passed over; the upstream comes last."""
    refs = {name: "c" if place == first else "a" for place, name in enumerate(NAMES) if place >= first}
    unrelated = {name: "x" for place, name in enumerate(NAMES) if place < first}
    short = NAMES[first].removeprefix("refs/remotes/").removeprefix("refs/heads/")

    repo = Graph("g", refs=refs | unrelated, followed=(NAMES[-1],))

    assert told(found(repo, None, monkeypatch)) == ("b", f"merge-base {short}", True)


@pytest.mark.parametrize(("ci", "is_gate"), [("true", True), ("", False)])
def test_without_a_main_branch(monkeypatch: pytest.MonkeyPatch, ci: str, is_gate: bool) -> None:
    """CI has no base; at home HEAD is compared with itself, and that is no gate."""
    base = found(Graph("g", refs={}), None, monkeypatch, CI=ci)

    assert told(base) == (
        (f"CI names no base commit and no merge-base is in this clone: {FETCH_DEPTH}", "CI", True)
        if is_gate
        else ("g", "HEAD, as no main branch was found", False)
    )


@pytest.mark.parametrize(
    ("option", "base", "is_gate"),
    [
        ("b", "b", True),
        ("x", "x", True),
        ("g", "g", False),
        ("gone", f"the base commit gone is not in this clone: {FETCH_DEPTH}", True),
    ],
)
def test_the_option_names_it(option: str, base: str, is_gate: bool) -> None:
    """Any commit, by a number that is lower or higher; HEAD itself is no gate."""
    assert told(find_base(Graph("g"), option, {})) == (base, "option", is_gate)


def test_before_the_first_commit_there_is_none() -> None:
    """Not even the one that the option names."""
    assert told(find_base(Graph(None), "b", {})) == ("HEAD has no commit yet: commit the project first", "HEAD", False)
