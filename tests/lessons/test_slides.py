"""The lectures: numbers are those of the figures, pictures exist, notes fit 50 minutes."""

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = importlib.util.spec_from_file_location("slides", ROOT / "docs" / "tools" / "slides.py")
slides = importlib.util.module_from_spec(TOOL)
TOOL.loader.exec_module(slides)
MARP = ROOT / "build" / "marp" / "node_modules" / ".bin" / "marp"


def pages(deck: Path) -> list[str]:
    """A deck's slides, without its settings."""
    return deck.read_text().split("\n---\n")[1:]


@pytest.mark.parametrize("deck", slides.DECKS, ids=lambda deck: deck.stem)
class TestADeck:
    def test_numbers_are_those_of_the_figures(self, deck):
        text = deck.read_text()
        assert slides.with_numbers(text) == text, "next: python docs/tools/slides.py"

    def test_each_claim_holds_in_the_figures(self, deck):
        assert not slides.not_so(deck.read_text()), "next: mend the sentence before <!-- if ... -->"

    def test_each_number_that_stands_out_says_where_it_is_from(self, deck):
        for page in pages(deck):
            for number in re.findall(r"\*\*([^*]*\d.*?)\*\*", page, re.DOTALL):
                assert "<!-- = " in number or re.search(r"\bp\. \d+", page), number

    def test_one_number_a_slide_stands_out(self, deck):
        for page in pages(deck):
            numbers = re.findall(r"\*\*([^*]*\d.*?)\*\*", slides.spoken(page, False), re.DOTALL)
            assert len(numbers) <= 1, numbers

    def test_its_pictures_exist_and_are_described(self, deck):
        for alt, path, _ in slides.PICTURE.findall(deck.read_text()):
            assert (deck.parent / path).is_file() and len(alt.split()) >= 4, path

    def test_notes_fit_a_meeting_of_50_minutes(self, deck):
        minutes = [re.findall(r"^<!--\n(\d+) min\. ", page, re.MULTILINE) for page in pages(deck)]
        assert 11 <= len(minutes) <= 14 and all(len(found) == 1 for found in minutes), minutes
        assert 45 <= sum(int(found[0]) for found in minutes) <= 50

    def test_the_plans_name_it(self, deck):
        plans = (ROOT / "lessons" / "teaching" / "plans.md").read_text()
        rows = [line.split("|") for line in plans.splitlines() if line.count("|") >= 7]
        assert [row for row in rows if re.search(rf"\b{deck.stem}\b", row[5])]


def test_decks_are_chosen_by_number():
    assert slides.chosen([]) == slides.DECKS and slides.chosen(["03"]) == [slides.DECKS[1]]
    with pytest.raises(SystemExit, match="got deck 3; wanted one of 01, 03"):
        slides.chosen(["3"])


def test_a_number_that_is_no_longer_measured_is_noticed():
    mark = '<!-- = worth[3]["ranks"] / 3 in 00_two_ranks -->'
    assert slides.with_numbers(f"9.99{mark} and 9{mark}") == f"2.67{mark} and 3{mark}"


def test_a_claim_that_holds_no_longer_is_named():
    """later_s is (mean, half of its interval); a tie is an overlap of two timings' intervals."""
    right = 'Later.<!-- if learning["later_s"][0] > 0 in 07_gradientflow -->'
    wrong = 'First.<!-- if learning["later_s"][0] < 0 in 07_gradientflow -->'
    assert slides.not_so(f"{right} {wrong}") == ['learning["later_s"][0] < 0 in 07_gradientflow']
    low, high, both = ({"low_s": a, "high_s": b} for a, b in ((1, 2), (3, 4), (2, 3)))
    assert slides.overlap(low, both) and slides.overlap(both, high) and slides.overlap(high, both)
    assert not slides.overlap(low, high) and not slides.overlap(high, low)


@pytest.mark.parametrize("deck", slides.DECKS, ids=lambda deck: deck.stem)
def test_students_get_slides_without_notes(deck):
    """The same slides, of which comments are kept that set a class."""
    text = deck.read_text()
    taught, given = (slides.spoken(text, notes) for notes in (True, False))
    assert (
        not re.search("<!-- (=|if) ", taught)
        and len(re.findall(r"^\d+ min\. ", taught, re.M)) >= 11
    )
    assert " min. " not in given and "SLIP" not in given and "<!-- =" not in given
    assert set(re.findall("<!--.*", given)) == {
        "<!-- _class: lead -->",
        "<!-- _class: question -->",
    }
    assert [given.count(mark) for mark in ("\n---\n", "\n# ", "![")] == [
        text.count(mark) for mark in ("\n---\n", "\n# ", "![")
    ]


def test_drawings_and_figures_are_cropped(tmp_path):
    for size in ("", 'width="9pt" height="6pt" '):
        (tmp_path / "a.svg").write_text(f'<svg {size}viewBox="0 0 900 600"></svg>')
        text = (tmp_path / slides.cropped(tmp_path / "a.svg", "0 50 100 75")).read_text()
        assert text == '<svg width="900pt" height="150pt" viewBox="0 300 900 150"></svg>'


@pytest.mark.long
def test_a_deck_becomes_a_page(tmp_path):
    if not (marp := shutil.which("marp") or shutil.which(MARP)):
        pytest.skip("no marp; next: make slides, or npm install -g @marp-team/marp-cli")
    slides.render(marp, slides.DECKS[:1], tmp_path, ("--html",))
    page = (tmp_path / slides.DECKS[0].with_suffix(".html").name).read_text()
    shown = re.findall(r'<img src="([^"]+)"', page)
    assert len(shown) == len(slides.pictures(slides.DECKS[0].read_text()))
    assert all((tmp_path / picture).is_file() for picture in shown) and "4 min. Hands up" in page
