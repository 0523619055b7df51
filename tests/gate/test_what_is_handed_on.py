"""What the gate's modules hand to each other."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil

from pytest_fanout import gate

#: Reads recordings once and remembers them; it is handed to nobody.
CHANGES = {"_Sides"}


def test_what_is_handed_on_cannot_be_changed() -> None:
    """Every record of the gate is frozen, with slots: nobody alters a finding on its way to the verdict."""
    records = []
    for found in pkgutil.iter_modules(gate.__path__, "pytest_fanout.gate."):
        module = importlib.import_module(found.name)
        records += [
            each
            for each in vars(module).values()
            if isinstance(each, type) and dataclasses.is_dataclass(each) and each.__module__ == module.__name__
        ]

    loose = {each.__name__ for each in records if not each.__dataclass_params__.frozen}  # type: ignore[attr-defined]
    assert len(records) > 15
    assert loose == CHANGES
    assert all("__slots__" in vars(each) for each in records)
