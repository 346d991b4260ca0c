"""ZeRO-1: each rank holds the optimiser's state of one slice only. The naive form.

    reduce-scatter of the gradients     rank r holds the sum of slice r+1 (mod p)
    the optimiser updates that slice    its state has n/p elements, not n
    allgather of the parameters         all ranks hold the same bits again

These are the two halves of the ring (comm/ring.py) with the update between them. An elementwise
optimiser gives the bits of ring allreduce and the same optimiser on all n elements. LARS needs the
norms of whole layers: papers/jia/slice_norms.py.

Cost per step and rank r, as ring allreduce: 2(p-1) messages, empty ones too, and
2n - |slice r+1| - |slice r+2| elements sent. Optimiser's state: |slice r+1| elements an array.
Source: Rajbhandari et al. 2020, "ZeRO", section 5 (P_os); the ring's order of sums: ours.
"""

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from refgf.arguments import checked
from refgf.comm.arguments import Comm, require_flat
from refgf.comm.gather import allgather_slices, reduce_scatter
from refgf.comm.slices import slices
from refgf.device import Array
from refgf.exchange.interfaces import Optimizer


def cut_specs(specs: Sequence[Any], own: slice) -> list[SimpleNamespace]:
    """What an optimiser must know of a slice of a pool: of each tensor its elements, and decay.

    Tensors outside the slice have none. specs have .shape and .decay.
    """
    found, start = [], 0
    for spec in specs:
        stop = start + math.prod(spec.shape)
        elements = max(0, min(stop, own.stop) - max(start, own.start))
        found.append(SimpleNamespace(shape=(elements,), decay=spec.decay))
        start = stop
    return found


@checked
class ZeRO1:
    """`step` updates `parameters` (n,), a flat contiguous array, in place.

    optimizer(own)   makes the optimiser of parameters[own], the slice that this rank owns
    """

    def __init__(
        self, comm: Comm, parameters: Array, optimizer: Callable[[slice], Optimizer]
    ) -> None:
        self._rank, size = comm.Get_rank(), comm.Get_size()
        require_flat(parameters, "ZeRO1", self._rank)
        self.parameters = parameters
        self._reduce, self._gather = reduce_scatter(comm), allgather_slices(comm)
        self.own = slices(parameters.size, size)[(self._rank + 1) % size]
        self.optimizer = optimizer(self.own)

    def step(self, gradients: Array, rate: float) -> None:
        """One update with this rank's gradients (n,), which hold partial sums afterwards."""
        wanted = self.parameters
        if gradients.shape != wanted.shape or gradients.dtype != wanted.dtype:
            raise ValueError(
                f"ZeRO1.step on rank {self._rank}: got gradients {gradients.shape} "
                f"{gradients.dtype}; wanted {wanted.shape} {wanted.dtype}, as the parameters; "
                "next: pass all gradients as one flat array"
            )
        own = self._reduce(gradients)
        self.optimizer.step(gradients[own], rate, None, None)
        self.gather()

    def gather(self) -> None:
        """All ranks take all slices of the parameters: in each step, and after a `load`."""
        self._gather(self.parameters)

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """Where this rank's elements lie, for checkpoint.py."""
        return [(self.own.start, self.own.stop)]

    @property
    def kept(self) -> dict[str, Array]:
        return {"parameters": self.parameters[self.own]} | self.optimizer.state
