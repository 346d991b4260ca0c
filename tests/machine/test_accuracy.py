"""Top-1 and top-5: ties, NaN, and all ranks together against one rank and the core's count."""

import numpy as np
import pytest

from refgf.comm.direct import direct_allreduce
from refgf.machine import threads
from refgf.machine.accuracy import count_right, count_right_together, places
from refgf.nn.alexnet import AlexNet
from refgf.training.data import Dataset
from refgf.training.evaluation import evaluate
from refgf.training.step import replica
from tests.support.datasets import numbered

CLASSES, N = 12, 23
NAN = float("nan")


def images(n=N, classes=CLASSES):
    samples = np.random.default_rng(3).integers(0, 256, (n, 67, 67, 1), np.uint8)
    labels = np.random.default_rng(4).integers(0, classes, n)
    names = tuple(map(str, range(classes)))
    return Dataset(lambda indices: samples[indices], labels, names, 67, 1, (0.5,), (0.5,))


class Fixed:
    """A network whose logits are given: predict(images) of sample i is row i."""

    running = []

    def __init__(self, logits):
        self.logits = logits

    def predict(self, images):
        return self.logits[images[:, 0, 0, 0].astype(int)]


@pytest.mark.parametrize(
    "logits, label, place",
    [
        ([1, 2, 3], 2, 0),
        ([1, 2, 3], 0, 2),
        ([5, 5, 5], 0, 0),  # of equal ones the lower class is first
        ([5, 5, 5], 2, 2),
        ([5, 7, 5], 2, 2),
        ([NAN, 1, 2], 2, 1),
        ([NAN, 1, 2], 0, 3),
        ([NAN, NAN, NAN], 0, 3),
        ([np.inf, 1, np.inf], 2, 1),
        ([-np.inf, -np.inf, 0], 0, 1),
    ],
)
def test_places(logits, label, place):
    found = places(np.array([logits], np.float32), np.array([label]))
    assert found.tolist() == [place]


def test_places_against_sorting():
    rng = np.random.default_rng(0)
    logits = rng.integers(0, 5, (200, 9)).astype(np.float32)  # many ties
    labels = rng.integers(0, 9, 200)
    order = np.argsort(-logits, axis=1, kind="stable")
    wanted = [row.tolist().index(label) for row, label in zip(order, labels)]
    assert places(logits, labels).tolist() == wanted
    assert np.array_equal(places(logits, labels) == 0, logits.argmax(axis=1) == labels)
    assert places(np.zeros((0, 9)), np.zeros(0, int)).tolist() == []


def test_five_of_ten():
    """Image i has its own class in place i."""
    logits = -np.arange(10.0) * np.ones((10, 1))
    network, data = Fixed(logits), numbered(np.arange(10), std=1 / 255)
    assert count_right(network, data, 0, 1, batch=3) == ([1, 5], 10)
    assert count_right(network, data, 0, 1, top=(10, 2)) == ([10, 2], 10)
    assert count_right(network, data, 1, 3) == ([0, 2], 3)  # images 1, 4, 7
    assert count_right(network, data, 10, 11) == ([0, 0], 0)


def test_a_diverged_network_is_never_right():
    network, data = Fixed(np.full((4, 10), NAN)), numbered(np.zeros(4, int), 10, std=1 / 255)
    assert count_right(network, data, 0, 1, top=(1, 5, 10)) == ([0, 0, 0], 4)


def together(comm, top, batch):
    model = replica(AlexNet(CLASSES, 67, 1 / 16, channels=1), seed=2)
    for number, array in enumerate(model.network.running):
        array += 0.1 * comm.Get_rank() + 0.01 * number  # each rank has its own
    before = [array.copy() for array in model.network.running]
    sums = direct_allreduce(comm)
    found = count_right_together(model.network, images(), comm, sums, top, batch)
    assert all(map(np.array_equal, before, model.network.running))
    return (
        found,
        count_right(model.network, images(), 0, 1, top),
        evaluate(model.network, images(), 0, 1),
    )


def test_on_ranks(on_ranks):
    for results in on_ranks(together, (1, 5), 4, sizes=(1, 3)):
        found = [result[0] for result in results]
        assert all(one == found[0] for one in found)
        (top1, top5), samples = found[0]
        assert samples == N and 0 <= top1 <= top5 <= N and top5 > 0
    (_, alone, core), *_ = threads.run(1, together, (1, 5), 4)
    assert alone[0][0] == core[0] and alone[1] == core[1]
    assert threads.run(1, together, (1, 5), 4)[0][0] == alone


class Voting:
    """A network whose logits are its running statistics, whatever the image."""

    def __init__(self, votes):
        self.running = [votes]

    def predict(self, images):
        return np.tile(self.running[0], (len(images), 1))


def votes_together(comm):
    """Each rank alone would answer with its own number, the average of all answers 7."""
    votes = np.zeros(CLASSES)
    votes[[comm.Get_rank(), 7]] = 1.0, 0.9
    network = Voting(votes.copy())
    found = count_right_together(network, images(), comm, direct_allreduce(comm), (1,))
    return found, np.array_equal(network.running[0], votes)


def test_the_running_statistics_are_averaged():
    wanted = [int((images().labels == 7).sum())], N
    assert wanted[0][0] > 0
    assert threads.run(3, votes_together) == [(wanted, True)] * 3


@pytest.mark.parametrize("top", [(0,), (1, 13)])
def test_more_classes_than_there_are(top):
    message = r"count_right on rank 2: got top=.* for 12 classes; wanted each from 1 to 12; next"
    with pytest.raises(ValueError, match=message):
        count_right(Fixed(np.zeros((N, CLASSES))), images(), 2, 3, top)
