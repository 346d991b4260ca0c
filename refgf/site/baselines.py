"""The baselines: what `make peers` compares, and the ratios that it measured, if it was run."""

import ast
import json
from html import escape

from refgf.site.docstring import spaced
from refgf.site.frame import page
from refgf.site.markdown import Text, folded, plain, slug, table
from refgf.site.repository import Repository

ADDRESS, TITLE = "baselines/index.html", "Baselines"
RATIOS = "figures/peers.json"  # written by tests/speed/run.py --publish
COLUMNS = ["ratio", "median", "lowest .. highest", "wanted", "verdict"]
ABOUT = "What this project is measured against, and the ratios as last measured."
WHERE = (
    "<p>Measured by <code>make peers</code> ({dates}; {machine}). A ratio is the median of pairs "
    "that took turns, with the lowest and the highest. Where at most is wanted, smaller is better; "
    "where at least, larger. Rows with nothing wanted are for comparison.</p>"
)


def baselines_page(files: Repository) -> str:
    text = Text(files, ADDRESS, "tests/speed/run.py")
    found = json.loads(files.text(RATIOS))
    groups = grouped(found["rows"])
    parts = [where(found["about"]), overview(groups)]
    for file in sorted((files.root / "tests/speed").glob("*_speed.py")):
        path = file.relative_to(files.root).as_posix()
        first, _, rest = docstring(files, path).partition("\n\n")
        source = text.link(files.source(path))
        name = file.stem.removesuffix("_speed")
        parts.append(text.heading(name))
        parts.append(f'<p>{escape(first)} <a href="{source}">{path}</a></p>')
        if name in groups:
            parts.append(table(COLUMNS, [ratio_row(row) for row in groups[name]], "ratios"))
        parts.append(folded("How it is measured", plain(rest, "doc")))
    parts.append(text.heading("How all are run"))
    parts.append(text.docstring(spaced(docstring(files, "tests/speed/run.py"))))
    body = f"<h1>{TITLE}</h1>\n<p>{ABOUT}</p>" + "\n".join(parts)
    return page(ADDRESS, TITLE, body, ABOUT)


def docstring(files: Repository, path: str) -> str:
    return ast.get_docstring(ast.parse(files.text(path))) or ""


def where(about: dict[str, dict]) -> str:
    """When and where the ratios were measured."""
    dates = ", ".join(sorted({each["date"] for each in about.values()}))
    machines = sorted({f"{each['cpu']}, {each['cores']} cores" for each in about.values()})
    return WHERE.format(dates=dates, machine=escape("; ".join(machines)))


def grouped(rows: list[dict]) -> dict[str, list[dict]]:
    """{benchmark: its ratios}; a name is "benchmark: what is compared"."""
    found = {}
    for row in rows:
        found.setdefault(row["name"].partition(": ")[0], []).append(row)
    return found


def overview(groups: dict[str, list[dict]]) -> str:
    """Of each benchmark: how many ratios, how many have a bar, how many miss it."""
    cells = []
    for name, rows in groups.items():
        verdicts = [row["verdict"] for row in rows if row.get("verdict")]
        missed = sum(verdict != "ok" for verdict in verdicts)
        counts = map(str, (len(rows), len(verdicts), missed))
        cells.append([f'<a href="#{slug(name)}">{escape(name)}</a>', *counts])
    return table(["benchmark", "ratios", "with a bar", "missed"], cells, "benchmarks")


def ratio_row(row: dict) -> list[str]:
    wanted = row.get("wanted")
    lowest, highest = f"{row['ratio_min']:.2f}", f"{row['ratio_max']:.2f}"
    name = row["name"].partition(": ")[2].replace(f" ({lowest} to {highest})", "")
    return [
        escape(name),
        f"{row['ratio']:.2f}",
        f"{lowest} .. {highest}",
        f"{escape(str(wanted[0]))} {wanted[1]:g}" if wanted else "",
        escape(row.get("verdict", "")),
    ]
