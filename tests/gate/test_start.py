"""What `init` writes, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_fanout.config import Settings
from pytest_fanout.errors import IntegrityError
from pytest_fanout.gate.start import Started, start
from pytest_fanout.store.budget import DEFAULT_TEXT

ALL = ("baselines/budget.toml", ".gitignore", ".gitattributes")
ATTRIBUTES = "baselines/** text eol=lf\nfixtures/recordings/** text eol=lf linguist-generated\n"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        root=tmp_path,
        source="pyproject.toml",
        baselines=tmp_path / "baselines",
        recordings=tmp_path / "fixtures/recordings",
        agents={},
    )


def test_a_bare_project_gets_all_of_it_and_once(settings: Settings) -> None:
    """A second time nothing is missing."""
    assert start(settings) == Started(ALL, ())
    ignored = "fanout-report.json\nfanout-report.html\n"
    assert [(settings.root / name).read_text() for name in ALL] == [DEFAULT_TEXT, ignored, ATTRIBUTES]
    assert start(settings) == Started((), ALL)


@pytest.mark.parametrize(
    ("stands", "then"),
    [
        (b"a\n", b"a\nfanout-report.json\nfanout-report.html\n"),
        (b"a", b"a\nfanout-report.json\nfanout-report.html\n"),
        (b"a\r\n", b"a\r\nfanout-report.json\r\nfanout-report.html\r\n"),
        (b"a\r\nb", b"a\r\nb\r\nfanout-report.json\r\nfanout-report.html\r\n"),
        (b"", b"fanout-report.json\nfanout-report.html\n"),
        (b"\n\n", b"\n\nfanout-report.json\nfanout-report.html\n"),
        (b"/fanout-report.json\n", b"/fanout-report.json\nfanout-report.html\n"),
        (b"/fanout-report.json\n/fanout-report.html\n", None),
        (b"a\nfanout-report.json  # kept out\nfanout-report.html\n", None),
    ],
)
def test_a_line_is_added_at_the_end_in_the_files_own_line_endings(
    settings: Settings, stands: bytes, then: bytes | None
) -> None:
    """A pattern that the file speaks of is left to its owner."""
    path = settings.root / ".gitignore"
    path.write_bytes(stands)

    done = start(settings)

    assert path.read_bytes() == (stands if then is None else then)
    assert (".gitignore" in done.written) == (then is not None)


def test_a_file_that_is_no_text_is_not_touched(settings: Settings) -> None:
    """Every line that it lacks is named."""
    (settings.root / ".gitattributes").write_bytes(b"\xff")

    with pytest.raises(IntegrityError) as caught:
        start(settings)

    assert str(caught.value) == (
        ".gitattributes: is not UTF-8 text\n  mend: add by hand: baselines/** text eol=lf, "
        "fixtures/recordings/** text eol=lf linguist-generated\n  see: docs/messages.md#not-utf8"
    )
    assert (settings.root / ".gitattributes").read_bytes() == b"\xff"


def test_recordings_that_lie_elsewhere_need_no_line(settings: Settings) -> None:
    """No .gitattributes of this project speaks for them."""
    start(replace(settings, recordings=Path("/elsewhere")))

    assert (settings.root / ".gitattributes").read_text() == "baselines/** text eol=lf\n"
