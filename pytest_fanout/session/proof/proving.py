"""The side of the proving process: a pytest run that collects as ever, and then replays what it is told to."""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from pytest_fanout.session.items import running_as
from pytest_fanout.session.proof.outcome import Proof
from pytest_fanout.session.run import FanoutSession
from pytest_fanout.session.trial import one_line
from pytest_fanout.store.recordings import RecordingStore

#: Options that would end this run early, wait for somebody at a keyboard, or write into files of the run that records:
#: some are opened, and emptied, when a session begins.
_OFF: Final = {
    **{"usepdb": False, "trace": False, "stepwise": False, "maxfail": 0},
    **{"xmlpath": None, "htmlpath": None, "report_log": None, "log_file": os.devnull},
}


class ProofSession(FanoutSession):
    """Measures nothing for the record: no report is written, and no hook at the end of the session runs."""

    proves = True

    def __init__(self, config: pytest.Config, line: tuple[int, int]) -> None:
        for name, value in _OFF.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        super().__init__(config, "proof", Path(os.devnull), is_worker=False)
        self._jobs = os.fdopen(line[0], "r", encoding="utf-8")
        self._answers = os.fdopen(line[1], "w", encoding="utf-8")
        self._proof: Proof | None = None
        self._folder = Path()
        self._why_not = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        following = dict(zip(session.items, [*session.items[1:], None], strict=True))
        # of those that were collected, not of those that another plugin has let go since
        works = [(self.works[item], item) for item in session.items]
        items = {(work.agent, work.task, work.trial): item for work, item in works}
        self._tell({"begun": True})
        for text in self._jobs:
            job = json.loads(text)
            item = items.get((job["agent"], job["task"], job["trial"]))
            if item is None:
                why = "; its collection failed" if self.told.collection_failed else ""
                self._tell({"failed": f"the process that proves recordings did not collect this task{why}"})
                continue
            self._folder, self._proof, self._why_not = Path(job["folder"]), None, "the test was not run"
            state: Any = session._setupstate  # of the module before, which the item after it did not share
            state.teardown_exact(item)
            self.config.hook.pytest_runtest_protocol(item=item, nextitem=following[item])
            self._tell(self._answer())
        session._setupstate.teardown_exact(None)
        self._leave(0)
        return True

    def _answer(self) -> dict[str, Any]:
        if self._proof is None:
            return {"failed": f"in the process that proves recordings {self._why_not}"}
        return {"differences": self._proof.differences, "volatile": self._proof.volatile}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        work, runner, original = self.works[item], self.runner, item.runtest
        assert runner is not None

        def proved() -> None:
            stored = RecordingStore(self._folder).load(work.agent, work.task, work.trial)
            self._proof = runner.proof_of(work, original, stored)

        with running_as(item, proved):
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
