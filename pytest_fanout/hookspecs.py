"""The pluggy hooks that users implement in a conftest.py or a plugin. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_fanout.records import HttpAnswer, HttpRequest, Run, TaskRun, Verdict


@pytest.hookspec
def pytest_fanout_codecs() -> Any:
    """Codecs for APIs of your own: a list of objects with ``classify(method, url) -> Endpoint | None`` and
    ``read_call(method, url, request_body, status, response_headers, response_body) -> Attempt | None``.
    They are asked before the built-in ones; the first that classifies a URL reads its calls."""


@pytest.hookspec
def pytest_fanout_redact(request: HttpRequest, response: HttpAnswer) -> Any:
    """Called for each exchange before it is stored: return ``(request, response)`` changed, or None.
    Matching works on what was stored, so the request is redacted before it is looked up as well."""


@pytest.hookspec
def pytest_fanout_cap_warning(task: str, cap: str, share: float) -> None:
    """A running task has used 80 % of a cap. ``share`` is the part used, 0-1."""


@pytest.hookspec
def pytest_fanout_task_finished(task_run: TaskRun) -> None:
    """One trial has been measured; called where it ran (in an xdist worker, there)."""


@pytest.hookspec
def pytest_fanout_finished(run: Run, verdict: Verdict) -> None:
    """The run has been judged and its report written; called once, in the controller."""


@pytest.hookspec
def pytest_fanout_profiles() -> Any:
    """GPU profiles of your own: a list of ``pytest_fanout.capacity.profiles.Profile``."""
