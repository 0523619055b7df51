"""``--fanout-html``: asked for before the run, written before the report, taken back with the verdict."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_fanout.config import find_settings
from pytest_fanout.errors import StorageError, UsageError
from pytest_fanout.records import (
    Base,
    Budget,
    Caps,
    ClassResult,
    Head,
    JudgeRules,
    MeasureRules,
    Past,
    Problem,
    Run,
    SessionFacts,
    TaskRun,
    Verdict,
)
from pytest_fanout.session.finish import Finish, Told
from pytest_fanout.session.page import Page, page_of
from pytest_fanout.store.masking import Masker
from pytest_fanout.store.recordings import RecordingStore

SEE = "\n  see: docs/messages.md#"
NOTHING = Past({}, ())
KEY = "sk-proj-" + "a1B2c3D4" * 6
CALM = ClassResult("support", "pass", "same", (), (), 1, 1, 1)
VERDICT = Verdict("pass", (CALM,), (), Base("b" * 40, "option"), Head("a" * 40))
RUN = Run("run-7", "replay", 0, ("support",), (TaskRun("support", "refund", 1, "ok", True, {"fanout": 3}),), {}, {},
          SessionFacts(1, 1, 1))  # fmt: skip


def config(folder: Path, given: str | None, *, collect_only: bool = False) -> Any:
    return SimpleNamespace(
        getoption=lambda name: given,
        invocation_params=SimpleNamespace(dir=folder),
        option=SimpleNamespace(collectonly=collect_only),
    )


def finish_of(folder: Path, page: Page | None) -> Finish:
    return Finish(
        told=Told(), settings=find_settings(folder), evalsets={},
        budget=Budget("digest", {"default": ()}, {"default": Caps()}, {"default": JudgeRules()}, MeasureRules()),
        store=RecordingStore(folder), mode="replay", run_id="run-7", begun_at=0, shard=None, expected=0, narrowed=False,
        base_option=None, pytest_exit=0, masker=Masker({"OPENAI_API_KEY": KEY}), page=page,
    )  # fmt: skip


def test_without_the_option_there_is_no_page(tmp_path: Path) -> None:
    """Nothing is looked for, nothing is written."""
    assert page_of(config(tmp_path, None), tmp_path / "fanout-report.json", "run-7") is None
    assert list(tmp_path.iterdir()) == []


def test_from_the_start_a_page_says_that_the_run_has_not_finished(tmp_path: Path) -> None:
    """A green page of an earlier run is gone as soon as another run begins; a mere collection begins none."""
    path = tmp_path / "out" / "page.html"
    path.parent.mkdir()
    path.write_text("Within budget")
    page_of(config(tmp_path, "out/page.html", collect_only=True), tmp_path / "fanout-report.json", "run-7")
    assert path.read_text() == "Within budget"
    page_of(config(tmp_path, "out/page.html"), tmp_path / "fanout-report.json", "run-7")

    assert 'class="bad"' in path.read_text()
    assert "✕ Not measured" in path.read_text()
    assert "run not finished" in path.read_text()


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib"])
def test_a_missing_extra_is_said_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """With the command that installs it; nothing is written."""
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else real(name))
    with pytest.raises(UsageError) as raised:
        page_of(config(tmp_path, "page.html"), tmp_path / "fanout-report.json", "run-7")

    assert str(raised.value) == (
        f"--fanout-html draws its page with {missing}: it is not installed\n"
        f"  mend: pip install 'pytest-fanout[html]'{SEE}html-not-installed"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_page_cannot_stand_where_the_report_does(tmp_path: Path) -> None:
    """Another spelling of the same path is the same path."""
    with pytest.raises(UsageError) as raised:
        page_of(config(tmp_path, "./a/../fanout-report.json"), tmp_path / "fanout-report.json", "run-7")

    assert str(raised.value) == (
        "--fanout-html=./a/../fanout-report.json would be written over the JSON report\n"
        f"  mend: --fanout-html=fanout-report.html{SEE}html-over-report"
    )


def test_a_file_of_tests_is_no_page(tmp_path: Path) -> None:
    """html-no-page: an option that took what was meant as what to run would replace it."""
    tests = tmp_path / "test_agent.py"
    tests.write_text("def test(): pass\n")
    with pytest.raises(UsageError) as raised:
        page_of(config(tmp_path, "test_agent.py"), tmp_path / "fanout-report.json", "run-7")

    assert tests.read_text() == "def test(): pass\n"
    assert str(raised.value) == (
        "--fanout-html=test_agent.py names no page: it would be replaced by one\n"
        f"  mend: --fanout-html=fanout-report.html, and what to run after it{SEE}html-no-page"
    )


def test_a_path_that_cannot_be_written_is_said_before_the_run(tmp_path: Path) -> None:
    """A folder stands there."""
    (tmp_path / "page.html").mkdir()
    with pytest.raises(StorageError, match="could not be written: Is a directory"):
        page_of(config(tmp_path, "page.html"), tmp_path / "fanout-report.json", "run-7")


def test_a_page_that_fails_is_a_notice_and_changes_no_verdict(tmp_path: Path) -> None:
    """The folder is gone by then, or a picture cannot be drawn: the verdict stands, and is told with the notice."""
    (tmp_path / "gone").write_text("a file")
    verdict = Page(tmp_path / "gone" / "page.html").written(RUN, VERDICT, NOTHING)
    broken: Any = replace(RUN, tasks=(None,))
    other = Page(tmp_path / "page.html").written(broken, VERDICT, NOTHING)
    where = tmp_path / "gone" / "page.html"

    assert (verdict.verdict, verdict.outcome) == ("pass", "within")
    assert verdict.problems == (
        Problem(
            "html-not-written",
            "the page of --fanout-html was not written, and what stands there is no verdict "
            f"({where}: could not be written: File exists); "
            "mend: run again with another path, or without --fanout-html",
            "notice",
        ),
    )
    assert other.problems[0].text.startswith("the page of --fanout-html was not written, and what stands there is no")
    assert "(AttributeError: 'NoneType' object has no attribute " in other.problems[0].text
    assert not (tmp_path / "page.html").exists()


def test_the_page_shows_the_verdict_of_its_report(tmp_path: Path) -> None:
    """Written while the run is judged; the report that follows leaves it alone."""
    path = tmp_path / "page.html"
    (tmp_path / "pyproject.toml").touch()
    finish = finish_of(tmp_path, Page(path))
    run, verdict = finish.judge()
    before = path.read_bytes()

    assert finish.write_report(tmp_path / "report.json", run, verdict) is None
    assert path.read_bytes() == before
    assert "no-base" in before.decode()


def test_the_terminal_says_once_where_the_page_is(tmp_path: Path) -> None:
    """As the option gives it; nothing of it without a page, or where it could not be written."""
    (tmp_path / "pyproject.toml").touch()
    page = page_of(config(tmp_path, "out/page.html"), tmp_path / "fanout-report.json", "run-7")
    finish = finish_of(tmp_path, page)
    told = finish.text(*finish.judge(), width=100, encoding="utf-8").splitlines()

    assert [line for line in told if "page.html" in line] == ["page      out/page.html"]
    assert finish.outputs() == (tmp_path / "out/page.html",)
    (tmp_path / "gone").write_text("a file")
    lost = Page(tmp_path / "gone" / "page.html", "gone/page.html")
    lost.written(RUN, VERDICT, NOTHING)
    assert lost.shown_at == ""


def test_secrets_are_masked_on_the_page(tmp_path: Path) -> None:
    """A key in a problem of the run stands nowhere in the page, neither in its text nor in its data."""
    (tmp_path / "pyproject.toml").touch()
    finish = finish_of(tmp_path, Page(tmp_path / "page.html"))
    finish.told.problems.append(Problem("trial-crashed", f"the agent said {KEY}", "invalid"))
    finish.judge()
    text = (tmp_path / "page.html").read_text()

    assert "the agent said [masked]" in text
    assert KEY not in text
    assert KEY[8:30] not in text


def test_what_takes_the_report_back_takes_the_page_back(tmp_path: Path) -> None:
    """A call after the end, a hook that fails, a report that cannot be written: the green page is gone."""
    path = tmp_path / "page.html"
    (tmp_path / "pyproject.toml").touch()
    page = Page(path)
    finish = finish_of(tmp_path, page)
    page.written(RUN, VERDICT, NOTHING)
    assert "✓ Within budget" in path.read_text()

    finish.write_report(tmp_path / "report.json", replace(RUN, session=replace(RUN.session, pytest_exit=3)), VERDICT)
    assert "✕ Not measured" in path.read_text()

    page.written(RUN, VERDICT, NOTHING)
    (tmp_path / "report").write_text("a file")
    problem = finish.write_report(tmp_path / "report" / "report.json", RUN, VERDICT)
    assert problem is not None
    assert problem.slug == "cannot-write"
    assert "✕ Not measured" in path.read_text()

    page.written(RUN, VERDICT, NOTHING)
    late = Problem("call-after-end", "a model call came after the end", "invalid")
    finish.write_report(tmp_path / "report.json", RUN, replace(VERDICT, verdict="invalid", problems=(late,)))
    assert "a model call came after the end" in path.read_text()


def test_a_page_that_cannot_be_taken_back_is_an_error_of_the_run(tmp_path: Path) -> None:
    """Then nothing is green: a page that says more than its report must not be left in silence."""
    path = tmp_path / "out" / "page.html"
    page = Page(path)
    page.written(RUN, VERDICT, NOTHING)
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("a file")
    error = page.keep_with(RUN, replace(VERDICT), is_stored=True)

    assert isinstance(error, StorageError)
