"""The side of the proving process: it replays what was recorded, and says what does not come out the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_fanout.session.beside.serving import ServingSession
from pytest_fanout.store.recordings import RecordingStore


class ProofSession(ServingSession):
    """Answers each job, a recording in a folder, with what its replay has shown."""

    what = "the process that proves recordings"
    replays = True

    def serve(self, item: pytest.Item, original: Any) -> Mapping[str, Any]:
        assert self.runner is not None
        work = self.works[item]
        stored = RecordingStore(Path(self.job["folder"])).load(work.agent, work.task, work.trial)
        proof = self.runner.proof_of(work, original, stored)
        return {"differences": proof.differences, "volatile": proof.volatile}
