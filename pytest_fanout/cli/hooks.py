"""The hooks of the project that a command works on: pytest loads them, as it does for a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pytest_fanout.errors import FanoutError, UsageError
from pytest_fanout.records import HttpAnswer, HttpRequest

T = TypeVar("T")


class Hooks(Protocol):
    """What ``session.hooked`` hands over."""

    def codecs(self) -> Sequence[Any]:
        """Those of pytest_fanout_codecs."""

    def profiles(self) -> Sequence[Any]:
        """Those of pytest_fanout_profiles."""

    def redact(self, request: HttpRequest, answer: HttpAnswer) -> tuple[HttpRequest, HttpAnswer]:
        """What pytest_fanout_redact makes of an exchange."""


class _Work:
    """Found by ``session.hooked`` among the plugins of its pytest."""

    def __init__(self, do: Callable[[Hooks], Any]) -> None:
        self._do = do
        self.is_done = False
        self.result: Any = None
        self.error: FanoutError | None = None

    def fanout_work(self, hooks: Hooks) -> None:
        try:
            self.result = self._do(hooks)
        except FanoutError as error:
            self.error = error
        self.is_done = True


def with_hooks(root: Path, do: Callable[[Hooks], T]) -> T:
    """Do something with the project's hooks at hand; what it raises of our errors is raised on.

    Args:
        root: of the project. Its ``conftest.py``, those of ``testpaths``, and plugins are loaded.

    Raises:
        UsageError: pytest could not load them; it has said why.
    """
    import pytest

    work = _Work(do)
    words = [] if Path.cwd() == root else [str(root)]
    code = pytest.main(["-p", "pytest_fanout.session.hooked", *words], plugins=[work])
    if not work.is_done:
        raise UsageError(
            "hooks-not-loaded",
            f"pytest could not load the project and its hooks, and ended with exit code {code:d}",
            where=str(root),
            mend="mend what pytest says above (try: pytest --collect-only), then run the same command again",
        )
    if work.error is not None:
        raise work.error
    result: T = work.result
    return result
