"""How a measured pytest run begins: as one that measures, or as the process that proves recordings of another one."""

from __future__ import annotations

import uuid

import pytest

from pytest_fanout.errors import FanoutError
from pytest_fanout.session.masking import MaskedReports
from pytest_fanout.session.proof.proving import ProofSession
from pytest_fanout.session.run import FanoutSession
from pytest_fanout.store.reports import write_unfinished


def configure(config: pytest.Config) -> None:
    """Start a measured session, or raise pytest.UsageError with one clear text."""
    is_worker = hasattr(config, "workerinput")
    run_id = config.workerinput["fanout_run_id"] if is_worker else uuid.uuid4().hex  # type: ignore[attr-defined]
    try:
        report = config.invocation_params.dir / config.getoption("fanout_report")
        line = proof_line(config)
        if line is None and not is_worker and not config.option.collectonly:
            write_unfinished(report, run_id)
        session = (
            FanoutSession(config, run_id, report, is_worker=is_worker) if line is None else ProofSession(config, line)
        )
        config.pluginmanager.register(session, "fanout-session")
        config.pluginmanager.register(MaskedReports(session.masker), "fanout-masking")
        session.start()
    except FanoutError as error:
        raise pytest.UsageError(str(error)) from None


def proof_line(config: pytest.Config) -> tuple[int, int] | None:
    """The two pipes of a proving process, None in any other pytest run."""
    for plugin in config.invocation_params.plugins or ():
        line: tuple[int, int] | None = getattr(plugin, "fanout_proof_line", None)
        if line is not None:
            return line
    return None
