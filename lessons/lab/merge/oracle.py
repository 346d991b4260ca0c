"""Lesson 09's exchange against the definition: one allreduce for each group, calls and bits."""

from itertools import product

import numpy as np

import kit
from kit.oracle import agreed, exchanged, require_bits, vectors
from kit.rejected import reject
from kit.replay import sizes_of
from refgf.comm import direct, ring
from refgf.comm.schedule import collective
from refgf.exchange.lazy import LazyAllreduce
from refgf.exchange.pool import Pool
from refgf.oracle.definitions import direct_allreduce, merged_allreduce, merged_calls
from refgf.papers.mgwfbp.merge import compare, exact_merge, greedy_merge
from refgf.papers.mgwfbp.merged import Groups
from refgf.papers.scaling.workloads import resnet50
from refgf.predict.cost import Line
from refgf.predict.timeline import eager, one_call

ALGORITHMS = (ring.allreduce, "ring"), (direct.allreduce, "direct")
EXAMPLE = [(1.0, 1), (2.0, 1), (4.0, 1)], Line(2.0, 1.0)  # the smallest that the rule misses


def check(run: kit.Run) -> None:
    """ResNet-50's last layers in small. Raises AssertionError at the first difference."""
    run.section("The oracle")
    pool = Pool(sizes_of(resnet50(), 256)[:40], np.float32, run.xp.zeros)
    sizes = [spec.shape[0] for spec in pool.specs]
    xs = vectors(run, pool.flat.size)
    gradients = [(float(i), view.nbytes) for i, view in enumerate(pool.views)]
    line = Line(2.0, 1 / np.median([nbytes for _, nbytes in gradients]))
    merges = greedy_merge(gradients, line), exact_merge(gradients, line)
    groupings = eager(gradients), one_call(gradients), *merges
    in_rank_order = direct_allreduce(xs)[run.rank]
    for groups, (algorithm, order) in product(groupings, ALGORITHMS):
        exchange = LazyAllreduce(pool, collective(run.comm, algorithm), Groups(tuple(groups)))
        got = exchanged(run, pool, exchange, xs[run.rank])
        counts = [len(group) for group in groups]
        calls = [(call.start, call.stop) for call in exchange.calls]
        where = f"merged {order} allreduce on rank {run.rank}, {len(groups)} groups"
        if calls != merged_calls(sizes, counts):
            reject(f"{where}: got calls {calls}; wanted the definition's")
        require_bits(where, got, merged_allreduce(xs, sizes, counts, order=order)[run.rank])
        if order == "direct":
            require_bits(where, got, in_rank_order, "for all groups")
    got = compare(*EXAMPLE)
    if (got["greedy"], got["exact"]) != (9, 8):
        reject(f"smallest example: got {got}; wanted greedy 9, exact 8")
    agreed(
        run,
        "eager, one call, greedy and exact groups: one ring or direct allreduce per group,",
        "each bit for bit as defined; direct gives the same bits for all groups.",
        "The smallest example (ready after 1, 2, 4; a = 2, b = 1): greedy 9, best merge 8.",
    )
