"""What a program of this project needs of the Python that runs it, and how a command ends.

`import refgf` looks at the first.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

NO_ROOM = (
    "got no space left for the output; wanted a disk with room; next: free some, or send the "
    "output elsewhere"
)


def prepare(program: str, flags: Any = sys.flags) -> None:
    """Ends a program of ours that has no docstrings; lets a lesson import what lies beside it.

    With `python -m` the folder where the user stands comes last, behind Python's and NumPy's.

    program: the file that Python runs, or the module after -m. Other people's programs are left
    alone.
    """
    folder, name = os.path.split(os.path.abspath(program))
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    lesson = os.path.isdir(os.path.join(folder, "kit")) and os.path.isdir(
        os.path.join(folder, "lab")
    )
    ours = lesson or folder.startswith((os.path.join(root, "refgf"), os.path.join(root, "lessons")))
    if flags.optimize > 1 and (ours or name.split(".")[0] == "refgf"):
        sys.exit(
            "refgf: got a Python without docstrings (-OO, or PYTHONOPTIMIZE=2); wanted them, "
            "because lessons, statements and help are read from them; next: unset PYTHONOPTIMIZE"
        )
    if program.split(".")[0] == "refgf" and not flags.safe_path and sys.path[0] == os.getcwd():
        sys.path.append(sys.path.pop(0))  # python -m: a student's numpy.py may lie there
    if flags.safe_path and lesson:  # PYTHONSAFEPATH, or -P: the folder is ours, and not the user's
        sys.path.insert(0, folder)


def program() -> str:
    """The file that Python runs, or the module after -m."""
    words = sys.orig_argv
    module = words[words.index("-m") + 1 :][:1] if "-m" in words else []
    return getattr(sys.modules.get("__main__"), "__file__", None) or "".join(module)


def ended(
    run: Callable[[], int | None], said: Callable[[Any], str], *errors: type[Exception]
) -> int:
    """The exit code of a command: what `run` returns (None: 0); 2 for these errors.

    said: error -> the sentence on stderr. A reader that wants no more, as `| head`, ends it without
    a word, with 2 too, because what was not printed may have been wrong.
    """
    try:
        code = run() or 0
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the interpreter must not flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except errors as error:
        print(said(error), file=sys.stderr)
    return 2
