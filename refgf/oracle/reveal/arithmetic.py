"""How an allreduce rounds: bits of its accumulator, sum or mean, rounding of inputs and results."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from refgf.oracle.reveal.bounds import Outside, Rounding, outside
from refgf.oracle.reveal.probes import BITS, Array, Box
from refgf.oracle.reveal.trees import Tree, evaluate, is_binary, leaves
from refgf.oracle.spec.precision.wire import on_wire

Run = tuple[int, int, Tree | None]
FORMATS = {8: "bfloat16", 11: "float16", 24: "float32", 53: "float64", 64: "80-bit extended"}
NARROW, LOST = ("float16", "bfloat16"), "inputs or results are rounded to {}"
MOST_FACTORS, MOST_RANKS = 5, 8
EXPONENT = {"float64": (1023, -1074), "float32": (127, -149), "bfloat16": (127, -133)}
EXPONENT["float16"] = 15, -24  # of the largest power of two, and of the smallest number


@dataclass
class Arithmetic:
    """bits: of the accumulators found; 0: more than the probes reach. division: of a mean.

    lost: what is rounded to the narrower type `wire`. random: how many elements of random numbers
    have other bits than the tree gives, None if not tried. outside: where that cannot be tried,
    those that no rounding explains. apart: how many have other bits on some rank than on rank 0.
    wide: has a result bits that its type cannot hold?
    """

    bits: list[int] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)
    division: str | None = None
    wire: str | None = None
    lost: str | None = None
    random: int | None = None
    outside: Outside | None = None
    apart: int = 0
    wide: bool = False
    special: list[str] = field(default_factory=list)  # numbers that are lost, one line each

    def accumulator(self, dtype: str) -> str:
        """The one accumulator's type; the input's if it could not be measured."""
        return FORMATS.get(self.bits[0], "") if len(self.bits) == 1 else "" if self.bits else dtype


def measure(box: Box, by_rank: list[tuple[Run, ...]], n: int) -> Arithmetic:
    """by_rank: the runs of each rank, or of one if all ranks have the same."""
    found = by_rank[0]
    weights = np.unique(box.weights[0]).tolist()
    result = Arithmetic(bits=accumulator_bits(box, found, n))
    narrow = FORMATS.get(min((b for b in result.bits if b), default=0))
    kind = narrow if narrow in NARROW else box.dtype
    result.factors = sorted({known(w, box, kind) for w in weights})[:MOST_FACTORS]
    if result.factors == [1 / box.p]:
        result.division = division(box, result.bits, n)
    result.wire, result.lost = rounding(box, n)
    if not result.wire and result.division and kind != box.dtype:
        result.wire, result.lost = kind, LOST.format(kind)  # 1/p was rounded, and hid it
    result.special = special_numbers(box, n, result)
    xs = random_numbers(box, n)
    sums = box.call(xs)
    result.apart = int(other_bits(sums, sums[:1]).sum())
    with np.errstate(all="ignore"):
        result.wide = bool(other_bits(sums, rounder(box.dtype)(sums)).any())
    is_sum = result.factors == [1.0] or bool(result.division)
    if is_sum and all(tree is not None for found in by_rank for *_, tree in found):
        if result.lost is None:
            result.random = on_random_numbers(box, by_rank, xs, sums, result)
        if result.random is None:
            result.outside = outside(xs, sums, roundings(box, by_rank, result))
    return result


def roundings(box: Box, by_rank: list[tuple[Run, ...]], told: Arithmetic) -> Rounding:
    """What may have rounded these sums, as far as the probes found it."""
    bits = [b if b in FORMATS else b - 1 for b in told.bits if b]  # others may be off by one
    unit = 2.0 ** -min([*bits, BITS[box.dtype]])
    at_once = not all(is_binary(tree) for found in by_rank for *_, tree in found)
    return Rounding(box.dtype, unit, told.wire, told.division is not None, at_once)


def known(weight: float, box: Box, kind: str) -> float:
    """1 or 1/p if the weight is that within rounding; otherwise the digits that rounding leaves.

    kind: of the accumulator. It rounds 1/p, and a p-th of float16's unit is denormal.
    """

    def error(w: float, name: str) -> float:
        return 2.0 ** (2 - BITS[name]) * w + 2.0 ** EXPONENT[name][1] / box.scale.unit

    wanted = {1.0: error(1.0, box.dtype), 1 / box.p: error(1 / box.p, kind)}
    near = [w for w, most in wanted.items() if abs(weight - w) <= most]
    short = float(f"{weight:.{max(3, BITS[box.dtype] // 4)}g}")
    return near[0] if near else weight if short == 1 else short


def triple(tree: Tree | None) -> tuple[int, int, int] | None:
    """Ranks i, k, j of which i and k are added to each other before j; None if there are none."""
    if tree is None or isinstance(tree, int):
        return None
    for part, other in zip(tree, tree[1:]):
        if not isinstance(part, int):
            return leaves(part[0])[0], leaves(part[1])[0], leaves(other)[0]
    return None


def accumulator_bits(box: Box, found: tuple[Run, ...], n: int) -> list[int]:
    """Bits of the partial sum of i and k, by halving: the smallest 2^b that absorbs a unit.

    Each element is asked for its own ranks and its own b, all in the same call.
    """
    ranks = np.full((3, n), -1)
    for start, stop, tree in found:
        ranks[:, start:stop] = np.array(triple(tree) or (-1, -1, -1))[:, None]
    asked, top = ranks[0] >= 0, int(np.log2(box.scale.big / box.scale.unit))
    if not asked.any():
        return []
    low, high = np.zeros(n, int), np.full(n, top + 1)  # 2^low does not absorb, 2^high does
    while (high - low > 1).any():
        middle = (low + high) // 2
        xs = [np.zeros(n) for _ in range(box.p)]
        big = np.ldexp(box.scale.unit, middle)
        for place, value in zip(ranks, (big, np.full(n, box.scale.unit), -big)):
            for r in range(box.p):
                xs[r] = np.where(place == r, value, xs[r])
        absorbed = box.counted(box.call(xs))[0] == 0
        low, high = np.where(absorbed, low, middle), np.where(absorbed, middle, high)
    bits = {int(b) if b <= top else 0 for b in high[asked]}
    return sorted({next((f for f in FORMATS if b and abs(f - b) <= 1), b) for b in bits})


def division(box: Box, bits: list[int], n: int) -> str:
    """Is each contribution divided by p, or the sum, or partial sums, by 2 at each level?

    If the contributions, the sum of the largest powers of two stays finite. If the partial sums,
    that of their halves does, which 4 ranks or more overflow otherwise. A wider accumulator
    does not overflow; there the smallest numbers vanish if each is divided before.
    """
    largest, smallest = EXPONENT[box.dtype]
    wide = any(b == 0 or b > BITS[box.dtype] for b in bits)
    exponent = smallest if wide else largest
    out = box.constants(n, {}, float(np.ldexp(1.0, exponent)))[0]
    before = (out == 0).all() if wide else np.isfinite(out).all()
    if before or wide or box.p < 4:  # a sum of 3 halves does not overflow
        return "before the sum" if before else "after the sum"
    half = box.constants(n, {}, float(np.ldexp(1.0, exponent - 1)))[0]
    return "between the additions" if np.isfinite(half).all() else "after the sum"


def rounding(box: Box, n: int) -> tuple[str | None, str | None]:
    """(type, which contributions are rounded to it on their way), or (None, None).

    A small number, so that rounding to multiples of something is not taken for a type's.
    """
    if box.dtype in NARROW:
        return None, None
    x = np.array([1 + 2.0**-7 + 2.0**-9 + 2.0**-12]) * 2.0**-8
    out = np.stack([box.constants(n, {r: float(x[0])})[0] for r in range(box.p)])
    with np.errstate(all="ignore"):
        out = out / box.weights[0]
    for wire in NARROW:
        rounded = np.abs(out - on_wire(x.astype(np.float32), wire)) < 2.0**-22
        ranks = np.flatnonzero(rounded.reshape(box.p, -1).any(axis=1))
        if len(ranks) == box.p:
            return wire, LOST.format(wire)
        if len(ranks):
            some = ", ".join(map(str, ranks[:MOST_RANKS])) + ", ..." * (len(ranks) > MOST_RANKS)
            return wire, f"rounded to {wire} on its way: what comes from ranks {some}"
    return None, None


def special_numbers(box: Box, n: int, told: Arithmetic) -> list[str]:
    """What becomes of NaN, infinities, overflow and denormal numbers; where a rank loses some."""
    largest, smallest = EXPONENT[box.dtype]
    asked = {  # what ranks 0 and 1 contribute, and the sum
        "NaN": (np.nan, 1.0, np.nan),
        "infinity": (np.inf, 1.0, np.inf),
        "infinity - infinity": (np.inf, -np.inf, np.nan),
    }
    if told.factors == [1.0] and told.wire is None:
        high, low = float(np.ldexp(1.0, largest)), float(np.ldexp(1.0, smallest))
        asked["an overflow"] = high, high, np.inf
        asked["a negative overflow"] = -high, -high, -np.inf
        asked["a denormal number"] = 3 * low, low, 4 * low
    lost = []
    try:
        for name, (first, second, wanted) in asked.items():
            out = box.constants(n, {0: first, 1: second})
            wrong = (out != wanted) & ~(np.isnan(out) & np.isnan(wanted))
            if wrong.any():
                got = float(out[tuple(np.argwhere(wrong)[0])])
                lost.append(f"{name} is lost: got {got:.7g}; wanted {wanted:.7g}")
    except ValueError as error:
        return [*lost, f"special numbers: not probed, because {str(error)[:200]}"]
    kinds = "NaN, infinity" + (", overflow, denormal numbers" if len(asked) > 3 else "")
    others = "" if len(asked) > 3 else "; overflow and denormal numbers: not probed"
    return lost + ([others[2:]] if lost and others else [] if lost else [f"{kinds}: kept{others}"])


def rounder(dtype: str) -> Callable[[Array], Array]:
    """Rounds float64 numbers to a type."""
    narrow = np.dtype("float32" if dtype == "bfloat16" else dtype)
    wire = "bfloat16" if dtype == "bfloat16" else None
    return lambda x: on_wire(x.astype(narrow), wire).astype(np.float64)


def random_numbers(box: Box, n: int) -> list[Array]:
    """What each rank contributes: numbers of the type, the largest about 100 times the smallest."""
    random = np.random.default_rng(box.p)
    draws = random.standard_normal((box.p, n)) * 2.0 ** random.integers(-3, 4, (box.p, n))
    return [rounder(box.dtype)(x) for x in draws]


def other_bits(a: Array, b: Array) -> Array:
    """(n,): the elements in which some row differs. Any NaN equals any other."""
    return ((a != b) & ~(np.isnan(a) & np.isnan(b))).any(axis=0)


def on_random_numbers(
    box: Box, by_rank: list[tuple[Run, ...]], xs: list[Array], sums: Array, told: Arithmetic
) -> int | None:
    """Elements of random numbers that end with other bits than their rank's tree gives."""
    kind = told.accumulator(box.dtype)
    if (
        not kind
        or kind == FORMATS[64]
        or not all(t is not None and is_binary(t) for found in by_rank for *_, t in found)
    ):
        return None
    if told.division is None and told.factors != [1.0]:
        return None
    into, add, want = rounder(box.dtype), rounder(kind), np.empty((len(by_rank), len(xs[0])))
    with np.errstate(all="ignore"):
        terms = [add(x / box.p) for x in xs] if told.division == "before the sum" else xs
        for row, (start, stop, tree) in ((r, run) for r, f in enumerate(by_rank) for run in f):
            want[row, start:stop] = evaluate(tree, [x[start:stop] for x in terms], add)
        want = into(add(want / box.p) if told.division not in (None, "before the sum") else want)
    return int((sums != want).any(axis=0).sum())
