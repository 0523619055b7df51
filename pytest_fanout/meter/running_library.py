"""What says on a thread which asynchronous library runs there: a run that was stopped may leave its name behind."""

from __future__ import annotations

import sys
from collections.abc import Callable


def running_library() -> Callable[[], None]:
    """Look at what sniffio says on this thread, by its two ways; the returned function has it say so again. A name that
    was left behind makes anyio refuse the next run, and httpx take one library for another."""
    before = _names()

    def put_back() -> None:
        sniffio = sys.modules.get("sniffio")
        if sniffio is not None and _names() != before:
            sniffio.thread_local.name = before[0]
            sniffio.current_async_library_cvar.set(before[1])

    return put_back


def _names() -> tuple[str | None, str | None]:
    sniffio = sys.modules.get("sniffio")
    return (None, None) if sniffio is None else (sniffio.thread_local.name, sniffio.current_async_library_cvar.get())
