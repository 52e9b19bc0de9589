"""The page in a real browser: no errors, no network, a slider that moves things, and no accessibility violations.

Screenshots are kept in runs/screenshots for people to look at.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from fedcollab.report import write
from fedcollab.training import TrainingResult

from .conftest import make_advised_run, make_training

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
BROWSER = next(
    (found for name in ("chromium", "google-chrome", "chromium-browser") if (found := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no headless browser here: install chromium")
KEPT = Path(__file__).parents[2] / "runs" / "screenshots"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def visit(browser):
    """Open a report; at the end of the test there must have been no error and no request beyond the file."""
    contexts, problems = [], []

    def go(page_file, viewport=DESKTOP, **options):
        context = browser.new_context(viewport=viewport, **options)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: problems.append(request.url) if _foreign(request.url) else None)
        page.goto(page_file.as_uri(), timeout=120_000)
        page.wait_for_selector("html[data-ready=yes]", state="attached", timeout=120_000)
        return page

    yield go
    for context in contexts:
        context.close()
    assert problems == []


def _foreign(url):
    return not url.startswith(("file:", "data:", "blob:"))


def shown(page):
    """The coalitions that the page lists now."""
    return page.locator("#shown li").all_inner_texts()


@pytest.fixture(scope="module")
def small(run_of):
    names = [f"client-{i:02d}" for i in range(8)]
    return write(run_of(names))


def test_the_slider_moves_by_keyboard(small, visit):
    page = visit(small)
    first, said, drawn = shown(page), page.inner_text("#said"), page.inner_html("#matrix")
    assert "the answer above" in said
    page.focus("#c")
    page.keyboard.press("Home")
    assert shown(page)[-1].startswith("Alone:")
    assert page.inner_text("#said") != said
    page.wait_for_function("old => document.querySelector('#matrix').innerHTML !== old", arg=drawn)
    page.keyboard.press("End")
    assert len(shown(page)) == 1
    assert "other partners" in page.inner_text("#said")
    page.click("#suggested")
    assert shown(page) == first


def test_everyone_and_nobody(small, visit):
    page = visit(small)
    first = shown(page)
    page.check("input[value=everyone]")
    assert shown(page) == ["1 client-00 … client-07 (8 clients)"]
    page.check("input[value=nobody]")
    assert shown(page) == ["Alone: client-00 … client-07 (8 clients)"]
    bars = page.inner_html("#bounds")
    page.check("input[value=path]")
    assert shown(page) == first
    page.wait_for_function("old => document.querySelector('#bounds').innerHTML !== old", arg=bars)


def test_charts_are_drawn_at_every_stage(run_of, visit):
    for stage, least in (("distances", 4), ("coalitions", 8), ("training", 11)):
        page = visit(write(run_of(tuple("abcdef"), stage)))
        assert page.locator(".plot svg, .plot canvas").count() >= least
        assert page.locator(".plot:not(:has(svg, canvas))").count() == 0


def test_names_do_not_run(run_of, nasty, visit):
    page = visit(write(run_of(nasty)))
    assert page.locator("#shown").inner_text().count("<script>alert(1)</script>") == 1
    page.hover("#matrix svg .mark-rect path >> nth=1")
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert "<script>alert(1)</script>" in page.inner_text("#vg-tooltip-element")
    assert page.locator("main b").count() == 0


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "light"), (PHONE, "light"), (PHONE, "dark")])
def test_pictures_for_people_and_accessibility(small, visit, scheme, viewport):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    page = visit(small, viewport, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    KEPT.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=KEPT / f"report-{viewport['width']}-{scheme}.png", full_page=True)
    found = axe.Axe().run(page).response["violations"]
    assert [(rule["id"], rule["nodes"][0]["html"][:120]) for rule in found] == []


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
def test_what_contradicts_the_answer_is_seen_first(run_of, visit, tmp_path, viewport):
    """Training alone is better by ten points: that is above the answer, and the table of ways has its intervals."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    run = shutil.copytree(run_of(tuple("abcdef")), tmp_path / "run")
    for way, top in (("local", 0.9), ("coalitions", 0.8)):
        make_training(tuple("abcdef"), TrainingResult.load(run / "training" / way).coalitions, top).save(
            run / "training" / way / "training.json"
        )
    page = visit(write(run), viewport)
    note, headline = page.locator(".contradiction"), page.locator(".headline")
    assert "training alone is better than these coalitions: by 10.0 points" in note.inner_text()
    assert note.bounding_box()["y"] < headline.bounding_box()["y"] < viewport["height"]
    table = page.locator("#training table").first.inner_text()
    assert "80.2 ± 0.8 %" in table
    assert "−10.0 ± 1.1" in table
    assert "worse" in table
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    KEPT.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=KEPT / f"contradiction-{viewport['width']}.png")
    assert [rule["id"] for rule in axe.Axe().run(page).response["violations"]] == []


@pytest.fixture(scope="module")
def advised(tmp_path_factory):
    """The page of a run that was trained as advised."""
    return write(make_advised_run(tmp_path_factory.mktemp("advised"), ("north", "south", "east", "west")))


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light")])
def test_the_advice_is_on_the_first_screen(advised, visit, viewport, scheme):
    """Who with whom and the gain in words are seen without scrolling, on a desk the picture of gains too.

    Nothing is cut on a phone, and all is accessible.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed")
    page = visit(advised, viewport, color_scheme=scheme)
    places = (".headline", ".gain", ".groups .names", "#expected")
    headline, words, partners, gains = (page.locator(place).bounding_box() for place in places)
    assert headline["y"] < words["y"] < partners["y"] < partners["y"] + partners["height"] <= viewport["height"]
    if viewport == DESKTOP:
        assert gains["y"] + gains["height"] <= viewport["height"]
    assert page.locator("#weights svg .mark-rect.role-mark path").count() == 16
    assert page.locator(".plot:not(:has(svg, canvas))").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    KEPT.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=KEPT / f"advice-{viewport['width']}-{scheme}.png", full_page=True)
    found = axe.Axe().run(page).response["violations"]
    assert [(rule["id"], rule["nodes"][0]["html"][:120]) for rule in found] == []


#: words of the training table that are broken over two lines, and cells that stick out of the screen
PROBLEMS = """() => {
  const region = document.querySelector("#training .scroll"), found = [];
  if (region.scrollWidth > region.clientWidth) found.push("the table is wider than its region");
  const walker = document.createTreeWalker(region, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    for (const word of walker.currentNode.data.matchAll(/\\S+/g)) {
      const range = document.createRange();
      range.setStart(walker.currentNode, word.index);
      range.setEnd(walker.currentNode, word.index + word[0].length);
      const boxes = [...range.getClientRects()];
      if (new Set(boxes.map((box) => Math.round(box.top))).size > 1) found.push("broken: " + word[0]);
      const hidden = walker.currentNode.parentElement.closest("thead") !== null;
      if (!hidden && boxes.some((box) => box.right > innerWidth || box.left < 0)) found.push("cut: " + word[0]);
    }
  }
  return found;
}"""


@pytest.mark.parametrize("width", [320, 390, 700])
def test_the_training_table_fits_a_phone(small, visit, width):
    page = visit(small, {"width": width, "height": 844})
    assert page.evaluate(PROBLEMS) == []
    cell = page.locator("#training .scroll tbody tr").first.locator("td").first
    assert page.locator("#training .scroll thead th").nth(1).text_content() == cell.get_attribute("data-label")
    before = cell.evaluate("cell => getComputedStyle(cell, '::before').content")
    assert cell.get_attribute("data-label") in before, "each figure says what it is"


def test_the_training_table_stays_a_table_on_a_desk(small, visit):
    page = visit(small)
    assert page.evaluate(PROBLEMS) == []
    rows = page.locator("#training .scroll tbody tr").all()
    assert all(row.evaluate("row => getComputedStyle(row).display") == "table-row" for row in rows)


def test_two_hundred_clients(run_of, many, visit):
    page = visit(write(run_of(many)))
    first = shown(page)
    page.focus("#c")
    page.keyboard.press("End")
    assert len(shown(page)) == 1 != len(first)
    page.fill("#find", "client-19")
    assert page.locator("#client-table tbody tr:visible").count() == 10
    KEPT.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=KEPT / "report-200-clients.png", full_page=True)


def test_it_prints(small, visit):
    page = visit(small, color_scheme="dark")
    KEPT.mkdir(parents=True, exist_ok=True)
    assert page.pdf(path=KEPT / "report.pdf", format="A4").startswith(b"%PDF")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(27, 31, 36)"
    assert not page.locator("#c").is_visible()


def test_a_thousand_clients_show_coalitions_first_and_clients_on_demand(run_of, visit):
    names = tuple(f"client-{i:04d}" for i in range(1000))
    page_file = write(run_of(names, stage="coalitions"))
    assert page_file.stat().st_size < 3_000_000
    page = visit(page_file)
    rows = page.locator("#client-table tbody tr:not(.group)")
    assert rows.count() == 1000
    assert page.locator("#client-table tbody tr:not(.group):visible").count() == 0
    page.locator("#client-table button[data-coalition]").first.click()
    opened = page.locator("#client-table tbody tr:not(.group):visible")
    assert 0 < opened.count() < 1000
    assert "client-0000" in opened.first.inner_text()
    page.fill("#find", "client-0999")
    assert opened.count() == 1
    page.fill("#find", "")
    assert 0 < opened.count() < 1000
    assert page.locator("#matrix-fixed svg").count() == 1


def test_every_table_is_whole_on_a_phone(advised, visit):
    """No table scrolls sideways, except the one of all distances, which is folded."""
    page = visit(advised, PHONE)
    wide = "regions => regions.filter(r => r.clientWidth && r.scrollWidth > r.clientWidth).map(r => r.ariaLabel)"
    assert page.eval_on_selector_all(".scroll", wide) == []


def test_badges_stay_with_their_names_in_print(run_of, visit):
    page = visit(write(run_of(tuple(f"hospital number {i}" for i in range(9)), stage="coalitions")))
    page.emulate_media(media="print")
    apart = """all => all.filter(kept => {
      const badge = kept.querySelector(".badge").getBoundingClientRect(), box = kept.getBoundingClientRect();
      return badge.top > box.top + badge.height;
    }).length"""
    assert page.eval_on_selector_all(".kept", apart) == 0
    colours = page.eval_on_selector_all(".badge", "all => all.map(b => getComputedStyle(b).printColorAdjust)")
    assert set(colours) == {"exact"}


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
def test_thirty_clients_all_have_their_names_beside_the_matrix(run_of, visit, viewport) -> None:
    names = tuple(f"clinic of place {i:02d}" for i in range(30))
    page = visit(write(run_of(names)), viewport)
    boxes = page.evaluate(
        "[...document.querySelectorAll('#matrix svg text')].filter((text) => text.textContent.startsWith('clinic'))"
        ".map((text) => [text.textContent, text.getBoundingClientRect().top, text.getBoundingClientRect().height])"
    )
    assert sorted(name for name, _, _ in boxes) == sorted(2 * names), "each at both sides"
    rows = sorted(top for _, top, height in boxes if height < 15)
    assert len(rows) == 30
    assert min(np.diff(rows)) > 5, "one row each"
