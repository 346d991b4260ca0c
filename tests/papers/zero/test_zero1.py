"""ZeRO-1 and the unsharded stack, LARS, refusals. Its bits and cost conform: test_oracle_own.py."""

from types import SimpleNamespace

import numpy as np
import pytest

from refgf.comm.ring import ring_allreduce
from refgf.machine import threads
from refgf.papers.jia.lars import LARS
from refgf.papers.jia.slice_norms import shared_norms
from refgf.papers.zero.zero1 import ZeRO1, cut_specs
from refgf.training.gradientflow import GradientFlow
from refgf.training.sgd import MomentumSGD
from tests.support.own.prescribed import Prescribed, Spec
from tests.support.stacks import new_model

STEPS = 3


def gradients(rank, step, n):
    return np.random.default_rng([rank, step]).standard_normal(n).astype(np.float32)


def start(n):
    return np.random.default_rng(9).standard_normal(n).astype(np.float32)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("n", [0, 3, 29])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_the_bits_are_those_of_the_unsharded_stack(size, n, overlap):
    """Three tensors, of which the second has no decay."""
    lengths = n // 3, n // 3, n - 2 * (n // 3)
    specs = [Spec(f"t{i}", (k,), i != 1, k) for i, k in enumerate(lengths)]

    def body(comm):
        model, w = new_model(Prescribed(start(n), specs), 0.9, 0.01), start(n)
        zero = ZeRO1(comm, w, lambda own: MomentumSGD(cut_specs(specs, own), w[own], 0.9, 0.01))
        with GradientFlow(comm, model, overlap=overlap) as flow:
            for step in range(STEPS):
                g = gradients(comm.Get_rank(), step, n)
                flow.step(g[None], None, 1, 0.1)
                zero.step(g, 0.1)
        held = sum(array.nbytes for array in zero.optimizer.state.values())
        assert held == 4 * (zero.own.stop - zero.own.start)  # one array of float32
        return w.tobytes(), model.parameters.flat.tobytes()

    assert len({*sum(threads.run(size, body), ())}) == 1


SPECS = [SimpleNamespace(shape=shape, decay=len(shape) > 1) for shape in ((5, 4), (3,), (7, 6))]


def with_lars(comm, sharded):
    n = sum(int(np.prod(spec.shape)) for spec in SPECS)
    w, allreduce = start(n), ring_allreduce(comm)

    def of_slice(own):
        return LARS(cut_specs(SPECS, own), w[own], trust=0.1, norms=shared_norms(allreduce))

    zero, whole = ZeRO1(comm, w, of_slice), LARS(SPECS, w, trust=0.1)
    for step in range(STEPS):
        g = gradients(comm.Get_rank(), step, n)
        if sharded:
            zero.step(g, 0.1)
        else:
            allreduce(g)
            whole.step(g, 0.1)
    return w


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 8])
def test_lars_shares_its_norms(size):
    """Sums of squares in float64 are rounded in another order: at most an ulp a step of float32."""
    found, wanted = (threads.run(size, with_lars, sharded) for sharded in (True, False))
    for ours, theirs in zip(found, wanted):
        assert ours.tobytes() == found[0].tobytes()
        np.testing.assert_allclose(ours, theirs, rtol=STEPS * 2**-23, atol=STEPS * 2**-23)
    alone = start(sum(int(np.prod(spec.shape)) for spec in SPECS))
    assert np.abs(found[0] - alone).max() > 0.01


REFUSED = {".step on rank 0: got gradients": start(4), " on rank 0: got shape": start(4)[None]}


@pytest.mark.parametrize("got", REFUSED)
def test_what_does_not_fit_is_refused(got):
    with pytest.raises(ValueError, match=f"^ZeRO1{got}"):
        threads.run(1, lambda comm: ZeRO1(comm, REFUSED[got], lambda _: None).step(start(5), 0.1))
