"""Every slide of every deck shows all of its text, in Debian's chromium."""

import shutil

import pytest

from tests.lessons.test_slides import MARP, slides

EMPTY = '<svg xmlns="http://www.w3.org/2000/svg" width="9pt" height="9pt" viewBox="0 0 9 9"></svg>'
MARGIN = 20  # pixels of a floating picture's box that hold nothing, of a slide's 720
TOO_LOW = """margin => [...document.querySelectorAll("section")].flatMap((slide, number) => {
    const source = [...slide.children].find(e => getComputedStyle(e).position == "absolute")
    const end = source ? source.offsetTop : slide.clientHeight
    const low = [...slide.children].filter(e => e != source && e.offsetTop + e.offsetHeight > end)
    const said = low.map(e => `${number + 1}: ${e.tagName} ${e.textContent.trim()}`)
    const fits = slide.scrollHeight <= slide.clientHeight + margin
    return fits && slide.scrollWidth <= slide.clientWidth ? said : [...said, `${number + 1}`]
})"""


@pytest.mark.long
def test_no_slide_overflows_or_covers_its_source(browser, tmp_path, monkeypatch):
    """A picture's place does not depend on what it shows, so nothing is drawn here."""
    if not (marp := shutil.which("marp") or shutil.which(MARP)):
        pytest.skip("no marp; next: make slides, or npm install -g @marp-team/marp-cli")

    def draw(lesson, folder):
        for figure in slides.ROOT.glob(f"figures/{lesson}_*.png"):
            (folder / f"{figure.stem}.svg").write_text(EMPTY)

    monkeypatch.setattr(slides, "draw", draw)
    slides.render(marp, slides.DECKS, tmp_path, ("--html",))
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    found = {}
    for deck in slides.DECKS:
        page.goto((tmp_path / f"{deck.stem}.html").as_uri())
        assert page.locator("section").count() == deck.read_text().count("\n---\n")
        found[deck.stem] = page.evaluate(TOO_LOW, MARGIN)
    page.close()
    assert not any(found.values()), found
