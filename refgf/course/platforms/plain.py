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

       python autograder/grade.py SUBMISSIONS --output marks-{lesson.number}

   `marks.csv` there has a line for each student; `NAME.txt` has the sentences for one. The column
   `answers` says which lesson a file's first lines name: another group's file says another one.
   A folder with the marks of other students or of another lesson is refused.
   The last lines name, for each kind, the files of which something could not be judged: hung,
   forbidden, no import. On a terminal a counter says how many files are done and how long the rest
   takes, and the end says the seconds a file. Ten right files took 8 s each in lesson 03 and 18 s
   in lesson 01, where each rank has processes of its own: 8 to 18 minutes for a class of 60.
   Measured on two processors that other programs used, too (load 9); idle ones take less.
4. Does each student have his own variant? Write a table with a line NAME,NUMBER for each and add
   `--variants variants.csv`: one command, with any variant's build, marks all of them.

Each file runs in processes of its own, with limits on time and memory. On Linux it cannot read
your files or `autograder/`, write files, use the network, or start processes (*Limits*, below). On
macOS it can do all that with your rights, and `grade.py` says so: keep `instructor/` and every
checkout of refgf on another account, or mark in a container, when the marks count.
"""
