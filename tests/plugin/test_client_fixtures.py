"""Where a client was built does not matter: sync and async fixtures, wide scopes, every async runner."""

from __future__ import annotations

from model_server import ModelServer
from project import Project, Result

TESTS = """
import asyncio
import os

import httpx
import pytest
import pytest_asyncio

URL = os.environ["OPENAI_BASE_URL"] + "/chat/completions"


def body(text):
    return {"model": "m-x", "messages": [{"role": "user", "content": text}]}


async def two_calls(client):
    for text in ("first", "second"):
        (await client.post(URL, json=body(text))).raise_for_status()


@pytest.fixture
def from_sync_fixture():
    return httpx.AsyncClient()


@pytest_asyncio.fixture
async def from_async_fixture():
    async with httpx.AsyncClient() as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def from_module_fixture():
    async with httpx.AsyncClient() as client:
        (await client.post(URL, json=body("warm up"))).raise_for_status()
        yield client


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def from_anyio_fixture(anyio_backend):
    async with httpx.AsyncClient() as client:
        yield client


task = pytest.mark.fanout


@task(agent="support", task="sync-fixture")
@pytest.mark.asyncio
async def test_sync_fixture(from_sync_fixture):
    await two_calls(from_sync_fixture)


@task(agent="support", task="async-fixture")
@pytest.mark.asyncio
async def test_async_fixture(from_async_fixture):
    await two_calls(from_async_fixture)


@task(agent="support", task="module-fixture")
@pytest.mark.asyncio(loop_scope="module")
async def test_module_fixture(from_module_fixture):
    await two_calls(from_module_fixture)


@task(agent="support", task="inside")
@pytest.mark.asyncio
async def test_inside():
    async with httpx.AsyncClient() as client:
        await two_calls(client)


@task(agent="support", task="anyio")
@pytest.mark.anyio
async def test_anyio(from_anyio_fixture):
    await two_calls(from_anyio_fixture)


@task(agent="support", task="asyncio-run")
def test_run():
    async def main():
        async with httpx.AsyncClient() as client:
            await two_calls(client)

    asyncio.run(main())
"""
NAMES = ["anyio", "async-fixture", "asyncio-run", "inside", "module-fixture", "sync-fixture"]


def marked_tests(project: Project) -> Project:
    """The project holds marked tests only, no eval set."""
    project.write("pyproject.toml", '[tool.pytest.ini_options]\nasyncio_default_fixture_loop_scope = "function"\n')
    project.write("test_support.py", TESTS)
    project.commit("marked tests")
    return project


def fanout(result: Result) -> dict[str, list[int]]:
    """Fanout of each trial, by task."""
    found: dict[str, list[int]] = {}
    for trial in result.agent["tasks"]:
        found.setdefault(trial["task"], []).append(trial["samples"]["fanout"])
    return dict(sorted(found.items()))


def test_calls_are_counted_wherever_the_client_was_built(project: Project, model: ModelServer) -> None:
    """A13: two calls are two, whichever fixture built the client: pytest-asyncio, anyio, asyncio.run."""
    result = marked_tests(project).pytest("--fanout-mode=live", "--fanout-trials=1", PYTEST_ADDOPTS="")

    assert fanout(result) == {name: [2] for name in NAMES}
    assert result.report is not None
    assert result.report["totals"]["unattributed"] == 0


def test_a_call_of_a_module_fixture_is_no_tasks(project: Project, model: ModelServer) -> None:
    """A13: what a module fixture calls is set-up, not the first task's: the server saw one call more."""
    result = marked_tests(project).pytest("--fanout-mode=live", "--fanout-trials=1", PYTEST_ADDOPTS="")

    assert result.report is not None
    assert len(model.generated) == 2 * len(NAMES) + 1
    assert result.report["totals"]["calls"] == 2 * len(NAMES)
    assert result.report["totals"]["aside"] == 1
