"""Your own compressor (sparsifier, quantiser): an allreduce that sends an approximation.

    class SignSGD(Compressor): ...                       papers/signsgd is a complete one
    GradientFlow(comm, model, allreduce=SignSGD, ...)    with any theta, overlap, checkpoints
    allreduce=functools.partial(RandomK, percent=20)     for one that takes options

A compressor stores what it has not sent. That state must survive a step that is not accepted (an
infinity on any rank), a change of the loss scale, and a checkpoint. So `sum` is given unscaled
gradients, `end` says whether the step was accepted, and `state` is what a checkpoint stores.
"""

import abc

import numpy as np

from refgf import ops
from refgf.device import Array
from refgf.exchange.precision import LossScale


class Compressor(abc.ABC):
    """Base class. GradientFlow calls the subclass with (comm, wire=wire); wire: a dtype or None.

    comm has Get_rank, Get_size, Send, Recv and Sendrecv of flat arrays of any type, and the module
    refgf.comm.gather gathers arrays of one length. Theta counts bytes as if uncompressed.
    """

    @abc.abstractmethod
    def start(self, gradients: Array) -> None:
        """Called once. gradients (n,): the pool, to allocate state of its length and type."""

    @abc.abstractmethod
    def sum(self, x: Array, elements: slice) -> None:
        """x (k,) <- the approximate sum over all ranks; x is the pool's slice `elements`.

        A step's calls cover all n elements, in order; with overlap the communication thread makes
        them. All ranks must end with the same bits, with a non-finite element if any rank's x had
        one. x is unscaled: before a 16-bit wire scale it yourself. `state` must not change before
        `end(True)`; a counter that seeds random choices belongs to it.
        """

    @abc.abstractmethod
    def end(self, accepted: bool) -> None:
        """The step is over. Only if it was accepted, commit its changes to `state`."""

    @property
    @abc.abstractmethod
    def state(self) -> dict[str, Array]:
        """This rank's arrays by name, for a checkpoint, which writes into them when it resumes."""


class Compressed:
    """The Allreduce that a `Compressor` makes; its calls cover the pool in order, without gaps."""

    def __init__(self, compressor: Compressor, gradients: Array, loss_scale: LossScale) -> None:
        self.compressor, self.loss_scale = compressor, loss_scale
        self._next = 0  # first element that was not summed in this step
        compressor.start(gradients)

    def __call__(self, x: Array) -> None:
        elements = slice(self._next, self._next + x.size)
        self._next = elements.stop
        with np.errstate(over="ignore", invalid="ignore"):  # an infinity: the step is refused
            ops.unscale(x, 1 / self.loss_scale.scale)
            self.compressor.sum(x, elements)
            x *= self.loss_scale.scale

    def end(self, accepted: bool) -> None:
        """The step is over."""
        self._next = 0
        self.compressor.end(accepted)
