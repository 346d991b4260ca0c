"""Compare a result with a case: where is the first difference, and how large is it?"""

import math
from dataclasses import asdict, dataclass, replace

import numpy as np

from refgf.oracle.definitions import bfloat16_bits
from refgf.oracle.judge.functions import CALLS


@dataclass(frozen=True)
class Failure:
    """where: {"step": 3, "rank": 1, "element": 17, "chunk": 2}, as far as the output has them; ulp: distance in units
    of the last place, None where that means nothing."""

    message: str
    output: str | None = None
    where: dict | None = None
    got: str | None = None
    wanted: str | None = None
    ulp: float | None = None

    def __str__(self):
        place = ", ".join(f"{axis} {index}" for axis, index in (self.where or {}).items())
        numbers = f": got {self.got}, wanted {self.wanted}" if self.got is not None else ""
        distance = f" ({self.ulp:g} ulp)" if self.ulp is not None else ""
        return f"{self.message}{' at ' + place if place else ''}{numbers}{distance}"

    def as_dict(self):
        return asdict(self)


def judge_bits(case, got):
    """The first failure of a result {"out.x": array, ...}, or None. Intermediate states are judged where given."""
    found = [failure for failure in (compare(case, name, got, case[name]) for name in wanted_outputs(case, got)) if failure]
    if found and all(failure.output.startswith("state.") for failure in found):
        return replace(found[0], message=found[0].message + ", the result is right")
    return earliest(found)


def earliest(failures):
    """The first by step; in one step a cause (what was chosen, whether it is finite) before its consequence (w)."""
    ranks = {"out.chosen": 0, "out.finite": 1, "out.w": 3, "out.scale": 3}
    found = [failure for failure in failures if failure]
    return min(found, key=lambda f: ((f.where or {}).get("step", math.inf), ranks.get(f.output, 2)), default=None)


def wanted_outputs(case, got):
    """States first: they come before the result."""
    return [name for name in case.part("state") if name in got] + list(case.part("out"))


def compare(case, name, got, wanted):
    """One output against what is wanted, bit for bit, or within its bound where the case has one."""
    if name not in got:
        return Failure(f"{name} is missing", name)
    value = like(got[name], wanted)
    if value.shape != wanted.shape or value.dtype != wanted.dtype:
        return Failure(f"{name} has another shape or type", name, None, f"{value.dtype} {value.shape}",
                       f"{wanted.dtype} {wanted.shape}")  # fmt: skip
    bound = case.tensors.get("bound." + name.removeprefix("out."))
    wrong = differs(value, wanted) if bound is None else outside(value, wanted, bound)
    return first_failure(case, name, value, wanted, wrong, "differs" if bound is None else "is outside its bound")


def like(value, wanted):
    """A result as an array; counts may be any integers, and a bool is 0 or 1."""
    value = np.asarray(value)
    return value.astype(wanted.dtype) if wanted.dtype.kind in "iu" and value.dtype.kind in "iub" else value


def differs(a, b):
    """Where two arrays of one shape are not the same numbers (R4's comparison, element by element)."""
    if a.dtype.kind != "f":
        return a != b
    return ~(((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b)))


def outside(value, wanted, bound):
    """Where a value is farther from the wanted one than its bound; an infinite bound promises nothing."""
    with np.errstate(invalid="ignore"):
        near = np.abs(np.float64(value) - wanted) <= bound
    return ~(near | ~differs(value.astype(np.float64), np.asarray(wanted, np.float64)) | np.isinf(bound))


def first_failure(case, name, value, wanted, wrong, verb):
    if not np.any(wrong):
        return None
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    kind = "bfloat16" if name in case.bfloat16 else value.dtype.name
    distance = ulps(value[index], wanted[index], kind) if value.dtype == wanted.dtype else None
    return Failure(f"{name} {verb}", name, place(case, name, index), repr(value[index].item()),
                   repr(wanted[index].item()), distance)  # fmt: skip


def place(case, name, index):
    """{"step": 3, "rank": 1, ...} of an index of an output; the chunk too where there are chunks."""
    short = name.split(".", 1)[1]
    axes = CALLS[case.function].axes.get(short) or [f"axis {i}" for i in range(len(index))]
    if len(index) == len(axes) + 1:  # a state: one per step
        axes = ("step", *axes)
    where = dict(zip(axes, index))
    if "element" in where and "chunk" in case.arguments:
        where["chunk"] = where["element"] // case.arguments["chunk"]
    return where


def ulps(a, b, kind):
    """How many numbers of a type lie between two of them; None for NaN and for integers."""
    if np.asarray(a).dtype.kind != "f" or math.isnan(a) or math.isnan(b):
        return None
    steps = [_position(v, kind) for v in (a, b)]
    return float(abs(steps[0] - steps[1]))


def _position(value, kind):
    if kind == "bfloat16":
        bits, half = int(bfloat16_bits(np.float32(value))), 1 << 15
    else:
        size = np.dtype(kind).itemsize
        bits, half = int(np.asarray(value, kind).view(f"u{size}")), 1 << (8 * size - 1)
    return half - bits if bits >= half else bits
