"""Bytes per rank of each system, activations excluded.

Every rank has float32 weights, gradients and momentum of SGD, 12 bytes a parameter. (Adam: 4 more.)
The rest is what the classes of refgf allocate: a received slice, the float16 gradients, a residual.
One rank exchanges nothing and has none of it.
"""

from math import ceil

from refgf.plan.question import Question
from refgf.plan.systems import CSC_PERCENT, SYSTEMS, TOPK_DENSITY, topk_flat_s, topk_levels_s

STATE = 12  # bytes per parameter: weights, gradients, momentum
PAIR = 8  # a float32 value and its index


def per_rank(question: Question) -> dict[str, float]:
    """{system: bytes}. Scratch of theta: one group of all gradients, which is the largest."""
    n, size, k = question.step.elements, question.size, question.per_node
    if size == 1:
        return dict.fromkeys(SYSTEMS, float(STATE * n))
    largest = max(elements for _, elements in question.step.ready)
    state, slice_bytes = STATE * n, 4 * ceil(n / k)
    scratch = 4 * ceil(n / size)
    found = {
        "eager": state + 4 * ceil(largest / size),
        "theta": state + scratch,
        "merged": state + scratch,
        "half": state + 2 * n + scratch,
        "CSC": state + 2 * n + 4 * n + ceil(scratch * CSC_PERCENT / 100),  # residual
        "top-k": state + residual_of_topk(question) + pairs_of_topk(question),
        "hierarchy": state + slice_bytes,
        "hierarchy16": state + 2 * n + slice_bytes,
        "DASO": state + 4 * n + scratch,  # the parameters in flight
    }
    return {name: float(nbytes) for name, nbytes in found.items()}


def in_two_levels(question: Question) -> bool:
    """Is HiTopKComm the faster top-k, as `topk_s` has it?"""
    return topk_levels_s(question) < topk_flat_s(question)


def pairs_of_topk(question: Question) -> int:
    """Bytes that a rank receives: the pairs of all ranks, or of its slice from all nodes."""
    chosen = ceil(TOPK_DENSITY * question.step.elements)
    if in_two_levels(question):
        return PAIR * ceil(chosen / question.per_node) * question.nodes
    return PAIR * chosen * question.size


def residual_of_topk(question: Question) -> int:
    """Of all gradients; in two levels of a slice, and then a slice is received in the node, too."""
    n = question.step.elements
    return 2 * 4 * ceil(n / question.per_node) if in_two_levels(question) else 4 * n
