"""results/gpu.json and the page results/gpu.md, from the rows of perform.py."""

import json
import platform
import re
import sys
from pathlib import Path

import numpy

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "lessons"))

from kit.record import code_hash  # noqa: E402
from refgf.device import module  # noqa: E402
from tests.gpu.measure import judge  # noqa: E402
from tests.gpu.perform import FAILED, OK, SKIPPED  # noqa: E402

CONTROL = re.compile(r"\x00|[^\n]*\r|\x1b\[[\d;]*[A-Za-z]")  # what a terminal wipes out, colours
LAST_LINES = 30  # of a failed part's output
NO_BAR = "-"


def facts(began: str, limit_s: float, mpi: str) -> dict:
    """When and on what: the first GPU, as CuPy names it."""
    cupy = module("gpu")
    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(0)
    return {
        "began": began,
        "limit_s": limit_s,
        "gpus": runtime.getDeviceCount(),
        "gpu": properties["name"].decode(),
        "memory_GiB": round(properties["totalGlobalMem"] / 2**30, 1),
        "driver": runtime.driverGetVersion(),
        "runtime": runtime.runtimeGetVersion(),
        "cupy": cupy.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
        "mpi": mpi,
        "measured_with": hashes(),
    }


def hashes() -> dict[str, str]:
    """The hash of each benchmark's code."""
    return {script.stem: code_hash(script) for script in sorted(HERE.glob("speed_*.py"))}


def judged(rows: list[dict]) -> list[dict]:
    """Every ratio of every part, with judge.py's verdict; None without a bar."""
    return [
        {"part": row["name"], **ratio}
        | {"verdict": judge.verdict(ratio) if "wanted" in ratio else None}
        for row in rows
        for ratio in row["ratios"]
    ]


def write(path: Path, facts: dict, rows: list[dict], planned: int) -> None:
    """PATH.json and PATH.md. planned: how many parts there are, of which len(rows) have ended."""
    ratios = judged(rows)
    left_out = "ratios", "output"  # the text file has the output
    parts = [{key: value for key, value in row.items() if key not in left_out} for row in rows]
    record = {**facts, "planned": planned, "parts": parts, "ratios": ratios}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n")
    path.with_suffix(".md").write_text(page(facts, rows, ratios, planned))


def page(facts: dict, rows: list[dict], ratios: list[dict], planned: int) -> str:
    failed = [row for row in rows if row["outcome"] == FAILED]
    lines = [
        "# The run on a GPU",
        "",
        f"{facts['began']}: {facts['gpus']} GPU, {facts['gpu']}, {facts['memory_GiB']} GiB; CUDA "
        f"{facts['driver']} (driver), {facts['runtime']} (runtime); CuPy {facts['cupy']}; "
        f"NumPy {facts['numpy']}, Python {facts['python']}; {facts['mpi']}.",
        "",
        summary(rows, planned),
        "",
        *table(
            ["stage", "part", "ranks", "outcome", "s", "reason"],
            [
                [row["stage"], row["name"], row["ranks"] or 1]
                + [row["outcome"], row["seconds"], row["reason"]]
                for row in rows
            ],
        ),
        "",
        "## Ratios",
        "",
        *table(["ratio", "measured", "range", "bar", "verdict"], map(cells, ratios)),
    ]
    for row in failed:
        last = "\n".join(CONTROL.sub("", row["output"]).splitlines()[-LAST_LINES:])
        lines += ["", f"## {row['name']}", "", f"`{row['command']}`: {row['reason']}", ""]
        lines += ["~~~text", last, "~~~"]
    return "\n".join(lines) + "\n"


def summary(rows: list[dict], planned: int) -> str:
    counts = {word: sum(row["outcome"] == word for row in rows) for word in (OK, FAILED, SKIPPED)}
    words = ", ".join(f"{count} {word}" for word, count in counts.items())
    open_ones = f", {planned - len(rows)} not yet ended" if planned > len(rows) else ""
    return f"{planned} parts: {words}{open_ones}."


def cells(ratio: dict) -> list:
    bar = "{} {:g}".format(*ratio["wanted"]) if "wanted" in ratio else NO_BAR
    spread = f"{ratio['ratio_min']:.2f} to {ratio['ratio_max']:.2f}"
    verdict = ratio["verdict"] or NO_BAR
    return [ratio["name"], judge.written(ratio), spread, bar, verdict]


def table(head: list[str], rows) -> list[str]:
    """Markdown. Nothing in a cell may end it."""
    lines = [[str(cell).replace("|", "/").replace("\n", " ") for cell in row] for row in rows]
    return [f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *lines]]
