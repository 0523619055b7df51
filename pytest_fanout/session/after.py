"""Model calls of what a run has left behind: they come when the verdict is written, and take it back."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

from pytest_fanout.errors import FanoutError
from pytest_fanout.records import Problem, Run, Verdict
from pytest_fanout.session.finish import Finish
from pytest_fanout.store.masking import Masker
from pytest_fanout.store.reports import write_unfinished

_MEND = "let the agent wait for what it starts, then run again"


class AfterTheEnd:
    """Makes the report ``invalid`` when a call comes after it was written, and a process that was green end with 1.

    A worker of xdist has no say in the exit code of its controller; there the report alone is red, and with it the
    required check.
    """

    def __init__(self, report: Path, run_id: str, masker: Masker) -> None:
        self._report = report
        self._masker = masker
        self._run_id = run_id
        self._lock = threading.Lock()
        self._written: tuple[Finish, Run, Verdict] | None = None
        self._problem: Problem | None = None
        self._is_green = False
        # exit handlers run last registered first: this one comes after those of the agent, and sees what they did
        atexit.register(self._exit)

    def tell(self, text: str) -> None:
        """A call has come. Called on any thread, and by exit handlers; only the first call is told."""
        with self._lock:
            if self._problem is not None:
                return
            self._problem = Problem("call-after-end", f"{self._masker.text(text)}; mend: {_MEND}", "invalid")
            self._take_back()

    def reported(self, finish: Finish, run: Run, verdict: Verdict, *, is_green: bool) -> None:
        """The report stands. From now on a call changes it."""
        with self._lock:
            self._written = finish, run, verdict
            self._is_green = is_green
            if self._problem is not None:
                self._take_back()

    def _take_back(self) -> None:
        assert self._problem is not None
        try:
            if self._written is None:
                write_unfinished(self._report, self._run_id)
            else:
                finish, run, verdict = self._written
                totals = replace(run.totals, late=run.totals.late + 1)
                session = replace(run.session, pytest_exit=1)
                run = replace(run, problems=(*run.problems, self._problem), totals=totals, session=session)
                if verdict.verdict not in ("integrity", "no-base"):
                    verdict = replace(verdict, verdict="invalid")
                verdict = replace(verdict, problems=(self._problem, *verdict.problems))
                finish.write_report(self._report, run, verdict)
        except FanoutError as error:
            print(f"pytest-fanout: {error}", file=sys.__stderr__)
        print(f"pytest-fanout: not measured (invalid): {self._problem.text}", file=sys.__stderr__, flush=True)

    def _exit(self) -> None:
        if self._problem is not None and self._is_green:
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except (OSError, ValueError, AttributeError):
                    continue
            os._exit(1)
