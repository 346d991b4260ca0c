"""Attach the oracle to PyTorch DDP: checked(hook) runs a communication hook and compares each bucket with a definition.

    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    hook = checked(allreduce_hook)
    model.register_comm_hook(None, hook)
    ... train ...
    hook.failures                         what was wrong, with step, bucket, rank, element, and what it looks like

Every rank gathers every rank's bucket before and after the hook, so this is for tests, not for speed; a wrong bucket raises
ValueError on all ranks in the step that has it (raises=False only records). CPU and gloo. Known definitions:

    Mean()                    mean over ranks, in float32, in any order; a hook that rounds to 16 bits is told as such
    Mean("float16")           the same, within the bound for that wire type
    SparseChunks(...)         what refgf.oracle.torch_hooks.CSC should give
"""

from dataclasses import dataclass, field

import numpy as np
import torch
import torch.distributed as dist

from refgf.oracle.definitions import (
    choose,
    exact_sum,
    importance,
    ring_allreduce,
    same_bits,
    summation_bound,
)
from refgf.oracle.definitions.sums import HALF_SMALLEST, UNIT_ROUNDOFF
from refgf.oracle.judge.comparison import differs, outside
from refgf.oracle.judge.orders import candidates
from refgf.oracle.seeded.mistakes.sparse import (
    not_cleared,
    not_corrected,
    residual_dropped,
    residual_not_added,
)
from refgf.oracle.seeded.variants import variant

EXPLAINED = 4096  # elements of a bucket that are compared with the known orders


@dataclass
class Bucket:
    """One bucket of one step on all ranks: what went in, and what the hook made of it."""

    step: int
    index: int
    last: bool
    parameters: list  # (key, number of elements), in the bucket's order
    before: list  # p arrays (n,)
    after: list


@dataclass
class Judged:
    """told is None where the bucket is right; note: a difference that the definition allows and names."""

    step: int
    index: int
    told: str | None = None
    note: str | None = None
    looks: list = field(default_factory=list)

    def __str__(self):
        looks = f"; looks like: {'; '.join(self.looks)}" if self.looks else ""
        return f"step {self.step}, bucket {self.index}: {self.told or self.note or 'right'}{looks}"


class checked:  # noqa: N801  used like a function: checked(hook)
    """A communication hook around another one. `judged` has one entry per bucket and step."""

    def __init__(self, hook, definition=None, raises=True):
        self.hook, self.definition, self.raises = hook, definition or Mean(), raises
        self.judged, self.step = [], 0
        self.__name__ = self.__qualname__ = (
            f"checked {getattr(hook, '__name__', type(hook).__name__)}"  # DDP asks for them
        )

    def __call__(self, state, bucket):
        before = everybodys(bucket.buffer())
        parameters = [(id(p), p.numel()) for p in bucket.parameters()]
        last, index = bucket.is_last(), bucket.index()
        result = self.result(self.hook(state, bucket), bucket)
        found = Bucket(self.step, index, last, parameters, before, everybodys(result))
        verdict = self.definition.judge(found)
        self.judged.append(verdict)
        self.step += last
        if verdict.told and self.raises:
            raise ValueError(f"DDP hook {self.__name__}: {verdict}")
        future = torch.futures.Future()
        future.set_result(result)
        return future

    def result(self, future, bucket):
        """What the hook's future holds. When one rank's is no tensor of the bucket's size, all ranks raise."""
        value = future.wait() if hasattr(future, "wait") else future
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        wanted = bucket.buffer()
        right = (
            hasattr(future, "wait")
            and isinstance(value, torch.Tensor)
            and value.dtype == wanted.dtype
        )
        counts = everybodys(torch.tensor([value.numel() if right else -1]))
        for rank, (count,) in enumerate(counts):
            if count != wanted.numel():
                got = (
                    f"a tensor of {count}"
                    if count >= 0
                    else "no Future, or not of one tensor of the bucket's type"
                )
                place = f"step {self.step}, bucket {bucket.index()}, rank {rank}"
                raise ValueError(
                    f"DDP hook {self.__name__}, {place}: returned {got}; wanted a Future of {wanted.numel()} "
                    f"{wanted.dtype}; next: future.then(lambda f: ...) returns one"
                )
        return value

    @property
    def failures(self):
        return [verdict for verdict in self.judged if verdict.told]


def everybodys(tensor):
    """This tensor of every rank, as arrays. -> p arrays (n,)"""
    own = tensor.detach().reshape(-1).clone()
    gathered = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, own)
    return [t.numpy() for t in gathered]


def mean_bound(xs, wire=None):
    """How far a mean may be from exact_sum / p: S2, and the division, which may be before or after. (n,) float64"""
    p, kind = len(xs), wire or str(xs[0].dtype)
    once = UNIT_ROUNDOFF[kind] * exact_sum([np.abs(x) for x in xs]) + p * HALF_SMALLEST[kind]
    bound = summation_bound(xs, wire) / p + 4 * once / p + (p * HALF_SMALLEST[kind] if wire else 0)
    return np.where(np.isfinite(xs).all(axis=0), bound, 0.0)


class Mean:
    """The mean over ranks, the same bits on all of them."""

    def __init__(self, wire=None):
        self.wire = wire

    def judge(self, bucket):
        verdict, xs, after = Judged(bucket.step, bucket.index), bucket.before, bucket.after
        for rank, result in enumerate(after):
            if not same_bits(result, after[0]):
                where = int(np.flatnonzero(differs(result, after[0]))[0])
                verdict.told = f"rank {rank} holds other bits than rank 0 at element {where}"
                verdict.looks = looks_of(xs, after, bucket.last)
                return verdict
        mean = exact_sum(xs) / len(xs)
        if first_outside(after[0], mean, mean_bound(xs, self.wire)) is None:
            return verdict
        for wire in ("float16", "bfloat16"):
            if self.wire is None and first_outside(after[0], mean, mean_bound(xs, wire)) is None:
                verdict.note = f"farther from the mean than float32 explains, within the bound for {wire} on the wire"
                return verdict
        i = first_outside(after[0], mean, mean_bound(xs, self.wire))
        verdict.told = f"element {i} is {after[0][i].item()!r}, the mean is {mean[i].item()!r}"
        verdict.looks = looks_of(xs, after, bucket.last)
        return verdict


def first_outside(value, wanted, bound):
    """Where an input is infinite or NaN the wanted value is, too, and has no bound around it."""
    wrong = np.flatnonzero(outside(value, wanted, bound))
    return int(wrong[0]) if len(wrong) else None


def looks_of(xs, after, last=False):
    """What a wrong mean looks like. last: this is the step's last bucket."""
    p, got = len(xs), after[0]
    found = []
    if all(same_bits(result, x) for result, x in zip(after, xs)):
        found.append("not communicated: every rank has its own gradient")
    elif all(same_bits(result, x / np.float32(p)) for result, x in zip(after, xs)):
        found.append("not communicated: every rank has its own gradient, divided by p")
    elif first_outside(got, exact_sum(xs), mean_bound(xs, "bfloat16")) is None:
        found.append("average forgotten: this is the sum")
    elif (
        first_outside(got, exact_sum(xs) / p**2, mean_bound([x / p for x in xs], "bfloat16"))
        is None
    ):
        found.append("divided by p twice")
    if found and last and found[0].startswith("not communicated"):
        found.insert(0, "last bucket forgotten")
    head = [x[:EXPLAINED] for x in xs]
    for r in range(p):
        others = [x for k, x in enumerate(xs) if k != r]
        if p > 2 and first_outside(got, exact_sum(others) / p, mean_bound(others)) is None:
            found.append(f"rank {r} is lost")
    known = [name for name, total in candidates(head) if same_bits(total, got[:EXPLAINED])]
    return found + known[:3]


class SparseChunks:
    """What torch_hooks.CSC should give, from the pieces of the definition (C2 to C5), each bucket cut into chunks.

    wrong: {name: SparseChunks of a seeded mistake}, which follow the same steps to name a wrong result.
    """

    def __init__(self, chunk, percent, momentum=0.9, dense_steps=2, wire=None, module=None):
        self.settings = chunk, percent, momentum, dense_steps
        self.wire, self.module = wire, module or variant()
        self.wrong = (
            {}
            if module
            else {name: SparseChunks(*self.settings, wire, wrong) for name, wrong in WRONG.items()}
        )
        self.kept, self.chosen, self.layout = {}, None, None
        self.norms, self.seen, self.pending = {}, [], []

    def judge(self, bucket):
        verdict = Judged(bucket.step, bucket.index)
        wanted, known = (
            self.follow(bucket),
            {name: wrong.follow(bucket) for name, wrong in self.wrong.items()},
        )
        chunk = self.settings[0]
        for rank, result in enumerate(bucket.after):
            i = first_outside(result, *wanted)
            if i is not None:
                verdict.told = (
                    f"rank {rank}, element {i}, chunk {i // chunk}: got {result[i].item()!r}, "
                    f"wanted {wanted[0][i].item()!r}"
                )
                right = [
                    first_outside(after, *expected) is None
                    for expected in known.values()
                    for after in bucket.after[:1]
                ]
                verdict.looks = [name for name, same in zip(known, right) if same] + looks_of(
                    bucket.before, bucket.after
                )
                return verdict
        return verdict

    def follow(self, bucket):
        """(the result that all ranks should have, how far it may be off)"""
        chunk, percent, momentum, dense_steps = self.settings
        p, n = len(bucket.before), len(bucket.before[0])
        keys, sizes = zip(*bucket.parameters)
        self.seen.append((bucket.index, keys))
        if self.layout is None or self.layout[: len(self.seen)] != self.seen:
            self.chosen = None
        sent = (
            np.ones(n, bool)
            if self.chosen is None
            else np.repeat(self.chosen[bucket.index], chunk)[:n]
        )
        gs = [x / np.float32(p) for x in bucket.before]
        kept = [
            {
                name: np.concatenate(
                    [self._kept(r, key, size)[name] for key, size in bucket.parameters]
                )
                for name in "uv"
            }
            for r in range(p)
        ]
        would = [self.module.accumulated_gradient("dgc", k, g, momentum) for k, g in zip(kept, gs)]
        wanted, bound = np.zeros(n), np.zeros(n)
        wanted[sent] = ring_allreduce([a[sent] for a in would], self.wire)[0]
        bound[sent] = 2 * summation_bound(
            [a[sent] for a in would], self.wire
        )  # any two orders differ by no more
        for r, (k, g) in enumerate(zip(kept, gs)):
            after = self.module.next_residual("dgc", k, g, momentum, sent, self.chosen is None)
            for name, array in after.items():
                for key, part in zip(keys, np.split(array, np.cumsum(sizes)[:-1])):
                    self.pending.append((r, key, name, part))
        self.norms[bucket.index] = importance(would, chunk)
        if bucket.last:
            self._finish(bucket.step + 1, percent, dense_steps)
        return wanted, bound

    def _kept(self, rank, key, size):
        return self.kept.setdefault(
            (rank, key), {name: np.zeros(size, np.float32) for name in "uv"}
        )

    def _finish(self, steps, percent, dense_steps):
        for r, key, name, part in self.pending:
            self.kept[r, key][name] = part
        values = np.concatenate([self.norms[i] for i in sorted(self.norms)])
        flags = np.isin(np.arange(len(values)), choose(values, percent))
        parts = np.split(flags, np.cumsum([len(self.norms[i]) for i in sorted(self.norms)])[:-1])
        self.chosen = dict(zip(sorted(self.norms), parts)) if steps >= dense_steps else None
        self.layout, self.seen, self.pending, self.norms = self.seen, [], [], {}


WRONG = {
    "momentum not corrected: v + g": variant(accumulated_gradient=not_corrected),
    "what was kept is not added when a chunk is sent": variant(accumulated_gradient=residual_not_added),
    "what was kept back is not cleared when it is sent": variant(next_residual=not_cleared),
    "residual lost: what is not sent is thrown away": variant(next_residual=residual_dropped),
}
