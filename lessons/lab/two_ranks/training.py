"""Measurements of lesson 00: training with and without messages, and when Send returns.

Distances to the true weights are root mean squares over all weights and the last third of the
steps: a single step's is mostly chance.
"""

import time

import numpy as np

import kit
from kit.oracle import agreed
from kit.rejected import reject
from kit.words import number_of_bytes, seconds
from refgf.machine import threads
from refgf.oracle.definitions import exact_sum, summation_bound

FEATURES, SAMPLES, RATE, NOISE = 32, 16, 0.05, 0.1
STEPS, RANKS = 300, (1, 2, 4, 8, 16)
TRUTH = np.linspace(-1, 1, FEATURES)
LATE_S = 0.02  # the receiver calls Recv this much later
TAG = 7


def check(run: kit.Run, mean_of_ranks) -> None:
    """mean_of_ranks against the exact sum. Raises AssertionError."""
    run.section("The oracle")
    for n in (0, 1, 1000):
        x = np.random.default_rng([run.rank, n]).standard_normal(n)
        xs = run.gather(x.copy())
        mean_of_ranks(run.comm, x)
        error = np.abs(x - exact_sum(xs) / run.size)
        if (error > summation_bound(xs) / run.size + np.spacing(np.abs(x))).any():
            mean = exact_sum(xs) / run.size
            reject(f"mean_of_ranks, n = {n}: got {x}; wanted the mean {mean}")
    agreed(
        run,
        "mean_of_ranks is the mean of all ranks, for n = 0, 1 and 1000, to within rounding.",
    )


def samples(rank: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """A rank's data: x (steps, SAMPLES, FEATURES), y (steps, SAMPLES), made with noise."""
    random = np.random.default_rng([2019, rank])
    x = random.standard_normal((steps, SAMPLES, FEATURES))
    return x, x @ TRUTH + NOISE * random.standard_normal((steps, SAMPLES))


def measure(run: kit.Run, sgd, step, gradient) -> dict:
    """Train on all ranks with the mean, without any message, and on one rank with all samples."""
    run.section("Training")
    x, y = samples(run.rank, STEPS)
    weights, own = np.zeros(FEATURES), np.zeros(FEATURES)
    paths = {"mean": [], "own": []}
    for batch, wanted in zip(x, y):
        step(run.comm, weights, batch, wanted, RATE)
        own -= RATE * gradient(own, batch, wanted)
        paths["mean"].append(weights.copy())
        paths["own"].append(own.copy())
    apart = {name: np.ptp(run.gather(path[-1]), axis=0).max() for name, path in paths.items()}
    every = [samples(rank, STEPS) for rank in range(run.size)]
    together = [np.concatenate(parts, axis=1) for parts in zip(*every)]  # (steps, p SAMPLES, ...)
    one_rank = sgd(*together, RATE)
    bound = (
        STEPS * (run.size * SAMPLES + FEATURES) * np.finfo(float).eps * np.abs(together[0]).max()
    )
    found = {
        "steps": STEPS,
        "one_rank": float(np.abs(run.gather(weights - one_rank)).max()),
        "between": float(apart["mean"]),
        "without": float(apart["own"]),
        "rounding": float(bound),
        "worth": worth(gradient),
    }
    run.table(
        [f"largest difference of a weight, {STEPS} steps", ""],
        [
            ["mean of gradients, from one rank with all samples", f"{found['one_rank']:.1e}"],
            ["mean of gradients, between ranks", f"{found['between']:.1e}"],
            ["each rank its own gradient, between ranks", f"{found['without']:.1e}"],
            ["bound of rounding", f"{bound:.1e}"],
        ],
    )
    shown = [
        [row["ranks"], *(f"{row[name]:.2e}" for name in ("own", "mean", "predicted"))]
        for row in found["worth"]
    ]
    run.say("\nDistance of a weight to the true one (root mean square):")
    run.table(["ranks", "own gradients", "mean of gradients", "predicted"], shown)
    return found


def worth(gradient) -> list[dict]:
    """The distance to the true weights for each number of ranks, with messages and without.

    All ranks are computed in this process. Predicted: one rank's distance over sqrt(p), because the
    noise of a mean of p independent gradients is sqrt(p) times smaller.
    """
    xs, ys = map(np.stack, zip(*(samples(rank, STEPS) for rank in range(RANKS[-1]))))
    own = [distance(path(gradient, [x], [y])) for x, y in zip(xs, ys)]
    one = root_mean_square(own)
    return [
        {
            "ranks": p,
            "own": root_mean_square(own[:p]),
            "mean": root_mean_square(distance(path(gradient, xs[:p], ys[:p]))),
            "predicted": one / p**0.5,
        }
        for p in RANKS
    ]


def path(gradient, xs, ys) -> list[np.ndarray]:
    """The weights after each step with the mean of the gradients of len(xs) ranks."""
    w, found = np.zeros(FEATURES), []
    for t in range(STEPS):
        w = w - RATE * sum(gradient(w, x[t], y[t]) for x, y in zip(xs, ys)) / len(xs)
        found.append(w)
    return found


def distance(path: list[np.ndarray]) -> float:
    return root_mean_square(np.array(path[-(len(path) // 3) :]) - TRUTH)


def root_mean_square(values) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def sends(run: kit.Run) -> dict:
    """Deadlock on threads; then how long Send takes if Recv comes late. -> {"deadlock", "sends"}"""
    run.section("Two ranks that both send first")
    deadlock = "none"
    try:
        threads.run(2, send_first)
    except threads.Deadlock as error:
        deadlock = str(error)
    run.tell(
        f"On threads, where every Send waits for its Recv, this is a deadlock:\n    {deadlock}"
    )
    rows = []
    for nbytes in [8 << k for k in range(0, 21, run.quick(4, 1))] if run.size > 1 else []:
        x = np.zeros(nbytes // 8)
        timing = run.slowest([send_s(run, x) for _ in range(run.quick(2, 5))])
        rows.append({"bytes": nbytes, "timing": timing, "waits": timing.median_s > LATE_S / 2})
    title = f"Send returns after, if Recv comes {seconds(LATE_S)} later"
    run.table(["bytes", title], [[number_of_bytes(r["bytes"]), r["timing"]] for r in rows])
    return {"deadlock": deadlock, "sends": rows, "late_s": LATE_S}


def send_first(comm) -> None:
    x, other = np.zeros(4), 1 - comm.Get_rank()
    comm.Send(x, other)
    comm.Recv(x, other)


def send_s(run: kit.Run, x: np.ndarray) -> float:
    """Seconds that rank 0's Send to rank 1 takes, while rank 1 sleeps before its Recv."""
    run.plain.Barrier()
    start_s = time.perf_counter()
    if run.rank == 0:
        run.plain.Send(x, 1, TAG)
    took_s = time.perf_counter() - start_s
    if run.rank == 1:
        time.sleep(LATE_S)
        run.plain.Recv(x, 0, TAG)
    run.plain.Barrier()
    return took_s if run.rank == 0 else 0.0
