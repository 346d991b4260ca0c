"""The tables of SPEC.md, written from the records: `make spec`.

A new statement needs a line in SPEC.md that begins with its number, where its row is to stand.
"""

from pathlib import Path

from refgf.oracle.spec.statement import STATEMENTS

SPEC = Path(__file__).parents[1] / "SPEC.md"


def with_rows(text: str) -> str:
    """The text of SPEC.md with the rows of all statements as their records have them."""
    rows = {f"| {number} ": statement.row for number, statement in STATEMENTS.items()}
    lines = text.split("\n")
    return "\n".join(rows.get(line[: line.find(" ", 2) + 1], line) for line in lines)


if __name__ == "__main__":
    SPEC.write_text(with_rows(SPEC.read_text()))
