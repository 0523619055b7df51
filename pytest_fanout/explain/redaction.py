"""Explanations that may be shown to those who may not read the prompts: shapes, names and numbers, no texts."""

from __future__ import annotations

from dataclasses import replace

from pytest_fanout.records import Example, Explanation, Finding

#: Kinds whose text ends with values: they are cut at the first colon.
_VALUED = frozenset({"settings"})


def redacted(explanation: Explanation) -> Explanation:
    """The explanation without prompts, definitions, values of settings and requests; tools and models keep their names.

    A site goes by its key, a diff by how many lines it has, a difference by what it is in.
    """
    names = {site.key: f"site {site.key[:8]}" for site in explanation.sites}
    return replace(
        explanation,
        sites=tuple(replace(site, label=names[site.key]) for site in explanation.sites),
        findings=tuple(_finding(finding) for finding in explanation.findings),
        examples=tuple(_example(example, names) for example in explanation.examples),
    )


def _finding(finding: Finding) -> Finding:
    removed, added = (sum(line.startswith(sign) for line in finding.detail) for sign in "-+")
    detail = (f"{removed} lines removed, {added} added",) if finding.detail else ()
    text = finding.text.partition(":")[0] + " changed" if finding.kind in _VALUED else finding.text
    return replace(finding, text=text, detail=detail)


def _example(example: Example, names: dict[str, str]) -> Example:
    base, run = (tuple(replace(line, label=names[line.site]) for line in side) for side in (example.base, example.run))
    return replace(example, base=base, run=run, differs=tuple(line.partition(":")[0] for line in example.differs))
