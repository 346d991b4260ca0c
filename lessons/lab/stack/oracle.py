"""Lesson 07's stack against the definitions: a technique changes no bit that it should not."""

import numpy as np

import kit
from kit import flow, images
from kit.oracle import agreed, require_bits
from refgf.comm.direct import direct_allreduce
from refgf.device import to_host
from refgf.exchange.lazy import Theta
from refgf.oracle.definitions import direct_allreduce as defined_allreduce
from refgf.oracle.definitions import momentum_step

RATE, MOMENTUM = 0.01, 0.9


def check(run: kit.Run, data) -> None:
    """Raises AssertionError at the first difference. Sums are in rank order, as `direct` adds."""
    run.section("The oracle")
    batches = list(images.steps(run, data, run.quick(2, 3)))

    def trained(**arguments):
        with flow.new(run, data, allreduce=direct_allreduce, **arguments) as stack:
            for batch in batches:
                stack.step(*batch, rate=RATE)
            stack.require_same_parameters()
            return to_host(stack.model.parameters.flat).copy()

    dense = trained()
    equal = {
        "lazy = eager": trained(grouping=Theta(2**14)),
        "overlapped = sequential": trained(grouping=Theta(2**14), overlap=True),
        "float32 wire = no wire type": trained(wire=np.float32),
        "CSC at 100 % (history) = dense": trained(csc=flow.csc(run, data, 100, "history")),
    }
    for claim, parameters in equal.items():
        require_bits(f"training on rank {run.rank}, {claim}", parameters, dense, "dense training's")
    one_step(run, data, batches[0])
    agreed(run, f"bit for bit after {len(batches)} steps; one step as defined:\n{'; '.join(equal)}")


def one_step(run: kit.Run, data, batch) -> None:
    """One step of the stack is momentum SGD on the sum of all gradients, as defined."""
    with flow.new(run, data, allreduce=direct_allreduce, weight_decay=0.0) as stack:
        model = stack.model
        w = to_host(model.parameters.flat).copy()
        model.network.loss(*batch)
        model.network.backward(lambda i: None)
        total = defined_allreduce(run.gather(model.gradients.flat.copy()))[0]
        for i in range(len(model.gradients.specs)):
            stack.ready(i)
        model.update(RATE, stack.finish())
        wanted = momentum_step(w, np.zeros_like(w), total, RATE, MOMENTUM)[0]
        require_bits(f"one step on rank {run.rank}", model.parameters.flat, wanted)
