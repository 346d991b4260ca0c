"""Which known order of summation gave these bits?"""

import numpy as np

from refgf.oracle.definitions import exact_sum, same_bits, summation_bound
from refgf.oracle.files import BadFile
from refgf.oracle.judge import differs
from refgf.oracle.orders import arithmetics, candidates, fold


def explain(xs, result, wires=("float16", "bfloat16")):
    """Lines that name the orders giving `result`, as a whole or, where none does, piece by piece.

    xs: p arrays (n,) of one type; result: (n,), or (p, n) of all ranks.
    """
    rows = np.atleast_2d(result)
    if len(xs) == 0 or rows.shape[1:] != xs[0].shape or rows.dtype != xs[0].dtype:
        raise BadFile(f"explain: inputs are {len(xs)} arrays {xs[0].dtype} {xs[0].shape}, the result is {rows.dtype} "
                      f"{rows.shape}; wanted one type and length")  # fmt: skip
    lines = [f"rank {r} holds other bits than rank 0" for r, row in enumerate(rows) if not same_bits(row, rows[0])]
    whole = [name for name, total in candidates(xs, wires) if same_bits(total, rows[0])]
    if whole:
        return lines + [f"these orders give exactly this result ({len(whole)}):", *(f"  {name}" for name in whole)]
    return lines + ["no known order gives all of it; by pieces:", *pieces(xs, rows[0], wires), within(xs, rows[0])]


def pieces(xs, result, wires):
    """Longest pieces, from the left, that one and the same order explains; folds from each rank count as orders."""
    right = {name: ~differs(total, result) for name, total in [*candidates(xs, wires), *rotations(xs, wires)]}
    lines, start, n = [], 0, len(result)
    while start < n:
        reach = {name: _run(equal, start) for name, equal in right.items()}
        best = max(reach.values())
        if best == start:
            unknown = start
            while start < n and not any(equal[start] for equal in right.values()):
                start += 1
            lines.append(f"  elements {unknown}..{start}: nothing known")
        else:
            names = [name for name, stop in reach.items() if stop == best]
            more = f" (and {len(names) - 4} more)" if len(names) > 4 else ""
            lines.append(f"  elements {start}..{best}: {'; '.join(names[:4])}{more}")
            start = best
    return lines


def _run(equal, start):
    """The end of the run of True that begins at `start`."""
    wrong = np.flatnonzero(~equal[start:])
    return start + int(wrong[0]) if len(wrong) else len(equal)


def rotations(xs, wires):
    """Folds that begin at each rank, forwards and backwards: what a ring does in one slice."""
    p = len(xs)
    for arithmetic, (enter, add, leave) in arithmetics(xs[0].dtype.name, wires).items():
        entered = [enter(x) for x in xs]
        for s in range(p):
            for direction, sign in (("up", 1), ("down", -1)):
                with np.errstate(all="ignore"):
                    total = leave(fold([entered[(s + sign * k) % p] for k in range(p)], add))
                yield f"fold from rank {s} {direction}, {arithmetic}", total


def within(xs, result):
    """Is it at least a sum?"""
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(np.float64(result) - exact_sum(xs)) <= summation_bound(xs))
    if not wrong.any():
        return "every element is within the bound of S2: some order of summation, without a wire type"
    return f"{int(wrong.sum())} of {len(result)} elements are farther from the exact sum than any order in {xs[0].dtype} may be"
