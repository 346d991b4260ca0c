import functools

import numpy as np
import pytest

from refgf.engine.threaded import ThreadedWorkspace
from refgf.nn import workspace as workspace_module
from refgf.nn.workspace import Workspace


def lengths(workspace, part, bytes_per_image):
    blocks = workspace.image_blocks(part, bytes_per_image)
    assert [image for block in blocks for image in range(100)[block]] == list(range(100))[part]
    return [block.stop - block.start for block in blocks]


def test_blocks():
    part = slice(3, 13)
    cache = workspace_module.CACHE_BYTES
    assert lengths(Workspace(images_per_block=4), part, 1) == [4, 4, 2]
    assert lengths(Workspace(), part, cache) == [1] * 10
    assert lengths(Workspace(), part, 3 * cache) == [1] * 10
    assert lengths(Workspace(), part, cache // 3) == [3, 3, 3, 1]
    assert lengths(Workspace(), part, 1) == [10]
    assert lengths(Workspace(), slice(3, 3), 1) == []


KINDS = Workspace, *(functools.partial(ThreadedWorkspace, threads) for threads in (1, 2, 3))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("images_per_block", [1, 2, 100])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 9])
def test_sum_over_blocks(n, images_per_block, kind):
    """Integers, so that sums are exact in any order."""
    values = np.random.default_rng(0).integers(-99, 99, (n, 4, 3)).astype(np.float32)
    workspace = kind(images_per_block=images_per_block)
    total = np.full((4, 3), np.nan, np.float32)

    def compute(worker, block, out):
        out[...] = values[block].sum(axis=0)

    workspace.sum_over_blocks(compute, n, 1, total)
    np.testing.assert_array_equal(total, values.sum(axis=0))


def test_memory_is_asked_for_once():
    workspace = Workspace()
    large = workspace.scratch("columns", (6, 7))
    assert np.shares_memory(large, workspace.scratch("columns", (3, 4)))
    assert not np.shares_memory(large, workspace.scratch("columns", (6, 7), worker=1))
    # a name may have several types
    assert workspace.scratch("columns", (2,), dtype=np.float64).dtype == np.float64
    assert np.shares_memory(large, workspace.scratch("columns", (3, 4)))


def test_the_last_gradient_is_still_whole():
    workspace = Workspace()
    first, second = workspace.gradient((5, 7)), workspace.gradient((5, 7))
    assert not np.shares_memory(first, second)
    assert np.shares_memory(first, workspace.gradient((4, 7)))


def test_no_images_in_a_block():
    with pytest.raises(ValueError, match="Workspace: got images_per_block=0; wanted .*; next: "):
        Workspace(images_per_block=0)
