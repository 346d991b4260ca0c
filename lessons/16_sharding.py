"""Lesson 16: sharding - who must hold the optimiser's state?

    mpiexec -n 8 python lessons/16_sharding.py    waits for messages instead of sending slowly
    python -m refgf.cluster run --like v100-56gbit -- python lessons/16_sharding.py
    options: --predict "50 %", -v (all tables), --network resnet50 (trains it), --like this-machine,
             --full, --quick, ...

QUESTION    In data parallelism every rank has all weights, all gradients and all of the
            optimiser's state, and all ranks compute the same update. Who must keep what?
IDEA        A ring allreduce has two halves (lesson 01). After the first, the reduce-scatter, a rank
            holds the finished sum of one slice. That is all it needs to update this slice, and its
            state for this slice is all it needs to keep. The second half then gathers weights in
            place of sums. This is ZeRO-1 (Rajbhandari et al. 2020): `sharded_step` below, for real
            in refgf/papers/zero/zero1.py (drawing: lessons/drawings/16.svg).

                all hold all     reduce-scatter, allgather of sums,    update of n elements
                ZeRO-1           reduce-scatter, update of n/p, allgather of weights

            ZeRO-2 keeps a slice of the gradients only, and ZeRO-3 (PyTorch: FSDP) a slice of the
            weights, too. A unit of weights (a layer, or several) is gathered before its forward,
            freed after it, and gathered again before its backward. If units stayed whole, each
            rank would hold all weights again.
PREDICTION  n elements, p ranks, an optimiser with s states (momentum 1, Adam 2). Elements:

                                 weights  gradients  state    a rank sends in a step
                all hold all     n        n          s n      2 (p-1)/p n
                ZeRO-1           n        n          s n/p    2 (p-1)/p n
                ZeRO-2           n        n/p        s n/p    2 (p-1)/p n
                ZeRO-3, FSDP     n/p      n/p        s n/p    3 (p-1)/p n

            Naive is that all hold all. By hand, 12 elements on 3 ranks with Adam: each holds
            12 + 12 + 24 = 48. With ZeRO-1 rank 0 holds Adam's state of elements 4 to 7 only, rank 1
            of 8 to 11, rank 2 of 0 to 3: 12 + 12 + 8 = 32 each. With ZeRO-2 each holds 24,
            with ZeRO-3 16. A rank sends 16 elements in a step, with ZeRO-3 24.

            ZeRO-1 has the ring's sums, and momentum and Adam treat each element by itself: the bits
            are those of all hold all. LARS and clipping need norms of all slices (lesson 11).
            ZeRO-3 sums unit by unit, in another order: other bits, and right ones. Of each unit it
            sends two allgathers and a reduce-scatter, 3(p-1) messages.

            ZeRO-3 gathers a unit while the one before computes (prefetching), so whole units come
            on top: the dashed part of its bar. A step still waits for its first gather, for its
            last reduce-scatter, and wherever a unit takes longer to gather than the one before
            takes to compute.

Before you run it, write down, for your p: by how many percent does ZeRO-1 reduce what a rank holds
(weights, gradients, momentum)? Does its step take longer or shorter than one with a ring after
backward?

This is weak scaling: each rank brings its own batch, for any p. After this lesson you can say what
each rank must hold, what sharing it costs in bytes and time, and when it does not pay.

APPENDIX    What ZeRO-3 holds at its peak depends on the code. The largest unit has L elements, the
            largest two neighbours have N. A rank holds

                all hold all                                 (2 + s) n
                ZeRO-3, refgf/papers/zero/zero3.py           (2 + s) n/p + 4 L
                FSDP, as in refgf/plan/sharding.py           (2 + s) n/p + N + 2 L
                zero3.py, if buffers had each unit's size    (2 + s) n/p + 2 N

            zero3.py frees nothing: two buffers for weights and two for gradients take turns, each
            as large as the largest unit. FSDP has a unit's gradients twice, as made and as sent.
            ZeRO-2 has whole gradients of a unit, too, which the first table leaves out.

            Sharding pays with many units of like size, where L is small next to n. Where one layer
            has most of the weights, as in AlexNet, whole units take back most of what sharding
            saved, or more. Layers' outputs come on top: a rank has those of its own images, in
            every stage. The figure `_links` has predicted steps on other links, and PyTorch's DDP.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/16_sharding.py)
    1. From how many ranks on does ZeRO-1 with Adam halve what a rank holds? And with momentum?
    2. A rank takes the flags of weight decay from element 0 on, not from its slice. What is wrong?
    3. Each rank forms LARS's norms from its own slice alone. Do all slices move as before?

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/16.md)
    a. "ZeRO-1 on p ranks needs 1/p of the memory." -v: what a rank holds.
    b. "ZeRO-1 needs more messages: it gathers, too." -v: what a rank sends.
    c. "FSDP saves memory and costs nothing." -v: the predicted steps, link by link (appendix).
"""

import refgf.launch  # noqa: F401  before MPI starts

from collections.abc import Iterator

import kit
from kit import images
from lab.sharding import oracle, predicted, steps, training
from lab.sharding.claims import REVEAL
from lab.sharding.picture import draw
from refgf.papers.zero.zero1 import ZeRO1, cut_specs
from refgf.training.sgd import MomentumSGD

# ---- the idea, for all ranks in one process ----


def own_slice(n: int, p: int, rank: int) -> slice:
    """After the reduce-scatter rank r holds the sum of slice r+1 (mod p)."""
    s = (rank + 1) % p
    start, stop = (i * (n // p) + min(i, n % p) for i in (s, s + 1))
    return slice(start, stop)


def sharded_step(w, velocities, gradients, rate: float, momentum: float = 0.9):
    """w (n,), velocities[r]: of rank r's slice, gradients: p arrays (n,). -> (w, velocities)"""
    w, p, after = w.copy(), len(gradients), []
    for rank, v in enumerate(velocities):
        own = own_slice(w.size, p, rank)
        total = gradients[(rank + 1) % p][own]  # the reduce-scatter: in the ring's order
        for k in range(1, p):
            total = total + gradients[(rank + 1 + k) % p][own]
        v = momentum * v + total
        w[own] -= rate * v  # the allgather: all ranks get this slice
        after.append(v)
    return w, after


# ---- one step of one rank ----


def shard(comm, model) -> ZeRO1:
    """ZeRO-1 of a replica: the optimiser of this rank's slice, with the decay of its tensors."""
    pool, optimizer = model.parameters, model.optimizer

    def of_slice(own: slice) -> MomentumSGD:
        settings = optimizer.momentum, optimizer.weight_decay
        specs = cut_specs(pool.specs, own)
        return MomentumSGD(specs, pool.flat[own], *settings, model.network.workspace)

    return ZeRO1(comm, pool.flat, of_slice)


def zero_step(model, zero: ZeRO1, samples, labels, global_batch: int, rate: float) -> float:
    """Forward and backward as ever; then reduce-scatter, update, allgather. -> this rank's loss"""
    loss = model.network.loss(samples, labels, global_batch)
    model.network.backward(lambda i: None)
    zero.step(model.gradients.flat, rate)
    model.network.accept()
    return float(loss)


# ---- the lesson ----


def measure(run: kit.Run) -> Iterator[dict]:
    oracle.check(run, shard, zero_step)
    train, _ = images.load(run)
    yield {"training": training.compare(run, train, shard, zero_step)}
    yield {"steps": steps.measure(run, train, shard, zero_step)}
    yield {"predicted": predicted.against_links(run)}


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL, like="v100-56gbit")
    images.arguments(lesson, networks=images.NETWORKS)
    lesson.main(measure, draw)
