r"""ZeRO-3 (PyTorch: FSDP): each rank keeps a slice of every layer, and gathers it to use it.

    forward    gather 1 | layer 1   | layer 2   | layer 3
                        | gather 2  | gather 3  | gather 3
    backward            | layer 3   | layer 2   | layer 1   |
                        | gather 2  | gather 1  |           |
                        |           | reduce 3  | reduce 2  | reduce 1
    then       the optimiser updates this rank's slice of every layer

What stands below a layer is sent while it computes, by the calls' thread: the next layer is
gathered ahead. With `AtOnce`, the naive form, each call is waited for. Two buffers of the largest
layer take turns for weights, and two for gradients; the next layer overwrites what was freed. This
is simple, and holds more than buffers of each layer's own size would: those of two neighbours.
The last layer is gathered twice in a row, as if others had been in between.

Cost per step and rank r, in a layer of n elements: 3(p-1) messages, empty ones too, and
3n - |slice r+1| - 2 |slice r+2| elements sent: two allgathers and a reduce-scatter.
Kept: slice r+1 of each layer's weights and gradients, and of each array of the optimiser's state.
Sums are in the ring's order within a layer: the bits of ring allreduce layer by layer with the same
elementwise optimiser.
Source: Rajbhandari et al. 2020, "ZeRO", section 5 (P_os+g+p). That a unit is a layer, and what runs
side by side: PyTorch's FSDP2 (verified: its documentation), simplified.
"""

from collections.abc import Callable
from dataclasses import dataclass

from refgf.arguments import checked
from refgf.comm.arguments import Comm
from refgf.comm.gather import allgather_slices, reduce_scatter
from refgf.comm.slices import slices
from refgf.device import Array
from refgf.exchange.interfaces import Optimizer
from refgf.exchange.overlap import AtOnce, CommunicationThread
from refgf.exchange.pool import Pool
from refgf.nn.layers import Layer
from refgf.nn.network import Network
from refgf.papers.zero.zero1 import cut_specs
from refgf.training.sgd import MomentumSGD


@dataclass(frozen=True)
class _Unit:
    """A layer with tensors. part: of the pool; own: of the part; kept: of this rank's arrays."""

    layer: Layer
    part: slice
    own: slice
    kept: slice


@checked
class ZeRO3:
    """`step` trains the network, whose weights are `parameters` now. They may be let go then.

    optimizer    called with (specs, parameters (k,), workspace=...), k what this rank keeps
    calls        who communicates: a thread, which must be the communicator's only user in a step

    `parameters`, `gradients` (k,), `optimizer`: what this rank keeps, layer after layer in the
    order of forward. The network must be float32 or float64 and have no other copy of its weights.
    """

    def __init__(
        self,
        comm: Comm,
        network: Network,
        parameters: Pool,
        optimizer: Callable[..., Optimizer] = MomentumSGD,
        calls: AtOnce | CommunicationThread | None = None,
    ) -> None:
        self.network, self.calls = network, calls or AtOnce()
        self._gather, self._reduce = allgather_slices(comm), reduce_scatter(comm)
        self.n, specs = parameters.flat.size, []
        self.units: list[_Unit] = []
        owner, size = (comm.Get_rank() + 1) % comm.Get_size(), comm.Get_size()
        first, kept = len(parameters.specs), 0
        for layer in network.layers:
            last, first = first, first - len(layer.tensors)
            part = slice(parameters.offsets[first], parameters.offsets[last])
            own = slices(part.stop - part.start, size)[owner]
            if layer.tensors:
                unit = _Unit(layer, part, own, slice(kept, kept + own.stop - own.start))
                self.units.append(unit)
                specs += cut_specs(layer.tensors, own)
                kept = unit.kept.stop
        zeros, dtype = network.xp.zeros, parameters.flat.dtype
        self.parameters, self.gradients = zeros(kept, dtype), zeros(kept, dtype)
        for unit in self.units:
            self.parameters[unit.kept] = parameters.flat[unit.part][unit.own]
        longest = max((unit.part.stop - unit.part.start for unit in self.units), default=0)
        self._whole, self._sums = ([zeros(longest, dtype) for _ in range(2)] for _ in range(2))
        self.optimizer = optimizer(specs, self.parameters, workspace=network.workspace)
        self._turns = [*self.units, *reversed(self.units)]  # units in the order of their use
        self._passes = [*network.layers, *reversed(network.layers)]  # layers, likewise
        for turn in range(len(self.units)):
            self._bind(turn)  # the network lets go of the arrays that it was bound to

    def step(self, images: Array, labels: Array, global_batch: int, rate: float) -> float:
        """One step with this rank's samples; -> its share of the loss, as train_step's."""
        self._place, self._turn = -1, 0
        self._send_gather(0)
        self._before_a_layer()
        loss = self.network.loss(images, labels, global_batch, self._after)
        self.network.backward(lambda index: None, self._after)
        self.calls.wait()
        self._send_reduce(len(self._turns) - 1)
        self.calls.wait()
        self.optimizer.step(self.gradients, rate, None, None)
        self.network.accept()
        return float(loss)

    def gather(self, whole: Array) -> None:
        """Fill whole (n,), in the pool's order, to evaluate or to save. Collective."""
        for unit in self.units:
            x = whole[unit.part]
            x[unit.own] = self.parameters[unit.kept]
            self._gather(x)

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """Where in the pool this rank's elements lie: (start, stop) of each unit's slice."""
        own = ((u.part.start + u.own.start, u.part.start + u.own.stop) for u in self.units)
        return list(own)

    @property
    def whole_bytes(self) -> int:
        """Of the buffers of whole layers, which are there beside what is kept."""
        return sum(x.nbytes for x in (*self._whole, *self._sums))

    @property
    def kept(self) -> dict[str, Array]:
        """{name: (k,)}: this rank's weights and the optimiser's state of them."""
        return {"parameters": self.parameters} | self.optimizer.state

    # ---- a pass ----

    def _after(self, layer: str, direction: str) -> None:
        self._before_a_layer()

    def _before_a_layer(self) -> None:
        """If the next layer has weights, they are here now; the ones after it are sent for."""
        self._place += 1
        if self._place == len(self._passes) or not self._passes[self._place].tensors:
            return
        turn, self._turn = self._turn, self._turn + 1
        self.calls.wait()
        if turn > len(self.units):
            self._send_reduce(turn - 1)
        if turn + 1 < len(self._turns):
            self._send_gather(turn + 1)
        self._bind(turn)

    def _bind(self, turn: int) -> None:
        unit = self._turns[turn]
        arrays = Pool(unit.layer.tensors, zeros=lambda n, _: self._whole[turn % 2][:n])
        sums = Pool(unit.layer.tensors, zeros=lambda n, _: self._sums[turn % 2][:n])
        unit.layer.bind(arrays.views, sums.views)

    def _send_gather(self, turn: int) -> None:
        if turn < len(self._turns):
            unit = self._turns[turn]
            x = self._whole[turn % 2][: unit.part.stop - unit.part.start]
            x[unit.own] = self.parameters[unit.kept]
            self.calls.run(self._gather, x)

    def _send_reduce(self, turn: int) -> None:
        if turn < 0:
            return
        unit = self._turns[turn]

        def work(x: Array) -> None:
            self._reduce(x)
            self.gradients[unit.kept] = x[unit.own]

        self.calls.run(work, self._sums[turn % 2][: unit.part.stop - unit.part.start])
