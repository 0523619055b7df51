"""``os._exit`` while a task runs: its numbers would be lost without a trace."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

#: Exit code of a process that called ``os._exit(0)`` while a task was running: its numbers are lost.
EXIT_LOST = 70


class ExitGuard:
    """Turns ``os._exit(0)`` into a failure while a task runs, in the measuring process only."""

    def __init__(self, is_running: Callable[[], bool]) -> None:
        self._is_running = is_running
        self._pid = os.getpid()
        self._before: Any = None
        self._ours: Any = None

    def install(self) -> None:
        self._before = before = os._exit

        def _exit(status: int) -> Any:
            lost = status == 0 and os.getpid() == self._pid and self._is_running()
            before(EXIT_LOST if lost else status)

        self._ours = _exit
        os._exit = _exit

    def uninstall(self) -> None:
        if os._exit is self._ours:
            os._exit = self._before
