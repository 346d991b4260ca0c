"""How one bucket of DDP is judged: definitions of what a hook should give, in NumPy.

`torch_ddp.checked` gathers buckets and asks; nothing here needs PyTorch or ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from refgf.oracle.definitions import (
    choose,
    exact_sum,
    importance,
    ring_allreduce,
    same_bits,
    summation_bound,
)
from refgf.oracle.judge.comparison import differs, outside
from refgf.oracle.judge.orders import candidates
from refgf.oracle.spec.csc.residual import (
    Residual,
    not_cleared,
    not_corrected,
    residual_dropped,
    residual_not_added,
)
from refgf.oracle.spec.floats import HALF_SMALLEST, UNIT_ROUNDOFF
from refgf.oracle.spec.variants import variant

EXPLAINED = 4096  # elements of a bucket that are compared with the known orders
ORDERS_SHOWN = 3
Arrays = list[np.ndarray]  # one per rank


@dataclass
class Bucket:
    """One bucket of one step on all ranks, before and after the hook."""

    step: int
    index: int
    last: bool
    parameters: list[tuple[int, int]]  # (key, number of elements), in the bucket's order
    before: Arrays
    after: Arrays
    kept_before: Arrays = field(default_factory=list)  # of `Conserved`
    kept_after: Arrays = field(default_factory=list)


@dataclass
class BucketVerdict:
    """failure: None if the bucket is right; note: a difference that the definition allows."""

    step: int
    index: int
    failure: str | None = None
    note: str | None = None
    looks: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        looks = f"; looks like: {'; '.join(self.looks)}" if self.looks else ""
        what = self.failure or self.note or "right"
        return f"step {self.step}, bucket {self.index}: {what}{looks}"


class Definition(Protocol):
    def judge(self, bucket: Bucket) -> BucketVerdict: ...


def mean_bound(xs: Arrays, wire: str | None = None) -> np.ndarray:
    """How far a mean may be from exact_sum / p. (n,) float64

    This is S2, and the division, which may be before or after the sum.
    """
    p, kind = len(xs), wire or str(xs[0].dtype)
    once = UNIT_ROUNDOFF[kind] * exact_sum([np.abs(x) for x in xs]) + p * HALF_SMALLEST[kind]
    bound = summation_bound(xs, wire) / p + 4 * once / p + (p * HALF_SMALLEST[kind] if wire else 0)
    return np.where(np.isfinite(xs).all(axis=0), bound, 0.0)


class Mean:
    """The mean over ranks, with the same bits on all of them."""

    def __init__(self, wire: str | None = None):
        self.wire = wire

    def judge(self, bucket: Bucket) -> BucketVerdict:
        verdict, xs, after = BucketVerdict(bucket.step, bucket.index), bucket.before, bucket.after
        verdict.failure = ranks_differ(after)
        p = len(xs)
        if verdict.failure is None:
            i = first_off(after[0], xs, p, wire=self.wire)
            if i is None:
                return verdict
            wires = ("float16", "bfloat16") if self.wire is None else ()
            for wire in wires:
                if first_off(after[0], xs, p, wire=wire) is None:
                    verdict.note = (
                        "farther from the mean than float32 explains, "
                        f"within the bound for {wire} on the wire"
                    )
                    return verdict
            mean = (exact_sum([x[i : i + 1] for x in xs]) / p).item()
            numbers = f"got {after[0][i].item()!r}, the mean is {mean!r}"
            verdict.failure = f"element {i}: {numbers}"
        verdict.looks = looks_of(xs, after, bucket.last)
        return verdict


def ranks_differ(after: Arrays) -> str | None:
    """The first rank whose bits are not rank 0's."""
    for rank, result in enumerate(after):
        if not same_bits(result, after[0]):
            where = int(np.flatnonzero(differs(result, after[0]))[0])
            return f"rank {rank} holds other bits than rank 0 at element {where}"
    return None


def first_outside(value: np.ndarray, wanted: np.ndarray, bound: np.ndarray) -> int | None:
    """The first element outside its bound. Where an input is infinite or NaN the bound is 0."""
    wrong = np.flatnonzero(outside(value, wanted, bound))
    return int(wrong[0]) if len(wrong) else None


def first_off(
    value: np.ndarray, xs: Arrays, divisor: float, scale: float = 1.0, wire: str | None = None
) -> int | None:
    """The first element that is not exact_sum(xs) / divisor within mean_bound(scale xs, wire).

    Elements within half of what surely is less than the bound, by sums in float64, are right; the
    definitions, which compute in Python's exact arithmetic, judge the others, first ones first.
    """
    p, maybe = len(xs), np.arange(len(value))
    if xs[0].dtype == np.float32:
        with np.errstate(all="ignore"):
            total, size = (sum(map(f, xs), np.zeros(len(value))) for f in (np.asarray, np.abs))
            roundings = (p - 1) * UNIT_ROUNDOFF["float32"] + (p + 1) * UNIT_ROUNDOFF.get(wire, 0.0)
            near = np.abs(value - total / divisor) <= 0.5 * roundings * scale * size / p
            near &= np.isfinite(size)
        maybe = np.flatnonzero(~near)
    for start in range(0, len(maybe), EXPLAINED):
        block = maybe[start : start + EXPLAINED]
        some = [x[block] for x in xs]
        bound = mean_bound([np.float32(scale) * x if scale != 1 else x for x in some], wire)
        i = first_outside(value[block], exact_sum(some) / divisor, bound)
        if i is not None:
            return int(block[i])
    return None


def looks_of(xs: Arrays, after: Arrays, last: bool = False) -> list[str]:
    """What a wrong mean looks like. last: this is the step's last bucket."""
    p, got = len(xs), after[0]
    found = []
    own = "not communicated: every rank has its own gradient"
    if all(same_bits(result, x) for result, x in zip(after, xs)):
        found.append(own)
    elif all(same_bits(result, x / np.float32(p)) for result, x in zip(after, xs)):
        found.append(f"{own}, divided by p")
    elif first_off(got, xs, 1, wire="bfloat16") is None:
        found.append("average forgotten: this is the sum")
    elif first_off(got, xs, p**2, 1 / p, wire="bfloat16") is None:
        found.append("divided by p twice")
    if found and last and found[0].startswith("not communicated"):
        found.insert(0, "last bucket forgotten")
    for r in range(p):
        others = [x for k, x in enumerate(xs) if k != r]
        if p > 2 and first_off(got, others, p) is None:
            found.append(f"rank {r} is lost")
    head, result = [x[:EXPLAINED] for x in xs], got[:EXPLAINED]
    known = [name for name, total in candidates(head) if same_bits(total, result)]
    return found + known[:ORDERS_SHOWN]


class Conserved:
    """Error feedback: over all ranks, sent + kept = gradients + what was kept before.

        state = PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=10)
        checked(powerSGD_hook, Conserved(lambda bucket: state.error_dict.get(bucket.index())))

    kept    what this rank keeps of a bucket: a tensor like it; None: nothing yet
    wire    the type that the hook computes in, if it is a shorter one

    A note says how much of the sum of squares was kept. It does not judge what a hook chooses.
    """

    def __init__(self, kept: Callable[[Any], Any], wire: str = "float32") -> None:
        self.kept, self.wire = kept, wire

    def judge(self, bucket: Bucket) -> BucketVerdict:
        verdict, p = BucketVerdict(bucket.step, bucket.index), len(bucket.before)
        for arrays in (bucket.kept_before, bucket.kept_after):
            sizes = {len(kept) for kept in arrays} - {len(bucket.before[0])}
            if sizes:
                keeps = f"keeps {max(sizes)} elements of a bucket of {len(bucket.before[0])}"
                verdict.failure = f"{keeps}; DDP rebuilds its buckets after the first step"
                return verdict
        verdict.failure = ranks_differ(bucket.after)
        every = bucket.before, bucket.kept_before, bucket.kept_after, bucket.after
        g, old, new, sent = (np.sum(arrays, axis=0, dtype=np.float64) for arrays in every)
        sizes = sum(np.abs(arrays).sum(axis=0, dtype=np.float64) for arrays in every)
        bound = (p + 4) * (UNIT_ROUNDOFF[self.wire] * sizes + HALF_SMALLEST[self.wire])
        i = first_outside(sent + new, g + old, bound)
        if verdict.failure is None and i is not None:
            numbers = f"sent {sent[i]:.9g} + kept {new[i]:.9g} = {sent[i] + new[i]:.9g}"
            verdict.failure = f"element {i}: {numbers}, the sum is {g[i] + old[i]:.9g}"
            for name, result, wanted in (
                ("the residual is not added", sent + new, g),
                ("the residual is not cleared when it is sent", sent + new, g + old + sent),
                ("average forgotten: this is the sum", sent / p + new, g + old),
                ("divided by p twice", sent * p + new, g + old),
            ):
                if first_outside(result, wanted, p * bound) is None:
                    verdict.looks.append(name)
        elif verdict.failure is None and (squares := float(np.square(g + old).sum())):
            verdict.note = f"{100 * float(np.square(new).sum()) / squares:.0f} % of squares kept"
        return verdict


class SparseChunks:
    """What torch_hooks.CSCHook should give, by the definitions C2 to C5, each bucket in chunks.

    definitions: a variant of the definitions that replaces them. Without it the variants of four
    seeded mistakes follow the same steps, to name a wrong result.
    """

    def __init__(
        self,
        chunk: int,
        percent: float,
        momentum: float = 0.9,
        dense_steps: int = 2,
        wire: str | None = None,
        definitions: SimpleNamespace | None = None,
    ):
        self.settings = chunk, percent, momentum, dense_steps
        self.wire, self.definitions = wire, definitions or variant()
        mistakes = {} if definitions else WRONG
        self.wrong = {
            name: SparseChunks(*self.settings, wire, wrong) for name, wrong in mistakes.items()
        }
        self.residuals, self.chosen, self.layout = {}, None, None
        self.norms, self.seen, self.pending = {}, [], []

    def judge(self, bucket: Bucket) -> BucketVerdict:
        verdict = BucketVerdict(bucket.step, bucket.index)
        wanted, bound = self.follow(bucket)
        known = {name: wrong.follow(bucket) for name, wrong in self.wrong.items()}
        for rank, result in enumerate(bucket.after):
            i = first_outside(result, wanted, bound)
            if i is not None:
                place = f"rank {rank}, element {i}, chunk {i // self.settings[0]}"
                numbers = f"got {result[i].item()!r}, wanted {wanted[i].item()!r}"
                verdict.failure = f"{place}: {numbers}"
                first = bucket.after[0]
                same = [name for name, w in known.items() if first_outside(first, *w) is None]
                verdict.looks = same + looks_of(bucket.before, bucket.after)
                return verdict
        return verdict

    def follow(self, bucket: Bucket) -> tuple[np.ndarray, np.ndarray]:
        """The result that all ranks should have, and how far it may be off."""
        chunk, _, momentum, _ = self.settings
        p, n = len(bucket.before), len(bucket.before[0])
        keys, sizes = zip(*bucket.parameters)
        self.seen.append((bucket.index, keys))
        if self.layout is None or self.layout[: len(self.seen)] != self.seen:
            self.chosen = None
        dense = self.chosen is None
        sent = np.ones(n, bool) if dense else np.repeat(self.chosen[bucket.index], chunk)[:n]
        gs = [x / np.float32(p) for x in bucket.before]
        residuals = [self._residual(rank, bucket.parameters) for rank in range(p)]
        sums = [
            self.definitions.accumulated_gradient("dgc", residual, g, momentum)
            for residual, g in zip(residuals, gs)
        ]
        wanted, bound, packed = np.zeros(n), np.zeros(n), [a[sent] for a in sums]
        wanted[sent] = ring_allreduce(packed, self.wire)[0]
        bound[sent] = 2 * summation_bound(packed, self.wire)  # any two orders differ by no more
        for rank, (residual, g) in enumerate(zip(residuals, gs)):
            after = self.definitions.next_residual("dgc", residual, g, momentum, sent, dense)
            for name, array in after.items():
                for key, values in zip(keys, np.split(array, np.cumsum(sizes)[:-1])):
                    self.pending.append((rank, key, name, values))
        self.norms[bucket.index] = importance(sums, chunk)
        if bucket.last:
            self._finish_step(bucket.step + 1)
        return wanted, bound

    def _residual(self, rank: int, parameters: list[tuple[int, int]]) -> Residual:
        """u and v of a bucket's parameters."""
        tensors = []
        for key, size in parameters:
            zeros = {name: np.zeros(size, np.float32) for name in "uv"}
            tensors.append(self.residuals.setdefault((rank, key), zeros))
        return {name: np.concatenate([tensor[name] for tensor in tensors]) for name in "uv"}

    def _finish_step(self, steps: int) -> None:
        """After the last bucket: store the residuals, choose chunks of all buckets."""
        for rank, key, name, values in self.pending:
            self.residuals[rank, key][name] = values
        _, percent, _, dense_steps = self.settings
        buckets = sorted(self.norms)
        norms = np.concatenate([self.norms[i] for i in buckets])
        flags = np.isin(np.arange(len(norms)), choose(norms, percent))
        split = np.split(flags, np.cumsum([len(self.norms[i]) for i in buckets])[:-1])
        self.chosen = dict(zip(buckets, split)) if steps >= dense_steps else None
        self.layout, self.seen, self.pending, self.norms = self.seen, [], [], {}


WRONG = {
    "momentum not corrected: v + g": variant(accumulated_gradient=not_corrected),
    "the residual is not added when a chunk is sent": variant(
        accumulated_gradient=residual_not_added
    ),
    "the residual is not cleared when it is sent": variant(next_residual=not_cleared),
    "residual lost: unsent values are dropped": variant(next_residual=residual_dropped),
}
