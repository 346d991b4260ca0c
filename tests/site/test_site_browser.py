"""The site in a real browser: Debian's chromium, driven by Playwright.

Needs `pip install playwright`, `apt-get install chromium`, and for the test of accessibility
`npm install --prefix .venv/axe axe-core`. What is missing is skipped.
"""

import io
import random
import re
from pathlib import Path
from urllib.parse import urlparse

import pytest

pytest.importorskip("markdown_it", reason="pip install -e '.[site]'")

from refgf.oracle.schedules.order import Graph
from refgf.oracle.schedules.own import own_plan
from refgf.oracle.schedules.times import schedule_times
from refgf.predict.cost import Link
from refgf.site import player

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
UNFOLD = "document.querySelectorAll('details').forEach(d => d.open = true)"
PROBLEMS = """async ([left_out, rules]) => {
    const found = await axe.run({ exclude: left_out }, { resultTypes: ["violations"], ...rules });
    const serious = found.violations.filter((v) => ["serious", "critical"].includes(v.impact));
    return serious.map((v) => `${v.id} x ${v.nodes.length}: ${v.nodes[0].html.slice(0, 200)}`); }"""
pytestmark = pytest.mark.long


@pytest.fixture
def page(browser):
    page = browser.new_page()
    page.set_default_timeout(20_000)
    yield page
    page.close()


def pages(folder, sources=4):
    """Every page, and some of those that only show a file."""
    found = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.html"))
    shown = [name for name in found if name.startswith("source/")]
    return [name for name in found if name not in shown] + shown[:sources]


@pytest.mark.parametrize("kind", ["http", "file"])
def test_every_page_opens_by_itself(folder, address, page, kind):
    """No message on the console, no failed request, none to another host; also from a disk."""
    start = address if kind == "http" else folder.as_uri() + "/"
    said, asked = [], []
    page.on("console", lambda message: said.append(f"{message.text} {message.location}"))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(f"{request.failure}: {request.url}"))
    page.on("request", lambda request: asked.append(request.url))
    for name in pages(folder):
        page.goto(start + name)
        assert page.locator("h1").count() == 1, name
    page.goto(start + "player/index.html")
    page.wait_for_selector("#vector button")
    hosts = {urlparse(url).netloc for url in asked if not url.startswith("data:")}
    # a page that was left early, and the icon that browsers ask of every host
    said = [text for text in said if "ERR_ABORTED" not in text and "/favicon.ico" not in text]
    assert said == [] and hosts == {urlparse(start).netloc} and len(asked) > 60


def test_a_phone_needs_no_horizontal_scrolling(folder, address, browser):
    """In dark mode: the scheme changes colours, and no width."""
    page = browser.new_page(viewport={"width": 320, "height": 640}, color_scheme="dark")
    wide = []
    for name in pages(folder):
        page.goto(address + name)
        page.evaluate(UNFOLD)
        if page.evaluate("document.documentElement.scrollWidth") > 320:
            wide.append(name)
    page.goto(address + "results/index.html")  # sentences side by side are not squeezed
    sentences = "[...document.querySelectorAll('td.prose + td.prose')].map((td) => td.offsetWidth)"
    assert min(page.evaluate(sentences)) >= 170
    page.goto(address + "player/index.html#direct/16/0")
    page.wait_for_selector("#vector button")
    page.evaluate("document.querySelector('#vector').parentElement.scrollLeft = 300")
    assert page.locator("#vector th[scope=row]").first.bounding_box()["x"] > 0  # the rank's number
    colours = []
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    page.close()
    assert wide == [] and colours == ["rgb(22, 24, 28)", "rgb(255, 255, 255)"]


@pytest.mark.skipif(not AXE.exists(), reason="npm install --prefix .venv/axe axe-core")
def test_axe_finds_nothing_serious(folder, address, browser):
    """Every page, and one that shows a file, all unfolded on a phone; in the dark only contrast.

    The menu is the same on all, and looked at on two. It is half of a page's elements.
    """
    page = browser.new_page(viewport={"width": 320, "height": 640})
    page.set_default_timeout(60_000)
    found = []
    for name in ["search/index.html?q=ring", *pages(folder, sources=1)]:
        left_out = [] if name in ("index.html", "lessons/03/index.html") else [["#pages"]]
        page.emulate_media(color_scheme="light")
        page.goto(address + name)
        page.evaluate(UNFOLD)
        page.add_script_tag(path=AXE)
        found += [f"{name}: {problem}" for problem in page.evaluate(PROBLEMS, [left_out, {}])]
        page.emulate_media(color_scheme="dark")
        dark = page.evaluate(PROBLEMS, [left_out, {"runOnly": ["color-contrast"]}])
        found += [f"{name} in the dark: {problem}" for problem in dark]
    page.close()
    assert found == []


def test_the_player_is_played_by_keyboard_alone(address, page):
    page.goto(address + "player/index.html")
    page.wait_for_selector("#vector button")
    assert page.locator('.steps [aria-disabled="true"]').count() == 2  # first, back
    for _ in range(120):  # to the button of the next step
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "forward":
            break
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    said = page.text_content("#said")
    assert said.startswith("Step 2 of 6: 4 messages. All ranks so far: 8 messages, 2 MiB.")
    page.keyboard.press("Tab")  # the last step
    page.keyboard.press("Enter")
    ends = '[...document.querySelectorAll(".steps [aria-disabled=true]")].map((one) => one.id)'
    assert page.evaluate(ends) == ["forward", "last"]
    heads = page.locator("#sent th[scope=col]").all_text_contents()
    assert heads[3:] == ["messages in all", "bytes in all"]
    for _ in range(10):  # into the vector, where one cell is reached
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.cell"):
            break
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.cell") == "1-1"
    text = page.text_content("#tree-said")
    assert text.startswith("Rank 1, element 1: ((") and "(x1 + x2)" in text
    assert sorted(re.findall(r"x\d", text)) == ["x0", "x1", "x2", "x3"]
    assert page.locator("#vector button.done").count() == 16


def test_the_player_is_played_by_pointer(address, page):
    page.goto(address + "player/index.html#tree/6/0")
    page.wait_for_selector("#vector button")
    assert page.input_value("#algorithm") == "tree" and page.input_value("#ranks") == "6"
    page.click("#forward")
    assert page.locator("#messages li").all_text_contents()[0].startswith("rank 1 sends elements 0")
    page.click("#last")
    page.click('[data-cell="5-3"]')
    text = page.text_content("#tree-said")
    assert text.startswith("Rank 5, element 3: ") and text.count("x") == 6
    page.select_option("#algorithm", "direct")
    page.wait_for_function("document.querySelector('#said').textContent.includes('of 10')")
    page.click("#forward")
    assert page.get_attribute('[data-cell="0-11"]', "aria-label") == (
        "rank 0, s5: sum of 1 of 6 ranks, element 0"
    )
    page.click("#play")
    page.wait_for_function("document.querySelector('#said').textContent.includes('Step 3')")
    assert page.text_content("#play") == "pause"


MOVES = """() => new Promise((moved) => {
    const bar = document.querySelector("g.message"), place = () => bar.getBoundingClientRect().x;
    const first = place();
    const look = () => place() === first ? requestAnimationFrame(look) : moved(performance.now());
    look(); })"""


def test_the_first_picture_moves_without_scripts_and_soon(address, page, capsys):
    """Prints how soon. The bar, 2 s on a quiet machine, is no assertion: this one may be busy."""
    urls = []
    page.on("request", lambda asked: urls.append(asked.url.removeprefix(address)))
    page.goto(address + "index.html")
    moved_ms = page.evaluate(MOVES)
    assert not [url for url in urls if url.endswith(".js")] and len(urls) <= 4
    page.check("#still")
    held = page.evaluate("document.getAnimations().map((each) => each.playState)")
    assert held and set(held) == {"paused"}
    with capsys.disabled():
        print(f"\nfirst page: the picture moves after {moved_ms / 1e3:.2f} s, {len(urls)} files")


TRAVEL = """(time) => {
    for (const flight of document.getAnimations()) { flight.pause(); flight.currentTime = time; }
    const inside = (a, b) => a.left > b.left - 4 && a.right < b.right + 4 &&
        a.top > b.top - 4 && a.bottom < b.bottom + 4;
    return [...document.querySelectorAll("span.message")].map((one) => {
        const cells = [...document.querySelectorAll("#vector button")].filter((cell) =>
            inside(one.getBoundingClientRect(), cell.getBoundingClientRect()));
        return [one.dataset.message, ...cells.map((cell) => cell.dataset.cell)]; }).sort(); }"""


@pytest.mark.parametrize("name, elements", [("ring", 4), ("direct", 4), ("tree", 8)])
def test_messages_travel_from_the_cell_that_sends_to_the_one_that_receives(
    address, page, name, elements
):
    page.goto(address + f"player/index.html#{name}/4/0")
    page.wait_for_selector("#vector button")
    page.evaluate("document.querySelector('.beside').scrollIntoView()")
    page.evaluate("document.querySelector('#forward').click()")
    begin, end = page.evaluate(TRAVEL, 0), page.evaluate(TRAVEL, 700)
    assert page.locator("circle.message").count() == page.locator("line.now").count() > 0
    plan = player.schedule(name, 4, 1)
    wanted = sorted(
        [f"{source}-{target}", f"{source}-{column}"]
        for source, target, first, count, at in plan["messages"]
        for column in range(first, first + count)
        if at == 1
    )
    assert begin == wanted and len(begin) == elements
    written = {f"{rank}-{column}" for at, rank, column, *_ in plan["writes"] if at == 1}
    assert {cell for _, cell in end} <= written and len({cell for _, cell in end}) == len(wanted)
    assert all(cell.startswith(message[-1]) for message, cell in end)
    page.evaluate("for (const flight of document.getAnimations()) flight.finish()")
    page.wait_for_function("!document.querySelector('.message')")
    page.emulate_media(reduced_motion="reduce")
    page.click("#forward")
    assert page.locator(".message").count() == 0


def test_grid_and_time_line_are_side_by_side_where_there_is_room(address, page):
    page.goto(address + "player/index.html#ring/8/0")
    page.wait_for_selector("#times line")
    for width, beside in ((1280, True), (320, False)):
        page.set_viewport_size({"width": width, "height": 900})
        grid, times = (page.locator(one).bounding_box() for one in ("#vector", "#times"))
        assert (times["x"] > grid["x"] + grid["width"]) == beside
        assert (times["y"] < grid["y"] + grid["height"]) == beside


def test_drawings_and_figures_fit_the_scheme(address, browser):
    """Their ground is nearly the page's, dark or light, and an orange bar stays orange."""
    image = pytest.importorskip("PIL.Image")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        page.goto(address + "lessons/03/index.html")
        page.evaluate(UNFOLD)
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        ground = [int(each) for each in re.findall(r"\d+", background)]
        for i in range(2):
            shown = page.locator("main img").nth(i)
            shown.scroll_into_view_if_needed()
            shown.evaluate("image => image.decode()")  # it is loaded when it comes into view
            shot = io.BytesIO(shown.screenshot())
            pixels = image.open(shot).convert("RGB")
            corner = pixels.getpixel((3, 3))
            assert max(abs(a - b) for a, b in zip(corner, ground)) < 8, (scheme, corner)
            counts = pixels.getcolors(10**6)
            orange = sum(n for n, (r, g, b) in counts if r > g + 25 and g > b + 25)
            assert orange > 1000, (scheme, i)
    page.close()


def test_times_on_the_page_are_those_of_python(address, page):
    """200 random settings, each with the time of the last arrival."""
    rng = random.Random(5)
    move = """([id, value]) => { const slider = document.getElementById(id);
        slider.value = value; slider.dispatchEvent(new Event("input")); }"""
    for title in rng.sample(list(player.ALGORITHMS), 8):
        name, per_node = player.ALGORITHMS[title]
        size = rng.choice(player.sizes(per_node))
        page.goto(address + "player/index.html")  # a hash alone loads nothing
        page.select_option("#algorithm", title)
        page.wait_for_function(f"PLAYER.data[{title!r}]")
        page.select_option("#ranks", str(size))
        n = player.elements(name, size, per_node)
        graph = Graph(own_plan(name, size, "msccl-xml", n, per_node))
        for _ in range(25):
            chosen = {"alpha": player.ALPHAS_S, "rate": player.RATES_GBIT}
            chosen |= {"bytes": player.VECTOR_BYTES}
            found = {}
            for key, values in chosen.items():
                place = rng.randrange(len(values))
                page.evaluate(move, [key, place])
                found[key] = values[place]
            link = Link(found["alpha"], 8 / (found["rate"] * 1e9))
            seconds, _ = schedule_times(graph, found["bytes"] / n, link)
            shown = float(page.get_attribute("#total", "data-seconds"))
            assert shown == pytest.approx(seconds, rel=1e-9), (title, size, found)


REVEALED = "[...document.querySelectorAll('details.reveal')].map((each) => each.open)"


def test_what_was_measured_is_folded_until_a_guess_or_a_link(address, page):
    page.goto(address + "lessons/03/index.html")
    assert page.evaluate(REVEALED) == [False] * 3
    page.focus("#guess")
    page.keyboard.type("4 MiB")
    page.keyboard.press("Enter")
    assert page.evaluate(REVEALED) == [True] * 3
    assert page.evaluate("document.activeElement.matches('details.reveal summary')")
    page.reload()
    assert page.input_value("#guess") == "4 MiB" and page.evaluate(REVEALED) == [True] * 3
    page.evaluate("localStorage.clear()")
    page.goto(address + "index.html")
    page.goto(address + "lessons/03/index.html#verdicts")
    page.wait_for_selector("text=verdict here")
    assert page.evaluate(REVEALED) == [True] * 3


def test_without_javascript_what_was_measured_is_unfolded_by_keyboard(address, browser):
    page = browser.new_page(java_script_enabled=False)
    page.goto(address + "lessons/03/index.html#verdicts")
    summary = page.get_by_text("The verdicts", exact=True)
    summary.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("text=verdict here")
    page.close()
