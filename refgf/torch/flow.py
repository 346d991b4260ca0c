"""CSC as a communication hook of DistributedDataParallel, and the optimiser's half of it.

    backward    bucket 0 -> a of its chunks -> chosen ones packed -> all_reduce    all of these run
                bucket 1 -> ...                                   -> all_reduce    side by side
                the last -> ... and one all_reduce of all chunks' norms and a flag
    then        accepted by all ranks? -> the sums go into DDP's buckets, the next chunks are chosen

Chunks are chosen a step ahead, so what is sent is dense: one all_reduce of k numbers a bucket, and
no indices. In backward the host waits for the step before only. Cost per rank and step: all_reduces
of k <= n elements of the wire type, and one of C + 1 float64. Memory: 4 n float32 (`dgc`), 3 n
else. NCCL has run it on one GPU only (docs/gpu.md).
"""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from refgf.torch import checkpoint
from refgf.torch.backward import Backward, Future
from refgf.torch.optimizers import compared, stepping_scaler
from refgf.torch.pool import learnable
from refgf.torch.residual import BEFORE, LocalResidual
from refgf.torch.settings import A_THOUSAND, Chunks, FlowSettings, Warmup
from refgf.torch.wrong import on_all_ranks, require, require_alike

PATIENCE = 50  # steps in a row that may be refused


class GradientFlow:
    """CSC for a DDP model and its optimiser. Collective to make; one for a model.

    density      percent of the chunks that are sent, after the warm-up
    warmup       a `Warmup`; a percent of 100 is dense; None: no warm-up
    form         momentum correction: dgc, dgc_masked, history, none. All but `none` need SGD, whose
                 momentum and weight decay are taken over, and given back by `close`
    wire         torch.float16 or torch.bfloat16; None: float32
    chunks       a `Chunks`: their size and how they are ranked
    scaler       the loop's torch.amp.GradScaler, if it has one

    After a step: `chosen` (chunks of the next one; None: all), `sent` (elements of the last one),
    `steps`, `accepted` (the last one). A step with an infinity or NaN on any rank, in a chunk that
    is sent or not, is refused on all: no weight, residual or choice changes.
    Errors: ValueError for what cannot work, on one rank or on all, and for settings that differ
    between ranks: on every rank, so none waits; in backward after 50 refused steps in a row, and
    where the optimiser has not stepped since the last one.
    """

    def __init__(
        self,
        model: DistributedDataParallel,
        optimizer: torch.optim.Optimizer,
        *,
        density: float = 10.0,
        warmup: Warmup | None = None,
        form: str = "dgc",
        wire: torch.dtype | None = None,
        chunks: Chunks = A_THOUSAND,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        model = getattr(model, "_orig_mod", model)  # torch.compile(model)
        self.model, self.optimizer, self.scaler = model, optimizer, scaler
        self.form, self.wire, self.chunks = form, wire, chunks
        self.group: Any = getattr(model, "process_group", None)  # None: all ranks
        self._closed = True  # for the ranks that have registered it, if one cannot
        made: FlowSettings = on_all_ranks(self.group, FlowSettings, self, density, warmup)
        self.scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self.density, self.pool, self.taken = made.density, made.pool, made.taken
        require_alike(self.group, made.compared(), "take them from one place")
        self.size = dist.get_world_size(self.group)
        self.chosen: list[int] | None = None
        self.accepted, self.steps, self.sent, self._refused = True, 0, 0, 0
        self._alike = True  # the settings of all ranks' optimisers, when the last backward ended
        self.gap = torch.ones(self.pool.count, device=self.pool.device)  # steps since last sent
        self._outcome: tuple[Tensor, Any, bool] | None = None
        self._versions: list[int] | None = None  # of the gradients, after backward
        self._stepped = True  # the optimiser, since the last backward
        self._backward: Backward | None = None
        on_all_ranks(self.group, self._register)
        self._closed = False
        gathered = self.taken.take()
        self.residual = LocalResidual(self.pool, form, self.taken.momentum)
        self.velocity = self.pool.zeros() if self.taken and form not in BEFORE else None
        self._adopt(gathered)
        self._watches = (
            optimizer.register_step_pre_hook(self._before_update),
            optimizer.register_step_post_hook(self._after_update),
            optimizer.register_load_state_dict_post_hook(self._after_load),
        )

    # ---- what a loop calls ----

    def step(self, loss: Tensor) -> None:
        """backward, one step of the optimiser, and gradients cleared for the next batch."""
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad()

    def close(self, momentum: bool = True) -> None:
        """Give momentum, its velocity and decay back to the optimiser. DDP then averages all.

        Collective: the velocity is the sum of all ranks' (one all_reduce of n float32). momentum
        False gives none back and talks to nobody. What waits in the residual is lost. DDP keeps
        this object, which lets go of the model.
        """
        if self._closed:
            return
        self._settle()
        if self.taken and momentum:
            done, got = self._stepped or not self.accepted, "close between backward and the step"
            after = ("close after the step", "optimizer.step(), then close()")
            on_all_ranks(self.group, require, done, got, *after)
        self.taken.give_back()
        if self.taken and momentum:
            rows = self.velocity
            if rows is None:
                dist.all_reduce(rows := self.residual.state["u"], group=self.group)
            self.taken.give_velocity(rows)
        for watch in self._watches:
            watch.remove()
        self._closed = True
        for name in ("model", "optimizer", "pool", "residual", "velocity", "taken", "_last"):
            setattr(self, name, None)

    def __enter__(self) -> "GradientFlow":
        return self

    def __exit__(self, error: object, *_: object) -> None:
        self.close(momentum=error is None)  # other ranks may not come here

    def state_dict(self) -> dict[str, Any]:
        """What this rank needs to go on with the same bits: each rank saves its own."""
        return checkpoint.state_of(self)

    def load_state_dict(self, saved: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Go on from `state_dict`: this rank's, or for another number of ranks a list of all.

        From a list each rank takes the same share of the sum of all residuals: nothing is lost.
        Collective.
        """
        checkpoint.load(self, saved)

    # ---- during backward ----

    def reduce(self, bucket: dist.GradBucket) -> Future:
        """What the hook does with each bucket."""
        if self._backward is None:
            self._settle()
            self._require_in_turn()
            self._backward = Backward(self)
            if self.model.find_unused_parameters:
                after_ddp(self._fill)
            if any(self.taken.momentum):
                after_ddp(self._mark)
        return self._backward.add(bucket)

    def decided(self, backward: Backward, verdict: Tensor, norms: Tensor) -> None:
        """All messages have arrived. The next chunks are chosen on the device, and read later.

        verdict  is the step accepted, and are the optimisers' settings alike? (2,) bool
        """
        dense = not backward.next_percent
        order = choose(norms / self.pool.lengths, backward.next_percent)
        outcome = torch.cat([verdict.long(), order])  # (2 + k,)
        event = None
        if outcome.device.type != "cpu":
            host = torch.empty(outcome.shape, dtype=outcome.dtype, pin_memory=True)
            outcome = host.copy_(outcome, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        self._outcome, self._last, self._backward = (outcome, event, dense), backward, None
        self._stepped = False
        if event is None:
            self._settle()

    def next_percent(self) -> float:
        """Of the chunks, in the step after this one; 0: it is dense."""
        percent, dense = self.density.at(self.steps + 1)
        return 0 if dense or (self.steps + 1) % self.chunks.dense_every == 0 else percent

    def _settle(self) -> None:
        """Keep or drop the last step, as all ranks agreed."""
        if self._outcome is None:
            return
        (outcome, event, dense), self._outcome = self._outcome, None
        if event is not None:
            event.synchronize()  # the step before: long since done
        accepted, alike, *chosen = outcome.tolist()
        self.accepted, self._alike, numbers = bool(accepted), bool(alike), self._last.numbers
        self.steps, self.sent = self.steps + 1, self._last.sent
        if self.accepted:
            self.residual.accept(numbers, dense=self.chosen is None)
            self.gap += 1
            self.gap.index_fill_(0, self.pool.index(numbers), 1)
            self.chosen = None if dense else chosen
        self._refused = 0 if self.accepted else self._refused + 1
        if self._refused and self.scaler is None:
            got = f"got an infinity or NaN on some rank in step {self.steps}, refused on all"
            lower = "a finite loss; next: a lower rate, or a GradScaler"
            warnings.warn(f"GradientFlow: {got}; wanted {lower}", stacklevel=2)

    def _require_in_turn(self) -> None:
        """ValueError in backward for what would train wrongly in silence."""
        lower = "a lower learning rate, or wire=torch.bfloat16"
        require(
            self._refused < PATIENCE, f"{PATIENCE} refused steps in a row", "a finite one", lower
        )
        got = "a second backward, and no step of the optimiser since the first"
        once = "step() of this flow's optimizer after each; accumulate in model.no_sync()"
        require(
            self._stepped or not self.accepted,
            got,
            "one step for each backward that communicates",
            once,
        )
        self._require_same_parameters()
        even = "the same number of batches on each rank (drop_last=True)"
        require(not self.model._join_config.enable, "model.join()", "no join", even)
        loads, self.taken.loads = self.taken.loads, 0
        if loads > 0:
            got = "a saved optimiser, and no flow.load_state_dict: its residual and momentum"
            got += " are lost, or not those of the checkpoint"
            warnings.warn(f"GradientFlow: got {got}; next: flow.load_state_dict", stacklevel=2)

    def _require_same_parameters(self) -> None:
        now = {(name, id(p), p.dtype) for name, p in learnable(self.model)}
        made = zip(self.pool.names, map(id, self.pool.parameters), self.pool.types)
        changed = sorted({name for name, *_ in now ^ set(made)})
        anew = "close(), then a new DistributedDataParallel and GradientFlow"
        got = f"{changed[:3]} frozen, unfrozen, new or of another type since it was made"
        require(not changed, got, "the same parameters", anew)

    def _mark(self) -> None:
        if self._versions != EDITED:
            self._versions = versions(self.pool.parameters)

    def _warn_of_edits(self) -> None:
        """Once: gradients that were changed since backward are velocities here."""
        if self._versions in (None, EDITED, versions(self.pool.parameters)):
            return
        self._versions = EDITED
        got = "got gradients changed between backward and the step, which hold the momentum already"
        wanted = "them as they are, or clipped at a threshold 1 / (1 - momentum) times as large"
        put = "noise, decay or a batch's weight into the loss; docs/torch.md"
        warnings.warn(f"GradientFlow: {got}; wanted {wanted}; next: {put}", stacklevel=2)

    def _fill(self) -> None:
        """DDP leaves the gradient of what no rank has used; something may wait for it."""
        for parameters, gradients, _, _ in self._last.buckets:
            for parameter, gradient in zip(parameters, gradients):
                if parameter.grad is None:
                    parameter.grad = gradient.clone()
                elif parameter.grad.data_ptr() != gradient.data_ptr():
                    parameter.grad.copy_(gradient)

    # ---- around the optimiser ----

    def _after_update(self, *_: object) -> None:
        self._stepped = True

    def _after_load(self, _: torch.optim.Optimizer) -> None:
        self.taken.loads += 1
        self.taken.mark()

    def _before_update(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Before each step of the optimiser. With a closure, backward is yet to come."""
        self.taken.require_gone()
        if not self._alike:  # on all ranks
            mean = "one rate for all ranks: a schedule reads the mean of their losses"
            require_alike(self.group, compared(optimizer, self.pool), mean)
        got: Any = ("a step past the GradScaler", "a step of a GradScaler that it was not given")
        own = "GradientFlow(..., scaler=scaler), and scaler.step(optimizer) in the loop"
        scaler = stepping_scaler()
        require(scaler is self.scaler, got[self.scaler is None], "one and the same", own)
        got = "a step of the optimiser, and no backward that communicated since the last one"
        out = "leave model.no_sync() for the last backward, call model, not model.module, and "
        out += "find_unused_parameters=True if the loss does not need all parameters"
        closure = kwargs.get("closure") or args[1:]
        fresh = any(parameter.grad is not None for parameter in self.pool.parameters)
        if self._stepped and fresh and not closure:
            self._require_same_parameters()
            require(False, got, "one backward for each step", out)
        got, kept = "gradients that were cleared after backward", fresh or not self.accepted
        require(self._stepped or kept, got, "them in the step", "zero_grad() before backward")
        if not closure:
            self._warn_of_edits()
        if not self.taken and self.scaler is None:
            self._settle()
            if not self.accepted:  # a zero would still move Adam's weights: it skips a None
                for parameter in self.pool.parameters:
                    parameter.grad = None

    def _register(self) -> None:
        try:
            self.model.register_comm_hook(self, hook)
        except RuntimeError as error:
            got = f"a model that has a hook ({error})"
            require(False, got, "one without", "a new DistributedDataParallel(network)")

    def _adopt(self, gathered: dict[int, Tensor]) -> None:
        """Momentum that the optimiser has already gathered: each rank holds its share."""
        for index, buffer in gathered.items():
            rows = self.residual.state["u"] if self.velocity is None else self.velocity
            share = self.size if self.velocity is None else 1
            rows.view(-1)[self.pool.part(index)] = buffer.reshape(-1).to(rows) / share


def choose(importance: Tensor, percent: float) -> Tensor:
    """Numbers of the most important chunks, ascending; ties to the lower one. (C,) -> (k,)"""
    count = max(1, math.ceil(len(importance) * percent / 100)) if percent else 0
    return torch.argsort(importance, descending=True, stable=True)[:count].sort().values


EDITED = [-1]  # said once


def versions(parameters: list[Tensor]) -> list[int]:
    """They count the changes of each gradient in place, but not a GradScaler's `unscale_`."""
    return [p.grad._version for p in parameters if p.grad is not None]


def hook(flow: GradientFlow, bucket: dist.GradBucket) -> Future:
    """What DDP calls for each bucket."""
    return allreduce_hook(flow.group, bucket) if flow._closed else flow.reduce(bucket)


def after_ddp(work: Callable[[], None]) -> None:
    """Call work() at the end of this backward, after what DDP does there."""
    engine = torch.autograd.Variable._execution_engine
    engine.queue_callback(lambda: engine.queue_callback(work))  # DDP queues its own in between
