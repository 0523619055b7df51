"""How a measured pytest run begins: as one that measures, or beside one, to run what that one asks for."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from pytest_fanout.errors import FanoutError
from pytest_fanout.session.beside.serving import ServingSession
from pytest_fanout.session.branching import check_option
from pytest_fanout.session.masking import MaskedReports
from pytest_fanout.session.run import FanoutSession
from pytest_fanout.store.reports import write_unfinished


def configure(config: pytest.Config) -> None:
    """Start a measured session, or raise pytest.UsageError with one clear text."""
    is_worker = hasattr(config, "workerinput")
    run_id = config.workerinput["fanout_run_id"] if is_worker else uuid.uuid4().hex  # type: ignore[attr-defined]
    try:
        check_option(config)
        report = config.invocation_params.dir / config.getoption("fanout_report")
        given = given_to(config)
        session: FanoutSession
        if given is not None:
            session = _serving(config, given)
        else:
            page = None
            if not is_worker and config.getoption("fanout_html") is not None:
                from pytest_fanout.session.page import page_of  # what draws it is an extra

                page = page_of(config, report, run_id)
            if not is_worker and not config.option.collectonly:
                write_unfinished(report, run_id)
            session = FanoutSession(config, run_id, report, is_worker=is_worker)
            session.page = page
        config.pluginmanager.register(session, "fanout-session")
        config.pluginmanager.register(MaskedReports(session.masker), "fanout-masking")
        session.start()
    except FanoutError as error:
        raise pytest.UsageError(str(error)) from None


def _serving(config: pytest.Config, given: Mapping[str, Any]) -> ServingSession:
    if given["role"] == "control":
        from pytest_fanout.session.control.running import ControlSession

        return ControlSession(config, given)
    from pytest_fanout.session.proof.proving import ProofSession

    return ProofSession(config, given)


def given_to(config: pytest.Config) -> Mapping[str, Any] | None:
    """What the first lines of a process beside were given, None in any other pytest run."""
    for plugin in config.invocation_params.plugins or ():
        given: Mapping[str, Any] | None = getattr(plugin, "fanout_given", None)
        if given is not None:
            return given
    return None
