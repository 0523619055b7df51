"""Shared fixtures: a model server, and a small project in a git repository of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from model_server import ModelServer
from project import FORKS, Project

from pytest_fanout.wire import estimate

with suppress(ImportError):  # the gate loads this file too, where the tests' own libraries are not installed
    import hypothesis

    # How long an example takes says how busy the machine is, and nothing about the code.
    hypothesis.settings.register_profile("suite", deadline=None)
    hypothesis.settings.load_profile("suite")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: many tests wait, for a server, for a cap, for the end of a process."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Long runs, which are those under xdist, start hundreds of subprocesses."""
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        from warm import compile_package

        with tempfile.TemporaryDirectory() as folder:
            compile_package(Path(folder))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    """Workers are given arguments of their own; what the run was asked for is known here."""
    node.workerinput["is_asked_for"] = _is_asked_for(node.config)  # type: ignore[attr-defined]


def pytest_unconfigure() -> None:
    FORKS.close()


def _is_asked_for(config: pytest.Config) -> bool:
    return bool(config.option.markexpr) or config.args_source is not pytest.Config.ArgsSource.TESTPATHS


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests run where they are asked for: by ``-m slow``, or by the name of a file or folder."""
    given = getattr(config, "workerinput", {})
    if given.get("is_asked_for", _is_asked_for(config)):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """These tests are not measured tasks: the gate on this repository leaves them out."""
    return True if config.getoption("fanout_budget", False) else None


@pytest.fixture(scope="session", autouse=True)
def _no_tokenizer() -> Iterator[None]:
    """Tests see usage as it came, whether the extra ``tokenizer`` is installed or not; ``tokenizer`` turns it on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimate, "tokenizer", lambda: None)
        yield


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """A scripted model on loopback; its log is the ground truth."""
    with ModelServer() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path, model: ModelServer) -> Project:
    """A committed project with one agent class and three tasks, speaking to ``model``."""
    made = Project(tmp_path / "shop", model.base_url)
    made.lay_out()
    made.commit("a shop with an agent")
    return made


@pytest.fixture(scope="session")
def _accepted_once(tmp_path_factory: pytest.TempPathFactory) -> Project:
    with ModelServer() as server:
        made = Project(tmp_path_factory.mktemp("accepted") / "shop", server.base_url)
        made.lay_out()
        made.commit("a shop with an agent")
        made.record_and_accept()
    return made


@pytest.fixture
def accepted(_accepted_once: Project, tmp_path: Path, model: ModelServer) -> Project:
    """That project with every trial recorded and its anchor accepted and committed on main."""
    return _accepted_once.copy_to(tmp_path / "shop", model.base_url)


@pytest.fixture(scope="session")
def _grown_once(_accepted_once: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    with ModelServer() as server:
        made = _accepted_once.copy_to(tmp_path_factory.mktemp("grown") / "shop", server.base_url)
        made.git("switch", "-q", "-c", "work")
        made.edit("shop.py", "STEPS_PER_ITEM = 1", "STEPS_PER_ITEM = 3")
        made.commit("three steps an item")
        recorded = made.pytest("--fanout-mode=record")
        assert recorded.verdict == "regressed", recorded.text
    return made


@pytest.fixture
def grown(_grown_once: Project, tmp_path: Path, model: ModelServer) -> Project:
    """The accepted project on a branch with three steps an item: recorded, with its report, not committed."""
    return _grown_once.copy_to(tmp_path / "shop", model.base_url, report=True)


@pytest.fixture(scope="session")
def _granted_once(_grown_once: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = _grown_once.copy_to(tmp_path_factory.mktemp("granted") / "shop", _grown_once.base_url, report=True)
    accepted = made.baseline("accept", "--reason", "three steps an item are worth it", "--yes")
    assert accepted.exit == 0, accepted.text
    return made


@pytest.fixture
def granted(_granted_once: Project, tmp_path: Path, model: ModelServer) -> Project:
    """``grown`` with anchor and approval of `fanout-baseline accept` in its folder, not committed."""
    return _granted_once.copy_to(tmp_path / "shop", model.base_url, report=True)


@pytest.fixture
def gated(accepted: Project) -> Project:
    """The accepted project on a branch with one commit that touches nothing."""
    accepted.git("switch", "-q", "-c", "work")
    accepted.write("notes.txt", "a change that touches nothing")
    accepted.commit("notes")
    return accepted
