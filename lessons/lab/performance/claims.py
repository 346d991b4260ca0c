"""What lesson 15 says of its numbers: how far models miss kernels, layers and steps."""

import statistics

from kit.claims import GAIN, LIMIT, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import where
from kit.words import percent
from lab.performance.composed_steps import BATCH, BLOCKING
from lab.performance.yours import YOURS


def errors(result: dict, model: str) -> list[float]:
    """Relative errors of a model on kernels that it has not seen."""
    kernels = result["kernels"]
    return [abs(kernel[model] / kernel["measured_s"] - 1) for kernel in kernels]


def median_error(result: dict, model: str) -> float:
    return statistics.median(errors(result, model))


def layers_s(step: dict, name: str) -> float:
    """Seconds of a held-out step in the layers that models predict: "measured", or a model's.

    Without normalisation, pooling, ReLU and dropout, which are calibrated (held_out_steps.py).
    """
    return sum(map(sum, step[name].values()))


def layer_errors(result: dict, model: str) -> list[float]:
    """Relative errors, with their signs, of all layers together in each held-out step."""
    steps = result["steps"]
    return [layers_s(step, model) / layers_s(step, "measured") - 1 for step in steps]


def network_cells(result: dict, network: str) -> int:
    """Cells of the map of links and batches in which the network is the bottleneck."""
    return sum(row.count("network") for row in result["map"]["bottlenecks"][network])


def largest_step_error(model: str):
    """Of the steps that kernels and rings predict together, on all numbers of ranks."""

    def error(result: dict) -> float | None:
        factors = [
            row["predicted_s"][model][BLOCKING] / row["measured_s"][BLOCKING]["median_s"]
            for row in result.get("composed", [])
        ]
        return max((abs(factor - 1) for factor in factors), default=None)

    return error


def shortfall_with_measured_layers(result: dict) -> float | None:
    """By which share measured layers and rings would predict a step too short, at most.

    Two predictions of a step differ by their layers alone, so measured layers lie on their line.
    """
    (step,) = where(result["steps"], batch=BATCH)
    true_s, *layers = (layers_s(step, name) for name in ("measured", *MODELS))
    found = []
    for row in result.get("composed", []):
        steps = [row["predicted_s"][model][BLOCKING] for model in MODELS]
        slope = (steps[1] - steps[0]) / (layers[1] - layers[0])
        predicted_s = steps[0] + slope * (true_s - layers[0])
        found.append(1 - predicted_s / row["measured_s"][BLOCKING]["median_s"])
    return max(found, default=None)


SHARES = "layers", "shares", "AlexNet"  # of a step's time in layers that flops limit
MODELS = "roofline", "perceptrons"
CLAIMS = (
    Claim(
        "Perceptrons miss unseen kernels by at most 0.5 times the roofline's error (medians).",
        lambda r: (median_error(r, "perceptrons"), "<", median_error(r, "roofline"), 0.5),
        "a busy machine, on which the clock itself errs",
        kind=GAIN,
    ),
    Claim(
        "Their median error is more than the clock's own, measured twice.",
        lambda r: (median_error(r, "perceptrons"), ">", r["training"]["repeatability"]),
        "a busy machine",
        kind=LIMIT,
    ),
    Claim(
        "The roofline's largest error is at least 0.5 times the kernel's measured time.",
        lambda r: (max(errors(r, "roofline")), ">", 1.0, 0.5),
        "which kernels were drawn",
    ),
    Claim(
        "Larger batches give flops more of AlexNet's time on a V100, and memory less.",
        ((*SHARES, "V100, 64 images"), ">", (*SHARES, "V100, 1 images")),
        "nothing: both are computed",
        timed=False,
    ),
    Claim(
        "The network is the bottleneck of AlexNet on more links and batches than of ResNet-50.",
        lambda r: (network_cells(r, "AlexNet"), ">", network_cells(r, "ResNet-50")),
        "nothing: both are computed",
        timed=False,
    ),
    Claim(
        "The roofline predicts all layers of a step together too long, the perceptrons within a "
        "tenth, at each unseen batch size.",
        lambda r: (min(layer_errors(r, "roofline")), ">", 0.0),
        "which layers the network has",
        control=(lambda r: max(map(abs, layer_errors(r, "perceptrons"))), "<", 0.1),
    ),
    Claim(
        "Kernels and rings together predict steps on 2, 4 and 8 ranks within 40 % (both models, "
        "medians).",
        lambda r: (
            (max(largest_step_error(model)(r) for model in MODELS), "<", 0.4)
            if r.get("composed")
            else None
        ),
        "ranks that wait for a core",
    ),
    Claim(
        "Perceptrons predict these steps worse than the roofline does. So would the measured times "
        "of the layers: a step takes longer than its parts together, and the roofline's layers, "
        "which are too long, make up for some of that.",
        lambda r: (
            (largest_step_error("perceptrons")(r), ">", largest_step_error("roofline")(r))
            if r.get("composed")
            else None
        ),
        "steps that take no longer than their parts together",
        kind=LIMIT,
        control=(shortfall_with_measured_layers, ">", largest_step_error("roofline")),
    ),
)


def rows(r: dict) -> list[Row]:
    """Errors of the models on unseen kernels, the largest held-out step, the study's answer."""
    found = [
        Row(f"median error of a kernel, {m}", median_error(r, m), None, percent) for m in MODELS
    ]
    step, composed = r["steps"][-1], r.get("composed", [])
    for model in MODELS[1:] if composed else MODELS:
        what = f"all layers at {step['batch']} images, {model}"
        found.append(Row(what, layers_s(step, "measured"), layers_s(step, model)))
    for row in composed[-1:]:
        times = row["measured_s"][BLOCKING], row["predicted_s"][MODELS[1]][BLOCKING]
        found.append(Row(f"step of {row['ranks']} ranks, {MODELS[1]} and rings", *times))
    if "sweeps" in r:
        what = f"ResNet-50, {r['base']['ranks']} V100s: network no bottleneck from"
        found.append(Row(what, None, r["enough"]["ResNet-50"], gigabits))
    return found


def gigabits(bytes_per_s: float) -> str:
    return f"{8e-9 * bytes_per_s:.3g} Gbit/s"


def answer(r: dict) -> str:
    roofline, perceptrons = (percent(median_error(r, model)) for model in MODELS)
    return f"{roofline}; the perceptrons {perceptrons}"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="By what percentage does the roofline miss a kernel (median)?",
    guess=Guess("50 %"),
    answer=answer,
    picture="Predicted over measured times of kernels for roofline and perceptrons; all layers of "
    "steps at three batch sizes, measured and predicted by both.",
    yours=YOURS,
)
