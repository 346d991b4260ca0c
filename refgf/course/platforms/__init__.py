"""The platforms: the files of an autograder, and how a teacher installs them.

Each module has AUTOGRADER, the module that runs on the platform; `files`, {path: text} next to the
bundle; ZIP, the name of the archive or "" for a folder; and `install`, Markdown for the teacher.
"""

from types import ModuleType

from refgf.course.platforms import classroom50, gradescope, otter, plain, prairielearn

PLATFORMS: dict[str, ModuleType] = {
    "gradescope": gradescope,
    "prairielearn": prairielearn,
    "otter": otter,
    "plain": plain,
    "classroom50": classroom50,
}
