"""Solutions of lesson 06: coarse-grained sparse communication.            python lessons/solutions/06_csc.py"""

import numpy as np

from refgf.comm.agreement import agree
from refgf.comm.ring import ring_allreduce
from refgf.comm.slices import chunks, length
from refgf.exchange.chunk_choice import choose, importance
from refgf.exchange.csc import CSC
from refgf.exchange.dense import Transport
from refgf.exchange.momentum_correction import CSCSettings, Residual
from refgf.exchange.pool import Pool
from refgf.exchange.precision import LossScale
from refgf.machine import threads
from refgf.oracle.definitions import csc_payload_bytes
from refgf.papers.scaling.workloads import alexnet

ALEXNET, CHUNK = alexnet().parameters, 32_768


class Tensor:
    name, shape, decay = "w", (1000,), True


def without_the_division() -> None:
    """1. The last chunk is shorter, so its norm is smaller: with equally large gradients everywhere it is never chosen."""
    n, chunk = 1000, 64  # 16 chunks, the last one of 40
    lengths = np.array([length(c) for c in chunks(n, chunk)])
    picks = {"divided": 0, "not divided": 0}
    for trial in range(1000):
        x = np.abs(np.random.default_rng(trial).standard_normal(n))
        norms = np.add.reduceat(x, np.arange(0, n, chunk))
        picks["divided"] += len(lengths) - 1 in choose(importance(norms, n, chunk), 10)
        picks["not divided"] += len(lengths) - 1 in choose(norms, 10)
    print(
        f"1. the last of {len(lengths)} chunks is chosen in {picks['divided']} of 1000 steps, without the division in "
        f"{picks['not divided']}"
    )
    assert picks["not divided"] < 10 < picks["divided"]
    print(
        f"   In the full AlexNet it has {ALEXNET % CHUNK:,} of {CHUNK:,} elements, weights of the first convolution."
    )


def own_norms_only() -> None:
    """2. The ranks pack different chunks and add them up without noticing: as many numbers, at other places. The first
    sparse step already gives different parameters; the comparison of lists or of hashes notices."""

    def body(comm):
        pool, parameters, settings = (
            Pool([Tensor]),
            np.zeros(1000, np.float32),
            CSCSettings(10, chunk=64),
        )
        residual = Residual(pool, parameters, settings, 0.9, 0.0, comm.size)
        transport = Transport(ring_allreduce(comm))
        exchange = CSC(settings, residual, transport, lambda norms: None, LossScale())
        for step in range(2):
            pool.flat[:] = np.random.default_rng([step, comm.rank]).standard_normal(1000)
            exchange.ready(0)
            sent = exchange.finish().sent
            for part in sent:
                parameters[part] -= pool.flat[part]
            if step == 0:
                agree(comm, "parameters after the dense step", str(parameters.tobytes().hex()[:60]))
        return sent, parameters

    (sent, mine), (other, theirs), _ = threads.run(3, body)
    print(
        f"2. rank 0 has sent {sent}, rank 1 {other}; {np.mean(mine != theirs) * 100:.0f} % of their parameters differ"
    )
    assert sent != other and (mine != theirs).any()


def when_norms_weigh_as_much() -> None:
    """3. Norms and flag of 1904 chunks are 15,240 bytes, a chunk in float16 is 65,536: never, not even with one chunk.
    On a network a sixteenth as wide with as many chunks they weigh as much as 10 % of the gradients: fewer chunks."""
    count = len(chunks(ALEXNET, CHUNK))
    extra = csc_payload_bytes([], ALEXNET, CHUNK, wire="float16")
    for chosen in (1, 191):
        payload = csc_payload_bytes(list(range(chosen)), ALEXNET, CHUNK, wire="float16") - extra
        print(
            f"3. {chosen} of {count} chunks: {payload:,} bytes, norms and flag {extra:,} ({100 * extra / payload:.1f} %)"
        )
    assert extra == 8 * (count + 1) < 2 * CHUNK
    small = alexnet(10, 67, 1 / 16).parameters
    payload = 2 * small // 10
    print(
        f"   width 1/16, {small:,} gradients in {count} chunks: 10 % are {payload:,} bytes, norms and flag {extra:,}"
    )


def largest_rate(form: str, every: int, momentum: float = 0.9) -> float:
    """The largest rate with which w stays bounded on w^2 / 2 (gradient w), if its chunk is sent in every so many steps.

    All of it is linear: so many steps are a 3 x 3 matrix on (w, velocity, what is kept), whose eigenvalues must be at most 1.
    """

    def steps(state, rate):
        w, v, kept = state
        for waits in range(every - 1, -1, -1):
            if form == "dense":
                v = momentum * v + w
                w = w - rate * v
            elif form.startswith("dgc"):
                v = momentum * v + w
                kept = kept + v
            else:
                kept = (momentum if form == "history" and waits else 1.0) * (kept + w)
        if form.startswith("dgc"):
            return w - rate * kept, 0.0 if form == "dgc_masked" else v, 0.0
        if form == "dense":
            return w, v, kept
        v = momentum * v + kept
        return w - rate * v, v, 0.0

    def grows(rate) -> bool:
        matrix = np.array([steps(unit, rate) for unit in np.eye(3)]).T
        return np.abs(np.linalg.eigvals(matrix)).max() > 1 + 1e-9

    return next(rate for rate in np.geomspace(1e-3, 8, 2000) if grows(rate))


def how_large_a_rate() -> None:
    """4. Dense up to 2 (1 + m) = 3.8; `history` to 0.58, `none` to 0.38, `dgc_masked` to 0.05, `dgc` to 0.03. Momentum is what
    allows large rates, and with `dgc` it acts on what nobody sees for ten steps: then ten steps of it come at once. So the
    accuracies above compare sparse training with dense training at a rate that suits dense training: sparse training wants
    a smaller one where the curvature is large, or a warm-up that lasts until the steepest part is over."""
    rates = {
        form: largest_rate(form, 10) for form in ("dense", "history", "none", "dgc_masked", "dgc")
    }
    print(f"4. {', '.join(f'{form} {rate:.3f}' for form, rate in rates.items())}")
    assert abs(rates["dense"] - 3.8) < 0.02 and rates["dgc"] < 0.03 < rates["dgc_masked"] < 0.05
    assert 0.37 < rates["none"] < 0.39 and 0.57 < rates["history"] < 0.59
    assert all(
        abs(largest_rate(form, 1) - 3.8) < 0.02 for form in ("history", "none", "dgc")
    )  # sent always: dense


if __name__ == "__main__":
    without_the_division()
    own_norms_only()
    when_norms_weigh_as_much()
    how_large_a_rate()
