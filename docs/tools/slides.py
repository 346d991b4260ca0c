"""The lectures of lessons/slides: their numbers, and their pages as HTML and PDF.

    python docs/tools/slides.py              writes each marked number (`make figures` does it)
    python docs/tools/slides.py MARP 01 03   makes these decks in build/slides, without numbers all
                                             (`make slides` does it)
    ... --no-notes MARP 01 03                for students, in build/slides-students

A mark follows its number, and says where the number is from. It is an expression of the names in a
figure's JSON: 2.9<!-- = worth[3]["own"] in 00_two_ranks -->

A condition follows a sentence or a title that a new measurement could make wrong. A test says where
one does not hold: Both are a tie.<!-- if tie(rows[0]["step"], rows[1]["step"]) in 04_overlap -->
"""

import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lessons"))

from kit.rows import overlap

ROOT = Path(__file__).resolve().parents[2]
DECKS = sorted((ROOT / "lessons" / "slides").glob("[0-9]*.md"))
PICTURE = re.compile(r'!\[([^\]]*)\]\(([^)\s]+)(?: "([\d. ]+)")?\)')
MARK = re.compile(r"(\d[\d,]*(?:\.\d+)?)(<!-- = (.+?) in (\w+) -->)", re.DOTALL)
CONDITION = re.compile(r"<!-- if (.+?) in (\w+) -->", re.DOTALL)
NOTE = re.compile(r"<!--(?! _).*?-->", re.DOTALL)  # <!-- _class: lead --> is none


def most(rows: list[dict]) -> set[str]:
    """Names of the rows whose step gains most over the row above: several in a tie."""
    gains = {}
    for one, other in itertools.pairwise(row["step"] for row in rows):
        ends = one["low_s"] - other["high_s"], one["high_s"] - other["low_s"]
        gains[rows[len(gains) + 1]["name"]] = (one["median_s"] - other["median_s"], *ends)
    largest = max(gains.values())
    return {name for name, (_, _, high) in gains.items() if high >= largest[1]}


NAMES = {"len": len, "set": set, "all": all, "max": max, "min": min, "tie": overlap, "most": most}


def value(expression: str, figure: str):
    """An expression of the names in a figure's JSON."""
    result = json.loads((ROOT / "figures" / f"{figure}.json").read_text())
    return eval(expression, {"__builtins__": NAMES, **result})


def not_so(text: str) -> list[str]:
    """A deck's conditions that do not hold in the figures."""
    return [" in ".join(found) for found in CONDITION.findall(text) if not value(*found)]


def with_numbers(text: str) -> str:
    """A deck with each marked number as the figures have it today, in as many decimals."""

    def number(match: re.Match) -> str:
        old, mark, expression, figure = match.groups()
        return f"{value(expression, figure):,.{len(old.partition('.')[2])}f}{mark}"

    return MARK.sub(number, text)


def pictures(deck: str) -> list[str]:
    """Paths from lessons/slides."""
    return [path for _, path, _ in PICTURE.findall(deck)]


def draw(lesson: str, folder: Path) -> None:
    """A lesson's figures as SVG without notes, from its JSON."""
    script = next((ROOT / "lessons").glob(f"{lesson}_*.py"))
    shutil.copy(ROOT / "figures" / f"{script.stem}.json", folder)
    options = ("--plot", "--format", "svg", "--no-notes", "--output", folder)
    subprocess.run([sys.executable, script, *options], check=True, stdout=subprocess.DEVNULL)


def cropped(svg: Path, crop: str) -> str:
    """The name of a copy of a picture that shows a part: left, top, right, bottom in percent."""
    left, top, right, bottom = (float(edge) / 100 for edge in crop.split())
    text = svg.read_text()
    sizes = r'(?:width="[\d.]+pt" height="[\d.]+pt" )?viewBox="0 0 ([\d.]+) ([\d.]+)"'
    size = re.search(sizes, text)  # a drawing has its box only
    width, height = map(float, size.groups())
    box = (left * width, top * height, (right - left) * width, (bottom - top) * height)
    view = "{2:g}pt;{3:g}pt;{0:g} {1:g} {2:g} {3:g}".format(*box).split(";")
    new = 'width="{}" height="{}" viewBox="{}"'.format(*view)
    name = f"{svg.stem}.{crop.replace(' ', '-')}.svg"
    (svg.parent / name).write_text(text.replace(size[0], new, 1))
    return name


def spoken(text: str, notes: bool) -> str:
    """A deck without marks, which Marp would print among the notes; perhaps without notes, too."""
    text = CONDITION.sub("", MARK.sub(r"\1", text))
    return text if notes else NOTE.sub("", text)


def render(
    marp: str, decks: list[Path], out: Path, kinds: tuple[str, ...], notes: bool = True
) -> None:
    """Let Marp make pages of the decks in `out`, with sharp pictures, and notes if wanted."""
    shutil.copytree(ROOT / "lessons" / "drawings", out / "drawings", dirs_exist_ok=True)
    (out / "figures").mkdir(exist_ok=True)
    texts = {out / deck.name: spoken(deck.read_text(), notes) for deck in decks}
    shown = {path for text in texts.values() for path in pictures(text) if "figures/" in path}
    for lesson in sorted({Path(path).name[:2] for path in shown}):
        draw(lesson, out / "figures")

    def picture(match: re.Match) -> str:
        alt, path, crop = match.groups()
        svg = out / Path(path).parent.name / f"{Path(path).stem}.svg"
        name = cropped(svg, crop) if crop else svg.name
        return f"![{alt}]({svg.parent.name}/{name})"

    for file, text in texts.items():
        file.write_text(PICTURE.sub(picture, text))
    style = ROOT / "lessons" / "slides" / "style.css"
    for kind in kinds:
        options = ("--no-stdin", "--allow-local-files", "--theme-set", style, *kind.split())
        subprocess.run([marp, *texts, *options], check=True)


def chosen(numbers: list[str]) -> list[Path]:
    """The decks of these numbers, without any all. SystemExit for a number that has none."""
    known = {deck.stem: deck for deck in DECKS}
    if wrong := [number for number in numbers if number not in known]:
        sys.exit(f"got deck {wrong[0]}; wanted one of {', '.join(known)}; next: DECKS=01")
    return [known[number] for number in numbers or known]


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--no-notes"]
    if arguments:
        notes = arguments == sys.argv[1:]
        out = ROOT / "build" / ("slides" if notes else "slides-students")
        out.mkdir(parents=True, exist_ok=True)
        kinds = ("--html", "--pdf --pdf-notes" if notes else "--pdf")
        render(arguments[0], chosen(arguments[1:]), out, kinds, notes)
    else:
        for deck in DECKS:
            deck.write_text(with_numbers(deck.read_text()))
