"""Which known order of summation gave these bits?"""

import numpy as np

from refgf.oracle.definitions import exact_sum, same_bits, summation_bound
from refgf.oracle.judge.comparison import differs
from refgf.oracle.judge.files import BadFile
from refgf.oracle.judge.orders import arithmetics, candidates, fold

LONGEST = 1 << 12  # elements up to which parts of a lazy allreduce are looked for


def explain(xs, result, wires=("float16", "bfloat16")):
    """Lines that name the orders giving `result`, as a whole or, where none does, piece by piece.

    xs: p arrays (n,) of one type; result: (n,), or (p, n) of all ranks.
    """
    rows = np.atleast_2d(result)
    if len(rows) not in (1, len(xs)) or rows.shape[1:] != xs[0].shape or rows.dtype != xs[0].dtype:
        raise BadFile(
            f"explain: inputs are {len(xs)} arrays {xs[0].dtype} {xs[0].shape}, the result is {rows.dtype} "
            f"{rows.shape}; wanted one type and length, and one row or one of each rank"
        )
    lines = [
        f"rank {r} holds other bits than rank 0"
        for r, row in enumerate(rows)
        if not same_bits(row, rows[0])
    ]
    whole = [name for name, total in candidates(xs, wires) if same_bits(total, rows[0])]
    if whole:
        return lines + [
            f"these orders give exactly this result ({len(whole)}):",
            *(f"  {name}" for name in whole),
        ]
    told = ring_calls(xs, rows, wires) or pieces(xs, rows, wires)
    return lines + ["no known order gives all of it; by pieces:", *told, within(xs, rows[0])]


def ring_calls(xs, rows, wires):
    """Rings over parts, each with its own slices (a lazy allreduce, L4), as few as explain all but a local rest.

    A cut may be told an element off, where both places give these bits.
    """
    n, p = rows.shape[1], len(xs)
    rest = local_rest(xs, rows)
    if p < 2 or rest > LONGEST:
        return []
    folds = {}
    for name, total in rotations(xs, wires):
        start, arithmetic = name.split(" up, ") if " up, " in name else (None, None)
        if start:
            folds.setdefault(arithmetic, []).append(ends_of_runs(~differs(total, rows[0])))
    for arithmetic, ends in folds.items():
        cuts = fewest_calls(ends, rest)
        if cuts and (len(cuts) - 1) * 2 * p <= n:
            told = [
                f"  elements {i}..{j}: a ring of its own, {arithmetic}"
                for i, j in zip(cuts, cuts[1:])
            ]
            return told + (
                [f"  elements {rest}..{n}: not summed, every rank has its own"] if rest < n else []
            )
    return []


def local_rest(xs, rows):
    """Where the end begins that every rank has kept as it was; n where there is none, or one row only."""
    if len(rows) != len(xs) or len(xs) == 1:
        return rows.shape[1]
    moved = np.flatnonzero(differs(rows, np.asarray(xs)).any(axis=0))
    return int(moved[-1]) + 1 if len(moved) else 0


def ends_of_runs(equal):
    """For each element the end of the run of True that begins there."""
    ends = np.arange(len(equal) + 1)
    for i in np.flatnonzero(equal)[::-1]:
        ends[i] = ends[i + 1]
    return ends


def fewest_calls(ends, n):
    """Cuts [0, ..., n] so that slice s of each part lies in a run of fold s; None when there are no such cuts."""
    p, before, level = len(ends), {0: None}, [0]
    while level and n not in before:
        following = []
        for start in level:
            stops = np.arange(start + 1, n + 1)
            each, longer = np.divmod(stops - start, p)
            right, at = np.ones(len(stops), bool), np.full(len(stops), start)
            for s in range(p):
                after = at + each + (s < longer)
                right, at = right & (ends[s][at] >= after), after
            fresh = [int(stop) for stop in stops[right] if int(stop) not in before]
            before.update(dict.fromkeys(fresh, start))
            following += fresh
        level = following
    cuts = [n]
    while n in before and cuts[-1] != 0:
        cuts.append(before[cuts[-1]])
    return cuts[::-1] if n in before else None


def pieces(xs, rows, wires):
    """Longest pieces, from the left, that one and the same order explains; folds from each rank count as orders."""
    result, rest = rows[0], local_rest(xs, rows)
    right = {
        name: ~differs(total, result)
        for name, total in [*candidates(xs, wires), *rotations(xs, wires)]
    }
    right["not summed, every rank has its own"] = np.arange(len(result)) >= rest
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
        return (
            "every element is within the bound of S2: some order of summation, without a wire type"
        )
    return f"{int(wrong.sum())} of {len(result)} elements are farther from the exact sum than any order in {xs[0].dtype} may be"
