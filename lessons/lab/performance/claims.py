"""What lesson 15 says of its numbers: how far models miss kernels, and a step's bottleneck."""

import statistics

from kit.claims import GAIN, LIMIT, NOISE, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import ratio, where
from kit.words import percent
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


def network_cells(result: dict, network: str) -> int:
    """Cells of the map of links and batches in which the network is the bottleneck."""
    return sum(row.count("network") for row in result["map"]["bottlenecks"][network])


def loss_by_overlap(*ranks: int):
    """An overlapped step's time over that of one whose rings follow backward: the least of these.

    With the widest spread that both allow.
    """

    def least(result: dict) -> dict | None:
        steps = [r["measured_s"] for r in result.get("composed", []) if r["ranks"] in ranks]
        ratios = [ratio(step[OVERLAPPED], to=step[BLOCKING]) for step in steps]
        return min(ratios, key=lambda found: found["median_s"], default=None)

    return least


def largest_step_error(how: str, model: str = "roofline"):
    """Of the steps that kernels and rings predict together, on all numbers of ranks."""

    def error(result: dict) -> float | None:
        factors = [
            row["predicted_s"][model][how] / row["measured_s"][how]["median_s"]
            for row in result.get("composed", [])
        ]
        return max((abs(factor - 1) for factor in factors), default=None)

    return error


def shortfall_with_measured_layers(result: dict) -> float | None:
    """By which share measured layers and rings would predict a step too short, at most.

    Two predictions of a step differ by their layers alone, so measured layers lie on their line.
    """
    (step,) = where(result["steps"], batch=COMPOSED_BATCH)
    true_s, *layers = (layers_s(step, name) for name in ("measured", *MODELS))
    found = []
    for row in result.get("composed", []):
        steps = [row["predicted_s"][model][BLOCKING] for model in MODELS]
        slope = (steps[1] - steps[0]) / (layers[1] - layers[0])
        predicted_s = steps[0] + slope * (true_s - layers[0])
        found.append(1 - predicted_s / row["measured_s"][BLOCKING]["median_s"])
    return max(found, default=None)


SHARES = "layers", "shares", "AlexNet"  # of a step's time in layers that flops limit
COMPOSED_BATCH = 10  # images a rank in composed_steps.py
MODELS, BLOCKING, OVERLAPPED = ("roofline", "perceptrons"), "one after another", "overlapped"
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
    ),
    Claim(
        "Roofline and rings together predict steps on 2, 4 and 8 ranks within 30 %, where rings "
        "follow backward.",
        (largest_step_error(BLOCKING), "<", 0.3),
        "ranks that wait for a core",
    ),
    Claim(
        "Perceptrons, which predict single kernels better, predict these steps worse than the "
        "roofline does. So would the measured times of the layers: a step takes longer than its "
        "parts together, and the roofline's layers are too long.",
        lambda r: (
            (largest_step_error(BLOCKING, "perceptrons"), ">", largest_step_error(BLOCKING))
            if r.get("composed")
            else None
        ),
        "steps that take no longer than their parts together",
        kind=LIMIT,
        control=(shortfall_with_measured_layers, ">", largest_step_error(BLOCKING)),
    ),
    Claim(
        "Overlap gains nothing here: on 2 ranks an overlapped step takes longer than one whose "
        "rings follow backward.",
        (loss_by_overlap(2), ">", 1.0),
        "a core for each communication thread",
    ),
    Claim(
        "On 4 and 8 ranks, too, an overlapped step takes longer.",
        (loss_by_overlap(4, 8), ">", 1.0),
        "a core for each communication thread",
        expected=NOISE,
    ),
    Claim(
        "Where rings overlap backward, the prediction misses by more than 20 %, and by 1.3 times "
        "as much as where they follow.",
        (largest_step_error(OVERLAPPED), ">", 0.2),
        "a core for each communication thread",
        control=(largest_step_error(OVERLAPPED), ">", largest_step_error(BLOCKING), 1.3),
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
    picture="Predicted over measured times of kernels for roofline and perceptrons; steps, "
    "measured and predicted; the rooflines; the bottleneck of a step on a predicted cluster.",
    yours=YOURS,
)
