"""What a lesson says after it has measured: the guess, a few lines of numbers, the verdicts.

    REVEAL = Reveal(
        claims=CLAIMS,
        rows=lambda r: [Row("eager calls", r["eager"], r["eager_predicted_s"])],
        ask="Which theta gives the shortest step?",
        answer=lambda r: number_of_bytes(r["best"]),
        guess=Guess("64 KiB"),
        picture="The time of a step against theta, measured and predicted.",
    )
    lesson = kit.Lesson(__file__, __doc__, REVEAL)

The screen then holds at most LINES lines before the guess is compared with the answer:

    what           measured  predicted  off by
    eager calls      1.82 s     1.75 s     4 %
    holds (by 1.82 x): With overlap, ...
    5 of 8 claims hold, 3 within noise; -v prints them all.

All of it is made of the result as the JSON holds it, so rewording needs no new measurement.
"""

import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kit.claims import FAILS, HOLDS, NOISE, NOT_JUDGED, NOT_MEASURED, Claim, Verdict
from kit.guess import Guess
from kit.words import off_by, seconds

LINES, ROWS = 12, 5  # before the guess; of the table
WIDEST, NARROWEST = 100, 40


def columns(screen) -> int:
    """Of the text: WIDEST, and on a narrower terminal its own."""
    if not screen.isatty():
        return WIDEST
    return min(WIDEST, max(NARROWEST, shutil.get_terminal_size().columns))


COLUMNS = columns(sys.stdout)


@dataclass(frozen=True)
class Row:
    """A measured number next to its prediction.

    measured, predicted: numbers, or timings {"median_s", ...}; None if there is none.
    unit: turns such a number into text (kit.words.seconds, number_of_bytes, percent).
    """

    what: str
    measured: float | dict | None
    predicted: float | dict | None = None
    unit: Callable[[float], str] = seconds

    def cells(self) -> list[str]:
        measured, predicted = number(self.measured), number(self.predicted)
        off = off_by(predicted, measured) if measured and predicted is not None else ""
        shown = ["" if x is None else self.unit(x) for x in (measured, predicted)]
        return [self.what, *shown, off]


@dataclass(frozen=True)
class Reveal:
    """claims: what you should see. rows: result -> at most ROWS rows, measured and predicted.

    ask, answer: the question to guess at before the run, and result -> what was measured.
    guess: the form of a guess at the answer.
    picture: what the figure shows, in a sentence for those who cannot see it.
    yours: what --mine does in this lesson (kit.mine.Yours).
    """

    claims: tuple[Claim, ...]
    rows: Callable[[dict], Iterable[Row]]
    ask: str
    answer: Callable[[dict], str]
    guess: Guess
    picture: str = ""
    yours: Any = None

    def lines(self, result: dict, decided: list[Verdict]) -> list[str]:
        """At most LINES lines: the table, what matters most, a count."""
        table = self.table(result)
        return table + short(decided, LINES - len(table))

    def full(self, result: dict, decided: list[Verdict]) -> str:
        """The table, and all verdicts."""
        lines = [
            textwrap.fill(f"- {verdict}", COLUMNS, subsequent_indent="  ") for verdict in decided
        ]
        return "\n".join([*self.table(result), "", *lines])

    def table(self, result: dict) -> list[str]:
        """Lines of the table: measured next to predicted."""
        rows = [row.cells() for row in self.rows(result)]
        return table_of(["what", "measured", "predicted", "off by"], rows)


def number(value) -> float | None:
    return value["median_s"] if isinstance(value, dict) else value


def table_of(header: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of a table: the first column to the left, the others to the right."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in [header, *rows]
    ]


def indented(text: str) -> str:
    return textwrap.fill(text, COLUMNS, initial_indent=4 * " ", subsequent_indent=4 * " ")


def importance(verdict: Verdict) -> int:
    """0: in the table of docs/results.md; 1: undecided; 2: another one."""
    return 0 if verdict.kind else 1 if verdict.verdict == NOISE else 2


def short(decided: list[Verdict], room: int) -> list[str]:
    """As many verdicts as fit into `room` lines, then a count of all.

    First those that do not hold, then the gain and the limit that docs/results.md shows, then those
    within noise.
    """
    found: list[str] = []
    judged = [v for v in decided if v.verdict not in (NOT_MEASURED, NOT_JUDGED)]
    for verdict in sorted(judged, key=lambda v: (v.verdict != FAILS, importance(v))):
        lines = textwrap.wrap(f"- {verdict}", COLUMNS, subsequent_indent="  ")
        if len(found) + len(lines) < room:
            found += lines
    others = Counter(verdict.verdict for verdict in decided if verdict.verdict != HOLDS)
    unjudged = others[NOT_JUDGED]
    hold = f"{len(decided) - others.total()} of {len(decided) - unjudged} claims hold"
    if unjudged == len(decided):  # "0 hold" would read as a failure
        hold = f"of {len(decided)} claims none is decided"
    names = {FAILS: "not here"}
    count = ", ".join([hold, *(f"{n} {names.get(name, name)}" for name, n in others.items())])
    return [*found, f"{count}; -v prints them all."] if decided else found
