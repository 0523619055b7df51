"""Patches on classes of a library, and taking them off again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

_MARK = "_pytest_fanout_hook"


def passed_on(original: Any, *args: Any, **named: Any) -> Any:
    """Call what a patch stands in front of. A stop may come amid it, as it would if the patch were not there."""
    return original(*args, **named)


def untorn(original: Any, *args: Any, **named: Any) -> Any:
    """Call what returns soon and may not be stopped half done: whoever cleans up after it would wait for ever."""
    return original(*args, **named)


def patch_all(points: Iterable[tuple[Any, str, Callable[[Any], Any]]]) -> Callable[[], None]:
    """Replace each method that is there by what is made of it; the returned function puts all of them back.

    Args:
        points: class (None: absent), name of the method, and what makes the new method out of the old one. A method
            that carries a hook already (two names for one class) is left alone.
    """
    undo = []
    for owner, name, make in points:
        before = vars(owner).get(name) if owner is not None else None
        if before is not None and not hasattr(before, _MARK):
            undo.append(_patch(owner, name, before, make(before)))

    def uninstall() -> None:
        for step in undo:
            step()

    return uninstall


def _patch(owner: Any, name: str, before: Any, hook: Any) -> Callable[[], None]:
    setattr(hook, _MARK, True)
    setattr(owner, name, hook)

    def undo() -> None:
        if vars(owner).get(name) is hook:
            setattr(owner, name, before)

    return undo
