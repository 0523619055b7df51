"""Which approvals of the work tree a new one replaces, which it stands beside, and what name it gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gate_world import EVALSET, TODAY

from pytest_fanout.config import Settings
from pytest_fanout.errors import UsageError
from pytest_fanout.gate.author import Author, check_reason
from pytest_fanout.records import Approval, Base, Change
from pytest_fanout.store.approvals import parse_approval, write_approval

ORIGIN = "sha256:" + "a" * 64
FIRST = "2026-11-29-support-aaaaaaaaaaaa.json"


class Commit:
    """Stands for a repository whose base commit holds these approvals."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def list(self, rev: str, folder: str) -> tuple[str, ...]:
        assert (rev, folder) == ("base", "baselines/approvals")
        return self._names


def author(root: Path, *on_base: str) -> Author:
    settings = Settings(root, "pyproject.toml", root / "baselines", root / "recordings", {})
    reason = "  The planner now verifies its citations.\n"
    return Author(Commit(*on_base), settings, Base("base", "test"), reason, "dana@example.com", TODAY)  # type: ignore[arg-type]


def made(root: Path, kind: str = "baseline", subject: str = "support", *on_base: str) -> Approval:
    ceilings = {"fanout.p95": 20} if kind == "baseline" else None
    return author(root, *on_base).approval(
        kind,
        subject,
        ORIGIN,
        () if kind == "waiver" else (Change("metric", "fanout.p95", "all", 19, 20),),
        evalset=EVALSET if kind == "baseline" else None,
        ceilings=ceilings,
        to=ORIGIN if kind == "budget" else None,
        expires_at=1_796_000_000 if kind == "waiver" else None,
    )


def put(root: Path, name: str, kind: str = "baseline", subject: str = "support") -> str:
    path = root / "baselines/approvals" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(write_approval(made(root, kind, subject)))
    return name


def test_an_approval_says_who_asks_when_and_why(tmp_path: Path) -> None:
    """Its nonce is of 64 bits and its own; what is written can be read again."""
    one, other = made(tmp_path), made(tmp_path)

    assert one.path == f"baselines/approvals/{FIRST}"
    assert (one.reason, one.requested_by, one.requested_on) == (
        "The planner now verifies its citations.",
        "dana@example.com",
        "2026-11-29",
    )
    assert (one.ceilings, made(tmp_path, "waiver").ceilings) == ({"fanout.p95": 20}, {})
    assert one.nonce != other.nonce
    assert parse_approval(write_approval(one), one.path) == one


@pytest.mark.parametrize(
    ("kind", "standing", "on_base", "name"),
    [
        ("baseline", None, (), ""),
        ("baseline", ("baseline", "support"), (), ""),  # this branch's older one is replaced
        ("baseline", ("waiver", "support"), (), "-2"),
        ("baseline", ("baseline", "aaa"), (), "-2"),  # misnamed, and left for its owner
        ("baseline", ("baseline", "zzz"), (), "-2"),
        ("baseline", None, (FIRST,), "-2"),
        ("baseline", None, (FIRST, FIRST.replace(".json", "-2.json")), "-3"),
        ("baseline", ("baseline", "support"), (FIRST,), "-2"),
        ("waiver", ("waiver", "support"), (), "-2"),  # a waiver is never replaced
    ],
)
def test_an_approval_takes_no_name_that_is_anothers(
    tmp_path: Path, kind: str, standing: tuple[str, str] | None, on_base: tuple[str, ...], name: str
) -> None:
    """The first free number, from 2."""
    if standing is not None:
        put(tmp_path, FIRST, *standing)

    assert made(tmp_path, kind, "support", *on_base).path == "baselines/approvals/" + FIRST.replace(
        ".json", f"{name}.json"
    )


def test_which_approvals_a_new_one_supersedes(tmp_path: Path) -> None:
    """Those of the class that this branch has made, but for the one that is written; nothing that cannot be read."""
    second, on_base, waiver = (FIRST.replace(".json", f"-{number}.json") for number in (2, 3, 4))
    for name in (FIRST, second, on_base):
        put(tmp_path, name)
    put(tmp_path, waiver, "waiver")
    for kind, subject in (("baseline", "aaa"), ("baseline", "zzz"), ("budget", "budget")):
        put(tmp_path, FIRST.replace("support", subject), kind, subject)
    (tmp_path / "baselines/approvals/2026-11-29-broken.json").write_text("{")
    (tmp_path / "baselines/approvals/notes.txt").write_text("no approval")
    one = author(tmp_path, on_base)

    assert sorted(one.superseded("support", None)) == sorted([FIRST, second])
    assert one.superseded("support", second) == (FIRST,)
    assert one.waivers("support") == (waiver,)
    assert (one.waivers("aaa"), one.superseded("nobody", None), one.superseded("budget", None)) == ((), (), ())


def test_without_a_folder_there_are_none(tmp_path: Path) -> None:
    """The first approval of a project makes it."""
    one = author(tmp_path)

    assert (one.superseded("support", None), one.waivers("support")) == ((), ())


@pytest.mark.parametrize(
    ("reason", "slug"),
    [
        ("x" * 19, "reason-too-short"),
        ("x" * 20, None),
        ("  " + "x" * 19 + "  ", "reason-too-short"),
        ("x" * 2000, None),
        ("x" * 2000 + "\n", None),
        ("x" * 2001, "reason-too-long"),
    ],
)
def test_how_long_a_reason_is(reason: str, slug: str | None) -> None:
    """Twenty characters to two thousand, without what surrounds them."""
    if slug is None:
        check_reason(reason)
        return
    with pytest.raises(UsageError) as caught:
        check_reason(reason)
    assert caught.value.slug == slug


def test_who_asks_cannot_be_changed(tmp_path: Path) -> None:
    """One author writes all approvals of a command."""
    with pytest.raises(AttributeError):
        author(tmp_path).reason = "another"  # type: ignore[misc]
    assert replace(author(tmp_path), reason="x").reason == "x"
