"""What p ranks had in a step, put together, next to what it is judged by: all arrays are float64.

    Whole         a tensor of p ranks: copies, or shards put together
    close ...     when two arrays are the same but for rounding
    JudgedStep    the stages of a step, the exact gradient, its bounds, one rank's replay
    wire_of       is a gradient communicated in 16 bits? Seen in its bits

A sum that was communicated in float16 or bfloat16 is a number of that type, also after it became
float32 and was divided by p. Numbers of a sum in float32 are not: one in 2^13 looks like it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refgf.oracle.spec.floats import UNIT_ROUNDOFF

BUFFER_ROUNDINGS = 64
SHOWN = 4  # names of tensors in a line
TENTH = 0.1  # of a gradient: what has to show
LEFT = 0.2  # a cause leaves at most this share of a difference unexplained
ROUNDINGS = 4  # of one rank's gradient, as in reference.py, which imports PyTorch
INSIDE = 8.0  # times the change by buffers that change between forwards
# bfloat16 first: most of its numbers are float16 too. It has the exponents of float32
SMALLEST = {"bfloat16": 0.0, "float16": 2.0**-24}
SINGLE = 2.0**-22  # division by p, in float32
WIRE_ROUNDINGS = 3  # to the type, division by p, the mean
STAGES = "before", "backward", "clip", "used", "after"
GRADIENTS = "backward", "clip", "used"
Arrays = dict[str, np.ndarray]
Pieces = list[tuple[list[int], np.ndarray] | None]  # one per rank


@dataclass
class Whole:
    """A tensor of p ranks. copies: one per rank, or the one that their shards make up."""

    copies: list[np.ndarray]
    shards: list[tuple[slice, ...]]  # where each rank's piece lies; one that is all: a copy

    @property
    def sharded(self) -> bool:
        return len(self.copies) < len(self.shards)

    @property
    def agree(self) -> bool:
        first = self.copies[0]
        return all(np.array_equal(first, other, equal_nan=True) for other in self.copies[1:])

    @property
    def value(self) -> np.ndarray:
        return self.copies[0]

    def of_rank(self, rank: int) -> np.ndarray:
        return self.value[self.shards[rank]] if self.sharded else self.copies[rank]


def whole(pieces: Pieces, shape: list[int]) -> Whole:
    """A rank without a gradient has zeros."""
    zero = [0] * len(shape), np.zeros(shape, np.float32)
    found = [piece or zero for piece in pieces]
    places = [
        tuple(slice(start, start + length) for start, length in zip(offset, array.shape))
        for offset, array in found
    ]
    arrays = [np.asarray(array, np.float64) for _, array in found]
    if all(list(array.shape) == shape for array in arrays):
        return Whole(arrays, places)
    total = np.zeros(shape)
    for place, array in zip(places, arrays):
        total[place] = array
    return Whole([total], places)


def stage(ranks: list[dict], step: int, name: str) -> dict[str, Whole]:
    """{tensor: Whole} of one stage of one step, for the tensors that any rank has in it."""
    held = [rank["steps"][step][name] or {} for rank in ranks]
    if name == "clip" and any(held):  # a rank that does not clip: what its optimizer gets
        held = [own or rank["steps"][step]["used"] for own, rank in zip(held, ranks)]
    if name == "used":  # a tensor that other ranks' optimizers have: what its owner gets
        every = {t: piece for own in held for t, piece in own.items()}
        optimized = [rank["steps"][step]["optimized"] for rank in ranks]
        held = [
            own | {t: every[t] for t in every.keys() - own.keys() - set(names)}
            for own, names in zip(held, optimized)
        ]
    shapes = ranks[0]["shapes"]
    names = [tensor for tensor in shapes if any(tensor in own for own in held)]
    return {tensor: whole([own.get(tensor) for own in held], shapes[tensor]) for tensor in names}


@dataclass
class JudgedStep:
    """One step: what p ranks had and what it is judged by."""

    records: list[dict]  # of each rank, as record.py makes them
    one: dict  # of the replay on one rank
    answer: dict  # of the reference
    stages: dict[str, dict[str, Whole]]
    exact: Arrays  # the gradient of the global batch
    bounds: dict[str, float]  # how far rounding may move each element of it
    factors: dict[str, float]  # how far from 1 rounding may move its factor
    replay: dict[str, Arrays]  # stages on one rank, from p ranks' numbers
    local: list[list[Arrays]]  # own gradients of each rank, of each backward
    unit: float
    saved: list[str]  # buffers that a checkpoint holds
    rates: list[dict]  # settings of the optimizers in each step on one rank
    previous: "JudgedStep | None" = None
    first: bool = False
    samples: Callable[[list[str]], dict] | None = None  # gradients of each sample of these tensors
    free: Callable[[], list[Arrays]] | None = None  # parameters after it, of one rank's gradients
    # what judging it finds
    wire: set[str] = field(default_factory=set)  # 16-bit types of sums
    late: set[str] = field(default_factory=set)  # tensors that were wrong inside an optimizer
    hidden: set[str] = field(default_factory=set)  # whose update hides their gradient
    unseen: set[str] = field(default_factory=set)  # that own code changes before they are seen
    changed: tuple[list[str], float | None] = ((), None)  # and after, with their norm
    slack: Arrays = field(default_factory=dict)  # of parameters, more than roundings of an update

    @property
    def size(self) -> int:
        return len(self.records)

    @property
    def number(self) -> int:
        return self.one["batch"]

    @property
    def scale(self) -> float | None:
        """Of a GradScaler."""
        return self.records[0]["scale"]

    @property
    def calls(self) -> int:
        """Of backward, on a rank."""
        return max(1, len(self.records[0]["local"]))

    @property
    def calls_of_one(self) -> int:
        return max(1, len(self.one["local"]))

    @property
    def communicated(self) -> bool:
        return any(record["communicated"] for record in self.records)

    @property
    def optimized(self) -> set[str]:
        """Tensors that any optimizer has, on p ranks or on one."""
        return {t for own in (*self.records, self.one) for t in own["optimized"]}

    @property
    def max_norm(self) -> float | None:
        limits = (record["max_norm"] for record in self.records)
        return next((limit for limit in limits if limit is not None), None)

    @property
    def labels(self) -> list[str]:
        """Of all entries of local."""
        numbers = [
            (rank, call) for rank, calls in enumerate(self.local) for call in range(len(calls))
        ]
        return [f"rank {r}" + f", backward {c}" * (self.calls > 1) for r, c in numbers]

    def of_one(self, tensor: str) -> np.ndarray | None:
        """What one rank's optimizer gets, or its clipping where p ranks clip, too."""
        used = self.replay["used"].get(tensor)
        return self.replay["clip"].get(tensor, used) if tensor in self.stages["clip"] else used

    def settings(self, tensor: str) -> dict | None:
        """Of the optimizer that has it on p ranks; of the inner one where one calls another's."""
        held = [own["settings"][tensor] for own in self.records if tensor in own["settings"]]
        return max(held, key=lambda settings: settings["depth"], default=None)

    def setting(self, tensor: str, key: str) -> float:
        return (self.settings(tensor) or {}).get(key) or 0.0

    def owner(self, tensor: str) -> int | None:
        """The one rank whose optimizer has it."""
        ranks = [rank for rank, own in enumerate(self.records) if tensor in own["used"]]
        return ranks[0] if len(ranks) == 1 else None

    def own_gradients(self, tensors: Iterable[str]) -> list[Arrays]:
        """Each rank's, of all its backward calls; none where hooks on tensors did not see them."""
        every = [own for calls in self.local for own in calls]
        if not every or any(t not in own for own in every for t in tensors):
            return []
        return [
            {t: sum(own[t] for own in calls) / (self.scale or 1.0) for t in tensors}
            for calls in self.local
        ]

    def is_exact(self, tensor: str, got: np.ndarray) -> bool:
        """Within the bounds of its elements and of its factor."""
        exact = self.exact[tensor]
        near = close(got, exact, self.bounds[tensor])
        return near and abs(factor(got, exact) - 1) <= self.factors[tensor]


def forced_in(stages: dict[str, dict[str, Whole]], first: dict, number: int) -> dict[str, Any]:
    """What the replay and the reference take over from p ranks."""
    forced: dict[str, Any] = {
        kind: {
            t: w.value.astype(np.float32 if first["types"][t] != "float64" else float)
            for t, w in stages[kind].items()
        }
        for kind in ("before", "clip", "used")
    }
    return forced | {key: first["steps"][number][key] for key in ("state", "last")}


def assembled(
    number: int,
    found: list[dict],
    stages: dict,
    answer: dict[str, Any],
    previous: JudgedStep | None,
) -> JudgedStep:
    """Everything by which step `number` is judged, out of what ranks and the reference answered."""
    exact, one = answer["exact"][number], answer["replay"][number]
    records, coarsest = [record["steps"][number] for record in found], found[0]["coarsest"]
    gradients = {t: np.asarray(g) for t, g in exact["gradients"].items()}
    local = [[in_float64(own) for own in record["local"]] for record in records]
    every = [own for calls in local for own in calls]
    scale, unit = records[0]["scale"] or 1.0, UNIT_ROUNDOFF[coarsest]
    more = (max(1, len(local[0])) + len(found) + ROUNDINGS) * unit
    bounds, factors = {}, {}
    for t, g in gradients.items():
        added = sum((np.abs(own[t]) for own in every if t in own), np.zeros(1)) / scale
        size = np.abs(g).max(initial=0.0)
        largest = max(size, added.max(initial=0.0))
        ratio = max(1.0, largest / (size or 1.0))
        inside = INSIDE * exact["inside"].get(t, 0.0)  # buffers that change between its forwards
        bounds[t] = exact["rounding"][t] + more * float(largest) + ratio * inside
        inside /= float(size) or 1.0
        factors[t] = exact["factors"][t] + ratio * (more + inside)
    replay = {
        kind: in_float64({t: array for t, (_, array) in (one[kind] or {}).items()})
        for kind in STAGES[1:]
    }
    for kind in GRADIENTS:  # not what is left in .grad of a frozen tensor
        stages = stages | {kind: {t: w for t, w in stages[kind].items() if t in gradients}}
        replay[kind] = {t: a for t, a in replay[kind].items() if t in gradients}
    replay["backward"] = {t: a / (one["scale"] or 1.0) for t, a in replay["backward"].items()}
    rates = [own["settings"] for own in answer["replay"]]
    step = JudgedStep(
        *(records, one, exact, stages, gradients, bounds, factors, replay, local, unit),
        *(found[0]["saved"], rates, previous),
    )
    step.first, step.late = number == 0, set(previous.late) if previous else set()
    if coarsest == "float32":
        add_wire(step)
    return step


def in_float64(arrays: dict) -> Arrays:
    return {t: np.asarray(a, np.float64) for t, a in arrays.items()}


def listed(tensors: Iterable[str]) -> str:
    """The names of some, in a sentence."""
    names = list(tensors)
    return ", ".join(names[:SHOWN]) + ", ..." * (len(names) > SHOWN)


# -- the same, but for rounding


def flat(arrays: Arrays, tensors: Iterable[str] | None = None) -> np.ndarray:
    """These tensors, one behind another."""
    return np.concatenate([arrays[t].ravel() for t in tensors or arrays])


def factor(got: np.ndarray, of: np.ndarray) -> float:
    """<got, of> / <of, of>: how many times `of` is in it. 1 where that is 0."""
    square = float((of * of).sum())
    return float((got * of).sum()) / square if square else 1.0


def fitted(columns: list[np.ndarray], of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(weights, the sum of the weighted columns) by least squares."""
    matrix = np.stack(columns, axis=1)
    weights = np.linalg.lstsq(matrix, of, rcond=None)[0]
    return weights, matrix @ weights


def alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Buffers of two ranks: the same but for roundings of float32; integers exactly."""
    if one.shape != other.shape or one.dtype.kind != "f":
        return one.shape == other.shape and np.array_equal(one, other)
    largest = np.abs(one[np.isfinite(one)]).max(initial=0.0)
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= BUFFER_ROUNDINGS * UNIT_ROUNDOFF["float32"] * largest
    return bool((near | (one == other) | (np.isnan(one) & np.isnan(other))).all())


def close(got: np.ndarray, wanted: np.ndarray, bound: np.ndarray | float) -> bool:
    """Within the bound at every element. NaN and infinity are not."""
    with np.errstate(invalid="ignore"):
        return bool((np.abs(got - wanted) <= bound).all())


def same(got: np.ndarray, wanted: np.ndarray, bound: np.ndarray) -> bool:
    """Within the bound at every element, or the same infinity, or both NaN."""
    equal = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    return close(*(np.where(equal, 0.0, array) for array in (got, wanted, bound)))


def explains(got: np.ndarray, wanted: np.ndarray, right: np.ndarray) -> bool:
    """Of the difference between got and right, `wanted` leaves only a small share."""
    return bool(np.linalg.norm(got - wanted) <= LEFT * np.linalg.norm(got - right))


def multiple(got: np.ndarray, of: np.ndarray, bound: float) -> float | None:
    """k if got is k times `of`, within the bound, which grows with k."""
    if not np.isfinite(got).all() or not (of * of).sum():
        return None
    k = factor(got, of)
    near = close(got, k * of, bound * max(1.0, abs(k)))
    return k if near and explains(got, k * of, 0 * of) else None


def whole_batch_everywhere(step: JudgedStep) -> bool:
    """Is every rank's own gradient the same, and a multiple of the whole batch's?"""
    if not same_everywhere(step):
        return False
    sums = {t: sum(own[t] for own in step.local[0]) for t in step.exact}
    moving = [t for t, exact in step.exact.items() if exact.any()]
    return all(multiple(sums[t], step.exact[t], step.bounds[t]) for t in moving)  # not 0 times


def same_everywhere(step: JudgedStep) -> bool:
    """Do all ranks' own gradients have the same bits?

    Only where every sample of the batch is another one: equal shares have equal gradients. Without
    hooks on tensors, as in FSDP, own gradients are not known: False.
    """
    first, *others = step.local
    known = all(set(own) == set(step.exact) for calls in step.local for own in calls)
    if not (step.answer["distinct"] and first and known):
        return False
    return any(map(np.any, step.exact.values())) and all(
        np.array_equal(mine[t], own[t])
        for other in others
        for mine, own in zip(first, other)
        for t in mine
    )


# -- sums in 16 bits


def rounded(array: np.ndarray, kind: str) -> np.ndarray:
    """The nearest numbers of the type, ties away from 0."""
    single = array.astype(np.float32)
    if kind == "float16":
        with np.errstate(over="ignore"):
            return single.astype(np.float16).astype(np.float64)
    bits = (single.view(np.uint32) + np.uint32(0x8000)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


def wire_of(states: list[Whole | None], size: int) -> str | None:
    """float16 or bfloat16, if all elements of one of these gradients are numbers of that type."""
    for state in states:
        if state is None or not (state.agree and state.value.any()):
            continue
        for kind in SMALLEST:
            for sum_ in (state.value, size * state.value):
                near = SINGLE * np.abs(sum_) + SINGLE * SMALLEST[kind]
                if np.isfinite(sum_).all() and (np.abs(rounded(sum_, kind) - sum_) <= near).all():
                    return kind
    return None


def wire_bound(kind: str, exact: np.ndarray, local: list[np.ndarray], size: int) -> float:
    """How far any element of the gradient may be off. local: what ranks and calls add."""
    added = sum((np.abs(own) for own in local), np.zeros(exact.shape))
    total = sum(local, np.zeros(exact.shape))
    mean = min(1.0, abs(factor(exact, total))) if total.any() else 1.0
    largest = max(mean * added.max(initial=0.0), np.abs(exact).max(initial=0.0))
    roundings = size + WIRE_ROUNDINGS
    return roundings * (UNIT_ROUNDOFF[kind] * float(largest) + SMALLEST[kind] / 2)


def add_wire(step: JudgedStep) -> None:
    """Widens the bounds of tensors that are communicated in 16 bits; names the types."""
    scale, every = step.scale or 1.0, [own for calls in step.local for own in calls]
    for t, exact in step.exact.items():
        used, late, backward = (step.stages[kind].get(t) for kind in ("used", "clip", "backward"))
        kind = wire_of([late or used, backward], step.size)
        if kind:
            local = [own[t] / scale for own in every if t in own]
            bound = wire_bound(kind, exact, local, step.size)
            step.bounds[t] += bound
            step.factors[t] += bound / (float(np.abs(exact).max(initial=0.0)) or 1.0)
            step.wire.add(kind)
