"""The page in a real browser: Debian's chromium, without a window."""

import re
import shutil

import pytest

from prunus.report.model import comparisons
from prunus.report.page import report_page
from prunus.report.records import read_runs
from support.made_runs import Runs

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs the program chromium: apt-get install chromium"
)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
]  # fmt: skip
MILLISECONDS = 60_000


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=FLAGS, timeout=MILLISECONDS
        )
        yield browser
        browser.close()


def page_of(folder):
    """The address of a page about the runs in a folder."""
    found = read_runs(folder)
    path = folder / "report.html"
    path.write_text(report_page("runs <b>", found, comparisons(found.records)))
    return path.as_uri()


@pytest.fixture(scope="module")
def address(folder):
    return page_of(folder)


@pytest.fixture
def visit(browser, address):
    """Opens the page; nothing may go wrong in it, and it may ask for nothing but itself."""
    contexts, troubles, requests, addresses = [], [], [], set()

    def visit(width=1100, scheme="light", address=address):
        addresses.add(address)
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(MILLISECONDS)
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address)
        page.wait_for_selector("html[data-drawn]")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert troubles == []
    assert {url for url in requests if not url.startswith(("data:", "blob:"))} == addresses


POINT = "#chart-0 svg [role=button]"


def test_hover_and_click(visit):
    page = visit()
    assert page.title() == "runs <b>: Prunus report"
    points = page.locator(POINT)
    assert points.count() == 9
    points.first.hover()
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    assert "weights kept" in tooltip.inner_text()
    points.first.click()
    dialog = page.locator("dialog[open]")
    dialog.wait_for()
    assert "cs, mask_init -0.2, round 1" in dialog.locator("h2").inner_text()
    assert "prunus retrain " in dialog.locator("pre").inner_text()
    for part in ("layers", "blocks", "value", "kept", "loss"):
        dialog.locator(f"[data-part={part}] svg.marks").wait_for()
    assert dialog.locator("[data-part=metric]").inner_text() == "Validation accuracy"
    mask = dialog.locator("[data-part=mask]")
    before = mask.get_attribute("src")
    dialog.locator("[data-part=layer]").select_option("layer1.0.conv1.weight")
    assert mask.get_attribute("src") != before
    assert "layer1.0.conv1.weight" in mask.get_attribute("alt")
    assert mask.evaluate("image => image.decode().then(() => image.naturalWidth)") == 8
    dialog.locator("[data-part=seeds]").select_option(label="1")
    assert "seed\n1" in dialog.locator("dl").inner_text()
    dialog.locator("[data-part=close]").click()
    assert not page.locator("dialog").is_visible()


def test_keyboard_alone(visit):
    page = visit()
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('role')") == "button":
            break
    first = page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("ArrowRight")
    second = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert first.startswith("cs ") and second != first
    page.keyboard.press("Enter")
    page.locator("dialog[open]").wait_for()
    page.keyboard.press("Escape")
    assert not page.locator("dialog").is_visible()
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == second
    page.locator("summary", has_text="All points").press("Enter")
    page.get_by_role("button", name="Open imp, round 1").press("Enter")
    page.locator("dialog[open]").wait_for()


def test_the_legend_hides_a_curve_and_shows_it_again(visit):
    page = visit()
    lines = page.locator("#chart-0 g.mark-line path")
    name = page.locator("#chart-0 .role-legend-label text", has_text=re.compile("^imp$"))

    def wait_for(hidden):
        page.wait_for_function(
            f"""document.querySelectorAll("#chart-0 g.mark-line path[opacity='0']").length
                === {hidden}"""
        )

    assert lines.count() > 2
    for hidden in (1, 0):
        name.click(force=True)
        wait_for(hidden)


def test_tables_are_sorted_by_the_head_of_a_column(visit):
    page = visit()
    page.locator("summary", has_text="Raw values").click()
    table = page.locator("details", has_text="Raw values").locator("table")

    def column(number):
        return [row.split("\t")[number] for row in table.inner_text().splitlines()[1:]]

    head = table.get_by_role("button", name="test", exact=True)
    head.click()
    values = [float(text) for text in column(-1)]
    assert values == sorted(values) and len(values) > 10
    head.press("Enter")
    assert [float(text) for text in column(-1)] == sorted(values, reverse=True)
    table.get_by_role("button", name="settings", exact=True).click()
    words = column(2)
    assert "" in words and words == sorted(filter(None, words)) + [""] * words.count("")


def test_what_files_say_stays_text(visit, tmp_path):
    evil = "<img src=x onerror=alert(1)>"
    runs = Runs(tmp_path / "runs", task=evil, shapes={f"{evil}.weight": (4, 4)})
    for init, density in ((evil, 0.5), ("b", 0.1)):
        runs.search(evil, 0, [(density, 0.8)], mask_init=init)
    page = visit(address=page_of(runs.root))
    page.locator(POINT).first.hover()
    page.locator("#vg-tooltip-element.visible").wait_for()
    page.locator(POINT).first.click()
    page.locator("dialog[open] [data-part=loss] svg.marks").wait_for()
    assert evil in page.locator("dialog dl").inner_text()
    assert page.locator("img[src=x]").count() == 0


def test_phone_and_dark(visit):
    page = visit(width=360, scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    red = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
    assert int(red) < 40
    page.locator(POINT).first.focus()
    page.keyboard.press("Enter")
    page.locator("dialog[open] [data-part=loss] svg.marks").wait_for()
    assert page.evaluate("document.querySelector('dialog').scrollWidth") <= 360
