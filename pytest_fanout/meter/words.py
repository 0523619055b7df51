"""What the meter says in more than one place."""

from __future__ import annotations

#: What is said of a child that was made by fork, in which nothing can be counted for its parent.
FORKED_CALL = (
    "a child process made by fork called a model; it was refused, because it cannot be counted; "
    "mend: call models from this process, or start children with the method spawn"
)


def setup_call(where: str, *, refused: bool) -> str:
    """What is said of a model call that a fixture made: in replay, where it was refused, and already before."""
    now = (
        "set-up is not recorded, so replay refused it with 400"
        if refused
        else "it went out and is no task's, it is not recorded, and replay will refuse it with 400"
    )
    return (
        f"a fixture called {where}: {now}; mend: make the call in the task itself, inside of "
        'pytest_fanout.aside("set-up") where it is not the agent\'s, or keep what it answers in a file'
    )
