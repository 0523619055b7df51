"""What fixtures call is set-up and no task's, whatever their scope and whoever runs them; tests keep their calls."""

from __future__ import annotations

import pytest
from model_server import ModelServer
from project import Project

COMMON = """\
import asyncio, os
import httpx, pytest
{imports}

SCOPES = ("function", "class", "module", "package", "session")

def body(text):
    return {{"model": "m-x", "messages": [{{"role": "user", "content": text}}]}}

def ask(text):
    httpx.post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json=body(text), verify=False)

async def ask_async(text):
    async with httpx.AsyncClient(verify=False) as client:
        await client.post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json=body(text))

def fixture_of(scope):
    @pytest.fixture(scope=scope, name="of_" + scope)
    def made():
        ask("set up " + scope)
        yield
        ask("tear down " + scope)
    return made

for scope in SCOPES:
    globals()["of_" + scope] = fixture_of(scope)

{fixtures}

async def agent():
    await ask_async("plan")
    async with asyncio.TaskGroup() as group:
        group.create_task(ask_async("in a group"))
        group.create_task(asyncio.to_thread(ask, "in a thread"))

{mark}
@pytest.mark.fanout(agent="support")
@pytest.mark.usefixtures(*("of_" + scope for scope in SCOPES), *(name + scope for name in ASYNC for scope in SCOPES))
class TestShop:
    {test} test_one(self):
        {call}

    {test} test_two(self):
        {call}
"""
SYNC = {
    "imports": "ASYNC = ()",
    "fixtures": "",
    "mark": "",
    "test": "def",
    "call": "asyncio.run(agent())",
}
BY_ASYNCIO = {
    "imports": "import pytest_asyncio\nASYNC = ('async_of_',)",
    "fixtures": """\
def async_fixture_of(scope):
    @pytest_asyncio.fixture(scope=scope, loop_scope="session", name="async_of_" + scope)
    async def made():
        await ask_async("async set up " + scope)
        yield
        await ask_async("async tear down " + scope)
    return made

for scope in SCOPES:
    globals()["async_of_" + scope] = async_fixture_of(scope)
""",
    "mark": "@pytest.mark.asyncio(loop_scope='session')",
    "test": "async def",
    "call": "await agent()",
}
BY_ANYIO = {
    "imports": "ASYNC = ('async_of_',)",
    "fixtures": """\
@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"

def async_fixture_of(scope):
    @pytest.fixture(scope=scope, name="async_of_" + scope)
    async def made(anyio_backend):
        await ask_async("async set up " + scope)
        yield
        await ask_async("async tear down " + scope)
    return made

for scope in SCOPES:
    globals()["async_of_" + scope] = async_fixture_of(scope)
""",
    "mark": "@pytest.mark.anyio",
    "test": "async def",
    "call": "await agent()",
}
OTHERS_OFF = "-p no:hypothesispytest -p no:respx -p no:timeout"


@pytest.mark.parametrize(
    ("parts", "plugins", "asynchronous"),
    [
        (SYNC, "-p no:anyio -p no:asyncio", False),
        (BY_ASYNCIO, "-p no:anyio", True),
        (BY_ANYIO, "-p no:asyncio", True),
    ],
    ids=["sync", "pytest-asyncio", "anyio"],
)
def test_fixtures_of_every_scope(
    parts: dict[str, str], plugins: str, asynchronous: bool, project: Project, model: ModelServer
) -> None:
    """A13: two tests with fixtures of every scope, sync and async, that call before and after: three calls a test."""
    project.write("pyproject.toml", "[tool.fanout]\n")
    project.write("tests/test_shop.py", COMMON.format(**parts))
    result = project.pytest(
        "--fanout-mode=live", "--fanout-trials=1", "tests", PYTEST_ADDOPTS=f"{OTHERS_OFF} {plugins}"
    )

    tasks = {t["task"].rpartition("::")[2]: (t["status"], t["samples"]["fanout"]) for t in result.agent["tasks"]}
    assert tasks == {"test_one": ("ok", 3), "test_two": ("ok", 3)}, result.text
    # of each kind of fixture: function twice, class, module, package and session once; before and after
    set_up = 12 * (1 + asynchronous)
    totals = result.report["totals"]
    assert (totals["aside"], totals["late"], totals["unattributed"]) == (set_up, 0, 0)
    assert len(model.generated) == 6 + set_up
