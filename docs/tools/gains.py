"""Text made of the figures' numbers: docs/results.md, parts of README, what a teacher expects.

    python docs/tools/gains.py     judges all claims on the figures' numbers, then writes all of it
                              (`make figures` does it at its end; after a claim was reworded, too)

In the table of gains a row is a lesson; its claims of kind "gain" and "limit" are the columns
(lessons/kit/claims.py). The table of headlines is that of refgf/papers/scaling/confronted.py. In
README stand what `make demo` ends with, the rows of SHOWN, and both tables counted. In
lessons/teaching/NN.md stands what the lesson printed.
"""

import ast
import importlib.util
import json
import re
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lessons"))

from kit import claims
from kit.record import plain
from refgf.cluster.like import HERE
from refgf.papers.mgwfbp.merge import greedy_merge
from refgf.papers.scaling import confronted
from refgf.plan import score

ROOT = Path(__file__).resolve().parents[2]
README, RESULTS = ROOT / "README.md", ROOT / "docs" / "results.md"
MARKS = "<!-- gains: written by docs/tools/gains.py -->", "<!-- end of gains -->"
HEADLINES = "<!-- headlines: written by docs/tools/gains.py -->", "<!-- end of headlines -->"
DEMO = "<!-- demo: written by docs/tools/gains.py -->", "<!-- end of demo -->"
HELD = "<!-- held: written by docs/tools/gains.py -->", "<!-- end of held -->"
EXPECTED = "<!-- expected: written by docs/tools/gains.py -->", "<!-- end of expected -->"
DILATION = "<!-- dilation: written by docs/tools/gains.py -->", "<!-- end of dilation -->"
KINDS = ("gain", "limit")
SHOWN = [("03", "gain"), ("06", "gain"), ("07", "gain"), ("07", "limit")]  # in README


def module_of(lesson: Path):
    """A lesson's file as a module: its name starts with a digit."""
    spec = importlib.util.spec_from_file_location(f"lesson_{lesson.stem}", lesson)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reveal_of(lesson: Path):
    """REVEAL of a lesson's file (lessons/kit/reveal.py)."""
    return module_of(lesson).REVEAL


def judge_figures() -> None:
    """Write today's verdicts, and words for the picture, into every figure's JSON."""
    for path in sorted((ROOT / "figures").glob("[0-9]*_*.json")):
        lesson = ROOT / "lessons" / f"{path.stem}.py"
        if lesson.exists():
            result = json.loads(path.read_text())
            reveal = reveal_of(lesson)
            found = claims.verdicts(reveal.claims, result)
            result["verdicts"] = plain([asdict(verdict) for verdict in found])
            result["alt"] = reveal.picture
            path.write_text(json.dumps(result, indent=1) + "\n")


def table() -> str:
    """The rows of all lessons with such claims, in order."""
    rows = ["| lesson | what it gains | when it does not |", "|---|---|---|"]
    for path in sorted((ROOT / "figures").glob("[0-9]*_*.json")):
        result = json.loads(path.read_text())
        cells = [cell(result.get("verdicts", []), kind) for kind in KINDS]
        if any(cells):
            link = f"[{title(path.stem)}](../lessons/{path.stem}.py)"
            rows.append(f"| {link}, {where(result)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def title(stem: str) -> str:
    """03_lazy_allreduce -> 03 lazy allreduce: what its docstring calls it."""
    doc = ast.get_docstring(ast.parse((ROOT / "lessons" / f"{stem}.py").read_text()))
    return re.sub(": (the |a )?", " ", re.match(r"Lesson (\d\d: .+?)( - |\.)", doc)[1])


def figure(name: str) -> dict:
    """The JSON of a committed figure."""
    return json.loads((ROOT / "figures" / f"{name}.json").read_text())


def headlines() -> str:
    """The papers' headlines, each predicted, measured here, or not to be had here."""
    rows = [f"| {' | '.join(confronted.HEADER)} |", "|---" * len(confronted.HEADER) + "|"]
    for entry in confronted.confronted(figure, greedy_merge):
        cells = entry.name, entry.published, f"*{entry.kind}*", entry.could_fail, entry.found
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([*rows, "", totals()])


def totals() -> str:
    """The headlines inside their intervals, and published steps that calibrate nothing."""
    given = [confronted.predicted(headline) for headline in confronted.HEADLINES]
    inside = [entry.could_fail for entry in given if "OUTSIDE" not in entry.found]
    held = score.answer()["halves"]["held_out"]["all"]
    return (
        f"{len(inside)} of {len(given)} inside here, {inside.count(confronted.SAID)} of them in an "
        f"interval that could have failed; {held['inside']} of {held['rows']} on published steps "
        "that calibrate nothing (`refgf predict score`)."
    )


def demo() -> str:
    """The table that lesson 03, which is `make demo`, printed when its figure was made."""
    (lesson,) = (ROOT / "lessons").glob("03_*.py")
    said = reveal_of(lesson).table(figure(lesson.stem))
    return "\n".join(["```text measured", *said, "```"])


def held() -> str:
    """README's six lines: all claims counted, those of SHOWN, the headlines counted."""
    lines = [counted_claims()]
    for number, kind in SHOWN:
        (path,) = (ROOT / "lessons").glob(f"{number}_*.py")
        said = cell(figure(path.stem)["verdicts"], kind).split("<br>")
        lines.append(
            f"- [{number}](lessons/{path.name}): {said[-1] if kind == 'limit' else said[0]}"
        )
    return "\n".join([*lines, counted_headlines()])


def counted_claims() -> str:
    found = [figure(lesson.stem)["verdicts"] for lesson in (ROOT / "lessons").glob("[0-9]*_*.py")]
    counts = Counter(verdict["verdict"] for verdicts in found for verdict in verdicts)
    total, hold = counts.total(), counts.pop("holds")
    others = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return f"- Of the lessons' {total} claims {hold} hold on the committed figures; {others}."


def counted_headlines() -> str:
    entries = confronted.confronted(figure, greedy_merge)
    inside = [entry.could_fail for entry in entries if ": inside," in entry.found]
    sharp = inside.count(confronted.SAID)
    out = sum(entry.kind == confronted.MISSING for entry in entries)
    return (
        f"- Of {len(entries)} headlines of the papers {len(inside)} lie inside what is predicted "
        f"from their inputs, {sharp} of them in an interval that could have missed; {out} cannot "
        "be had here."
    )


def with_readme(text: str) -> str:
    """README's text with today's numbers."""
    return between(HELD, between(DEMO, text, demo(), ""), held(), "")


def with_results(text: str) -> str:
    """The text of docs/results.md with today's two tables."""
    return between(HEADLINES, between(MARKS, text, table()), headlines())


def where(result: dict) -> str:
    """The cluster that was emulated K times slower; without one, the links that were measured."""
    like = result["regime"]["like"]
    if like == HERE:
        return f"{result['ranks']} ranks: {result['place']}"
    return f"{result['ranks']} ranks like {like}"


def cell(verdicts: list[dict], kind: str) -> str:
    """The sentences of this kind with their verdicts."""
    found = [v for v in verdicts if v.get("kind") == kind]
    return "<br>".join(f"{v['text']} *{claims.Verdict(**v).how_far()}*" for v in found)


def expected(lesson: Path) -> str:
    """What the lesson says of its committed figure."""
    result = json.loads((ROOT / "figures" / f"{lesson.stem}.json").read_text())
    reveal = reveal_of(lesson)
    lines = reveal.lines(result, claims.verdicts(reveal.claims, result))
    where = f"On {result['ranks']} ranks ({result['place']}; {result['machine']['cpu']}) it took"
    return "\n".join(
        [
            f"{where} {result['took_s']:.0f} s and said:",
            "",
            *(f"    {line}" for line in [*lines, reveal.ask]),
            f"        Measured: {reveal.answer(result)}.",
        ]
    )


def with_expected(text: str, lesson: Path) -> str:
    """The teacher's page with today's expected output."""
    return between(EXPECTED, text, expected(lesson))


def dilation() -> str:
    """The table of tests/speed/dilation_speed.py: the same step in two ways."""
    found = json.loads((ROOT / "figures" / "dilation.json").read_text())
    rows = [
        "| the same step in two ways | longer over shorter | lowest to highest |",
        "|---|---|---|",
    ]
    for row in found["rows"]:
        spread = f"{row['ratio_min']:.3f} to {row['ratio_max']:.3f}"
        rows.append(f"| {row['name']} | {row['ratio']:.3f} | {spread} |")
    limit = found["rows"][0]["wanted"][1]
    where = f"Measured {found['date']}, {found['machine']['cpu']}; wanted: at most {limit:g}."
    return "\n".join([*rows, "", where])


def with_dilation(text: str) -> str:
    """The page of lesson 07 with today's table of its appendix."""
    return between(DILATION, text, dilation())


def between(marks: tuple[str, str], text: str, new: str, space: str = "\n") -> str:
    """`text` with `new` between the marks. space: a table of Markdown needs a line around it."""
    start, end = map(re.escape, marks)
    block = f"{marks[0]}\n{space}{new}\n{space}{marks[1]}"
    return re.sub(f"{start}.*?{end}", lambda _: block, text, flags=re.S)


if __name__ == "__main__":
    judge_figures()
    README.write_text(with_readme(README.read_text()))
    RESULTS.write_text(with_results(RESULTS.read_text()))
    for lesson in sorted((ROOT / "lessons").glob("[0-9]*_*.py")):
        page = ROOT / "lessons" / "teaching" / f"{lesson.stem[:2]}.md"
        if page.exists():
            page.write_text(with_dilation(with_expected(page.read_text(), lesson)))
    print("README.md; docs/results.md: techniques and headlines; lessons/teaching: expected output")
