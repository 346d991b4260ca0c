"""A step of a network, and training, on the CPU and on a GPU or its stand-in."""

import numpy as np

from refgf import device
from refgf.comm.direct import direct_allreduce
from refgf.engine.residual import FusedResidual
from refgf.exchange.pool import Pool
from refgf.exchange.precision import LossScale
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from refgf.papers.jia.lars import ParallelNorms
from refgf.papers.resnet50.resnet50 import ResNet50
from tests.support.stacks import new_flow

IMAGES = 4  # a block on the CPU and on the GPU, which sums in the same order then


def one_step(xp, kind, dtype, **options):
    """Loss, gradients and predictions, and how often the host waited before it asked for them."""
    space = Workspace(xp, dtype, images_per_block=IMAGES)
    network = kind(7, 67, width=1 / 16, workspace=space, **options)
    pools = [Pool(network.tensors, dtype, xp.zeros) for _ in range(2)]
    network.bind(*(pool.views for pool in pools))
    network.initialize(0)
    rng = np.random.default_rng(0)
    images = rng.standard_normal((IMAGES, 67, 67, 3)).astype(dtype)
    before = getattr(xp, "waits", 0)
    loss = network.loss(images, rng.integers(0, 7, IMAGES), IMAGES)
    network.backward(lambda i: None)
    network.accept()
    waits = getattr(xp, "waits", 0) - before
    return [
        np.float64(loss),
        device.to_host(pools[1].flat),
        device.to_host(network.predict(images)),
    ], waits


NETWORKS = [(AlexNet, {"normalization": n}) for n in ("batch", "local", "none")] + [(ResNet50, {})]


def train(comm, xp, settings, rounded=0):
    """Three steps; the losses, and the hash of the parameters.

    rounded: the seed of one rounding error in each number of the images; 0: none.
    """
    settings, roundings = dict(settings), np.random.default_rng([rounded, comm.rank])
    space = Workspace(xp, settings.pop("dtype", np.float32), images_per_block=IMAGES)
    network = AlexNet(5, 67, width=1 / 32, dropout=0.3, workspace=space)
    network.dropout_rng = np.random.default_rng(comm.rank)
    settings = settings | (
        {"loss_scale": LossScale(settings["loss_scale"])} if "loss_scale" in settings else {}
    )
    if "norms" in settings:
        norms = ParallelNorms(direct_allreduce(comm), comm.rank, comm.size, settings["norms"])
        settings["norms"] = norms
    rng, losses = np.random.default_rng([1, comm.rank]), []
    with new_flow(comm, network, **settings) as flow:
        for _ in range(3):
            images = rng.standard_normal((3, 67, 67, 3)).astype(np.float32)
            error = np.spacing(images) * roundings.choice([-1, 0, 1], images.shape)
            images += error.astype(np.float32) * bool(rounded)
            losses.append(flow.step(images, rng.integers(0, 5, 3), 3 * comm.size, 0.01))
        return losses, flow.require_same_parameters()


SETTINGS = [
    {"weight_decay": 1e-3, "wire": np.float16, "loss_scale": 2.0**10, "half_weights": True},
    {"dtype": np.float16, "wire": np.float16, "loss_scale": 2.0**10, "overlap": True},
    {"overlap": True, "theta_bytes": 1000, "allreduce": direct_allreduce},
    {"density": 20, "chunk": 100, "weight_decay": 1e-3, "residual": FusedResidual},
    {
        "density": 20,
        "chunk": 100,
        "form": "history",
        "overlap": True,
        "wire": np.float16,
        "after": True,
        "residual": FusedResidual,
    },
    {"density": 30, "chunk": 64, "form": "history", "trust": 0.01, "weight_decay": 1e-3},
    {"trust": 0.01, "norms": "slices"},  # each rank forms a share of the norms
]
