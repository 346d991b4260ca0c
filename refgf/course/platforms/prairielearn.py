"""PrairieLearn: a question whose external grader is pytest-prairielearn-grader.

https://github.com/eliotwrobson/pl-python-autograder-v2/blob/main/quick_start.md
https://prairielearn.readthedocs.io/en/latest/externalGrading/

That grader would import a student's file itself. Its fixtures for this are not used: a test asks
for one part's sentence, and the oracle's wall is around the file.
"""

import json
import uuid
from pprint import pformat

from refgf.course.lesson import LessonFiles
from refgf.oracle.grade.marking import parts

AUTOGRADER = "refgf.course.autograder.submission"
ZIP = ""
BUNDLE = "tests/autograder/"

IMAGE = "eliotwrobson/grader-python-pytest:latest"
MOST_SECONDS = 600  # PrairieLearn's limit for a job, for slow containers

QUESTION = """<pl-question-panel>
  <p>Fill in the functions of <code>{name}</code>. Exercise 1 is done, as an example.</p>
  <pl-file-download file-name="{name}"></pl-file-download>
  <pl-file-upload file-names="{name}"></pl-file-upload>
</pl-question-panel>
<pl-submission-panel>
  <pl-external-grader-results></pl-external-grader-results>
  <pl-file-preview></pl-file-preview>
</pl-submission-panel>
"""

TESTS = '''"""{title}: a test for each part of an exercise, marked by the oracle."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).with_suffix("")  # the grader moves autograder/ and the submission there
sys.path.insert(0, str(FOLDER / "autograder"))
from {module} import sentence  # noqa: E402

output_level = "friendly"  # students read the sentence alone
PARTS = {parts}


def test(exercise: int, part: int) -> None:
    found = sentence(FOLDER / "student", exercise, part)
    if found != "right":
        pytest.fail(found, pytrace=False)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = pytest.mark.grading_data
    rows = [pytest.param(*p, id=n, marks=mark(name=n, points=of)) for *p, n, of in PARTS]
    metafunc.parametrize("exercise, part", rows)
'''

# A student's file called test_x.py or conftest.py would run in the process that marks.
CONFTEST = 'collect_ignore = ["autograder", "student"]\n'


def files(lesson: LessonFiles) -> dict[str, str]:
    found = [
        (i, k, f"{exercise.name}: {what}", points)
        for i, exercise in enumerate(lesson.exercises)
        for k, (what, points) in enumerate(parts(exercise))
    ]
    info = {
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"refgf/lesson/{lesson.number}")),
        "title": lesson.title,
        "topic": "Distributed training",
        "type": "v3",
        "singleVariant": True,
        "gradingMethod": "External",
        "externalGradingOptions": {"enabled": True, "image": IMAGE, "timeout": MOST_SECONDS},
    }
    name = lesson.starter.name
    text = TESTS.format(title=lesson.title, module=AUTOGRADER, parts=pformat(found, width=100))
    return {
        "info.json": json.dumps(info, indent=2) + "\n",
        "question.html": QUESTION.format(name=name),
        f"clientFilesQuestion/{name}": lesson.starter.read_text(),
        "tests/test_student.py": text,
        "tests/conftest.py": CONFTEST,
    }


def install(lesson: LessonFiles) -> str:
    return f"""
1. Copy all of `autograder/` into the folder `questions/refgf-{lesson.number}/` of your course, and
   sync the course. It is a question with an external grader, in the image `{IMAGE}`,
   which has NumPy 2.
2. Give the question {lesson.points} points in an assessment. PrairieLearn multiplies them by the
   share of points that the grader reports.
3. Submit `instructor/answers_{lesson.number}.py` as `{lesson.number}.py`, then
   `starter/{lesson.number}.py`. Wanted: all points, then those of the starter in the table below.
4. Look at the log of a grading job, which only staff sees. Where the container keeps a student's
   file from less than the wall wants, the log says that marks are not safe.

Students download the starter from the question and upload `{lesson.number}.py`. A test is one part
of an exercise, such as *values* or *bytes*.
"""
