"""The students' archive, unpacked as a student would: it runs, and the answers are not in it."""

import ast
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from refgf.course import package
from refgf.course.__main__ import main
from refgf.course.build import build
from refgf.course.package import ARCHIVE, FOLDER

ROOT = Path(__file__).resolve().parents[2]
LIKE_THE_ANSWER = {  # the project's own functions, line by line: only a variant asks otherwise
    ("00", "gradient"),
    ("01", "ring_seconds"),
    ("07", "rounded"),
    ("08", "predicted_efficiency"),
    ("11", "lars_ratio"),
    ("15", "roofline"),
}


def unpacked(lesson, place):
    assert main(["build", lesson, "--solutions", "private", "--output", str(place / "built")]) == 0
    with zipfile.ZipFile(place / "built" / ARCHIVE) as file:
        file.extractall(place)
    return place / FOLDER


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    return unpacked("all", tmp_path_factory.mktemp("all"))


def run(folder, *arguments):
    """The unpacked files' own refgf, which knows nothing of this checkout."""
    environment = {"PATH": os.defpath, "PYTHONPATH": str(folder), "HOME": str(folder)}
    given = {"cwd": folder, "env": environment, "capture_output": True, "text": True}
    return subprocess.run([sys.executable, *arguments], timeout=250, **given)


def functions(file):
    """[(name, code without docstrings)] of a file."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef):
            body = [each for each in node.body if not is_text(each)]
            yield node.name, "\n".join(map(ast.unparse, body))


def is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_a_lesson_and_its_marks(tmp_path):
    folder = unpacked("3", tmp_path)
    assert [file.name for file in (folder / "lessons" / "student").iterdir()] == ["03.py"]
    marked = run(folder, "-m", "refgf.oracle", "grade", "03", "lessons/student/03.py")
    assert "2 of 16 points" in marked.stdout, marked.stderr
    answers = ROOT / "lessons" / "teaching" / "answers" / "03.py"
    marked = run(folder, "-m", "refgf.oracle", "grade", "03", str(answers))
    assert "16 of 16 points" in marked.stdout, marked.stderr
    lesson = run(folder, "lessons/03_lazy_allreduce.py", "--threads", "2", "--quick")
    assert lesson.returncode == 0, lesson.stderr
    assert (folder / "results" / "quick" / "03_lazy_allreduce.png").is_file()


@pytest.mark.parametrize("lesson", ["00", "6", "16v3"])
def test_the_readme_of_one_lesson_names_what_is_there(tmp_path, lesson):
    folder = unpacked(lesson, tmp_path)
    text = (folder / "README.md").read_text()
    named = set(re.findall(r"\b(?:lessons|figures)/[\w./]+\w", text))
    assert len(named) > 4 and [name for name in sorted(named) if not (folder / name).exists()] == []
    targets = re.findall(r"`make ([\w-]+)", text)
    said = text[text.index("targets\n") : text.index(" work here")]
    targets += re.findall(r"`(.+?)`", said)
    own = f"lesson-{lesson[:2].zfill(2)}"
    assert {"setup", "demo", own, f"cluster-{own}"} == set(targets)
    for target in [*targets, ""]:
        made = subprocess.run(
            ["make", "-n", *target.split()], cwd=folder, capture_output=True, text=True, timeout=60
        )
        assert made.returncode == 0 and "can't read" not in made.stderr, (target, made.stderr)
        scripts = set(re.findall(r"lessons/\d\d_[\w*]+\.py", made.stdout))
        assert all(any(folder.glob(name)) for name in scripts) and (scripts or target == "setup")
    assert "This archive has lesson " in (folder / "lessons" / "README.md").read_text()


def test_the_readme_of_all_lessons_names_each_ones_targets(everything):
    text = (everything / "README.md").read_text()
    assert "`lesson-NN` and `cluster-lesson-NN` work here" in text
    made = subprocess.run(["make", "-n", "cluster-lesson-17"], cwd=everything, capture_output=True)
    assert made.returncode == 0


@pytest.mark.long
def test_the_starter_names_the_archive_beside_it(tmp_path):
    build("06", "plain", 1, str(tmp_path / "private"), private=True)
    build("06", "plain", 1, str(tmp_path / "public"))
    private, public = (tmp_path / kind / "starter" for kind in ("private", "public"))
    text = (private / "README.md").read_text()
    assert f"`{ARCHIVE}`" in text and "checkout" not in text and (private / ARCHIVE).is_file()
    assert "oracle grade 06 lessons/student/06.py" in text
    assert "in a checkout of refgf" in (public / "README.md").read_text()


def test_no_answers_in_the_archive_of_all_lessons(everything):
    code = {body for file in everything.rglob("*.py") for _, body in functions(file)}
    found = set()
    for answers in (ROOT / "lessons" / "teaching" / "answers").glob("*.py"):
        given = set(functions(everything / "lessons" / "student" / answers.name))
        mine = set(functions(answers)) - given
        found |= {(answers.stem, name) for name, body in mine if body in code}
    assert found == LIKE_THE_ANSWER


def test_nothing_names_or_imports_what_is_withheld(everything):
    files = [file for file in everything.rglob("*") if file.suffix in (".py", ".md", ".ipynb")]
    names = {str(file.relative_to(everything)) for file in everything.rglob("*")}
    assert len(files) > 500 and not [name for name in names if name.startswith(package.PRIVATE)]
    for file in files:
        text = file.read_text()
        assert not re.search(r"\b(teaching|solutions|answers)/|the solutions", text), file
        if file.suffix == ".py":
            for node in ast.walk(ast.parse(text)):
                module = getattr(node, "module", None) or ""
                assert not module.startswith(("refgf.course", "refgf.site")), file
    assert "refgf.course" not in (everything / "pyproject.toml").read_text()
    assert "course" not in run(everything, "-m", "refgf", "--help").stdout


def test_a_file_that_names_answers_is_refused():
    with pytest.raises(ValueError, match="'solutions/' in lessons/kit/x.py, line 2; wanted"):
        package.without_names("lessons/kit/x.py", b"\n# see lessons/solutions/03")


def test_notes_beside_tracked_files_stay_at_home(tmp_path, monkeypatch):
    monkeypatch.setattr(package, "ROOT", tmp_path)
    with pytest.raises(ValueError, match="wanted a clone"):
        package.taken()
    for command in (["init", "-q"], ["add", "lessons/kit/a.py"]):
        (tmp_path / "lessons" / "kit").mkdir(parents=True, exist_ok=True)
        for name in ("a.py", "exam.py"):
            (tmp_path / "lessons" / "kit" / name).touch()
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    assert package.taken() == ["lessons/kit/a.py"]


def test_wrong_arguments(tmp_path, capsys):
    def error(*arguments):
        assert main(["build", *arguments, "--output", str(tmp_path / "x")]) == 2
        assert not (tmp_path / "x").exists()
        return capsys.readouterr().err

    assert "got no --for; wanted one of gradescope" in error("01")
    assert "got lesson 'all'; wanted one of 00" in error("all", "--for", "plain")
    assert "got lesson '77'" in error("77", "--solutions", "private")
