"""Lesson 11: LARS's norms in parallel, counted and timed without any training."""

import functools

import numpy as np

import kit
from refgf.comm.schedule import collective
from refgf.comm.slices import length
from refgf.nn.alexnet import AlexNet
from refgf.papers.jia.doubling import recursive_doubling
from refgf.papers.jia.lars import LARS, SHARES, ParallelNorms, squared_norms


def parallel(run: kit.Run, by: str) -> ParallelNorms:
    return ParallelNorms(collective(run.comm, recursive_doubling), run.rank, run.size, by)


def require_traffic(run: kit.Run, numbers: int) -> None:
    """Check that this rank has sent one allreduce of `numbers` float64 since the last reset."""
    schedule = recursive_doubling(run.rank, run.size, numbers) if numbers else []
    sends = [8 * length(step.send) for step in schedule if step.send_to is not None]
    if (run.comm.messages, run.comm.bytes) != (len(sends), sum(sends)):
        raise AssertionError(
            f"LARS norms on rank {run.rank}: got {run.comm.messages} messages, "
            f"{run.comm.bytes} bytes; wanted messages of {sends} bytes"
        )


def time_steps(run: kit.Run) -> list[dict]:
    """LARS steps on AlexNets of several widths, with random weights and gradients."""
    run.section("How long does a LARS step take?")
    rows = []
    for width in run.quick([1 / 16], [1 / 8, 1 / 4], [1 / 8, 1 / 4, 1 / 2]):
        tensors = AlexNet(1000, 227, width).tensors
        n, decayed = sum(t.size for t in tensors), [t.size for t in tensors if t.decay]
        w, g = map(run.array, np.random.default_rng(1).standard_normal((2, n), dtype=np.float32))
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
        sizes = {"n": n, "tensors": len(decayed), "busiest": busiest, "ranks": run.size}
        rows.append(sizes | {"times": times, "predicted_s": predicted})
    run.table(["parameters", "", "measured", "predicted"], [c for row in rows for c in cells(row)])
    share = 100 * rows[-1]["busiest"]
    run.say(f"by layers the busiest of {run.size} ranks has {share:.0f} % of the work")
    return rows


def cells(row: dict) -> list[list]:
    """The table's lines of one width."""
    names = {"norms": "serial norms only", "alone": "step, serial norms"}
    names |= {by: f"step, norms by {by}" for by in SHARES}
    predicted = {name: kit.seconds(t) for name, t in row["predicted_s"].items()}
    return [
        [f"{row['n']:,}", label, row["times"][name], predicted.get(name, "")]
        for name, label in names.items()
    ]


def step(optimizer: LARS, norms, g) -> None:
    optimizer.norms = norms
    optimizer.step(g, rate=0.0)


def busiest_share(sizes: list[int], ranks: int) -> float:
    """Share of all elements on the busiest rank when whole layers are distributed."""
    tensors = [[slice(0, size)] for size in sizes]
    norms = [ParallelNorms(print, rank, ranks, "layers") for rank in range(ranks)]  # none is summed
    own = [each.share(tensors) for each in norms]
    return max(sum(length(part) for parts in share for part in parts) for share in own) / sum(sizes)
