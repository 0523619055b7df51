"""Which part of the tasks a shard runs: by a hash of class and task, so that it is the same on every machine."""

from __future__ import annotations

import hashlib
import re

from pytest_fanout.errors import UsageError


def parse_shard(text: str | None) -> tuple[int, int] | None:
    """``I/N`` as numbers with 1 <= I <= N, or UsageError."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError("bad-shard", f"--fanout-shard={text} is not I/N with 1 <= I <= N", mend="--fanout-shard=1/4")
    return int(found[1]), int(found[2])


def is_in_shard(shard: tuple[int, int] | None, agent: str, task: str) -> bool:
    """Whether this shard runs the task; without shards every one."""
    if shard is None:
        return True
    number = int.from_bytes(hashlib.sha256(f"{agent}\0{task}".encode()).digest()[:8], "big")
    return number % shard[1] == shard[0] - 1
