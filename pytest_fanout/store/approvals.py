"""Approvals: ``baselines/approvals/<date>-<subject>-<from12>.json``, what a reviewer allows to become looser."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from pytest_fanout.errors import IntegrityError
from pytest_fanout.records import Approval, Change
from pytest_fanout.store.baselines import refuse_fractions
from pytest_fanout.store.files import load_json
from pytest_fanout.store.schemas import validate

SCHEMA = "pytest-fanout/approval/1"
MAX_AGE_DAYS = 30
WAIVER_HOURS = 72
_LAST_SECOND = 253_402_300_799  # of the year 9999
_BUDGET_SUBJECTS = frozenset({"budget", "fleet"})


def approval_name(approval: Approval, again: int = 1) -> str:
    """File name: ``<date>-<subject>-<origin>.json``; ``again`` > 1 adds ``-2``, ``-3``.

    ``origin`` is the first 12 digits of ``from``; without it "first" of an anchor, and "waiver".
    """
    origin = "waiver" if approval.kind == "waiver" else "first"
    if approval.from_digest:
        origin = approval.from_digest.removeprefix("sha256:")[:12]
    suffix = f"-{again}" if again > 1 else ""
    return f"{approval.requested_on}-{approval.subject}-{origin}{suffix}.json"


def write_approval(approval: Approval) -> bytes:
    """The bytes of the file, one line a change."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": approval.kind,
        "subject": approval.subject,
        "from": approval.from_digest,
    }
    if approval.kind == "budget":
        document["to"] = approval.to_digest
    document |= {
        "evalset": approval.evalset,
        "ceilings": dict(sorted(approval.ceilings.items())),
        "changes": [_change_document(change) for change in approval.changes],
        "reason": approval.reason,
        "requested_by": approval.requested_by,
        "requested_on": approval.requested_on,
    }
    if approval.expires_at is not None:
        document["expires_at"] = approval.expires_at
    document["nonce"] = approval.nonce
    lines = []
    for key, value in document.items():
        if key == "changes" and value:
            rows = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in value)
            lines.append(f' "changes": [\n{rows}\n ]')
        else:
            lines.append(f' "{key}": {json.dumps(value, ensure_ascii=False)}')
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode("utf-8", "surrogatepass")


def _change_document(change: Change) -> dict[str, Any]:
    row: dict[str, Any] = {"what": change.what, "name": change.name}
    if change.scope is not None:
        row["scope"] = change.scope
    return row | {"old": change.old, "new": change.new}


def parse_approval(data: bytes, path: str) -> Approval:
    """An approval from its committed bytes.

    Raises:
        IntegrityError: malformed, misnamed, a date that is none, a ceiling below its own changes, a waiver of more than
            72 hours.
    """
    mend = f"git rm {path}, then run `fanout-baseline accept` again"
    document = load_json(data, path, mend=mend)
    validate(document, "approval", path, mend=mend)
    refuse_fractions(document, path)
    approval = Approval(
        path=path,
        kind=document["kind"],
        subject=document["subject"],
        from_digest=document["from"],
        to_digest=document.get("to"),
        evalset=document["evalset"],
        ceilings=document["ceilings"],
        changes=tuple(
            Change(row["what"], row["name"], row.get("scope"), row.get("old"), row.get("new"))
            for row in document["changes"]
        ),
        reason=document["reason"],
        requested_by=document["requested_by"],
        requested_on=document["requested_on"],
        nonce=document["nonce"],
        expires_at=document.get("expires_at"),
    )
    fault = _fault(approval, document)
    if fault:
        raise IntegrityError("bad-approval", fault, where=path, mend=mend)
    return approval


def _fault(approval: Approval, document: Mapping[str, Any]) -> str | None:
    day = day_of(approval)
    if day is None:
        return f"requested_on {approval.requested_on!r} is not a date"
    if (approval.kind == "budget") != (approval.subject in _BUDGET_SUBJECTS):
        return f"an approval of kind {approval.kind!r} cannot have the subject {approval.subject!r}"
    if (approval.kind == "budget") != ("to" in document):
        return "`to` stands in approvals of kind budget, and only there"
    if (approval.kind == "waiver") != (approval.expires_at is not None):
        return "`expires_at` stands in waivers, and only there"
    if approval.expires_at is not None:
        begins = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
        if approval.expires_at - begins > WAIVER_HOURS * 3600:
            return f"a waiver lasts at most {WAIVER_HOURS} hours from the start (UTC) of requested_on"
        if approval.expires_at > _LAST_SECOND:
            return "expires_at lies behind the last day of the calendar"
    if approval.kind == "baseline":
        for change in approval.changes:
            bound = approval.ceilings.get(change.name)
            if change.what == "metric" and bound is not None and isinstance(change.new, int) and change.new > bound:
                return f"the ceiling {bound} of {change.name} is below the {change.new} that its own changes show"
    known = approval_name(approval).removesuffix(".json")
    name = path_name(approval.path)
    if approval.kind == "waiver":  # earlier versions called it a first one
        name = re.sub(r"-first((?:-[1-9][0-9]*)?\.json)\Z", r"-waiver\1", name)
    if not re.fullmatch(re.escape(known) + r"(-[1-9][0-9]*)?\.json", name):
        return f"is misplaced: by its content it would be named {approval_name(approval)}"
    return None


def path_name(path: str) -> str:
    """The last part of a path."""
    return path.rsplit("/", 1)[-1]


def day_of(approval: Approval) -> date | None:
    """``requested_on`` as a date, or None when it is none."""
    try:
        return date.fromisoformat(approval.requested_on)
    except ValueError:
        return None


def age_fault(approval: Approval, today: date) -> str | None:
    """Why an approval is too old or of a later day; None when its date is fine. One day ahead is time zones."""
    day = day_of(approval)
    if day is None:
        return "its date is none"
    age = (today - day).days
    if age > MAX_AGE_DAYS:
        return f"it is {age} days old, and an approval is used within {MAX_AGE_DAYS} days"
    if age < -1:
        return f"its date {approval.requested_on} lies in the future"
    return None
