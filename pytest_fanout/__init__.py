"""pytest-fanout: the build goes red when an agent's model calls or tokens per task grow beyond budget.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_fanout.errors import MeasurementWarning
    from pytest_fanout.records import Attempt, ModelCall, TaskRun
    from pytest_fanout.session.api import aside, call_site, measure
    from pytest_fanout.session.recorded import recorded

__all__ = [
    "Attempt",
    "MeasurementWarning",
    "ModelCall",
    "TaskRun",
    "__version__",
    "aside",
    "call_site",
    "measure",
    "recorded",
]

_HOMES = {
    "Attempt": "pytest_fanout.records",
    "MeasurementWarning": "pytest_fanout.errors",
    "ModelCall": "pytest_fanout.records",
    "TaskRun": "pytest_fanout.records",
    "aside": "pytest_fanout.session.api",
    "call_site": "pytest_fanout.session.api",
    "measure": "pytest_fanout.session.api",
    "recorded": "pytest_fanout.session.recorded",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("pytest-fanout")
    raise AttributeError(f"module 'pytest_fanout' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
