"""Lesson 11: LARS's norms formed by all ranks together, counted and timed without any training."""

import functools

import numpy as np

import kit
from refgf.papers.jia.doubling import recursive_doubling
from refgf.comm.schedule import collective
from refgf.comm.slices import length
from refgf.nn.alexnet import AlexNet
from refgf.papers.jia.lars import LARS, SHARES, ParallelNorms, squared_norms


def parallel(run: kit.Run, by: str) -> ParallelNorms:
    return ParallelNorms(collective(run.comm, recursive_doubling), run.rank, run.size, by)


def require_traffic(run: kit.Run, numbers: int) -> None:
    """What this rank has sent since the last reset is one allreduce of so many float64."""
    schedule = recursive_doubling(run.rank, run.size, numbers) if numbers else []
    sends = [8 * length(step.send) for step in schedule if step.send_to is not None]
    if (run.comm.messages, run.comm.bytes) != (len(sends), sum(sends)):
        raise AssertionError(
            f"rank {run.rank}: sent {run.comm.messages} messages, {run.comm.bytes} bytes, not {sends}"
        )


def time_steps(run: kit.Run) -> list[dict]:
    """A step of LARS on AlexNets of several widths, random numbers for weights and gradients; without any training."""
    run.section("How long does a step of LARS take?")
    rows = []
    for width in run.quick([1 / 16], [1 / 8, 1 / 4], [1 / 8, 1 / 4, 1 / 2]):
        tensors = AlexNet(1000, 227, width).tensors
        n, decayed = sum(t.size for t in tensors), [t.size for t in tensors if t.decay]
        w, g = np.random.default_rng(1).standard_normal((2, n), dtype=np.float32)
        ways = {"alone": squared_norms, **{by: parallel(run, by) for by in SHARES}}
        optimizer = LARS(tensors, w)
        steps = {name: functools.partial(step, optimizer, norms, g) for name, norms in ways.items()}
        allreduce, sums = collective(run.comm, recursive_doubling), np.zeros(2 * len(decayed))
        plain = {
            "norms": functools.partial(squared_norms, w, g, [[slice(0, n)]]),
            "allreduce": functools.partial(allreduce, sums),
        }
        times = run.alternate(steps | plain, run.quick(2, 5, 11))
        busiest = busiest_share(decayed, run.size)
        saved = {"slices": 1 - 1 / run.size, "layers": 1 - busiest}
        predicted = {
            by: times["alone"].median_s
            - saved[by] * times["norms"].median_s
            + times["allreduce"].median_s
            for by in SHARES
        }
        rows.append(
            {
                "n": n,
                "tensors": len(decayed),
                "busiest": busiest,
                "times": times,
                "predicted_s": predicted,
            }
        )
    run.table(
        [
            "parameters",
            "norms alone",
            "step: alone",
            "by slices",
            "predicted",
            "by layers",
            "predicted",
        ],
        [
            [
                f"{r['n']:,}",
                r["times"]["norms"],
                r["times"]["alone"],
                r["times"]["slices"],
                kit.seconds(r["predicted_s"]["slices"]),
                r["times"]["layers"],
                kit.seconds(r["predicted_s"]["layers"]),
            ]
            for r in rows
        ],
    )
    run.say(
        f"the busiest of {run.size} ranks has {100 * rows[-1]['busiest']:.0f} % of the work by layers"
    )
    return rows


def step(optimizer: LARS, norms, g) -> None:
    optimizer.norms = norms
    optimizer.step(g, rate=0.0)


def busiest_share(sizes: list[int], ranks: int) -> float:
    """Share of all elements that the busiest rank has when whole layers are dealt out."""
    tensors = [[slice(0, size)] for size in sizes]
    own = [ParallelNorms(None, rank, ranks, "layers").share(tensors) for rank in range(ranks)]
    return max(sum(length(part) for parts in share for part in parts) for share in own) / sum(sizes)
