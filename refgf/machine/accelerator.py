"""A virtual accelerator: a network with the real tensors, whose computing is slept, not done.

    network = VirtualNetwork(tensors, pace.dilated(56), chunk_norms)
    model = replica(network, MomentumSGD)

Eight ranks that compute on two cores take the processor from the exchange. On a GPU cluster the
processor that communicates is not the one that computes. Here forward and backward sleep for as
long as a GPU would compute, so the exchange has the cores to itself:

    forward            backward
    |~~~~ sleep ~~~~|~ sleep ~|~ sleep ~~~~~~|~ sleep ~|
                              fc8 is ready   fc7       fc6 ...     each gradient is written first

Time dilation: the sleeps are multiplied by a factor K, and the links are K times slower than those
of the cluster that is emulated. Every ratio of times stays what it was (Gupta et al., NSDI 2006).

Real: tensors, gradients in the pool, messages, bytes, casts, selection, threads, the update.
Slept: forward and backward. Not to scale: this processor's own work. One core is not exactly one
K-th of a GPU, so a lesson measures that work (`InstantComm`) and says where it decides.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refgf.device import Array
from refgf.nn.layers import TensorSpec
from refgf.nn.workspace import Workspace

DRAWN = 1 << 16  # normal numbers that are drawn once and repeated: they stay in the cache
TYPICAL = 1e-3  # standard deviation of a gradient: in float16's range with and without a loss scale


@dataclass(frozen=True)
class Pace:
    """When an accelerator has finished what, in seconds since the start of a step.

    forward_s  end of forward
    ready_s    one time per gradient, in order of generation
    end_s      end of backward
    """

    forward_s: float
    ready_s: tuple[float, ...]
    end_s: float

    def __post_init__(self) -> None:
        times_s = [0.0, self.forward_s, *self.ready_s, self.end_s]
        if times_s != sorted(times_s) or not self.end_s > 0:
            raise ValueError(
                f"Pace: got forward until {self.forward_s} s, gradients at {self.ready_s[:4]}..., "
                f"end at {self.end_s} s; wanted times that rise; next: the order of generation"
            )

    def dilated(self, factor: float) -> "Pace":
        """`factor` times as slow."""
        ready_s = tuple(factor * t for t in self.ready_s)
        return Pace(factor * self.forward_s, ready_s, factor * self.end_s)


class VirtualNetwork:
    """Has the interface of `nn.network.Network`, and computes nothing.

    tensors      in order of generation
    pace         a `Pace` with one ready time per tensor
    chunk_norms  (C,) mean absolute values of the C chunks of the pool, as uneven as those of a real
                 network; None: all alike
    seed         of the gradients; give each rank its own

    A step takes `pace.end_s`, plus the time that `ready` takes in backward: as on a GPU whose
    queue waits for the call. With overlap `ready` returns at once.
    """

    normalizations, running = (), ()

    def __init__(
        self,
        tensors: Sequence[TensorSpec],
        pace: Pace,
        chunk_norms: Sequence[float] | None = None,
        seed: int = 0,
    ) -> None:
        if len(tensors) != len(pace.ready_s):
            raise ValueError(
                f"VirtualNetwork: got {len(tensors)} tensors and {len(pace.ready_s)} ready times; "
                "wanted one time per tensor; next: build both from one workload"
            )
        self.tensors, self.pace = list(tensors), pace
        self.workspace = Workspace()
        self.dtype, self.xp = self.workspace.dtype, self.workspace.xp
        self._scales = TYPICAL * relative(chunk_norms if chunk_norms is not None else [1.0])
        self._drawn = np.random.default_rng(seed).standard_normal(2 * DRAWN, np.float32)
        self._steps, self._clock_s, self.logits_gradient = 0, 0.0, 1.0

    def bind(self, parameters: Sequence[np.ndarray], gradients: Sequence[np.ndarray]) -> None:
        """Use these arrays, one per tensor."""
        self._parameters, self._gradients = list(parameters), list(gradients)
        sizes = [array.size for array in gradients]
        self._starts, self._total = np.cumsum([0, *sizes])[:-1].tolist(), sum(sizes)
        self._chunk = min(DRAWN, max(1, -(-self._total // len(self._scales))))

    def initialize(self, seed: int) -> None:
        """Small constant parameters: nothing is learned here."""
        for array in self._parameters:
            array[...] = TYPICAL

    def loss(
        self, images: Array, labels: Array, global_batch: int, observe: Callable | None = None
    ) -> float:
        """Sleep through forward; 0."""
        self._clock_s = time.perf_counter() + self.pace.forward_s
        self.logits_gradient = 1.0  # a loss scale multiplies it, and so all gradients
        sleep_until(self._clock_s)
        return 0.0

    def backward(self, on_ready: Callable[[int], None], observe: Callable | None = None) -> None:
        """Write each gradient and sleep until it is ready; on_ready(i) for i = 0, 1, 2, ..."""
        self._steps += 1
        now_s = self.pace.forward_s
        for i, ready_s in enumerate(self.pace.ready_s):
            self._write(i)
            self._clock_s += ready_s - now_s
            now_s = ready_s
            sleep_until(self._clock_s)
            start_s = time.perf_counter()
            on_ready(i)
            self._clock_s += time.perf_counter() - start_s
        sleep_until(self._clock_s + self.pace.end_s - now_s)

    def accept(self) -> None:
        """No statistics to keep."""

    def _write(self, i: int) -> None:
        """Gradient i of this step: drawn numbers times their chunk's norm and the loss scale."""
        flat = self._gradients[i].reshape(-1)  # (n_i,)
        start, chunks = self._starts[i], len(self._scales)
        shift = (self._steps * 7919) % DRAWN  # other numbers in each step
        for low in range(0, flat.size, self._chunk):
            part = flat[low : low + self._chunk]
            scale = self._scales[(start + low) * chunks // self._total] * self.logits_gradient
            np.multiply(self._drawn[shift : shift + part.size], scale, out=part)


def relative(norms: Sequence[float]) -> np.ndarray:
    """Norms divided by their mean, (C,) float32."""
    norms = np.asarray(norms, np.float64)
    if norms.ndim != 1 or not norms.size or not (np.isfinite(norms) & (norms >= 0)).all():
        raise ValueError(
            f"chunk_norms: got {norms.size} values of shape {norms.shape}; wanted one finite "
            "number >= 0 per chunk; next: the norms of a real run, or None"
        )
    mean = norms.mean() or 1.0
    return (norms / mean).astype(np.float32)


def sleep_until(deadline_s: float) -> None:
    """Sleep until deadline_s of time.perf_counter, without spinning: others need the core."""
    while (remaining_s := deadline_s - time.perf_counter()) > 0:
        time.sleep(remaining_s)


class InstantComm:
    """A communicator of `size` ranks without a network, for one rank: each receives what it sends.

    What a step takes here beyond its sleeps is the processor's own work: casts, additions, packing,
    choosing, threads, one copy of each message. The sums are not those of `size` ranks.
    """

    host_only = True

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Send(self, buf: Array, dest: int, tag: int = 0) -> None:
        pass

    def Recv(self, buf: Array, source: int, tag: int = 0) -> None:
        pass

    def Sendrecv(
        self,
        sendbuf: Array,
        dest: int,
        sendtag: int = 0,
        recvbuf: Array | None = None,
        source: int | None = None,
        recvtag: int = 0,
    ) -> None:
        n = min(len(sendbuf), len(recvbuf))  # slices differ by one element
        recvbuf[:n] = sendbuf[:n]
        recvbuf[n:] = 0  # what lay there may be an infinity, which rejects the step

    def Barrier(self) -> None:
        pass

    def allgather(self, obj: Any) -> list:
        return [obj] * self.size

    def bcast(self, obj: Any = None, root: int = 0) -> Any:
        return obj

    def allreduce(self, obj: Any, *op: Any) -> Any:
        return obj

    def Dup(self) -> "InstantComm":
        return InstantComm(self.rank, self.size)

    def Free(self) -> None:
        pass
