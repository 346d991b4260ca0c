"""DASO: nodes train by themselves, and meet only every few batches, a few batches late.

    batch (B = 4, W = 1)   0        1        2        3        4        5        6     ...   last
    in each node           average gradients, update, in every batch (every L-th, if L > 1)
    between nodes          send 0   receive                    send 1   receive              meet (blocking)
    communication thread   |=sum=====|                         |=sum=====|

    with DASO(comm, model, topology.nodes(comm), Phases(epochs), batches) as daso:
        for ...: loss = daso.step(images, labels, global_batch, rate)

Group j is the j-th rank of every node. One group at a time sums its PARAMETERS over the nodes; the groups take turns.
The sum is formed by a communication thread, as non-blocking calls make no progress by themselves, from a copy taken when
it was sent; the nodes go on. Whoever waits does so asleep (engine/sleeping.py), as those that do not wait need the cores. W
batches later the group's ranks merge what they have by then with it,

    w <- (2S w + sum) / (2S + m)          m nodes, S batches waited: the staler, the less the sum weighs

and hand the result to the other ranks of their node. In blocking phases, and in the last batch of each epoch, they wait at
once: w <- sum / m. Only then all ranks hold the same parameters, and only then their hashes may be compared. Momentum
never travels. A sum that is under way at the last batch is dropped, because that batch replaces it. bfloat16 has 8 binary
digits: in blocking phases an update smaller than 1/512 of its parameter is lost, every batch (`wire=None` keeps it).

Gradients of a node are summed and multiplied by m (each rank's loss is divided by the global batch), so that B = 1, W = 0
is synchronous training, on uneven shards too. Cost: `refgf.oracle.definitions.daso_traffic` counts every message; per
sum a ring over m ranks (2(m-1) messages, about 2(m-1)/m n elements; bfloat16 in blocking phases), per receipt a tree
over the k ranks of a node, per averaging a ring over them. Memory beyond the model: two copies of the parameters at most.

Source: Coquelin et al. 2022, with the authors' public code; the details are the statements A1 to A12 of oracle/SPEC.md.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from refgf import ops
from refgf.comm import tree
from refgf.comm.agreement import agree
from refgf.comm.direct import direct_allreduce
from refgf.comm.schedule import execute, on_ranks
from refgf.comm.slices import chunks, cut
from refgf.device import array_module
from refgf.exchange.result import StepResult
from refgf.exchange.overlap import CommunicationThread
from refgf.papers.daso.bfloat16 import ring_on_ranks
from refgf.training.step import Replica, evaluate_together, require_same_parameters, train_step

CHUNK_ELEMENTS = 10_000_000
BLOCK_ELEMENTS = 131_072  # of a merge: stays in the cache


@dataclass(frozen=True)
class Sum:
    """A sum of parameters that is under way.

    due: the batch in which it is received; waited: batches from sending to receipt; group: who summed;
    total: (n,) on the ranks of the group, None elsewhere
    """

    due: int
    waited: int
    group: int
    total: object = None


class DASO:
    """A model that is trained by DASO.

    comm      communicator; duplicated, so that its messages never meet others
    nodes     ranks of each node, equally many on each: `topology.nodes(comm)`, or pretended, `hierarchical.blocks(p, k)`
    phases    a `Phases` or a `Constant`
    batches   batches of an epoch
    wire      "bfloat16" or None: how parameters travel in blocking phases
    chunk     elements of one sum at most

    After a step: `synchronised` (do all ranks hold the same parameters?), `waited_s` (how long this rank has waited for
    sums, all in all). Collective to make, to use and to close. Errors: ValueError on every rank when nodes differ in
    size or the ranks' settings differ; on the rank that receives it when a sum is not finite.
    """

    def __init__(
        self,
        comm,
        model: Replica,
        nodes: Sequence[Sequence[int]],
        phases,
        batches: int,
        *,
        wire: str | None = "bfloat16",
        chunk: int = CHUNK_ELEMENTS,
    ) -> None:
        _check(comm, nodes, batches)
        self.comm, self.phases, self.batches, self.chunk = comm, phases, batches, chunk
        self.model = model
        self.node = list(next(node for node in nodes if comm.Get_rank() in node))
        self.place, self.nodes = self.node.index(comm.Get_rank()), len(nodes)  # place: the number of this rank's group
        self._comms = [ops.background(comm.Dup()) for _ in range(2)]  # one for the thread, one for the rest
        settings = f"{nodes} {phases} {batches} {wire} {chunk} {model.optimizer.settings}"
        agree(self._comms[1], "settings of DASO", f"{settings} {self.model.layout()}")
        group = [node[self.place] for node in nodes]
        self._sum_late = ring_on_ranks(self._comms[0], group)
        self._thread = CommunicationThread()
        self._sum_at_once = {kind: ring_on_ranks(self._comms[1], group, kind) for kind in (None, wire)}
        self._sum_in_node = ring_on_ranks(self._comms[1], self.node)
        self.wire, self.batch, self.synchronised, self.waited_s = wire, 0, True, 0.0
        self._under_way, self._loss = None, 0.0

    def step(self, images, labels, global_batch: int, rate: float) -> float:
        """One batch; returns this rank's share of the loss. The last one of an epoch ends it."""
        loss = train_step(self.model, self, images, labels, global_batch, rate)
        self._meet()
        self._loss += loss
        self.batch += 1
        if self.batch == self.batches:
            self._end_epoch()
        return loss

    # ---- what train_step asks for ----

    def ready(self, index: int) -> None:
        """A node's links are fast: gradients are summed in one call at the end."""

    def finish(self) -> StepResult:
        """Average the gradients in the node, if it is their turn."""
        gradients, factor = self.model.gradients.flat, self.comm.Get_size()
        if self.phases.now.averages(self.batch, self.batches):
            self._sum_in_node(gradients)
            factor = self.nodes
        if factor != 1:
            gradients *= gradients.dtype.type(factor)
        return StepResult()

    # ---- between nodes ----

    def _meet(self) -> None:
        """After the update: send, and receive what is due."""
        phase, late = self.phases.now, self._under_way
        group = phase.sender(self.batch, self.batches, len(self.node))
        self.synchronised = False
        if group is not None and phase.wait_after(self.batch, self.batches) == 0:
            self._meet_at_once(group)
            return
        # a sum that is due now is merged after the copy for the next one is taken, and leaves the thread to it
        sent = self._copy(group)
        if late and late.due == self.batch:
            self._receive(late)
        if group is not None:
            self._send(group, sent)

    def _meet_at_once(self, group: int) -> None:
        """Blocking: the average over nodes replaces the parameters."""
        if self._under_way:
            assert self._under_way.due == self.batch  # no wait is longer than the epoch
            self._wait()
            self._under_way = None
        w = self.model.parameters.flat
        if self._sums(group):
            allreduce = self._sum_at_once[self.wire if self.phases.now.blocking else None]
            for part in chunks(w.size, self.chunk):
                allreduce(w[part])
            self._require_finite(w)
            w /= w.dtype.type(self.nodes)
        self.spread(group)
        self.synchronised = True

    def _copy(self, group: int | None):
        return self.model.parameters.flat.copy() if self._sums(group) else None

    def _send(self, group: int, sent) -> None:
        """Hand the copy to the thread."""
        waited = self.phases.now.wait_after(self.batch, self.batches)
        self._under_way = Sum(self.batch + waited, waited, group, sent)
        if sent is not None:
            for part in chunks(sent.size, self.chunk):
                self._thread.run(self._sum_late, sent[part])

    def _receive(self, late: Sum) -> None:
        self._under_way = None
        if late.total is not None:
            self._wait()
            self._require_finite(late.total)
            merge(self.model.parameters.flat, late.total, self.nodes, late.waited)
        self.spread(late.group)

    def _sums(self, group: int | None) -> bool:
        """Does this rank take part in the sums of this group? One node has nothing to sum."""
        return group == self.place and self.nodes > 1

    def _wait(self) -> None:
        start_s = time.perf_counter()
        self._thread.wait()
        self.waited_s += time.perf_counter() - start_s

    def spread(self, group: int) -> None:
        """The group's member hands its parameters to the other ranks of its node, along a tree; all compute with these."""
        turned, k, w = self.node[group:] + self.node[:group], len(self.node), self.model.parameters.flat
        execute(self._comms[1], on_ranks(turned, tree.broadcast((self.place - group) % k, k, w.size)), w)
        if self.model.working:
            self.model.working.refresh()

    def _require_finite(self, total) -> None:
        if not ops.unscale(total, 1):
            raise ValueError(
                f"DASO on rank {self.comm.Get_rank()}, batch {self.batch}: got a sum of parameters that is infinite or NaN; "
                "wanted finite ones; next: a smaller learning rate or a longer warm-up"
            )

    # ---- the end of an epoch, evaluation ----

    def _end_epoch(self) -> None:
        """All ranks' loss decides about the next phase, so that all decide alike."""
        loss = np.array([self._loss / self.batches])
        direct_allreduce(self._comms[1])(loss)
        self.phases.end_epoch(float(loss[0]))
        self.batch, self._loss = 0, 0.0

    def evaluate(self, dataset, batch: int = 64) -> tuple[int, int]:
        """(right answers, samples) of all ranks together; only where all hold the same parameters."""
        self._require_synchronised("evaluate")
        allreduce = direct_allreduce(self._comms[1])
        return evaluate_together(self.model.network, dataset, self.comm, allreduce, batch)

    def require_same_parameters(self) -> str:
        """The hash of the parameters; ValueError on every rank if they differ, or if they are bound to."""
        self._require_synchronised("require_same_parameters")
        return require_same_parameters(self._comms[1], self.model.parameters.flat)

    def _require_synchronised(self, operation: str) -> None:
        if not self.synchronised:
            raise ValueError(
                f"DASO.{operation}: got batch {self.batch} of {self.batches} of a cycling epoch, where nodes hold different "
                "parameters; wanted a blocking sum before; next: call it at the end of an epoch"
            )

    def close(self) -> None:
        """End the thread; a sum that is under way is formed, and dropped."""
        self._thread.wait()
        self._thread.close()
        for comm in self._comms:
            comm.Free()

    def __enter__(self) -> "DASO":
        return self

    def __exit__(self, kind, error, traceback) -> None:
        if kind is None:  # otherwise the other ranks will not close, and waiting for them would hide the error
            self.close()


def merge(w, total, nodes: int, waited: int) -> None:
    """w <- (2S w + total) / (2S + m), in place, block by block; each operation rounded by itself."""
    own = w.dtype.type(2 * waited if waited else 1)
    for block in cut(slice(0, w.size), BLOCK_ELEMENTS):
        part = w[block]
        part *= own
        array_module(part).add(part, total[block], out=part)
        part /= own + w.dtype.type(nodes)


def _check(comm, nodes, batches: int) -> None:
    got = f"DASO: got nodes {[list(node) for node in nodes]}"
    if sorted(rank for node in nodes for rank in node) != list(range(comm.Get_size())):
        raise ValueError(f"{got}; wanted every rank of 0..{comm.Get_size() - 1} once; next: topology.nodes(comm)")
    if len({len(node) for node in nodes}) > 1:
        raise ValueError(f"{got}; wanted equally many ranks on each, as a group has one of every node; next: as many on each")
    if batches < 1:
        raise ValueError(f"DASO: got {batches} batches; wanted at least 1 in an epoch")
