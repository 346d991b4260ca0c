"""The built pages: links and anchors, nothing from elsewhere, what a lesson's page holds."""

import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from tests.support.site_links import broken_links, pages_of

pytest.importorskip("markdown_it", reason="pip install -e '.[site]'")
pytest.importorskip("pygments", reason="pip install -e '.[site]'")

from refgf.site import docstring, numbers, search, spec, start
from refgf.site.build import ALONE, build
from refgf.site.markdown import Text
from refgf.site.repository import PAGES, Repository, lesson_numbers, relative

ROOT = Path(__file__).resolve().parents[2]
TEXTS = (".html", ".js", ".json")
LARGEST_PAGE, LARGEST_DATA = 400_000, 500_000  # bytes


def test_every_link_and_anchor_leads_somewhere(site):
    assert broken_links(*site) == []


def test_every_page_is_found_from_the_first(site):
    folder, pages = site
    found, ahead = set(), [folder / "index.html"]
    while ahead:
        file = ahead.pop()
        if file not in found and file in pages:
            found.add(file)
            for _, link in pages[file].links:
                ahead.append((file.parent / unquote(urlparse(link).path)).resolve())
    assert {file.relative_to(folder).as_posix() for file in pages.keys() - found} == set()


def test_every_page_has_a_menu_of_all_pages(site):
    folder, pages = site
    wanted = {*PAGES.values(), *ALONE} - {search.ADDRESS}
    wanted |= {f"lessons/{number}/index.html" for number in lesson_numbers(ROOT)}
    for name in ("index.html", "lessons/03/index.html", "source/refgf/comm/ring.py.html"):
        menu = re.search(r'(?s)<details id="pages">(.*?)</nav>', (folder / name).read_text())[1]
        links = re.findall(r'href="(.*?)"', menu)
        found = [((folder / name).parent / link).resolve().relative_to(folder) for link in links]
        assert sorted(map(str, found)) == sorted(wanted)
        here = re.findall(r'href="([^"]*)" aria-current=page', menu)
        assert [Path(each).name for each in here] == ["index.html"] * (name in wanted)
        assert ("<details open><summary>All lessons" in menu) == name.startswith("lessons/")


def test_a_visitor_without_a_question_sees_those_of_all_lessons(site):
    html = (site[0] / "tour" / "index.html").read_text()
    links = re.findall(r'<li><a href="../lessons/(..)/index.html"><h2>', html)
    pictures = re.findall(r'<img src="../drawings/(..).svg"', html)
    assert tuple(links) == tuple(pictures) == lesson_numbers(ROOT) and "verdict" not in html
    assert 'href="tour/index.html">look around' in (site[0] / "index.html").read_text()


def test_nothing_is_loaded_from_another_host(site):
    for file, page in site[1].items():
        for tag, link in page.links:
            assert tag == "a" or urlparse(link).scheme in ("", "data"), f"{file}: {link}"
    for file in (site[0] / "static").iterdir():
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import", file.read_text()), file


def test_anchors_are_used_once(site):
    assert {str(file): page.twice for file, page in site[1].items() if page.twice} == {}


def test_pages_are_small(site):
    for file in site[1]:
        if "source" not in file.parts:
            assert file.stat().st_size < LARGEST_PAGE, file
    for file in (site[0] / "player").glob("*.js"):
        assert file.stat().st_size < LARGEST_DATA, file


@pytest.mark.parametrize("number", [f"{i:02}" for i in range(18)])
def test_a_lesson_has_all_its_parts(site, number):
    html = (site[0] / "lessons" / number / "index.html").read_text()
    found = (ROOT / "figures").glob(f"{number}_*.json")
    (path,) = (file for file in found if file.name.count(".") == 1)
    result = json.loads(path.read_text())
    said = unescape(re.sub(r"<[^>]*>", "", html))
    for verdict in result["verdicts"]:
        assert verdict["text"] in said and verdict["verdict"] in said
    assert result["alt"] in said
    lesson = docstring.lesson_text(next((ROOT / "lessons").glob(f"{number}_*.py")).read_text())
    for text in (lesson.sections["QUESTION"], lesson.write_down):
        assert " ".join(re.sub("[*`]", "", text).split()) in " ".join(said.split())
    assert html.count("<summary>Solution of") == len(lesson.exercises) >= 3
    assert html.count("<summary>Hint</summary>") >= 2
    assert html.count('<details class="reveal">') == 3 and "For the teacher" in html
    shown = html.partition('<h2 id="figures">')[0]  # before a guess
    assert "<img" in shown and "loading=" not in shown and "verdict here" not in shown
    for name in ("figures", "verdicts"):
        assert re.search(rf'<h2 id="{name}">[^<]*</h2><details class="reveal">', html)
    pictures = list((ROOT / "figures").glob(f"{path.stem}*.png"))
    assert html.count('loading="lazy"') == len(pictures)
    alts = re.findall(r'loading="lazy" alt="(.*?)"', html)
    assert len(set(alts)) == len(pictures) and min(map(len, alts)) > 40


def test_a_statement_has_an_address_and_its_definition(site):
    html = (site[0] / "spec" / "index.html").read_text()
    assert '<li class="level2"><a href="#functions">' in html and 'href="#r-ring-allreduce"' in html
    row = html[html.index('<tr id="R2">') : html.index('<tr id="R3">')]
    assert "spec/ring.py.html#L" in row and "golden/R/" in row and "seeded mistakes" in row
    assert 'lessons: <a href="../lessons/01/index.html">01</a>' in row
    row = html[html.index('<tr id="H1">') : html.index('<tr id="H2">')]  # no lesson uses it
    assert 'statements of H: <a href="../lessons/10/index.html">10</a>' in row


def test_a_checkout_behind_a_link_is_built(tmp_path):
    (tmp_path / "link").symlink_to(ROOT)
    text = Text(Repository(tmp_path / "link"), spec.ADDRESS, spec.FILE)
    assert "spec/ring.py.html#L" in spec.belongings(text, "R1")[0]


def test_a_folder_of_somebody_else_is_not_emptied(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(ValueError, match="holds something else.*next: --output"):
        build(ROOT, tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_a_folder_that_is_no_checkout_is_refused(tmp_path):
    with pytest.raises(ValueError, match="lacks README.md or lessons/.*next: clone it"):
        build(tmp_path, tmp_path / "site")


def test_a_link_to_nothing_is_refused():
    text = Text(Repository(ROOT), "index.html")
    with pytest.raises(ValueError, match="gone.md in README.md.*next: correct the link"):
        text.markdown("[read](gone.md)")


def test_names_of_files_become_links():
    files = Repository(ROOT)
    text = Text(files, "lessons/03/index.html", "lessons/03_lazy_allreduce.py")
    names = "in refgf/exchange/lazy.py, `comm/ring.py`, docs/scale.md, refgf/gone.py and `x/y`"
    html = text.docstring(names)
    assert re.findall(r'href="(.*?)"', html) == [
        "../../source/refgf/exchange/lazy.py.html",
        "../../source/refgf/comm/ring.py.html",
        "../../scale/index.html",
    ]
    assert relative("spec/index.html#R2", "index.html") == "spec/index.html#R2"


def test_names_of_lessons_become_links():
    text = Text(Repository(ROOT), "lessons/03/index.html", "lessons/03_lazy_allreduce.py")
    html = text.markdown("Lesson 01 and lesson 99; lesson 03 is this page. 02 lies")
    assert re.findall(r'href="(.*?)">(.*?)<', html) == [("../01/index.html", "Lesson 01")]
    table = "| lesson | minutes | first met in |\n|---|---|---|\n| 01 a ring | 10 | 02, 05 |\n"
    linked = re.findall(r'href="../(..)/index.html">', text.markdown(table))
    assert linked == ["01", "02", "05"]


LESSON = '''"""Lesson 90: nothing - at all.

    python lessons/90.py

QUESTION    Why?
IDEA        Because
            of this:
                a    b

PREDICTION  It is 1.

The papers say 2.

Before you run it, write down: how
much?

This is weak scaling.

NOW CHANGE SOMETHING    (solutions: there)
    1. Change a:
           b = 1
       and look.
    2. Change b.
"""
'''


def test_the_docstring_of_a_lesson_is_taken_apart():
    found = docstring.lesson_text(LESSON)
    assert found.title == "nothing - at all" and found.commands == "python lessons/90.py"
    assert found.sections["QUESTION"] == "Why?"
    assert docstring.spaced(found.sections["IDEA"]) == "Because\nof this:\n\n    a    b"
    assert found.sections["PREDICTION"] == "It is 1.\n\nThe papers say 2."
    assert found.write_down == "Before you run it, write down: how\nmuch?"
    assert found.after == "This is weak scaling."
    assert [each.splitlines()[0] for each in found.exercises] == ["Change a:", "Change b."]
    assert docstring.spaced(found.exercises[0]) == "Change a:\n\n    b = 1\n\nand look."


def test_hints_and_solutions_are_apart():
    code = '# Exercise 1 (easy)\ndef f():\n    """Do.\n\n    f() -> 1\n\n    Hint: one.\n    """\n'
    (found,) = docstring.functions(code)
    assert found.title == "Exercise 1 (easy)" and found.hint == "one."
    assert "Hint" not in found.code and "f() -> 1" in found.code
    solved = docstring.solutions('def g():\n    """2. Two.\n\n    Because."""\n')
    assert solved[2][0].startswith("Two.") and solved[2][1].startswith("def g")


def leaves(value, name=""):
    """(name, number or list) of what a dict of the JSON holds; of a time its median."""
    if isinstance(value, dict) and "median_s" in value:
        yield name, value["median_s"]
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}, {key}" if name else key)
    elif isinstance(value, int | float | list) and not isinstance(value, bool):
        yield name, value


def test_numbers_of_lessons_are_those_of_the_json(site):
    """Read back from the tables of rows on each page, to four digits."""
    compared = 0
    for page in (site[0] / "lessons").glob("[0-9][0-9]/index.html"):
        files = (ROOT / "figures").glob(f"{page.parent.name}_*.json")
        (result,) = (json.loads(file.read_text()) for file in files if file.name.count(".") == 1)
        all_rows = dict(leaves(result))
        found = r"<summary>([^<]*): \d+ rows?</summary>(.*?)</table>"
        for name, table in re.findall(found, page.read_text(), re.S):
            rows = all_rows[unescape(name)]
            columns = [unescape(cell) for cell in re.findall('<th scope="col">(.*?)</th>', table)]
            lines = re.findall(r"<tr>(<td>.*?)</tr>", table, re.S)
            assert len(lines) == min(len(rows), numbers.ROWS)
            for row, line in zip(rows, lines):
                cells = dict(zip(columns, re.findall(r"<td>(.*?)</td>", line, re.S), strict=True))
                for column, value in leaves(row):
                    if column in cells and not isinstance(value, list):
                        shown = float(cells[column].split(" (")[0].replace(",", ""))
                        assert shown == pytest.approx(value, rel=5.1e-4), (page, name, column)
                        compared += 1
    assert compared > 1000


def test_numbers_are_those_of_the_json():
    timing = {"median_s": 0.5, "low_s": 0.25, "high_s": 1.0, "repeats": 3}
    rows = [{"theta": 1024, "time": timing, "by": {"a": True}}, {"theta": "inf", "more": [1, 2.5]}]
    html = numbers.tables({"rows": rows, "single": 3, "date": "today"})
    cells = [unescape(cell) for cell in re.findall(r"<(?:td|th [^>]*)>(.*?)</t[dh]>", html)]
    assert cells == [
        *("theta", "time", "by, a", "more"),
        *("1,024", "0.5 (0.25 to 1)", "yes", ""),
        *("inf", "", "", "1, 2.5"),
        *("name", "value", "single", "3"),
    ]
    many = numbers.tables({"rows": [{"i": i} for i in range(45)]})
    assert many.count("<tr>") == 41 and "5 more rows" in many


def words(text):
    """As a reader sees it: without tags, marks and line ends."""
    return " ".join(unescape(re.sub(r"<[^>]*>|[`*]", "", text)).split())


def secrets():
    """(file, text): each answer, each function that solves an exercise, the teacher's prose."""
    for file in (ROOT / "lessons" / "solutions").glob("*.py"):
        for answer, check in docstring.solutions(file.read_text()).values():
            yield from ((file.name, answer), (file.name, check))
    for file in (ROOT / "lessons" / "teaching" / "answers").glob("*.py"):
        yield from ((file.name, part) for part in re.split(r"\n(?=def )", file.read_text())[1:])
    for file in (ROOT / "lessons" / "teaching").glob("*.md"):
        prose = re.sub(r"(?s)<!-- expected.*?<!-- end of expected -->", "", file.read_text())
        yield from ((file.name, part) for part in prose.split("\n\n") if part[:1].isalpha())


def test_no_site_holds_the_exams_answers(site):
    """The public one has the questions; a search finds no answer either."""
    folder = ROOT / "lessons" / "teaching"
    questions, answers = (
        re.findall(r"(?ms)^(\d+)\. \((\d\d)\) (.+?)(?=^\d+\. |\Z)", (folder / name).read_text())
        for name in ("exam.md", "answers/exam.md")
    )
    assert len(questions) == 20 and [q[:2] for q in questions] == [a[:2] for a in answers]
    held = {file: words(file.read_text()) for file in site[0].rglob("*") if file.suffix in TEXTS}
    exam = held[site[0] / "teaching" / "exam" / "index.html"]
    assert [number for number, _, text in questions if words(text) not in exam] == []
    for file, text in held.items():
        assert [number for number, _, answer in answers if words(answer)[:60] in text] == [], file
    assert Repository(ROOT).find("lessons/teaching/answers/exam.md") is None


@pytest.mark.long
def test_a_site_for_students_holds_no_answer(site, tmp_path):
    build(ROOT, tmp_path, private=True)
    pages = pages_of(tmp_path)
    assert broken_links(tmp_path, pages) == []
    private = " ".join(words(file.read_text()) for file in pages)
    public = " ".join(words(file.read_text()) for file in site[1])
    texts = [(name, words(text)) for name, text in secrets()]
    assert sum(text in public for _, text in texts) > 100
    assert [(name, text) for name, text in texts if len(text) > 60 and text in private] == []


def test_the_first_page_plays_a_ring_and_has_three_doors(site):
    html = (site[0] / "index.html").read_text()
    p = start.RANKS
    assert html.count('class="message"') == 2 * (p - 1) * p and "sent six quarters" in words(html)
    shown = html.count('style="animation-name: has')  # each message is added or copied
    assert shown == 2 * (p - 1) * p and html.count("@keyframes has") == 2 * (p - 1)
    main = html.partition("<main")[2].partition("</main>")[0]
    assert 100 < len(words(main).split()) < 300
    doors = re.search(r'(?s)<ul class="doors">(.*?)</ul>', html)[1]
    assert doors.count("<a ") == 3 and 'property="og:description" content="How many' in html
