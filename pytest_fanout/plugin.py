"""pytest's hooks: options, marker, fixture. Everything else is loaded only when ``--fanout-budget`` is given.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_fanout.session.api import TaskMeter


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fanout", "fanout: model calls and tokens per task, judged against a baseline in git")
    add = group.addoption
    add(
        "--fanout-budget",
        action="store_true",
        help="run the eval sets and the tests marked fanout, judge them, fail when not within budget",
    )
    add(
        "--fanout-mode",
        choices=("replay", "record", "rerecord", "live"),
        default="replay",
        help="replay recordings (default), record what is missing or stale, rerecord all, or run live unrecorded",
    )
    add(
        "--fanout-trials",
        type=int,
        metavar="N",
        help="trials per task (default: every recorded one; live 5 for a first anchor, then as many as evidence needs)",
    )
    add(
        "--fanout-control",
        type=int,
        metavar="N",
        help="beside new trials run the base commit's agent on N tasks a class, to tell code from environment",
    )
    add(
        "--fanout-branch",
        action="store_true",
        help="with --fanout-mode=record: stale trials keep their recorded answers up to the first changed request",
    )
    add("--fanout-agent", action="append", default=[], metavar="NAME", help="only this agent class (repeatable)")
    add("--fanout-shard", metavar="I/N", help="only this part of the tasks; combine the reports afterwards")
    add(
        "--fanout-spend-limit",
        metavar="Ncalls|Ntokens",
        help="stop a live run before it has made more calls, or used more tokens, than that",
    )
    add(
        "--fanout-replay-speed",
        choices=("fast", "recorded"),
        default="fast",
        help="replay as fast as it goes (default), or with the recorded pauses",
    )
    add(
        "--fanout-report",
        metavar="PATH",
        default="fanout-report.json",
        help="where the JSON report goes (default: %(default)s)",
    )
    add("--fanout-html", metavar="PATH", help="write the report as one HTML page as well (needs pytest-fanout[html])")
    add(
        "--fanout-base",
        metavar="REV",
        help="the commit to compare with (default: found from the CI event or the merge base)",
    )


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from pytest_fanout import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "fanout(agent, task=None): a task of this agent class, measured by `pytest --fanout-budget`"
    )
    if config.getoption("fanout_budget"):
        from pytest_fanout.session.begin import configure

        configure(config)
    else:
        names = ("fanout_agent", "fanout_shard", "fanout_trials", "fanout_base", "fanout_spend_limit", "fanout_html")
        given = [name for name in names if config.getoption(name)]
        if config.getoption("fanout_branch"):
            given.append("fanout_branch")
        if config.getoption("fanout_control") is not None:
            given.append("fanout_control")
        if config.getoption("fanout_mode") != "replay":
            given.append("fanout_mode")
        if config.getoption("fanout_replay_speed") != "fast":
            given.append("fanout_replay_speed")
        if given:
            option = "--" + given[0].replace("_", "-")
            raise pytest.UsageError(
                f"{option} does nothing without --fanout-budget\n  mend: pytest --fanout-budget {option} …"
            )


@pytest.fixture
def fanout_meter(request: pytest.FixtureRequest) -> Iterator[TaskMeter]:
    """The running task's meter: ``.fanout``, ``.attempts``, ``.tokens``, ``.tool_calls``, ``.calls``.

    Without ``--fanout-budget`` the test is measured live for its own assertions, and nothing is judged or stored.
    """
    session: Any = request.config.pluginmanager.get_plugin("fanout-session")
    if session is not None:
        yield session.meter_of(request.node)
    else:
        from pytest_fanout.session.api import measure

        mark = request.node.get_closest_marker("fanout")
        agent = (mark.kwargs.get("agent") if mark else None) or "default-class"
        with measure(agent=agent, task=request.node.nodeid) as task_meter:
            yield task_meter
