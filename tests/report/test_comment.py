"""The comment on a pull request: the verdict as the report tells it, and nothing that the report could do by it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import report_cases
from click.testing import CliRunner

from pytest_fanout.cli.baseline import main
from pytest_fanout.records import Head, Run, Verdict
from pytest_fanout.report.comment import MOST_BYTES, comment
from pytest_fanout.report.json import document
from pytest_fanout.report.markdown import render
from pytest_fanout.store.judgements import read_judgement
from pytest_fanout.store.reports import read_report, write_report

CASES = report_cases.cases()
PULL = "c" * 40
EVIL = "::error::x` <img src=x onerror=alert(1)> @org/all #1 https://evil.example | [x](javascript:1)\n\x1b[31m"


def written(tmp_path: Path, run: Run, verdict: Verdict) -> Path:
    path = tmp_path / "fanout-report.json"
    write_report(path, document(run, verdict))
    return path


def call(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["comment", *words], catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_verdict_is_read_back_as_it_was_told(name: str, tmp_path: Path) -> None:
    """Whatever the verdict: written, read and written again, the report is the same document, byte by byte."""
    run, verdict = CASES[name]
    path = written(tmp_path, run, verdict)
    first = path.read_bytes()

    write_report(path, document(read_report(path), read_judgement(path)))

    assert path.read_bytes() == first


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_comment_is_the_summary_and_says_what_it_is_worth(name: str, tmp_path: Path) -> None:
    """Its first line is the mark of the comment that it replaces; its last one says that the check decides."""
    run, verdict = CASES[name]

    code, out, _ = call("--report", str(written(tmp_path, run, verdict)))

    lines = out.splitlines()
    assert (code, lines[0]) == (0, "<!-- pytest-fanout -->")
    assert lines[-1] == (
        "<sub>Written from what the run reports of itself; what decides is the required check, which judges it anew."
        " This comment is updated in place.</sub>"
    )
    assert out.startswith(render(read_report(tmp_path / "fanout-report.json"), verdict)[:60])


def hostile() -> tuple[Run, Verdict]:
    """The regressed case with a text of an attacker in every place that takes text."""
    run, verdict = CASES["regressed"]
    result = verdict.classes[0]
    metrics = tuple(replace(metric, name=EVIL, max_task=EVIL) for metric in result.metrics)
    problems = tuple(replace(problem, text=EVIL, agent=EVIL) for problem in (*result.problems, *verdict.problems))
    result = replace(
        result,
        agent=EVIL,
        metrics=metrics,
        problems=problems,
        notices=problems,
        missing=(EVIL,),
        new=(EVIL,),
        approval=EVIL,
        top=tuple(replace(delta, task=EVIL) for delta in result.top),
    )
    base = replace(verdict.base, source=EVIL, rev=EVIL)
    verdict = replace(
        verdict, classes=(result,), problems=problems, next=(EVIL,), base=base, head=Head(EVIL), projections=()
    )
    return run, verdict


def test_a_hostile_report_can_do_nothing(tmp_path: Path) -> None:
    """No tag, mention, link, reference, image or control character of an attacker is left outside of inert code."""
    code, out, _ = call("--report", str(written(tmp_path, *hostile())))

    assert code == 0
    inert = re.sub(r"<code>[^<]*</code>|`[^`\n]*`", "", out)
    assert not re.search(r"<(?!/?(sub|details|summary)>|!-- pytest-fanout -->)", inert), inert
    assert not re.search(r"[@\x1b]|https?:|javascript|#\d|\]\(|::error", inert), inert
    for span in re.findall(r"<code>([^<]*)</code>", out):
        assert not re.search(r"[@|`\x1b]|https?:", span)


@pytest.mark.parametrize("classes", [5, 40])
def test_a_comment_is_never_longer_than_github_takes(classes: int) -> None:
    """Rows of names as long as they can be: the verdict still stands in it."""
    run, verdict = CASES["regressed"]
    result = verdict.classes[0]
    long = [
        replace(result, agent=f"{number}" + "<@&" * 200, metrics=result.metrics * 5, missing=("<" * 400,) * 40)
        for number in range(classes)
    ]

    text = comment(run, replace(verdict, classes=tuple(long)))

    assert len(text.encode()) <= MOST_BYTES
    assert text.startswith("<!-- pytest-fanout -->\n### ")
    assert "over budget" in text.splitlines()[1]
    assert text.count("<details>") == text.count("</details>")


def test_the_report_has_to_be_of_the_commit_that_is_asked_for(tmp_path: Path) -> None:
    """Its own commit, or the pull request's where CI measured the merge; else exit 4, and a comment that says so."""
    run, verdict = CASES["pass"]
    rev = str(verdict.head.rev)
    path = str(written(tmp_path, run, replace(verdict, head=Head(rev, merges=PULL))))

    assert call("--report", path, "--expect-head", rev)[0] == 0
    assert call("--report", path, "--expect-head", PULL)[0] == 0
    code, out, err = call("--report", path, "--expect-head", "d" * 40)
    assert (code, err) == (
        4,
        f"error: the report is of commit {rev[:12]}, and --expect-head is {'d' * 12}\n"
        "  mend: take the report of the run that was made for this commit\n"
        "  see: docs/messages.md#report-of-another-commit\n",
    )
    assert out.splitlines()[1:4] == [
        "### ⚠️ fanout not measured",
        "",
        f"There is no report to show: `the report is of commit {rev[:12]}, and --expect-head is {'d' * 12}`",
    ]


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"schema": "pytest-fanout/report/1"}', b"\xff}", b'{"a": NaN}'])
def test_what_is_no_report_still_makes_a_comment(data: bytes, tmp_path: Path) -> None:
    """An older green comment is replaced, whatever stands in the artifact."""
    path = tmp_path / "fanout-report.json"
    path.write_bytes(data)

    code, out, err = call("--report", str(path))

    assert code == 4
    assert err.startswith("error: ")
    assert out.startswith("<!-- pytest-fanout -->\n### ⚠️ fanout not measured\n")


def test_a_report_that_is_missing_still_makes_a_comment(tmp_path: Path) -> None:
    """The job died before it wrote one."""
    code, out, _ = call("--report", str(tmp_path / "none.json"))

    assert (code, out.splitlines()[3]) == (4, "There is no report to show: `there is no report`")


def test_a_report_that_contradicts_itself_is_told_as_unreadable(tmp_path: Path) -> None:
    """It fits its schema and its digest, and holds a whole number that no figure can have; the comment says so."""
    run, verdict = CASES["regressed"]
    path = written(tmp_path, run, verdict)
    forged = json.loads(path.read_text(encoding="utf-8"))
    forged["classes"][0]["metrics"][0]["run"] = 1e308
    write_report(path, forged)

    code, out, err = call("--report", str(path))

    assert (code, out.splitlines()[1]) == (4, "### ⚠️ fanout not measured")
    assert "There is no report to show: `says what cannot be shown`" in out
    assert err == (
        f"error: {path}: says what cannot be shown\n  mend: run `pytest --fanout-budget` again\n"
        "  see: docs/messages.md#report-malformed\n"
    )


def test_a_constraint_that_is_not_among_those_told_binds_without_words(tmp_path: Path) -> None:
    """What binds is named in one place of a report and described in another: one of them may be missing."""
    run, verdict = CASES["regressed"]
    (projection, *_) = verdict.projections
    load = replace(projection.run, binding="memory", constraints=())
    told = replace(verdict, projections=(replace(projection, run=load),))

    assert "memory binds" in comment(run, told)
