"""A student's own functions in a lesson: `--mine FILE`. First judged, then measured next to ours.

    run.mine = mine.of(run)         rank 0 asks the oracle's marker, then all ranks load the file
    "allreduce" in run.mine         is it written?
    run.mine["allreduce"](comm, x)  the student's, with a limit on its time
    run.mine.series(...)            their values and ours, for screen, JSON and figure

A lab says which functions of student/NN.py it uses, and how, in its `yours.py`:

    YOURS = Yours({"allreduce": "a line in the curve"}, measure)     measure(run, found) -> series

The file runs in the ranks' own processes: it is the student's machine. Only the judging is behind
the wall of refgf/oracle/foreign, which ends what hangs.
"""

import ast
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import refgf.launch as launch
from kit.reveal import indented
from kit.record import plain
from kit.rows import scaled
from refgf.oracle.grade import marking, report
from refgf.oracle.grade.student_process import load, sentence
from refgf.oracle.spec.exercise import Collective, copied

RIGHT, WRONG, NOT_WRITTEN, ABSENT = "right", "WRONG", "not written yet", "absent"
LIMITS_S = 20, 120  # of a call of a student's function: with --quick, without
CLUSTER_S = "seconds of the cluster"  # a unit: given in this machine's, which are longer


@dataclass(frozen=True)
class Yours:
    """What a lesson does with a student's functions.

    functions  {name: what it replaces or is compared with}
    measure    (run, result of the lesson) -> the series of `Mine.series`; on all ranks
    """

    functions: dict[str, str]
    measure: Callable

    def in_words(self) -> str:
        return ", ".join(f"{name} ({what})" for name, what in self.functions.items())


class Mine:
    """The functions of a student's file that are written. states: {name: RIGHT, WRONG, ...}"""

    def __init__(self, file: Path, module: ModuleType, states: dict[str, str], limit) -> None:
        self.file, self.states, self.dilation = file, states, 1.0
        self.references: dict[str, Callable] = {}
        self.functions = {
            name: limit.around(name, getattr(module, name))
            for name, state in states.items()
            if state in (RIGHT, WRONG)
        }

    def __contains__(self, name: str) -> bool:
        return name in self.functions

    def __getitem__(self, name: str) -> Callable:
        return self.functions[name]

    @property
    def wrong(self) -> list[str]:
        return [name for name, state in self.states.items() if state == WRONG]

    def ours(self, name: str) -> Callable:
        """The definition that judges this function."""
        return self.references[name]

    def either(self, name: str) -> Callable:
        """The student's, or the definition where it is not written."""
        return self.functions.get(name, self.references[name])

    def pair(self, name: str) -> tuple[Callable, Callable]:
        """The definition, and the student's."""
        return self.references[name], self.functions[name]

    def label(self, *names: str) -> str:
        """Name of a row or a line that these functions make."""
        return "yours, WRONG" if set(names) & set(self.wrong) else "yours"

    def series(self, names: str, title: str, x: tuple[str, list], ours, yours, **more) -> dict:
        """Values at each x, of the student's functions (names, by spaces) and of the project's.

        x: (what it is, its texts). Values are numbers or timings, of `unit` (mine_shown.UNITS).
        more: unit; measured, what predictions are compared with; note, the end of the sentence;
        added, the sum of what a value is made of (mine_shown.different); on, where the lesson's
        own figure shows the student's values (`on`)
        """
        found = names.split()
        named = {"functions": ", ".join(found), "title": title, "label": self.label(*found)}
        named["wrong"] = ", ".join(name for name in found if name in self.wrong)
        at = {"xlabel": x[0], "x": [str(each) for each in x[1]]}
        values = {"ours": list(ours), "yours": list(yours), "unit": ""} | more
        if values["unit"] == CLUSTER_S:
            values["unit"] = "s"
            for key in {"ours", "yours", "measured"} & set(values):
                values[key] = [divided(value, self.dilation) for value in values[key]]
            if "added" in values:
                values["added"] /= self.dilation
        return named | at | values

    def record(self) -> dict:
        return {"file": str(self.file), "functions": self.states, "wrong": self.wrong}


def divided(value, factor: float):
    """A number or a timing, `factor` times smaller."""
    value = plain(value)
    return scaled(value, 1 / factor) if isinstance(value, dict) else value and value / factor


def on(panel: int, x, y, figure: str = "", across: bool = False) -> dict:
    """Where a panel of the lesson's own figure shows a student's values, in the panel's units.

    figure: its name in what `draw` returns. y: numbers or timings; across: y is on the x axis
    """
    return {"figure": figure, "panel": panel, "x": list(x), "y": list(y), "across": across}


class Limit:
    """Ends the job when a student's function does not return: MPI would wait for ever."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s, self.running = limit_s, None  # (name, when it must have returned)
        threading.Thread(target=self._watch, daemon=True).start()

    def around(self, name: str, function: Callable) -> Callable:
        def limited(*arguments):
            self.running = name, time.monotonic() + self.limit_s
            try:
                return function(*arguments)
            finally:
                self.running = None

        return limited

    def _watch(self) -> None:
        while True:
            time.sleep(0.5)
            running = self.running
            if running and time.monotonic() > running[1]:
                launch.abort.end(
                    f"\nrank {launch.job.rank}: your {running[0]} did not return within "
                    f"{self.limit_s} s: on MPI it waits for a message that nobody sends or "
                    f"receives, or it loops; next: --threads {launch.job.size} in place of mpiexec "
                    "names the ranks that wait\n",
                    2,
                )


def names_in(file: Path) -> dict[str, bool]:
    """{name: is it written?} of what a file defines at its top. ValueError if it is no Python.

    A skeleton's function has a docstring, and then raises NotImplementedError, passes or says ...
    """
    try:
        tree = ast.parse(file.read_text(), str(file))
    except OSError as error:
        why = f"{error.strerror}; wanted a file like lessons/student/01.py; next: check the path"
        raise ValueError(f"--mine: got {file}: {why}") from None
    except SyntaxError as error:
        where = f"line {error.lineno}: {error.msg}"
        raise ValueError(f"--mine: got {file}, {where}; wanted Python; next: mend it") from None
    except ValueError as error:  # bytes that are no text
        raise ValueError(f"--mine: got {file}: {error}; wanted Python; next: mend it") from None
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = not all(map(is_open, node.body))
        elif isinstance(node, ast.Assign):
            found |= {each.id: True for each in node.targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name: True for alias in node.names}
    return found


def is_open(statement: ast.stmt) -> bool:
    """A docstring, `...`, `pass`, or `raise NotImplementedError`."""
    if isinstance(statement, ast.Raise):
        return "NotImplementedError" in ast.dump(statement)
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant or isinstance(statement, ast.Pass)


def require(file: Path, lesson: str, yours: Yours) -> None:
    """ValueError unless this is Python with a function that the lesson uses."""
    found = set(names_in(file)) & set(yours.functions)
    if not found:
        raise ValueError(
            f"--mine: got {file}, without any function of this lesson; wanted one of "
            f"{', '.join(yours.functions)}; next: lessons/student/{lesson[:2]}.py has them"
        )


def of(run, yours: Yours) -> Mine | None:
    """The functions of --mine, judged on rank 0. ValueError where one is wrong. Collective."""
    file = run.options.mine
    if file is None:
        return None
    states = run.plain.bcast(run.on_rank_0(lambda: judged(run, file, yours)))
    limit = Limit(run.quick(*LIMITS_S))
    mine = Mine(file, limit.around("file", imported)(file), states, limit)
    mine.dilation = run.regime.dilation
    for each in marking.exercises_of(run.options.lesson[:2]):
        if not isinstance(each, Collective):  # which works in place
            mine.references[each.name] = on_copies(each.reference)
            if each.name in mine:
                mine.functions[each.name] = on_copies(mine[each.name])
    return mine


def on_copies(function: Callable) -> Callable:
    """The same function, which may overwrite its arguments: ranks that are threads share them."""
    return lambda *arguments: function(*copied(arguments))


def imported(file: Path) -> ModuleType:
    """The file as a module of this rank. ValueError for what it raises."""
    path = str(file.resolve())
    try:
        return load(path, file.read_bytes())
    except BaseException as error:  # noqa: BLE001  a student's file may raise anything
        why = sentence(error, path)
        raise ValueError(f"--mine: got {file}, which {why}; wanted a file to import") from None


def judged(run, file: Path, yours: Yours) -> dict[str, str]:
    """{function: RIGHT, WRONG, ...} by the public cases of `refgf.oracle grade`."""
    lesson, written = run.options.lesson[:2], names_in(file)
    states = {name: NOT_WRITTEN if name in written else ABSENT for name in yours.functions}
    asked = {name for name in states if written.get(name)}
    marks = [mark for mark in marking.grade(file, lesson) if mark.name in asked]
    states |= {mark.name: RIGHT if mark.points == mark.of else WRONG for mark in marks}
    run.tell(f"{file}, judged by the public cases of `python -m refgf.oracle grade {lesson}`:")
    for state in dict.fromkeys(states.values()):
        names = ", ".join(name for name in states if states[name] == state)
        ours = "; the project's is used" if state in (NOT_WRITTEN, ABSENT) else ""
        run.tell(indented(f"{state}: {names}{ours}"))
    wrong = [mark for mark in marks if mark.points < mark.of]
    if wrong:
        said = "\n".join(report.as_text(wrong).splitlines()[:-1])  # without the total
        if not run.options.wrong_anyway:
            theirs = marking.answered(file)
            if "v" in theirs:
                raise ValueError(
                    f"--mine: got {file}, which answers {marking.in_words(theirs)}; wanted the "
                    "published rules, because the lesson runs by them; next: "
                    f"python -m refgf.oracle grade {theirs} {file}"
                )
            raise ValueError(
                f"--mine: got wrong results; wanted the definition's:\n{said}\n"
                "next: mend them, or measure them as they are: --wrong-anyway"
            )
        run.tell(f"{said}\nMeasured all the same (--wrong-anyway), and called WRONG.")
    return states
