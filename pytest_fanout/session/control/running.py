"""The side of the base commit's process: it runs that commit's agent live, and hands its trials over."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_fanout.records import TaskRun
from pytest_fanout.session.beside.serving import ServingSession
from pytest_fanout.session.flow.allowance import Allowance
from pytest_fanout.session.flow.limits import paces_of, parse_spend_limit
from pytest_fanout.store.worktree import Moved


class ControlSession(ServingSession):
    """Answers each job with the trial as it was measured, or says why its number would not be the base's.

    Given: ``allowance`` (the file that all live calls of the run share), ``trials`` (how many of a task there may be),
    ``from`` and ``to`` (where the work tree and the base commit are).
    """

    what = "the base commit's process"

    def __init__(self, config: pytest.Config, given: Mapping[str, Any]) -> None:
        config.option.fanout_mode, config.option.fanout_trials = "live", given["trials"]
        super().__init__(config, given)
        self._moved = Moved(Path(given["from"]), Path(given["to"]))

    def start(self) -> None:
        super().start()
        assert self.meter is not None
        assert self.runner is not None
        limit = parse_spend_limit(self.config.getoption("fanout_spend_limit"))
        paces = paces_of(self.settings.agents)
        shared = Allowance(Path(self.given["allowance"]), f"control-{os.getpid()}", limit, paces)
        self.meter.ask_first(shared)
        self.runner.allowance = shared

    def serve(self, item: pytest.Item, original: Any) -> Mapping[str, Any]:
        assert self.runner is not None
        task_run: TaskRun
        task_run, _ = self.runner.run(self.works[item], original)
        files = [file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))]
        strays = self._moved.strays(files)
        if strays:
            more = f" and {len(strays) - 1} more" if len(strays) > 1 else ""
            return {"failed": f"{self.what} imported {strays[0]}{more} from the work tree"}
        return {"task_run": pickle.dumps(task_run).hex()}
