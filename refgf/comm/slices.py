"""How a flat vector is cut: slices, one for each rank, and chunks of a fixed length.

Every collective cuts the vector with `slices`, and CSC the pool with `chunks`, so edges agree.
"""


def slices(n: int, size: int) -> list[slice]:
    """Cut n elements into `size` slices; the first n mod size are one element longer.

    Works for n = 0 and n < size: the last slices are then empty.
    """
    if n < 0 or size < 1:
        raise ValueError(
            f"slices: got n={n}, size={size}; wanted n >= 0 and size >= 1; "
            "next: pass x.size and comm.Get_size()"
        )
    shortest, longer = divmod(n, size)
    starts = [i * shortest + min(i, longer) for i in range(size + 1)]
    return [slice(start, stop) for start, stop in zip(starts, starts[1:])]


def chunks(n: int, chunk: int) -> list[slice]:
    """Cut n elements into chunks of `chunk` elements; the last may be shorter. n = 0 has none."""
    if n < 0 or chunk < 1:
        raise ValueError(
            f"chunks: got n={n}, chunk={chunk}; wanted n >= 0 and chunk >= 1; "
            "next: pass x.size and a positive length"
        )
    return [slice(start, min(start + chunk, n)) for start in range(0, n, chunk)]


def length(s: slice) -> int:
    """Elements in a slice with explicit bounds."""
    return s.stop - s.start
