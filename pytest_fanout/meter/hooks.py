"""Every hook of ours: which modules it waits for, and how they are hooked."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Final, Protocol

from pytest_fanout.meter import (
    via_aiohttp,
    via_grpc,
    via_http_client,
    via_httpx,
    via_lm15,
    via_mcp,
    via_trio,
    via_urllib3,
    via_uvloop,
    via_vcr,
    via_websockets,
)
from pytest_fanout.meter.seam import Seam


class Hook(Protocol):
    """What each ``via_<library>.py`` offers. None of them imports its library: it is given the module."""

    MODULES: tuple[str, ...]  # full names; each is hooked when it is there, or once it is imported

    def install(self, module: ModuleType, seam: Seam) -> Callable[[], None]:
        """Patch ``module``; the returned function takes the patch off again."""
        ...

    def prove(self, module: ModuleType, seam: Seam) -> list[str]:
        """Send one request through each patch without a network; names of the patches that did not see it once."""
        ...


HOOKS: Final[tuple[Hook, ...]] = (
    via_httpx,
    via_aiohttp,
    via_urllib3,
    via_http_client,
    via_vcr,
    via_grpc,
    via_lm15,
    via_mcp,
    via_trio,
    via_uvloop,
    via_websockets,
)
BY_MODULE: Final[dict[str, Hook]] = {name: hook for hook in HOOKS for name in hook.MODULES}
