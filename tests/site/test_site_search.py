"""Search: what is found, what must not be, and that only the search page loads it."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("markdown_it", reason="pip install -e '.[site]'")
pytest.importorskip("pygments", reason="pip install -e '.[site]'")

from refgf.site import search
from refgf.site.repository import lesson_numbers

ROOT = Path(__file__).resolve().parents[2]
long = pytest.mark.long
needs_minisearch = pytest.mark.skipif(
    not search.available(ROOT), reason="make site, where npm is installed"
)
PAGE = """<title>T - refgf</title><nav>menu</nav><main id="main"><h1>A <code>b</code>c</h1>
<details class="contents"><ul><li>twice</li></ul></details><p>one<br>two</p>
<h2 id="x">X &amp; Y</h2><form><form>f</form>asks</form><table><tr id="w"><td>word</td>
<td>means</td></tr></table>
<details class="reveal">secret <details>inner</details> number</details><p>end</p>"""


@pytest.fixture(scope="module")
def sections(site):
    text = (site[0] / "search" / "data.js").read_text()
    return json.loads(text.removeprefix("window.SECTIONS=").removesuffix(";\n"))


@pytest.mark.parametrize(
    "address, end", [("judge/index.html", "secret inner number end"), ("lessons/03/x.html", "end")]
)
def test_a_page_is_taken_apart_at_its_anchors(address, end):
    assert list(search.documents({address: PAGE})) == [
        [address, "A bc", "one two"],
        [f"{address}#x", "X & Y", ""],
        [f"{address}#w", "word", f"means {end}"],
    ]


@pytest.mark.parametrize("address", ["source/a.py.html", "teaching/03/index.html"])
def test_of_files_and_teachers_pages_only_the_title_is_found(address):
    assert list(search.documents({address: PAGE})) == [[address, "T", ""]]


def test_statements_words_and_functions_have_sections(sections):
    addresses = [address for address, *_ in sections]
    assert len(addresses) == len(set(addresses)) > 500
    wanted = {"spec/index.html#C4", "glossary/index.html#theta", "lessons/03/index.html#idea"}
    wanted |= {"api/index.html#comm.ring.allreduce", "source/refgf/comm/ring.py.html"}
    assert wanted <= set(addresses)
    assert [heading for address, heading, _ in sections if address.endswith("#C4")] == ["C4"]


def test_no_excerpt_gives_a_measurement_away(sections):
    """No verdict, and nothing that a lesson's run printed."""
    said = {address: text for address, _, text in sections if re.match(r"lessons/\d\d/", address)}
    text = " ".join(said.values())
    for number in lesson_numbers(ROOT):
        (file,) = (f for f in (ROOT / "figures").glob(f"{number}_*.json") if f.name.count(".") == 1)
        for verdict in json.loads(file.read_text())["verdicts"]:
            assert verdict["text"] not in text
    assert "verdict here" not in text and len(text) > 30_000


@long
@needs_minisearch
@pytest.mark.parametrize("kind", ["http", "file"])
def test_a_misspelled_word_is_found_by_keyboard(folder, address, page, kind):
    page.goto((address if kind == "http" else folder.as_uri() + "/") + "lessons/03/index.html")
    page.focus("input[name=q]")
    page.keyboard.type("hierachical")
    page.keyboard.press("Enter")
    page.wait_for_selector("#found li")
    assert "lessons/10" in " ".join(page.locator("#found a").all_text_contents()[:4])
    page.keyboard.press("Control+a")
    page.keyboard.type("zzzz")
    assert page.text_content("#said") == "0 sections" and page.locator("#found li").count() == 0
    page.keyboard.press("Control+a")
    page.keyboard.type("C4")
    first = page.locator("#found a").first
    first.click()
    page.wait_for_url("**/spec/index.html#C4")


@long
def test_only_the_search_page_loads_the_sections(folder, address, page):
    urls = []
    page.on("request", lambda asked: urls.append(asked.url.removeprefix(address)))
    for name in ("index.html", "lessons/03/index.html", "spec/index.html"):
        page.goto(address + name)
    assert not [url for url in urls if "search" in url]


@long
def test_without_minisearch_the_page_says_what_to_do(address, page):
    page.route("**/search/minisearch.js", lambda route: route.fulfill(body=""))
    page.goto(address + "search/index.html?q=ring")
    assert page.text_content("#said").startswith("This site was built without MiniSearch. Next: ")
