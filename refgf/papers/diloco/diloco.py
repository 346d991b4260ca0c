"""DiLoCo: ranks train alone for H inner steps, then take one outer step together. The naive form.

    inner steps    0   1   2   ...  H-1              H  H+1 ...
    a rank         update by its own gradients       the same, from the new start
    all ranks                        |=sum=| outer   all wait for the sum

    d     <- sum over ranks of (start - w) / p       the outer gradient
    v     <- m v + d                                 the outer velocity, alike on all ranks
    start <- start - rate (d + m v)                  Nesterov's step; every operation is rounded
    w     <- start

    with DiLoCo(comm, model, inner_steps=500) as diloco:
        for ...: loss = diloco.step(images, labels, global_batch, inner_rate)

After an outer step all ranks hold the same bits, because d has the same bits on all of them. With
rate 1 and momentum 0 that step takes the mean of the parameters. The inner optimiser's state stays
on its rank. A rank's own gradient is multiplied by p, because its loss is divided by the global
batch. The ranks of a `node` average their gradients in every inner step: the node is then one
worker, and `allreduce` should be a two-level one.

Cost per outer step and rank r: that of `allreduce`, for a ring 2(p-1) messages and
2n - |slice r+1| - |slice r+2| elements; an inner step sends nothing, or a ring in the node. So
bytes per step are those of synchronous training divided by H. Memory beyond the model: start and v,
two arrays (n,); d lies in the gradient pool.

Statements A21 to A23. Source: Douillard et al. 2023 (arXiv 2311.08105): inner AdamW, outer Nesterov
momentum, H = 500. A21 says where the defaults 0.7 and 0.9 are from. The inner optimiser is the
model's own here. Order of sums and of rounding: ours.
"""

import math
from collections.abc import Callable, Sequence

from refgf import ops
from refgf.arguments import checked, require
from refgf.comm import ring
from refgf.comm.agreement import agree, function_name
from refgf.comm.arguments import Comm
from refgf.comm.compose import on_ranks
from refgf.comm.direct import direct_allreduce
from refgf.comm.ring import ring_allreduce
from refgf.comm.schedule import execute
from refgf.device import Allreduce, Array
from refgf.exchange.result import Closed, StepResult
from refgf.training.data import Dataset
from refgf.training.evaluation import evaluate_together
from refgf.training.step import Replica, require_same_parameters, train_step


@checked
class DiLoCo:
    """Trains a model by DiLoCo. Collective to make, to use and to close.

    comm         communicator; duplicated, so that its messages never meet others
    model        a `Replica`, the same on all ranks
    inner_steps  H
    rate         of the outer step; momentum: its m, 0 <= m < 1
    node         ranks whose gradients are averaged in every step, this one among them, the same
                 number in each node; none: this rank alone
    allreduce    called with (comm); sums the differences

    After a step: `synchronised` (do all ranks hold the same parameters?). Errors: ValueError on
    every rank when their settings differ or the outer gradient is not finite.
    """

    def __init__(
        self,
        comm: Comm,
        model: Replica,
        inner_steps: int = 500,
        *,
        rate: float = 0.7,
        momentum: float = 0.9,
        node: Sequence[int] = (),
        allreduce: Callable[[Comm], Allreduce] = ring_allreduce,
    ) -> None:
        rank, size = comm.Get_rank(), comm.Get_size()
        got = f"inner_steps={inner_steps}, rate={rate}, momentum={momentum}"
        right = inner_steps >= 1 and 0 < rate < math.inf and 0 <= momentum < 1
        wanted = "inner_steps >= 1, a finite rate > 0, 0 <= momentum < 1"
        require(right, f"DiLoCo on rank {rank}", got, wanted, "500, 0.7, 0.9")
        self.node, wanted = list(node) or [rank], f"ranks of 0..{size - 1}, each once, {rank} too"
        ranks = {one for one in self.node if 0 <= one < size}
        right = rank in ranks and len(ranks) == len(self.node)
        require(right, f"DiLoCo on rank {rank}", f"node={self.node}", wanted, "leave out node")
        scale = model.loss_scale.scale
        then = "a model without a loss scale"
        require(scale == 1, f"DiLoCo on rank {rank}", f"loss scale {scale}", "1", then)
        self.comm, self.model, self.inner_steps = comm, model, inner_steps
        self.rate, self.momentum = rate, momentum
        self._comm = comm.Dup()
        settings = f"{got}, {len(self.node)} ranks in a node, {function_name(allreduce)}"
        agree(self._comm, "settings of DiLoCo", f"{settings} {model.optimizer.settings}")
        agree(self._comm, "gradient pool", model.layout())
        self._sum, self._sum_small = allreduce(self._comm), direct_allreduce(self._comm)
        self.start = model.parameters.flat.copy()  # (n,) parameters after the last outer step
        self.velocity = self.start - self.start  # (n,), each +0
        self.inner = 0  # inner steps since then

    @property
    def synchronised(self) -> bool:
        return self.inner == 0

    def step(self, images: Array, labels: Array, global_batch: int, rate: float) -> float:
        """One inner step, and an outer one after H of them. This rank's share of the loss."""
        loss = train_step(self.model, self, images, labels, global_batch, rate)
        self.inner += 1
        if self.inner == self.inner_steps:
            self.synchronise()
        return loss

    # ---- the exchange of train_step ----

    def ready(self, index: int) -> None:
        """Does nothing: gradients stay in the node."""

    def finish(self) -> StepResult:
        """The mean gradient of the node's samples."""
        gradients, k = self.model.gradients.flat, len(self.node)
        if k > 1:
            inside = ring.allreduce(self.node.index(self.comm.Get_rank()), k, gradients.size)
            execute(self._comm, on_ranks(self.node, inside), gradients)
        gradients *= gradients.dtype.type(self.comm.Get_size() / k)
        return StepResult()

    # ---- the outer step ----

    def synchronise(self) -> None:
        """The outer step: after H inner steps, or earlier, as before an evaluation. Collective.

        Does nothing where all ranks hold the same parameters.
        """
        if self.synchronised:
            return
        w, d, v = self.model.parameters.flat, self.model.gradients.flat, self.velocity
        kind = w.dtype.type
        d[...] = self.start
        d -= w
        self._sum(d)
        if not ops.unscale(d, 1):
            raise ValueError(
                f"DiLoCo on rank {self.comm.Get_rank()}: got an outer gradient that is infinite or "
                "NaN; wanted a finite one; next: a smaller learning rate, or fewer inner steps"
            )
        d /= kind(self.comm.Get_size())
        v *= kind(self.momentum)
        v += d
        w[...] = v  # scratch until its new value is known
        w *= kind(self.momentum)
        w += d
        w *= kind(self.rate)
        self.start -= w
        w[...] = self.start
        self.inner = 0
        if self.model.working:
            self.model.working.refresh()

    # ---- evaluation, the end ----

    def evaluate(self, dataset: Dataset, batch: int = 64) -> tuple[int, int]:
        """(right answers, samples) of all ranks; ValueError between two outer steps."""
        self._require_synchronised("evaluate")
        return evaluate_together(self.model.network, dataset, self.comm, self._sum_small, batch)

    def require_same_parameters(self) -> str:
        """The hash of the parameters; ValueError on every rank unless they are the same."""
        self._require_synchronised("require_same_parameters")
        return require_same_parameters(self._comm, self.model.parameters.flat, self.model.seen)

    def _require_synchronised(self, operation: str) -> None:
        require(
            self.synchronised,
            f"DiLoCo.{operation} on rank {self.comm.Get_rank()}",
            f"inner step {self.inner} of {self.inner_steps}, where parameters differ",
            "an outer step before",
            "call synchronise()",
        )

    def close(self) -> None:
        """Collective."""
        self._comm.Free()
        self._comm = self._sum = self._sum_small = Closed("DiLoCo")

    def __enter__(self) -> "DiLoCo":
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is None:  # else other ranks do not close, and waiting for them would hide the error
            self.close()
