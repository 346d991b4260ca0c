"""Groups of chosen chunks: what they take, put and repeat, element by element."""

import itertools

import numpy as np
import pytest

from refgf.comm.slices import chunks
from refgf.engine.packing import groups

CHUNK = 4
SIZES = [0, 1, 3, 4, 5, 16, 19]  # without a short last chunk, with one, and nothing else


def choices(n):
    """Every set of chosen chunks of n elements, ascending."""
    numbers = range(len(chunks(n, CHUNK)))
    return itertools.chain.from_iterable(
        itertools.combinations(numbers, count) for count in range(len(numbers) + 1)
    )


@pytest.mark.parametrize("block_elements", [1, 4, 8, 100])
@pytest.mark.parametrize("n", SIZES)
def test_groups_are_the_chosen_chunks_one_after_another(n, block_elements):
    x = np.arange(n, dtype=np.float32)
    for chosen in choices(n):
        elements = [i for number in chosen for i in range(n)[chunks(n, CHUNK)[number]]]
        found = groups(chosen, n, CHUNK, block_elements)
        assert [i for group in found for i in group.take(x)] == elements
        assert [i for group in found for i in range(len(elements))[group.packed]] == list(
            range(len(elements))
        )
        assert [place for group in found for place in group.places] == list(range(len(chosen)))
        assert all(len(group.take(x)) <= max(block_elements, CHUNK) for group in found)

        written, values = x.copy(), -1 - np.arange(len(elements), dtype=np.float32)
        for group in found:
            group.put(written, values[group.packed])
        wanted = x.copy()
        wanted[elements] = values
        assert (written == wanted).all()

        own = np.array([10.0 * number for number in chosen])
        repeated = [value for group in found for value in group.repeat(own, x)]
        assert repeated == [10.0 * (i // CHUNK) for i in elements]
