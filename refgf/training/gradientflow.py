"""GradientFlow: the stack of all parts, and the one object that a training loop talks to.

    with GradientFlow(comm, network, wire=np.float16, theta_bytes=2**20, density=10, overlap=True) as flow:
        for images, labels, global_batch in batches(...):
            loss = flow.step(images, labels, global_batch, rate)

    argument      is                                                    off
    allreduce     ring, direct, any schedule, or MPI's own              mpi_allreduce
    wire          the type in which gradients travel                    None: float32 or float64
    overlap       a communication thread                                False
    theta_bytes   lazy allreduce: wait for more than so many bytes      0: each gradient by itself
    groups        MG-WFBP: these gradients together, in place of theta  None
    density       CSC: how many percent of the chunks travel            None: all, without CSC

What each part does is in its module; here they are only put on top of each other:

    gradients -> [CSC: packed chunks ->] lazy or merged -> [communication thread ->] loss scale -> allreduce in the wire type

Source: GradientFlow (Sun et al. 2019).
"""

import contextlib
import functools
import hashlib
import math
from collections.abc import Callable, Iterable

import numpy

from refgf.comm import direct, ring
from refgf.comm.agreement import agree
from refgf.comm.schedule import collective
from refgf.comm.slices import length
from refgf.device import array_module, is_device
from refgf.engine.blocks import block_elements, blocks
from refgf.engine.pipelined import pipelined
from refgf.engine.sleeping import patient
from refgf.exchange.chunk_choice import Density
from refgf.exchange.csc import CHUNK_ELEMENTS, CSC
from refgf.exchange.lazy import LazyAllreduce
from refgf.exchange.overlap import CommunicationThread
from refgf.exchange.precision import LossScale, Unscaled
from refgf.machine.timeline import Timeline
from refgf.papers.jia.accumulate import accumulated_step
from refgf.papers.jia.doubling import recursive_doubling
from refgf.papers.jia.lars import LARS, ParallelNorms
from refgf.papers.mgwfbp.merged import MergedAllreduce, require_groups
from refgf.training.step import averaged_statistics, evaluate, replica, require_same_parameters, train_step

# what the argument `allreduce` may be: makes an Allreduce out of a communicator and a wire type
ring_allreduce = functools.partial(collective, algorithm=ring.allreduce)
direct_allreduce = functools.partial(collective, algorithm=direct.allreduce)
# the ring's bits, but it casts and adds while it sends; long segments, as each takes the core from somebody who computes,
# and four under way, as a rank that waits asleep, or for a core, may post the next one some milliseconds late
# (of float16 a segment has just the LONG elements for which fused.py takes its loops)
pipelined_ring_allreduce = functools.partial(pipelined, algorithm=ring.allreduce, segment_bytes=2**20, depth=4)


class GradientFlow:
    """A model and its exchange.

    comm         communicator; duplicated, so that its messages never meet others
    network      e.g. `AlexNet`; the model is `self.model`, initialised from `seed` alike on all ranks
    allreduce    called with (comm, wire=wire): `ring_allreduce`, `pipelined_ring_allreduce`, `direct_allreduce`,
                 `refgf.comm.native.mpi_allreduce`, or functools.partial(collective, algorithm=...) for any schedule;
                 `refgf.engine.shared.SharedMemory` for ranks of one node: dense float32 gradients then lie in shared memory,
                 `model.gradients` until `close`
    groups       ranges of gradients, see `MergedAllreduce`; without CSC, and without theta
    density      percent, or a `Density` with a warm-up; chunk, form, after: see `CSC`
    trust        LARS with this trust coefficient; under CSC with the form `history` only
    norms        LARS's norms: "alone", each rank forms all of them, or in parallel by "slices" or "layers" (`lars.py`)
    loss_scale   a `LossScale`; default 1
    half_weights forward and backward use weights rounded to float16; a network of float16 always does
    timeline     a `Timeline` that records what happened when

    After a step: `accepted`, `steps` (accepted or not), `loss_scale.skipped`, `communication_s` (how long the
    communication thread was busy), `calls` (the allreduces of this step).
    Collective to make, to use and to close. Errors: ValueError on every rank when the ranks' settings differ.
    """

    def __init__(self, comm, network, *, allreduce: Callable = ring_allreduce, wire=None, theta_bytes: float = math.inf,
                 groups: list[range] | None = None, density: float | Density | None = None, overlap: bool = False,
                 chunk: int = CHUNK_ELEMENTS, form: str = "dgc", after: bool = False, momentum: float = 0.9,
                 weight_decay: float = 0.0, trust: float | None = None, norms: str = "alone",
                 loss_scale: LossScale | None = None, half_weights: bool = False, seed: int = 0,
                 timeline: Timeline | None = None) -> None:  # fmt: skip
        if isinstance(density, int | float):
            density = Density(density)
        groups = _require_alone(groups, len(network.tensors), theta_bytes, density)
        self.comm, self.timeline, self.loss_scale = comm, timeline, loss_scale or LossScale()
        self.settings = {"wire": str(numpy.dtype(wire)) if wire else None, "theta_bytes": str(theta_bytes),
                         "groups": groups and [len(group) for group in groups],
                         "density": str(density), "chunk": chunk, "form": form, "after": after, "momentum": momentum,
                         "weight_decay": weight_decay, "trust": trust, "norms": norms,
                         "half_weights": half_weights}  # fmt: skip
        self.model = _model(network, density, form, momentum, weight_decay, trust, half_weights, seed)
        # one for the data, which a thread has to itself, one for the rest; beside a thread both wait asleep
        self._comms = [patient(comm.Dup()) if overlap else comm.Dup() for _ in range(2)]
        self._require_agreement()
        self._share_norms(norms)
        self._unscaled = self._thread = self._looking = self.csc = None
        send = self._transport(allreduce, wire, overlap, density)
        exchange = {"threshold_bytes": theta_bytes, "wire_itemsize": numpy.dtype(wire).itemsize if wire else None}
        if groups is not None:
            self._exchange = MergedAllreduce(self.model.gradients, send, groups, wait=self._wait)
        elif density is None:
            self._exchange = LazyAllreduce(self.model.gradients, send, wait=self._wait, **exchange)
        else:
            allreduce_norms = direct_allreduce(self._comms[1])
            self._exchange = self.csc = CSC(
                self.model.gradients, self.model.parameters.flat, send, allreduce_norms, comm.Get_size(), density,
                **exchange, **({"later": self._thread.run} if overlap else {}), wait=self._wait, loss_scale=self.loss_scale,
                chunk=chunk, form=form, momentum=momentum, weight_decay=weight_decay if trust is None else 0.0, after=after,
                span=self.span, span_later=functools.partial(self.span, lane="communication" if overlap else "compute"),
            )  # fmt: skip
        self.accepted, self.communication_s, self.steps = True, 0.0, 0

    def _transport(self, allreduce: Callable, wire, overlap: bool, density) -> Callable:
        """What an array goes through when it is sent, from the last stage to the first."""
        self._shared, gradients = None, self.model.gradients
        send = self._allreduce = allreduce(self._comms[0], wire=wire)
        if density is None and wire is None and hasattr(send, "zeros") and not is_device(gradients.flat):
            self._shared = send
            gradients.swap(send.zeros(gradients.flat.size, gradients.flat.dtype))
        if self.timeline:
            send = self.timeline.watched(send, itemsize=numpy.dtype(wire).itemsize if wire else None)
        if density is None:  # CSC has its own end of a step
            self._looking = CommunicationThread(None, "looking at sums") if overlap else None
            send = self._unscaled = Unscaled(send, self.loss_scale, self._looking)
        if overlap:
            self._thread = CommunicationThread(send)
        return self._thread if overlap and density is None else send  # CSC gives the thread more to do than sums

    # ---- what train_step asks for ----

    @property
    def scale(self) -> float:
        return self.loss_scale.scale

    @property
    def sent(self) -> list[slice] | None:
        """Which slices of the gradient pool hold sums after `finish`; None for all."""
        if self.csc is None:
            return None
        return self.csc.sent if self.waited is None else self.csc.sent_chunks

    @property
    def waited(self) -> list[int] | None:
        """For LARS under CSC: after how many steps each of the slices `sent` was sent again."""
        return self.csc.waited if self.csc and isinstance(self.model.optimizer, LARS) else None

    def span(self, name: str, lane: str = "compute"):
        return self.timeline.span(lane, name) if self.timeline else contextlib.nullcontext()

    def ready(self, index: int) -> None:
        """Gradient number `index` is final."""
        self._exchange.ready(index)

    def finish(self) -> bool:
        """All gradients are announced. Returns when their sums are in the pool: is the step accepted, on all ranks?"""
        if self.csc:
            self.accepted = self.csc.finish()
        else:
            with self.span("WAIT_FOR_DATA"):
                self._exchange.finish()
                self.accepted = self._unscaled.take()
            self.loss_scale.update(self.accepted)
        self.steps += 1
        return self.accepted

    def step(self, images, labels, global_batch: int, rate: float) -> float:
        """One training step; returns this rank's share of the loss."""
        return train_step(self.model, self, images, labels, global_batch, rate)

    def accumulate(self, parts: Iterable, global_batch: int, rate: float) -> float:
        """One training step of a batch that comes in parts, (images, labels) each: see `accumulated_step`."""
        return accumulated_step(self.model, self, parts, global_batch, rate)

    def evaluate(self, dataset, batch: int = 64) -> tuple[int, int]:
        """(right answers, samples) of all ranks together, with running statistics averaged over ranks."""
        allreduce, rank, size = direct_allreduce(self._comms[1]), self.comm.Get_rank(), self.comm.Get_size()
        with averaged_statistics(self.model.network, allreduce, size):
            counts = numpy.array(evaluate(self.model.network, dataset, rank, size, batch), numpy.float64)
        allreduce(counts)
        return int(counts[0]), int(counts[1])

    def require_same_parameters(self) -> str:
        """The hash of the parameters; ValueError on every rank if they differ."""
        return require_same_parameters(self._comms[1], self.model.parameters.flat)

    @property
    def calls(self) -> list:
        """The allreduces of the last step."""
        return self._exchange.calls

    def restore(self, steps: int, loss_scale: dict, chosen: list[int] | None) -> None:
        """What a checkpoint holds beside arrays (`checkpoint.py`)."""
        self.steps = steps
        self.loss_scale.restore(loss_scale)
        if self.csc:
            self.csc.steps, self.csc.chosen = steps, chosen

    def close(self) -> None:
        for thread in filter(None, (self._thread, self._looking)):
            thread.close()
        if self._shared:
            self.model.gradients.swap(self.model.gradients.flat.copy())
        if hasattr(self._allreduce, "close"):
            self._allreduce.close()
        for comm in self._comms:
            comm.Free()

    def __enter__(self) -> "GradientFlow":
        return self

    def __exit__(self, kind, error, traceback) -> None:
        if kind is None:  # otherwise the other ranks will not close, and waiting for them would hide the error
            self.close()

    def _wait(self) -> None:
        self.communication_s = self._thread.wait() if self._thread else 0.0

    def _share_norms(self, norms: str) -> None:
        """Let the ranks form LARS's norms together: 2L float64 by recursive doubling, as few messages as can be."""
        if norms == "alone":
            return
        if not isinstance(self.model.optimizer, LARS):
            raise ValueError(f"GradientFlow: got norms={norms!r} without LARS; wanted 'alone'; next: trust=0.001")
        allreduce = collective(self._comms[1], recursive_doubling)
        self.model.optimizer.norms = ParallelNorms(allreduce, self.comm.Get_rank(), self.comm.Get_size(), norms)

    def _require_agreement(self) -> None:
        agree(self._comms[1], "settings of GradientFlow", " ".join(map(str, self.settings.values())))
        layout = self.model.layout()
        agree(self._comms[1], "gradient pool", f"{hashlib.sha256(layout.encode()).hexdigest()[:16]}: {layout}")


class PlainSGD:
    """w <- w - rate g: the optimiser where momentum and decay already happened, before the exchange."""

    def __init__(self, parameters) -> None:
        self.parameters = parameters
        n = min(parameters.size, block_elements(parameters))
        self._scratch = array_module(parameters).empty(n, parameters.dtype)

    def step(self, gradients, rate: float, slices: Iterable[slice] | None = None) -> None:
        multiply = array_module(gradients).multiply
        for part in [slice(0, self.parameters.size)] if slices is None else slices:
            for block in blocks(self.parameters, part.start, part.stop):
                self.parameters[block] -= multiply(gradients[block], float(rate), out=self._scratch[: length(block)])


def _require_alone(groups, count: int, theta_bytes: float, density):
    """The groups as a list, or None; ValueError where something else decides too what travels together."""
    if groups is None:
        return None
    if density is not None or theta_bytes != math.inf:
        raise ValueError(
            f"GradientFlow: got groups beside theta_bytes {theta_bytes} and density {density}; wanted groups alone, as they "
            "take the place of theta and CSC packs its chunks by theta; next: leave out the groups, or the others"
        )
    return require_groups(groups, count)


def _model(network, density, form: str, momentum: float, weight_decay: float, trust, half_weights: bool, seed: int):
    """The replica, with those parts of the optimiser that CSC leaves to it."""
    csc = density is not None
    if csc and trust is not None and form != "history":
        raise ValueError(
            f"LARS under CSC: got form {form!r}; wanted 'history', as with the others momentum comes before the exchange "
            "and before the ratio; next: form='history', or trust=None"
        )
    model = replica(network, seed, momentum, 0.0 if csc else weight_decay, half_weights)
    if trust is not None:
        model.optimizer = LARS(network.tensors, model.parameters.flat, trust, momentum, weight_decay)
    elif csc and form.startswith("dgc"):
        model.optimizer = PlainSGD(model.parameters.flat)
    return model
