"""Shared fixtures: a model server, and a small project in a git repository of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from model_server import ModelServer
from project import Project


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """These tests are not measured tasks: the gate on this repository leaves them out."""
    return True if config.getoption("fanout_budget", False) else None


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
