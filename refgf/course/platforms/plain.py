"""No platform: a script that marks a folder of submissions."""

from refgf.course.lesson import LessonFiles
from refgf.course.platforms.scripts import launcher

AUTOGRADER = "refgf.course.autograder.plain"
ZIP = ""


def files(lesson: LessonFiles) -> dict[str, str]:
    return {"grade.py": launcher(AUTOGRADER)}


def install(lesson: LessonFiles) -> str:
    return f"""
1. Give students `starter/`. They return `{lesson.number}.py`.
2. Collect the files in a folder: `NAME.py` or `NAME/{lesson.number}.py` for each student. The
   download of most learning platforms already has one of these forms.
3. With Python 3.11 or newer and NumPy 2:

       python autograder/grade.py SUBMISSIONS --output marks

   `marks/marks.csv` has a line for each student; `marks/NAME.txt` has the sentences for one.

Each file runs in a process of its own under your account, with limits on time and memory. It
cannot write files, use the network or read `autograder/`. It can read other files of yours, so
keep `instructor/` and every checkout of refgf on another machine or account when the marks count.
"""
