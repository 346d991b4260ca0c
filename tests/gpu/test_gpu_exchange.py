"""Top-k and CSC on a GPU choose what they choose on the CPU, send it and keep the same."""

import numpy as np
import pytest

from refgf import device
from refgf.comm import gather
from refgf.comm.direct import direct_allreduce
from refgf.engine.residual import FusedResidual
from refgf.exchange.csc import CSC
from refgf.exchange.dense import Transport
from refgf.exchange.lazy import Theta
from refgf.exchange.momentum_correction import FORMS, CSCSettings, Residual
from refgf.exchange.pool import Pool
from refgf.exchange.precision import LossScale
from refgf.oracle.definitions import same_bits
from refgf.papers.mstopk.topk import TopK, exact_top_k, mstopk
from tests.support.tiny import SPECS, N
from tests.support.topk_cases import FAMILIES, data


def on_both(on_ranks, body, cupy) -> None:
    """body(comm, xp) gives the same list on both: arrays bit for bit, the rest by ==."""

    def both(comm):
        device.select(comm.Get_rank())
        return body(comm, np), body(comm, cupy)

    for ranks in on_ranks(both, sizes=(1, 3)):
        for wanted, got in ranks:
            assert len(wanted) == len(got) > 0
            for a, b in zip(got, wanted):
                assert same_bits(device.to_host(a), b) if isinstance(b, np.ndarray) else a == b


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("select", [exact_top_k, mstopk])
def test_top_k_chooses_the_same_elements(cupy, select, family):
    for n, k in ((1, 0), (1, 1), (1001, 1), (1001, 101), (1001, 1001)):
        x = data(family, n)
        assert select(cupy.asarray(x), k).tolist() == select(x, k).tolist()


@pytest.mark.parametrize("select", [exact_top_k, mstopk])
def test_top_k_sums_and_keeps_the_same(cupy, on_ranks, select):
    def body(comm, xp):
        exchange, found = TopK(1001, 10, gather.allgather(comm), select, xp=xp), []
        for step in range(3):
            x = xp.asarray(data("heavy tail", 1001, seed=[step, comm.Get_rank()]))
            exchange(x)
            found += [x, exchange.feedback.residual.copy()]
        return found

    on_both(on_ranks, body, cupy)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("wire", [None, np.float16])
@pytest.mark.parametrize("kind", [Residual, FusedResidual])
def test_csc_chooses_sends_and_keeps_the_same(cupy, on_ranks, kind, form, wire):
    """Norms are summed in another order; they differ by less than two chunks of such data do."""

    def body(comm, xp):
        pool, weights = Pool(SPECS, np.float32, xp.zeros), xp.asarray(data("normal", N))
        settings, scale = CSCSettings(30, form, chunk=4), LossScale(2.0**7)
        residual = kind(pool, weights, settings, 0.9, 0.01, comm.Get_size())
        transport = Transport(direct_allreduce(comm, wire=wire), Theta(30))
        exchange = CSC(settings, residual, transport, direct_allreduce(comm), scale)
        found = []
        for step in range(6):
            gradients = data("normal", N, seed=[step, comm.Get_rank()])
            pool.flat[...] = xp.asarray(gradients * np.float32(scale.scale))
            if step == 3 and comm.Get_rank() == 0:
                pool.flat[7:8] = np.inf  # no rank accepts this step
            for i in range(len(SPECS)):
                exchange.ready(i)
            result = exchange.finish()
            assert result.accepted == (step != 3)
            found += [exchange.chosen, *(pool.flat[part].copy() for part in result.sent or [])]
        return found + [array.copy() for array in residual.current_state().values()]

    on_both(on_ranks, body, cupy)
