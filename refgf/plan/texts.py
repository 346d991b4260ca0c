"""The tables in a text that somebody kept of a benchmark: a terminal, a job's log, a document.

A table begins with its header, and the header names its columns. A row ends with as many cells as
there are columns, so whatever a launcher, a logger or a document puts in front is no part of it:

    [1,0]<stdout>:#       size         count      type   redop     time   algbw   busbw  error  ...
    [1,0]<stdout>:     1048576        262144     float     sum    346.6    3.03    5.67  5e-07  ...
    \\____ tag ___/    \\_______________________ one cell for each column _____________________ ...

The tag of a row has the shape of its header's tag: the same signs, other numbers and words. A line
that has the tag and begins like a row, but is none, is left out and counted.

A name that the header has twice is that of two measurements, out of place and in place; a row may
have one of them. Rows of several types or operations under one header are tables of their own.
"""

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from refgf.machine.regular_files import open_regular

ESCAPES = r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(\x07|\x1b\\))"
NCCL_NAMES = "size|count|type|redop|root|time|cputime|algbw|busbw|error|wrong"
NCCL_START = re.compile(rf"(?<![\w#])#?\s*(?<!\w)(?:{NCCL_NAMES})\b(?=\s)")
OSU_START = re.compile(r"(?<![\w#])#?\s*(?<!\w)Size\b(?=\s)")
OSU_COLUMN = re.compile(
    r"Iterations|Validation|Transmit Size|[A-Z][\w.]*(?: [A-Z][\w.]*)* ?\([^)]*\)|\S+"
)
TITLE = re.compile(r"\bOSU [A-Z][^\n]*?(?= *$)", re.M)
LATENCY = r"OSU (?:MPI|NCCL|RCCL|MPI-[A-Z]+(?: MANAGED)?) (Allreduce )?Latency Test"  # not MPI_Put
LABEL = re.compile(r"\s*(?:(\d+):\s|\[(\d+)\]\s|\[\d+,(\d+)\]<)")  # srun, MPICH, Open MPI
WORD = r"\S+"
TIMESTAMP = r"\d{4}-\d\d-\d\d[T ]\S+"
CELLS = {"timestamp": TIMESTAMP, "size": "[0-9]+", "count": "[0-9]+", "Size": "[0-9]+"}
CELLS |= {"type": r"[a-z]\S*", "redop": r"[a-z]\S*"}  # others: any word
RESULT = re.compile(r"[0-9]\s+[a-z]\w*\s+[a-z]+\s+(?:-?[0-9]+\s+)?(?:[0-9.]+\s+){2}[0-9.]+\s")
LONGEST = 1000  # characters of a line that may belong to a table
KINDS = ("type", "redop", "root")  # of the rows of one table


@dataclass(frozen=True)
class Table:
    """A header, its rows and what stands around them.

    tool      "nccl" or "osu"
    title     what the text calls it
    line      number of the line with its header
    columns   names, in order
    rows      {name: its cells}: one, or those out of place and in place
    before    the text between its header and the one before, or a row of nccl-tests behind that
    after     the text from its header to the next one
    broken    lines that begin like a row and are none, or stand apart from the rows
    in_place  do its rows have the times of the second measurement alone?
    """

    tool: str
    title: str
    line: int
    columns: list[str]
    rows: list[dict[str, list[str]]]
    before: str
    after: str
    broken: list[str]
    in_place: bool = False

    @property
    def lacks_operation(self) -> bool:
        """Old alltoall_perf leaves the column redop empty, and the next cell is a time."""
        at, words = self.columns.index("redop") if "redop" in self.columns else 0, []
        words = self.broken[0].split()[at:] if self.broken and at else []
        return len(words) == len(self.columns) - at - 1 and words[0][0].isdecimal()

    @property
    def other_collective(self) -> str:
        """What says that it is neither an allreduce nor a link's latency; "" if nothing does."""
        name = self.title.split(",")[0].removeprefix("nccl-tests").strip()
        if self.tool == "osu":
            return "" if re.match(LATENCY, name) else repr(self.title)
        if name and "all_reduce" not in name:
            return f"{name}, another collective"
        none = bool(self.rows) and self.rows[0].get("redop") == ["none"]
        return "redop none, no sum" if none or self.lacks_operation else ""

    def __str__(self) -> str:
        return f"{self.title or 'no title'}, {len(self.rows)} rows from line {self.line}"


def content(path: str) -> str:
    """The file as text: UTF-8, or UTF-16 as PowerShell writes it; .gz is unpacked."""
    with open_regular(path) as file:
        raw = file.read()
    try:
        raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except zlib.error as error:
        raise OSError(str(error)) from None
    if raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return raw.decode("utf-16")
    if b"\0" in raw[:2]:
        return raw.decode("utf-16-be" if raw[:1] == b"\0" else "utf-16-le")
    return raw.decode("utf-8-sig")


def tables(text: str) -> list[Table]:
    """All tables of the text, in order; those without any row only if there are no others."""
    lines = re.sub(ESCAPES, "", text).splitlines()
    lines = [line.replace("|", " ") if len(line) < LONGEST else "" for line in lines]
    found = [table for own in of_each_rank(lines) for table in tables_of(own)]
    found.sort(key=lambda table: table.line)
    return [table for table in found if table.rows or table.broken] or found


def of_each_rank(lines: list[str]) -> list[list[str]]:
    """The lines without those of other ranks, for each rank that prints a table of its own.

    A launcher that labels ranks (`srun -l`) mixes the lines of two runs.
    """
    ranks = [rank_of(line) for line in lines]
    printing = {rank for rank, line in zip(ranks, lines) if rank and header(line)}
    each = [
        [line if rank in (own, "") else "" for rank, line in zip(ranks, lines)] for own in printing
    ]
    apart = all(any(table.rows for table in tables_of(own)) for own in each)
    return each if each and apart else [lines]


def rank_of(line: str) -> str:
    """The rank that a launcher writes in front of a line; "" without one."""
    found = LABEL.match(line)
    return next(filter(None, found.groups())) if found else ""


def tables_of(lines: list[str]) -> list[Table]:
    heads = [(number, *head) for number, line in enumerate(lines) if (head := header(line))]
    found, title = [], ""
    for at, (number, tool, tag, columns) in enumerate(heads):
        first = heads[at - 1][0] + 1 if at else 0
        if tool == "nccl":  # what is before another run's row is of that run
            ends = (end for end in range(number, first, -1) if RESULT.search(lines[end - 1]))
            first = next(ends, first)
        end = heads[at + 1][0] if at + 1 < len(heads) else len(lines)
        before, after = "\n".join(lines[first:number]), "\n".join(lines[number:end])
        title = name_of(tool, before, title)
        rows, broken = rows_of(lines[number:end], columns, tag, whole=tool == "osu")
        for kind, same in divided(rows).items():
            about = ", ".join([title, " ".join(kind)]) if kind else title
            cells = [row.cells for row in same]
            in_place = bool(same) and all(row.in_place for row in same)
            place = number + 1, columns, cells, before, after, broken, in_place
            found.append(Table(tool, about, *place))
    return found


def header(line: str) -> tuple[str, str, list[str]] | None:
    """(tool, tag, columns) of a line that heads a table."""
    if "size" in line and (start := NCCL_START.search(line)):
        columns = [word.lstrip("#") for word in line[start.start() :].split()]
        columns = [word for word in columns if word]
        if "size" in columns and len(set(columns) & set(NCCL_NAMES.split("|"))) > 3:
            return "nccl", line[: start.start()], columns
    if (
        "Size" in line
        and (start := OSU_START.search(line))
        and re.search(r"\(\w+(/s)?\)|/s", line[start.end() :])
    ):
        named = OSU_COLUMN.findall(" ".join(line[start.end() :].split()))
        return "osu", line[: start.start()], ["Size", *named]
    return None


def name_of(tool: str, before: str, last: str) -> str:
    """What a benchmark calls itself: osu_* once for several types, all_reduce_perf since 2.17."""
    if tool == "nccl":
        started = re.search(r"Collective test starting: *(\S+)", before)
        return f"nccl-tests {started[1]}" if started else "nccl-tests"
    if re.search(r"[0-9]\s+[0-9]+\.[0-9]", TITLE.split(before)[-1]):
        return ""  # rows between a title and the header: those of a table that lost its header
    again = [last] if last and "Datatype" in before else []
    titles = TITLE.findall(before) or again
    titles = [title.partition(", Datatype")[0] for title in titles]
    kinds = re.findall(r"Datatype: *(\w+)", before)
    return ", Datatype ".join([*titles[-1:], *kinds[-1:]]) if titles else ""


@dataclass(frozen=True)
class TableRow:
    """in_place: are its only times below those of the second measurement in the header?"""

    cells: dict[str, list[str]]
    in_place: bool


def rows_of(
    lines: list[str], columns: list[str], tag: str, whole: bool
) -> tuple[list[TableRow], list[str]]:
    """(rows, broken lines) of a table, whose header is the first line and has this tag.

    whole: after other text only what continues the table is a row. If no line has the header's tag,
    all rows are broken lines.
    """
    found, broken, others = [], [], []
    once = [name for at, name in enumerate(columns) if name not in columns[:at]]
    patterns = [(names, pattern(names)) for names in ([columns, once][: 1 + (once != columns)])]
    times = [time.end() for time in re.finditer(r"\btime\b", lines[0])]
    begins = re.compile(r"(?<![\w.,+-])[0-9][0-9.,]*(?:[KMG]i?B?)?\s+[0-9.]+")
    interrupted = False
    for line in lines[1:]:
        row, others_row = row_in(line, patterns, tag)
        cells = {}
        for name, cell in zip(*(row[0], row[1].groups()) if row else ((), ())):
            cells.setdefault(name, []).append(cell)
        if row and (not interrupted or continues(found[-1].cells, cells)):
            alone = len(times) == 2 and row[0] == once
            at = row[1].end(1 + once.index("time")) if alone else 0
            found.append(TableRow(cells, alone and at > sum(times) / 2))
            interrupted = False
        elif row or any(shape(line[: s.start()]) == shape(tag) for s in begins.finditer(line)):
            broken.append(line.strip())
        else:
            others += [line.strip()] * others_row
            interrupted = interrupted or (whole and bool(found) and bool(line.strip()))
    return found, broken if found or broken else others


def continues(before: dict[str, list[str]], cells: dict[str, list[str]]) -> bool:
    """Twice the size, and as many decimals: OSU prints its rows so."""
    (size, *times), (last, *earlier) = (
        [each[0] for each in row.values()] for row in (cells, before)
    )
    decimals = [[len(cell.partition(".")[2]) for cell in row] for row in (times, earlier)]
    return int(size) == 2 * int(last) and decimals[0] == decimals[1]


def row_in(
    line: str, patterns: list[tuple[list[str], re.Pattern]], tag: str
) -> tuple[tuple[list[str], re.Match] | None, bool]:
    """((names, row) behind this tag, is there a row behind another tag?)."""
    other = False
    for text in without(tag, line):
        matches = ((names, each.search(text)) for names, each in patterns)
        names, row = next(((n, row) for n, row in matches if row), ([], None))
        if row and shape(text[: row.start()]) == shape(tag):
            return (names, row), False
        other = other or row is not None
    return None, other


def without(tag: str, line: str) -> Iterator[str]:
    """The line without the tags that a launcher puts into one that is written in parts; the line.

    Open MPI, `mpiexec -l` and `srun -l` write -1[1,0]<stdout>: 85.14, -1[0] 85.14 and -10: 85.14.
    """
    tag = tag.strip()
    if len(tag) > 1 and not tag.isalnum() and line.count(tag) > 1:
        first, _, rest = line.partition(tag)
        yield first + tag + rest.replace(tag, " ")
    yield line


def pattern(columns: list[str]) -> re.Pattern:
    """A row, from its first cell, which may touch the tag, to the end of the line."""
    cells = r"\s+".join(f"({CELLS.get(name, WORD)})" for name in columns)
    return re.compile(rf"(?<![\w.,+-]){cells}\s*$")


def shape(tag: str) -> str:
    """A tag with 0 for its numbers and a for its words: host 7 at 10:31 is as host 12 at 9:05."""
    tag = re.sub(r"[0-9][0-9.,]*", "0", tag.replace("#", " "))
    return "".join(re.sub(r"[^\W\d_]+", "a", tag).split())


def divided(rows: list[TableRow]) -> dict[tuple[str, ...], list[TableRow]]:
    """{kind: its rows}, by the type and the operation."""
    found = {}
    for row in rows:
        kind = tuple(row.cells[name][0] for name in KINDS if name in row.cells)
        found.setdefault(kind, []).append(row)
    return found or {(): []}


def number(word: str) -> tuple[float, float]:
    """(value, half a unit of its last digit); nan for a word."""
    found = re.fullmatch(r"([0-9]+)(?:\.([0-9]*))?(?:e([+-]?[0-9]+))?", word)
    if not found:
        return float("nan"), 0.0
    return float(word), 0.5 * 10.0 ** (int(found[3] or 0) - len(found[2] or ""))
