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
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import refgf.launch as launch
from kit import axes
from kit.reveal import indented
from kit.record import plain
from kit.rows import overlap, scaled
from kit.words import number_of_bytes, number_of_ranks, seconds
from refgf.oracle.grade import marking, report
from refgf.oracle.grade.student_process import load, sentence
from refgf.oracle.spec.exercise import Collective, copied

RIGHT, WRONG, NOT_WRITTEN, ABSENT = "right", "WRONG", "not written yet", "absent"
LIMITS_S = 20, 120  # of a call of a student's function: with --quick, without
UNITS = {"s": seconds, "bytes": number_of_bytes, "%": "{:.3g} %".format, "": "{:.4g}".format}
ALIKE = 1e-6  # relative: losses of sums in another order differ by roundings
CLUSTER_S = "seconds of the cluster"  # a unit: given in this machine's, which are longer
TIMES = "Times are those of the lesson's own figure, unless a panel predicts another machine's."
OURS, YOUR_COLOUR = axes.COLOURS[0], axes.COLOURS[axes.YOURS]


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

        x: (what it is, its texts). Values are numbers or timings, of `unit` (a key of UNITS).
        more: unit; measured, what predictions are compared with; note, the end of the sentence;
        on, where the lesson's own figure shows the student's values (`on`)
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
                    f"{self.limit_s} s: on MPI it waits for a message that nobody sends, or it "
                    "loops; next: --threads 3 in place of mpiexec names the ranks that wait\n",
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
            raise ValueError(
                f"--mine: got wrong results; wanted the definition's:\n{said}\n"
                "next: mend them, or measure them as they are: --wrong-anyway"
            )
        run.tell(f"{said}\nMeasured all the same (--wrong-anyway), and called WRONG.")
    return states


# ---- what is said and drawn of the series, as the JSON holds them ----


def middle(value) -> float | None:
    """The number of a value; infinity is a text in the JSON."""
    value = value["median_s"] if isinstance(value, dict) else value
    return float(value) if isinstance(value, str) else value


def said(series: dict, busy: bool = False) -> str:
    """your allreduce: 1.02 times ours at 64 MiB, 14 messages, as predicted

    busy: other programs took the cores, and times are not compared
    """
    ours, yours = ([middle(value) for value in series[key]] for key in ("ours", "yours"))
    unit, note = UNITS[series["unit"]], series.get("note", "")
    start = f"your {called(series)} ({lowered(series['title'])}): "
    if is_wrong(series):
        start = f"WRONG: {start}"
    pairs = list(zip(series["x"], ours, yours))
    if any(isinstance(value, dict) for value in series["yours"]):
        x, our, your = pairs[-1]
        factor = f"{your / our:.3g} times ours" if our else unit(your)
        noise = " (within noise)" * overlap(series["ours"][-1], series["yours"][-1])
        text = "not compared, a busy machine" if busy else f"{factor} at {x}{noise}"
        return f"{start}{text}{note and f', {note}'}"
    differ = [pair for pair in pairs if not alike(*pair[1:])]
    if not differ:
        text = f"as ours at {'both' if len(pairs) == 2 else f'all {len(pairs)}'} points"
        text = f"{shown(ours[0], unit)}, as ours" if len(set(ours)) == 1 else text
    else:
        x, our, your = differ[0]
        text = f"not as ours at {len(differ)} of {len(pairs)} points, first at {series['xlabel']} "
        text += f"{x}: {shown(your, unit)}, ours {shown(our, unit)}"
        if len(differ) > 2:
            x, our, your = differ[-1]
            text += f"; last at {x}: {shown(your, unit)}, ours {shown(our, unit)}"
    return f"{start}{text}{note and f'; {note}'}"


def is_wrong(series: dict) -> bool:
    return "WRONG" in series["label"]


def called(series: dict) -> str:
    """The functions that made these values; where some are wrong, those alone."""
    return series.get("wrong") or series["functions"]


def lowered(title: str) -> str:
    """Loss -> loss, and LARS, fc6 and C4 as they are."""
    return title if title[1:2].isupper() else title[0].lower() + title[1:]


def shown(value, unit: Callable) -> str:
    return "nothing" if value is None else unit(value)


def alike(one, other) -> bool:
    if one is None or other is None:
        return one is other
    same = one == other or one != one and other != other  # infinite, or both NaN
    return same or abs(one - other) <= ALIKE * max(abs(one), abs(other))


def draw(result: dict, figures: dict) -> dict:
    """The lesson's figures with the student's values in their panels, and "yours" with a panel for
    each comparison. The title of a figure that shows a rejected function begins with WRONG.
    """
    found = result["mine"]["series"]
    placed = [(figures[each["on"]["figure"]], each) for each in found if "on" in each]
    for figure, series in placed:
        draw_on(figure.axes[series["on"]["panel"]], series)
    title = f"Lesson {result['lesson'][:2]}: your functions next to the project's"
    columns = 2 if len(found) in (2, 4) else min(3, len(found))
    rows = -(-len(found) // columns)
    size = max(axes.WIDTH_INCHES * 0.6, 4.6 * columns), 1 + 3.6 * rows
    figure, panels = axes.frame(title, rows, columns, size)
    for panel, series in zip(panels, found):
        draw_series(panel, series)
    for panel in panels[len(found) :]:
        panel.set_axis_off()
    axes.finish(figure, *panels[: len(found)], below=TIMES)
    figure.set_label(f"{number_of_ranks(result['ranks'])}, {result['place']}")
    placed += [(figure, each) for each in found]
    for figure_of, each in placed:
        if is_wrong(each):
            call_wrong(figure_of)
    return figures | {"yours": figure}


def call_wrong(figure) -> None:
    """Begin its title with WRONG, once."""
    if not figure.get_suptitle().startswith("WRONG"):
        figure.suptitle(f"WRONG, the oracle rejects it. {figure.get_suptitle()}")


def draw_on(axis, series: dict) -> None:
    """The student's values over the project's, in a panel of the lesson's own figure."""
    on, label = series["on"], f"your {called(series)}{', WRONG' * is_wrong(series)}"
    style = {"color": YOUR_COLOUR, "marker": "X", "ms": 8, "ls": "none", "label": label}
    if isinstance(on["y"][0], dict):
        axes.points(axis, on["x"], on["y"], across=on["across"], zorder=5, **style)
    else:
        both = (on["y"], on["x"]) if on["across"] else (on["x"], on["y"])
        axis.plot(*both, zorder=5, **style)
    entries = axes.in_order(axis)
    if not axis.get_legend():  # its figure has one for all panels
        entries = [[entry[-1]] for entry in axis.get_legend_handles_labels()]
    axis.legend(*entries, fontsize=axes.TEXT_POINTS)


def draw_series(axis, series: dict) -> None:
    at = range(len(series["x"]))
    lines = [("ours", "ours", OURS, "o", 9), ("yours", series["label"], YOUR_COLOUR, "x", 7)]
    if "measured" in series:
        lines.insert(0, ("measured", "measured", "#888888", "s", 6))
    every = [middle(value) for key, *_ in lines for value in series[key]]
    values = [value for value in every if value is not None and math.isfinite(value)]
    for key, label, colour, marker, size in lines:
        style = {"color": colour, "marker": marker, "ms": size, "label": label, "mew": 2}
        style |= {"mfc": "none"} if key == "ours" else {}
        if any(isinstance(value, dict) for value in series[key]):
            axes.points(axis, at, series[key], ls="-", lw=1, **style)
        else:
            found = [math.nan if value is None else value for value in map(middle, series[key])]
            axis.plot(at, found, ls="-", lw=1, **style)
    if values and min(values) > 0 and max(values) > 30 * min(values):
        axis.set_yscale("log")
    else:
        low, high = axis.dataLim.intervaly
        axis.set_ylim(min(0.0, 1.08 * low), high + 0.08 * (high - min(0.0, low)) or 1.0)
    apart = -(-len(at) // 8)
    turned = {"rotation": 20, "ha": "right"} if len(at) > 1 else {}
    axis.set_xticks(list(at)[::apart], series["x"][::apart], **turned)
    units = {"s": "seconds", "bytes": "bytes", "%": "percent"}
    axis.set(xlabel=series["xlabel"], ylabel=units.get(series["unit"], series["unit"]))
    axis.set_title(series["title"], fontsize=axes.TEXT_POINTS + 1)
