"""README's table of techniques: what each gains and when it does not, from the figures' verdicts.

    python tests/gains.py     judges all claims on the figures' numbers, then writes the table
                              (`make figures` does it at its end; after a claim was reworded, too)

A row is a lesson; its claims of kind "gain" and "limit" are the columns (lessons/kit/claims.py).
"""

import importlib.util
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lessons"))

from kit import claims
from kit.record import plain

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
MARKS = "<!-- gains: written by tests/gains.py -->", "<!-- end of gains -->"
KINDS = ("gain", "limit")


def claims_of(lesson: Path) -> tuple:
    """CLAIMS of a lesson's file; () if it has none."""
    spec = importlib.util.spec_from_file_location(f"lesson_{lesson.stem}", lesson)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, "CLAIMS", ())


def judge_figures() -> None:
    """Write today's verdicts into every figure's JSON."""
    for path in sorted((ROOT / "figures").glob("[0-9]*_*.json")):
        lesson = ROOT / "lessons" / f"{path.stem}.py"
        if lesson.exists():
            result = json.loads(path.read_text())
            found = claims.verdicts(claims_of(lesson), result)
            result["verdicts"] = plain([asdict(verdict) for verdict in found])
            path.write_text(json.dumps(result, indent=1) + "\n")


def table() -> str:
    """The rows of all lessons with such claims, in order."""
    rows = ["| lesson | what it gains | when it does not |", "|---|---|---|"]
    for path in sorted((ROOT / "figures").glob("[0-9]*_*.json")):
        result = json.loads(path.read_text())
        cells = [cell(result.get("verdicts", []), kind) for kind in KINDS]
        if any(cells):
            number = path.stem[:2]
            like = result.get("regime", {}).get("like", "this-machine")
            rows.append(f"| [{number}](lessons/{path.stem}.py), {like} | {' | '.join(cells)} |")
    return "\n".join(rows)


def cell(verdicts: list[dict], kind: str) -> str:
    """The sentences of this kind with their verdicts."""
    found = [v for v in verdicts if v.get("kind") == kind]
    return "<br>".join(f"{v['text']} *{in_words(v)}*" for v in found)


def in_words(verdict: dict) -> str:
    """holds (x 1.65)"""
    ratio = verdict["ratio"]
    return verdict["verdict"] + (f" (x {ratio:.3g})" if ratio else "")


def with_table(text: str) -> str:
    """README's text with the table of today's figures."""
    start, end = map(re.escape, MARKS)
    return re.sub(
        f"{start}.*?{end}", lambda _: f"{MARKS[0]}\n\n{table()}\n\n{MARKS[1]}", text, flags=re.S
    )


if __name__ == "__main__":
    judge_figures()
    README.write_text(with_table(README.read_text()))
    print("README.md: table of techniques")
