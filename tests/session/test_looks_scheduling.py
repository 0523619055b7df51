"""How the trials of a look reach xdist's workers: one at a time, each sent twice, and none before its look."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_fanout.session.looks.scheduling import LookScheduling


class Node:
    """A worker as the controller sees it. It begins an item once it knows the next one, as xdist's do."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.queue: list[int] = []
        self.begun: list[int] = []

    def __repr__(self) -> str:
        return str(self.gateway.id)

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.queue += indices

    def shutdown(self) -> None:
        self.shutting_down = True

    def step(self, scheduling: LookScheduling) -> int | None:
        """Go on until an item has ended; None: it waits. What comes a second time is passed over."""
        while len(self.queue) > 1 or (self.queue and self.shutting_down):
            index = self.queue.pop(0)
            first = index not in self.begun
            self.begun.append(index)
            scheduling.mark_test_complete(self, index)
            if first:
                return index
        return None


class Run:
    """A controller with its workers, and rounds that are given beforehand."""

    def __init__(
        self,
        names: Sequence[str],
        rounds: Sequence[Sequence[int]],
        dist: str = "load",
        workers: int = 2,
        collected: Sequence[Sequence[str]] = (),
    ) -> None:
        self.failed: list[str] = []
        self.asked = 0
        self.rounds = [list(indices) for indices in rounds]
        self.names = list(names)
        hook = SimpleNamespace(pytest_collectreport=lambda report: self.failed.append(str(report.longrepr)))
        options = {"dist": dist, "tx": ["popen"] * workers}
        config: Any = SimpleNamespace(getoption=options.__getitem__, getvalue=options.__getitem__, hook=hook)
        self.scheduling = LookScheduling(config, None, lambda collected: None, self.more)
        self.nodes = [self.join(f"gw{n}", collected[n] if collected else None) for n in range(workers)]

    def more(self) -> list[int]:
        self.asked += 1
        return self.rounds.pop(0) if self.rounds else []

    def join(self, name: str, names: Sequence[str] | None = None) -> Node:
        node = Node(name)
        self.scheduling.add_node(node)
        self.scheduling.add_node_collection(node, list(self.names if names is None else names))
        if self.scheduling.collection_is_completed:
            self.scheduling.schedule()
        return node


def test_each_worker_has_one_item_and_a_look_ends_before_the_next_begins() -> None:
    """Five items of look one on two workers; the sixth, of look two, is sent when the last of them has ended."""
    run = Run("abcdef", [[0, 1, 2, 3, 4], [5]])
    one, two = run.nodes

    assert (one.queue, two.queue) == ([0, 0], [1, 1])
    assert [one.step(run.scheduling) for _ in range(3)] == [0, 2, 3]  # the other one is slow
    assert one.step(run.scheduling) == 4
    assert one.step(run.scheduling) is None
    assert run.asked == 1
    assert two.step(run.scheduling) == 1
    assert run.asked == 2
    assert not run.scheduling.tests_finished
    assert [node.step(run.scheduling) for node in run.nodes] == [5, None]
    assert run.scheduling.tests_finished
    assert not run.scheduling.has_pending


def test_a_worker_that_waits_passes_its_second_copy_over_when_it_ends() -> None:
    """At the shutdown nothing of it is left, so that xdist does not take it for crashed."""
    run = Run("a", [[0]], workers=1)
    (node,) = run.nodes
    node.step(run.scheduling)
    node.shutdown()

    assert node.step(run.scheduling) is None
    assert run.scheduling.remove_node(node) is None


def test_what_a_worker_died_of_is_lost_and_the_rest_goes_on() -> None:
    """The item is named to xdist, and the next round is asked for without waiting for it."""
    run = Run("abcd", [[0, 1, 2], [3]])
    one, two = run.nodes

    assert run.scheduling.remove_node(one) == "a"
    assert [two.step(run.scheduling) for _ in range(3)] == [1, 2, 3]
    assert run.scheduling.tests_finished


def test_a_worker_that_died_while_it_waited_has_lost_nothing() -> None:
    """Its last item had ended; only the copy that it waited with was open."""
    run = Run("ab", [[0, 1]])
    one = run.nodes[0]
    one.step(run.scheduling)

    assert run.scheduling.remove_node(one) is None


def test_a_replacement_takes_over_when_no_worker_is_left() -> None:
    """Nothing ends and nothing is asked for while it is on its way."""
    run = Run("abc", [[0, 1], [2]], workers=1)

    assert run.scheduling.remove_node(run.nodes[0]) == "a"
    assert not run.scheduling.tests_finished
    new = run.join("gw1")
    assert [new.step(run.scheduling) for _ in range(2)] == [1, 2]
    assert run.scheduling.tests_finished


def test_a_replacement_that_collects_other_items_gets_none() -> None:
    """An index would mean another item there. Without any other worker the run ends, and says why."""
    run = Run("ab", [[0], [1]], workers=1)
    run.scheduling.remove_node(run.nodes[0])
    new = run.join("gw1", "ba")

    assert new.queue == []
    assert new.shutting_down
    assert run.scheduling.tests_finished
    assert len(run.failed) == 1
    assert "Different tests were collected between another worker and gw1" in run.failed[0]


def test_workers_that_collect_different_items_run_nothing() -> None:
    """As in xdist's own schedulers: the difference is a failed collection."""
    run = Run("ab", [[0, 1]], collected=["ab", "ba"])

    assert run.scheduling.tests_finished
    assert [node.queue for node in run.nodes] == [[], []]
    assert len(run.failed) == 1
    assert "Different tests were collected between gw0 and gw1" in run.failed[0]


def test_a_plugin_may_have_run_again_what_a_worker_died_of() -> None:
    """pytest-rerunfailures does so in `pytest_handlecrashitem`: the item comes next, even after the last look."""
    run = Run("ab", [[0, 1]])
    one, two = run.nodes
    two.step(run.scheduling)
    run.scheduling.remove_node(one)
    assert run.scheduling.tests_finished
    run.scheduling.mark_test_pending("a")

    assert not run.scheduling.tests_finished
    assert two.step(run.scheduling) == 0


def test_nothing_is_sent_to_a_worker_that_is_shut_down() -> None:
    """After `-x` no further look is asked for."""
    run = Run("abc", [[0, 1], [2]])
    for node in run.nodes:
        node.shutdown()
    assert [node.step(run.scheduling) for node in run.nodes] == [0, 1]

    assert run.asked == 1


NAMES = ["a.py::T::x[t1]@one", "a.py::y[t1]", "b.py::z[t1]@one", "a.py::T::w[t1]"]


@pytest.mark.parametrize(
    ("dist", "first", "second"),
    [
        ("load", [0, 2, 3], [1]),
        ("worksteal", [0, 2, 3], [1]),
        ("loadfile", [0, 1, 3], [2]),
        ("loadscope", [0, 3, 2], [1]),
        ("loadgroup", [0, 2, 3], [1]),
    ],
)
def test_what_dist_keeps_together_stays_on_one_worker(dist: str, first: list[int], second: list[int]) -> None:
    """By file, by class or module, or by `xdist_group`; the second worker is slow, and gets what it alone may run."""
    run = Run(NAMES, [range(4)], dist)
    one, two = run.nodes
    ran = [index for _ in range(4) if (index := one.step(run.scheduling)) is not None]
    late = [index for _ in range(4) if (index := two.step(run.scheduling)) is not None]

    assert (ran, late) == (first, second)
    assert run.scheduling.tests_finished


def test_a_group_stays_on_its_worker_from_look_to_look() -> None:
    """A module's fixtures are set up once; if its worker dies another one takes it over."""
    names = ["a.py::x[t1]", "b.py::x[t1]", "a.py::x[t2]", "b.py::x[t2]", "a.py::x[t3]"]
    run = Run(names, [[0, 1], [3, 2], [4]], "loadfile")
    one, two = run.nodes
    two.step(run.scheduling)
    one.step(run.scheduling)

    assert [node.step(run.scheduling) for node in run.nodes] == [2, 3]
    run.scheduling.remove_node(one)
    assert two.step(run.scheduling) is None
    assert run.scheduling.tests_finished
