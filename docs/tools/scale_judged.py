"""The last section of docs/scale.md: predictions next to what was measured, here and by others."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median

from refgf.plan import judged

FIGURES = Path(__file__).resolve().parents[2] / "figures"
FILE = FIGURES / "plan_unseen.json"
SIDES = {"refgf": "theta of lazy allreduce", "ddp": "`bucket_cap_mb` of PyTorch's DDP over gloo"}


def words(table: Callable[[list, list], str]) -> dict[str, str]:
    """{name in the template: text}. table: (header, rows) -> Markdown."""
    found = json.loads(FILE.read_text())
    steps = found["steps"]
    header = ["measured", "error of the prediction, median", "largest", "inside the interval"]
    fill = {
        "ranks": found["ranks"],
        "date": found["date"],
        "networks": ", ".join(each(steps, "network")),
        "rates": " and ".join(each(steps, "rate")),
        "": table(header, [row_of(steps, name) for name in each(steps, "system")]),
        "steps": len(steps),
        "error": percent(median(errors(steps))),
        "inside": inside(steps),
        "buckets": "; ".join(near(found["sweeps"], side) for side in SIDES),
    }
    return {f"judged_{name}" if name else "judged": str(text) for name, text in fill.items()}


def real(table: Callable[[list, list], str]) -> str:
    """A row for each published table: how far predictions are off there, and on which side."""
    rows = []
    for name, (errors, inside) in judged.tables().items():
        off, fast = [abs(error) for error in errors], sum(error > 0 for error in errors)
        cells = percent(median(off)), percent(sum(off) / len(off)), percent(max(off))
        rows.append([name, *cells, *(f"{count} of {len(off)}" for count in (fast, inside))])
    header = ["published", "error, median", "mean", "largest", "predicted too fast"]
    return table([*header, "inside the interval"], rows)


def tree() -> str:
    """How many times as long a ring takes round robin over the switches (lesson 08's figure)."""
    found = json.loads((FIGURES / "08_scaling.json").read_text())["models"]["tree"]
    in_order, dealt = found.values()
    times = [dealt[size] / in_order[size] for size in in_order]
    return f"{min(times):.1f} to {max(times):.1f} times on {', '.join(in_order)} ranks"


def each(rows: list[dict], key: str) -> list[str]:
    return [*dict.fromkeys(row[key] for row in rows)]


def row_of(steps: list[dict], system: str) -> list[str]:
    own = [row for row in steps if row["system"] == system]
    off = errors(own)
    return [system, percent(median(off)), percent(max(off)), f"{inside(own)} of {len(own)}"]


def errors(rows: list[dict]) -> list[float]:
    return [abs(row["error"]) for row in rows]


def inside(rows: list[dict]) -> int:
    """How many were measured inside their interval."""
    return sum(row["low_s"] <= row["measured_s"] <= row["high_s"] for row in rows)


def near(sweeps: list[dict], side: str) -> str:
    own = [row["over_best"] for row in sweeps if row["side"] == side]
    return f"{SIDES[side]}, {len(own)} sweeps, at worst {percent(max(own) - 1)} slower"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"
