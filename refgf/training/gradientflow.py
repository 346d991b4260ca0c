"""GradientFlow: the stack of all parts, and the one object that a training loop talks to.

    model = replica(network, partial(MomentumSGD, momentum=0.9, weight_decay=5e-4))
    with GradientFlow(comm, model, wire=np.float16, csc=CSCSettings(10), overlap=True) as flow:
        for images, labels, global_batch in batches(...):
            loss = flow.step(images, labels, global_batch, rate)

    argument    is                                                  default     to leave it out
    allreduce   ring_allreduce, a collective, your `Compressor`     the ring    mpi_allreduce
    wire        the type in which gradients are sent                the pool's  None
    overlap     a communication thread                              False       False
    grouping    lazy allreduce: wait for more than Theta(bytes)     one call    Theta(0): eager
    csc         coarse-grained sparse communication                 None        None: all are sent

Source: GradientFlow (Sun et al. 2019). With overlap a thread does what stands behind the bar:

    dense   gradients -> groups | -> allreduce in wire type -> unscaled
    CSC     gradients | -> packed chunks -> groups -> allreduce in wire type
"""

from collections.abc import Callable
from typing import Any

from refgf import ops
from refgf.comm.agreement import agree, function_name
from refgf.comm.arguments import Comm, Wire, rank_and_size, require_kinds, wire_type
from refgf.comm.direct import direct_allreduce
from refgf.comm.ring import ring_allreduce
from refgf.device import Allreduce, Array
from refgf.exchange.compressor import Compressed, Compressor
from refgf.exchange.csc import CSC
from refgf.exchange.dense import DenseExchange, Transport
from refgf.exchange.interfaces import Grouping
from refgf.exchange.lazy import ONE_CALL, Call
from refgf.exchange.momentum_correction import BEFORE, CSCSettings
from refgf.exchange.overlap import AtOnce, CommunicationThread
from refgf.exchange.result import UNOBSERVED, Closed, StepResult, Unobserved
from refgf.training.data import Dataset
from refgf.training.evaluation import evaluate_together
from refgf.training.step import Replica, require_same_parameters, train_step


class GradientFlow:
    """A model and its exchange. Collective to make, to use and to close.

    comm       communicator; duplicated, so that its messages never meet others
    model      a `Replica`; its optimiser has momentum and decay, and its loss scale is updated
    allreduce  called with (comm, wire=wire); returns an Allreduce or a `Compressor`
    grouping   a `Theta`, or `refgf.papers.mgwfbp.merged.Groups`
    csc        a `CSCSettings`; CSC takes decay from the optimiser, the forms `dgc` momentum too
    observe    an observer, for example a `refgf.machine.timeline.Timeline`

    After a step: `result`, `steps` (accepted or not), `calls` of allreduce, and `communication_s`,
    for which the communication thread was busy; CSC: norms too.
    Errors: ValueError on every rank when the ranks' `settings` differ, and after `close`.
    """

    def __init__(
        self,
        comm: Comm,
        model: Replica,
        *,
        allreduce: Callable[..., Allreduce | Compressor] = ring_allreduce,
        wire: Wire = None,
        grouping: Grouping = ONE_CALL,
        csc: CSCSettings | None = None,
        overlap: bool = False,
        observe: Unobserved = UNOBSERVED,
    ) -> None:
        self.comm, self.model, self.observe = comm, model, observe
        sparse = csc or CSCSettings()
        require_kinds("GradientFlow", {Replica: model, Callable: allreduce, CSCSettings: sparse})
        self.result, self.steps, self._optimizer = StepResult(), 0, model.optimizer
        self.calls, self.communication_s = list[Call](), 0.0
        wire = wire_type(wire, "GradientFlow", rank_and_size(comm, "GradientFlow")[0])
        self.settings: dict[str, object] = {"wire": str(wire), "grouping": str(grouping)}
        self.settings |= {"csc": csc is not None, "half_weights": model.working is not None}
        self.settings |= {**model.optimizer.settings, **sparse.described()}
        # one communicator for the gradients, which a thread has to itself, one for the rest
        self._comms = [ops.background(c) if overlap else c for c in (comm.Dup(), comm.Dup())]
        settings = f"{function_name(allreduce)} {self.settings} {vars(model.loss_scale)}"
        agree(self._comms[1], "settings of GradientFlow", settings)
        agree(self._comms[1], "gradient pool", model.layout())
        self._sum_small = direct_allreduce(self._comms[1])
        worker = CommunicationThread("communication") if overlap else AtOnce()
        checker = CommunicationThread("checks") if overlap else AtOnce()
        self._workers = worker, checker
        sums, self.compressed = allreduce(self._comms[0], wire=wire), None
        if isinstance(sums, Compressor):
            self.settings["compressor"] = type(sums).__name__
            sums = self.compressed = Compressed(sums, model.gradients.flat, model.loss_scale)
        sums = observe.watched(sums, itemsize=wire.itemsize if wire else None)
        transport = Transport(sums, grouping, wire, worker, checker, observe)
        self.csc = self._csc(csc, transport) if csc else None
        self._exchange = self.csc or DenseExchange(model.gradients, transport, model.loss_scale)

    def _csc(self, settings: CSCSettings, transport: Transport) -> CSC:
        if self.compressed:
            got = f"GradientFlow: got csc and the compressor {self.settings['compressor']}"
            raise ValueError(f"{got}; wanted one: both decide what is sent; next: leave out csc")
        model = self.model
        model.optimizer, momentum, decay = model.optimizer.split(settings.form in BEFORE)
        pools = model.gradients, model.parameters.flat
        residual = settings.residual(*pools, settings, momentum, decay, self.comm.Get_size())
        return CSC(settings, residual, transport, self._sum_small, model.loss_scale)

    def ready(self, index: int) -> None:
        """Gradient number `index` is final."""
        self._exchange.ready(index)

    def finish(self) -> StepResult:
        """All gradients are announced. Returns when their sums are in the pool."""
        self.result, self.steps = self._exchange.finish(), self.steps + 1
        self.calls, self.communication_s = self._exchange.calls, self._exchange.communication_s
        if self.compressed:
            self.compressed.end(self.result.accepted)
        return self.result

    def step(self, images: Array, labels: Array, global_batch: int, rate: float) -> float:
        """One training step; returns this rank's share of the loss."""
        return train_step(self.model, self, images, labels, global_batch, rate, self.observe)

    def evaluate(self, dataset: Dataset, batch: int = 64) -> tuple[int, int]:
        """(right answers, samples) of all ranks together. Collective."""
        return evaluate_together(self.model.network, dataset, self.comm, self._sum_small, batch)

    def require_same_parameters(self) -> str:
        """The hash of the parameters; ValueError on every rank if they differ."""
        return require_same_parameters(self._comms[1], self.model.parameters.flat, self.model.seen)

    def close(self) -> None:
        """End the threads, free the communicators, give the optimiser back. Collective."""
        self.model.optimizer = self._optimizer
        for worker in self._workers:
            worker.close()
        for comm in self._comms:
            comm.Free()
        closed: Any = Closed("GradientFlow")
        self._exchange = self._comms = self._sum_small = closed

    def __enter__(self) -> "GradientFlow":
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None:  # else other ranks do not close, and waiting for them would hide the error
            self.close()
