"""README's table of techniques: what each gains and when it does not, from the figures' verdicts.

    python tests/gains.py     writes the table into README.md (`make figures` does it at its end)

A row is a lesson; its claims of kind "gain" and "limit" are the columns (lessons/kit/claims.py).
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
MARKS = "<!-- gains: written by tests/gains.py -->", "<!-- end of gains -->"
KINDS = ("gain", "limit")


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
    README.write_text(with_table(README.read_text()))
    print("README.md: table of techniques")
