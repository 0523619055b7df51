"""The hook of trio: it counts nothing. Its pool of threads outlives the tasks, so each job is given its owner.

Asynchronous code of trio needs nothing: what it starts ends with ``trio.run``, and below it stand the hooked clients.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pytest_fanout.meter.ledger import rests_in
from pytest_fanout.meter.patching import patch_all
from pytest_fanout.meter.seam import Seam

MODULES: tuple[str, ...] = ("trio._core._thread_cache",)
_POINT = "start_thread_soon"


def install(module: ModuleType, seam: Seam) -> Callable[[], None]:
    """Patch the pool of ``module``; the returned function takes the patch off again."""

    def hook(original: Any) -> Any:
        @functools.wraps(original)
        def start_thread_soon(pool: Any, fn: Any, *args: Any, **named: Any) -> Any:
            return original(pool, seam.ledger.carry(fn), *args, **named)

        return start_thread_soon

    rests_in(module)
    return patch_all(((getattr(module, "ThreadCache", None), _POINT, hook),))


def prove(module: ModuleType, seam: Seam) -> list[str]:
    """Nothing to prove: where the pool is another one, what its threads call is late or unattributed, never lost."""
    return []
