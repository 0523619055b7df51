"""Call sites of an anchor: ``baselines/<class>.sites.json``, beside the anchor and outside its digest."""

from __future__ import annotations

import json

from pytest_fanout.errors import IntegrityError
from pytest_fanout.records import CallSite, SiteStats
from pytest_fanout.store.files import load_json
from pytest_fanout.store.schemas import validate

SCHEMA = "pytest-fanout/sites/1"


def write_sites(stats: SiteStats) -> bytes:
    """The bytes of the file, one line a call site."""
    entries = [
        {
            "api": site.api,
            "calls": stats.calls.get(site.fingerprint, 0),
            "fingerprint": site.fingerprint,
            "label": site.label[:60],
            "model": site.model,
            "tokens": stats.tokens.get(site.fingerprint, 0),
            "tools": list(site.tools),
        }
        for site in stats.sites
    ]
    lines = ",\n".join("  " + json.dumps(entry, ensure_ascii=False, sort_keys=True) for entry in entries)
    text = (
        f'{{\n "schema": "{SCHEMA}",\n "agent": "{stats.agent}",\n "trials": {max(stats.weight, 1)},\n'
        f' "sites": [\n{lines}\n ]\n}}\n'
    )
    return text.encode("utf-8", "surrogatepass")


def parse_sites(data: bytes, agent: str, where: str) -> SiteStats:
    """The call sites of ``agent`` from their committed bytes.

    Raises:
        IntegrityError: malformed, or of another class.
    """
    mend = "run `fanout-baseline accept` again"
    document = load_json(data, where)
    validate(document, "sites", where, mend=mend)
    if document["agent"] != agent:
        raise IntegrityError("misplaced", f"holds the call sites of {document['agent']!r}", where=where, mend=mend)
    entries = document["sites"]
    return SiteStats(
        agent,
        document["trials"],
        tuple(
            CallSite(entry["fingerprint"], entry["api"], entry["model"], tuple(entry["tools"]), entry["label"])
            for entry in entries
        ),
        {entry["fingerprint"]: entry["calls"] for entry in entries},
        {entry["fingerprint"]: entry["tokens"] for entry in entries},
    )
