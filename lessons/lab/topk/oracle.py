"""Lesson 12's exchanges against the definitions: sums, residuals, messages and bytes."""

import numpy as np

import kit
from kit.oracle import agreed, require_bits, require_sent
from kit.rejected import reject
from refgf.device import to_host
from refgf.oracle import definitions
from refgf.papers.mstopk.topk import TopK

ELEMENTS, STEPS = 1003, 3  # n is no multiple of the number of ranks


def check(run: kit.Run, nodes: list[list[int]], new_exchanges) -> None:
    """At 1 % with random numbers; at 100 % with integers, whose dense sum is exact.

    new_exchanges: (run, nodes, n, percent) -> (TopK, HiTopK)
    """
    run.section("The oracle")
    n, p, steps = ELEMENTS, run.size, range(STEPS)
    numbers = np.random.default_rng(0).standard_normal((STEPS, p, n), np.float32)
    drawn = [list(step) for step in numbers]
    whole = [[(np.arange(n, dtype=np.float32) + t) % 97 * (r + 1) for r in range(p)] for t in steps]
    for percent, gs in ((1, drawn), (100, whole)):
        for exchange in new_exchanges(run, nodes, n, percent):
            require(run, exchange, gs, nodes, percent)
    agreed(
        run,
        f"top-k, and HiTopKComm on {len(nodes)} nodes x {len(nodes[0])} ranks, at 1 and 100 %,",
        f"over {STEPS} steps: sums, residuals, messages and bytes agree with the definition;",
        "100 % is the dense sum",
    )


def require(run: kit.Run, exchange, gs: list, nodes: list[list[int]], percent: int) -> None:
    """AssertionError unless this exchange is its definition. gs: per step each rank's gradients."""
    node, nested = next(node for node in nodes if run.rank in node), not isinstance(exchange, TopK)
    n, place = len(gs[0][0]), f"{type(exchange).__name__} at {percent} % on rank {run.rank}"
    if nested:
        wanted = definitions.hitopk_run(gs, nodes, percent)
        own = slice(*definitions.slice_bounds(n, len(node))[(node.index(run.rank) + 1) % len(node)])
    else:
        wanted, own = definitions.topk_run(gs, percent), slice(0, n)
    for t, report in enumerate(wanted):
        x = run.array(gs[t][run.rank].copy())
        run.comm.reset()
        exchange(x)
        require_bits(f"{place}, sum of step {t}", x, report["x"][run.rank])
        if percent == 100 and not np.array_equal(to_host(x), definitions.exact_sum(gs[t])):
            reject(f"{place}, step {t}: got another sum than the dense one")
        planned = definitions.topk_traffic(n, nodes, percent, run.rank, nested)
        require_sent(place, (run.comm.messages, run.comm.bytes), planned)
    kept = wanted[-1]["kept"][run.rank][own]
    require_bits(f"{place}, residual", exchange.feedback.residual, kept)
