"""The site, built once for all tests that read its pages or drive a browser."""

import shutil
import threading
from pathlib import Path

import pytest

from tests.support.site_links import pages_of

ROOT = Path(__file__).resolve().parents[2]
OWN = ("http://127.0.0.1", "file:", "data:")  # what a page may ask


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """The folder of the site, two folders below the one that is served."""
    pytest.importorskip("markdown_it", reason="pip install -e '.[site]'")
    pytest.importorskip("pygments", reason="pip install -e '.[site]'")
    from refgf.site.build import build

    folder = tmp_path_factory.mktemp("served") / "some" / "path"
    build(ROOT, folder)
    return folder


@pytest.fixture(scope="session")
def site(folder):
    """(folder of the site, {path: links of the page})"""
    return folder, pages_of(folder)


@pytest.fixture(scope="session")
def address(folder):
    from refgf.site.serve import server

    running = server(folder.parents[1], 0)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}/some/path/"
    running.shutdown()
    running.server_close()


@pytest.fixture(scope="session")
def browser():
    """Debian's chromium, driven by Playwright."""
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("apt-get install chromium")
    with api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    """A page on a phone in dark mode; it says nothing on its console and asks no other host."""
    page = browser.new_page(viewport={"width": 320, "height": 640}, color_scheme="dark")
    page.set_default_timeout(60_000)
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    yield page
    page.close()
    assert said == [] and all(url.startswith(OWN) for url in asked)
