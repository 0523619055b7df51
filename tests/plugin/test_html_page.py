"""The page of a real run: written by the controller alone, beside a report of the same verdict."""

from __future__ import annotations

import json

import pytest
from lxml import html
from project import Project


@pytest.mark.slow
def test_workers_measure_and_the_controller_writes_one_page(accepted: Project) -> None:
    """Under xdist: the report's own numbers, anchors from git, and nothing else left behind."""
    result = accepted.pytest("-n", "2", "--fanout-html=out/page.html")
    page = html.parse(str(accepted.root / "out/page.html"))
    data = json.loads(page.xpath("//script")[0].text)

    assert result.report is not None, result.text
    assert [path.name for path in (accepted.root / "out").iterdir()] == ["page.html"]
    assert data["report"]["run_id"] == result.report["run_id"]
    assert data["report"]["headline"] == result.report["headline"]
    assert [row[0] for row in data["trials"]["support"]["run"]["samples"]["fanout"]] == [2, 3, 4]
    assert data["trials"]["support"]["base"]["samples"]["fanout"][0][0] == 2
    # on main there is no other commit to compare with: it passes, and that is no green page
    assert page.xpath("//body/@class") == ["warn"]
    assert "Not a gate result" in page.xpath("//header")[0].text_content()
