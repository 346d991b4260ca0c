"""Some ranks work while the others sleep: results, and the count of all messages."""

from argparse import Namespace

import numpy as np
import pytest

import kit
from lab.performance import kernel_times
from lab.scaling import rank_subset
from refgf.comm import ring
from refgf.comm.schedule import collective
from refgf.machine import threads
from refgf.oracle.definitions import ring_traffic
from refgf.papers.barrachina.kernels import DIRECTIONS, KernelShape, draw_shapes


def on_ranks(size, function):
    options = Namespace(link=None, threads=size, quick=True, full=False)
    return threads.run(size, lambda comm: function(kit.Run(comm, options)))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_on_rank_0(size):
    found = on_ranks(size, lambda run: run.on_rank_0(lambda: "done"))
    assert found == ["done"] + [None] * (size - 1)


@pytest.mark.parametrize("size, count", [(1, 1), (3, 1), (3, 2), (5, 5), (8, 4)])
def test_first(size, count):
    """The subset sums over its own ranks only; afterwards all ranks continue together."""

    def summed(part):
        x = np.full(7, 1 + part.rank, np.float32)
        collective(part.comm, ring.allreduce)(x)
        return part.size, part.rank, x[0]

    def body(run):
        got = rank_subset.first(run, count, summed)
        return (
            got,
            run.comm.messages,
            4 * ring_traffic(7, count, run.rank)[1] == run.comm.bytes if got else True,
            run.size,
        )

    found = on_ranks(size, body)
    assert [got for got, *_ in found] == [
        (count, r, count * (count + 1) / 2) for r in range(count)
    ] + [None] * (size - count)
    assert [messages for _, messages, *_ in found] == [2 * (count - 1)] * count + [0] * (
        size - count
    )
    assert all(same and whole == size for *_, same, whole in found)


def test_an_error_in_the_subset_reaches_all_ranks():
    def fail(part):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        on_ranks(3, lambda run: rank_subset.first(run, 2, fail))


@pytest.mark.parametrize("kind", ["conv", "fc"])
def test_timed_layers_have_the_flops_of_their_shapes(kind):
    for shape in draw_shapes(kind, 12, seed=2, most_flops=2e7):
        layer, x, dy = kernel_times.layer_of(shape, kernel_times.Workspace())
        assert layer.flops(shape.batch) == tuple(shape.flops(direction) for direction in DIRECTIONS)
        assert len(x) == len(dy) == shape.batch


def test_times_are_those_of_one_pass():
    """Positive, and a hundred times the work takes longer."""
    (timer,) = on_ranks(1, kernel_times.timer)
    short, long = (timer(KernelShape("fc", 8, 1, n, n)) for n in (32, 1024))
    assert all(0 < a < b for a, b in zip(short, long))
