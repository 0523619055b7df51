"""Makes the pictures of this folder from a page of `pytest --fanout-html`: that of docs/quickstart.md, gone red.

    pip install -e '.[demo,html,browser]'
    pytest --fanout-budget --fanout-html=page.html          # at the step of the quickstart where the gate is red
    python docs/images/make.py page.html

Needs a Chromium (CHROMIUM, chromium on PATH, or Playwright's own).
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
MOST_BYTES = 150 * 1024


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
    take(Path(sys.argv[1]).resolve())
