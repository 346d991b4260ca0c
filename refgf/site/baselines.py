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
RATIOS = "results/peers/ratios.json"  # written by tests/speed/run.py
COLUMNS = ["ratio", "median", "lowest .. highest", "wanted", "verdict"]
ABOUT = "What this project is measured against, and the ratios as last measured."
NONE = (
    "<p>No ratios are shown: this site was built from a checkout in which <code>make peers</code> "
    "has not been run. It measures all of them and takes its time; then <code>make site</code> "
    "shows them here.</p>"
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
    """The table of ratios, or the sentence that there are none."""
    file = root / RATIOS
    rows = json.loads(file.read_text()) if file.is_file() else []
    return table(COLUMNS, [ratio_row(row) for row in rows], "ratios") if rows else NONE


def ratio_row(row: dict) -> list[str]:
    wanted = row.get("wanted")
    return [
        escape(row["name"]),
        f"{row['ratio']:.2f}",
        f"{row['ratio_min']:.2f} .. {row['ratio_max']:.2f}",
        f"{escape(str(wanted[0]))} {wanted[1]:g}" if wanted else "",
        escape(row.get("verdict", "")),
    ]
