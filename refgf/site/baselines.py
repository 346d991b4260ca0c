"""The baselines: what `make peers` compares, and the ratios that it measured, if it was run."""

import ast
import json
from html import escape
from pathlib import Path

from refgf.site.docstring import spaced
from refgf.site.frame import contents, page
from refgf.site.markdown import Text, plain, table
from refgf.site.repository import Repository

ADDRESS, TITLE = "baselines/index.html", "Baselines"
RATIOS = "figures/peers.json"  # written by tests/speed/run.py --publish
COLUMNS = ["ratio", "median", "lowest .. highest", "wanted", "verdict"]
ABOUT = "What this project is measured against, and the ratios as last measured."
WHERE = (
    "<p>Measured by <code>make peers</code> ({dates}; {machine}). A ratio is the median of pairs "
    "that took turns, with the lowest and the highest. Rows with nothing wanted are for "
    "comparison.</p>"
)


def baselines_page(files: Repository) -> str:
    text = Text(files, ADDRESS, "tests/speed/run.py")
    parts = [text.heading("Measured ratios"), measured(files.root)]
    parts.append(text.heading("How they are measured"))
    parts.append(text.docstring(spaced(docstring(files, "tests/speed/run.py"))))
    for file in sorted((files.root / "tests/speed").glob("*_speed.py")):
        path = file.relative_to(files.root).as_posix()
        first, _, rest = docstring(files, path).partition("\n\n")
        source = text.link(files.source(path))
        parts.append(text.heading(file.stem.removesuffix("_speed").replace("_", " ")))
        parts.append(f'<p>{escape(first)} <a href="{source}">{path}</a></p>{plain(rest, "doc")}')
    body = f"<h1>{TITLE}</h1>\n<p>{ABOUT}</p>{contents(text.headings)}" + "\n".join(parts)
    return page(ADDRESS, TITLE, body, ABOUT)


def docstring(files: Repository, path: str) -> str:
    return ast.get_docstring(ast.parse(files.text(path))) or ""


def measured(root: Path) -> str:
    """When and where the ratios were measured, and their table."""
    found = json.loads((root / RATIOS).read_text())
    about = found["about"].values()
    dates = ", ".join(sorted({each["date"] for each in about}))
    machines = sorted({f"{each['cpu']}, {each['cores']} cores" for each in about})
    where = WHERE.format(dates=dates, machine=escape("; ".join(machines)))
    return where + table(COLUMNS, [ratio_row(row) for row in found["rows"]], "ratios")


def ratio_row(row: dict) -> list[str]:
    wanted = row.get("wanted")
    return [
        escape(row["name"]),
        f"{row['ratio']:.2f}",
        f"{row['ratio_min']:.2f} .. {row['ratio_max']:.2f}",
        f"{escape(str(wanted[0]))} {wanted[1]:g}" if wanted else "",
        escape(row.get("verdict", "")),
    ]
