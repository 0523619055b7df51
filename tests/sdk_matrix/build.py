"""Builds the environments of the matrix: ``python tests/sdk_matrix/build.py [NAME…] --into DIR``.

Each is a virtual environment with one SDK or framework and this package; one that is there already is left alone. uv
is used where it is installed (seconds), else venv and pip (minutes).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from sdk_matrix.environments import ROOT, folder_of, python_of, requirements  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description="build the environments of the SDK matrix")
    parser.add_argument("names", nargs="*", metavar="NAME", help="environments.toml names them; default: all")
    parser.add_argument("--into", type=Path, required=True, metavar="DIR")
    options = parser.parse_args()
    known = requirements()
    unknown = sorted(set(options.names) - set(known))
    if unknown:
        parser.error(f"no such environment: {', '.join(unknown)}; there are {', '.join(known)}")
    failed = [name for name in options.names or known if not build(name, known[name], options.into.resolve())]
    if failed:
        print(f"not built: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def build(name: str, required: list[str], into: Path) -> bool:
    """Build one; whether it is there now."""
    if python_of(name, into) is not None:
        print(f"{name}: there already", flush=True)
        return True
    folder = folder_of(name, into)
    shutil.rmtree(folder, ignore_errors=True)
    packages = [*required, "--editable", str(ROOT)]
    uv = _uv()
    python = str(folder / "bin" / "python")
    if uv:
        steps = [
            [*uv, "venv", "--quiet", "--python", sys.executable, str(folder)],
            [*uv, "pip", "install", "--quiet", "--python", python, *packages],
        ]
    else:
        steps = [[sys.executable, "-m", "venv", str(folder)], [python, "-m", "pip", "install", "--quiet", *packages]]
    print(f"{name}: {' '.join(required)}", flush=True)
    if any(subprocess.run(step, check=False).returncode for step in steps):
        return False
    (folder / "built.txt").write_text("\n".join(required) + "\n", encoding="utf-8")
    return True


def _uv() -> list[str] | None:
    found = shutil.which("uv")
    if found:
        return [found]
    return [sys.executable, "-m", "uv"] if find_spec("uv") else None


if __name__ == "__main__":
    sys.exit(main())
