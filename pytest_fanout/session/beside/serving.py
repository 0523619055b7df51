"""The side of the process beside: a pytest run that collects as ever, and then runs what it is told to."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_fanout.session.items import running_as
from pytest_fanout.session.run import FanoutSession
from pytest_fanout.session.trial import one_line

#: Options that would end this run early, wait for somebody at a keyboard, or write into files of the run that records:
#: some are opened, and emptied, when a session begins.
_OFF: Final = {
    **{"usepdb": False, "trace": False, "stepwise": False, "maxfail": 0},
    **{"xmlpath": None, "htmlpath": None, "report_log": None, "log_file": os.devnull},
}


class ServingSession(FanoutSession):
    """Measures nothing for the record: no report is written, and no hook at the end of the session runs.

    Args:
        given: what the first lines were given.

    Attributes:
        what: names the process in messages.
        job: the one that runs now.
    """

    serves = True
    what = "the process beside"

    def __init__(self, config: pytest.Config, given: Mapping[str, Any]) -> None:
        for name, value in _OFF.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        super().__init__(config, given["role"], Path(os.devnull), is_worker=False)
        self.given = given
        self.job: dict[str, Any] = {}
        self._jobs = os.fdopen(given["jobs"], "r", encoding="utf-8")
        self._answers = os.fdopen(given["answers"], "w", encoding="utf-8")
        self._answer: Mapping[str, Any] | None = None
        self._why_not = ""

    def serve(self, item: pytest.Item, original: Any) -> Mapping[str, Any]:
        """Run the item's task, by calling ``original``, for the present job. The answer to it."""
        raise NotImplementedError

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        following = dict(itertools.pairwise([*session.items, None]))
        # of those that were collected, not of those that another plugin has let go since
        works = [(self.works[item], item) for item in session.items]
        items = {(work.agent, work.task, work.trial): item for work, item in works}
        self._tell({"begun": True})
        for text in self._jobs:
            self.job = json.loads(text)
            item = items.get((self.job["agent"], self.job["task"], self.job["trial"]))
            if item is None:
                why = "".join(f"; its collection failed: {error}" for error in self.told.collection_errors[:1])
                self._tell({"failed": f"{self.what} did not collect this task{why}"})
                continue
            self._answer, self._why_not = None, "the test was not run"
            state: Any = session._setupstate  # of the module before, which the item after it did not share
            state.teardown_exact(item)
            self.config.hook.pytest_runtest_protocol(item=item, nextitem=following[item])
            self._tell(self._answer or {"failed": f"in {self.what} {self._why_not}"})
        session._setupstate.teardown_exact(None)
        self._leave(0)
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        original = item.runtest

        def served() -> None:
            self._answer = self.serve(item, original)

        with running_as(item, served):
            return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        if call.excinfo is not None and call.when != "teardown":
            self._why_not = f"the {call.when} of {item.nodeid} failed: {one_line(call.excinfo.value)}"
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Something has ended the run before its time: what follows would write reports."""
        self._leave(3)

    def _tell(self, answer: Mapping[str, Any]) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    def _leave(self, code: int) -> None:
        """End at once: other plugins write their reports, or tell the world, when a session ends."""
        if self.outside is not None:
            self.outside.stop()
        os._exit(code)
