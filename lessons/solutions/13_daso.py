"""Solutions of lesson 13, checked by the code: python lessons/solutions/13_daso.py"""

from collections import namedtuple

import numpy as np

from refgf.machine import threads
from refgf.papers.jia.hierarchical import consecutive_nodes
from refgf.nn.workspace import Workspace
from refgf.training.step import replica
from refgf.machine.trace import TracedComm
from refgf.oracle.definitions import daso_merge
from refgf.papers.daso.daso import DASO
from refgf.papers.daso.phases import Constant, Phase


def share_of_own_step(nodes: int, waited: int) -> float:
    """The share of this node's move that remains after the merge.

    All nodes sent 1; this node has moved to 2 since then.
    """
    sent, now = np.ones(1, np.float64), np.full(1, 2.0)
    return float(daso_merge(now, nodes * sent, nodes, waited)[0] - 1)


def whose_weight() -> None:
    """1. A node's own parameters weigh 2S and the sum weighs m. They are equal after S = m/2
    batches: after 2 for 4 nodes. Of what a node did while the sum was in flight, 2S / (2S + m)
    remains: half of it at S = m/2, but only 2/102 with 100 nodes and W = 1. The batches between
    sending and receiving are then nearly lost to this node (their gradients live on in its
    momentum)."""
    assert share_of_own_step(4, 2) == 0.5
    assert abs(share_of_own_step(100, 1) - 2 / 102) < 1e-12
    assert abs(share_of_own_step(100, 50) - 0.5) < 1e-12


def waiting_left(sum_in_batches: float, phase: Phase, batches: int = 8400) -> float:
    """Mean waiting time for sums in a batch of a long epoch, in batches.

    The blocking sum at the end is left out.
    """
    total = 0.0
    for b in range(batches - 1):
        if phase.sender(b, batches, 1) is not None:
            total += max(0.0, sum_in_batches - phase.wait_after(b, batches))
    return total / batches


def which_phase_hides() -> None:
    """2. W = 3 hides all of it, with any B >= 3. With W = 1, two batches of waiting remain for each
    sum, or 2/B of a batch: 1/2 at B = 4, 1/20 at B = 40. A larger B thus does what a larger W does,
    but nodes drift further apart; a larger W brings staler parameters. DASO's phases use W = B/4
    when they restart at B = 8."""
    assert waiting_left(3, Phase(4, 1, 3)) < 1e-3 and waiting_left(3, Phase(3, 1, 3)) < 1e-3
    assert abs(waiting_left(3, Phase(4, 1, 1)) - 1 / 2) < 1e-3
    assert waiting_left(3, Phase(39)) > 1 / 20 - 1e-3 > waiting_left(3, Phase(42))


class AlwaysTheFirst(Phase):
    """The groups do not take turns."""

    def sender(self, batch: int, batches: int, groups: int) -> int | None:
        return None if super().sender(batch, batches, groups) is None else 0


class Bowl:
    """A network of one tensor: each image is a point, the loss half the squared distance to it."""

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
    """(parameters, bytes sent) of each of 4 ranks, on two nodes of two ranks."""

    def body(comm):
        traced = TracedComm(comm)
        points = (
            np.random.default_rng(comm.rank).standard_normal((per_epoch, 2, n)).astype(np.float32)
        )
        with DASO(
            traced, replica(Bowl(n)), consecutive_nodes(4, 2), Constant(phase), per_epoch
        ) as stack:
            traced.reset()
            for images in points:
                stack.step(images, None, 8, rate=0.1)
            return stack.model.parameters.flat.copy(), traced.bytes

    return threads.run(4, body)


def same_group_always() -> None:
    """3. No parameter changes, not by a bit: with L = 1 the ranks of a node hold the same
    parameters, so it does not matter which of them sends. What changes is the distribution of the
    work: the first rank of each node sends all the sums, and the others only wait for it. Taking
    turns balances memory traffic, and the load of the links where each rank has its own. With L = 2
    the ranks of a node differ between sums, and the turns decide whose parameters survive."""
    turns, first = train(Phase(2)), train(AlwaysTheFirst(2))
    assert all(np.array_equal(a, b) for (a, _), (b, _) in zip(turns, first))
    sent = [[nbytes for _, nbytes in ranks] for ranks in (turns, first)]
    assert sum(sent[0]) == sum(sent[1]) and sent[1][0] > sent[0][0] and sent[1][1] < sent[0][1]
    diverged = [train(kind(4, 2)) for kind in (Phase, AlwaysTheFirst)]
    assert not np.array_equal(diverged[0][0][0], diverged[1][0][0])


if __name__ == "__main__":
    for exercise in (whose_weight, which_phase_hides, same_group_always):
        exercise()
        print(exercise.__doc__.strip() + "\n")
