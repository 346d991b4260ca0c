"""Repeated trainings: their summary in words, and the paired comparison of two methods.

A training is the list of epochs that `flow.learn` returns.
"""

import statistics

from refgf.exchange.chunk_choice import Density

WARMUP = (100, 100, 50, 25)  # percent in the first epochs: a third of a long run


def deal(run, jobs: list[tuple], function) -> list:
    """[function(*job) for job in jobs]: job i is done by rank i mod p. Collective."""
    mine = {i: function(*job) for i, job in list(enumerate(jobs))[run.rank :: run.size]}
    run.meet()  # ranks that are done leave the cores to the others
    found = {i: result for results in run.plain.allgather(mine) for i, result in results.items()}
    return [found[i] for i in range(len(jobs))]


def warmup_of(run, epochs: int) -> tuple[float, ...]:
    """The value of --warmup, else that of `usual_warmup`."""
    asked = getattr(run.options, "warmup", None)
    return usual_warmup(epochs) if asked is None else tuple(asked)


def usual_warmup(epochs: int) -> tuple[float, ...]:
    """WARMUP; a short run takes every second entry of it."""
    return WARMUP if epochs >= 3 * len(WARMUP) else WARMUP[1::2][: epochs - 1]


def require_density(run, epochs: tuple[int, int, int]) -> None:
    """Check --density, --warmup and --chunk before anything is measured.

    epochs: of a quick, a default and a full run. Errors: ValueError.
    """
    count, chunk = run.options.epochs or run.quick(*epochs), run.options.chunk
    Density(run.options.density, warmup_of(run, count), steps=count)
    if chunk is not None and chunk < 1:
        raise ValueError(
            f"--chunk: got {chunk}; wanted at least 1 element; "
            "next: 32768 as in the paper, or leave it out"
        )


def in_words(runs: list[list[dict]]) -> str:
    """Mean final loss, mean final accuracy, and the range of the accuracies."""
    last = [rows[-1] for rows in runs]
    right = [100 * (row["accuracy"] or 0) for row in last]
    spread = f" ({min(right):.1f} to {max(right):.1f})" if len(right) > 1 else ""
    loss = statistics.mean(row["loss"] for row in last)
    return f"loss {loss:.4f}, accuracy {statistics.mean(right):.1f} %{spread}"


def interval(some, others) -> str:
    """The paired difference in accuracy, in words."""
    mean, half = difference(some, others)
    return f"{mean:+.2f} points, 95 % interval {mean - half:+.2f} to {mean + half:+.2f}"


def difference(some, others) -> tuple[float, float]:
    """Mean of the paired differences in accuracy and half of its 95 % interval, in points."""
    pairs = zip(some, others, strict=True)
    return mean_and_half([100 * (a[-1]["accuracy"] - b[-1]["accuracy"]) for a, b in pairs])


def mean_and_half(values: list[float]) -> tuple[float, float | None]:
    """(mean, half of its 95 % interval by Student's t); the latter is None for a single value."""
    mean, freedom = statistics.mean(values), len(values) - 1
    if not freedom:
        return mean, None
    from scipy.special import stdtrit  # here, because it costs each rank 0.15 s

    return mean, float(stdtrit(freedom, 0.975)) * statistics.stdev(values) / len(values) ** 0.5
