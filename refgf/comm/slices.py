"""Who owns which slice of n elements. The only place with index arithmetic."""


def slices(n: int, size: int) -> list[slice]:
    """Cut n elements into `size` slices; the first n mod size are one element longer.

    Works for n = 0 and n < size: the last slices are then empty.
    """
    if n < 0 or size < 1:
        raise ValueError(f"slices: got n={n}, size={size}; wanted n >= 0 and size >= 1")
    each, longer = divmod(n, size)
    starts = [i * each + min(i, longer) for i in range(size + 1)]
    return [slice(start, stop) for start, stop in zip(starts, starts[1:])]


def chunks(n: int, chunk: int) -> list[slice]:
    """Cut n elements into pieces of `chunk` elements; the last one may be shorter. n = 0 has none."""
    if n < 0 or chunk < 1:
        raise ValueError(f"chunks: got n={n}, chunk={chunk}; wanted n >= 0 and chunk >= 1")
    return [slice(start, min(start + chunk, n)) for start in range(0, n, chunk)]


def length(s: slice) -> int:
    """Elements in a slice with explicit bounds."""
    return s.stop - s.start
