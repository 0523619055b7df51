"""Work of the commands that needs what a project's hooks say: carried out where pytest has loaded its conftest files.

A pytest plugin, named by ``-p``. It finds the work among the plugins of its run, and no test is collected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pytest_fanout.records import HttpAnswer, HttpRequest
from pytest_fanout.session.extensions import codecs_of, profiles_of, redacted


class ProjectHooks:
    """What a project implements of hookspecs.py and commands ask for. Each raises UsageError, as in a run."""

    def __init__(self, hook: Any) -> None:
        self._hook = hook

    def codecs(self) -> Sequence[Any]:
        return codecs_of(self._hook.pytest_fanout_codecs)

    def profiles(self) -> Sequence[Any]:
        return profiles_of(self._hook.pytest_fanout_profiles)

    def redact(self, request: HttpRequest, answer: HttpAnswer) -> tuple[HttpRequest, HttpAnswer]:
        return redacted(self._hook.pytest_fanout_redact, request, answer)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Do the work instead of running tests."""
    for plugin in config.pluginmanager.get_plugins():
        work = getattr(plugin, "fanout_work", None)
        if work is not None:
            work(ProjectHooks(config.hook))
            return 0
    return None
