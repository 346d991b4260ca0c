"""Batch normalisation with the statistics of all ranks' samples, on the CPU: --batch-norm whole.

What p ranks compute depends on how they normalise:

    BatchNorm under DDP    each rank by its own samples: the mean of p functions, each of a shard.
                           No batch of one rank computes that, so it is not judged
    SyncBatchNorm          by the samples of all ranks: the function of one rank's whole batch.
                           PyTorch's own is for GPUs only

With this option every such layer in training mode is judged as SyncBatchNorm is defined. Gradients
pass through the sums over ranks, and shares may be uneven. So the rest of the loop is judged; how
far a rank's own statistics are from the whole batch's is not.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.nn.modules.batchnorm import SyncBatchNorm, _BatchNorm
from torch.nn.parallel import DistributedDataParallel


class _SumOverRanks(torch.autograd.Function):
    """The sum of a tensor over ranks; backward is the sum of its gradients."""

    @staticmethod
    def forward(context: Any, own: torch.Tensor) -> torch.Tensor:
        total = own.detach().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return _SumOverRanks.forward(context, gradient.contiguous())


def normalised(layer: _BatchNorm, x: torch.Tensor, size: int) -> torch.Tensor:
    """(N, C, ...) by mean and variance over all but C, of all ranks' samples."""
    over = [0, *range(2, x.ndim)]
    shape = [1, -1] + [1] * (x.ndim - 2)
    sum_ = _SumOverRanks.apply if size > 1 else lambda own: own
    own_count = torch.tensor(float(x.numel() // x.shape[1]), dtype=x.dtype)
    count = sum_(own_count).detach()
    mean = sum_(x.sum(over)) / count
    variance = sum_((x - mean.view(shape)).square().sum(over)) / count
    if layer.track_running_stats and layer.running_mean is not None:
        with torch.no_grad():
            layer.num_batches_tracked += 1
            momentum = layer.momentum
            rate = 1 / float(layer.num_batches_tracked) if momentum is None else momentum
            layer.running_mean.lerp_(mean.to(layer.running_mean), rate)
            unbiased = variance * count / (count - 1).clamp(min=1)
            layer.running_var.lerp_(unbiased.to(layer.running_var), rate)
    x = (x - mean.view(shape)) / (variance.view(shape) + layer.eps).sqrt()
    if layer.affine:
        x = x * layer.weight.view(shape) + layer.bias.view(shape)
    return x


@contextlib.contextmanager
def whole_batch_statistics(size: int) -> Iterator[None]:
    """Layers in training mode normalise by all ranks' samples, SyncBatchNorm too."""
    usual = _BatchNorm.forward

    def forward(self: _BatchNorm, x: torch.Tensor) -> torch.Tensor:
        if self.training or self.running_mean is None:
            return normalised(self, x, size)
        return usual(self, x)

    with (
        mock.patch.object(_BatchNorm, "forward", forward),
        mock.patch.object(SyncBatchNorm, "forward", forward),
        mock.patch.object(DistributedDataParallel, "_passing_sync_batchnorm_handle"),
    ):
        yield
