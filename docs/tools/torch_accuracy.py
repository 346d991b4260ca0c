"""Writes the table of docs/torch.md: accuracy of CSC next to what else can be put into DDP.

    python docs/tools/torch_accuracy.py [--ranks 4] [--seeds 5] [--epochs 8]      some minutes

Each row is trained with the same seeds as dense training; the interval is that of the mean of the
paired differences (95 %, Student's t).
"""

import argparse
import statistics
from pathlib import Path

import torch
from scipy import stats

from refgf.torch import example
from tests.support.gloo import on_gloo

PAGE = Path(__file__).resolve().parents[1] / "torch.md"
BEGIN, END = (
    "<!-- accuracy: written by docs/tools/torch_accuracy.py -->",
    "<!-- end of accuracy -->",
)
DENSE = ("DDP alone, float32", ["--hook", "default"])
ROWS = (
    DENSE,
    ("DDP's fp16 hook", ["--hook", "fp16"]),
    ("PowerSGD, rank 2, from epoch 2", ["--hook", "powersgd"]),
    *(
        (f"CSC, {density} %{', no warm-up' if not warmup else ''}", words)
        for density, warmup in ((25, True), (10, True), (5, True), (1, True), (10, False))
        for words in [["--density", str(density), "--warmup", *(["100", "25"] if warmup else [])]]
    ),
    ("CSC, 10 %, dgc_masked", ["--form", "dgc_masked"]),
    ("CSC, 10 %, none", ["--form", "none"]),
    ("CSC, 10 %, float16 on the wire", ["--half"]),
)


def accuracies(rank: int, seeds: int, epochs: int) -> list[list[float]]:
    """Of each row: the last accuracy for each seed."""
    found = []
    for _, words in ROWS:
        every = [["--seed", str(seed), "--epochs", str(epochs), *words] for seed in range(seeds)]
        found.append([example.train(example.parsed(one))[-1] for one in every])
    return found


def table(found: list[list[float]], arguments: argparse.Namespace) -> str:
    """Markdown: accuracy, and the difference from dense training."""
    steps = arguments.epochs * (1437 // example.BATCH)
    lines = [
        f"Digits (1,437 to train, 360 to test), {arguments.ranks} ranks, batch {example.BATCH}, "
        f"{arguments.epochs} epochs ({steps} steps), {arguments.seeds} seeds; warm-up: an epoch "
        f"dense, one at 25 %. PyTorch {torch.__version__.split('+')[0]}, gloo.",
        "",
        "| | right, % | minus dense, points (95 %) |",
        "|---|---|---|",
    ]
    for (name, _), row in zip(ROWS, found, strict=True):
        differences = [a - b for a, b in zip(row, found[0])]
        mean, spread = statistics.mean(differences), 0.0
        if len(row) > 1:
            t = stats.t.ppf(0.975, len(row) - 1)
            spread = t * statistics.stdev(differences) / len(row) ** 0.5
        said = "" if name == DENSE[0] else f"{mean:+.1f} ± {spread:.1f}"
        lines.append(f"| {name} | {statistics.mean(row):.1f} | {said} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("ranks", 4), ("seeds", 5), ("epochs", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    (found, *_) = on_gloo(arguments.ranks, accuracies, arguments.seeds, arguments.epochs)
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{table(found, arguments)}\n{END}{after}")


if __name__ == "__main__":
    main()
