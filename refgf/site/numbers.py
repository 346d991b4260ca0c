"""The numbers of a figure as tables: figures/NN_name.json without what describes the run.

Each list of rows is a table of its own. All other numbers are one table of names and values. Long
tables are cut; the JSON file beside the page has all of it.
"""

from html import escape
from typing import Any

from refgf.site.markdown import folded, table

ABOUT_THE_RUN = {
    *("lesson", "date", "ranks", "place", "took_s", "options", "machine", "measured_with"),
    *("regime", "alt", "link_probed", "peak_bytes", "verdicts", "machine_file"),
}
ROWS, COLUMNS, NUMBERS, DEPTH = 40, 12, 6, 3


def is_timing(value: Any) -> bool:
    return isinstance(value, dict) and "median_s" in value


def cell(value: Any) -> str:
    """A number, a timing or a short list as text."""
    if is_timing(value):
        return f"{cell(value['median_s'])} ({cell(value['low_s'])} to {cell(value['high_s'])})"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        few = len(value) <= NUMBERS and not any(isinstance(item, list | dict) for item in value)
        return ", ".join(map(cell, value)) if few else f"{len(value)} values, see the JSON file"
    return escape(str(value))


def flat(value: dict, name: str = "", depth: int = 0) -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a, b": 1}"""
    found = {}
    for key, inner in value.items():
        inside = f"{name}, {key}" if name else str(key)
        if isinstance(inner, dict) and not is_timing(inner) and inner and depth < DEPTH:
            found |= flat(inner, inside, depth + 1)
        else:
            found[inside] = inner if not isinstance(inner, dict) or is_timing(inner) else str(inner)
    return found


def is_rows(value: Any) -> bool:
    """A list of dicts, or of lists of numbers."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def tables(result: dict) -> str:
    """The tables of a result, each with its name, and the sentence that says what a cell is."""
    numbers = {key: value for key, value in result.items() if key not in ABOUT_THE_RUN}
    found, others = [], {}
    for name, value in flat(numbers).items():
        if is_rows(value):
            found.append(rows_table(name, value))
        else:
            others[name] = value
    if others:
        pairs = [[escape(name), cell(value)] for name, value in others.items()]
        found.append(folded("single numbers", cut(["name", "value"], pairs, "single numbers")))
    return (
        "<p>Names are those of the JSON file: what ends in <code>_s</code> is in seconds. A time "
        "is the median, with the lowest and the highest repeat in brackets.</p>" + "\n".join(found)
    )


def rows_table(name: str, rows: list[dict]) -> str:
    flattened = [flat(row) for row in rows if isinstance(row, dict)]
    columns = list(dict.fromkeys(key for row in flattened for key in row))
    shown = columns[:COLUMNS]
    cells = [[cell(row.get(key)) for key in shown] for row in flattened]
    text = cut([escape(key) for key in shown], cells, name)
    if len(columns) > COLUMNS:
        text += f"<p>{len(columns) - COLUMNS} more columns are in the JSON file.</p>"
    return folded(f"{escape(name)}: {len(rows)} row{'s' * (len(rows) != 1)}", text)


def cut(columns: list[str], rows: list[list[str]], name: str) -> str:
    more = f"<p>{len(rows) - ROWS} more rows are in the JSON file.</p>" if len(rows) > ROWS else ""
    return table(columns, rows[:ROWS], name) + more
