"""Lessons by other rules: what published answers get; starter and answers follow the rules."""

import ast
import re
import runpy

import pytest

from refgf.course.__main__ import main
from refgf.course.autograder.submission import marks_of_file
from refgf.course.build import build, seed_of, starter
from refgf.course.lesson import LESSONS, lesson_files, most_shared, next_variant
from refgf.oracle.grade.marking import answered, grade, parts
from refgf.oracle.grade.trusted import costs, mark_of
from refgf.oracle.spec.change import CHANGES, alike, chosen, rules
from refgf.oracle.spec.exercise import PUBLIC_SEED, Exercise

SEED = 4711
RULES = {  # some numbers choose alike
    (lesson, *(change.says for change in chosen(lesson, number))): f"{lesson}v{number}"
    for lesson in CHANGES
    for number in range(20)
}
VARIANTS = sorted(RULES.values())


def few() -> set[str]:
    """Variants that have each change of each lesson at least once."""
    found, seen = set(), set()
    for (lesson, *says), name in sorted(RULES.items(), key=lambda item: (-len(item[0]), item[1])):
        if not {(lesson, each) for each in says} <= seen:
            found.add(name)
            seen |= {(lesson, each) for each in says}
    return found


FEW = few()


def points(functions, lesson, seeds=(SEED,)):
    seeds = (PUBLIC_SEED, *seeds)
    return sum(mark_of(each, functions[each.name], seeds).points for each in lesson.exercises)


@pytest.mark.parametrize("name", sorted(FEW))
def test_published_answers_get_few_points_and_the_variants_own_get_all(name):
    lesson, published = lesson_files(name), lesson_files(name[:2])
    assert points(runpy.run_path(str(published.answers)), lesson) <= 0.4 * lesson.points
    mine = runpy.run_path(str(lesson.answers))
    assert points(mine, lesson) == lesson.points == published.points
    for exercise in [each for each in lesson.exercises if each not in published.exercises]:
        assert [m.sentence for m in exercise.mistakes if not costs(exercise, m)] == []


@pytest.mark.parametrize("name", VARIANTS)
def test_the_starter_says_all_rules(name):
    mine, theirs = lesson_files(name), lesson_files(name[:2])
    text, published = mine.starter.read_text(), theirs.starter.read_text()
    said = published + "".join(what for e in theirs.exercises for what, _ in parts(e))
    said += "".join(m.sentence for e in theirs.exercises for m in e.mistakes)
    for change in chosen(name[:2], int(name[3:])):
        assert [old for old in change.words if old not in said] == []
    assert max(map(len, text.splitlines())) <= 100 and "lessons/student" not in text
    assert f"grade {name} {name}.py" in text and "--mine" not in text
    assert not re.search(r"\n {4}\w+\n {4}[a-z]", text), "a word alone within a paragraph"
    assert not re.search(r"\d{7}\.0\b|\.\d{13}", text), "wanted 6e9, 0.6"
    for exercise in [e for e in mine.exercises[1:] if isinstance(e, Exercise)]:
        (example, *_) = re.findall(rf"    ({exercise.name}\(.*?\)\s+-> .+?)(?= {{3,}}|\n)", text)
        assert example not in published or exercise.name == "sum_calls", example


def test_the_head_of_lesson_03_excepts_a_pool_that_is_turned():
    for number in range(8):
        texts = starter(lesson_files(f"03v{number}"))
        text = " ".join(texts[f"03v{number}.py"].decode().split())
        head = "in the order in which backward makes them, except in exercise 3."
        assert (head in text) == ("the last gradient lies first in the pool" in text)
        assert (head in text) == ("here the last gradient lies first" in rules("03", number))


@pytest.mark.parametrize("name", [*CHANGES, *sorted(FEW)])
def test_an_examples_call_can_be_typed(name):
    """With the names that the starter has: np.inf, not math.inf where it imports NumPy alone."""
    file, calls = lesson_files(name).starter, 0
    known = runpy.run_path(str(file))
    for exercise in lesson_files(name).exercises:
        for call in re.findall(rf"(?<=    )({exercise.name}\(.*?\))\s+->", file.read_text()):
            names = [each.id for each in ast.walk(ast.parse(call)) if isinstance(each, ast.Name)]
            assert [each for each in names if each not in known] == [], call
            calls += 1
    assert calls


def test_numbers_that_choose_alike_are_found():
    """What students read and write is alike, but for the name; of other numbers it is not."""

    def text(number):
        files = lesson_files(f"03v{number}")
        both = files.starter.read_text() + files.answers.read_text()
        return both.replace(files.number, "03vN")

    for number in (0, 11, 14):
        wanted = [n for n in range(number) if text(n) == text(number)]
        assert alike("03", number) == wanted
    assert alike("03", 11) == [10] and alike("03", 11, 0) == [] and len(rules("03", 11)) == 3


def test_the_page_says_what_a_neighbours_variant_gets():
    """And the answers that the public project writes for a variant get all points."""
    page = (LESSONS / "teaching" / "README.md").read_text()
    asked = lesson_files("03v1")
    found = points(runpy.run_path(str(lesson_files("03v3").answers)), asked)
    assert f"those of 03v3 get {found} of {asked.points} as 03v1" in page
    assert alike("03", 11) == [10] and "10 and 11 in lesson 03 for example" in page


@pytest.mark.parametrize(
    "name, numbers",
    [
        ("01", "0, 1, 2, 3, 5, 8"),
        ("03", "0, 1, 5, 21"),
        ("05", "0, 3, 9, 14"),
        ("06", "0, 1, 9, 11"),
        ("17", "2, 3, 5, 11"),
    ],
)
def test_the_page_names_variants_for_groups(name, numbers):
    most, of, *_ = most_shared([f"{name}v{n}" for n in numbers.split(", ")], SEED)
    page = " ".join((LESSONS / "teaching" / "README.md").read_text().split())
    assert f"{numbers} in lesson {name} (at most {most} of {of})" in page, most


def test_variants_of_a_class_are_built_at_once_with_one_seed(tmp_path, capsys):
    made = ["build", "03", "--variant", "1,5", "--for", "plain", "--output", str(tmp_path / "c")]
    assert main(made) == 0
    folders = [tmp_path / "c" / name for name in ("03v1", "03v5")]
    seed = seed_of(folders[0])
    assert seed and seed == seed_of(folders[1])
    points, of, whose, where, others = most_shared(["03v1", "03v5"], seed)
    said = f"get at most {points} of {of} points in another: {whose}'s as {where}; of the other "
    assert (
        said in capsys.readouterr().out and 0 < points < of and {whose, where} == {"03v1", "03v5"}
    )
    assert all((folder / "starter" / f"{folder.name}.py").is_file() for folder in folders)
    assert (
        main([*made[:3], "1,-5", *made[4:]]) == 2 and "wanted one lesson" in capsys.readouterr().err
    )


def test_pairs_above_half_are_counted_besides_the_worst():
    """10 and 11 choose the same rules in lesson 03: each has all points in the other."""
    points, of, *_, others = most_shared(["03v10", "03v11", "03v5"], SEED)
    assert (points, others) == (of, 1)
    assert most_shared(["03v10", "03v11"], SEED)[-1] == 1
    twice = next_variant("03", [10, 11])
    assert twice[-1] == (2 * twice[1] > of)


def in_next(lesson, earlier, number):
    """What the answers to earlier variants get in another one: (the most, of)."""
    asked = lesson_files(f"{lesson}v{number}")
    files = [lesson_files(f"{lesson}v{n}").answers for n in earlier]
    return max(points(runpy.run_path(str(file)), asked, ()) for file in files), asked.points


@pytest.mark.parametrize("lesson, earlier", [("03", [7]), ("04", [1]), ("04", [0, 3]), ("08", [9])])
def test_the_next_variant_shares_least_with_earlier_ones(lesson, earlier):
    """At most half, and no other rules share less; a number behind the earlier ones."""
    number, most, of, whose, others = next_variant(lesson, earlier)
    assert not others
    assert number > max(earlier) and whose in earlier and 2 * most <= of
    assert (most, of) == in_next(lesson, earlier, number)
    others = {tuple(rules(lesson, n)): n for n in range(40)}.values()
    assert min(in_next(lesson, earlier, n)[0] for n in others) == most


def test_a_build_after_earlier_ones(tmp_path, capsys):
    made = ["build", "04", "--for", "plain", "--output", str(tmp_path), "--after"]
    assert main([*made, "1"]) == 0
    number, most, of, *_ = next_variant("04", [1])
    said = f"variant {number}: earlier answers get at most {most} of {of} in it: variant 1's\n"
    printed = capsys.readouterr().out
    assert printed.startswith(said) and (tmp_path / "starter" / f"04v{number}.py").is_file()
    each = sorted({tuple(rules("04", n)): n for n in range(40)}.values())
    assert main([*made, ",".join(map(str, each))]) == 0  # nothing is left to ask
    head, said, *_ = capsys.readouterr().out.splitlines()
    assert "more than half" in head and f"at most {of} of {of} in it: variant" in said
    assert f"; of the others' {next_variant('04', each)[-1]} get more than half" in said
    assert main([*made, "-1"]) == 2 and "got 04 --after -1; wanted" in capsys.readouterr().err


def test_sentences_follow_what_a_call_costs():
    def sentences(name):
        return [mistake.sentence for mistake in lesson_files(name).exercises[3].mistakes]

    assert rules("03", 11)[1] == "here the first call pays no latency"
    assert rules("03", 1)[1] == "here each call pays a twice"
    published = sentences("03")[0]
    assert published.startswith("every call pays")
    assert published not in sentences("03v11") + sentences("03v1")
    assert sentences("03v11")[0].startswith("every call after the first pays the latency")
    assert sentences("03v1")[0].startswith("every call pays the latency a twice")


@pytest.mark.parametrize(
    "asked, seed, said",
    [
        (
            "03",
            (SEED,),
            "variant 7 of lesson 03, and it is marked here by lesson 03 as published: ",
        ),
        ("03v3", (), "variant 7 of lesson 03, and it is marked here by variant 3 of lesson 03: "),
        ("03v7", (), ""),
    ],
)
def test_a_file_that_answers_another_variant_is_told_which(asked, seed, said):
    """By the oracle, and on a platform, which has a seed."""
    file = lesson_files("03v7").answers
    marks = (marks_of_file if seed else grade)(file, asked, *seed)
    lost = [part.sentence for each in marks for part in each.parts if part.sentence]
    assert bool(lost) == bool(said)
    assert said in "".join(lost[:1]) and not any("answers variant" in s for s in lost[1:])
    assert f"python -m refgf.oracle grade 03v7 {file.name}" in "".join(lost[:1]) or not said


def test_a_published_file_says_nothing_of_variants(tmp_path):
    """Nor does one whose docstring is gone, or one that no parser reads."""
    starter = lesson_files("03").starter
    assert (answered(starter), answered(lesson_files("16v2").starter)) == ("03", "16v2")
    for text in ("import math\n", "def f(:\n", "", '"""Mine, of 7v7.py"""'):
        (tmp_path / "a.py").write_text(text)
        assert answered(tmp_path / "a.py") == ""
    assert not any("its first lines" in p.sentence for m in grade(starter, "3") for p in m.parts)


@pytest.mark.long
def test_a_package_of_a_variant(tmp_path, capsys, monkeypatch):
    name = "03v7"
    arguments = ["build", "03", "--variant", "7", "--for", "plain", "--output", str(tmp_path)]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert all(change.says in printed for change in chosen("03", 7))
    assert (tmp_path / "starter" / f"{name}.py").is_file()
    readme, published = (tmp_path / "starter" / "README.md").read_text(), lesson_files("03")
    assert f"grade {name} {name}.py" in readme
    assert f"Where `{name}.py` differs, it counts." in readme.partition("## Words")[2]
    assert b"differs, it counts" not in starter(published)["README.md"]
    page = (tmp_path / "instructor" / "README.md").read_text()
    assert "as in the published exercise; here" in page and f"build {name} --for plain" in page
    assert build(name, "plain", None, str(tmp_path)) == tmp_path
    archive = ["build", "03", "--variant", "7", "--solutions", "private"]
    assert main([*archive, "--output", str(tmp_path / "students")]) == 0
    data = (tmp_path / "students" / "refgf-students.zip").read_bytes()
    assert b"lessons/student/03v7.py" in data and b"lessons/student/03.py" not in data
    capsys.readouterr()
    monkeypatch.delitem(CHANGES, "01")
    for wrong in (["build", "01", "--variant", "1"], ["build", "03", "--variant", "-1"]):
        assert main([*wrong, "--for", "plain"]) == 2 and "; wanted one" in capsys.readouterr().err


def test_the_title_names_the_variant():
    assert lesson_files("03v7").title == f"{lesson_files('03').title}, variant 7"
