"""Hooks for libraries that are imported later, also amid a task: a finder at the head of ``sys.meta_path``."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class ImportWatch(MetaPathFinder):
    """Calls ``found(module)`` once a watched module has been executed. It finds nothing itself."""

    def __init__(self, names: Iterable[str], found: Callable[[ModuleType], None]) -> None:
        self._names = frozenset(names)
        self._found = found
        self._busy = threading.local()

    def install(self) -> None:
        sys.meta_path.insert(0, self)

    def uninstall(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._names or getattr(self._busy, "now", False):
            return None
        self._busy.now = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._busy.now = False
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:
                self._found(module)

        loader.exec_module = exec_module
        return spec
