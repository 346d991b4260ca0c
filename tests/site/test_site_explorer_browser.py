"""The explorer and the microscope in a real browser, as in test_site_browser.py."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("markdown_it", reason="pip install -e '.[site]'")

from refgf.site import explorer, microscope, pyodide
from refgf.site.answers import answer

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("explorer/index.html", "microscope/index.html")
READY = "document.querySelector('#state').dataset.state === 'ready'"
MOVE = """(values) => { for (const [id, value] of Object.entries(values)) {
    const one = document.getElementById(id); one.value = value;
    one.dispatchEvent(new Event("input")); one.dispatchEvent(new Event("change")); } }"""
pytestmark = pytest.mark.long
needs_pyodide = pytest.mark.skipif(
    not pyodide.available(ROOT), reason="make site, where npm is installed"
)


def start(page, url):
    """Opens the explorer, and makes it load Python by a setting that was not exported."""
    page.goto(url)
    page.wait_for_function("document.querySelector('#state').dataset.state === 'exported'")
    page.evaluate(MOVE, {"percent": 0})
    page.wait_for_function(READY)
    page.evaluate(MOVE, {"percent": len(explorer.PERCENTS) - 1})


def shown(page):
    """({grouping: [seconds, calls]}, the setting) of the page."""
    rows = page.evaluate(
        "[...document.querySelectorAll('#steps tr[data-name]')].map((row) => "
        "[row.dataset.name, Number(row.dataset.seconds), Number(row.dataset.calls)])"
    )
    setting = page.evaluate("document.querySelector('#state').dataset.setting")
    return {name: [seconds, calls] for name, seconds, calls in rows}, setting


def compare(page, count):
    """Random settings: the page's numbers are Python's."""
    rng, machines = random.Random(7), explorer.machines()
    lists = {"rate": explorer.RATES_GBIT, "latency": explorer.LATENCIES_US}
    lists |= {"ranks": explorer.RANKS, "theta": explorer.THETAS, "percent": explorer.PERCENTS}
    names = {"rate": "gbit", "latency": "latency_us"}
    before = None
    for _ in range(count):
        machine = rng.choice(list(machines))
        network = rng.choice(["AlexNet", "ResNet-50"] * 5 + ["BERT-Large"])
        chosen = {name: rng.randrange(len(values)) for name, values in lists.items()}
        wire = rng.choice(["float32", "float16"])
        wanted = explorer.setting(machines[machine], network, 2, 0) | {"wire": wire}
        for name, values in lists.items():
            wanted[names.get(name, name)] = values[chosen[name]]
        if wanted == before:
            continue
        page.evaluate(MOVE, {"machine": machine, "network": network, "wire": wire})
        page.evaluate(MOVE, chosen)
        page.wait_for_function(
            "(w) => { const s = document.querySelector('#state').dataset.setting; "
            "return s && Object.entries(w).every(([k, v]) => JSON.parse(s)[k] === v); }",
            arg=wanted,
        )
        found, setting = shown(page)
        python = json.loads(answer(json.dumps(wanted)))
        assert json.loads(setting) == wanted
        for name, step in python["steps"].items():
            assert found[name] == [step["step_s"], len(step["calls"])], (wanted, name)
        before = wanted


@needs_pyodide
def test_numbers_of_the_explorer_are_those_of_python(address, page):
    start(page, address + NAMES[0])
    compare(page, 200)


@needs_pyodide
def test_from_a_disk_python_computes_too(folder, page):
    start(page, folder.as_uri() + "/" + NAMES[0])
    assert not page.is_disabled("#theta")
    compare(page, 20)


@needs_pyodide
def test_the_explorer_is_moved_by_keyboard_alone(address, page):
    start(page, address + NAMES[0])
    for _ in range(120):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "theta":
            break
    before = shown(page)[0]["your theta"]
    page.keyboard.press("Home")  # theta 0
    page.wait_for_function("document.querySelector('#theta-is').textContent === '0 B'")
    page.wait_for_function("JSON.parse(state.dataset.setting || null)?.theta === 0")
    assert shown(page)[0]["your theta"] == shown(page)[0]["eager"] != before


@needs_pyodide
def test_the_explorer_is_moved_by_pointer(address, page):
    start(page, address + NAMES[0])
    box = page.locator("#ranks").bounding_box()
    page.locator("#ranks").scroll_into_view_if_needed()
    page.locator("#ranks").click(position={"x": box["width"] - 3, "y": box["height"] / 2})
    page.wait_for_function("document.querySelector('#ranks-is').textContent === '2048'")
    page.locator("#ranks").click(position={"x": box["width"] / 5 + 2, "y": box["height"] / 2})
    page.wait_for_function("document.querySelector('#ranks-is').textContent === '8'")
    measured = "document.querySelectorAll('#sweep .dot').length > 3"
    page.wait_for_function(measured)
    for point in explorer.measured(ROOT):
        if "grouping" in point:
            cell = page.locator(f'#steps tr[data-name="{point["grouping"]}"] td').last
            assert cell.text_content() == f"{1e3 * point['step_s']:.4g} ms"


def test_what_lessons_measured_is_shown_without_python(address, page):
    """Each setting is a button; its answer was exported."""
    page.goto(address + NAMES[0])
    page.click("text=Settings that lessons measured")
    points = explorer.measured(ROOT)
    for i in range(page.locator("#lessons button").count()):
        button = page.locator("#lessons button").nth(i)
        button.click()
        page.evaluate(NEXT_FRAME)
        setting = json.loads(shown(page)[1])
        keys = ("network", "ranks", "percent", "wire")
        own = [p for p in points if [p[k] for k in keys] == [setting[k] for k in keys]]
        points = [point for point in points if point not in own]
        crosses = sum("theta" in point for point in own)
        assert page.locator("#sweep .dot").count() == crosses > 0
        assert {p["lesson"] for p in own} <= set(
            button.text_content().split(": lesson ")[1].split(", ")
        )
    assert points == [] and page.evaluate("state.dataset.state") in ("exported", "absent")


NEXT_FRAME = "new Promise(requestAnimationFrame)"
WRONG = """() => { const found = [];
    for (const svg of document.querySelectorAll("#times svg, #sweep svg")) {
        const nodes = [...svg.querySelectorAll(":not(title)")];
        const boxes = [svg, ...nodes].map((node) => node.getBoundingClientRect());
        const frame = boxes.shift();
        nodes.forEach((one, i) => {
            const a = boxes[i];
            if (a.left < frame.left || a.right > frame.right || a.top < frame.top ||
                a.bottom > frame.bottom) found.push(`outside: ${one.outerHTML}`);
            nodes.forEach((other, j) => {
                const b = boxes[j];
                if (one.tagName === "text" && i !== j && a.left < b.right && b.left < a.right &&
                    a.top < b.bottom && b.top < a.bottom)
                    found.push(`${one.outerHTML} lies on ${other.outerHTML}`);
            });
        });
    }
    return found; }"""


@needs_pyodide
@pytest.mark.parametrize("network", list(explorer.NETWORKS))
def test_drawings_stay_in_their_frames_at_the_ends_of_sliders(address, page, network):
    """No label lies on anything, on a phone and on a wide screen."""
    start(page, address + NAMES[0])
    lists = {"rate": explorer.RATES_GBIT, "latency": explorer.LATENCIES_US}
    lists |= {"ranks": explorer.RANKS, "theta": explorer.THETAS, "percent": explorer.PERCENTS}
    ends = [(name, end) for name, values in lists.items() for end in (0, len(values) - 1)]
    for machine in explorer.machines():
        for name, end in ends:
            page.evaluate(MOVE, {"network": network, "machine": machine})
            page.evaluate(MOVE, {"ranks": 2, "theta": 11, "percent": 5} | {name: end})
            for width in (320, 1280):
                page.set_viewport_size({"width": width, "height": 640})
                page.evaluate(NEXT_FRAME)
                page.wait_for_function(
                    "state.dataset.setting && [times, sweep].every("
                    "(one) => one.firstChild.clientWidth === one.clientWidth)"
                )
                assert page.evaluate(WRONG) == [], (machine, name, end, width)


@needs_pyodide
def test_labels_are_whole_and_say_what_changed(address, page):
    start(page, address + NAMES[0])
    assert page.text_content("#machine-is") == ""
    last = {"rate": len(explorer.RATES_GBIT) - 1, "latency": len(explorer.LATENCIES_US) - 1}
    page.evaluate(MOVE, last | {"ranks": len(explorer.RANKS) - 1})
    page.wait_for_function("JSON.parse(state.dataset.setting || null)?.latency_us === 200")
    assert page.text_content("#total").endswith(" s")
    assert page.text_content("#machine-is") == "(link changed)"
    page.evaluate("document.body.classList.add('stale')")
    assert float(page.evaluate("getComputedStyle(total).opacity")) < 0.5
    bottom, top = page.evaluate(
        "[document.querySelector('#theta-is').getBoundingClientRect().bottom, "
        "theta.getBoundingClientRect().top]"
    )
    assert top - bottom >= 4  # the frame of the focus: 3 px, 1 px away


def test_without_pyodide_the_explorer_shows_what_was_exported(address, page):
    settings = explorer.data_files(ROOT)
    text = next(content for name, content in settings if name == "explorer/settings.js")
    text += "EXPLORER.python = false;"
    page.route("**/explorer/settings.js", lambda route: route.fulfill(body=text))
    page.goto(address + NAMES[0])
    page.wait_for_function("document.querySelector('#state').dataset.state === 'absent'")
    assert page.is_disabled("#theta") and not page.is_disabled("#ranks")
    page.select_option("#network", "AlexNet")
    page.evaluate(MOVE, {"ranks": 2})
    page.wait_for_function("JSON.parse(state.dataset.setting).ranks === 512")
    found, setting = shown(page)
    python = json.loads(answer(setting))
    assert found["MG-WFBP"][0] == python["steps"]["MG-WFBP"]["step_s"]


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_small(address, page, name):
    """Under 1.5 MB without Pyodide. It shows numbers before Pyodide is there."""
    sizes = []
    page.on("response", lambda got: sizes.append((got.url, got.headers.get("content-length"))))
    page.goto(address + name)
    page.wait_for_selector("table tr td")
    own = [int(size) for url, size in sizes if "/pyodide/" not in url and size]
    assert 10_000 < sum(own) < 1_500_000


FIRST = """addEventListener("DOMContentLoaded", () => { window.first = [state.dataset.state,
    document.querySelectorAll("#steps td").length > 9, performance.now() / 1e3]; });"""


@needs_pyodide
@pytest.mark.parametrize("kind", ["http", "file"])
def test_python_is_loaded_when_a_slider_asks_for_it(folder, address, page, capsys, kind):
    """Numbers are there before. Prints how soon: no assertion, because a machine may be busy."""
    urls = []
    page.on("request", lambda asked: urls.append(asked.url))
    page.add_init_script(FIRST)
    page.goto((address if kind == "http" else folder.as_uri() + "/") + NAMES[0])
    page.select_option("#network", "AlexNet")  # exported, as are other machines
    page.evaluate(NEXT_FRAME)
    state, shown, shown_s = page.evaluate("first")
    assert state == "exported" and shown
    assert not [url for url in urls if "pyodide" in url or "modules.js" in url]
    begin_s = page.evaluate("performance.now() / 1e3")
    page.focus("#theta")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(READY)
    ready_s = page.evaluate("performance.now() / 1e3") - begin_s
    assert [url for url in urls if "pyodide" in url]
    with capsys.disabled():
        print(
            f"\nexplorer, {kind}: numbers after {shown_s:.1f} s, a slider's after {ready_s:.1f} s"
        )


@needs_pyodide
def test_from_a_server_nothing_is_loaded_twice(address, page):
    urls = []
    page.on("response", lambda got: urls.append(got.url.rpartition("/")[2]))
    start(page, address + NAMES[0])
    assert "pyodide.asm.wasm" in urls and "disk.js" not in urls
    assert len(urls) == len(set(urls))


def test_numbers_of_the_microscope_are_those_of_python(address, page):
    """200 random settings."""
    page.goto(address + NAMES[1])
    rng, data = random.Random(8), microscope.data()
    for _ in range(200):
        kind, wire = rng.choice(list(microscope.KINDS)), rng.choice(list(microscope.WIRES))
        place = rng.randrange(len(microscope.SIZES))
        page.evaluate(MOVE, {"kind": kind, "wire": wire, "ranks": place})
        for order in microscope.ORDERS:
            row = page.locator(f'tr[data-order="{order}"]')
            found = [float(row.get_attribute(f"data-{key}")) for key in ("rms", "largest", "right")]
            assert found == data[kind][wire][order][place][:3]


BITS = """(text) => { value.value = text; value.dispatchEvent(new Event("input"));
    const word = (code) => code.textContent.split(" ")[0];
    const bits = (row) => [...row.querySelectorAll("code")].map(word);
    return Object.fromEntries([...document.querySelectorAll("#bits tr[data-type]")].map((row) =>
        [row.dataset.type, bits(row).join("")])); }"""


def bits_of(x):
    """{type: bits} of a float32, as NumPy rounds; bfloat16: half of float32, ties to even."""
    whole = int(np.float32(x).view(np.uint32))
    half = (whole + 0x7FFF + (whole >> 16 & 1)) >> 16
    with np.errstate(over="ignore"):
        float16 = int(np.float32(x).astype(np.float16).view(np.uint16))
    return {"float32": f"{whole:032b}", "float16": f"{float16:016b}", "bfloat16": f"{half:016b}"}


def test_bits_of_a_number_are_those_of_numpy(address, page):
    """Random float32 of all sizes, ties, the ends of each type, both zeros."""
    page.goto(address + NAMES[1])
    rng = np.random.default_rng(3)
    words = rng.integers(0, 2**32, 300, dtype=np.uint32)
    words[:150] = words[:150] >> 11 << 11 | rng.integers(0, 2, 150, dtype=np.uint32) << 12
    near = rng.normal(size=200).astype(np.float32) * np.float32(2.0) ** rng.integers(-26, 17, 200)
    ends = [0.0, -0.0, 0.1, 65504, 65519.99, 65520, 2**-24, 2**-25, 1.5 * 2**-24, 2**-149, 2049]
    ends += [np.finfo(np.float32).max, np.finfo(np.float32).tiny, 3.39e38, 1 + 2**-8, 1 + 3 * 2**-8]
    for x in [*words.view(np.float32), *near.astype(np.float32), *np.float32(ends)]:
        if np.isfinite(x):
            assert page.evaluate(BITS, repr(float(x))) == bits_of(x), repr(x)
    page.click("text=the exact sum above")
    said = page.text_content("#said")
    assert f"exact sum is {page.input_value('#value')} and" in said
    page.click("#tries button:has-text('65520')")
    assert page.text_content('#bits tr[data-type="float16"]').endswith("Infinityinfinite")
    assert page.evaluate(BITS, "1e39") == {} == page.evaluate(BITS, "x")
    assert page.text_content("#value-said") == '"x" is no number of float32; try 0.1'


def test_the_microscope_is_moved_by_keyboard_alone(address, page):
    page.goto(address + NAMES[1])
    for _ in range(120):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "ranks":
            break
    page.keyboard.press("ArrowRight")
    assert page.text_content("#said").startswith("ring, 9 ranks, float16")
    page.keyboard.press("End")  # the drawing is as wide as the phone
    circle = page.locator("#errors circle").first.bounding_box()
    assert 0 < circle["x"] < 320 - circle["width"]


def test_the_microscope_is_used_by_pointer(address, page):
    page.goto(address + NAMES[1])
    page.select_option("#wire", "float32")
    page.select_option("#order", "direct")
    track = page.locator("#ranks").bounding_box()
    page.mouse.click(track["x"] + track["width"] - 2, track["y"] + track["height"] / 2)
    assert page.text_content("#ranks-is") == str(microscope.SIZES[-1])
    said = page.text_content("#said")
    assert said.startswith(f"direct, {microscope.SIZES[-1]} ranks, float32 on the wire: ")


@needs_pyodide
def test_what_was_chosen_in_the_explorer_is_sent_as_a_link(address, page):
    page.goto(address + NAMES[0] + "#ranks=2048&theta=null&network=AlexNet&machine=none&rate=3")
    page.wait_for_function(READY)
    page.wait_for_function("state.dataset.setting")
    setting = json.loads(shown(page)[1])
    assert [setting[key] for key in ("ranks", "theta", "network")] == [2048, None, "AlexNet"]
    assert page.input_value("#machine") == next(iter(explorer.machines()))  # none is unknown
    assert page.text_content("#machine-is") == ""  # as is 3 Gbit/s
    page.focus("#theta")
    page.keyboard.press("Home")
    page.wait_for_function(
        "location.hash.includes('ranks=2048') && /theta=0\\b/.test(location.hash)"
    )
    page.reload()
    page.wait_for_function("document.querySelector('#theta-is').textContent === '0 B'")
    assert page.text_content("#ranks-is") == "2048" and page.input_value("#network") == "AlexNet"


def test_what_was_chosen_in_the_microscope_is_sent_as_a_link(address, page):
    page.goto(address + NAMES[1] + "#ranks=16&wire=float32&kind=tiny&order=other")
    said = page.text_content("#said")
    assert (
        said.startswith("ring, 16 ranks, float32 on the wire")
        and page.input_value("#kind") == "tiny"
    )
    page.select_option("#order", "direct")
    page.wait_for_function("location.hash.includes('order=direct')")
