"""bfloat16 on the wire: every number's rounding, and a ring's bits among some of the ranks."""

import numpy as np
import pytest

from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.oracle import definitions
from refgf.oracle.definitions import ring_allreduce, ring_traffic, same_bits
from refgf.papers.daso.bfloat16 import bfloat16_bits, bfloat16_values, ring_on_ranks


def awkward():
    """Around powers of two, ties to even and odd, the largest, denormals, and random bits."""
    powers = 2.0 ** np.arange(-149, 128, 5)
    near = np.outer(powers, [1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 1 + 2**-7]).ravel()
    any_bits = (
        np.random.default_rng(0)
        .integers(0, 2**32, 5000, np.uint64)
        .astype(np.uint32)
        .view(np.float32)
    )
    # without their lower half they are infinities
    nans = np.array([0x7F800001, 0xFF80FFFF], np.uint32).view(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        near = np.concatenate([near, -near, [0, -0.0, np.inf, -np.inf, 3.4e38, np.nan]]).astype(
            np.float32
        )
    return np.concatenate([near, nans, any_bits])


def test_rounding_is_that_of_the_definition():
    """A NaN stays a NaN; its payload may differ. float64 is rounded to float32 first."""
    x = awkward()
    nan, bits = np.isnan(x), bfloat16_bits(x)
    assert (bits == definitions.bfloat16_bits(x))[~nan].all() and np.isnan(
        bfloat16_values(bits[nan])
    ).all()
    assert same_bits(bfloat16_values(bits[~nan]), definitions.bfloat16_values(bits[~nan]))
    twice = np.array([1 + 2**-8 + 2**-40, 1 + 3 * 2**-8 - 2**-40])  # ties in float32
    assert (bfloat16_bits(twice) == bfloat16_bits(twice.astype(np.float32))).all()
    assert (bfloat16_bits(twice) == definitions.bfloat16_bits(twice)).all()
    assert bfloat16_bits(np.zeros(0, np.float32)).size == 0
    assert (bfloat16_bits(x[:100].astype(np.float64)) == bfloat16_bits(x[:100])).all()


@pytest.mark.parametrize("n", [0, 1, 2, 13, 40, 70_000])
@pytest.mark.parametrize("wire", [None, "bfloat16"])
def test_a_ring_on_every_second_rank(on_ranks, wire, n):
    def body(comm):
        comm = TracedComm(comm)
        rank, size = comm.Get_rank(), comm.Get_size()
        xs = [
            np.random.default_rng([n, r]).standard_normal(n).astype(np.float32) for r in range(size)
        ]
        group = list(range(rank % 2, size, 2))
        x = xs[rank].copy()
        ring_on_ranks(comm, group, wire)(x)
        assert same_bits(x, ring_allreduce([xs[r] for r in group], wire)[group.index(rank)])
        messages, elements = ring_traffic(n, len(group), group.index(rank))
        assert (comm.messages, comm.bytes) == (messages, elements * (2 if wire else 4))

    on_ranks(body)


def test_float16_would_overflow_and_is_refused():
    with pytest.raises(
        ValueError, match="ring_on_ranks on rank 0: got float16; wanted float32 or float64"
    ):
        threads.run(
            1, lambda comm: ring_on_ranks(comm, [0], "bfloat16")(np.full(3, 65_504, np.float16))
        )


@pytest.mark.parametrize(
    "ranks, wire, message",
    [([0, 1], "float16", "got wire 'float16'"), ([1], None, "this one included")],
)
def test_what_is_refused(ranks, wire, message):
    def body(comm):
        ring_on_ranks(comm, ranks if comm.rank == 0 else [1], wire)

    with pytest.raises(ValueError, match=message):
        threads.run(2, body)
