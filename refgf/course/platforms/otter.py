"""Otter-Grader: its configuration zip, with tests in OK format.

https://otter-grader.readthedocs.io/en/latest/workflow/otter_generate/container_image.html

Otter would run a student's file in the process that marks it. It prefers a notebook to a Python
file, so the zip brings a notebook of one cell; Otter runs this, and the tests mark the student's
file behind the oracle's wall.
"""

import json
from pprint import pformat

from refgf.course.lesson import LessonFiles
from refgf.course.platforms.scripts import run, setup
from refgf.oracle.grade.marking import parts

AUTOGRADER = "refgf.course.autograder.otter"
ZIP = "autograder.zip"
BUNDLE = "tests/autograder/"  # the only folders that `otter grade` copies are files/ and tests/

LIBRARIES = '"otter-grader[grading]>=7,<8" "numpy>=2"'

RUN_OTTER = f"""import sys
from pathlib import Path

from otter.run.run_autograder import main

root = Path(sys.argv[1])
sys.path.insert(0, str(root / "source" / "{BUNDLE[:-1]}"))
from {AUTOGRADER} import leave_only_the_file  # noqa: E402

leave_only_the_file(root / "submission")
main(str(root))
"""

# Otter runs it in the submission's folder, and the tests after it in the same process.
CELL = f"""\
import sys

sys.path.insert(0, "../source/{BUNDLE[:-1]}")
from {AUTOGRADER} import sentence
"""

NOTEBOOK = {
    "cells": [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": "marks",
            "metadata": {},
            "outputs": [],
            "source": CELL,
        }
    ],
    "metadata": {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    },
    "nbformat": 4,
    "nbformat_minor": 5,
}

CASE = """\
>>> print(sentence({exercise}, {part}))
right
"""

TEST = '''"""{name}, marked by the oracle."""

OK_FORMAT = True

test = {test}
'''


def files(lesson: LessonFiles) -> dict[str, str]:
    config = {"lang": "python", "show_all_public": True, "pdf": False}
    found = {
        "otter_config.json": json.dumps(config, indent=1) + "\n",
        "setup.sh": setup("import otter.run, numpy", LIBRARIES, system=False),
        "environment.yml": "# setup.sh installs everything\n",
        "run_autograder": run("run_otter.py"),
        "run_otter.py": RUN_OTTER,
        "files/marks.ipynb": json.dumps(NOTEBOOK) + "\n",
    }
    for i, exercise in enumerate(lesson.exercises):
        cases = [
            {
                "name": what,
                "code": CASE.format(exercise=i, part=k),
                "points": points,
                "hidden": False,
                "locked": False,
            }
            for k, (what, points) in enumerate(parts(exercise))
        ]
        suite = {"cases": cases, "scored": True, "setup": "", "teardown": "", "type": "doctest"}
        name = f"{i + 1} {exercise.name}"
        test = {"name": name, "points": None, "suites": [suite]}
        found[f"tests/{name.replace(' ', '_')}.py"] = TEST.format(
            name=name, test=pformat(test, width=100, sort_dicts=False)
        )
    return found


def install(lesson: LessonFiles) -> str:
    return f"""
- On your machine, in an environment of its own. Otter runs a notebook: `grading` brings its kernel.

      pip install {LIBRARIES}
      otter run -a autograder/{ZIP} {lesson.number}.py

  The file must have this name. Otter imports from its folder: `pandas.py` would run where marks are
  made. In containers and on Gradescope the zip leaves only the student's file, under this name.

- In containers, a folder of submissions:

      otter grade -n lesson-{lesson.number} --ext py -a autograder/{ZIP} SUBMISSIONS

  Without containers, for a class with a variant each, and to compare files: build `--for plain`,
  and `python -m refgf.course similar {lesson.number} SUBMISSIONS/*.py`.

- On Gradescope: upload `autograder/{ZIP}` under *Configure Autograder*.

Students submit `{lesson.number}.py`. Otter shows one question for each exercise and one test case
for each part. The zip has a notebook of one cell, which Otter runs in place of the student's file:
the tests mark the file in processes of its own. A submission that has a notebook too is refused by
Otter.
"""
