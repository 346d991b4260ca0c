"""Gradescope: a zip with setup.sh and run_autograder.

https://gradescope-autograders.readthedocs.io/en/latest/specs/
"""

from refgf.course.lesson import LessonFiles
from refgf.course.platforms.scripts import launcher, run, setup
from refgf.oracle.grade.sandbox import FILE_S

AUTOGRADER = "refgf.course.autograder.gradescope"
ZIP = "autograder.zip"


def files(lesson: LessonFiles) -> dict[str, str]:
    return {
        "setup.sh": setup('import numpy; assert numpy.__version__ >= "2"', '"numpy>=2"'),
        "run_autograder": run("grade.py"),
        "grade.py": launcher(AUTOGRADER),
    }


def install(lesson: LessonFiles) -> str:
    return f"""
1. Create an assignment of the type *Programming Assignment*, with {lesson.points} autograder
   points.
2. Under *Configure Autograder* upload `autograder/{ZIP}`. Choose the base image Ubuntu 22.04 or
   newer. The build of the image installs Python 3.11 and NumPy where they are missing.
3. Under *Test Autograder* submit `instructor/answers_{lesson.number}.py`, then
   `starter/{lesson.number}.py`. Wanted: the points of the table below.
4. Set the time limit to 10 minutes, for slow containers: a file that hangs in every function takes
   {FILE_S:g} s and the start of its processes.
5. Students download `starter/` and submit `{lesson.number}.py`.

A test is one part of an exercise, such as *values* or *bytes*. All tests are visible.
"""
