"""Weights that traces give to an eval set say how many tasks they stand on."""

from __future__ import annotations

import pytest

from pytest_fanout.records import ClassTraffic, Distribution, Traffic
from pytest_fanout.report.traffic_page import sections


@pytest.mark.parametrize(
    ("tasks", "line"),
    [
        (
            4,
            "few tasks make weights of chance: by 4 tasks of production for 2 eval tasks, so that a share is known to "
            "49.00 points or better",
        ),
        (9_604, "by 9,604 tasks of production for 2 eval tasks, so that a share is known to 1.00 points or better"),
    ],
)
def test_how_well_weights_are_known(tasks: int, line: str) -> None:
    """A share of one half of n tasks is known to 98 / root n points, 95 % of the time; of a few it is chance."""
    of = Distribution("fanout", tasks, 0, 1.0, 1, 1, 1, 1)
    each = ClassTraffic("support", tasks, (of,), weights={"a": 0.5, "b": 0.5}, weights_by="tokens")

    found = sections(Traffic((each,), tasks, tasks))

    assert found[-1].title == "Weights for the eval set of support, by tokens"
    assert found[-1].lines == (line,)
