"""Counting right answers: shares of all ranks, with averaged running statistics."""

import dataclasses

import numpy as np
import pytest
from tests.support.tiny import Prescribed

from refgf.comm.direct import direct_allreduce
from refgf.machine import threads
from refgf.machine.digits import digits
from refgf.nn.alexnet import AlexNet
from refgf.training.evaluation import averaged_statistics, evaluate, evaluate_together
from refgf.training.step import replica


@pytest.mark.parametrize("size", [1, 3, 5])
def test_all_ranks_together_count_what_one_counts(size):
    _, held_out = digits(67)
    few = dataclasses.replace(held_out, labels=held_out.labels[:23])

    def body(comm):
        network = AlexNet(10, 67, width=1 / 32)
        replica(network)
        return evaluate_together(network, few, comm, direct_allreduce(comm), batch=5)

    right, samples = threads.run(1, body)[0]
    assert samples == 23 and 0 <= right <= 23
    assert set(threads.run(size, body)) == {(right, samples)}


def test_a_rank_takes_every_p_th_sample():
    class Network:
        def predict(self, images):
            return np.eye(10)[images]  # the label itself: always right

    data = dataclasses.make_dataclass("Data", ["size", "load"])(7, lambda i: (i % 10, i % 10))
    assert [evaluate(Network(), data, rank, 3) for rank in range(3)] == [(3, 3), (2, 2), (2, 2)]


def test_statistics_are_averaged_for_a_while():
    def body(comm):
        network = Prescribed()
        network.running[0][...] = comm.rank
        with averaged_statistics(network, direct_allreduce(comm), comm.size):
            assert (network.running[0] == (comm.size - 1) / 2).all()
        assert (network.running[0] == comm.rank).all()

    threads.run(3, body)
