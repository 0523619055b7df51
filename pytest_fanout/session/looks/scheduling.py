"""How xdist's workers are given the trials: one at a time, round by round, each of ``--dist`` in its own way.

A worker of xdist begins an item only when it knows the next one, which at the end of a look nobody knows. So each item
is sent twice: its second coming is the next one that the worker waits for, and there it is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

_GROUPED: Final = frozenset({"loadfile", "loadscope", "loadgroup"})


class LookScheduling:
    """What xdist asks of a scheduler (``xdist.scheduler.protocol.Scheduling``), in the controller.

    Args:
        begin: told the node ids that the workers have collected.
        more: the indices of the next round; nothing when there is none. Asked when all of a round have ended.
    """

    def __init__(
        self, config: Any, log: Any, begin: Callable[[Sequence[str]], None], more: Callable[[], Sequence[int]]
    ) -> None:
        from xdist.workermanage import parse_tx_spec_config  # type: ignore[import-untyped]

        self.config = config
        self.log = log
        self._begin = begin
        self._more = more
        self._dist = str(config.getoption("dist"))
        self._expected = len(parse_tx_spec_config(config))
        self._collections: dict[Any, list[str]] = {}
        self._pending: dict[Any, list[int]] = {}  # by node: indices in the order sent, each twice
        self._unfit: set[Any] = set()  # nodes that have collected something else
        self._collection: list[str] | None = None
        self._queue: list[int] = []
        self._owners: dict[str, Any] = {}  # by group: the node that runs its items
        self._is_over = False

    # --- what xdist asks ---------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Any]:
        return list(self._pending)

    @property
    def collection_is_completed(self) -> bool:
        return len(self._collections) >= self._expected

    @property
    def tests_finished(self) -> bool:
        return self.collection_is_completed and self._is_over and not self._running()

    @property
    def has_pending(self) -> bool:
        return bool(self._queue or self._running())

    def add_node(self, node: Any) -> None:
        assert node not in self._pending
        self._pending[node] = []

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        assert node in self._pending
        if self._collection is not None and list(collection) != self._collection:
            # it takes the place of one that died: what others have collected is what holds
            self._unfit.add(node)
            self._tell_difference(self._collection, collection, "another worker", node)
            node.shutdown()
            if not self._fit():
                self._queue.clear()
                self._is_over = True
            return
        self._collections[node] = list(collection)

    def schedule(self) -> None:
        """Begin once all have collected; afterwards a new node has come."""
        if self._collection is None:
            (first, collection), *others = self._collections.items()
            different = [(node, other) for node, other in others if other != collection]
            for node, other in different:
                self._tell_difference(collection, other, first.gateway.id, node)
            self._collection = collection
            self._is_over = bool(different)
            if not different:
                self._begin(collection)
        self._feed()

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        self._pending[node].remove(item_index)
        self._feed()

    def mark_test_pending(self, item: str) -> None:
        """A plugin wants to have run again what a worker died of."""
        assert self._collection is not None
        self._queue.insert(0, self._collection.index(item))
        self._is_over = False
        self._feed()

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> None:
        raise NotImplementedError("nothing is ever stolen from a worker: each has one item")

    def remove_node(self, node: Any) -> str | None:
        """The item that the node died of, None when it was waiting."""
        pending = self._pending.pop(node)
        self._owners = {group: owner for group, owner in self._owners.items() if owner is not node}
        died_of = self._real(pending)
        self._feed()
        return self._collection[died_of] if died_of is not None and self._collection is not None else None

    # --- one item at a time ------------------------------------------------------------------------------------------

    @staticmethod
    def _real(pending: Sequence[int]) -> int | None:
        """The item that a node runs: of that one both copies are still open."""
        return next((index for index in pending if pending.count(index) == 2), None)

    def _running(self) -> bool:
        return any(self._real(pending) is not None for pending in self._pending.values())

    def _fit(self) -> list[Any]:
        return [node for node in self._pending if node not in self._unfit]

    def _feed(self) -> None:
        if self._collection is None or self._is_over:
            return
        nodes = [node for node in self._fit() if node in self._collections and not node.shutting_down]
        if not nodes:
            return  # one that takes the place of a dead one may be on its way
        if not self._queue and not self._running():
            self._queue = list(self._more())
            self._is_over = not self._queue
        for node in nodes:
            if self._real(self._pending[node]) is None:
                self._send_next(node)

    def _send_next(self, node: Any) -> None:
        """The first item that may run there; what stays together is ended before anything new is begun."""
        assert self._collection is not None
        groups: list[str | None] = [None] if self._queue else []
        if self._dist in _GROUPED:
            groups = [self._group(self._collection[index]) for index in self._queue]
        mine = (place for place, group in enumerate(groups) if group and self._owners.get(group) is node)
        anyones = (place for place, group in enumerate(groups) if not group or group not in self._owners)
        place = next(mine, next(anyones, None))
        if place is None:
            return
        if group := groups[place]:
            self._owners[group] = node
        index = self._queue.pop(place)
        self._pending[node] += [index, index]
        node.send_runtest_some([index, index])

    def _group(self, name: str) -> str | None:
        """What stays together on one worker, as xdist has it for this ``--dist``; None: the item goes anywhere."""
        if self._dist == "loadfile":
            return name.split("::", 1)[0]
        if self._dist == "loadscope":
            return name.rsplit("::", 1)[0]
        if self._dist == "loadgroup" and name.rfind("@") > name.rfind("]"):
            return name.split("@")[-1]
        return None

    def _tell_difference(self, one: Sequence[str], other: Sequence[str], name: str, node: Any) -> None:
        from xdist.report import report_collection_diff  # type: ignore[import-untyped]

        text = report_collection_diff(one, other, name, node.gateway.id)
        report = pytest.CollectReport(nodeid=node.gateway.id, outcome="failed", longrepr=text, result=[])
        self.config.hook.pytest_collectreport(report=report)
