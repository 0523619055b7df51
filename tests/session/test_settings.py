"""[tool.fanout], options and entry points: what each refusal says, in full."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_fanout.config import Settings, find_settings
from pytest_fanout.errors import ConfigError, UsageError
from pytest_fanout.session.items import load_callable, marked_task
from pytest_fanout.session.run import FanoutSession, parse_shard

SEE = "\n  see: docs/messages.md#"
AGENT = '[tool.fanout.agents.support]\nentrypoint = "shop:answer"\nevalset = "fixtures/support.jsonl"\n'


def settings_of(folder: Path, text: str) -> Settings:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return find_settings(folder)


def refusal(folder: Path, text: str) -> str:
    """What find_settings says to this pyproject.toml, which stands as FILE in it."""
    with pytest.raises(ConfigError) as caught:
        settings_of(folder, text)
    return str(caught.value).replace(str(folder / "pyproject.toml"), "FILE")


def test_settings_nested_too_deeply(tmp_path: Path) -> None:
    """TOML that no reader can follow is a refusal like any other, not a traceback."""
    assert refusal(tmp_path, "x = " + "[" * 3000) == (
        "FILE: is nested too deeply\n  mend: mend the file" + SEE + "bad-toml"
    )
    assert refusal(tmp_path, "x = " + "9" * 5000) == (
        "FILE: holds a number of too many digits\n  mend: mend the file" + SEE + "bad-toml"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tool = 1", "FILE: [tool]: must be a table\n  mend: begin it with [tool.fanout]"),
        (
            "[fanout.agents.support]\nx = 1",
            "FILE: [fanout] is read by nobody\n  mend: call it [tool.fanout], as in [tool.fanout.agents.support]",
        ),
        (
            "[tool.pytest-fanout]\nx = 1",
            "FILE: [tool.pytest-fanout] is read by nobody\n"
            "  mend: call it [tool.fanout], as in [tool.fanout.agents.support]",
        ),
        ("[tool]\nfanout = []", "FILE: [tool.fanout]: must be a table\n  mend: begin it with [tool.fanout]"),
        (
            "[tool.fanout]\nagents = 3",
            "FILE: [tool.fanout.agents]: must be a table\n  mend: begin it with [tool.fanout.agents.support]",
        ),
        (
            "[tool.fanout.agents]\nsupport = 3",
            "FILE: [tool.fanout.agents.support]: must be a table\n  mend: begin it with [tool.fanout.agents.support]",
        ),
        (
            "[tool.fanout]\nbaselines = 3",
            'FILE: [tool.fanout]: baselines must be a path\n  mend: baselines = "baselines"',
        ),
        (
            '[tool.fanout]\nrecordings = "a\\u0000b"',
            'FILE: [tool.fanout]: recordings must be a path\n  mend: recordings = "fixtures/recordings"',
        ),
        (
            AGENT.replace('"fixtures/support.jsonl"', '"a\\nb"'),
            "FILE: [tool.fanout.agents.support]: evalset must be a path\n"
            '  mend: evalset = "fixtures/support.jsonl"',
        ),
        (
            AGENT.replace('"shop:answer"', "7"),
            "FILE: [tool.fanout.agents.support]: entrypoint must be a command, as a text or a list of texts\n"
            '  mend: entrypoint = ["node", "agent.mjs"]',
        ),
        (
            AGENT + "check = 7",
            "FILE: [tool.fanout.agents.support]: check must be a text\n"
            '  mend: check = "package.module:callable"',
        ),
    ],
)  # fmt: skip
def test_bad_setting(tmp_path: Path, text: str, expected: str) -> None:
    """A value of the wrong type is refused by table and key, wherever in the tree it stands."""
    assert refusal(tmp_path, text) == f"{expected}{SEE}bad-setting"


@pytest.mark.parametrize(
    ("key", "mend"),
    [
        ("entrypoint", 'entrypoint = "package.module:callable", or a command: ["node", "agent.mjs"]'),
        ("check", 'check = "package.module:callable"'),
    ],
)
def test_bad_entry_point(tmp_path: Path, key: str, mend: str) -> None:
    """An entry point or a check that is not module:callable is refused by key and value."""
    text = AGENT.replace("shop:answer", "shop.answer") if key == "entrypoint" else AGENT + 'check = "shop.answer"'

    assert refusal(tmp_path, text) == (
        f"FILE: [tool.fanout.agents.support]: {key} = 'shop.answer' is not of the form module:callable\n"
        f"  mend: {mend}{SEE}bad-entry-point"
    )


TABLE = '[tool.fanout.agents.support]\nevalset = "fixtures/support.jsonl"\n'
SERVER = TABLE + 'serve = ["node", "server.mjs"]\npost = "/chat"\n'
COMMAND_MEND = 'entrypoint = ["node", "agent.mjs"]'


@pytest.mark.parametrize(
    ("text", "what", "mend"),
    [
        (SERVER + 'entrypoint = "shop:answer"', "entrypoint and serve are both given", "keep one of them"),
        (TABLE, "entrypoint is missing or not a text", 'add entrypoint = "…"'),
        (
            TABLE + 'entrypoint = "node \'agent.mjs"',
            "entrypoint is no command line: No closing quotation",
            COMMAND_MEND,
        ),
        (TABLE + 'entrypoint = ["", "x"]', "entrypoint must be a command, as a text or a list of texts", COMMAND_MEND),
        (
            TABLE + 'entrypoint = ["node", 3]',
            "entrypoint must be a command, as a text or a list of texts",
            COMMAND_MEND,
        ),
        (TABLE + "entrypoint = 3", "entrypoint must be a command, as a text or a list of texts", COMMAND_MEND),
        (TABLE + 'entrypoint = " "', "entrypoint must be a command, as a text or a list of texts", COMMAND_MEND),
        (
            TABLE + 'serve = []\npost = "/chat"',
            "serve must be a command, as a text or a list of texts",
            'serve = ["node", "agent.mjs"]',
        ),
        (
            TABLE + 'serve = ["node", "server.mjs"]',
            "post is missing: the path that each task is sent to",
            'add post = "/chat"',
        ),
        (
            SERVER.replace("/chat", "chat"),
            "post must be a path on the server that begins with /",
            'post = "/chat"',
        ),
        (
            SERVER.replace("/chat", "/chat room"),
            "post must be a path on the server that begins with /",
            'post = "/chat"',
        ),
        (
            SERVER + "ready_seconds = 0",
            "ready_seconds must be a whole number from 1 to 3600",
            "ready_seconds = 30",
        ),
        (
            SERVER + "ready_seconds = true",
            "ready_seconds must be a whole number from 1 to 3600",
            "ready_seconds = 30",
        ),
        (SERVER + 'proxy = "yes"', "proxy must be true or false", "proxy = true"),
        (AGENT + 'children = "all"', 'children can only be "gateway"', 'children = "gateway"'),
        (AGENT + 'post = "/chat"', "post is only for a server: serve = […]", "remove post"),
        (AGENT + "ready_seconds = 3", "ready_seconds is only for a server: serve = […]", "remove ready_seconds"),
        *(
            (AGENT + f"{key} = {value}", f"{key} must be a whole number from 1 up", f"{key} = 60")
            for key in ("requests_per_minute", "tokens_per_minute", "parallel_calls")
            for value in ("0", "true", "1.5")
        ),
        (AGENT + "proxy = true", "proxy is only for a command or a server", "remove proxy"),
        (SERVER + 'children = "gateway"', "children is only for an entry point module:callable", "remove children"),
    ],
)
def test_bad_command_or_server(tmp_path: Path, text: str, what: str, mend: str) -> None:
    """What does not fit together, or cannot be run or asked, is refused with what to write instead."""
    assert refusal(tmp_path, text) == f"FILE: [tool.fanout.agents.support]: {what}\n  mend: {mend}{SEE}bad-setting"


@pytest.mark.parametrize(
    ("text", "command", "serve"),
    [
        (TABLE + 'entrypoint = ["node", "an agent.mjs"]', ("node", "an agent.mjs"), ()),
        (TABLE + "entrypoint = \"node 'an agent.mjs' --fast\"", ("node", "an agent.mjs", "--fast"), ()),
        (SERVER, (), ("node", "server.mjs")),
        (TABLE + 'serve = "./server"\npost = "/"', (), ("./server",)),
    ],
)
def test_commands_and_servers(tmp_path: Path, text: str, command: tuple[str, ...], serve: tuple[str, ...]) -> None:
    """A command is a list of texts or a text with blanks, read as a shell reads words; so is what starts a server."""
    (tmp_path / "pyproject.toml").write_text(text)
    agent = find_settings(tmp_path).agents["support"]

    assert (agent.entrypoint, agent.command, agent.serve, agent.needs_gateway) == (None, command, serve, True)


def test_unreadable_pyproject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pyproject.toml that the system refuses to read is named, with the system's reason."""

    def refuse(*args: Any, **kwargs: Any) -> str:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(ConfigError) as caught:
        find_settings(tmp_path)

    assert str(caught.value) == (
        f"{tmp_path / 'pyproject.toml'}: cannot be read: Permission denied\n"
        f"  mend: mend its permissions{SEE}not-readable"
    )


def test_paths_are_plain(tmp_path: Path) -> None:
    """`..` in a path is resolved, since pytest names the files that it collects without it."""
    (tmp_path / "service").mkdir()
    text = '[tool.fanout]\nbaselines = "../gate"\n' + AGENT.replace("fixtures/", "x/../fixtures/")
    found = settings_of(tmp_path / "service", text)

    assert found.baselines == tmp_path / "gate"
    assert found.agents["support"].evalset == tmp_path / "service" / "fixtures" / "support.jsonl"


@pytest.mark.parametrize("text", ["", "0/2", "3/2", "1/0", "x", "1/2/3", "1", "²/4", "-1/2", "1 /2", "1/" + "9" * 5000])
def test_bad_shard(text: str) -> None:
    """A shard that is no I/N of plain digits is refused, also where Python calls a character a digit."""
    with pytest.raises(UsageError) as caught:
        parse_shard(text)

    assert str(caught.value) == (
        f"--fanout-shard={text} is not I/N with 1 <= I <= N\n  mend: --fanout-shard=1/4{SEE}bad-shard"
    )


def test_good_shards() -> None:
    """The first, the last and the only shard are shards; no option is none."""
    assert [parse_shard(text) for text in ("1/4", "4/4", "1/1", None)] == [(1, 4), (4, 4), (1, 1), None]


@pytest.mark.parametrize("trials", [0, -3])
def test_bad_trials(tmp_path: Path, trials: int) -> None:
    """A run of no trials is refused: it would measure nothing."""
    options = {"fanout_mode": "replay", "fanout_trials": trials}
    config: Any = SimpleNamespace(getoption=lambda name, default=None: options.get(name, default))
    with pytest.raises(UsageError) as caught:
        FanoutSession(config, "run", tmp_path / "report.json", is_worker=False)

    assert str(caught.value) == (
        f"--fanout-trials={trials} must be at least 1\n  mend: --fanout-trials=5{SEE}bad-trials"
    )


# --- entry points ------------------------------------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Settings]:
    """Settings whose folder holds modules with something wrong; what they import is forgotten afterwards."""
    modules = {
        "msg_good": "PRICE = 3\n\nclass Shop:\n    def answer(task):\n        return task\n",
        "msg_broken": "1 / 0\n",
        "msg_exits": "import sys\nsys.exit(0)\n",
        "msg_skips": "import pytest\npytest.skip('not here', allow_module_level=True)\n",
        "msg_lazy": "def __getattr__(name):\n    raise RuntimeError(f'{name} needs a GPU')\n",
    }
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    before = list(sys.path)
    yield settings_of(tmp_path, AGENT)
    sys.path[:] = before
    for name in modules:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("msg_absent:answer", "ModuleNotFoundError: No module named 'msg_absent'"),
        ("msg_broken:answer", "ZeroDivisionError: division by zero"),
        ("msg_exits:answer", "SystemExit: 0"),
        ("msg_skips:answer", "Skipped: not here"),
        ("msg_lazy:answer", "RuntimeError: answer needs a GPU"),
    ],
)
def test_entry_point_import(shop: Settings, entry: str, reason: str) -> None:
    """A module that cannot be imported is named with Python's reason; it can neither end nor skip the run."""
    with pytest.raises(ConfigError) as caught:
        load_callable(entry, "entrypoint", shop, "support")

    module = entry.partition(":")[0]
    assert str(caught.value) == (
        f"{shop.source}: [tool.fanout.agents.support] entrypoint: {entry!r} cannot be imported: {reason}\n"
        f'  mend: mend the import (try: python -c "import {module}" in {shop.root.name}/){SEE}entry-point-import'
    )


@pytest.mark.parametrize("name", ["nothing", "Shop.nothing", "nothing.answer"])
def test_entry_point_missing(shop: Settings, name: str) -> None:
    """A name that the module does not have is told together with the module."""
    with pytest.raises(ConfigError) as caught:
        load_callable(f"msg_good:{name}", "check", shop, "support")

    assert str(caught.value) == (
        f"{shop.source}: [tool.fanout.agents.support] check: module 'msg_good' has no '{name}'\n"
        f"  mend: name an existing callable in check{SEE}entry-point-missing"
    )


def test_entry_point_not_callable(shop: Settings) -> None:
    """Something that cannot be called is told with its type; a function below a class can be called."""
    with pytest.raises(ConfigError) as caught:
        load_callable("msg_good:PRICE", "entrypoint", shop, "support")

    assert str(caught.value) == (
        f"{shop.source}: [tool.fanout.agents.support] entrypoint: 'msg_good:PRICE' is int, which cannot be called\n"
        f"  mend: name a function that takes the task's input in entrypoint{SEE}entry-point-not-callable"
    )
    assert load_callable("msg_good:Shop.answer", "entrypoint", shop, "support")(3) == 3


# --- marks -------------------------------------------------------------------------------------------------------


def marked(*args: Any, **kwargs: Any) -> Any:
    """An item with this mark, as far as marked_task looks at it."""
    mark = pytest.mark.fanout(*args, **kwargs).mark
    return SimpleNamespace(nodeid="test_shop.py::test_refund", get_closest_marker=lambda name: mark)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((), {"agent": 3}), (("support",), {}), ((), {"agent": "support", "tsak": "x"})],
    ids=["empty", "no-text", "positional", "misspelt"],
)
def test_bad_mark(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A mark without agent=, or with anything that is not known, is refused at its test."""
    with pytest.raises(ConfigError) as caught:
        marked_task(marked(*args, **kwargs))

    assert str(caught.value) == (
        "test_shop.py::test_refund: a fanout mark needs agent=, may have task=, and nothing else\n"
        f'  mend: @pytest.mark.fanout(agent="support"){SEE}bad-mark'
    )


@pytest.mark.parametrize("task", [0, "", 7, "two\nlines", ["refund"]])
def test_bad_task_of_a_mark(task: Any) -> None:
    """A task= that cannot name a task is refused, and not replaced by the test's own name."""
    with pytest.raises(ConfigError) as caught:
        marked_task(marked(agent="support", task=task))

    assert str(caught.value) == (
        "test_shop.py::test_refund: task= must be a text of printable characters\n"
        f'  mend: @pytest.mark.fanout(agent="support", task="refund"){SEE}bad-mark'
    )


def test_good_marks() -> None:
    """A mark names the task, or its test does."""
    named, unnamed = marked_task(marked(agent="support", task="refund")), marked_task(marked(agent="support"))

    assert named is not None
    assert unnamed is not None
    assert [named.task, unnamed.task] == ["refund", "test_shop.py::test_refund"]
