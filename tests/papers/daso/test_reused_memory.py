"""DASO sends from the memory of a received sum, and never from that of a sum in flight."""

import numpy as np

from refgf.machine import threads
from refgf.papers.daso.daso import DASO
from refgf.papers.daso.phases import Constant, Phase
from tests.support.stacks import new_model
from tests.support.tiny import N, Prescribed

BATCHES, NODES = 9, [[0], [1]]  # one rank a node sends every sum
GRADIENTS = np.random.default_rng(7).standard_normal((BATCHES, len(NODES), N)).astype(np.float32)


def train(comm):
    """The memory that each batch's sum is formed in."""
    sent = []
    with DASO(comm, new_model(Prescribed()), NODES, Constant(Phase(1)), BATCHES) as stack:
        for step in GRADIENTS:
            stack.step(step[comm.Get_rank()][None], None, 1, rate=0.125)
            sent += [stack._pending.total] if stack._pending else []
    return sent


def test_two_copies_are_enough_for_an_epoch():
    for sent in threads.run(len(NODES), train):
        assert len(sent) == BATCHES - 1  # the last sum is blocking
        assert len({id(memory) for memory in sent}) == 2
