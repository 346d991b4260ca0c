"""Several runs of the same training, each of them the epochs of flow.learn: in words, and one kind against another."""

import statistics

from kit import flow
from refgf.exchange.chunk_choice import Density
from refgf.training.data import steps_per_epoch

WARMUP = (100, 100, 50, 25)  # percent in the first epochs: a third of a long run


def training(run, name: str, seed: int, train, held_out, epochs: int, chunk: int | None = None) -> list[dict]:
    """The epochs of one training. name: "dense", or a form of momentum correction, and perhaps "no warm-up" after a comma."""
    parts = {}
    if name != "dense":
        warmup = () if "no warm-up" in name else warmup_of(run, epochs)
        per_epoch = steps_per_epoch(train.size, run.options.batch * run.size)
        density = Density(run.options.density, warmup, per_epoch, epochs * per_epoch)
        parts = {"density": density, "form": name.split(",")[0], "chunk": chunk}
    with flow.new(run, train, seed, theta_bytes=2**17, **parts) as stack:
        return flow.learn(run, stack, train, held_out, epochs, say=False, seed=seed)



def warmup_of(run, epochs: int) -> tuple[float, ...]:
    """As --warmup says; else WARMUP, or what of every second one of it is shorter than a short run."""
    if (asked := getattr(run.options, "warmup", None)) is not None:
        return tuple(asked)
    return WARMUP if epochs >= 3 * len(WARMUP) else WARMUP[1::2][: epochs - 1]


def require_density(run, epochs: tuple[int, int, int]) -> None:
    """Refuse --density, --warmup and --chunk before anything is measured. epochs: of a quick, a default and a full run."""
    count, chunk = run.options.epochs or run.quick(*epochs), run.options.chunk
    Density(run.options.density, warmup_of(run, count), steps=count)
    if chunk is not None and chunk < 1:
        raise ValueError(f"--chunk: got {chunk}; wanted 1 element or more; next: 32768 as in the paper, or leave it out")


def told(runs: list[list[dict]]) -> str:
    """Mean loss and accuracy at the end, and the range of the accuracies."""
    last = [rows[-1] for rows in runs]
    right = [100 * (row["accuracy"] or 0) for row in last]
    spread = f" ({min(right):.1f} to {max(right):.1f})" if len(right) > 1 else ""
    return f"loss {statistics.mean(row['loss'] for row in last):.4f}, {statistics.mean(right):.1f} % right{spread}"


def interval(some, others) -> str:
    """The difference in words."""
    mean, half = difference(some, others)
    return f"{mean:+.2f} points, 95 % interval {mean - half:+.2f} to {mean + half:+.2f}"


def difference(some, others) -> tuple[float, float]:
    """Mean of the paired differences in accuracy, and half of its 95 % interval (Student's t), in points."""
    differences = [100 * (a[-1]["accuracy"] - b[-1]["accuracy"]) for a, b in zip(some, others, strict=True)]
    half = t_95(len(differences) - 1) * statistics.stdev(differences) / len(differences) ** 0.5
    return statistics.mean(differences), half


def t_95(freedom: int) -> float:
    """97.5 % quantile of Student's t (tables; beyond 30 nearly normal)."""
    table = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 9: 2.26, 14: 2.145, 29: 2.045}
    return next((table[f] for f in sorted(table, reverse=True) if f <= freedom), 1.96)
