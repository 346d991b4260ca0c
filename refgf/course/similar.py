"""How alike the files of a class are: a number for each two, and the lines. For a teacher to read.

Each run of RUN tokens that two files share counts, wherever it stands. Names, comments and
docstrings do not count, so renaming and moving functions changes nothing. What stands in the
starter, too, does not count at all. Files are decoded as Python decodes them.
"""

import io
import itertools
import keyword
import statistics
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from refgf.course.lesson import lesson_files
from refgf.oracle.foreign.report import as_name
from refgf.oracle.foreign.untrusted import BadFile, read_bytes
from refgf.oracle.grade.sandbox import LARGEST_FILE
from refgf.oracle.grade.student_process import WIDE

RUN = 14  # tokens
SILENT = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER)
LAYOUT = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
Runs = dict[tuple[str, ...], list[int]]  # where each run of tokens begins
ANSWERS = "the published answers"
SHORT = 100  # tokens of one's own: one short function, which right files share by themselves
NEAR = 0.9  # files that share as much with another one of a group belong to it


class Words(NamedTuple):
    """A file. lines: of each token. runs: those that count. given: tokens that the starter has."""

    name: str
    lines: list[int]
    runs: Runs
    given: set[int]

    @property
    def own(self) -> int:
        """How many tokens are one's own."""
        return len(covered(self, self.runs))


class Alike(NamedTuple):
    """share: of what is one's own in the smaller file, as much stands in the other, too."""

    share: float
    names: tuple[str, str]
    lines: tuple[str, str]


def text_of(data: bytes) -> str:
    """The text of a file, in the encoding that it declares; SyntaxError for UTF-16.

    Marks run a file that declares none and has comments in Latin-1: their letters are replaced.
    """
    if b"\0" in data:
        raise SyntaxError(WIDE)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError:  # such a comment is in the first two lines
        encoding = "utf-8"
    return io.TextIOWrapper(io.BytesIO(data), encoding, errors="replace").read()


def tokens(text: str) -> Iterator[tuple[str, int]]:
    """(word, line) of each token. SyntaxError for what is not Python."""
    before = tokenize.NEWLINE
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            docstring = token.type == tokenize.STRING and before in LAYOUT
            if token.type in SILENT:
                continue
            before = token.type
            if token.type not in LAYOUT and not docstring:
                name = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
                yield "name" if name else token.string, token.start[0]
    except tokenize.TokenError as error:
        raise SyntaxError(str(error)) from error


def words(name: str, text: str, starter: Runs) -> Words:
    """A file, with the runs that do not stand in the starter."""
    found = list(tokens(text))
    mine, given = [word for word, _ in found], set()
    runs: Runs = {}
    for i in range(len(mine) - RUN + 1):
        run = tuple(mine[i : i + RUN])
        if run in starter:
            given.update(range(i, i + RUN))
        else:
            runs.setdefault(run, []).append(i)
    return Words(name, [line for _, line in found], runs, given)


def covered(file: Words, runs: Iterable[tuple[str, ...]]) -> set[int]:
    """The tokens of these runs, without those that the starter has."""
    starts = itertools.chain(*(file.runs[run] for run in runs))
    return {i + step for i in starts for step in range(RUN)} - file.given


def alike(a: Words, b: Words) -> Alike:
    """Two files. What the smaller one shares weighs: a copy may have been made longer."""
    common = a.runs.keys() & b.runs.keys()
    shared = [covered(file, common) for file in (a, b)]
    shares = [len(mine) / max(1, len(covered(f, f.runs))) for f, mine in zip((a, b), shared)]
    lines = [ranges({file.lines[i] for i in mine}) for file, mine in zip((a, b), shared)]
    return Alike(max(shares), (a.name, b.name), (lines[0], lines[1]))


def ranges(lines: set[int]) -> str:
    """{3, 4, 5, 9} -> "3-5, 9" """
    found = []
    for _, group in itertools.groupby(enumerate(sorted(lines)), lambda pair: pair[1] - pair[0]):
        numbers = [line for _, line in group]
        found.append(f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}")
    return ", ".join(found)


def shown(pair: Alike) -> str:
    """The number, and the lines of each file."""
    lines = map("{}: lines {}".format, pair.names, pair.lines)
    return f"{pair.share:4.0%}  " + "\n      ".join(lines)


def groups(pairs: list[Alike]) -> list[list[str]]:
    """Three files or more, each of which shares NEAR with another one of them; largest first."""
    group_of: dict[str, set[str]] = {}
    for pair in pairs:
        if pair.share >= NEAR:
            joined = set().union(*(group_of.get(name, {name}) for name in pair.names))
            group_of.update(dict.fromkeys(joined, joined))
    found = {id(group): sorted(group) for group in group_of.values() if len(group) > 2}
    return sorted(found.values(), key=lambda names: (-len(names), names))


def most_alike(pairs: list[Alike]) -> str:
    """Of a group the first pair, and the first below 100%: a plain copy hides no disguised one."""
    text = f"\n      the two of them that are most alike:\n{shown(pairs[0])}"
    other = next((pair for pair in pairs if pair.share < 1), pairs[0])
    return text + f"\n      most alike below 100%:\n{shown(other)}" * (other != pairs[0])


def report(lesson: str, paths: list[str], most: int) -> tuple[str, bool]:
    """Groups, then the pairs that are most alike; the published answers are a file like others.

    The second: have all files been compared?
    """
    found = lesson_files(lesson)
    starter = words("", found.starter.read_text(), {}).runs
    files, unread = [words(ANSWERS, found.answers.read_text(), starter)], []
    for path in paths:
        if Path(path).is_dir():
            raise ValueError(f"similar: got the folder {path}; wanted files; next: {path}/*.py")
        try:
            files.append(words(as_name(path), text_of(read_bytes(path, LARGEST_FILE)), starter))
        except BadFile as error:
            unread.append(f"not compared: {error}")
        except (SyntaxError, LookupError) as error:  # LookupError: declares rot13, say
            why = WIDE if WIDE in str(error) else "it is no Python"
            unread.append(f"{as_name(path)}: not compared, {why}")
    pairs = sorted((alike(*pair) for pair in itertools.combinations(files, 2)), reverse=True)
    if not pairs:
        raise ValueError(
            f"similar: got no Python in {', '.join(paths)}; wanted submissions; next: check them"
        )
    grouped = groups(pairs)
    group_of = {name: number for number, names in enumerate(grouped) for name in names}
    shared = [pair for pair in pairs if pair.share]
    apart = [p for p in shared if len({group_of.get(name, name) for name in p.names}) > 1]
    lines = [
        f"{len(names)} files alike, each by {NEAR:.0%} or more to another one of them:\n      "
        + "\n      ".join(names)
        + most_alike([pair for pair in pairs if set(pair.names) <= set(names)])
        for names in grouped
    ]
    lines += map(shown, apart[:most])
    if left := apart[most:]:
        first = f"the first of them {left[0].share:.0%}"
        lines.append(f"pairs not shown: {len(left)}, {first}: --most {len(apart)}")
    if short := [f"{file.name} ({file.own})" for file in files if file.own < SHORT]:
        lines.append(
            f"fewer than {SHORT} tokens besides the starter's, which is little to compare: right "
            f"files of this length are alike by themselves: {', '.join(short)}"
        )
    median = statistics.median(pair.share for pair in pairs)
    about = (
        f"{len(pairs)} pairs, median {median:.0%}. Short functions are alike by themselves: read"
    )
    lines += [*unread, f"{about} what stands far above the median."]
    return "\n".join(lines), not unread
