"""Lesson 05's rounding errors: replayed sums over p ranks, next to the noise of a mini-batch.

    found = rounding.errors(run)            relative errors for p = 2 to 512, and predictions
    found = rounding.overflow(run)          where a sum overflows that is divided afterwards
    found = rounding.noise(run, data)       spread of real gradients, and their rounding errors

The noise of a mini-batch: gradients g_1 ... g_m of m disjoint batches with the same weights are
samples of the full gradient, and h is their mean. All norms are Euclidean:

    noise^2 = (|g_1 - h|^2 + ... + |g_m - h|^2) / (m - 1)            relative: noise / |h|

For independent images it falls with the root of the batch.
"""

import statistics

import numpy as np

import kit
from kit import flow, images, rounding, trials
from kit.rows import summary
from refgf.comm import direct, ring
from refgf.device import to_host
from refgf.exchange.lazy import Theta
from refgf.oracle import definitions
from refgf.training.data import batches

HALF = np.float16
RANKS = (2, 3, 4, 8, 16, 32, 64, 128, 256, 512)
RING, DIRECT = "ring, float16", "direct, float16"
KINDS = {RING: (ring, HALF), DIRECT: (direct, HALF)}
DEFINITIONS = {RING: definitions.ring_allreduce, DIRECT: definitions.direct_allreduce}
LARGEST = 65_504  # in float16
SCALE = 2.0**10
MOST_BATCHES = 32  # of a rank: each is an array of all gradients
GLOBAL_BATCH = 65_536  # of the paper: 512 ranks with 128 images each


def errors(run: kit.Run) -> dict:
    """Relative error (root mean square) of sums over p ranks, which one process replays."""
    run.section("Rounding: replayed sums of p random gradients")
    ranks = run.quick(RANKS[:5], RANKS)
    jobs = [(p, name) for p in reversed(ranks) for name in KINDS]  # the longest first
    results = trials.deal(run, jobs, lambda p, name: rounding.error_of(p, *KINDS[name]))
    found = dict(zip(jobs, results))
    measured = {p: {name: found[p, name] for name in KINDS} for p in ranks}
    one = rounding.one_rounding()
    predicted = {p: {RING: one * ((p + 1) / 2) ** 0.5, DIRECT: one * 2**0.5} for p in ranks}
    run.say(f"One rounding to float16 has a relative error of r = {one:.2e}.")
    run.table(
        ["p", "ring", "predicted", "direct", "predicted"],
        [
            [p, *(f"{values[p][name]:.2e}" for name in KINDS for values in (measured, predicted))]
            for p in ranks
        ],
    )
    return {"ranks": ranks, "errors": measured, "predicted": predicted, "one_rounding": one}


def overflow(run: kit.Run) -> dict:
    """Sum gradients up to 400 over p ranks in float16, and divide by p after or before the sum."""
    run.section("Where division after the sum overflows")
    rows = {}
    for p in (8, 64, 128, 256, 512):
        values = np.random.default_rng(p).uniform(100, 400, 256).astype(np.float32)
        after = np.isinf(rounding.ring_sum(values, p)).mean()
        before = np.isinf(rounding.ring_sum(values / np.float32(p), p)).mean()
        rows[p] = {"after": float(after), "before": float(before)}
    run.table(
        ["p", "infinite, divided after the sum", "divided before"],
        [
            [p, f"{100 * row['after']:.0f} %", f"{100 * row['before']:.0f} %"]
            for p, row in rows.items()
        ],
    )
    run.say("All ranks hold the same vector, with values between 100 and 400.")
    run.say(f"float16 ends at {LARGEST:,}. In refgf each loss is divided by the global batch,")
    run.say("so the exchange only sums.")
    return rows


def noise(run: kit.Run, data) -> dict:
    """{ranks: {"noise", "extrapolated", RING, DIRECT}} of a batch.

    ranks k: the batch of k ranks with --batch images each. Values are relative to the gradient, at
    several moments of a training: {"median_s", "low_s", "high_s"}, as claims take them.
    """
    run.section("Noise of a mini-batch, next to rounding errors")
    moments = run.quick([2], [10, 45, 90])
    found, done = [], 0
    with flow.new(run, data, grouping=Theta()) as stack:
        steps = iter(images.steps(run, data, moments[-1]))
        for moment in moments:
            for _ in range(moment - done):
                stack.step(*next(steps), rate=run.options.rate)
            done = moment
            found.append(noise_and_rounding(run, gradients_of(run, data, stack.model)))
    rows = {
        k: {name: summary(moment[k][name] for moment in found) for name in found[0][k]}
        for k in found[0]
    }
    run.say(f"after {', '.join(map(str, moments))} steps; ring and direct over k ranks")
    run.table(
        [
            "ranks k",
            "images",
            "noise",
            "1 rank's / root of k",
            "rounding, ring",
            "rounding, direct",
        ],
        [
            [
                k,
                k * run.options.batch,
                in_words(row["noise"]),
                f"{row['extrapolated']['median_s']:.2g}",
                *(f"{row[name]['median_s']:.2e}" for name in DEFINITIONS),
            ]
            for k, row in rows.items()
        ],
    )
    far = rows[1]["noise"]["median_s"] * (run.options.batch / GLOBAL_BATCH) ** 0.5
    run.say(
        f"Extrapolated, not measured: a batch of {GLOBAL_BATCH:,} images has a noise of {far:.2g}."
    )
    return {"rows": rows, "batch": run.options.batch, "moments": moments, "extrapolated": far}


def gradients_of(run: kit.Run, data, model) -> np.ndarray:
    """The gradients of this rank's batches with the same weights: (M, n), M alike on all ranks."""
    flat, size, rows = model.gradients.flat, run.options.batch * run.size, []
    for x, labels, _ in batches(data, size, 0, images.SEED, run.rank, run.size, drop_last=True):
        if len(rows) < run.quick(4, MOST_BATCHES):
            model.network.loss(x, labels, len(labels))
            model.network.backward(lambda i: None)
            rows.append(to_host(flat).copy())
    return np.array(rows)


def noise_and_rounding(run: kit.Run, gradients: np.ndarray) -> dict:
    """{k: {name: value}} for batches of k of these gradients (M, n)."""
    rows, k = {}, 1
    while k * 2 <= run.size * len(gradients) and k <= len(gradients):
        groups = gradients[: len(gradients) // k * k]
        means = groups.reshape(-1, k, groups.shape[1]).mean(axis=1)  # (M // k, n)
        rows[k] = {"noise": relative_noise(run, means)}
        rows[k]["extrapolated"] = rows[1]["noise"] / k**0.5
        for name, allreduce in DEFINITIONS.items():
            mine = rounding_error(gradients[:k] / np.float32(k), allreduce)
            rows[k][name] = statistics.median(run.gather(mine))
        k *= 2
    return rows


def relative_noise(run: kit.Run, means: np.ndarray) -> float:
    """noise / |h| of the batches on all ranks. means: this rank's gradients (m, n)."""
    squares = sum(float(np.square(row, dtype=np.float64).sum()) for row in means)
    found = run.gather((means.sum(axis=0, dtype=np.float64), squares, len(means)))
    totals, squares, counts = zip(*found)
    m = sum(counts)
    of_mean = float(np.square(np.sum(totals, axis=0) / m).sum())  # |h|^2
    return float(((sum(squares) - m * of_mean) / (m - 1) / of_mean) ** 0.5)


def rounding_error(gradients: np.ndarray, allreduce) -> float:
    """Relative error of the float16 sum over len(gradients) ranks, by the definition's bits."""
    exact = gradients.sum(axis=0, dtype=np.float64)
    got = definitions.scaled_allreduce(list(gradients), SCALE, allreduce=allreduce)[0]
    return rounding.rms(got - exact) / rounding.rms(exact)


def in_words(value: dict) -> str:
    return f"{value['median_s']:.2g} [{value['low_s']:.2g}..{value['high_s']:.2g}]"
