"""Which AccumulateGrad events of a trace are those of parameters.

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

Event = dict[str, Any]
Events = list[Event]
Shapes = Counter[tuple[int, ...]]
OPTIMIZER = "Optimizer.step#"
ON_GPU = "gpu_user_annotation"


def of_parameters(grads: Events, events: Events) -> tuple[Events, tuple[str, ...]]:
    """(gradients of parameters, notes). Both in order of time."""
    inputs = segment_inputs(grads, events)
    found = Counter(map(shape_of, grads))
    tables = optimizer_tables(events)
    updated = updated_shapes(tables, found, len(inputs))
    touched = {shape for table in tables for shapes in table.values() for shape in shapes}
    if updated is None:
        dropped, notes = inputs, (unknown(len(grads) - len(inputs)),)
    else:
        dropped, notes = surplus(grads, inputs, found - updated, touched)
    kept = without(grads, dropped)
    if not dropped or not kept:
        return grads, notes
    elements = sum(prod(shape_of(grad)) for grad in dropped)
    said = (
        f"{len(dropped)} of {len(grads)} AccumulateGrad are left out, {elements:,} elements: those "
        "of inputs (requires_grad=True, or checkpoint with use_reentrant=True), not of parameters."
    )
    return kept, (said, *notes)


def without(grads: Events, dropped: Events) -> Events:
    """The events that are not in `dropped`; equal ones are told apart."""
    out = set(map(id, dropped))
    return [grad for grad in grads if id(grad) not in out]


def surplus(
    grads: Events, inputs: Events, more: Shapes, touched: set[tuple[int, ...]]
) -> tuple[Events, tuple[str, ...]]:
    """(gradients to leave out, notes). more: how many of each shape the optimiser does not update.

    Of one shape those of segments are taken first. If a parameter has the same shape, no other is.
    """
    dropped, notes = [], []
    for shape, count in more.items():
        first = [grad for grad in inputs if shape_of(grad) == shape][-count:]
        others = without([grad for grad in grads if shape_of(grad) == shape], first)
        missing = count - len(first)
        if shape not in touched:
            first += others[len(others) - missing :]
        elif missing:
            notes.append(
                f"WARNING: {len(others)} gradients of shape {list(shape)}, but the optimiser "
                f"updates {len(others) - missing}. If one is an input's, pass a list of gradients."
            )
        dropped += first
    return dropped, tuple(notes)


def unknown(count: int) -> str:
    return (
        "Which tensors the optimiser updates is not in the step: an input with requires_grad=True "
        f"would count as a parameter. Is len(list(model.parameters())) {count}?"
    )


def optimizer_tables(events: Events) -> list[dict[str, Shapes]]:
    """{operator: shapes of its first argument} for each step of an optimiser; lists count too."""
    tables = []
    steps = [event for event in events if event["name"].startswith(OPTIMIZER)]
    for step in (event for event in steps if event.get("cat") != ON_GPU):
        table = defaultdict(Counter)
        for event in events:
            if step["ts"] <= event["ts"] <= end_of(step) and event.get("cat") == "cpu_op":
                table[event["name"]].update(shapes_in(dims(event)[:1]))
        tables.append(table)
    return tables


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


def segment_inputs(grads: Events, events: Events) -> Events:
    """Gradients of the inputs of reentrant segments: the last of their shape in the segment."""
    forwards, nodes = defaultdict(list), []
    for event in events:
        number = event["args"].get("Sequence number")
        if not isinstance(number, int):
            continue
        if event["args"].get("Fwd thread id") == 0:
            forwards[event["name"], number].append(event)
        elif event["name"].endswith("Backward") and ": " not in event["name"]:
            nodes.append(event)
    inside = defaultdict(list)
    for grad in grads:
        around = [
            at
            for at, node in enumerate(nodes)
            if node["ts"] <= grad["ts"] and end_of(grad) <= end_of(node)
        ]
        if around:
            inside[max(around, key=lambda at: nodes[at]["ts"])].append(grad)
    found = []
    for at, within in inside.items():
        node, number = nodes[at], nodes[at]["args"]["Sequence number"]
        same = forwards[node["name"].removesuffix("Backward"), number]
        earlier = [forward for forward in same if end_of(forward) <= node["ts"]]
        left = Counter(shapes_in(dims(max(earlier, key=end_of)))) if earlier else Counter()
        for grad in reversed(within):
            shape = shape_of(grad)
            if shape and left[shape]:
                left[shape] -= 1
                found.append(grad)
    return without(grads, without(grads, found))


def dims(event: Event) -> list[Any]:
    found = event["args"].get("Input Dims")
    return found if isinstance(found, list) else []


def shapes_in(arguments: list[Any]) -> list[tuple[int, ...]]:
    """Shapes of tensors and of lists of tensors: [[2, 3]] and [[[2, 3], [4]]]."""
    found = []
    for shape in arguments:
        if isinstance(shape, list) and shape and isinstance(shape[0], list):
            found += shapes_in(shape)
        elif isinstance(shape, list) and all(isinstance(n, int) for n in shape):
            found.append(tuple(shape))
    return found


def shape_of(grad: Event) -> tuple[int, ...]:
    return tuple(dims(grad)[0])


def end_of(event: Event) -> float:
    return event["ts"] + event["dur"]
