"""From bytes to Attempts: which URL asks for what, and what a model was asked and answered. Pure; no I/O.

``read_call`` and ``classify`` are the two questions that the meter asks; ``read_poll`` tells how a background run
ended. docs/wire.md says what is read and how counts of different providers become one.
"""

from __future__ import annotations

from pytest_fanout.wire.calls import is_readable, read_call
from pytest_fanout.wire.endpoints import classify, is_unclassified
from pytest_fanout.wire.polls import poll_id, read_poll

__all__ = ["classify", "is_readable", "is_unclassified", "poll_id", "read_call", "read_poll"]
