"""Solutions of lesson 06: coarse-grained sparse communication.            python lessons/solutions/06_csc.py"""

import numpy as np

from refgf.comm import ring, threads
from refgf.comm.agreement import agree
from refgf.comm.schedule import collective
from refgf.comm.slices import chunks, length
from refgf.exchange.chunk_choice import Density, choose, importance
from refgf.exchange.csc import CSC
from refgf.exchange.pool import Pool
from refgf.oracle.definitions import csc_payload_bytes
from refgf.predict.workloads import alexnet

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
    print(f"1. the last of {len(lengths)} chunks is chosen in {picks['divided']} of 1000 steps, without the division in "
          f"{picks['not divided']}")  # fmt: skip
    assert picks["not divided"] < 10 < picks["divided"]
    print(f"   In the full AlexNet it has {ALEXNET % CHUNK:,} of {CHUNK:,} elements, and holds the first convolution.")


def own_norms_only() -> None:
    """2. The ranks pack different chunks and add them up without noticing: as many numbers, at other places. The first
    sparse step already gives different parameters; the comparison of lists or of hashes notices."""

    def body(comm):
        pool, parameters = Pool([Tensor]), np.zeros(1000, np.float32)
        exchange = CSC(pool, parameters, collective(comm, ring.allreduce), lambda norms: None, comm.size, Density(10), chunk=64)
        for step in range(2):
            pool.flat[:] = np.random.default_rng([step, comm.rank]).standard_normal(1000)
            exchange.ready(0)
            exchange.finish()
            for part in exchange.sent:
                parameters[part] -= pool.flat[part]
            if step == 0:
                agree(comm, "parameters after the dense step", str(parameters.tobytes().hex()[:60]))
        return exchange.sent, parameters

    (sent, mine), (other, theirs), _ = threads.run(3, body)
    print(f"2. rank 0 has sent {sent}, rank 1 {other}; {np.mean(mine != theirs) * 100:.0f} % of their parameters differ")
    assert sent != other and (mine != theirs).any()


def when_norms_weigh_as_much() -> None:
    """3. Norms and flag of 1904 chunks are 15,240 bytes, a chunk in float16 is 65,536: never, not even with one chunk.
    On a network an eighth as wide with as many chunks they weigh as much as 10 % of the gradients: fewer chunks."""
    count = len(chunks(ALEXNET, CHUNK))
    extra = csc_payload_bytes([], ALEXNET, CHUNK, wire="float16")
    for chosen in (1, 191):
        payload = csc_payload_bytes(list(range(chosen)), ALEXNET, CHUNK, wire="float16") - extra
        print(f"3. {chosen} of {count} chunks: {payload:,} bytes, norms and flag {extra:,} ({100 * extra / payload:.1f} %)")
    assert extra == 8 * (count + 1) < 2 * CHUNK
    small = alexnet(10, 67, 1 / 16).parameters
    payload = 2 * small // 10
    print(f"   width 1/16, {small:,} gradients in {count} chunks: 10 % are {payload:,} bytes, norms and flag {extra:,}")


if __name__ == "__main__":
    without_the_division()
    own_norms_only()
    when_norms_weigh_as_much()
