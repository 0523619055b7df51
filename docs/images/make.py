"""Makes the pictures of this folder: the demo's planner edit of the quickstart, gone red, as its page shows it.

    pip install -e '.[demo,html,browser]'
    python docs/images/make.py [--work FOLDER]

Both versions of the research agent are recorded on a clone of this repository, against a scripted stand-in that answers
the planner as it asks; the size of the growth says nothing about real models. The support agent is replayed from the
recordings of the repository. Takes a few minutes; needs a Chromium (CHROMIUM, chromium on PATH, or Playwright's own).
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from model_server import Logged, ModelServer, Rule  # noqa: E402

PLANNER = re.compile(r"^PLANNER = .*$", re.MULTILINE)
SHOWN = r"1. sea\n2. salt\n3. rivers\n4. rocks\n5. rain\n6. minerals"
WIDE = f'PLANNER = ("List six words to look up, one a line.", "{SHOWN}")'
MOST_BYTES = 150 * 1024


class StandIn:
    """Answers each step of the research agent; the check of a note says no to one in four."""

    def __init__(self) -> None:
        self._chance = random.Random(20)
        almanac = (ROOT / "fixtures" / "demo" / "data" / "almanac.txt").read_text(encoding="utf-8")
        self._titles = [line.partition(":")[0] for line in almanac.splitlines() if ":" in line]

    def __call__(self, entry: Logged) -> Rule:
        messages: Any = entry.json["messages"] if isinstance(entry.json, Mapping) else []
        told = messages[0]["content"]
        if "look up" in told:
            wanted = messages[2]["content"].count("\n") + 1
            found = self._chance.sample(self._titles, wanted)
            return {"text": "\n".join(f"{number}. {title}" for number, title in enumerate(found, 1))}
        if "yes or no" in told:
            return {"text": self._chance.choice(["yes", "yes", "yes", "no"])}
        if "search words" in told:
            return {"text": self._chance.choice(self._titles)}
        return {"text": " ".join(["The", "fact", "answers", "a", "part", "of", "it."] * self._chance.randint(1, 3))}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path)
    work = parser.parse_args().work or Path(tempfile.mkdtemp())
    page = work / "page.html"
    if not page.exists():
        with ModelServer(StandIn()) as server:
            record(work / "demo", server.base_url, page)
    take(page)


def record(demo: Path, url: str, page: Path) -> None:
    """The page of the edit, from a clone of this repository."""
    given = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith(("GIT_", "GITHUB_"))}
    environ = given | {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "local", "ANTHROPIC_API_KEY": "local"}

    def run(*words: str, check: bool = True) -> None:
        print("$", " ".join(words), flush=True)
        subprocess.run(words, cwd=demo, env=environ, check=check)

    def gate(*words: str) -> None:
        run(sys.executable, "-m", "pytest", "-q", "--fanout-budget", *words, check=False)

    subprocess.run(["git", "clone", "-q", str(ROOT), str(demo)], check=True)
    run("git", "remote", "remove", "origin")
    run("git", "switch", "-q", "-C", "main")
    run("git", "config", "user.email", "maintainers@example.com")
    run("git", "config", "user.name", "maintainers")
    for path in [*(demo / "baselines").glob("research*"), *(demo / "baselines" / "approvals").glob("*research*")]:
        path.unlink()
    shutil.rmtree(demo / "fixtures" / "recordings" / "research")
    run("git", "commit", "-q", "-a", "-m", "The research agent begins anew, with the stand-in")
    gate("--fanout-mode=record", "--fanout-agent=research", "--fanout-base=main")
    gate("--fanout-base=main")
    accept = "from pytest_fanout.cli.baseline import main; main()"
    run(sys.executable, "-c", accept, "accept", "--reason", "The first anchor with the stand-in", "--yes")
    run("git", "add", "-A")
    run("git", "commit", "-q", "-m", "Accepted")
    run("git", "switch", "-q", "-c", "wider-planner")
    agent = demo / "fixtures" / "demo" / "agents" / "research.py"
    text = PLANNER.sub(lambda _: WIDE, agent.read_text(encoding="utf-8"))
    agent.write_text(text, encoding="utf-8")
    gate("--fanout-mode=record", "--fanout-agent=research", "--fanout-base=main")
    run("git", "add", "-A")
    run("git", "commit", "-q", "-m", "Planner considers alternatives")
    gate("--fanout-base=main", f"--fanout-html={page}")


def take(page: Path) -> None:
    """Three pictures: the first screen on a desk and on a phone, and why it grew."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        own = started.chromium.executable_path
        path = os.environ.get("CHROMIUM") or (own if Path(own).exists() else shutil.which("chromium"))
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        for name, width, height, theme, part in (
            ("page-desk", 1200, 700, "light", None),
            ("page-phone", 390, 844, "dark", None),
            ("page-why", 1200, 700, "light", "details.class .grid"),
        ):
            view = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=theme, java_script_enabled=False
            ).new_page()
            view.goto(page.as_uri())
            target = HERE / f"{name}.png"
            if part is None:
                view.screenshot(path=target)
            else:
                boxes = [view.locator(part).nth(at).bounding_box() for at in (0, 1)]
                assert boxes[0] is not None
                assert boxes[1] is not None
                top, end = boxes[0]["y"] - 48, boxes[1]["y"] + boxes[1]["height"] + 12
                clip = {"x": boxes[0]["x"] - 28, "y": top, "width": boxes[0]["width"] + 56, "height": end - top}
                view.screenshot(path=target, clip=clip, full_page=True)
            shrink(target)
        browser.close()


def shrink(path: Path) -> None:
    """A palette is enough for a page of few colours."""
    from PIL import Image

    Image.open(path).convert("RGB").quantize(96).save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.name}: {size / 1024:.0f} KB")
    assert size <= MOST_BYTES, path


if __name__ == "__main__":
    main()
