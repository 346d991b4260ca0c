"""Solutions of lesson 06: coarse-grained sparse communication.

python lessons/solutions/06_csc.py
"""

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
    """1. The last chunk is shorter, so its norm is smaller. Where all gradients are equally large,
    it is hardly ever chosen."""
    n, chunk = 1000, 64  # 16 chunks, the last one of 40
    lengths = np.array([length(c) for c in chunks(n, chunk)])
    picks = {"divided": 0, "not divided": 0}
    for trial in range(1000):
        x = np.abs(np.random.default_rng(trial).standard_normal(n))
        norms = np.add.reduceat(x, np.arange(0, n, chunk))
        picks["divided"] += len(lengths) - 1 in choose(importance(norms, n, chunk), 10)
        picks["not divided"] += len(lengths) - 1 in choose(norms, 10)
    print(
        f"1. the last of {len(lengths)} chunks is chosen in {picks['divided']} of 1000 steps, "
        f"without the division in {picks['not divided']}"
    )
    assert picks["not divided"] < 10 < picks["divided"]
    print(
        f"   In the full AlexNet it has {ALEXNET % CHUNK:,} of {CHUNK:,} elements, "
        "weights of the first convolution."
    )


def own_norms_only() -> None:
    """2. The ranks pack different chunks. Where all have the same length, the allreduce sums them
    without an error, and the parameters differ after the first sparse step, which is step 1: the
    oracle, a comparison of the lists or one of the parameters' hashes notices it. Where one rank
    has chosen the last chunk, which is shorter, the message of another length ends the run."""

    def body(comm):
        pool, parameters = Pool([Tensor]), np.zeros(1000, np.float32)
        settings = CSCSettings(10, chunk=64)
        residual = Residual(pool, parameters, settings, 0.9, 0.0, comm.size)
        transport = Transport(ring_allreduce(comm))
        exchange = CSC(settings, residual, transport, lambda norms: None, LossScale())
        for step in range(2):
            pool.flat[:] = np.random.default_rng([step, comm.rank]).standard_normal(1000)
            exchange.ready(0)
            sent = exchange.finish().sent
            for chunk in sent:
                parameters[chunk] -= pool.flat[chunk]
            if step == 0:
                agree(comm, "parameters after the dense step", str(parameters.tobytes().hex()[:60]))
        return sent, parameters

    (sent_0, parameters_0), (sent_1, parameters_1), _ = threads.run(3, body)
    differ = parameters_0 != parameters_1
    print(f"2. rank 0 has sent {sent_0},\n   rank 1 {sent_1};")
    print(f"   {100 * np.mean(differ):.0f} % of their parameters differ")
    assert sent_0 != sent_1 and differ.any()


def when_norms_weigh_as_much() -> None:
    """3. At none, not even with a single chunk: norms and flag of 1904 chunks are 15,240 bytes, a
    chunk in float16 is 65,536. In a network a sixteenth as wide with as many chunks they have as
    many bytes as 10 % of the gradients. Such a network needs fewer chunks."""
    count = len(chunks(ALEXNET, CHUNK))
    extra = csc_payload_bytes([], ALEXNET, CHUNK, wire="float16")
    for chosen in (1, 191):
        payload = csc_payload_bytes(list(range(chosen)), ALEXNET, CHUNK, wire="float16") - extra
        print(
            f"3. {chosen} of {count} chunks: {payload:,} bytes, "
            f"norms and flag {extra:,} ({100 * extra / payload:.1f} %)"
        )
    assert extra == 8 * (count + 1) < 2 * CHUNK
    small = alexnet(10, 67, 1 / 16).parameters
    payload = 2 * small // 10
    print(
        f"   width 1/16, {small:,} gradients in {count} chunks: 10 % are {payload:,} bytes, "
        f"norms and flag {extra:,}"
    )


def sent_twice(after: bool, chunks: int = 200, steps: int = 60) -> float:
    """The share of the chunks sent that the step before has sent, too. One gradient a chunk."""
    random, waiting = np.random.default_rng(0), np.zeros(chunks)
    scale, sent, again = random.lognormal(size=chunks), np.array([], int), []
    for _ in range(steps):
        waiting += scale * np.abs(random.standard_normal(chunks))
        if after:
            waiting[sent] = 0
        chosen = np.argsort(-waiting)[: chunks // 10]
        waiting[sent] = 0
        again.append(np.isin(chosen, sent).mean())
        sent = chosen
    return float(np.mean(again[1:]))


def ranked_after_sending() -> None:
    """4. Put `waiting[:, sent] = 0` before the norms, and sum before it. What was just sent then
    has no norm left, so nothing is sent twice in a row; before, about half of it was: a chunk that
    is chosen in one step has, when the next choice is made, still all that is on its way."""
    before, after = sent_twice(False), sent_twice(True)
    print(f"4. sent in the step before, too: {before:.0%}; ranked after sending {after:.0%}")
    assert before > 0.4 and after == 0


def largest_rate(form: str, every: int, momentum: float = 0.9) -> float:
    """The largest learning rate at which w stays bounded on w^2 / 2, whose gradient is w.

    every: steps from one sending of the chunk to the next

    All of it is linear. `every` steps are a 3 x 3 matrix on (w, velocity, residual), whose
    eigenvalues must be at most 1 in magnitude.
    """

    def steps(state, rate):
        w, v, residual = state
        for waits in range(every - 1, -1, -1):
            if form == "dense":
                v = momentum * v + w
                w = w - rate * v
            elif form.startswith("dgc"):
                v = momentum * v + w
                residual = residual + v
            else:
                residual = (momentum if form == "history" and waits else 1.0) * (residual + w)
        if form.startswith("dgc"):
            return w - rate * residual, 0.0 if form == "dgc_masked" else v, 0.0
        if form == "dense":
            return w, v, residual
        v = momentum * v + residual
        return w - rate * v, v, 0.0

    def grows(rate) -> bool:
        matrix = np.array([steps(unit, rate) for unit in np.eye(3)]).T
        return np.abs(np.linalg.eigvals(matrix)).max() > 1 + 1e-9

    return next(rate for rate in np.geomspace(1e-3, 8, 2000) if grows(rate))


def how_large_a_rate() -> None:
    """5. Dense up to 2 (1 + m) = 3.8, `history` to 0.58, `none` to 0.38, `dgc_masked` to 0.05,
    `dgc` to 0.03. Momentum is what allows large rates. With `dgc` it acts on a residual that
    reaches the weights only after ten steps, and then ten steps arrive at once. So the accuracies
    above compare sparse and dense training at a rate that suits dense training. Sparse training
    needs a smaller rate where the curvature is large, or a warm-up that lasts until the steepest
    phase is over."""
    rates = {
        form: largest_rate(form, 10) for form in ("dense", "history", "none", "dgc_masked", "dgc")
    }
    print(f"5. {', '.join(f'{form} {rate:.3f}' for form, rate in rates.items())}")
    assert abs(rates["dense"] - 3.8) < 0.02 and rates["dgc"] < 0.03 < rates["dgc_masked"] < 0.05
    assert 0.37 < rates["none"] < 0.39 and 0.57 < rates["history"] < 0.59
    for form in ("history", "none", "dgc"):  # sent in every step, each is dense training
        assert abs(largest_rate(form, 1) - 3.8) < 0.02


if __name__ == "__main__":
    without_the_division()
    own_norms_only()
    when_norms_weigh_as_much()
    ranked_after_sending()
    how_large_a_rate()
