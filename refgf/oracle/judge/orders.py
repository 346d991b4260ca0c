"""Known orders of summation, to name the one that gave certain bits.

An order says which sums are formed (`fold`, `doubling`, `tree`), an arithmetic how each is rounded,
and a division when the result was made an average, if it was.
"""

from collections.abc import Callable, Iterator

import numpy as np

from refgf.oracle.definitions import on_wire, slice_bounds

Array = np.ndarray
Add = Callable[[Array, Array], Array]
Order = Callable[[list[Array], Add], Array]
Arithmetic = tuple[Callable, Add, Callable]  # input -> input, addition, sum -> result


def fold(xs: list[Array], add: Add) -> Array:
    """((x0 + x1) + x2) + ..."""
    total = xs[0]
    for x in xs[1:]:
        total = add(total, x)
    return total


def ring(xs: list[Array], add: Add) -> Array:
    """Slice s: a fold over s, s+1, ... (R2)."""
    return _by_slice(xs, 0, 1, add)


def ring_backwards(xs: list[Array], add: Add) -> Array:
    """Slice s: a fold over s, s-1, ...; a ring in the other direction."""
    return _by_slice(xs, 0, -1, add)


def ring_owner_first(xs: list[Array], add: Add) -> Array:
    """Slice s: a fold over s+1, s+2, ..., s; a ring in which rank r owns slice r at the end."""
    return _by_slice(xs, 1, 1, add)


def _by_slice(xs: list[Array], first: int, step: int, add: Add) -> Array:
    """Slice s: a fold over s + first, s + first + step, ... (mod p), all slices at once."""
    p, n, rows = len(xs), len(xs[0]), np.stack(xs)
    slice_of = np.repeat(np.arange(p), [j - i for i, j in slice_bounds(n, p)])  # (n,)
    return fold([rows[(slice_of + first + step * k) % p, np.arange(n)] for k in range(p)], add)


def doubling(xs: list[Array], add: Add) -> Array:
    """Recursive doubling or halving-doubling, nearest first; extra ranks join neighbours first."""
    held = _without_extras(xs, add)
    while len(held) > 1:
        held = [add(a, b) for a, b in zip(held[::2], held[1::2])]
    return held[0]


def doubling_far(xs: list[Array], add: Add) -> Array:
    """Recursive halving and doubling, farthest first: (x0 + x4) + (x2 + x6) + ..."""
    held = _without_extras(xs, add)
    while len(held) > 1:
        half = len(held) // 2
        held = [add(a, b) for a, b in zip(held[:half], held[half:])]
    return held[0]


def _without_extras(xs: list[Array], add: Add) -> list[Array]:
    """As many arrays as the largest power of two up to p: the extra ranks are added in pairs."""
    extras = len(xs) - 2 ** (len(xs).bit_length() - 1)
    return [add(xs[2 * i], xs[2 * i + 1]) for i in range(extras)] + list(xs[2 * extras :])


def tree(xs: list[Array], add: Add) -> Array:
    """Binomial tree to rank 0: children at distance 1, 2, 4, ... are added in that order."""
    held, distance = list(xs), 1
    while distance < len(xs):
        for r in range(0, len(xs) - distance, 2 * distance):
            held[r] = add(held[r], held[r + distance])
        distance *= 2
    return held[0]


ORDERS: dict[str, Order] = {
    "ring": ring,
    "ring backwards": ring_backwards,
    "ring, rank r owns slice r": ring_owner_first,
    "rank order": fold,
    "rank order backwards": lambda xs, add: fold(xs[::-1], add),
    "recursive doubling or halving-doubling, nearest first": doubling,
    "halving-doubling, farthest first": doubling_far,
    "binomial tree": tree,
}
NAMED: dict[str, Order] = {  # names of `verify --order`
    "ring": ring,
    "direct": fold,
    "doubling": doubling,
    "halving-far": doubling_far,
    "tree": tree,
}


def arithmetics(
    dtype: str, wires: tuple[str, ...] = ("float16", "bfloat16")
) -> dict[str, Arithmetic]:
    """How sums are rounded, by name."""

    def same(x: Array) -> Array:
        return x

    def add(a: Array, b: Array) -> Array:
        return a + b

    found = {f"sums in {dtype}": (same, add, same)}
    if dtype != "float64":
        wide = (lambda x: x.astype(np.float64)), add, (lambda x: x.astype(dtype))
        found["sums in float64"] = wide
    for wire in wires:
        if wire == dtype:
            continue

        def cast(x: Array, wire: str = wire) -> Array:
            return on_wire(x, wire)

        def hop(a: Array, b: Array, cast: Callable = cast) -> Array:
            return b + cast(a)

        def both(a: Array, b: Array, cast: Callable = cast) -> Array:
            return cast(a) + cast(b)

        def short(a: Array, b: Array, cast: Callable = cast) -> Array:
            return cast(a + b)

        found[f"{wire} on the wire at each hop"] = (same, hop, cast)
        found[f"{wire} on the wire at each hop, both partners round"] = (same, both, cast)
        found[f"{wire} at each hop, the result not rounded"] = (same, hop, same)
        found[f"inputs and result rounded to {wire}"] = (cast, add, cast)
        found[f"inputs rounded to {wire}"] = (cast, add, same)
        found[f"sums in {wire}"] = (cast, short, same)
    return found


def candidates(
    xs: list[Array], wires: tuple[str, ...] = ("float16", "bfloat16"), divided: bool = True
) -> Iterator[tuple[str, Array]]:
    """(description, result (n,)) of every order, arithmetic and division.

    xs: p arrays (n,) of one type.
    """
    p, dtype = len(xs), xs[0].dtype.name
    share = xs[0].dtype.type(p)
    divisions = {"": (xs, ())}  # description -> inputs, divisors of the result
    if divided and p > 1:
        before = [x / share for x in xs]
        divisions |= {
            ", divided by p before": (before, ()),
            ", divided by p after": (xs, [share]),
            ", divided by p twice": (xs, [share, share]),
            ", divided by p times p": (xs, [share * share]),
            ", divided by p before and after": (before, [share]),
        }
    with np.errstate(all="ignore"):
        for division, (inputs, divisors) in divisions.items():
            for arithmetic, (enter, add, leave) in arithmetics(dtype, wires).items():
                for order, function in ORDERS.items():
                    total = leave(function([enter(x) for x in inputs], add))
                    for divisor in divisors:
                        total = total / divisor
                    yield f"{order}, {arithmetic}{division}", total
