"""Sign-SGD with error feedback: one bit a gradient. An example of a compressor of your own.

    p    = g + e                       e: what was not sent so far
    sent = mean|p| * sign(p)           a scale and one bit per element
    e    <- p - sent                   if the step is accepted

    GradientFlow(comm, model, allreduce=SignSGD, grouping=Theta(2**20), overlap=True)

Every rank gathers all scales and signs and adds in rank order, so all end with the same bits. The
scale is that of one call, so the sums depend on theta.

Cost per rank and call of k elements: p - 1 messages and (p - 1) (4 + ceil(k / 8)) bytes, where the
ring sends about 8 k (p - 1) / p bytes of float32: 64 / p times as many. Memory: two arrays (n,).
Source: Karimireddy et al. 2019, "Error feedback fixes SignSGD" (the sum over ranks, in place of a
mean, because each rank's loss is divided by the global batch).
"""

import numpy as np

from refgf.arguments import checked
from refgf.comm.arguments import Comm
from refgf.comm.gather import allgather
from refgf.device import Array
from refgf.exchange.compressor import Compressor


@checked
class SignSGD(Compressor):
    """Made as `SignSGD(comm)`. NumPy only. Errors: ValueError for any wire type."""

    def __init__(self, comm: Comm, wire=None) -> None:
        if wire is not None:
            raise ValueError(
                f"SignSGD on rank {comm.Get_rank()}: got wire {wire}; wanted None, because it "
                "sends bits; next: leave out wire"
            )
        self._gather = allgather(comm)

    def start(self, gradients: Array) -> None:
        self._error = np.zeros_like(gradients)  # (n,)
        self._after = np.zeros_like(gradients)  # (n,) the error if the step is accepted

    def sum(self, x: Array, elements: slice) -> None:
        x += self._error[elements]
        scale = np.float32(np.abs(x).mean(dtype=np.float64) if x.size else 0)
        self._after[elements] = x - np.where(x >= 0, scale, -scale)
        message = np.concatenate([np.frombuffer(scale.tobytes(), np.uint8), np.packbits(x >= 0)])
        x[...] = 0
        for row in self._gather(message):  # (p, 4 + ceil(k / 8))
            sign = np.unpackbits(row[4:], count=x.size).astype(x.dtype) * 2 - 1
            x += row[:4].view(np.float32)[0] * sign

    def end(self, accepted: bool) -> None:
        if accepted:
            self._error[...] = self._after

    @property
    def state(self) -> dict:
        return {"error": self._error}
