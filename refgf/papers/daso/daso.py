"""DASO: nodes train separately and synchronise only every few batches, a few batches late.

    batch (B = 4, W = 1)   0        1        2        3        4        5        ...   last
    in each node           average gradients, update, in every batch (every L-th if L > 1)
    between nodes          send 0   receive                    send 1   receive        block
    communication thread   |=sum=====|                         |=sum=====|

    with DASO(comm, model, topology.nodes(comm), Phases(epochs), batches) as daso:
        for ...: loss = daso.step(images, labels, global_batch, rate)

Group j is the j-th rank of every node. One group at a time sums its PARAMETERS over the nodes; the
groups take turns. A communication thread (`exchange/overlap.py` says why) forms the sum from a copy
of the parameters. Meanwhile the nodes continue to train. Waits sleep (`ops.background`), because
computing ranks need the cores. W batches later each rank of the
group merges the sum with its present parameters,

    w <- (2S w + sum) / (2S + m)        m nodes; the sum is S batches old, and the older, the less
                                        it weighs

and broadcasts the result to the other ranks of its node. In blocking phases, and in the last batch
of each epoch, the ranks wait at once: w <- sum / m. Only after such a batch do all ranks hold the
same parameters, so only then may their hashes be compared. Momentum is never communicated. A sum
that is in flight at the last batch is discarded, because that batch replaces it. bfloat16 has 8
binary digits: in blocking phases each batch loses an update smaller than 1/512 of its parameter
(not with `wire=None`).

The sum of a node's gradients is multiplied by m, because each rank's loss is divided by the global
batch. So B = 1, W = 0 is synchronous training, on uneven shards too.

Cost: `refgf.oracle.definitions.daso_traffic` counts every message. Per sum a ring over m ranks:
2(m-1) messages, about 2(m-1)/m n elements, bfloat16 in blocking phases. Per receipt a tree over the
k ranks of a node; per averaging a ring over them. Memory beyond the model: at most two copies of
the parameters.

Source: Coquelin et al. 2022, by the authors' public code (Heat): receipt and averaging as its
documentation has them, all else as the code, but for what is chosen. The details are the statements
A1 to A12 of oracle/SPEC.md. `heat.py` has the phases of the form `heat`, which does what that code
does (A13 to A20).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from refgf import ops
from refgf.arguments import checked, require, shown
from refgf.comm import tree
from refgf.comm.agreement import agree
from refgf.comm.arguments import Comm
from refgf.comm.compose import on_ranks
from refgf.comm.direct import direct_allreduce
from refgf.comm.schedule import execute
from refgf.comm.slices import chunks
from refgf.device import Array
from refgf.exchange.overlap import CommunicationThread
from refgf.exchange.result import StepResult
from refgf.papers.daso.bfloat16 import ring_on_ranks
from refgf.papers.daso.merge import merge  # noqa: F401  lessons take it from here
from refgf.training.data import Dataset
from refgf.training.evaluation import evaluate_together
from refgf.training.step import Replica, require_same_parameters, train_step

CHUNK_ELEMENTS = 10_000_000


@checked
@dataclass(frozen=True)
class PendingSum:
    """A sum of parameters in flight.

    due     the batch in which it is received
    waited  S of the merge: batches for which it was to wait, as fixed when it was sent
    group   the group that sums
    total   (n,) on the ranks of the group, None elsewhere
    """

    due: int
    waited: int
    group: int
    total: object = None


@checked
class DASO:
    """Trains a model by DASO. Collective to make, to use and to close.

    comm      communicator; duplicated, so that its messages never meet others
    model     a `Replica`
    nodes     the ranks of each node, the same number on each: `topology.nodes(comm)`, or pretended
              ones
    phases    a `Phases` or a `Constant`; a `HeatPhases` for the form `heat`
    batches   batches in an epoch
    wire      "bfloat16" or None: the type in which blocking phases send parameters
    chunk     most elements of one sum

    After a step: `synchronised` (do all ranks hold the same parameters?) and `waited_s` (seconds
    for which this rank has waited for sums, in total). Errors: ValueError on every rank when nodes
    differ in size, the ranks' settings differ or, seen by `require_same_parameters`, their rates
    and global batches; on the receiving rank when a sum is not finite.
    """

    def __init__(
        self,
        comm: Comm,
        model: Replica,
        nodes: Sequence[Sequence[int]],
        phases,
        batches: int,
        *,
        wire: str | None = "bfloat16",
        chunk: int = CHUNK_ELEMENTS,
    ) -> None:
        _check(comm, nodes, batches, chunk)
        require(
            hasattr(phases, "now") and callable(getattr(phases, "end_epoch", None)),
            f"DASO on rank {comm.Get_rank()}",
            f"phases={shown(phases)}",
            "a Phases or Constant, or what has their now and end_epoch",
            "Phases(epochs)",
        )
        self.comm, self.phases, self.batches, self.chunk = comm, phases, batches, chunk
        self.model = model
        self.node = list(next(node for node in nodes if comm.Get_rank() in node))
        self.place = self.node.index(comm.Get_rank())  # the number of this rank's group
        self.nodes = len(nodes)
        # one communicator for the thread, one for the rest
        self._comms = [ops.background(comm.Dup()) for _ in range(2)]
        settings = f"{nodes} {phases} {batches} {wire} {chunk} {model.optimizer.settings}"
        agree(self._comms[1], "settings of DASO", f"{settings} {self.model.layout()}")
        group = [node[self.place] for node in nodes]
        self._sum_in_thread = ring_on_ranks(self._comms[0], group)
        self._thread = CommunicationThread()
        kinds = (None, wire)
        self._sum_at_once = {kind: ring_on_ranks(self._comms[1], group, kind) for kind in kinds}
        self._sum_in_node = ring_on_ranks(self._comms[1], self.node)
        self.wire, self.batch, self.synchronised, self.waited_s = wire, 0, True, 0.0
        self._pending, self._spare, self._loss = None, None, 0.0
        self._steps = 0  # rates and global batches of all steps

    def step(self, images: Array, labels: Array, global_batch: int, rate: float) -> float:
        """One batch; returns this rank's share of the loss. The last batch of an epoch ends it."""
        self._require_open("step")
        loss = train_step(self.model, self, images, labels, global_batch, rate)
        self._steps = hash((self._steps, float(rate), int(global_batch)))
        self._synchronise()
        self._loss += loss
        self.batch += 1
        if self.batch == self.batches:
            self._end_epoch()
        return loss

    # ---- the exchange of train_step ----

    def ready(self, index: int) -> None:
        """Does nothing: links in a node are fast, so one call at the end sums all."""

    def finish(self) -> StepResult:
        """Average the gradients in the node in the batches in which the phase does."""
        gradients, factor = self.model.gradients.flat, self.comm.Get_size()
        if self.phases.now.averages(self.batch, self.batches):
            self._sum_in_node(gradients)
            factor = self.nodes
        if factor != 1:
            gradients *= gradients.dtype.type(factor)
        return StepResult()

    # ---- between nodes ----

    def _synchronise(self) -> None:
        """After the update: send parameters, and receive the sum that is due."""
        phase, pending = self.phases.now, self._pending
        group = phase.sender(self.batch, self.batches, len(self.node))
        self.synchronised = False
        if group is not None and phase.wait_after(self.batch, self.batches) == 0:
            self._synchronise_at_once(group)
            return
        # a sum that is due now is merged after the copy for the next one is taken: the thread is
        # then free for the next
        sent = self._copy() if self._takes_part(group) else None
        again = phase.spreads_again(self.batch, self.batches, len(self.node))
        if pending and pending.due == self.batch:
            self._receive(pending)
        elif again is not None:
            self.spread(again)
        if group is not None:
            self._send(group, sent)

    def _synchronise_at_once(self, group: int) -> None:
        """Blocking: the average over nodes replaces the parameters."""
        if self._pending:
            assert self._pending.due == self.batch  # no wait is longer than the epoch
            self._wait()
            self._pending = None
        w, phase = self.model.parameters.flat, self.phases.now
        if self._takes_part(group):
            wire = self.wire if phase.blocking else None
            phase.round(w, wire)
            for part in chunks(w.size, self.chunk):
                self._sum_at_once[wire](w[part])
            self._require_finite(w)
            w /= w.dtype.type(self.nodes)
            phase.round(w, wire)
        self.spread(group)
        self.synchronised = True

    def _copy(self):
        """The parameters, in the memory of a received sum: new pages take time to touch."""
        w, copy, self._spare = self.model.parameters.flat, self._spare, None
        if copy is None:
            return w.copy()
        copy[:] = w
        return copy

    def _send(self, group: int, sent) -> None:
        """Hand the copy to the communication thread."""
        waited = self.phases.now.wait_after(self.batch, self.batches)
        due = self.phases.now.received_in(self.batch, self.batches)
        self._pending = PendingSum(due, waited, group, sent)
        if sent is not None:
            for part in chunks(sent.size, self.chunk):
                self._thread.run(self._sum_in_thread, sent[part])

    def _receive(self, pending: PendingSum) -> None:
        self._pending = None
        if pending.total is not None:
            self._wait()
            self._require_finite(pending.total)
            w = self.model.parameters.flat
            self.phases.now.merge(w, pending.total, self.nodes, pending.waited)
            self._spare = pending.total
        self.spread(pending.group)

    def _takes_part(self, group: int | None) -> bool:
        """Does this rank sum with this group? A single node has nothing to sum."""
        return group == self.place and self.nodes >= self.phases.now.fewest_nodes

    def _wait(self) -> None:
        start_s = time.perf_counter()
        self._thread.wait()
        self.waited_s += time.perf_counter() - start_s

    def spread(self, group: int) -> None:
        """Broadcast the parameters of the group's member to the other ranks of its node."""
        k, w = len(self.node), self.model.parameters.flat
        rotated = self.node[group:] + self.node[:group]  # the member of the group is the root
        schedule = tree.broadcast((self.place - group) % k, k, w.size)
        execute(self._comms[1], on_ranks(rotated, schedule), w)
        if self.model.working:
            self.model.working.refresh()

    def _require_finite(self, total) -> None:
        if not ops.unscale(total, 1):
            raise ValueError(
                f"DASO on rank {self.comm.Get_rank()}, batch {self.batch}: got a sum of parameters "
                "that is infinite or NaN; wanted finite ones; next: a smaller learning rate or a "
                "longer warm-up"
            )

    # ---- the end of an epoch, evaluation ----

    def _end_epoch(self) -> None:
        """The loss of all ranks decides on the next phase, so every rank decides alike."""
        loss = np.array([self._loss / self.batches])
        direct_allreduce(self._comms[1])(loss)
        self.phases.end_epoch(float(loss[0]))
        self.batch, self._loss = 0, 0.0

    def evaluate(self, dataset: Dataset, batch: int = 64) -> tuple[int, int]:
        """(right answers, samples) of all ranks; ValueError where parameters differ."""
        self._require_synchronised("evaluate")
        allreduce = direct_allreduce(self._comms[1])
        return evaluate_together(self.model.network, dataset, self.comm, allreduce, batch)

    def require_same_parameters(self) -> str:
        """The hash of the parameters; ValueError on every rank unless they are the same."""
        self._require_synchronised("require_same_parameters")
        return require_same_parameters(self._comms[1], self.model.parameters.flat, self._steps)

    def _require_open(self, operation: str) -> None:
        then = "make a new one, or indent the call into the `with` block"
        require(bool(self._comms), f"DASO.{operation}", "a call after close", "it before", then)

    def _require_synchronised(self, operation: str) -> None:
        self._require_open(operation)
        if not self.synchronised:
            raise ValueError(
                f"DASO.{operation} on rank {self.comm.Get_rank()}: got batch {self.batch} of "
                f"{self.batches} of a cycling epoch, where nodes hold different parameters; wanted "
                "a blocking sum before; next: call it at the end of an epoch"
            )

    def close(self) -> None:
        """End the thread. A sum in flight is formed and discarded. Collective."""
        self._thread.wait()
        self._thread.close()
        for comm in self._comms:
            comm.Free()
        self._comms = []

    def __enter__(self) -> "DASO":
        return self

    def __exit__(self, kind, error, traceback) -> None:
        if kind is None:  # else other ranks do not close, and waiting for them would hide the error
            self.close()


def _check(comm: Comm, nodes: Sequence[Sequence[int]], batches: int, chunk: int) -> None:
    rank, size = comm.Get_rank(), comm.Get_size()
    got = f"DASO on rank {rank}: got nodes {[list(node) for node in nodes]}"
    if sorted(rank for node in nodes for rank in node) != list(range(size)):
        raise ValueError(
            f"{got}; wanted every rank of 0..{size - 1} once; next: topology.nodes(comm)"
        )
    if len({len(node) for node in nodes}) > 1:
        raise ValueError(
            f"{got}; wanted equally many ranks on each, because a group has one of every node; "
            "next: start the same number of ranks on each node"
        )
    numbers = f"batches={batches}, chunk={chunk}"
    require(
        min(batches, chunk) >= 1,
        f"DASO on rank {rank}",
        numbers,
        "at least 1 batch in an epoch and 1 element in a chunk",
        "steps_per_epoch(...), and no chunk",
    )
