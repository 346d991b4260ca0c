"""The teacher's pages are complete, and each command on them is one that its program takes.

The drawings have a title and a description for those who do not see them.
"""

import itertools
import re
import runpy
import shlex
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import kit
from refgf.cluster.__main__ import make_parser as cluster_parser
from refgf.course.__main__ import parser as course_parser
from refgf.oracle.__main__ import parser as oracle_parser
from refgf.oracle.grade.marking import exercises_of

LESSONS = Path(__file__).resolve().parents[2] / "lessons"
SCRIPTS = sorted(LESSONS.glob("[0-9][0-9]_*.py"))
NUMBERS = [script.stem[:2] for script in SCRIPTS]
PAGES = sorted((LESSONS / "teaching").glob("*.md"))
SECTIONS = (
    "**Class**",
    "**Students know**",
    "## Objectives",
    "Minutes:",
    "## Before the run",
    "## What it prints",
    "## When a student's numbers differ",
    "## Three misconceptions",
    "## Answers in short",
    "## Exercises to write",
    "## When time is short",
)
PROGRAMS = {
    "refgf.cluster": cluster_parser,
    "refgf.oracle": oracle_parser,
    "refgf.course": course_parser,
}


def commands(text: str) -> list[str]:
    """The commands in indented blocks. A line that ends in a backslash goes on; a pipe ends one."""
    joined = re.sub(r" *\\\n +", " ", text)
    found = re.findall(r"^ {4,}((?:mpiexec -n \d+ )?python \S.*)$", joined, re.MULTILINE)
    return [re.split(r"\s{3,}| [|] ", command)[0] for command in found]


@pytest.fixture(scope="module")
def parsers():
    """{lesson's file name: its parser}"""
    made = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kit.Lesson, "main", lambda lesson, measure, draw: made.append(lesson))
        patch.setattr(sys, "argv", ["lesson"])
        for script in SCRIPTS:
            runpy.run_path(str(script), run_name="__main__")
    return {script.name: lesson.parser for script, lesson in zip(SCRIPTS, made)}


def require_taken(command: str, parsers: dict) -> None:
    """Parse it as its program would. SystemExit for an option that the program does not have."""
    words = shlex.split(command)
    words = words[words.index("python") + 1 :]
    if words[0] != "-m":
        assert words[0] in {f"lessons/{name}" for name in parsers}, command
        parsers[Path(words[0]).name].parse_args(words[1:])
        return
    program, rest = words[1], words[2:]
    if program in PROGRAMS:
        cut = rest.index("--") if "--" in rest else len(rest)
        PROGRAMS[program]().parse_args(rest[:cut] + rest[cut : cut + 2])
        if rest[cut:]:
            require_taken(shlex.join(rest[cut + 1 :]), parsers)
    else:
        assert program in ("refgf.doctor", "pytest"), command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_are_taken(page, parsers):
    for command in commands(page.read_text()):
        require_taken(command, parsers)


def test_a_wrong_command_is_noticed(parsers):
    for wrong in (
        "mpiexec -n 4 python lessons/06_csc.py --densitty 5",
        "python -m refgf.cluster run --lik mgwfbp-10gbe -- python lessons/03_lazy.py",
        "python -m refgf.course build 03 --for nobody",
    ):
        with pytest.raises((SystemExit, AssertionError)):
            require_taken(wrong, parsers)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_page_is_complete(number):
    text = (LESSONS / "teaching" / f"{number}.md").read_text()
    places = [text.find(section) for section in SECTIONS]
    assert -1 not in places and places == sorted(places), dict(zip(SECTIONS, places))
    answers = text.split("## Three misconceptions")[1].split("\n## ")[0]
    assert re.findall(r"^([a-z])\. ", answers, flags=re.MULTILINE) == ["a", "b", "c"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_colleague_says_three_things_and_options_are_taken(script, parsers):
    """Each has something to run, whose options the lesson takes."""
    doc = script.read_text().split('"""')[1]
    said = " ".join(doc.split("A COLLEAGUE SAYS")[1].split())
    things = re.split(r" [abc]\. ", said)[1:]
    assert len(things) == 3 and all(re.match(r'"[^"]+" \S', thing) for thing in things)
    assert "After this lesson you can" in " ".join(doc.split())
    known = parsers[script.name]._option_string_actions
    assert set(re.findall(r"--[a-z-]+", said)) <= set(known)


def minutes(number: str) -> tuple[int, int]:
    """A page's minutes in class and at home; its plan adds up to the first."""
    text = (LESSONS / "teaching" / f"{number}.md").read_text()
    class_min, home_min = map(int, re.findall(r"\*\*(?:Class|Home)\*\* (\d+)", text))
    plan = re.search(r"^Minutes: (.*?)\.", text, re.MULTILINE | re.DOTALL)[1]
    assert sum(int(part.split()[0]) for part in plan.split(",")) == class_min, number
    return class_min, home_min


COLUMNS = ["week", "meeting", "minutes", "lesson", "deck", "what you do", "home", "marks", "cut"]
PLANS = {"One week": 50, "Two weeks": 50, "Four weeks": 50, "Seven weeks": 90}  # minutes a meeting


def plan_of(name: str) -> str:
    """The text of a plan."""
    text = (LESSONS / "teaching" / "plans.md").read_text()
    return text.split(f"\n## {name}")[1].split("\n## ")[0]


def meetings(name: str) -> list[dict[str, str]]:
    """The rows of a plan's table, which is its first."""
    lines = itertools.dropwhile(lambda line: "|" not in line, plan_of(name).splitlines())
    head, _, *rows = itertools.takewhile(lambda line: line.startswith("|"), lines)
    assert cells(head) == COLUMNS, name
    return [dict(zip(COLUMNS, cells(row), strict=True)) for row in rows]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_the_weeks_add_up():
    """A week has time for its two lessons' pages, and the minutes at home are theirs."""
    assert all(map(minutes, NUMBERS))
    lessons = [row["lesson"] for row in meetings("Seven weeks")]
    weeks = list(zip(lessons[::2], lessons[1::2], strict=True))
    assert len(weeks) == 7 and weeks.pop() == ("project", "project")
    found = [[a + b for a, b in zip(*map(minutes, week), strict=True)] for week in weeks]
    assert max(in_class for in_class, _ in found) + 10 <= 2 * PLANS["Seven weeks"]
    said = re.search(r"Weeks 1 to 6 need ([\d, ]+) and (\d+)\s", plan_of("Seven weeks"))
    assert [*map(int, said[1].split(", ")), int(said[2])] == [home for _, home in found]


def slides_of(cell: str) -> list[tuple[str, int]]:
    """(deck, slide) of each that a cell names: "04: 9-11, 05: 1-8"."""
    found = re.findall(r"(\d\d): (\d+)-(\d+)", cell)
    return [(deck, place) for deck, a, b in found for place in range(int(a), int(b) + 1)]


def slides_min(cell: str) -> int:
    """The minutes of these slides by their notes."""
    found = 0
    for deck, place in slides_of(cell):
        notes = (LESSONS / "slides" / f"{deck}.md").read_text()
        found += int(re.findall(r"^(\d+) min\.", notes, re.M)[place - 1])
    return found


@pytest.mark.parametrize("name", PLANS)
def test_the_meetings_add_up(name):
    """Items have a meeting's minutes, slides those of their notes, and each row what to cut."""
    for row in meetings(name):
        items = [item.split(": ", 1) for item in row["what you do"].split("; ") if ": " in item]
        total = sum(int(count) for count, _ in items)
        assert total == int(row["minutes"]) == PLANS[name], row
        slides = [int(count) for count, what in items if re.match(r"slides\b", what)]
        assert sum(slides) == slides_min(row["deck"]), row
        assert row["lesson"] and row["cut"], row
        assert not row["marks"] or row["home"], row


def test_four_weeks_show_the_decks_but_some_slides():
    plan, rows = plan_of("Four weeks"), meetings("Four weeks")
    assert len(rows) == 12
    shown = [slide for row in rows for slide in slides_of(row["deck"])]
    decks = {deck: (LESSONS / "slides" / f"{deck}.md").read_text() for deck, _ in shown}
    count = {deck: len(re.findall(r"^\d+ min\.", text, re.M)) for deck, text in decks.items()}
    read = [("06", 8), ("06", 9), ("06", 10), ("07", 7), ("07", 8)]
    assert re.search(r"Slides 8 to 10 of deck 06\s[^.]* and 7 and 8 of deck 07", plan)
    every = [(deck, place) for deck in decks for place in range(1, count[deck] + 1)]
    assert shown == [slide for slide in every if slide not in read]
    extra = re.search(r"07\.py` is\nleft out: (\d+) marks and (\d+) minutes", plan).groups()
    assert (points("07"), minutes("07")[1]) == tuple(map(int, extra))


def test_each_laboratory_has_commands_to_type():
    """Its row links to the page of a lesson, whose section measures a student's file."""
    plan = plan_of("Four weeks")
    rows = [line for line in plan.splitlines() if "| lab |" in line]
    assert len(rows) == 4
    for row in rows:
        number = re.search(r"\((\d\d)\.md#in-the-laboratory\)", row)[1]
        page = (LESSONS / "teaching" / f"{number}.md").read_text()
        section = page.split("## In the laboratory\n")[1].split("\n## ")[0]
        mine = f"--mine lessons/student/{number}.py"
        assert any(mine in command for command in commands(section)), number


def test_no_answer_is_shown_before_its_run():
    """A slide that a run comes before follows a yellow one, which asks."""
    for line in (LESSONS / "teaching" / "plans.md").read_text().splitlines():
        for place in map(int, re.findall(r"before slide (\d+)", line)):
            deck = next(deck for deck, shown in slides_of(line.split("|")[5]) if shown == place)
            slides = (LESSONS / "slides" / f"{deck}.md").read_text().split("\n---\n")
            assert "_class: question" in slides[place - 1], line


def test_the_slip_takes_the_guess_before_each_run():
    """One a lesson, from a yellow slide that the plan shows and whose note names the slip."""
    plan = plan_of("Four weeks")
    rows = [line.split("|")[5] for line in plan.splitlines() if line.count("|") == 10]
    places = re.findall(r"(\d\d): (\d+)", plan.split("The slip takes")[1].split("What was")[0])
    assert [deck for deck, _ in places] == ["01", "01", "03", "04", "05", "06", "07"]
    for deck, place in places:
        slide = (LESSONS / "slides" / f"{deck}.md").read_text().split("\n---\n")[int(place)]
        assert "_class: question" in slide and "SLIP" in slide, (deck, place)
        assert any((deck, int(place)) in slides_of(row) for row in rows), (deck, place)


def test_the_home_work_and_the_hours_of_four_weeks_add_up():
    """Reading by the modules' lines, within 3 minutes; the teacher's minutes by their products."""
    plan = plan_of("Four weeks")
    rows = re.findall(r"^\| \d \| `(.+?)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", plan, re.M)
    weeks = [["00", "01"], ["03"], ["04", "05"], ["06"]]
    assert len(rows) == len(weeks)
    for week, (module, *said) in zip(weeks, rows):
        reading, exercises, page, total = map(int, said)
        lines = len((LESSONS.parent / "refgf" / module).read_text().splitlines())
        assert abs(reading - lines / 5) <= 3, module
        assert exercises == sum(minutes(number)[1] for number in week)
        assert total == reading + exercises + page
    hours = re.findall(r"\| (\d+) x (\d+)(?: / (\d+))? = (\d+) \|", plan)
    assert len(hours) == 7
    assert all(int(a) * int(b) == int(c or 1) * int(d) for a, b, c, d in hours)
    total_min = sum(int(each[3]) for each in hours)
    assert round(total_min / 60) == int(re.search(r"That is (\d+) hours", plan)[1])


def points(number: str) -> int:
    """What `grade` gives for a lesson's right answers."""
    return sum(exercise.points for exercise in exercises_of(number))


@pytest.mark.parametrize("name", PLANS)
def test_the_marks_of_the_plans_add_up(name):
    """Of each exercise that is written at home, a file or one of its functions."""
    said, given = 0, 0
    for row in meetings(name):
        function, number = re.search(
            r"(?:`(\w+)` of )?`student/(\d\d)\.py`|$", row["home"]
        ).groups()
        if number:
            each = {e.name: e.points for e in exercises_of(number)}
            assert int(row["marks"]) == (each[function] if function else sum(each.values())), row
            said += int(row["marks"])
            given += next(iter(each.values()))
    plan = plan_of(name)
    assert said == int(re.search(r"(\d+)\smarks", plan)[1]) > 0
    assert name != "Four weeks" or f"(marks - {given}) / ({said} - {given})" in plan


def test_shown_and_other_exercises_are_all_that_are_to_write():
    """The table of the functions that a lesson's IDEA shows names each one but the first, given."""
    text = (LESSONS / "teaching" / "README.md").read_text().split("| shown | not shown |")[1]
    rows = dict(re.findall(r"^\| (\d\d) \| (.*)$", text.split("\n\n")[0], re.MULTILINE))
    assert list(rows) == NUMBERS
    for number, row in rows.items():
        starter = (LESSONS / "student" / f"{number}.py").read_text()
        wanted = re.findall(r"^def (\w+)", starter, re.MULTILINE)[1:]
        assert sorted(re.findall(r"`(\w+)`", row)) == sorted(wanted), number


@pytest.mark.parametrize("number", NUMBERS)
def test_an_example_of_a_guess_is_not_the_answer(number):
    """It stands where students read it before their run."""
    text = (LESSONS / "teaching" / f"{number}.md").read_text()
    guess = re.search(r'--predict "(.+?)"', text)[1]
    answer = re.search(r"^ +Measured: (.+(?:\n {8}.+)*)", text, re.MULTILINE)[1]
    assert not gives_away(guess, answer), f"{number}: {guess} is the answer: {answer}"


def gives_away(guess: str, answer: str) -> bool:
    """Is a guess's first number within a fifth of the answer's, or, without one, its first word?"""
    guessed, measured = (re.findall(r"\d+(?:\.\d+)?", words) for words in (guess, answer))
    if not guessed:
        return answer.lower().startswith(guess.lower())
    units = [re.search(r"[KMG]iB", words) for words in (guess, answer)]
    same_unit = len({unit and unit[0] for unit in units}) == 1
    return same_unit and 1 / 1.2 < float(guessed[0]) / float(measured[0]) < 1.2


def test_what_gives_an_answer_away():
    assert gives_away("16 MiB", "theta = 16 MiB, 6 calls") and gives_away("5 times", "4.9 times")
    assert gives_away("CSC", "CSC, 6.82 ms") and not gives_away("top-k", "CSC, 6.82 ms; top-k")
    assert not gives_away("64 KiB", "theta = 64 MiB") and not gives_away("9 times", "4.9 times")


@pytest.mark.parametrize("number", NUMBERS)
def test_a_drawing_can_be_read_aloud(number):
    root = ElementTree.parse(LESSONS / "drawings" / f"{number}.svg").getroot()
    texts = {child.tag.split("}")[1]: child for child in root}
    labels = {texts[tag].get("id") for tag in ("title", "desc")}
    assert root.get("role") == "img" and set(root.get("aria-labelledby").split()) == labels
    assert len(texts["title"].text.split()) >= 4 and len(texts["desc"].text.split()) >= 20
    assert "paint-order" not in (LESSONS / "drawings" / f"{number}.svg").read_text(), (
        "programs for slides ignore it and draw a white stroke over the text; "
        "next: draw the stroke first, with <use>"
    )
