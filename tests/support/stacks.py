"""GradientFlow from flat settings, for tests that go through many stacks."""

import math
from functools import partial

from refgf.comm.ring import ring_allreduce
from refgf.exchange.csc import CSCSettings
from refgf.exchange.lazy import Theta
from refgf.exchange.momentum_correction import Residual
from refgf.exchange.result import UNOBSERVED
from refgf.papers.jia.lars import LARS
from refgf.training.gradientflow import GradientFlow
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica


def new_model(network, momentum=0.9, weight_decay=0.0, trust=None, norms=None, **settings):
    """A replica with momentum SGD, or with LARS where `trust` is given."""
    if trust is None:
        optimizer = partial(MomentumSGD, momentum=momentum, weight_decay=weight_decay)
    else:
        own = {"norms": norms} if norms else {}
        optimizer = partial(LARS, trust=trust, momentum=momentum, weight_decay=weight_decay, **own)
    return replica(network, optimizer, **settings)


MODEL = (
    "momentum",
    "weight_decay",
    "trust",
    "norms",
    "seed",
    "half_weights",
    "loss_scale",
    "zeros",
)
CSC = ("form", "chunk", "after")


def new_flow(
    comm,
    network,
    *,
    theta_bytes=math.inf,
    grouping=None,
    density=None,
    residual=Residual,
    allreduce=ring_allreduce,
    observe=UNOBSERVED,
    **settings,
):
    """theta_bytes or grouping; density None: dense; the rest goes to model, CSC or flow."""
    model = {name: settings.pop(name) for name in MODEL if name in settings}
    sparse = {name: settings.pop(name) for name in CSC if name in settings}
    csc = None if density is None else CSCSettings(density, residual=residual, **sparse)
    grouping = grouping or Theta(theta_bytes)
    transport = {"allreduce": allreduce, "grouping": grouping, "observe": observe}
    return GradientFlow(comm, new_model(network, **model), csc=csc, **transport, **settings)
