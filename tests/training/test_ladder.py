"""The equivalence ladder: every part switched on changes what it should and nothing else.

Bit for bit where the order of summation is the same, or where the data are dyadic, so that there is
no rounding. Each rung is also climbed with data or an order for which it must fail.
"""

import functools
import math

import numpy as np
import pytest
from tests.support.tiny import BATCH, N, Prescribed, samples

from tests.support.stacks import new_flow

from refgf.comm import ring
from refgf.machine import threads
from refgf.engine.sleeping import sleeping
from refgf.engine.pipelined import pipelined
from refgf.engine.shared import SharedMemory
from refgf.comm.slices import slices
from refgf.comm.direct import direct_allreduce
from refgf.comm.ring import ring_allreduce

# dyadic, as the data; 5 steps need up to 40 bits
EXACT = dict(momentum=0.5, weight_decay=0.25, dtype=np.float64)


def train(comm, dyadic=True, allreduce=direct_allreduce, dtype=np.float32, **parts):
    """Train with the given parts of the stack; the bits of the parameters."""
    network = Prescribed(dtype, np.random.default_rng(5).integers(-8, 9, N))
    mine = slices(BATCH, comm.Get_size())[comm.Get_rank()]
    with new_flow(comm, network, allreduce=allreduce, **parts) as flow:
        for step in range(5):
            flow.step(samples(step, dyadic)[mine], None, BATCH, rate=0.125)
        flow.require_same_parameters()
        return flow.model.parameters.flat.tobytes()


def one_rank(**parts):
    """One rank by itself, for p ranks to be compared with."""
    return threads.run(1, lambda comm: train(comm, **parts))[0]


@pytest.mark.parametrize("algorithm", [ring_allreduce, direct_allreduce])
def test_p_ranks_are_one_rank(on_ranks, algorithm):
    """With uneven shards (8 samples on 3 and 5 ranks)."""
    wanted = one_rank(allreduce=algorithm, **EXACT)
    on_ranks(lambda comm: same(train(comm, allreduce=algorithm, **EXACT), wanted))


@pytest.mark.parametrize("theta, density", [(0, 30), (7, None), (64, 30), (200, None)])
def test_lazy_is_eager(on_ranks, theta, density):
    def body(comm):
        parts = dict(dyadic=False, density=density, chunk=8)
        same(train(comm, theta_bytes=theta, **parts), train(comm, theta_bytes=math.inf, **parts))

    on_ranks(body)


@pytest.mark.parametrize("density, wire", [(None, np.float16), (30, None)])
def test_pipelined_is_step_by_step(on_ranks, density, wire):
    """Sleeping or not, in segments of one or two elements, in a communication thread or not."""
    pipelined_ring = functools.partial(pipelined, algorithm=ring.allreduce, segment_bytes=4)

    def body(comm):
        parts = dict(dyadic=False, density=density, chunk=8, wire=wire, theta_bytes=20)
        wanted = train(comm, allreduce=ring_allreduce, **parts)
        same(train(sleeping(comm), allreduce=pipelined_ring, overlap=True, **parts), wanted)
        same(train(comm, allreduce=pipelined_ring, **parts), wanted)

    on_ranks(body)


@pytest.mark.parametrize(  # any two choices meet
    "density, wire, short_bytes",
    [(None, None, 0), (None, np.float16, 100), (30, None, 100), (30, np.float16, 0)],
)
def test_shared_memory_is_direct(on_ranks, density, wire, short_bytes):
    """In segments of a few elements, and whole; sequential and overlapped."""
    made = []

    def shared(comm, wire=None):
        made.append(SharedMemory(comm, wire, segment_bytes=104, short_bytes=short_bytes))
        return made[-1]

    def body(comm):
        parts = dict(dyadic=False, density=density, chunk=8, wire=wire, theta_bytes=20)
        wanted = train(comm, **parts)
        same(train(comm, allreduce=shared, **parts), wanted)
        same(train(comm, allreduce=shared, overlap=True, **parts), wanted)

    on_ranks(body)
    for memory in made:
        memory.close()


def test_gradients_in_shared_memory(on_ranks):
    """The gradient pool lies in the memory that the allreduce sums in place."""

    def body(comm):
        def step(allreduce, **model):
            network = Prescribed(np.float32, np.ones(N))
            with new_flow(comm, network, allreduce=allreduce, **model) as flow:
                flow.step(samples(0, False)[:1], None, BATCH, rate=0.125)
                return flow.model

        with SharedMemory(comm) as shared:
            model = step(lambda comm, wire: shared, zeros=shared.zeros)
            assert shared._place(model.gradients.flat) == (0, 0)
            same(model.parameters.flat.tobytes(), step(direct_allreduce).parameters.flat.tobytes())

    on_ranks(body)


def same(got, wanted, expected=True):
    assert (got == wanted) is expected
