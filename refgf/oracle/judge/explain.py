"""Which known order of summation gave these bits?"""

from collections.abc import Iterator
from itertools import chain

import numpy as np

from refgf.oracle.definitions import exact_sum, same_bits, summation_bound
from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.judge.comparison import differs
from refgf.oracle.judge.diagnosis import first_names
from refgf.oracle.judge.orders import arithmetics, candidates, fold
from refgf.oracle.judge.words import span

LONGEST = 1 << 12  # elements up to which the calls of a lazy allreduce are searched
MOST_RANKS, MOST_ELEMENTS = 64, 1 << 19  # of all ranks: about a minute
UNKNOWN = "nothing known"
TOO_OFTEN = "divided by p twice", "divided by p times p", "divided by p before and after"
LOCAL = "not summed, every rank has its own"
Arrays = list[np.ndarray]
Wires = tuple[str, ...]


def explain(xs: Arrays, result: np.ndarray, wires: Wires = ("float16", "bfloat16")) -> list[str]:
    """Lines that name the orders giving `result`: of all of it or, if none does, of its runs."""
    return explained(xs, result, wires)[0]


def explained(
    xs: Arrays, result: np.ndarray, wires: Wires = ("float16", "bfloat16")
) -> tuple[list[str], bool]:
    """(the lines of `explain`, is it right?): a sum or mean of all ranks, the same bits on each.

    xs: p arrays (n,) of one type; result: (n,), or (p, n) of all ranks.
    """
    rows, x = np.atleast_2d(result), xs[0]
    if len(rows) not in (1, len(xs)) or rows.shape[1:] != x.shape or rows.dtype != x.dtype:
        raise BadFile(
            f"explain: got {len(xs)} inputs {x.dtype} {x.shape} and a result {rows.dtype} "
            f"{rows.shape}; wanted one type and length, and one row or one of each rank"
        )
    if len(xs) > MOST_RANKS or len(xs) * x.size > MOST_ELEMENTS:
        raise BadFile(
            f"explain: got {len(xs)} inputs of {x.size} elements; wanted at most {MOST_RANKS}, and "
            f"{MOST_ELEMENTS} elements of all together, because hundreds of orders are tried; "
            "next: an allreduce of fewer elements or ranks"
        )
    different = [r for r, row in enumerate(rows) if not same_bits(row, rows[0])]
    lines = other_ranks(xs, rows, different, wires)
    of = "rank 0's" if different else "this"
    whole, right = [], {}  # right: where each order gives these bits
    for name, total in candidates(xs, wires):
        right[name] = ~differs(total, rows[0])
        whole += [name] * same_bits(total, rows[0])
    if whole:
        lines += [f"these orders give exactly {of} result ({len(whole)}):"]
        lines += [f"  {name}" for name in whole]
        once = [name for name in whole if not name.endswith(TOO_OFTEN)]
        lines += [] if once else ["wrong: a mean is divided by p once"]
        return lines, bool(once) and not different
    named = ring_calls(xs, rows, wires) or runs(xs, rows, wires, right)
    known = not any(line.endswith((UNKNOWN, LOCAL)) for line in named)
    if known and len(named) == 1:
        lines += [f"one order gives exactly {of} result, not that of a known algorithm:", *named]
    else:
        lines += [f"no known order gives all of {of} result; by runs:", *named]
    if not is_sum(xs, rows[0]) and known and any(is_sum(xs, rows[0], wire) for wire in wires):
        lines += ["every element is within the bound of S2 with a wire type"]
        return lines, not different
    return [*lines, within(xs, rows[0])], not different and is_sum(xs, rows[0])


def other_ranks(xs: Arrays, rows: np.ndarray, different: list[int], wires: Wires) -> list[str]:
    """A line of each rank whose bits are not rank 0's, with an order that gives them."""
    names = {}
    if different:
        for name, total in chain(candidates(xs, wires), rotations(xs, wires)):
            for r in different:
                if r not in names and same_bits(total, rows[r]):
                    names[r] = f": {name}"
    lines = [f"rank {r} holds other bits than rank 0{names.get(r, '')}" for r in different]
    return lines + ["wrong: all ranks must end with the same bits (R4)"] * bool(different)


def ring_calls(xs: Arrays, rows: np.ndarray, wires: Wires) -> list[str]:
    """Rings over ranges of elements, each with its own slices (a lazy allreduce, L4).

    There are as few of them as explain all but a local rest. A cut may be off by an element where
    both places give these bits.
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
            ranges = zip(cuts, cuts[1:])
            lines = [f"  {span(i, j)}: a ring of its own, {arithmetic}" for i, j in ranges]
            return lines + ([f"  {span(rest, n)}: {LOCAL}"] if rest < n else [])
    return []


def local_rest(xs: Arrays, rows: np.ndarray) -> int:
    """Where the unsummed end of the arrays begins; n if there is none, or for one row only."""
    if len(rows) != len(xs) or len(xs) == 1:
        return rows.shape[1]
    changed = np.flatnonzero(differs(rows, np.asarray(xs)).any(axis=0))
    return int(changed[-1]) + 1 if len(changed) else 0


def ends_of_runs(equal: np.ndarray) -> np.ndarray:
    """For each element the end of the run of True that begins there."""
    ends = np.arange(len(equal) + 1)
    for i in np.flatnonzero(equal)[::-1]:
        ends[i] = ends[i + 1]
    return ends


def fewest_calls(ends: list[np.ndarray], n: int) -> list[int] | None:
    """Cuts [0, ..., n] so that slice s of each call lies in a run of fold s, or None."""
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


def runs(xs: Arrays, rows: np.ndarray, wires: Wires, right: dict[str, np.ndarray]) -> list[str]:
    """The longest runs, from the left, that one order explains; folds from each rank count too."""
    result, rest = rows[0], local_rest(xs, rows)
    right |= {name: ~differs(total, result) for name, total in rotations(xs, wires)}
    right[LOCAL] = np.arange(len(result)) >= rest
    known = np.logical_or.reduce([*right.values()])
    lines, start, n = [], 0, len(result)
    while start < n:
        reach = {name: _run(equal, start) for name, equal in right.items()}
        best = max(reach.values())
        if best == start:
            unknown = start
            start = _run(~known, start)
            lines.append(f"  {span(unknown, start)}: {UNKNOWN}")
        else:
            names = [name for name, stop in reach.items() if stop == best]
            lines.append(f"  {span(start, best)}: {first_names(names)}")
            start = best
    return lines


def _run(equal: np.ndarray, start: int) -> int:
    """The end of the run of True that begins at `start`."""
    wrong = np.flatnonzero(~equal[start:])
    return start + int(wrong[0]) if len(wrong) else len(equal)


def rotations(xs: Arrays, wires: Wires) -> Iterator[tuple[str, np.ndarray]]:
    """Folds that begin at each rank, forwards and backwards: what a ring does in one slice."""
    p = len(xs)
    for arithmetic, (enter, add, leave) in arithmetics(xs[0].dtype.name, wires).items():
        entered = [enter(x) for x in xs]
        for s in range(p):
            for direction, sign in (("up", 1), ("down", -1)):
                with np.errstate(all="ignore"):
                    total = leave(fold([entered[(s + sign * k) % p] for k in range(p)], add))
                yield f"fold from rank {s} {direction}, {arithmetic}", total


def within(xs: Arrays, result: np.ndarray) -> str:
    """Is it at least a sum?"""
    wrong = outside(xs, result)
    if not wrong.any():
        return "every element is within the bound of S2: some order of summation, no wire type"
    count = f"{int(wrong.sum())} of {len(result)} elements"
    return f"{count} are farther from the exact sum than any order in {xs[0].dtype} may be"


def is_sum(xs: Arrays, result: np.ndarray, wire: str | None = None) -> bool:
    """Within the bound of S2; a wire type for so many ranks may have none."""
    try:
        return not outside(xs, result, wire).any()
    except ValueError:
        return False


def outside(xs: Arrays, result: np.ndarray, wire: str | None = None) -> np.ndarray:
    """The elements that are farther from the exact sum than the bound of S2."""
    with np.errstate(invalid="ignore"):
        exact = exact_sum(xs)
        near = np.abs(np.float64(result) - exact) <= summation_bound(xs, wire)
    return ~(near | ~differs(np.float64(result), exact))
