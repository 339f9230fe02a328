"""The documentation as a site: read from files, without the network, in Debian's chromium."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prunus.version import __version__

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs the program chromium: apt-get install chromium"
)
ROOT = Path(__file__).parents[1]
MILLISECONDS = 60_000


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """As `make docs` builds it, without executing the gallery, whose code test_docs.py runs."""
    folder = tmp_path_factory.mktemp("site")
    config = (ROOT / "mkdocs.yml").read_text()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", "-"]
    subprocess.run(
        [*command, "--site-dir", folder],
        cwd=ROOT,
        input=config.replace("  - tools/docs_gallery.py\n", "").encode(),
        check=True,
        timeout=200,
        capture_output=True,
    )
    return folder


@pytest.fixture
def page(site):
    """The start page on a small screen; nothing may go wrong, nor be asked of the network."""
    requests, troubles = [], []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=MILLISECONDS
        )
        page = browser.new_page(viewport={"width": 400, "height": 800})
        page.set_default_timeout(MILLISECONDS)
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto((site / "index.html").as_uri())
        yield page
        browser.close()
    assert troubles == []
    assert [url for url in requests if not url.startswith("file:")] == []


def test_search_works_from_files(page):
    page.click("label[for=__search] >> visible=true")
    page.type(".md-search__input", "temperature")
    page.wait_for_selector(".md-search-result__meta:has-text('matching documents')")


def test_wide_tables_scroll_and_the_page_does_not(page, site):
    page.goto((site / "methods" / "comparison.html").as_uri())
    page.wait_for_selector(".md-typeset__scrollwrap table")
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    wraps = page.locator(".md-typeset__scrollwrap")
    assert wraps.evaluate_all("all => all.some(wrap => wrap.scrollWidth > wrap.clientWidth)")


def test_every_page_states_the_version(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for path in pages:
        assert f"Prunus {__version__}" in path.read_text()
