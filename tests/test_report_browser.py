"""The report in a real browser; needs playwright and Chromium: `pytest -m browser`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import finished_folder
from test_report import hostile_run, written

pytestmark = pytest.mark.browser

CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = rgb(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("main *, nav *, header *, footer *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.getClientRects().length || element.disabled) continue;
    const [a, b] = [light(rgb(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.push([element.tagName, element.className, element.textContent.slice(0, 30), ratio]);
  }
  return low;
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "page.html"
    path.write_text(written(finished_folder()), encoding="utf-8")
    return path


def opened(browser: Any, path: Path, width: int = 1440, scheme: str = "light") -> tuple[Any, list[str]]:
    """The page in a new window, and everything that it complained about or asked for."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    heard: list[str] = []
    page.on("console", lambda message: heard.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: heard.append(f"error: {error}"))
    page.on("request", lambda request: None if request.url == path.as_uri() else heard.append(f"asked for {request.url[:200]}"))
    page.goto(path.as_uri())
    page.wait_for_selector("#explorer .sample")
    return page, heard


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_the_page_is_quiet_fits_the_screen_and_can_be_read(browser: Any, finished: Path, width: int, scheme: str) -> None:
    page, heard = opened(browser, finished, width, scheme)
    assert heard == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("document.querySelectorAll('.plot canvas').length") == page.evaluate(
        "document.querySelectorAll('.plot').length"
    )
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.evaluate(CONTRAST) == []
    page.close()


def test_hostile_texts_stay_texts(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(written(hostile_run(tmp_path)), encoding="utf-8")
    page, heard = opened(browser, path)
    for _ in range(5):
        assert page.evaluate("typeof window.broken") == "undefined"
        page.get_by_role("button", name="next →").click()
    assert heard == []
    assert "<img src=x onerror=" in page.locator("#explorer").inner_text() or page.locator("#explorer img").count() == 0
    assert page.locator("#explorer script, #explorer img, #explorer svg").count() == 0
    page.close()


def test_the_keyboard_reads_charts_and_walks_through_samples(browser: Any, finished: Path) -> None:
    page, heard = opened(browser, finished)
    first = page.locator(".plot").first
    first.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    legend = page.locator("figure").first.locator(".legend")
    assert "at step 3" in legend.inner_text()
    assert any(character.isdigit() for character in legend.locator("button").first.inner_text())
    page.locator(".list button").first.focus()
    asked = page.locator(".question").inner_text()
    page.keyboard.press("ArrowDown")
    assert page.locator(".question").inner_text() != asked
    assert page.evaluate("document.activeElement.getAttribute('aria-current')") == "true"
    page.locator("#sample-search").fill("no such text anywhere")
    page.get_by_text("No problem matches.").wait_for()
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.locator("details.numbers summary").first.click()
    page.wait_for_selector("details.numbers table")
    assert heard == []
    page.close()


def test_without_scripts_the_numbers_are_there(browser: Any, finished: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(finished.as_uri())
    text = page.inner_text("main")
    assert "accuracy from 0.250 to 0.800" in text
    assert "Checkpoints of this run" in text
    context.close()
