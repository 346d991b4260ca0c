"""The equivalence ladder: every part switched on changes what it should and nothing else.

Bit for bit where the order of summation is the same, or where the data are dyadic, so that there is no rounding. Each
rung is also climbed with data or an order for which it must fail.
"""

import math

import numpy as np
import pytest
from tiny import SPECS, N, Prescribed

from refgf.comm import threads
from refgf.comm.slices import slices
from refgf.comm.trace import TracedComm
from refgf.exchange.chunk_choice import Density
from refgf.exchange.momentum_correction import FORMS
from refgf.exchange.precision import LossScale
from refgf.oracle.definitions import csc_payload_bytes, direct_traffic, lazy_calls, ring_traffic
from refgf.training.gradientflow import GradientFlow, direct_allreduce, ring_allreduce

BATCH = 8
EXACT = dict(momentum=0.5, weight_decay=0.25, dtype=np.float64)  # dyadic, as the data; 5 steps need up to 40 bits


def samples(step, dyadic=True):
    """The gradients of the whole batch, (BATCH, n)."""
    rng = np.random.default_rng([11, step])
    if dyadic:
        return rng.integers(-8, 9, (BATCH, N)).astype(np.float32)
    return (rng.standard_normal((BATCH, N)) * rng.choice([1, 300.0], (BATCH, N))).astype(np.float32)


def train(comm, dyadic=True, allreduce=direct_allreduce, dtype=np.float32, **parts):
    """Train with the given parts of the stack; the bits of the parameters."""
    network = Prescribed(dtype, np.random.default_rng(5).integers(-8, 9, N))
    mine = slices(BATCH, comm.Get_size())[comm.Get_rank()]
    with GradientFlow(comm, network, allreduce=allreduce, **parts) as flow:
        for step in range(5):
            flow.step(samples(step, dyadic)[mine], None, BATCH, rate=0.125)
        flow.require_same_parameters()
        return flow.model.parameters.flat.tobytes()


def alone(**parts):
    """One rank by itself, for p ranks to be compared with."""
    return threads.run(1, lambda comm: train(comm, **parts))[0]


@pytest.mark.parametrize("algorithm", [ring_allreduce, direct_allreduce])
def test_p_ranks_are_one_rank(on_ranks, algorithm):
    """With uneven shards (8 samples on 3 and 5 ranks)."""
    wanted = alone(allreduce=algorithm, **EXACT)
    on_ranks(lambda comm: same(train(comm, allreduce=algorithm, **EXACT), wanted))


def test_p_ranks_are_not_one_rank_on_other_data(on_ranks):
    wanted = alone(dyadic=False, **EXACT)
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
        eager, once = (train(comm, dyadic=False, allreduce=ring_allreduce, theta_bytes=t) for t in (0, math.inf))
        same(eager, once, comm.Get_size() < 3)

    on_ranks(body)


@pytest.mark.parametrize("wire", [None, np.float16])
@pytest.mark.parametrize("density", [None, 30])
def test_overlapped_is_sequential(on_ranks, density, wire):
    def body(comm):
        parts = dict(dyadic=False, density=density, chunk=8, wire=wire, theta_bytes=20, allreduce=ring_allreduce)
        same(train(comm, overlap=True, **parts), train(comm, overlap=False, **parts))

    on_ranks(body)


def test_csc_history_at_100_percent_is_dense(on_ranks):
    """On any data. theta infinite: its calls end with tensors in dense training, with chunks in sparse."""

    def body(comm):
        parts = dict(dyadic=False, momentum=0.9, weight_decay=0.01)
        for allreduce in (ring_allreduce, direct_allreduce):
            dense = train(comm, allreduce=allreduce, **parts)
            same(train(comm, allreduce=allreduce, density=100, chunk=8, form="history", **parts), dense)

    on_ranks(body)


def test_csc_dgc_at_100_percent_is_dense_on_exact_data(on_ranks):
    def body(comm):
        exact = EXACT | {"weight_decay": 0.25 * comm.Get_size()}  # a rank's share of it must be dyadic
        same(train(comm, density=100, chunk=8, form="dgc", **exact), train(comm, **exact))
        other = dict(dyadic=False, momentum=0.9)
        same(train(comm, density=100, chunk=8, form="dgc", **other), train(comm, **other), comm.Get_size() == 1)

    on_ranks(body)


def test_masked_at_100_percent_has_no_momentum(on_ranks):
    """Factor masking clears the momentum of all that was sent; after the dense first step that is everything."""

    def body(comm):
        masked = train(comm, density=100, chunk=8, form="dgc_masked", momentum=0.5)
        same(masked, train(comm, momentum=0.5), False)
        dense_first_step_only = train(comm, density=Density(100, warmup=(100,), steps_per_epoch=5), chunk=8,
                                      form="dgc_masked", momentum=0.5)  # fmt: skip
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


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_lost(on_ranks, form):
    """On every rank and after every step, on exact data: what was sent and what is kept is all there was."""

    def body(comm):
        flow = GradientFlow(comm, Prescribed(), density=20, chunk=8, form=form, momentum=0.5)
        sent_sums, g_sums, u_sums, u, recurrence = (np.zeros(N, np.float32) for _ in range(5))
        packed_sent = spy_on_packing(flow.csc)
        for step in range(8):
            g = samples(step)[comm.Get_rank() % BATCH]
            chosen = flow.csc.chosen
            flow.step(g[None], None, 1, rate=0.125)
            now = np.zeros(N, bool)
            for part in flow.csc.sent:
                now[part] = True
            sent_sums[now] += packed_sent(now)
            kept = flow.csc.kept
            g_sums += g
            u = np.float32(0.5) * u + g
            u_sums += u
            if form == "none":
                assert (sent_sums + kept["h"] == g_sums).all()
            elif form == "history":
                recurrence = np.where(now, 0, np.float32(0.5) * (g + recurrence))
                assert (kept["h"] == recurrence).all()
            else:
                assert (sent_sums + kept["v"] == u_sums).all()
                if form == "dgc_masked" and chosen is not None:
                    u[now] = 0
                assert (kept["u"] == u).all()
            lists = comm.allgather((chosen, flow.csc.chosen))
            assert all(other == lists[0] for other in lists)
        flow.close()

    on_ranks(body)


def spy_on_packing(csc):
    """What this rank has put into the packed buffer, before it is summed. -> function(sent) -> (k,)"""
    packed = []
    allreduce = csc.allreduce

    def copy_first(x):
        packed.append(x.copy())
        allreduce(x)

    csc.allreduce = copy_first

    def take(sent):
        values = np.concatenate(packed)
        packed.clear()
        assert values.size == sent.sum()
        return values

    return take


@pytest.mark.parametrize("wire", [None, "float16"])
@pytest.mark.parametrize("theta", [0, 40, math.inf])
def test_bytes_are_the_chosen_chunks_the_norms_and_a_flag(on_ranks, theta, wire):
    """What travels, message by message: the calls by the ring, the C norms and the flag directly. Nothing else."""

    def body(comm):
        traced = TracedComm(comm)
        flow = GradientFlow(traced, Prescribed(), density=30, chunk=8, theta_bytes=theta, wire=wire)
        rank, size, itemsize = comm.Get_rank(), comm.Get_size(), 2 if wire else 4
        for step in range(4):
            chosen = flow.csc.chosen
            traced.reset()
            flow.step(samples(step)[:1], None, 1, rate=0.125)
            lengths = [s.size for s in SPECS] if chosen is None else [min(8, N - 8 * c) for c in chosen]
            calls = lazy_calls(lengths, itemsize, theta)
            data = [ring_traffic(stop - start, size, rank) for start, stop in calls]
            norms = direct_traffic(11 + 1, size, rank)
            assert traced.messages == sum(m for m, _ in data) + norms[0]
            assert traced.bytes == itemsize * sum(e for _, e in data) + 8 * norms[1]
            given = itemsize * sum(stop - start for start, stop in calls) + 8 * 12
            assert given == csc_payload_bytes(chosen, N, 8, "float32", wire)
        flow.close()

    on_ranks(body)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("overlap", [False, True])
def test_infinity_in_an_unchosen_chunk_of_one_rank_leaves_everything_as_it_was(on_ranks, bad, overlap):
    """3e38 is finite by itself, but not after it was added to what was kept."""

    def body(comm):
        scale = LossScale(4.0, dynamic=True)
        flow = GradientFlow(comm, Prescribed(), density=20, chunk=8, overlap=overlap, wire=np.float16, loss_scale=scale)
        last = comm.Get_rank() == comm.Get_size() - 1
        for step in range(3):
            flow.step(samples(step)[:1], None, 1, rate=0.125)
        unchosen = next(c for c in range(11) if c not in flow.csc.chosen)
        before = snapshot(flow)
        g = samples(3)[:1].copy()
        if last:
            flow.csc.store.correction.v[8 * unchosen] = before["v"][8 * unchosen] = 1e38
            g[0, 8 * unchosen] = bad
        with np.errstate(over="ignore"):
            flow.step(g, None, 1, rate=0.125)
        after = snapshot(flow)
        assert not flow.accepted and flow.loss_scale.skipped == 1
        assert after.pop("scale") == before.pop("scale") / 2
        for name in before:
            assert np.array_equal(before[name], after[name]), name
        if last:
            flow.csc.store.correction.v[8 * unchosen] = 0
        flow.step(samples(3)[:1], None, 1, rate=0.125)  # and training goes on
        assert flow.accepted
        flow.require_same_parameters()
        flow.close()

    on_ranks(body)


def snapshot(flow):
    """Everything that outlives a step."""
    state = {name: array.copy() for name, array in flow.csc.kept.items()}
    state |= {"w": flow.model.parameters.flat.copy(), "running": flow.model.network.running[0].copy()}
    return state | {"chosen": list(flow.csc.chosen), "gap": flow.csc.gap.copy(), "scale": flow.scale}


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_dense_step_with_a_bad_gradient_on_one_rank_is_skipped_on_all(on_ranks, bad):
    def body(comm):
        scale = LossScale(2.0, dynamic=True)
        flow = GradientFlow(comm, Prescribed(), wire=np.float16, loss_scale=scale, theta_bytes=40)
        g = samples(0)[:1].copy()
        if comm.Get_rank() == 0:
            g[0, 50] = bad
        before = flow.model.parameters.flat.copy(), flow.model.optimizer.velocity.copy()
        flow.step(g, None, 1, rate=0.125)
        assert not flow.accepted and flow.scale == 1.0 and flow.model.network.accepted == 0
        assert np.array_equal(flow.model.parameters.flat, before[0])
        assert np.array_equal(flow.model.optimizer.velocity, before[1])
        flow.step(samples(0)[:1], None, 1, rate=0.125)
        assert flow.accepted and flow.model.network.accepted == 1
        flow.close()

    on_ranks(body)


def same(got, wanted, expected=True):
    assert (got == wanted) is expected
