"""PyTorch's FSDP2 over gloo and ZeRO-3: the same weights within rounding, the same bytes sent.

Both work in float64, where 4 steps of a few hundred operations on numbers below 10 differ by less
than 1e-12 in whatever order they add.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from refgf.machine import threads  # noqa: E402
from refgf.machine.trace import TracedComm  # noqa: E402
from refgf.nn.layers import FullyConnected, ReLU  # noqa: E402
from refgf.nn.network import Network  # noqa: E402
from refgf.nn.workspace import Workspace  # noqa: E402
from refgf.papers.zero.zero3 import ZeRO3  # noqa: E402
from refgf.training.sgd import MomentumSGD  # noqa: E402
from refgf.training.step import replica  # noqa: E402
from tests.support.gloo import Calls, on_gloo  # noqa: E402

RANKS, STEPS, RATE, MOMENTUM, DECAY, EACH = 4, 4, 0.1, 0.9, 0.01, 3
INPUTS, HIDDEN, CLASSES = 8, (12, 16), 4  # tensors that 4 ranks share without padding


class Perceptron(Network):
    def __init__(self):
        super().__init__(CLASSES, (1, 1, INPUTS), 1.0, Workspace(dtype=np.float64))
        for number, units in enumerate(HIDDEN):
            self.add(FullyConnected, f"fc{number}", units)
            self.add(ReLU, f"relu{number}")
        self.add(FullyConnected, "last", CLASSES)


def batch(rank, step):
    rng = np.random.default_rng([rank, step])
    return rng.standard_normal((EACH, 1, 1, INPUTS)), rng.integers(0, CLASSES, EACH)


def sgd(specs, parameters, workspace=None):
    """Decay on biases too, as torch.optim.SGD has it."""
    for spec in specs:
        object.__setattr__(spec, "decay", True)
    return MomentumSGD(specs, parameters, MOMENTUM, DECAY, workspace)


def ours(comm):
    comm, model = TracedComm(comm), replica(Perceptron(), sgd, seed=1)
    first = [view.copy() for view in model.parameters.views]  # last layer's bias first
    zero = ZeRO3(comm, model.network, model.parameters, sgd)
    for step in range(STEPS):
        zero.step(*batch(comm.Get_rank(), step), RANKS * EACH, RATE)
    sent, whole = comm.bytes, np.empty(zero.n)
    zero.gather(whole)
    return first, whole, sent


def fsdp2(rank, first):
    """(the weights after all steps, in our order; bytes that this rank sent)."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    sizes = (INPUTS, *HIDDEN, CLASSES)
    layers = [nn.Linear(a, b, dtype=torch.float64) for a, b in zip(sizes, sizes[1:])]
    with torch.no_grad():
        for layer, bias, weight in zip(reversed(layers), first[::2], first[1::2]):
            layer.bias.copy_(torch.tensor(bias))
            layer.weight.copy_(torch.tensor(weight.T))
    model, mesh = nn.Sequential(), init_device_mesh("cpu", (RANKS,))
    for layer in layers:
        model.extend([fully_shard(layer, mesh=mesh), nn.ReLU()])
    model = fully_shard(model[:-1], mesh=mesh)
    calls, optimizer = (
        Calls(),
        torch.optim.SGD(model.parameters(), RATE, MOMENTUM, weight_decay=DECAY),
    )
    for step in range(STEPS):
        images, labels = map(torch.tensor, batch(rank, step))
        optimizer.zero_grad()
        with calls:
            nn.functional.cross_entropy(model(images.reshape(EACH, -1)), labels).backward()
        optimizer.step()
    ends = [p.full_tensor().detach() for p in model.parameters()]
    own_order = [x.T if x.dim() > 1 else x for x in reversed(ends)]
    sent = sum(8 * n * (RANKS - 1) // RANKS for _, n in calls.found)
    return np.concatenate([x.reshape(-1).numpy() for x in own_order]), sent


@pytest.mark.long
def test_fsdp2_ends_with_the_same_weights_and_sends_as_much():
    found = threads.run(RANKS, ours)
    first, whole, _ = found[0]
    start = np.concatenate([x.reshape(-1) for x in first])
    assert np.abs(whole - start).max() > 0.1
    for (theirs, nbytes), (_, _, sent) in zip(on_gloo(RANKS, fsdp2, first), found):
        assert np.abs(theirs - whole).max() < 1e-12
        assert nbytes == sent
