"""Write the line counts of refgf/READING.md again: python docs/tools/reading.py"""

import re
from pathlib import Path

REFGF = Path(__file__).resolve().parents[2] / "refgf"


def main() -> None:
    page, total = REFGF / "READING.md", 0

    def counted(row: re.Match) -> str:
        nonlocal total
        lines = len((REFGF / row[1]).read_text().splitlines())
        total += lines
        return f"| `{row[1]}` | {lines} |"

    text = re.sub(r"^\| `([\w/]+\.py)` \| \d+ \|", counted, page.read_text(), flags=re.M)
    page.write_text(re.sub(r"\*\*[\d,]+ lines\*\*", f"**{total:,} lines**", text))
    print(f"{total:,} lines")


if __name__ == "__main__":
    main()
