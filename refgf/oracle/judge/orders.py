"""Known orders of summation, to name the one that gave certain bits.

An order says which sums are formed (`fold`, `halving`, `tree`), an arithmetic how each of them is rounded, a division
whether the result was made an average, and when.
"""

from collections.abc import Iterator

import numpy as np

from refgf.oracle.definitions import on_wire, slice_bounds


def fold(xs, add):
    """((x0 + x1) + x2) + ..."""
    total = xs[0]
    for x in xs[1:]:
        total = add(total, x)
    return total


def ring(xs, add):
    """Slice s: a fold over s, s+1, ... (R2)."""
    return _by_slice(xs, lambda s, p: [(s + k) % p for k in range(p)], add)


def ring_backwards(xs, add):
    """Slice s: a fold over s, s-1, ...; a ring in the other direction."""
    return _by_slice(xs, lambda s, p: [(s - k) % p for k in range(p)], add)


def ring_owner_first(xs, add):
    """Slice s: a fold over s+1, s+2, ..., s; the ring whose rank r ends up owning slice r."""
    return _by_slice(xs, lambda s, p: [(s + 1 + k) % p for k in range(p)], add)


def _by_slice(xs, ranks, add):
    p, n = len(xs), len(xs[0])
    return np.concatenate([fold([xs[r][i:j] for r in ranks(s, p)], add) for s, (i, j) in enumerate(slice_bounds(n, p))])


def doubling(xs, add):
    """Recursive doubling, halving-doubling, nearest first; ranks beyond a power of two join their neighbours before."""
    extras = len(xs) - 2 ** (len(xs).bit_length() - 1)
    held = [add(xs[2 * i], xs[2 * i + 1]) for i in range(extras)] + list(xs[2 * extras :])
    while len(held) > 1:
        held = [add(a, b) for a, b in zip(held[::2], held[1::2])]
    return held[0]


def doubling_far(xs, add):
    """Recursive halving and doubling, farthest first: (x0 + x4) + (x2 + x6) + ..."""
    extras = len(xs) - 2 ** (len(xs).bit_length() - 1)
    held = [add(xs[2 * i], xs[2 * i + 1]) for i in range(extras)] + list(xs[2 * extras :])
    while len(held) > 1:
        half = len(held) // 2
        held = [add(a, b) for a, b in zip(held[:half], held[half:])]
    return held[0]


def tree(xs, add):
    """Binomial tree to rank 0: children at distance 1, 2, 4, ... are added in that order."""
    held, distance = list(xs), 1
    while distance < len(xs):
        for r in range(0, len(xs) - distance, 2 * distance):
            held[r] = add(held[r], held[r + distance])
        distance *= 2
    return held[0]


ORDERS = {
    "ring": ring,
    "ring backwards": ring_backwards,
    "ring, rank r owns slice r": ring_owner_first,
    "rank order": fold,
    "rank order backwards": lambda xs, add: fold(xs[::-1], add),
    "recursive doubling or halving-doubling, nearest first": doubling,
    "halving-doubling, farthest first": doubling_far,
    "binomial tree": tree,
}


NAMED = {"ring": ring, "direct": fold, "doubling": doubling, "halving-far": doubling_far, "tree": tree}  # `verify --order`


def arithmetics(dtype, wires=("float16", "bfloat16")):
    """{name: (input -> input, add, sum -> result)}: how sums are rounded."""

    def keep(x):
        return x

    def plain(a, b):
        return a + b

    found = {f"sums in {dtype}": (keep, plain, keep)}
    if dtype != "float64":
        found["sums in float64"] = (lambda x: x.astype(np.float64), plain, lambda x: x.astype(dtype))
    for wire in wires:
        if wire == dtype:
            continue

        def cast(x, wire=wire):
            return on_wire(x, wire)

        def hop(a, b, cast=cast):
            return b + cast(a)

        def both(a, b, cast=cast):
            return cast(a) + cast(b)

        found[f"{wire} on the wire at each hop"] = (keep, hop, cast)
        found[f"{wire} on the wire at each hop, both partners round"] = (keep, both, cast)
        found[f"{wire} at each hop, the result not rounded"] = (keep, hop, keep)
        found[f"inputs and result rounded to {wire}"] = (cast, plain, cast)
        found[f"inputs rounded to {wire}"] = (cast, plain, keep)
        found[f"sums in {wire}"] = (cast, lambda a, b, cast=cast: cast(a + b), keep)
    return found


def candidates(xs, wires=("float16", "bfloat16"), divided=True) -> Iterator:
    """(description, result (n,)) of every order, arithmetic and division. xs: p arrays (n,) of one type."""
    p, dtype = len(xs), xs[0].dtype.name
    share = xs[0].dtype.type(p)
    divisions = {"": (xs, ())}
    if divided and p > 1:
        divisions |= {", divided by p before": ([x / share for x in xs], ()), ", divided by p after": (xs, [share]),
                      ", divided by p twice": (xs, [share, share]), ", divided by p times p": (xs, [share * share]),
                      ", divided by p before and after": ([x / share for x in xs], [share])}  # fmt: skip
    with np.errstate(all="ignore"):
        for division, (inputs, after) in divisions.items():
            for arithmetic, (enter, add, leave) in arithmetics(dtype, wires).items():
                for order, function in ORDERS.items():
                    total = leave(function([enter(x) for x in inputs], add))
                    for divisor in after:
                        total = total / divisor
                    yield f"{order}, {arithmetic}{division}", total
