"""A reader's schedule file in the player, in a real browser, as in test_site_browser.py."""

import base64
import json
import random
from pathlib import Path

import pytest

pytest.importorskip("markdown_it", reason="pip install -e '.[site]'")

from refgf.site import player, pyodide
from refgf.site.dropped import answer
from tests.support.schedule_files import allgather_xml, asked, other_bits_xml, own_xml

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
NAME = "player/index.html"
FILES = {
    "direct.xml": own_xml("direct", 4),
    "hierarchical.xml": own_xml("three-phase, 2 ranks a node", 8),
    "gathered.xml": allgather_xml(),
    "other.xml": other_bits_xml(),
}
SAID = "(said) => document.querySelector('#file-said').textContent.startsWith(said)"
MOVE = """(values) => { for (const [id, value] of Object.entries(values)) {
    const one = document.getElementById(id); one.value = value;
    one.dispatchEvent(new Event("input")); } }"""
DROP = """([name, content]) => {
    const bytes = Uint8Array.from(atob(content), (c) => c.charCodeAt(0));
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([bytes], name));
    const event = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
    document.querySelector("#vector").dispatchEvent(event); }"""
CELLS = """Object.fromEntries([...document.querySelectorAll("#vector button")].map((cell) =>
    [cell.dataset.cell, [cell.getAttribute("aria-label"), cell.classList.contains("done")]]))"""
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not pyodide.available(ROOT), reason="make site, where npm is installed"),
]


def opened(page, address):
    page.goto(address + NAME)
    page.wait_for_selector("#vector button")


def drop(page, name, content):
    """Drop a file on the page, and wait for what Python says about it."""
    page.evaluate(DROP, [name, base64.b64encode(content).decode()])
    page.wait_for_function(SAID, arg=asked(content, name)["said"][0])


def pressed(page, wanted):
    """Go on by the tabulator to the element of this id."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == wanted:
            return
    raise AssertionError(f"no way to {wanted} by keyboard")


def test_a_file_is_chosen_and_played_by_keyboard_alone(address, page, tmp_path):
    file = tmp_path / "direct.xml"
    file.write_bytes(FILES[file.name])
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("filechooser", lambda chooser: None)  # from now on; at the key press it may be too late
    opened(page, address)
    assert not any("pyodide" in url or "modules.js" in url for url in requests)
    for _ in range(60):  # its part is folded
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('#drop summary')"):
            break
    page.keyboard.press("Enter")
    pressed(page, "file")
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(file)
    page.wait_for_function(SAID, arg="direct.xml: right (4 ranks, allreduce, msccl-xml)")
    assert page.text_content("#file-said") == "\n".join(asked(FILES[file.name], file.name)["said"])
    assert page.input_value("#algorithm") == "direct.xml" and page.input_value("#ranks") == "4"
    pressed(page, "forward")
    page.keyboard.press("Enter")
    assert page.text_content("#said").startswith("Step 1 of 6: 4 messages. ")
    pressed(page, "last")
    page.keyboard.press("Enter")
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.cell"):
            break
    page.keyboard.press("ArrowDown")
    assert page.text_content("#tree-said") == "Rank 1, chunk 0: x3 + (x2 + (x1 + x0))"
    assert page.locator("#vector button.done").count() == 16
    assert page.evaluate("location.hash") == ""  # no address leads to a file of a reader


def test_what_a_file_shows_is_what_python_computes(address, page):
    """One file after another: every cell of every step, and 50 random settings for each."""
    opened(page, address)
    for name, content in FILES.items():
        drop(page, name, content)
        page.wait_for_function("(name) => algorithm.value === name", arg=name)
        plan = asked(content, name)["plan"]
        require_cells(page, plan)
        rng, before = random.Random(name), page.text_content("#total")
        for _ in range(50):
            chosen = {"alpha": player.ALPHAS_S, "rate": player.RATES_GBIT}
            chosen |= {"bytes": player.VECTOR_BYTES}
            places = {key: rng.randrange(len(values)) for key, values in chosen.items()}
            page.evaluate(MOVE, places)
            page.wait_for_function("!document.body.classList.contains('stale')")
            setting = {key: values[places[key]] for key, values in chosen.items()}
            times = json.loads(answer(json.dumps({"name": name} | setting)))["times"]
            shown = float(page.get_attribute("#total", "data-seconds"))
            assert shown == max(end for _, end in times), (name, setting)
        assert page.text_content("#total") != before


def require_cells(page, plan):
    """What each cell says in each step of a plan that the page plays."""
    columns = page.locator("#vector th[scope=col]").all_text_contents()
    assert columns == ["rank", *plan["columns"]]
    size = len(plan["sent"])
    for step in range(max(message[4] for message in plan["messages"]) + 1):
        if step:
            page.click("#forward")
        last = {f"{w[1]}-{w[2]}": w[3:] for w in plan["writes"] if w[0] <= step}
        cells = page.evaluate(CELLS)
        assert len(cells) == size * len(plan["columns"])
        for place, (label, done) in cells.items():
            tree, _, result = last.get(place, (None, 0, 0))
            ranks = summed(plan["trees"], tree)
            wanted = f"sum of {ranks} of {size} ranks" if ranks else "nothing"
            assert f": {wanted}" in label and done == bool(result), (step, place)


def summed(trees, tree):
    """Ranks in a tree; 0 if there is none."""
    if tree is None:
        return 0
    node = trees[tree]
    return sum(summed(trees, child) for child in node) if isinstance(node, list) else 1


def test_a_wrong_or_large_file_gets_its_sentence_and_is_not_played(address, page):
    opened(page, address)
    wrong = FILES["direct.xml"].replace(b'type="re"', b'type="cpy"', 1)
    assert not page.is_visible("#file-said")
    for name, content in (("wrong.xml", wrong), ("cut.xml", wrong[:99]), ("other.txt", b"other")):
        drop(page, name, content)
        assert page.is_visible("#file-said")
        assert page.text_content("#file-said") == "\n".join(asked(content, name)["said"])
        assert page.locator("#algorithm option").count() == len(player.ALGORITHMS)
        assert page.input_value("#algorithm") == "ring"
    page.evaluate(
        "([name, size]) => { const dataTransfer = new DataTransfer();"
        "dataTransfer.items.add(new File([new Uint8Array(size)], name));"
        "document.body.dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true })); }",
        ["large.xml", (1 << 24) + 1],
    )
    page.wait_for_function(SAID, arg="large.xml: got 16777217 bytes; wanted at most 16777216")
    assert page.input_value("#algorithm") == "ring"
    drop(page, "right.xml", FILES["direct.xml"])  # Python goes on
    assert page.input_value("#algorithm") == "right.xml"
    page.select_option("#algorithm", "ring")
    assert page.text_content("#said").startswith("Step 0 of ")
    page.select_option("#algorithm", "right.xml")
    assert page.locator("#vector th[scope=col]").count() == 1 + 4 + 4


@pytest.mark.skipif(not AXE.exists(), reason="npm install --prefix .venv/axe axe-core")
def test_axe_and_a_phone_find_nothing_wrong_with_a_file(address, page):
    opened(page, address)
    drop(page, "hierarchical.xml", FILES["hierarchical.xml"])
    page.click("#forward")
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    page.add_script_tag(path=AXE)
    problems = page.evaluate("axe.run()")["violations"]
    assert [p["id"] for p in problems if p["impact"] in ("serious", "critical")] == []


def test_from_a_disk_a_file_is_taken_too(folder, page):
    opened(page, folder.as_uri() + "/")
    drop(page, "direct.xml", FILES["direct.xml"])
    assert page.input_value("#algorithm") == "direct.xml"
    page.click("#last")
    cell = page.locator("#vector button").first
    assert cell.evaluate("(node) => node.classList.contains('done')")
