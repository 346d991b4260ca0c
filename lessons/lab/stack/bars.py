"""The bars of lesson 07: their names, what each gains over the one before, and their table.

A row is {"name", "step": timing, "predicted_s", "calls", "own_share"}, all in this machine's time.
"""

from dataclasses import asdict, is_dataclass

import kit
from kit import axes
from kit.calls import Kind
from kit.experiment import say_star, star
from kit.rows import ratio, scaled
from kit.words import seconds
from refgf.exchange.lazy import Theta

NATIVE, FUSED = "MPI's allreduce", "MPI's, lazy"
RING, HALF, OVERLAP = "+ ring", "+ mixed precision", "+ overlap"
LAZY, CSC = "+ lazy allreduce", "+ CSC"
COLOURS = {CSC: 0, HALF: 1, OVERLAP: 2, LAZY: 3, RING: 4}  # of the lines of lessons 07 and 08
SCALE, DENSITY = 2.0**10, 10.0  # the loss scale of float16; percent of the chunks that CSC sends


def native(run: kit.Run, theta: float) -> dict[str, dict]:
    """The bars of MPI's own call; none where there is no MPI.

    With many tensors there is another one before it, which is no part of the stack: lazy allreduce
    alone, to tell what fewer calls gain without the other techniques.
    """
    found = {
        FUSED: {"allreduce": kit.mpi_allreduce, "grouping": Theta(theta)},
        NATIVE: {"allreduce": kit.mpi_allreduce, "grouping": Theta(0)},
    }
    if run.options.network != "resnet50":
        del found[FUSED]
    return found if run.mpi_allreduce() is not None else {}


def style(name: str) -> dict:
    """Colour and marker of a technique's line: the same in every figure of lessons 07 and 08."""
    return axes.style(COLOURS[name])


def kind_of(arguments: dict) -> Kind:
    """How a stack makes its calls."""
    overlap = arguments.get("overlap", False)
    return Kind(arguments["allreduce"], arguments.get("wire"), overlap)


def median_s(step) -> float:
    """Of a Timing, or of a timing as the JSON holds it."""
    return (asdict(step) if is_dataclass(step) else step)["median_s"]


def efficiencies(off: list[dict], steps: list[dict]) -> list[dict]:
    """Scaling efficiencies in percent, with the spreads of both steps: off, without exchange."""
    return [scaled(ratio(a, b), 100) for a, b in zip(off, steps, strict=True)]


def gains_s(rows: list[dict]) -> list[float | None]:
    """By how much each bar is shorter than the one before it; None where it adds no technique."""
    found, before_s = [], None
    for row in rows:
        step_s, adds = median_s(row["step"]), row["name"].startswith("+") and before_s
        found.append(before_s - step_s if adds else None)
        before_s = step_s
    return found


def in_all(rows: list[dict]) -> float:
    """First step over last step: how many times as fast the whole stack is."""
    steps_s = [median_s(row["step"]) for row in rows if row["name"] != FUSED]
    return steps_s[0] / steps_s[-1]


def gain_in_words(gain_s: float, step_s: float, k: float) -> str:
    """24.3 ms, x 1.32: by how much the step is shorter, on the cluster, and how many times."""
    return f"{1e3 * gain_s / k:.1f} ms, x {1 + gain_s / step_s:.3g}"


def show(run: kit.Run, here: dict) -> None:
    """The table, in the emulated cluster's time."""
    k, rows, alone_s = run.regime.dilation, here["rows"], here["alone"].median_s
    table = []
    for row, gain_s in zip(rows, gains_s(rows)):
        step_s = row["step"].median_s
        gain = "" if gain_s is None else gain_in_words(gain_s, step_s, k)
        table.append(
            [
                row["name"] + star(row["own_share"]),
                row["calls"],
                row["step"].divided(k),
                seconds(row["predicted_s"] / k),
                gain,
                f"{100 * alone_s / step_s:.0f} %",
            ]
        )
    run.say(f"A step without any exchange, update included: {here['alone'].divided(k)}.")
    head = ["", "calls", "step", "predicted", "gain", "efficiency"]
    run.table(head, table)
    say_star(run, rows, "this step is the processor's own time")
    run.say(f"In all x {in_all(rows):.3g}.")
    if here["latency_free"]:
        run.say("MPI's own calls do not wait for the link's latency, ours do: see machine/link.py.")
    pairs = [(row["predicted_s"], row["step"].median_s) for row in rows]
    run.say(kit.errors_in_words(pairs))
