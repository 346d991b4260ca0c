"""The figure of lesson 02: each layer's share of time and of bytes; bytes ready against time."""

import numpy as np

from kit import axes
from kit.layers import backward_s
from kit.words import percent
from lab.alexnet.claims import MOST, ready_share

REST = "norm, pool,\nReLU, drop"  # layers that are not drawn one by one
HEIGHT = 0.38  # of a bar; layers are 1 apart


def draw(result: dict):
    layers = result["layers"]
    step = f"\n{layers['step']}" if "step" in layers else ""
    figure, (shares, ready) = axes.frame(f"Lesson 02: AlexNet, a step of one rank{step}", 1, 2)
    figure.set_label(f"1 rank of {result['ranks']}; the others sleep")  # it sends nothing
    draw_shares(shares, layers)
    draw_ready(ready, layers)
    label_most(ready, result)
    return axes.finish(figure, shares, ready)


def draw_shares(axis, layers: dict) -> None:
    """Two bars for each layer, in percent: of the step's time, of the gradients' bytes."""
    named = [row for row in layers["rows"] if row["kind"] in ("conv", "fc")]
    rest = [row for row in layers["rows"] if row not in named]
    whole_s = sum(sum(row["seconds"]) for row in layers["rows"])
    whole = sum(row["parameters"] for row in layers["rows"])

    def share(key: str, of: float) -> np.ndarray:
        each = [[row] for row in named] + [rest]
        return np.array([100 / of * sum(np.sum(row[key]) for row in rows) for rows in each])

    times, low, high, predicted = (
        share(key, whole_s) for key in ("seconds", "low_s", "high_s", "predicted_s")
    )
    spread = np.maximum([times - low, high - times], 0)
    places = np.arange(len(named) + 1)
    time_colour, byte_colour = axes.style(0)["color"], axes.style(1)["color"]
    axis.barh(
        places - HEIGHT / 2,
        times,
        HEIGHT,
        xerr=spread,
        capsize=3,
        color=time_colour,
        label=f"time (all: {1e3 * whole_s:.0f} ms)",
    )
    axis.plot(
        predicted,
        places - HEIGHT / 2,
        "D",
        color=axes.PREDICTED,
        mfc="white",
        ms=5,
        label="time, predicted by the roofline",
    )
    nbytes = share("parameters", whole)
    axis.barh(
        places + HEIGHT / 2,
        nbytes,
        HEIGHT,
        color=byte_colour,
        hatch="//",
        ec="white",
        label=f"gradients (all: {4e-6 * whole:.0f} MB)",
    )
    axis.set_yticks(places, [*(row["name"] for row in named), REST])
    axis.set(
        title="Each layer's share of time and of bytes",
        ylim=(len(places) - 0.4, -0.6),
        xlim=(0, min(100, axis.get_xlim()[1])),
        xlabel="share, %",
    )


def draw_ready(axis, layers: dict) -> None:
    """Megabytes of gradients that are ready, against the time since backward began."""
    together = np.cumsum([nbytes for _, nbytes in layers["tensors"]]) / 1e6
    measured, predicted = (
        [1e3 * t for t in layers[key]] for key in ("ready_s", "predicted_ready_s")
    )
    colour = axes.style(0)["color"]
    axis.step([0, *measured], [0, *together], where="post", color=colour, label="measured")
    axis.plot(measured, together, "o", ms=3, color=colour)
    axis.step(
        [0, *predicted],
        [0, *together],
        "--",
        where="post",
        lw=1,
        color=axes.PREDICTED,
        label="predicted",
    )
    for (name, _), at, height in zip(layers["tensors"], measured, together):
        if name.endswith("weight"):
            axis.annotate(
                name.split(".")[0],
                (at, height),
                (3, -11),
                textcoords="offset points",
                fontsize=axes.TEXT_POINTS,
            )
    axis.axvline(1e3 * backward_s(layers), color="grey", lw=1, label="end of backward")
    last = max(measured[-1], predicted[-1], 1e3 * backward_s(layers))
    axis.set(
        title="When the gradients are ready",
        xlabel="since the start of backward, ms",
        ylabel="gradients ready, MB",
        xlim=(0, 1.12 * last),
        ylim=(0, None),
    )


def label_most(axis, result: dict) -> None:
    """Say where nine tenths of the bytes are ready."""
    share, nbytes = ready_share(result), [n for _, n in result["layers"]["tensors"]]
    at_ms = 1e3 * share * backward_s(result["layers"])
    axis.annotate(
        f"{percent(MOST)} of the bytes are ready\nafter {percent(share)} of backward",
        (at_ms, 1e-6 * MOST * sum(nbytes)),
        (0.35, 0.55),
        textcoords="axes fraction",
        arrowprops={"arrowstyle": "->", "shrinkB": 14},
    )
