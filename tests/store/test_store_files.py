"""Files: the canonical form, strict JSON, and writes that leave the old file whole whatever happens."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recording_samples import chat, recording

from pytest_fanout.errors import IntegrityError, StorageError
from pytest_fanout.store import files, schemas
from pytest_fanout.store.recordings import RecordingStore

# Number::toString of ECMAScript, from RFC 8785 appendix B
NUMBERS = [
    (0.0, "0"),
    (-0.0, "0"),
    (5e-324, "5e-324"),
    (-5e-324, "-5e-324"),
    (1.7976931348623157e308, "1.7976931348623157e+308"),
    (9007199254740992.0, "9007199254740992"),
    (295147905179352830000.0, "295147905179352830000"),
    (9.999999999999997e22, "9.999999999999997e+22"),
    (1e23, "1e+23"),
    (999999999999999700000.0, "999999999999999700000"),
    (1e21, "1e+21"),
    (9.999999999999997e-7, "9.999999999999997e-7"),
    (0.000001, "0.000001"),
    (333333333.33333325, "333333333.33333325"),
    (4.5, "4.5"),
    (-1.5, "-1.5"),
    (1.0, "1"),
]


@pytest.mark.parametrize(("value", "text"), NUMBERS)
def test_numbers_are_written_as_rfc_8785_says(value: float, text: str) -> None:
    """The examples of its appendix B."""
    assert files.canonical(value) == text.encode()


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_canonical_number_is_the_same_number(value: float) -> None:
    """Nothing is lost on the way."""
    assert float(files.canonical(value)) == value


def test_keys_are_sorted_by_utf16() -> None:
    """U+1F600 sorts before U+FB33, because its first UTF-16 unit is smaller (RFC 8785, 3.2.3)."""
    assert files.canonical({"\ufb33": 1, "\U0001f600": 2, "a": 1.0}) == '{"a":1,"\U0001f600":2,"\ufb33":1}'.encode()


@pytest.mark.parametrize("text", [":1.5", "[2e-7", ",NaN", "-Infinity", "sha256:7e3a", "\U0001f600"])
def test_a_text_that_looks_like_a_fraction_is_written_as_it_is(text: str) -> None:
    """Only a number makes the writer slow; the bytes are the same either way."""
    assert files.canonical({"b": [text, 1], "a": text}) == f'{{"a":"{text}","b":["{text}",1]}}'.encode()


def test_a_fraction_deep_in_a_document_is_found() -> None:
    """1.0 is written 1, and 1e-7 without a leading zero in its exponent, wherever they stand."""
    assert files.canonical([[{"a": (1.0, 1e-07)}]]) == b'[[{"a":[1,1e-7]}]]'


def test_a_float_changes_only_its_own_bytes() -> None:
    """The slow path for floats writes texts, nesting and constants as the fast one does."""
    document: dict[str, Any] = {"b": ["\u00e9\n\u2028", None, True, {"x": 10**20}], "a": {}}

    assert files.canonical({**document, "c": 0.5}) == files.canonical(document)[:-1] + b',"c":0.5}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_what_is_no_json_has_no_canonical_form(value: Any) -> None:
    """NaN and infinities raise ValueError."""
    with pytest.raises(ValueError):
        files.canonical(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"a":1,\n"b":}', "x.json:2: is not valid JSON: Expecting value\n  see: docs/messages.md#bad-json"),
        (b'{"a":NaN}', "x.json: holds NaN, which is not JSON\n  see: docs/messages.md#bad-json"),
        (b'{"a":1,"a":2}', "x.json: holds the key 'a' twice\n  see: docs/messages.md#duplicate-key"),
        (b'{"a":\n"\xff"}', "x.json:2: is not UTF-8 text\n  see: docs/messages.md#not-utf8"),
        (
            b'{\n=======\n"a":1}',
            "x.json:2: holds the marks of an unresolved merge conflict\n"
            "  mend: resolve the conflict, then run `pytest --fanout-budget` and `fanout-baseline accept` again\n"
            "  see: docs/messages.md#conflict-marks",
        ),
    ],
)
def test_strict_json_says_what_is_wrong_and_where(text: bytes, message: str) -> None:
    """Committed files are read strictly."""
    with pytest.raises(IntegrityError) as caught:
        files.load_json(text, "x.json")

    assert str(caught.value) == message


def test_marks_inside_a_text_are_no_conflict() -> None:
    """A line separator in a text does not begin a line of the file."""
    assert files.load_json('{"a":"x\u2028======= y"}', "x.json") == {"a": "x\u2028======= y"}


@settings(deadline=None)
@given(st.one_of(st.text(), st.binary()))
def test_no_input_escapes_the_strict_reader(text: str | bytes) -> None:
    """Any text, any bytes: a value or BadJson."""
    try:
        told = files.canonical(files.parse_json(text))
    except files.BadJson as bad:
        told = bad.what.encode()

    assert told


def test_a_schema_names_the_key_and_not_the_value() -> None:
    """The first fault, in one line; the value might be a secret."""
    with pytest.raises(IntegrityError) as caught:
        schemas.validate({"id": "a", "input": 1, "no_calls": "sk-secret"}, "evalset-line", "f.jsonl:3")

    assert str(caught.value) == "f.jsonl:3: no_calls must be boolean\n  see: docs/messages.md#schema"


@pytest.mark.parametrize("name", ["evalset-line", "recording"])
def test_the_shipped_schemas_are_schemas(name: str) -> None:
    """They hold for JSON Schema 2020-12 themselves."""
    from jsonschema import Draft202012Validator

    schema = schemas.load(name)
    Draft202012Validator.check_schema(schema)

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


# --- writes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["fsync", "replace", "chmod"])
def test_a_full_disk_leaves_the_old_file_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whichever step fails: the old bytes, nothing else in the folder, and the system's reason in the message."""
    path = tmp_path / "file.json"
    files.write_atomically(path, b"old")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(StorageError) as caught:
            files.write_atomically(path, b"new")

    assert str(caught.value) == (
        f"{path}: could not be written: No space left on device\n"
        "  mend: free space or mend the permissions, then run the same command again; what stood there is unchanged\n"
        "  see: docs/messages.md#cannot-write"
    )
    assert [(item.name, item.read_bytes()) for item in tmp_path.iterdir()] == [("file.json", b"old")]


LIMITED = """
import resource, sys
from pathlib import Path
from recording_samples import chat, recording
from pytest_fanout.errors import StorageError
from pytest_fanout.store.recordings import RecordingStore
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    RecordingStore(Path(sys.argv[1]), {}).save(recording(chat(*(f"{n} " * 500 for n in range(50)))))
except StorageError as error:
    print(error.slug)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of files are a matter of POSIX")
def test_a_save_that_the_system_cuts_off_leaves_the_old_recording(tmp_path: Path) -> None:
    """A real write that fails half way (a limit on file size stands for the full disk)."""
    store = RecordingStore(tmp_path, {})
    saved = store.save(recording(chat("old")))

    done = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], env=_env(), capture_output=True, text=True)

    assert (done.stdout, done.returncode) == ("cannot-write\n", 0), done.stderr
    assert store.load("support", "refund", 1) == saved
    assert [item.name for item in store.path("support", "refund", 1).parent.iterdir()] == ["t1.jsonl"]


SAVING = """
import sys
from pathlib import Path
from recording_samples import chat, recording
from pytest_fanout.store.recordings import RecordingStore
store = RecordingStore(Path(sys.argv[1]), {})
versions = [recording(chat(*(f"{version} {n} " * 300 for n in range(20)))) for version in ("x", "y")]
print("ready", flush=True)
while True:
    for version in versions:
        store.save(version)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a matter of POSIX")
@pytest.mark.parametrize("wait", [0.0, 0.03, 0.11, 0.17])
def test_kill_9_in_the_middle_of_a_save_leaves_a_whole_recording(tmp_path: Path, wait: float) -> None:
    """Whenever it strikes, what stands there is one version, whole; litter is neither a trial nor in the way."""
    store = RecordingStore(tmp_path, {})
    store.save(recording(chat("old")))
    with subprocess.Popen(
        [sys.executable, "-c", SAVING, tmp_path], env=_env(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)

    assert store.load("support", "refund", 1).exchanges
    assert store.trials("support", "refund") == (1,)
    store.save(recording(chat("new")))
    assert len(store.load("support", "refund", 1).exchanges) == 1


def test_litter_of_a_killed_process_goes_with_a_later_write(tmp_path: Path) -> None:
    """Old temporary files of the same target are removed; young ones may belong to a writer that still runs."""
    old, young, other = (tmp_path / name for name in (".t1.jsonl.a.tmp", ".t1.jsonl.b.tmp", ".t2.jsonl.a.tmp"))
    for path in (old, young, other):
        path.touch()
    os.utime(old, (1, 1))
    os.utime(other, (1, 1))

    files.write_atomically(tmp_path / "t1.jsonl", b"x")

    assert sorted(item.name for item in tmp_path.iterdir()) == [".t1.jsonl.b.tmp", ".t2.jsonl.a.tmp", "t1.jsonl"]


def test_litter_below_a_folder_is_removed(tmp_path: Path) -> None:
    """Before recordings are made, and when a run is accepted: what comes after that is ``git add``."""
    folder = tmp_path / "support" / "refund-0123456789"
    folder.mkdir(parents=True)
    old, young, other = (folder / name for name in (".t1.jsonl.a.tmp", ".t1.jsonl.b.tmp", ".notes.tmp"))
    for path in (old, young, other):
        path.touch()
    for path in (old, other):
        os.utime(path, (1, 1))

    files.remove_litter(tmp_path)

    assert sorted(item.name for item in folder.iterdir()) == [".notes.tmp", ".t1.jsonl.b.tmp"]


STEPS = ("mkdir", "mkstemp", "fdopen", "write", "fsync", "chmod", "replace", "sync_folder")
OWNERS: dict[str, Any] = {"mkdir": Path, "mkstemp": tempfile, "sync_folder": files}  # the others are of os


def _interrupted_at(step: str, strike: Callable[[], None]) -> dict[str, Any]:
    """Where a step of a write begins: what to put there, so that it strikes instead."""

    def struck(*_: Any, **__: Any) -> Any:
        strike()

    if step == "write":  # the file is open, and nothing of it is written
        opened = os.fdopen

        @contextlib.contextmanager
        def fdopen(handle: int, mode: str) -> Iterator[Any]:
            with opened(handle, mode):
                yield SimpleNamespace(write=struck)

        return {"fdopen": fdopen}
    return {step: struck}


@pytest.mark.parametrize("step", STEPS)
def test_ctrl_c_at_each_step_leaves_one_recording_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The old one until it is replaced, the new one from then on, and no litter."""
    store = RecordingStore(tmp_path, {})
    old = store.save(recording(chat("old")))

    def strike() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        for name, struck in _interrupted_at(step, strike).items():
            patch.setattr(OWNERS.get(name, os), name, struck)
        with pytest.raises(KeyboardInterrupt):
            store.save(recording(chat("new")))

    assert (store.load("support", "refund", 1) == old) is (step != "sync_folder")
    assert store.load("support", "refund", 1).exchanges
    assert [item.name for item in store.path("support", "refund", 1).parent.iterdir()] == ["t1.jsonl"]


KILLED = """
import os, signal, sys
from pathlib import Path
from recording_samples import chat, recording
from pytest_fanout.store.recordings import RecordingStore
sys.path.insert(0, sys.argv[2])
from test_store_files import OWNERS, STEPS, _interrupted_at
for step in STEPS:
    if os.fork() == 0:
        for name, struck in _interrupted_at(step, lambda: os.kill(os.getpid(), signal.SIGKILL)).items():
            setattr(OWNERS.get(name, os), name, struck)
        RecordingStore(Path(sys.argv[1]) / step, {}).save(recording(chat("new")))
        os._exit(0)
    print(step, os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a matter of POSIX")
@pytest.mark.slow
def test_kill_9_at_each_step_leaves_one_recording_whole(tmp_path: Path) -> None:
    """Before each call to the system: the old one until it is replaced, then the new one; litter is no trial."""
    stores = {step: RecordingStore(tmp_path / step, {}) for step in STEPS}
    old = {step: store.save(recording(chat("old"))) for step, store in stores.items()}

    done = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path, Path(__file__).parent], env=_env(), capture_output=True, text=True
    )

    assert done.stdout == "".join(f"{step} {-signal.SIGKILL}\n" for step in STEPS), done.stderr
    for step, store in stores.items():
        found = store.load("support", "refund", 1)
        assert (found == old[step]) is (step != "sync_folder")
        assert (len(found.exchanges), store.trials("support", "refund")) == (1, (1,))


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
