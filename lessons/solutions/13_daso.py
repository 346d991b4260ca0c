"""Solutions of lesson 13, each checked by the code below it: python lessons/solutions/13_daso.py"""

from collections import namedtuple

import numpy as np

from refgf.machine import threads
from refgf.papers.jia.hierarchical import blocks
from refgf.nn.workspace import Workspace
from refgf.training.step import replica
from refgf.machine.trace import TracedComm
from refgf.oracle.definitions import daso_merge
from refgf.papers.daso.daso import DASO
from refgf.papers.daso.phases import Constant, Phase


def share_of_own_step(nodes: int, waited: int) -> float:
    """All nodes sent 1; this one has moved to 2 since. How much of its move is left after the merge?"""
    sent, now = np.ones(1, np.float64), np.full(1, 2.0)
    return float(daso_merge(now, nodes * sent, nodes, waited)[0] - 1)


def whose_weight() -> None:
    """1. The own parameters weigh 2S and the sum m, so as much after S = m/2 batches: for 4 nodes after 2. Of what a node did
    while the sum was under way 2S / (2S + m) is left: half of it at S = m/2, but with 100 nodes and W = 1 only 2 of 102. The
    batches between sending and receipt are then nearly lost to this node (their gradients live on in its momentum)."""
    assert share_of_own_step(4, 2) == 0.5
    assert abs(share_of_own_step(100, 1) - 2 / 102) < 1e-12
    assert abs(share_of_own_step(100, 50) - 0.5) < 1e-12


def waiting_left(sum_in_batches: float, phase: Phase, batches: int = 8400) -> float:
    """How long a batch of a long epoch waits for sums on average, in batches; the blocking one at the end left out."""
    total = 0.0
    for b in range(batches - 1):
        if phase.sender(b, batches, 1) is not None:
            total += max(0.0, sum_in_batches - phase.wait_after(b, batches))
    return total / batches


def which_phase_hides() -> None:
    """2. W = 3 hides all of it, with any B >= 3. With W = 1 two batches of waiting are left of each sum, 2/B of a batch: a half
    at B = 4, a twentieth at B = 40. So a longer B does what a longer wait does, but nodes drift further apart; a longer wait
    brings staler parameters. The phases of DASO take W = B/4 when they begin again at B = 8."""
    assert waiting_left(3, Phase(4, 1, 3)) < 1e-3 and waiting_left(3, Phase(3, 1, 3)) < 1e-3
    assert abs(waiting_left(3, Phase(4, 1, 1)) - 1 / 2) < 1e-3
    assert waiting_left(3, Phase(39)) > 1 / 20 - 1e-3 > waiting_left(3, Phase(42))


class AlwaysTheFirst(Phase):
    """The groups do not take turns."""

    def sender(self, batch: int, batches: int, groups: int) -> int | None:
        return None if super().sender(batch, batches, groups) is None else 0


class Bowl:
    """A network of one tensor: each image is a point, the loss half the squared distance of the parameters to it."""

    def __init__(self, n: int) -> None:
        spec = namedtuple("Spec", "name shape decay size")("w", (n,), True, n)
        self.tensors, self.dtype, self.xp, self.running = [spec], np.dtype(np.float32), np, []
        self.workspace = Workspace()

    def bind(self, parameters, gradients) -> None:
        self.w, self.g = parameters[0], gradients[0]

    def initialize(self, seed: int) -> None:
        self.w[:] = 0

    def loss(self, images, labels, global_batch: int) -> float:
        self.g[:] = (self.w - images).sum(axis=0) / global_batch  # (N, n) -> (n,)
        return float(((self.w - images) ** 2).sum() / 2 / global_batch)

    def backward(self, on_ready) -> None:
        on_ready(0)

    def accept(self) -> None:
        pass


def train(phase: Phase, n: int = 60, per_epoch: int = 12):
    """-> each of 4 ranks' (parameters, bytes that it sent), two nodes of two ranks."""

    def body(comm):
        traced = TracedComm(comm)
        points = (
            np.random.default_rng(comm.rank).standard_normal((per_epoch, 2, n)).astype(np.float32)
        )
        with DASO(traced, replica(Bowl(n)), blocks(4, 2), Constant(phase), per_epoch) as stack:
            traced.reset()
            for images in points:
                stack.step(images, None, 8, rate=0.1)
            return stack.model.parameters.flat.copy(), traced.bytes

    return threads.run(4, body)


def same_group_always() -> None:
    """3. No parameter changes, not by a bit: with L = 1 the ranks of a node hold the same parameters, so it does not matter
    which of them sends. What changes is who does the work: the first rank of each node then sends all the sums, the others only
    wait for it. Turns spread memory traffic and the load of the links, where ranks have their own. With L = 2 the ranks of
    a node differ between sums, and turns decide whose parameters live on."""
    turns, first = train(Phase(2)), train(AlwaysTheFirst(2))
    assert all(np.array_equal(a, b) for (a, _), (b, _) in zip(turns, first))
    sent = [[nbytes for _, nbytes in ranks] for ranks in (turns, first)]
    assert sum(sent[0]) == sum(sent[1]) and sent[1][0] > sent[0][0] and sent[1][1] < sent[0][1]
    parted = [train(kind(4, 2)) for kind in (Phase, AlwaysTheFirst)]
    assert not np.array_equal(parted[0][0][0], parted[1][0][0])


if __name__ == "__main__":
    for exercise in (whose_weight, which_phase_hides, same_group_always):
        exercise()
        print(exercise.__doc__.strip() + "\n")
