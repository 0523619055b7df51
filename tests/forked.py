"""Starts ``python -m pytest …`` and our tools as forks of an interpreter that has read their code already.

Hundreds of tests start the plugin in a process of its own, and half of what such a process costs is reading the same
modules again. A fork is a real process, with its own environment, folder, files, exit code and end; what it does not
have is a fresh start of the interpreter, so what depends on that (settings of Python in the environment, its order of
hashes, its encoding) is started for real, and with ``FRESH_INTERPRETERS=1`` everything is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

#: Modules that may be asked for. What they import is in memory before the first fork, but no HTTP library, since the
#: meter sees when an agent imports one.
MODULES = ("pytest", "pytest_fanout.cli.baseline", "pytest_fanout.cli.capacity")


class Forks:
    """One warm interpreter, started at the first use in the environment of that use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._fixed: dict[str, str] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="forks-")
        self._count = 0

    def suits(self, argv: Sequence[str], environ: dict[str, str]) -> bool:
        """Whether a fork stands for ``argv`` in ``environ``: one of our modules, and no other setting of Python."""
        if os.environ.get("FRESH_INTERPRETERS") or list(argv[:2]) != [sys.executable, "-m"] or argv[2] not in MODULES:
            return False
        with self._lock:
            if self._server is None:
                self._start(environ)
            return _fixed(environ) == self._fixed

    def run(self, argv: Sequence[str], cwd: Path, environ: dict[str, str], timeout: float) -> tuple[int, str, str]:
        """Exit code and both texts, as ``subprocess.run`` gives them; its TimeoutExpired after ``timeout`` seconds."""
        assert self._server is not None
        assert self._server.stdin is not None
        with self._lock:
            self._count += 1
            base = Path(self._folder.name) / str(self._count)
            os.mkfifo(base.with_suffix(".end"))
            order = {"argv": list(argv[2:]), "cwd": str(cwd), "env": environ, "base": str(base)}
            self._server.stdin.write(json.dumps(order).encode() + b"\n")
            self._server.stdin.flush()
        with open(base.with_suffix(".end"), encoding="utf-8") as end:
            pid = int(end.readline())
            timer = threading.Timer(timeout, os.kill, (pid, 9))
            timer.start()
            code = end.readline()
            timed_out = timer.finished.is_set()
            timer.cancel()
        texts = [base.with_suffix(name).read_bytes().decode("utf-8") for name in (".out", ".err")]
        for name in (".end", ".out", ".err"):
            base.with_suffix(name).unlink()
        if timed_out:
            raise subprocess.TimeoutExpired(list(argv), timeout, texts[0].encode(), texts[1].encode())
        return int(code), *(text.replace("\r\n", "\n").replace("\r", "\n") for text in texts)

    def close(self) -> None:
        if self._server is not None and self._server.stdin is not None:
            self._server.stdin.close()
            self._server.wait()
        self._folder.cleanup()

    def _start(self, environ: dict[str, str]) -> None:
        self._fixed = _fixed(environ)
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environ
        )


def _fixed(environ: dict[str, str]) -> dict[str, str]:
    """What an interpreter reads once, when it starts."""
    return {key: value for key, value in environ.items() if key.startswith(("PYTHON", "LC_", "LANG", "LD_", "MALLOC"))}


def _serve() -> list[str]:
    """Fork for each order on standard input. Returns in the forks, with what they are to run."""
    while order := sys.stdin.buffer.readline():
        given = json.loads(order)
        if os.fork():
            os.wait()  # its child is nobody's and ends when it likes
            continue
        if os.fork():
            os._exit(0)
        with open(given["base"] + ".end", "w", encoding="utf-8") as end:
            if pid := os.fork():
                end.write(f"{pid}\n")
                end.flush()
                _, status = os.waitpid(pid, 0)
                end.write(f"{os.waitstatus_to_exitcode(status)}\n")
                end.flush()
                os._exit(0)
        _become(given)
        return list(given["argv"])
    os._exit(0)


def _become(given: dict[str, object]) -> None:
    """This process, as ``subprocess`` would have started it."""
    import time

    for stream, name in ((0, os.devnull), (1, f"{given['base']}.out"), (2, f"{given['base']}.err")):
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC if stream else os.O_RDONLY, 0o600)
        os.dup2(file, stream)
        os.close(file)
    os.environ.clear()
    os.environ.update(given["env"])  # type: ignore[call-overload]
    time.tzset()
    os.chdir(str(given["cwd"]))
    sys.path[0] = os.getcwd()


def _read_all() -> None:
    """Have pytest read every module of ours, as it reads a plugin's, and forget the folder it was done in."""
    import pytest
    import warm

    with tempfile.TemporaryDirectory() as folder:
        warm.write_imports(Path(folder))
        pytest.main(["-q", "-p", "no:cacheprovider", "--co", folder])
    sys.modules.pop("conftest", None)


if __name__ == "__main__":
    import gc
    import random
    import runpy

    _read_all()
    gc.freeze()
    sys.argv = _serve()
    random.seed()
    module = sys.argv[0]
    sys.modules.pop(module if module != "pytest" else "", None)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
