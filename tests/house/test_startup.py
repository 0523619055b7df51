"""What the plugin costs in a pytest run that does not use it: nothing that anybody could notice."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from projects import clean_environment, run_pytest, run_python, write

HEAVY = ("vcr", "httpx", "httpx2", "jsonschema", "numpy", "click", "tabulate", "asyncio", "ssl", "yaml", "statistics")
PROBE = """
import atexit, json, os, sys

events = []

def heard(name, args):
    if name.startswith(("socket.", "subprocess.", "os.exec", "os.posix_spawn")):
        events.append(name)

def write():
    with open(os.environ["PROBE_OUT"], "w") as out:
        json.dump({"modules": sorted(sys.modules), "events": events}, out)

sys.addaudithook(heard)
atexit.register(write)
"""


class Traces:
    """What a run of pytest left: modules loaded at exit, audit events, files written, its output."""

    def __init__(self, folder: Path, *options: str, tests: str | None = None, autoload: bool = False) -> None:
        project = folder / "project"
        project.mkdir(parents=True)
        if tests is not None:
            write(project, {"test_it.py": tests})
        write(folder / "probe", {"startup_probe.py": PROBE})
        out = folder / "probe.json"
        env = clean_environment(PYTHONPATH=str(folder / "probe"), PROBE_OUT=str(out))
        if not autoload:
            env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        before = sorted(project.rglob("*"))
        self.done = run_pytest(project, "-p", "startup_probe", "-p", "no:cacheprovider", *options, env=env)
        self.new_files = [path for path in sorted(project.rglob("*")) if path not in before]
        found = json.loads(out.read_text()) if out.exists() else {"modules": [], "events": []}
        self.modules: set[str] = set(found["modules"])
        self.events: list[str] = found["events"]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Traces:
    return Traces(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def with_plugin(tmp_path_factory: pytest.TempPathFactory) -> Traces:
    return Traces(tmp_path_factory.mktemp("with"), "-p", "fanout")


def test_the_plugin_is_installed_under_one_plain_name() -> None:
    """The environment of these tests knows the entry point `fanout`; without it the tests below would be empty."""
    ours = [point for point in entry_points(group="pytest11") if point.value.startswith("pytest_fanout")]

    assert {(point.name, point.value) for point in ours} == {("fanout", "pytest_fanout.plugin")}


def test_the_probe_sees_the_plugin(bare: Traces, with_plugin: Traces) -> None:
    """Both runs end as an empty pytest run does (5, nothing collected), and only one of them knows us."""
    assert (bare.done.returncode, with_plugin.done.returncode) == (5, 5), with_plugin.done.stderr
    assert "pytest_fanout.plugin" in with_plugin.modules
    assert "pytest_fanout.plugin" not in bare.modules


def test_at_most_ten_modules_more(bare: Traces, with_plugin: Traces) -> None:
    """A21: at the exit of an empty run at most 10 more modules are loaded."""
    more = sorted(with_plugin.modules - bare.modules - {"startup_probe"})

    assert len(more) <= 10, more


def test_no_heavy_module_is_loaded(bare: Traces, with_plugin: Traces) -> None:
    """A21: no HTTP library, no validator, no numbers, no command line library, by the end of the run."""
    more = with_plugin.modules - bare.modules
    heavy = sorted(name for name in more if name.split(".")[0] in HEAVY)

    assert heavy == []


def test_no_file_no_socket_no_child(with_plugin: Traces) -> None:
    """A21: an unused plugin writes nothing, opens no socket and starts no process."""
    assert with_plugin.new_files == []
    assert with_plugin.events == []


def test_it_says_nothing(bare: Traces, with_plugin: Traces) -> None:
    """The output of an empty run names us at most in pytest's own list of plugins."""
    said = [line for line in with_plugin.done.stdout.splitlines() if "fanout" in line]
    lines = [line for line in said if not line.startswith("plugins:")]

    assert lines == []
    assert with_plugin.done.stderr == bare.done.stderr


def test_with_all_other_plugins_it_adds_no_more(tmp_path: Path) -> None:
    """A21: found through its entry point, among every other installed plugin, it adds at most 10 modules as well."""
    without = Traces(tmp_path / "without", "-p", "no:fanout", autoload=True)
    found = Traces(tmp_path / "found", autoload=True)
    more = sorted(found.modules - without.modules)

    assert "pytest_fanout.plugin" in more
    assert len(more) <= 10, more
    assert [name for name in more if name.split(".")[0] in HEAVY] == []


def test_tests_that_are_not_ours_cost_nothing_either(tmp_path: Path, bare: Traces) -> None:
    """A21: running tests, a marked one among them, without the flag loads nothing more and leaves nothing."""
    tests = "import pytest\ndef test_a(): pass\n@pytest.mark.fanout(agent='support')\ndef test_b(): pass\n"
    plain = Traces(tmp_path / "plain", tests=tests.replace("@pytest.mark.fanout(agent='support')\n", ""))
    marked = Traces(tmp_path / "marked", "-p", "fanout", "--strict-markers", tests=tests)
    more = sorted(marked.modules - plain.modules)

    assert marked.done.returncode == 0, marked.done.stdout
    assert len(more) <= 10, more
    assert [name for name in more if name.split(".")[0] in HEAVY] == []
    assert marked.new_files == []
    assert marked.events == []


def test_loading_the_plugin_takes_little_time(tmp_path: Path) -> None:
    """A21: the entry point costs under 20 ms of CPU on top of pytest, in the best of five starts."""
    code = "import time, pytest; a = time.process_time(); import pytest_fanout.plugin; print(time.process_time() - a)"
    env = clean_environment()
    del env["PYTHONDONTWRITEBYTECODE"]  # as installed: with compiled files
    seconds = min(float(run_python("-c", code, cwd=tmp_path, env=env).stdout) for _ in range(5))

    assert seconds < 0.020
