"""Lesson 12: the bytes that leave a node in one exchange, by the formulas.

m nodes of g ranks, p = m g, n float32 gradients, k = n d / 100 of them chosen on each rank

dense ring   2 (p-1)/p 4n          one rank of the node sends to the next node
CSC          2 (p-1)/p 4n d/100    the same ring with the chosen chunks
top-k        (p-1) 8k              the pairs of all other ranks go past the node's last rank
HiTopKComm   (m-1) 8k              g ranks, each with k/g pairs of its slice
"""

import functools
from fractions import Fraction

from kit import flow
from refgf.oracle import definitions

PAIR_BYTES = 8  # a float32 value and an int32 index


def leaving_a_node(n: int, nodes: int, ranks_per_node: int, percent: float) -> dict[str, float]:
    """{name: bytes} that the first node sends to other nodes. Ranks are numbered node by node."""
    m, g = nodes, ranks_per_node
    p, last = m * g, g - 1  # the ring leaves the first node from its last rank
    if m == 1:
        return dict.fromkeys(("dense ring", "CSC", "top-k", "HiTopKComm"), 0)
    slices = [stop - start for start, stop in definitions.slice_bounds(n, g)]
    chosen = sum(definitions.keep_count(elements, percent) for elements in slices)
    return {
        "dense ring": 4 * definitions.ring_traffic(n, p, last)[1],
        "CSC": 2 * (p - 1) / p * csc_payload_bytes(n, percent),
        "top-k": (p - 1) * PAIR_BYTES * definitions.keep_count(n, percent),
        "HiTopKComm": (m - 1) * PAIR_BYTES * chosen,
    }


def leaving_at(shown: list[tuple], n: int, nodes: list[list[int]]) -> list[float]:
    """The bytes that leave the first node with each (name, percent)."""
    where = len(nodes), len(nodes[0])
    found = {percent: leaving_a_node(n, *where, percent) for _, percent in shown}
    return [found[percent][name] for name, percent in shown]


def require_bytes(row: dict) -> None:
    """AssertionError if counted bytes differ from an exact formula; CSC's is nearly exact."""
    if row["name"] != "CSC" and row["between"] != row["formula"]:
        raise AssertionError(
            f"{row['name']} at {row['percent']:g} %: got {row['between']} bytes out of a node; "
            f"wanted {row['formula']}"
        )


@functools.cache  # the definition lists every element's chunk
def csc_payload_bytes(n: int, percent: float) -> float:
    """Bytes that a ring with the chosen chunks sums: what each of two ranks sends."""
    return flow.csc_bytes(n, 2, percent)


def share_of_dense(p: int, percent: float) -> Fraction:
    """Bytes of top-k on p ranks over those of the dense ring, both by the formula: p d / 100.

    A gradient costs (p - 1) pairs d percent of the time, or 2 (p - 1) / p float32. p = 1: d / 100.
    """
    return Fraction(p * PAIR_BYTES, 2 * 4) * Fraction(str(percent)) / 100


def first_above_dense(percent: float) -> int:
    """The least number of ranks with which top-k sends more than the dense ring."""
    p = 2
    while share_of_dense(p, percent) <= 1:
        p += 1
    return p


def against_ranks(run, n: int, g: int, percent: float = 1.0) -> dict:
    """Bytes out of a node of g ranks for many cluster sizes, and the break-even with dense."""
    plural = "s" if g > 1 else ""
    run.section(f"Bytes that leave a node of {g} rank{plural} at {percent:g} %, by the formulas")
    sizes = run.quick([8, 128], [4, 8, 16, 32, 64, 128, 256])
    counts = sorted({max(2, p // g) for p in (run.size, *sizes)})
    rows = [leaving_a_node(n, m, g, percent) for m in counts]
    run.table(
        ["nodes", "ranks", *rows[0]],
        [
            [m, g * m, *(f"{nbytes / 1e6:,.1f} MB" for nbytes in row.values())]
            for m, row in zip(counts, rows)
        ],
    )
    first = first_above_dense(percent)
    before, there = (float(share_of_dense(p, percent)) for p in (first - 1, first))
    run.say(
        f"Top-k over dense ring, by the formula: {before:.4g} on {first - 1} ranks, "
        f"{there:.4g} on {first}."
    )
    return {
        "nodes": counts,
        "ranks_per_node": g,
        "percent": percent,
        "bytes": {name: [row[name] for row in rows] for name in rows[0]},
        "first_above": first,
        "share_before": before,
        "share_there": there,
    }
