"""Pages in a real browser: nothing goes wrong, nothing is loaded, no chart is empty; keys, clicks and print work."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.pages import Seen, browser, opened
from support.shown_run import write_shown

from pyddpdiag.cli import main
from pyddpdiag.pipeline import load_details
from pyddpdiag.report.run.page import write_pages

pytest.importorskip("plotly", reason="pages need plotly")

# Of each chart: how many marks it has, and whether it and the page fit into the window.
DRAWN = """() => Array.from(document.querySelectorAll(".plot")).map((plot) => ({
  name: plot.dataset.chart,
  marks: plot.querySelectorAll(
    ".scatterlayer .point, .scatterlayer path.js-line, .scatterlayer path.js-fill, " +
    ".barlayer .point path, .heatmaplayer image"
  ).length,
  fits: plot.getBoundingClientRect().right <= document.documentElement.clientWidth + 1,
  tall: plot.getBoundingClientRect().height,
  hidden: Array.from(plot.querySelectorAll("svg")).every((svg) => svg.getAttribute("aria-hidden") === "true"),
}))"""

# Texts whose contrast to what is below them is less than WCAG's AA; those on a heat map, whose cells are an image,
# are a test of the colours themselves.
WEAK = """() => {
  const parsed = (text) => (text.match(/[0-9.]+/g) || []).map(Number);
  const bright = (rgb) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb.slice(0, 3).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const below = (element) => {
    const bar = element.closest(".point") && element.closest(".point").querySelector("path");
    if (bar) return parsed(getComputedStyle(bar).fill);
    for (let at = element; at; at = at.parentElement) {
      const rgb = parsed(getComputedStyle(at).backgroundColor);
      if (rgb.length === 3 || rgb[3] > 0) return rgb;
    }
    return parsed(getComputedStyle(document.body).backgroundColor);
  };
  const found = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !element.getClientRects().length) continue;
    if (element.closest("script, .heatmaplayer, .skip, .copied, select")) continue;
    const style = getComputedStyle(element);
    const ink = bright(parsed(element.closest("svg") ? style.fill : style.color)), under = bright(below(element));
    const contrast = (Math.max(ink, under) + 0.05) / (Math.min(ink, under) + 0.05);
    let opacity = 1;
    for (let at = element; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
    const text = walk.currentNode.data.trim().slice(0, 40);
    if (contrast < 4.5 || opacity < 1) found.add(text + ": " + contrast.toFixed(2));
  }
  return [...found];
}"""

FIRST_SCREEN = """() => [
  ".headline", ".figures", "[data-chart=where] .barlayer", "[data-chart=where] .annotation-text-g"
].map((name) => document.querySelector(name).getBoundingClientRect()).map((box) => [box.top, box.bottom])"""


@pytest.fixture(scope="module")
def running() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def page_of_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    write_shown(folder / "run")
    write_pages(*load_details(folder / "run"), folder / "run.html", None, zoom=True)
    return folder / "run.html"


def without_trouble(seen: Seen, file: Path) -> None:
    assert seen.messages == []
    assert seen.asked == [file.resolve().as_uri()]


@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (400, "light"), (1280, "dark"), (400, "dark")]
)
def test_every_chart_is_drawn_and_fits(running: Any, page_of_run: Path, width: int, scheme: str) -> None:
    seen = Seen()
    page = opened(running, page_of_run, seen, viewport={"width": width, "height": 900}, color_scheme=scheme)
    drawn = page.evaluate(DRAWN)
    assert len(drawn) == 12
    for chart in drawn:
        assert chart["marks"] > 0 and chart["fits"] and chart["tall"] > 100 and chart["hidden"], chart
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    bright = [sum(int(part) for part in colour.strip("rgb()").split(",")) for colour in (ink, paper)]
    assert (bright[0] > bright[1]) == (scheme == "dark") and abs(bright[0] - bright[1]) > 450
    text = page.evaluate("getComputedStyle(document.querySelector('.xtick text')).fill")
    assert text == ink
    assert page.evaluate(WEAK) == []
    # The first screen: verdict, four numbers, and where the time goes with the culprit marked.
    tops, bottoms = zip(*page.evaluate(FIRST_SCREEN), strict=True)
    assert list(tops) == sorted(tops) and bottoms[-1] <= 900, (tops, bottoms)
    assert len(page.query_selector_all(".figures dd.value")) == 4
    without_trouble(seen, page_of_run)
    page.context.close()


def test_by_keyboard_alone(running: Any, page_of_run: Path) -> None:
    seen = Seen()
    page = opened(running, page_of_run, seen, viewport={"width": 1280, "height": 900})
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    reached = set()
    for _ in range(200):
        page.keyboard.press("Tab")
        place = page.evaluate("[document.activeElement.tagName, document.activeElement.dataset.chart || '']")
        if place[0] == "BODY":
            break
        reached.add(place[1] or place[0])
    assert {"step-times", "waterfall", "gradient-norms", "A", "SELECT", "BUTTON", "SUMMARY"} <= reached
    # Zoom, move and show all.
    page.focus('[data-chart="step-times"]')
    whole = page.evaluate("document.activeElement._fullLayout.xaxis.range")
    page.keyboard.press("+")
    near = page.evaluate("document.activeElement._fullLayout.xaxis.range")
    assert near[1] - near[0] < 0.7 * (whole[1] - whole[0])
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement._fullLayout.xaxis.range")[0] > near[0]
    page.keyboard.press("0")
    assert page.evaluate("document.activeElement._fullLayout.xaxis.range") == pytest.approx(whole)
    # A slow step by its button: the picture and its table change, and the choice has the focus.
    button = page.locator("button[data-key]").first
    key = button.get_attribute("data-key")
    button.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.getElementById('waterfall').value") == key
    assert page.evaluate("document.activeElement.id") == "waterfall"
    assert page.locator('[data-of="waterfall"]:not([hidden])').get_attribute("data-key") == key
    without_trouble(seen, page_of_run)
    page.context.close()


def test_a_click_on_a_slow_step_shows_it(running: Any, page_of_run: Path) -> None:
    seen = Seen()
    page = opened(running, page_of_run, seen, viewport={"width": 1280, "height": 900})
    before = page.evaluate("document.getElementById('waterfall').value")
    keys = page.evaluate("Array.from(document.getElementById('waterfall').options, (one) => one.value)")
    other = next(key for key in keys if key != before)
    points = page.locator('[data-chart="step-times"] .points path.point')
    places = page.evaluate(
        "document.querySelector('[data-chart=\"step-times\"]').data.find((one) => one.meta).customdata.map(String)"
    )
    point = points.nth(places.index(other))
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    # Waits are for elements: the page allows no eval, which Playwright's wait for an expression would need.
    page.wait_for_selector(f'[data-of="waterfall"][data-key="{other}"]:not([hidden])', state="attached")
    assert page.evaluate("document.getElementById('waterfall').value") == other
    without_trouble(seen, page_of_run)
    page.context.close()


def test_a_table_is_copied(running: Any, page_of_run: Path) -> None:
    seen = Seen()
    page = opened(running, page_of_run, seen, permissions=["clipboard-read", "clipboard-write"])
    button = page.locator("h2#view-files-and-ranks ~ p > button[data-table]").first
    button.click()
    page.wait_for_selector(".copied:not(:empty)", state="attached")
    rows = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert rows[0].split("\t")[:3] == ["rank", "host", "steps"] and len(rows) == 4
    without_trouble(seen, page_of_run)
    page.context.close()


def test_it_prints_on_a4_in_ink_that_can_be_read(running: Any, page_of_run: Path) -> None:
    seen = Seen()
    page = opened(running, page_of_run, seen, viewport={"width": 1280, "height": 900}, color_scheme="dark")
    pdf = page.pdf(prefer_css_page_size=True)
    assert pdf.startswith(b"%PDF") and len(pdf) > 20_000
    # What the page does before it prints: light, and as wide as the paper.
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    widths = page.evaluate(
        "Array.from(document.querySelectorAll('.plot .main-svg'), (svg) => svg.getBoundingClientRect().width)"
    )
    assert max(widths) <= 703
    page.emulate_media(media="print", color_scheme="dark")
    fill = page.evaluate("getComputedStyle(document.querySelector('.xtick text')).fill")
    assert sum(int(part) for part in fill.strip("rgb()").split(",")) < 200
    without_trouble(seen, page_of_run)
    page.context.close()


def test_pages_of_a_comparison(running: Any, page_of_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need matplotlib")
    other = write_shown(tmp_path / "other", compute_ms=30.0)
    assert (
        main(["compare", str(page_of_run.parent / "run"), str(other), "--output-dir", str(tmp_path / "c")])
        == 0
    )
    seen, file = Seen(), tmp_path / "c" / "compare.html"
    page = opened(running, file, seen, viewport={"width": 400, "height": 900})
    (chart,) = page.evaluate(DRAWN)
    assert (chart["name"], chart["fits"], chart["hidden"]) == ("changes", True, True)
    labels = page.evaluate(
        "Array.from(document.querySelectorAll('.pd text[text-anchor=end]'), (one) => one.getBoundingClientRect())"
    )
    assert len(labels) == page.evaluate("document.querySelectorAll('.pd [stroke-width=\"2\"]').length") == 8
    assert all(above["bottom"] <= below["top"] + 1 for above, below in itertools.pairwise(labels)), labels
    without_trouble(seen, file)
    page.context.close()
