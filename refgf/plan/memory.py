"""Bytes per rank of each system, activations excluded.

Every rank has float32 weights, gradients and momentum of SGD, 12 bytes a parameter. (Adam: 4 more.)
The rest is what the classes of refgf allocate: a received slice, the float16 gradients, a residual.
"""

from math import ceil

from refgf.plan.systems import CSC_PERCENT, TOPK_DENSITY, Question

STATE = 12  # bytes per parameter: weights, gradients, momentum
PAIR = 8  # a float32 value and its index


def per_rank(question: Question) -> dict[str, float]:
    """{system: bytes}. Scratch of theta: one group of all gradients, which is the largest."""
    n, size, k = question.step.elements, question.size, question.per_node
    largest = max(elements for _, elements in question.step.ready)
    state, chosen = STATE * n, ceil(TOPK_DENSITY * n)
    scratch = 4 * ceil(n / size) if size > 1 else 0
    found = {
        "eager": state + (4 * ceil(largest / size) if size > 1 else 0),
        "theta": state + scratch,
        "merged": state + scratch,
        "half": state + 2 * n + scratch,
        "CSC": state + 2 * n + 4 * n + ceil(scratch * CSC_PERCENT / 100),  # residual
        "top-k": state + 4 * n + PAIR * chosen * size,  # residual; the pairs of all ranks
        "hierarchy": state + 4 * ceil(n / k),
        "DASO": state + 4 * n + scratch,  # the parameters in flight
    }
    return {name: float(nbytes) for name, nbytes in found.items()}
