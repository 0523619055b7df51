"""Between agent and network: hooks, attribution, caps, replay. ``Meter`` runs it, ``measure_trial`` counts a trial."""

from __future__ import annotations

from pytest_fanout.meter.ledger import own_thread, unseen
from pytest_fanout.meter.meter import Meter, RunFacts
from pytest_fanout.meter.samples import Measured, measure_trial
from pytest_fanout.meter.task import Source, TaskScope, Trace

__all__ = ["Measured", "Meter", "RunFacts", "Source", "TaskScope", "Trace", "measure_trial", "own_thread", "unseen"]
