"""The page as Chromium shows it, on a phone and on a desk, light and dark, with JavaScript off.

Needs Playwright (``pip install -e '.[test,browser]'``) and a Chromium of its own or of the system.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_world import made_red
from report_cases import cases

from pytest_fanout.records import Past
from pytest_fanout.report.page.render import render

pytestmark = pytest.mark.slow
NEEDED = os.environ.get("FANOUT_NEEDS_BROWSER") == "1"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
WIDTHS = {"phone": (390, 844), "desk": (1280, 900)}
THEMES = ("light", "dark")
#: Texts that are shown, with their box, their colour, and the colours behind them from the inside out.
TEXTS = """() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.textContent.trim() || parent.closest('script, style, title, desc, .sr')) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    const style = getComputedStyle(parent), svg = parent.closest('svg'), behind = [];
    for (let each = parent; each; each = each.parentElement) behind.push(getComputedStyle(each).backgroundColor);
    const lines = [...range.getClientRects()].map(each => [each.left, each.top, each.right, each.bottom]);
    found.push({
      lines, text: node.textContent.trim().slice(0, 60), scrolls: !!parent.closest('.scroll'),
      box: [box.left, box.top, box.right, box.bottom], colour: svg ? style.fill : style.color,
      size: parseFloat(style.fontSize) * (svg ? svg.clientWidth / svg.viewBox.baseVal.width : 1), behind,
    });
  }
  return found;
}"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _without("Playwright is not installed")
    with sync_playwright() as started:
        own = started.chromium.executable_path
        path = own if Path(own).exists() else shutil.which("chromium") or shutil.which("google-chrome")
        if path is None:
            _without("there is no Chromium")
        profile = tmp_path_factory.mktemp("profile")
        context = started.chromium.launch_persistent_context(
            profile, executable_path=path, args=FLAGS, java_script_enabled=False
        )
        yield context
        context.close()


def _without(why: str) -> None:
    if NEEDED:
        pytest.fail(why)
    pytest.skip(f"{why}: pip install -e '.[test,browser]', and playwright install chromium")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The red page with everything on it, and one of each other colour."""
    folder = tmp_path_factory.mktemp("pages")
    red = made_red(folder / "world")
    texts = {"red": render(red.run, red.verdict, red.past)}
    texts |= {name: render(*cases()[name], Past({}, ())) for name in ("pass", "waived", "stale", "regressed")}
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


def shown(browser: Any, path: Path, width: str, theme: str) -> tuple[Any, list[str]]:
    """The opened page, its folds unfolded, and what it asked the network for."""
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size(dict(zip(("width", "height"), WIDTHS[width], strict=True)))
    page.emulate_media(color_scheme=theme)
    page.goto(path.as_uri())
    # Playwright's own evaluation works where the page's scripts are off
    page.evaluate("() => document.querySelectorAll('details').forEach(each => { each.open = true; })")
    return page, asked


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["red", "pass", "waived", "stale", "regressed"])
def test_the_page_reads_well(browser: Any, pages: dict[str, Path], name: str, width: str, theme: str) -> None:
    """Nothing sticks out at the right, no text lies on another one, all of them stand out, nothing is fetched."""
    page, asked = shown(browser, pages[name], width, theme)
    try:
        texts = page.evaluate(TEXTS)
        wide, inner = page.evaluate("() => ['scrollWidth', 'clientWidth'].map(each => document.documentElement[each])")
    finally:
        page.close()

    assert asked == [pages[name].as_uri()]
    assert wide <= inner
    assert len(texts) > 20
    assert [each["text"] for each in texts if not each["scrolls"] and each["box"][2] > inner + 1] == []
    assert overlapping(texts) == []
    assert [(each["text"], contrast(each)) for each in texts if contrast(each) < 4.5] == []
    assert min(each["size"] for each in texts) >= 10.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_first_screen_holds_verdict_class_size_reason_and_cost(
    browser: Any, pages: dict[str, Path], width: str, theme: str
) -> None:
    """Without a touch of the wheel, on a phone too."""
    page, _ = shown(browser, pages["red"], width, theme)
    try:
        texts = page.evaluate(TEXTS)
    finally:
        page.close()
    first = " ".join(each["text"] for each in texts if each["box"][3] <= WIDTHS[width][1])

    for said in ("Over budget", "inconclusive", "support", "fanout.p95", "+71.4 %", "100 % of the growth in calls",
                 "50 → 100 GPUs at peak", "pytest --fanout-budget --fanout-mode=record"):  # fmt: skip
        assert said in first


@pytest.mark.parametrize("theme", THEMES)
def test_folds_open_without_a_script(browser: Any, pages: dict[str, Path], theme: str) -> None:
    """The numbers of a picture come out at a click, and a class folds away at another."""
    page = browser.new_page()
    try:
        page.emulate_media(color_scheme=theme)
        page.goto(pages["red"].as_uri())
        numbers = page.locator("details.numbers").first
        assert not numbers.locator("table").is_visible()
        numbers.locator("summary").click()
        assert numbers.locator("table").is_visible()
        page.locator("details.class > summary").first.click()
        assert not numbers.locator("table").is_visible()
    finally:
        page.close()


def overlapping(texts: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Pairs of texts with lines that lie on each other, by more than the space between two lines."""
    found = []
    lines = sorted(
        (line[1], *line, at) for at, each in enumerate(texts) if not each["scrolls"] for line in each["lines"]
    )
    for at, (_, left, top, right, bottom, one) in enumerate(lines):
        for _, left_2, top_2, right_2, bottom_2, other in lines[at + 1 :]:
            if top_2 >= bottom:
                break
            down = min(bottom, bottom_2) - top_2
            across = min(right, right_2) - max(left, left_2)
            if one != other and across > 1 and down > 0.35 * min(bottom - top, bottom_2 - top_2):
                found.append((texts[one]["text"], texts[other]["text"]))
    return found


def contrast(text: dict[str, Any]) -> float:
    """Of a text to the first opaque colour behind it; translucent ones are laid over each other."""
    behind = (255.0, 255.0, 255.0)
    for each in reversed(text["behind"]):
        behind = over(rgba(each), behind)
    light, dark = sorted((luminance(over(rgba(text["colour"]), behind)), luminance(behind)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def rgba(colour: str) -> tuple[float, ...]:
    parts = [float(part) for part in colour[colour.index("(") + 1 : -1].replace("/", ",").replace(",", " ").split()]
    return tuple(parts) if len(parts) == 4 else (*parts, 1.0)


def over(colour: tuple[float, ...], behind: tuple[float, ...]) -> tuple[float, float, float]:
    red, green, blue = (part * colour[3] + under * (1 - colour[3]) for part, under in zip(colour, behind, strict=False))
    return red, green, blue


def luminance(colour: tuple[float, ...]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
