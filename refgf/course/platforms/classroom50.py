"""Classroom 50: a folder with autograder.py for one assignment.

https://github.com/foundation50/classroom50/wiki/Advanced-Autograding
"""

from refgf.course.lesson import LessonFiles
from refgf.course.platforms.scripts import launcher

AUTOGRADER = "refgf.course.autograder.classroom50"
ZIP = ""

INSTALL_NUMPY = """try:
    import numpy  # noqa: F401
except ImportError:
    import subprocess

    pip = [sys.executable, "-P", "-m", "pip"]  # -P: not the student's pip.py
    subprocess.run([*pip, "install", "--quiet", "numpy>=2"], check=True)
"""


def files(lesson: LessonFiles) -> dict[str, str]:
    return {"autograder.py": launcher(AUTOGRADER, INSTALL_NUMPY)}


def install(lesson: LessonFiles) -> str:
    return f"""
1. Make a template repository of `starter/`.
2. Copy all of `autograder/` into the folder `CLASSROOM/autograders/ASSIGNMENT/` of your
   organisation's repository `classroom50`, commit and push.
3. Register the assignment, without declarative tests, which an `autograder.py` replaces:

       gh teacher assignment add ORG CLASSROOM ASSIGNMENT --name "{lesson.title}" \\
           --template OWNER/TEMPLATE

4. Accept the assignment as a test student, push `instructor/answers_{lesson.number}.py` as
   `{lesson.number}.py`, and look at the Release: it has the points and the sentences.

The default runtime has Python 3.14; the autograder installs NumPy with pip where it is missing. The
job stops after 15 minutes.

Hidden cases are not secret here. Classroom 50 publishes the folder on GitHub Pages and marks in the
student's own repository, so a student who looks for the seed finds it. When marks count, build
`--for plain` with another seed and mark the repositories again.
"""
