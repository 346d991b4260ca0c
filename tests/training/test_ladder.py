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
from refgf.exchange.chunk_choice import Density
from refgf.exchange.precision import LossScale
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


def test_p_ranks_are_not_one_rank_on_other_data(on_ranks):
    wanted = one_rank(dyadic=False, **EXACT)
    on_ranks(lambda comm: same(train(comm, dyadic=False, **EXACT), wanted, comm.Get_size() == 1))


@pytest.mark.parametrize("density", [None, 30])
@pytest.mark.parametrize("theta", [0, 7, 64, 200])
def test_lazy_is_eager(on_ranks, theta, density):
    def body(comm):
        parts = dict(dyadic=False, density=density, chunk=8)
        same(train(comm, theta_bytes=theta, **parts), train(comm, theta_bytes=math.inf, **parts))

    on_ranks(body)


def test_lazy_is_not_eager_on_the_ring(on_ranks):
    def body(comm):
        eager, once = (
            train(comm, dyadic=False, allreduce=ring_allreduce, theta_bytes=t)
            for t in (0, math.inf)
        )
        same(eager, once, comm.Get_size() < 3)

    on_ranks(body)


@pytest.mark.parametrize("wire", [None, np.float16])
@pytest.mark.parametrize("density", [None, 30])
def test_pipelined_is_step_by_step(on_ranks, density, wire):
    """Sleeping or not, in segments of one or two elements, in a communication thread or not."""
    pipelined_ring = functools.partial(pipelined, algorithm=ring.allreduce, segment_bytes=4)

    def body(comm):
        parts = dict(dyadic=False, density=density, chunk=8, wire=wire, theta_bytes=20)
        wanted = train(comm, allreduce=ring_allreduce, **parts)
        same(train(sleeping(comm), allreduce=pipelined_ring, overlap=True, **parts), wanted)
        same(train(comm, allreduce=pipelined_ring, **parts), wanted)

    on_ranks(body)


@pytest.mark.parametrize("wire", [None, np.float16])
@pytest.mark.parametrize("density", [None, 30])
@pytest.mark.parametrize("short_bytes", [0, 100])
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


@pytest.mark.parametrize("wire", [None, np.float16])
@pytest.mark.parametrize("density", [None, 30])
def test_overlapped_is_sequential(on_ranks, density, wire):
    def body(comm):
        parts = dict(
            dyadic=False,
            density=density,
            chunk=8,
            wire=wire,
            theta_bytes=20,
            allreduce=ring_allreduce,
        )
        same(train(comm, overlap=True, **parts), train(comm, overlap=False, **parts))

    on_ranks(body)


def test_csc_history_at_100_percent_is_dense(on_ranks):
    """On any data, theta infinite: dense calls end with tensors, sparse ones with chunks."""

    def body(comm):
        parts = dict(dyadic=False, momentum=0.9, weight_decay=0.01)
        for allreduce in (ring_allreduce, direct_allreduce):
            dense = train(comm, allreduce=allreduce, **parts)
            same(
                train(comm, allreduce=allreduce, density=100, chunk=8, form="history", **parts),
                dense,
            )

    on_ranks(body)


def test_csc_dgc_at_100_percent_is_dense_on_exact_data(on_ranks):
    def body(comm):
        # a rank's share of it must be dyadic
        exact = EXACT | {"weight_decay": 0.25 * comm.Get_size()}
        same(train(comm, density=100, chunk=8, form="dgc", **exact), train(comm, **exact))
        other = dict(dyadic=False, momentum=0.9)
        same(
            train(comm, density=100, chunk=8, form="dgc", **other),
            train(comm, **other),
            comm.Get_size() == 1,
        )

    on_ranks(body)


def test_masked_at_100_percent_has_no_momentum(on_ranks):
    """Masking clears the momentum of what was sent: everything, after the dense first step."""

    def body(comm):
        masked = train(comm, density=100, chunk=8, form="dgc_masked", momentum=0.5)
        same(masked, train(comm, momentum=0.5), False)
        dense_first_step_only = train(
            comm,
            density=Density(100, warmup=(100,), steps_per_epoch=5),
            chunk=8,
            form="dgc_masked",
            momentum=0.5,
        )
        same(dense_first_step_only, train(comm, momentum=0.5))

    on_ranks(body)


def test_float32_on_the_wire_is_no_cast(on_ranks):
    def body(comm):
        for density in (None, 30):
            parts = dict(dyadic=False, density=density, chunk=8, allreduce=ring_allreduce)
            same(train(comm, wire=np.float32, **parts), train(comm, wire=None, **parts))
            same(train(comm, wire=np.float16, **parts), train(comm, wire=None, **parts), False)

    on_ranks(body)


@pytest.mark.parametrize("density", [None, 30])
def test_a_scale_changes_nothing_where_nothing_underflows(on_ranks, density):
    def body(comm):
        parts = dict(density=density, chunk=8, wire=np.float16, weight_decay=0.25)
        plain = train(comm, **parts)
        same(train(comm, loss_scale=LossScale(64.0), **parts), plain)
        same(train(comm, loss_scale=LossScale(2.0**-24), **parts), plain, False)

    on_ranks(body)


def test_float16_ring_on_float16_inputs_is_float16_addition(on_ranks):
    def body(comm):
        x = np.random.default_rng(comm.Get_rank()).standard_normal(1000).astype(np.float16)
        wide, narrow = x.astype(np.float32), x.copy()
        ring_allreduce(comm, wire=np.float16)(wide)
        ring_allreduce(comm)(narrow)
        assert (wide.astype(np.float16) == narrow).all() and (wide == wide.astype(np.float16)).all()

    on_ranks(body)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_dense_step_with_a_bad_gradient_on_one_rank_is_skipped_on_all(on_ranks, bad):
    def body(comm):
        scale = LossScale(2.0, dynamic=True)
        flow = new_flow(comm, Prescribed(), wire=np.float16, loss_scale=scale, theta_bytes=40)
        g = samples(0)[:1].copy()
        if comm.Get_rank() == 0:
            g[0, 50] = bad
        before = flow.model.parameters.flat.copy(), flow.model.optimizer.velocity.copy()
        flow.step(g, None, 1, rate=0.125)
        assert (
            not flow.result.accepted
            and flow.model.loss_scale.scale == 1.0
            and flow.model.network.accepted == 0
        )
        assert np.array_equal(flow.model.parameters.flat, before[0])
        assert np.array_equal(flow.model.optimizer.velocity, before[1])
        flow.step(samples(0)[:1], None, 1, rate=0.125)
        assert flow.result.accepted and flow.model.network.accepted == 1
        flow.close()

    on_ranks(body)


def same(got, wanted, expected=True):
    assert (got == wanted) is expected
