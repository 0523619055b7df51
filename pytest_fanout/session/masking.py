"""Secrets taken out of pytest's own reports, which the terminal, JUnit files and other plugins show."""

from __future__ import annotations

import dataclasses
import linecache
import logging
import warnings
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from pytest_fanout.records import TaskRun
from pytest_fanout.store.masking import Masker


class MaskedReports:
    """The plugin that masks them, before anybody else sees them."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """What is logged is written at once, with ``log_cli`` to the terminal and with ``--log-file`` to a file."""
        plugin = session.config.pluginmanager.get_plugin("logging-plugin")
        for name in ("log_cli_handler", "log_file_handler"):
            handler: logging.Handler | None = getattr(plugin, name, None)
            if handler is not None and handler.formatter is not None:
                handler.setFormatter(_MaskedLines(handler.formatter, self._masker))

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        mask_report(report, self._masker)
        return report

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        mask_report(report, self._masker)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        """The summary shows a warning's text and the line of source that gave it."""
        text = str(warning_message.message)
        if (shown := self._masker.text(text)) != text:
            warning_message.message = UserWarning(shown)  # its category stays what it is
        line = warning_message.line or linecache.getline(warning_message.filename, warning_message.lineno)
        if (shown := self._masker.text(line)) != line:
            warning_message.line = shown


class _MaskedLines(logging.Formatter):
    def __init__(self, inner: logging.Formatter, masker: Masker) -> None:
        super().__init__()
        self._inner, self._masker = inner, masker

    def format(self, record: logging.LogRecord) -> str:
        return self._masker.text(self._inner.format(record))


def shown_trial(task_run: TaskRun, masker: Masker) -> TaskRun:
    """A trial without secrets, with a notice where it or its report held some."""
    shown = masker.record(task_run)
    return replace(shown, problems=(*shown.problems, *masker.take(task_run.agent)))


def mask_report(report: Any, masker: Masker) -> None:
    """Mask what a report of pytest's says: the failure, and what was captured meanwhile."""
    longrepr = getattr(report, "longrepr", None)
    if longrepr is not None:
        report.longrepr = _in_place(longrepr, masker, set())
    report.sections = [(masker.text(name), masker.text(content)) for name, content in report.sections]
    if hasattr(report, "wasxfail"):
        report.wasxfail = masker.text(report.wasxfail)


def _in_place(value: Any, masker: Masker, seen: set[int]) -> Any:
    """The same object with its texts masked: other code holds on to the parts of a failure."""
    if isinstance(value, str):
        return masker.text(value)
    if isinstance(value, tuple):
        return tuple(_in_place(item, masker, seen) for item in value)
    if id(value) in seen:
        return value
    seen.add(id(value))
    if isinstance(value, list):
        value[:] = [_in_place(item, masker, seen) for item in value]
    elif dataclasses.is_dataclass(value) or type(value).__module__.startswith("_pytest."):
        for name, before in list(getattr(value, "__dict__", {}).items()):
            after = _in_place(before, masker, seen)
            if after is not before:
                setattr(value, name, after)
    return value
