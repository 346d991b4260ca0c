"""Solutions of lesson 16, checked by the code: python lessons/solutions/16_sharding.py"""

from types import SimpleNamespace

import numpy as np

from refgf.comm.ring import ring_allreduce
from refgf.machine import threads
from refgf.oracle.spec.zero.lesson_16 import held
from refgf.papers.jia.lars import LARS
from refgf.papers.zero.zero1 import ZeRO1
from refgf.training.sgd import MomentumSGD


def share_held(p: int, states: int, n: int = 55_440) -> float:
    """What a rank of ZeRO-1 holds, over what it would hold alone. Every p up to 12 divides n."""
    return sum(held(n, p, 0, 1, states)) / sum(held(n, p, 0, 0, states))


def when_half_is_left() -> None:
    """1. (2 + s/p) / (2 + s) with s states. With Adam it is 1/2 + 1/(2p): it comes near a half, and
    no number of ranks gets there. With momentum it is 2/3 + 1/(3p), never below two thirds. Weights
    and gradients are what is left, and ZeRO-2 and ZeRO-3 share them. Where weights and gradients
    are float16 next to a float32 state, as in the paper, ZeRO-1 saves more."""
    assert np.isclose(share_held(8, states=2), 1 / 2 + 1 / 16)
    assert all(share_held(p, states=2) > 1 / 2 for p in range(1, 12))
    assert all(share_held(p, states=1) > 2 / 3 for p in range(1, 12))


N, RANKS = 12, 3


def trained(sharded: bool, optimizer) -> np.ndarray:
    """Weights after three steps of momentum SGD or LARS. optimizer(w, own) updates w[own]."""

    def body(comm):
        w = np.linspace(1, 2, N, dtype=np.float32)
        zero = ZeRO1(comm, w, lambda own: optimizer(w, own)) if sharded else None
        whole, allreduce = optimizer(w, slice(0, N)), ring_allreduce(comm)
        for step in range(3):
            g = np.random.default_rng([comm.Get_rank(), step]).standard_normal(N)
            g = g.astype(np.float32)
            if zero:
                zero.step(g, 0.1)
            else:
                allreduce(g)
                whole.step(g, 0.1)
        return w

    return threads.run(RANKS, body)[0]


def with_flags(flags) -> MomentumSGD:
    """flags(own): of the elements own, which weight decay applies to."""

    def optimizer(w, own):
        specs = [SimpleNamespace(shape=(1,), decay=bool(decay)) for decay in flags(own)]
        return MomentumSGD(specs, w[own], 0.9, 0.1)

    return optimizer


def flags_of_decay() -> None:
    """2. The bias of one layer decays, and a part of a weight does not. The losses still fall, so
    nobody sees it: the weights differ from those of one rank in some elements, where the flags
    differ. All ranks hold the same wrong weights, so comparing ranks does not show it either."""
    decays = np.arange(N) < N // 2
    right, wrong = (
        trained(True, with_flags(flags))
        for flags in (lambda own: decays[own], lambda own: decays[: own.stop - own.start])
    )
    wanted = trained(False, with_flags(lambda own: decays[own]))
    assert np.array_equal(right, wanted)
    assert np.flatnonzero(wrong != wanted).tolist() == list(range(N // 2, N))


def lars_of(w, own) -> LARS:
    elements = own.stop - own.start
    return LARS([SimpleNamespace(shape=(elements,), decay=True)], w[own], trust=0.1)


def norms_of_a_slice() -> None:
    """3. No: a slice's norms are not its layer's, so each slice gets a ratio of its own, and one
    layer is moved at p rates. With norms summed over the ranks, as in lesson 11, all slices get the
    layer's ratio. Clipping by the norm of all gradients has the same trouble."""
    assert not np.allclose(trained(True, lars_of), trained(False, lars_of), rtol=1e-4)


if __name__ == "__main__":
    for exercise in (when_half_is_left, flags_of_decay, norms_of_a_slice):
        exercise()
        print(exercise.__doc__.strip() + "\n")
