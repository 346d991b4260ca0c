"""Z4: ZeRO-3 (FSDP), where each rank keeps a slice of every layer: what it sends, and when."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, select
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw
from refgf.oracle.spec.ring import slice_bounds
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

GATHER, REDUCE = 0, 1
Calls = list[tuple[int, int, int, int]]


def zero3_calls(sizes: Sequence[int], p: int, rank: int) -> Calls:
    """Z4: a rank keeps its slice (Z1) of each layer's weights. A layer is gathered before its
    forward and again before its backward, the next one during it; in backward a layer's gradients
    are reduce-scattered (R5) after the next one is gathered, and the first layer's at the end. So
    a step of L layers makes 3 L calls of p-1 messages each, and sends 3n (p-1)/p elements in the
    mean. The last layer is gathered for both passes, one after the other.

    Source: Rajbhandari et al. 2020 (P_os+g+p) and the order of PyTorch's FSDP2, a layer a unit;
    that the last layer is gathered again: FSDP2's.

    sizes: elements of each layer in the order of forward; 0 is the first
    -> [(0 for a gather, 1 for a reduce-scatter, layer, messages, elements sent)] in their order
    """
    layers, calls = len(sizes), []
    for layer in range(layers):
        calls.append((GATHER, layer))
    for layer in reversed(range(layers)):
        calls.append((GATHER, layer))
        if layer < layers - 1:
            calls.append((REDUCE, layer + 1))
    if layers:
        calls.append((REDUCE, 0))
    return [(kind, layer, p - 1, sent(sizes[layer], p, rank, kind)) for kind, layer in calls]


def sent(n: int, p: int, rank: int, kind: int) -> int:
    """All slices but one: of the sums the own one stays (R5); a gather leaves out the next one."""
    lengths = [stop - start for start, stop in slice_bounds(n, p)]
    return n - lengths[(rank + 2 - kind) % p]


def run_calls(module: Any, case: Case) -> Outputs:
    sizes, p = select(case, "sizes", "p").values()
    calls = [module.zero3_calls(list(sizes), p, rank) for rank in range(p)]
    return {"out.calls": np.array(calls, np.int64).reshape(p, -1, 4)}


Z4 = Statement("Z4", zero3_calls)
CALLS = JudgedFunction(zero3_calls, "Z4", {"calls": ("rank", "call", "number")}, run=run_calls)


@CALLS.fresh
def any_layers(d: Draw) -> Given:
    """Few ranks: an implementation may count by sending."""
    return {"sizes": [d.integer(0, 40) for _ in range(d.integer(1, 6))], "p": min(d.p, 12)}


@CALLS.golden
def layers() -> Cases:
    for p, sizes, why in (
        (1, [5, 7], "one rank: calls without messages"),
        (2, [6], "one layer, gathered twice in a row"),
        (3, [6, 9, 12], "slices of equal length"),
        (4, [13, 3, 0, 22, 1], "uneven, empty and missing slices"),
        (7, [100, 31], "slices of two lengths"),
    ):
        name = f"zero3-calls-p{p}-{'-'.join(map(str, sizes))}"
        yield CALLS.case(name, why, sizes=sizes, p=p)


@Z4.mistake("weights are kept from forward to backward, and gathered once")
def gathered_once(sizes, p, rank):
    calls = zero3_calls(sizes, p, rank)
    return calls[: len(sizes)] + [c for c in calls[len(sizes) :] if c[0] == REDUCE]


@Z4.mistake("backward gathers the layers in the order of forward")
def forward_order(sizes, p, rank):
    calls, layers = zero3_calls(sizes, p, rank), len(sizes)
    return calls[:layers] + [
        (kind, layer, messages, elements)
        if kind == REDUCE
        else (kind, layers - 1 - layer, messages, sent(sizes[layers - 1 - layer], p, rank, GATHER))
        for kind, layer, messages, elements in calls[layers:]
    ]


@Z4.mistake("gradients are summed by an allreduce: a reduce-scatter, and a gather of the sums")
def allreduced(sizes, p, rank):
    return [
        (kind, layer, 2 * messages, elements + sent(sizes[layer], p, rank, GATHER))
        if kind == REDUCE
        else (kind, layer, messages, elements)
        for kind, layer, messages, elements in zero3_calls(sizes, p, rank)
    ]


@Z4.mistake("a gather leaves out the rank's own slice, not the next one's")
def own_left_out(sizes, p, rank):
    return [
        (kind, layer, messages, sent(sizes[layer], p, rank, REDUCE))
        for kind, layer, messages, _ in zero3_calls(sizes, p, rank)
    ]


@Z4.mistake("a reduce-scatter comes before the gather of the next layer, which then waits for it")
def reduced_first(sizes, p, rank):
    calls = zero3_calls(sizes, p, rank)
    for at in range(len(sizes) + 1, len(calls) - 1, 2):
        calls[at], calls[at + 1] = calls[at + 1], calls[at]
    return calls


@Z4.mistake("the mean over the ranks, n (p-1)/p, where slices differ")
def mean_elements(sizes, p, rank):
    return [
        (kind, layer, messages, sizes[layer] * (p - 1) // p)
        for kind, layer, messages, _ in zero3_calls(sizes, p, rank)
    ]
