"""What every compressor is given: true gradients, its place in the pool, and how the step ended."""

from collections import namedtuple

import numpy as np
import pytest

from refgf.exchange.compressor import Compressed, Compressor
from refgf.exchange.lazy import LazyAllreduce, Theta
from refgf.exchange.pool import Pool
from refgf.exchange.precision import LossScale

Spec = namedtuple("Spec", "name shape")
SIZES = [3, 0, 20, 1]


class Notes(Compressor):
    """Sums nothing and writes down what it is told."""

    def __init__(self):
        self.told = []

    def start(self, gradients):
        self.told.append(("start", gradients.size))

    def sum(self, x, elements):
        self.told.append((elements, x.copy()))

    def end(self, accepted):
        self.told.append(accepted)

    @property
    def state(self):
        return {}


@pytest.mark.parametrize("theta", [0, 20, np.inf])
def test_ranges_follow_the_pool_and_gradients_are_unscaled(theta):
    pool, scale, notes = (
        Pool([Spec(f"t{i}", (n,)) for i, n in enumerate(SIZES)]),
        LossScale(8.0),
        Notes(),
    )
    compressed = Compressed(notes, pool.flat, scale)
    lazy = LazyAllreduce(pool, compressed, Theta(theta))
    true = np.arange(24, dtype=np.float32)
    for accepted in (True, False):
        pool.flat[...] = 8 * true
        for index in range(len(SIZES)):
            lazy.ready(index)
        lazy.finish()
        compressed.end(accepted)
        assert (pool.flat == 8 * true).all()
    assert notes.told[0] == ("start", 24)
    steps = notes.told[1:]
    half = len(steps) // 2
    for part, accepted in ((steps[:half], True), (steps[half:], False)):
        *calls, end = part
        assert end is accepted
        assert [elements.start for elements, _ in calls] == [call.start for call in lazy.calls]
        assert all((x == true[elements]).all() for elements, x in calls)


def test_a_compressor_must_say_what_it_remembers():
    class Forgets(Compressor):
        def start(self, gradients): ...
        def sum(self, x, elements): ...
        def end(self, accepted): ...

    with pytest.raises(TypeError, match="state"):
        Forgets()
