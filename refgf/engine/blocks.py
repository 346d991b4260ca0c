"""The pool, cut into blocks: several passes over one block cost one trip to memory.

No temporary is of full size.
"""

from collections.abc import Iterator

from refgf.device import Array, is_device
from refgf.nn.workspace import cut

# A few float32 arrays of this size stay in a core's share of the cache. Half of it would fit the
# second level, but every NumPy call releases and re-acquires the GIL, which costs a communication
# thread more than cache locality saves.
BLOCK_ELEMENTS_CPU = 131_072
BLOCK_ELEMENTS_GPU = 16_777_216  # a GPU needs few large kernels


def block_elements(x: Array) -> int:
    """The length of a block of the array x."""
    return BLOCK_ELEMENTS_GPU if is_device(x) else BLOCK_ELEMENTS_CPU


def blocks(x: Array, start: int, stop: int) -> Iterator[slice]:
    """Elements start..stop of the flat array x in slices of at most a block."""
    yield from cut(slice(start, stop), block_elements(x))
