"""Which AccumulateGrad events of a step are those of parameters.

Autograd runs one for each leaf that requires a gradient: for parameters, for an input with
requires_grad=True, and for the detached inputs of a segment of torch.utils.checkpoint with
use_reentrant=True. A trace has two signs:

- The optimiser runs some operator once for each parameter. So its shapes are the parameters'.
- The backward of a segment has the sequence number of its forward. The shapes of the forward's
  inputs are those of the AccumulateGrad events, inside this backward, that are no parameters'.
"""

from collections import Counter, defaultdict
from math import prod
from typing import Any

from refgf.plan.trace import Events, ProfiledEvent, Shape, Trace

Shapes = Counter[Shape]


def of_parameters(grads: Events, step: Trace) -> tuple[Events, tuple[str, ...]]:
    """(gradients of parameters, notes). Both in order of time."""
    inputs = segment_inputs(grads, step)
    found = Counter(grad.shape for grad in grads)
    tables = [operators_of(optimizer, step) for optimizer in step["optimizers"]]
    updated = updated_shapes(tables, found, len(inputs))
    touched = {shape for table in tables for shapes in table.values() for shape in shapes}
    if updated is None:
        dropped, notes = inputs, (unknown(len(grads) - len(inputs)),)
    else:
        dropped, notes = surplus(grads, inputs, found - updated, touched)
    kept = [grad for grad in grads if grad not in dropped]
    if not dropped or not kept:
        return grads, notes
    elements = sum(prod(grad.shape) for grad in dropped)
    said = (
        f"{len(dropped)} of {len(grads)} AccumulateGrad are left out, {elements:,} elements: those "
        "of inputs (requires_grad=True, or checkpoint with use_reentrant=True), not of parameters."
    )
    return kept, (said, *notes)


def surplus(
    grads: Events, inputs: Events, more: Shapes, touched: set[Shape]
) -> tuple[Events, tuple[str, ...]]:
    """(gradients to leave out, notes). more: how many of each shape the optimiser does not update.

    Of one shape those of segments are taken first. If a parameter has the same shape, no other is.
    """
    dropped, notes = [], []
    for shape, count in more.items():
        first = [grad for grad in inputs if grad.shape == shape][-count:]
        others = [grad for grad in grads if grad.shape == shape and grad not in first]
        kept = len(others) - (count - len(first))
        if shape not in touched:
            first += others[kept:]
        elif kept < len(others):
            notes.append(
                f"WARNING: {len(others)} gradients of shape {list(shape)}, but the optimiser "
                f"updates {kept}. If one is an input's, pass a list of gradients."
            )
        dropped += first
    return dropped, tuple(notes)


def unknown(count: int) -> str:
    return (
        "Which tensors the optimiser updates is not in the step: an input with requires_grad=True "
        f"would count as a parameter. Is len(list(model.parameters())) {count}?"
    )


def operators_of(optimizer: ProfiledEvent, step: Trace) -> dict[str, Shapes]:
    """{operator: shapes of its first argument} within a step of an optimiser; lists count too."""
    table = defaultdict(Counter)
    for operator in step["operators"]:
        if optimizer.begins(operator):
            table[operator.name].update(shapes_in(operator.inputs[:1]))
    return table


def updated_shapes(tables: list[dict[str, Shapes]], found: Shapes, inputs: int) -> Shapes | None:
    """Shapes of the tensors that all optimisers of the step update; None if it cannot be told.

    For each the operator with most calls, of those with no more of any shape than gradients. They
    must be half of the gradients or more, those of segments' inputs aside: of an optimiser that is
    compiled, or fused elsewhere, a trace shows no tensor or a few.
    """
    updated = Counter()
    for table in tables:
        fitting = [shapes for shapes in table.values() if shapes and shapes <= found]
        if not fitting:
            return None
        updated += max(fitting, key=Counter.total)
    enough = 2 * updated.total() >= found.total() - inputs
    return updated if updated and enough and updated <= found else None


def segment_inputs(grads: Events, step: Trace) -> Events:
    """Gradients of the inputs of reentrant segments: the last of their shape in the segment."""
    nodes = [e for e in step["backwards"] if e.name.endswith("Backward") and ": " not in e.name]
    inside = defaultdict(list)
    for grad in grads:
        around = [node for node in nodes if node.begins(grad) and grad.end <= node.end]
        if around:
            inside[max(around, key=lambda node: node.start)].append(grad)
    found = set()
    for node, within in inside.items():
        forward = node.name.removesuffix("Backward"), node.sequence
        same = (each for each in step["forwards"] if (each.name, each.sequence) == forward)
        earlier = (each for each in same if each.end <= node.start)
        last = max(earlier, key=lambda each: each.end, default=None)
        left = Counter(shapes_in(last.inputs)) if last else Counter()
        for grad in reversed(within):
            if grad.shape and left[grad.shape]:
                left[grad.shape] -= 1
                found.add(grad)
    return [grad for grad in grads if grad in found]


def shapes_in(arguments: list[Any]) -> list[Shape]:
    """Shapes of tensors and of lists of tensors: [[2, 3]] and [[[2, 3], [4]]]."""
    found = []
    for shape in arguments:
        if isinstance(shape, list) and shape and isinstance(shape[0], list):
            found += shapes_in(shape)
        elif isinstance(shape, list) and all(isinstance(n, int) for n in shape):
            found.append(tuple(shape))
    return found
