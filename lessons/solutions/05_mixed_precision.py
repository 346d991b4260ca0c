"""Solutions of lesson 05: mixed precision. The code below each answer checks it.

python lessons/solutions/05_mixed_precision.py
"""

import numpy as np

from refgf.comm import ring
from refgf.comm.replay import replay
from refgf.oracle.definitions import on_wire, underflow_share

HALF = np.float16


def rms(x) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def positive_gradients() -> None:
    """1. The error still grows with the root of p, but a little more slowly.

    The sum grows like p instead of its root, and so do the partial sums that are rounded. The error
    relative to the sum is r sqrt((p+1)(2p+1) / (6p)), about r sqrt(p/3).
    """
    x = np.abs(np.random.default_rng(0).standard_normal(100_000)).astype(np.float32) + 1
    r = rms((on_wire(x, "float16") - x) / x)
    for p in (2, 8, 32, 64):
        xs = [
            np.abs(np.random.default_rng([p, k]).standard_normal(640)).astype(np.float32) + 1
            for k in range(p)
        ]
        exact = np.sum(xs, axis=0, dtype=np.float64)
        got = replay([ring.allreduce(k, p, len(exact)) for k in range(p)], xs, HALF)[0]
        error, predicted = rms((got - exact) / exact), r * ((p + 1) * (2 * p + 1) / (6 * p)) ** 0.5
        print(f"1. p = {p:2}: relative error {error:.2e}, predicted {predicted:.2e}")
        assert predicted / 2 < error < 2 * predicted


def divided_before_the_cast() -> None:
    """2. The same numbers are sent, and it matters where backward computes in float16.

    (sum / b) / p and sum / (b p) are equal bit for bit if b and p are powers of two. On a GPU
    backward computes in float16. There a loss that is p times smaller makes the gradient of every
    activation smaller, and some of these vanish before any cast. The loss scale compensates for it.
    """
    p, b = 64, 8
    sums = (np.random.default_rng(1).standard_normal(100_000) * 1e-3).astype(np.float32)
    before, after = sums / np.float32(b) / np.float32(p), sums / np.float32(b * p)
    assert (before == after).all()
    shares = [
        100 * underflow_share(x, "float16")
        for x in (sums / np.float32(b), after, after * np.float32(p))
    ]
    print(f"2. lost on the wire: {shares[1]:.3f} % either way, {shares[0]:.3f} % without division")
    print(f"   by p, {shares[2]:.3f} % with a loss scale of p")
    assert shares[0] == shares[2] < shares[1]


def without_finish() -> None:
    """3. All ranks no longer hold the same bits.

    The owner of a slice has the sum unrounded and the others have it rounded, so the ranks'
    parameters diverge.
    """
    p, n = 4, 1000
    xs = [np.random.default_rng(k).standard_normal(n).astype(np.float32) for k in range(p)]
    for name, left_out in (("with", ()), ("without", ("finish",))):
        schedules = [
            [step for step in ring.allreduce(k, p, n) if step.op not in left_out] for k in range(p)
        ]
        results = replay(schedules, xs, HALF)
        different = sum(int((other != results[0]).sum()) for other in results[1:])
        print(f"3. {name} finish: {different} elements differ between rank 0 and the others")
        assert (different == 0) is (not left_out)


if __name__ == "__main__":
    positive_gradients()
    divided_before_the_cast()
    without_finish()
