"""Lesson 05's 8-bit numbers: what a hop's rounding does to them, and where they may be added.

    found = blocks.measure(run, gradients)      relative errors of sums over p ranks, predictions,
                                                the share of a rank's gradients that becomes zero

A number is an E4M3: a sign, 4 bits of exponent, 3 of fraction; the largest is 448, the smallest
2^-9. BLOCK of them share a power of two, so BLOCK numbers take BLOCK + 1 bytes. That is MXFP8 of
OCP's Microscaling Formats (statement P9 has the sources). Chosen here: the least power of two with
which the block's largest number fits. OCP's rule takes that number's own power of two, divided by
256, and cuts off at 448.
"""

import numpy as np

import kit
from kit import trials
from kit.rounding import rms
from lab.precision.rounding import RANKS

BLOCK, LARGEST, LEAST_EXPONENT, FRACTION_BITS = 32, 448, -6, 3
ELEMENTS = 4096
RING, DIRECT, GATHERED = "ring, float8", "direct, float8", "gathered, float8"
GROWTH = {  # of the error of one rounding, with p
    RING: lambda p: ((p + 1) / 2) ** 0.5,
    DIRECT: lambda p: 2**0.5,
    GATHERED: lambda p: 1.0,
}
SENT = {  # bytes a gradient, of one of p ranks
    name: lambda p: 2 * (p - 1) / p * (BLOCK + 1) / BLOCK for name in (RING, DIRECT)
} | {GATHERED: lambda p: (p - 1) * (BLOCK + 1) / BLOCK}


def rounded(x: np.ndarray, block: int = BLOCK) -> np.ndarray:
    """float32 numbers as they arrive after they were sent in blocks of 8-bit numbers. (n,) -> (n,)

    block 0: one scale for all.
    """
    block = block or max(1, x.size)
    rows = np.pad(x.astype(np.float64), (0, -x.size % block)).reshape(-1, block)
    top = np.abs(rows).max(axis=1, initial=0, keepdims=True)
    exponent = np.ceil(np.log2(np.where(top, top, LARGEST) / LARGEST))
    scale = np.exp2(np.clip(exponent, -127, 127))
    return (e4m3(rows / scale) * scale).reshape(-1)[: x.size].astype(np.float32)


def e4m3(y: np.ndarray) -> np.ndarray:
    """Numbers up to LARGEST, rounded to E4M3: to nearest, ties to even."""
    _, exponent = np.frexp(y)  # y is below 2^exponent
    step = np.exp2(np.maximum(exponent - 1, LEAST_EXPONENT) - FRACTION_BITS)
    return np.rint(y / step) * step


def total(xs: list[np.ndarray], how: str) -> np.ndarray:
    """The sum of a slice, added in float32 and rounded where it is sent."""
    found = rounded(xs[0])
    for x in xs[1:]:
        found = rounded(found + x) if how == RING else found + rounded(x)
    return rounded(found) if how == DIRECT else found


def error(p: int, how: str) -> float:
    """Relative error (root mean square) of a sum of p random vectors."""
    xs = [np.random.default_rng([p, r]).standard_normal(ELEMENTS) for r in range(p)]
    xs = [x.astype(np.float32) for x in xs]
    exact = np.sum(xs, axis=0, dtype=np.float64)
    return rms(total(xs, how) - exact) / rms(exact)


def one_rounding() -> float:
    """Relative error of rounding random numbers once."""
    x = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    return rms(rounded(x) - x) / rms(x)


def zero_share(x: np.ndarray, block: int) -> float:
    """The share of the numbers other than 0 that become 0."""
    return float((rounded(x, block)[x != 0] == 0).mean()) if x.any() else 0.0


def measure(run: kit.Run, gradients: np.ndarray) -> dict:
    """{"ranks", "errors": {p: {name: error}}, "predicted", "one_rounding", "zero": {block: share}}

    gradients: this rank's of a batch (n,), for the shares.
    """
    run.section("8 bits a number: sums of p random gradients")
    ranks, one = run.quick(RANKS[:5], RANKS), one_rounding()
    jobs = [(p, name) for p in reversed(ranks) for name in GROWTH]  # the longest first
    found = dict(zip(jobs, trials.deal(run, jobs, error)))
    errors = {p: {name: found[p, name] for name in GROWTH} for p in ranks}
    predicted = {p: {name: one * grown(p) for name, grown in GROWTH.items()} for p in ranks}
    run.say(f"One rounding in blocks of {BLOCK} has a relative error of r = {one:.2e}.")
    names = [name.partition(",")[0] for name in GROWTH]
    head = [each for name in names for each in (name, "predicted")]
    rows = []
    for p in ranks:
        pairs = [f"{values[p][name]:.2e}" for name in GROWTH for values in (errors, predicted)]
        rows.append([p, *pairs, f"{SENT[RING](p):.3g}", f"{SENT[GATHERED](p):.3g}"])
    run.table(["p", *head, "bytes, ring and direct", "gathered"], rows)
    run.say("bytes: that a rank sends for each gradient. The ring adds on the way, direct at the")
    run.say("slice's owner, gathered on every rank.")
    zero = {block: max(run.gather(zero_share(gradients, block))) for block in (0, BLOCK)}
    shares = [f"{100 * share:.3g} %" for share in zero.values()]
    run.say(f"Of a batch's gradients {shares[0]} become zero with one scale for all, {shares[1]}")
    run.say(f"with a scale for each {BLOCK} (on the rank that loses most).")
    found = {"ranks": ranks, "errors": errors, "predicted": predicted, "one_rounding": one}
    return found | {"zero": zero}
