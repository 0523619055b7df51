"""Annotations and log protection for GitHub Actions: workflow commands whose every part is escaped."""

import re

from pytest_fanout.records import ClassResult, Run, Verdict
from pytest_fanout.report import summary
from pytest_fanout.report.printable import escape

MOST = 10  # of each level, what Actions shows for one step
_TOKEN = re.compile(r"[A-Za-z0-9]{16,}\Z")
_LEVELS = {"over": "error", "not_measured": "error", "waived": "warning"}


def annotations(run: Run, verdict: Verdict, *, baselines: str = "baselines") -> tuple[str, ...]:
    """At most 10 workflow commands, worst first: one for each class that is not within budget, then the problems.

    ``baselines``: folder of the anchors relative to the repository, with forward slashes. A class points at its anchor;
    what belongs to no class points nowhere.
    """
    found: list[tuple[int, str]] = []
    for result in summary.ordered_classes(verdict):
        if result.verdict in ("pass", "shard"):  # a shard is judged when it has been combined
            continue
        level = _LEVELS.get(result.outcome, "notice")
        text = _class_text(run, verdict, result)
        found.append((summary.severity(result.verdict), _command(level, text, f"{baselines}/{result.agent}.json")))
    for group in summary.problem_groups(run, verdict, notices=False):
        if group.agent is None:
            where = f"{group.where}: " if group.where else ""
            text = f"{summary.OUTCOME_WORDS['not_measured']} ({group.verdict}): {where}{group.text}"
            found.append((summary.severity(group.verdict), _command("error", text, None)))
    found.sort(key=lambda item: item[0])
    return tuple(command for _, command in found[:MOST])


def _class_text(run: Run, verdict: Verdict, result: ClassResult) -> str:
    words = f"{summary.OUTCOME_WORDS[result.outcome]} ({result.verdict}): {summary.class_reason(run, verdict, result)}"
    gpus = next(line.text for line in summary.capacity(verdict) if line.agent == result.agent)
    return f"{words}; {gpus}" if result.outcome in ("over", "waived") else words


def _command(level: str, text: str, file: str | None) -> str:
    properties = f"file={_property(file)},line=1," if file else ""
    return f"::{level} {properties}title=fanout budget::{_data(text)}"


def _data(text: str) -> str:
    """Lines are kept (as %0A); anything else that steers a terminal is made visible first."""
    lines = (escape(summary.shortened(line, 1_000)) for line in text.strip().splitlines())
    return "\n".join(lines).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def stop_commands(text: str, token: str) -> str:
    """``text`` between the marks that keep Actions from running the commands inside it, ending in a newline.

    Args:
        token: random for each use, 16 or more letters and digits.

    Raises:
        ValueError: a token that could be guessed by its shape, or that the text holds.
    """
    if not _TOKEN.match(token) or token in text:
        raise ValueError("the token must be 16 or more random letters and digits that the text does not hold")
    return f"::stop-commands::{token}\n{text}\n::{token}::\n"
