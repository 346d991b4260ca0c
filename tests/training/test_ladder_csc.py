"""CSC in every step, bit for bit: nothing is lost, exact bytes, no trace of a bad step."""

import math

import numpy as np
import pytest
from tests.support.tiny import BATCH, SPECS, N, Prescribed, samples

from tests.support.stacks import new_flow

from refgf.machine.trace import TracedComm
from refgf.engine.residual import FusedResidual
from refgf.exchange.momentum_correction import FORMS, Residual
from refgf.exchange.precision import LossScale
from refgf.oracle.definitions import csc_payload_bytes, direct_traffic, lazy_calls, ring_traffic


@pytest.mark.parametrize("residual", [Residual, FusedResidual])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_kept_does_not_depend_on_who_looks(on_ranks, form, residual):
    """Deferred bookkeeping gives the same bits in the next step or for a checkpoint, skips too."""

    def body(comm):
        kept = []
        for looks in (False, True):
            scale = LossScale(4.0, dynamic=True)
            flow = new_flow(
                comm,
                Prescribed(),
                density=20,
                chunk=7,
                form=form,
                momentum=0.9,
                loss_scale=scale,
                residual=residual,
                weight_decay=0.25,
                overlap=looks,
            )
            for step in range(7):
                g = samples(step, dyadic=False)[comm.Get_rank() % BATCH]
                g = np.where(step == 4, np.float32(np.inf), g)
                flow.step(g[None], None, 1, rate=0.125)
                assert flow.result.accepted == (step != 4)
                if looks:
                    assert len(flow.csc.residual.current_state()) in (1, 2)
            kept.append([array.tobytes() for array in flow.csc.residual.current_state().values()])
            flow.close()
        assert kept[0] == kept[1]

    on_ranks(body)


@pytest.mark.parametrize("wire", [None, "float16"])
@pytest.mark.parametrize("theta", [0, 40, math.inf])
def test_bytes_are_the_chosen_chunks_the_norms_and_a_flag(on_ranks, theta, wire):
    """By message: the calls by the ring, C norms and the flag by the direct one, nothing else."""

    def body(comm):
        traced = TracedComm(comm)
        flow = new_flow(traced, Prescribed(), density=30, chunk=8, theta_bytes=theta, wire=wire)
        rank, size, itemsize = comm.Get_rank(), comm.Get_size(), 2 if wire else 4
        for step in range(4):
            chosen = flow.csc.chosen
            traced.reset()
            flow.step(samples(step)[:1], None, 1, rate=0.125)
            lengths = (
                [s.size for s in SPECS] if chosen is None else [min(8, N - 8 * c) for c in chosen]
            )
            calls = lazy_calls(lengths, itemsize, theta)
            data = [ring_traffic(stop - start, size, rank) for start, stop in calls]
            norms = direct_traffic(11 + 1, size, rank)
            assert traced.messages == sum(m for m, _ in data) + norms[0]
            assert traced.bytes == itemsize * sum(e for _, e in data) + 8 * norms[1]
            given = itemsize * sum(stop - start for start, stop in calls) + 8 * 12
            assert given == csc_payload_bytes(chosen, N, 8, "float32", wire)
        flow.close()

    on_ranks(body)


UNCHOSEN = [  # infinity of a sign, no number, overflow: with both residuals, in both ways
    (np.inf, False, Residual),
    (-np.inf, True, FusedResidual),
    (np.nan, False, FusedResidual),
    (np.nan, True, Residual),
    (3e38, True, Residual),
    (3e38, False, FusedResidual),
]


@pytest.mark.parametrize("bad, overlap, residual", UNCHOSEN)
def test_infinity_in_an_unchosen_chunk_of_one_rank_leaves_everything_as_it_was(
    on_ranks, bad, overlap, residual
):
    """3e38 is finite by itself, but not after it was added to what was kept."""

    def body(comm):
        scale = LossScale(4.0, dynamic=True)
        flow = new_flow(
            comm,
            Prescribed(),
            density=20,
            chunk=8,
            overlap=overlap,
            wire=np.float16,
            loss_scale=scale,
            residual=residual,
        )
        last = comm.Get_rank() == comm.Get_size() - 1
        for step in range(3):
            flow.step(samples(step)[:1], None, 1, rate=0.125)
        unchosen = next(c for c in range(11) if c not in flow.csc.chosen)
        before = snapshot(flow)
        g = samples(3)[:1].copy()
        if last:
            flow.csc.residual.state["v"][8 * unchosen] = before["v"][8 * unchosen] = 1e38
            g[0, 8 * unchosen] = bad
        with np.errstate(over="ignore"):
            flow.step(g, None, 1, rate=0.125)
        after = snapshot(flow)
        assert not flow.result.accepted and flow.model.loss_scale.skipped == 1
        assert after.pop("scale") == before.pop("scale") / 2
        for name in before:
            assert np.array_equal(before[name], after[name]), name
        if last:
            flow.csc.residual.state["v"][8 * unchosen] = 0
        flow.step(samples(3)[:1], None, 1, rate=0.125)  # and training goes on
        assert flow.result.accepted
        flow.require_same_parameters()
        flow.close()

    on_ranks(body)


def snapshot(flow):
    """Everything that outlives a step."""
    state = {name: array.copy() for name, array in flow.csc.residual.current_state().items()}
    state |= {
        "w": flow.model.parameters.flat.copy(),
        "running": flow.model.network.running[0].copy(),
    }
    return state | {
        "chosen": list(flow.csc.chosen),
        "gap": flow.csc.gap.copy(),
        "scale": flow.model.loss_scale.scale,
    }
