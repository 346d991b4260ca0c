"""When DASO synchronises: the plan of an epoch, and how it changes from epoch to epoch.

    warm-up        cycling                                            cool-down
    B = 0          B = 4, L = W = 1 -> plateau: 2, 1, then 8 again    B = 0

B: nodes sum every B batches. L: gradients are averaged in the node every L batches. W: a sum is
received W batches after it was sent. B = 0 blocks in every batch. Every rank decides alike, from
the loss of all ranks.

Source: DASO (Coquelin et al. 2022) by the authors' public code (Heat): receipt and averaging as its
documentation has them, all else as the code; `heat.py` is what that code does. Three choices are
ours. Without warm-up cycling begins in the first epoch; there it never would. W never exceeds B;
there it may. With a largest B below 4 cycling begins with that, and L and W are at least 1; there
they become 0.
"""

import math
from dataclasses import dataclass

from refgf.arguments import checked
from refgf.device import Array
from refgf.papers.daso.merge import merge

FIRST_GLOBAL_SKIP = 4
SHARE_OF_LARGEST = 4  # L and W are a quarter of the largest B when cycling starts again


@checked
@dataclass(frozen=True)
class Phase:
    """global_skip B, local_skip L, wait W, all in batches."""

    global_skip: int
    local_skip: int = 1
    wait: int = 1

    fewest_nodes = 2  # one node sums nothing
    merge = staticmethod(merge)  # what a rank does with a late sum

    def __post_init__(self) -> None:
        if min(self.local_skip, self.wait) < 0 or self.wait > self.longest_wait:
            raise ValueError(
                f"DASO: got B={self.global_skip}, L={self.local_skip}, W={self.wait}; wanted "
                "0 <= W <= B and L >= 0, so that a sum arrives before the next is sent; next: a "
                "larger B or a smaller W"
            )

    @property
    def longest_wait(self) -> float:
        return self.global_skip

    @property
    def blocking(self) -> bool:
        return self.global_skip == 0

    def sender(self, batch: int, batches: int, groups: int) -> int | None:
        """The group that sends after the update of this batch; they take turns. None: no group."""
        every = max(1, self.global_skip)
        if batch % every and batch != batches - 1:
            return None
        return math.ceil(batch / every) % groups

    def wait_after(self, batch: int, batches: int) -> int:
        """Batches until what is sent now is received, at most to the epoch's end. 0: at once."""
        return min(self.wait, batches - 1 - batch)

    def received_in(self, batch: int, batches: int) -> int:
        """The batch in which a sum sent after the update of this one is received."""
        return batch + self.wait_after(batch, batches)

    def spreads_again(self, batch: int, batches: int, groups: int) -> int | None:
        """The group whose parameters are spread in the nodes without a receipt: none."""
        return None

    def round(self, w: Array, wire: str | None) -> None:
        """Parameters of a blocking sum, before it and after the division: stay as they are."""

    def averages(self, batch: int, batches: int) -> bool:
        """Are gradients averaged in the node?

        Every L batches, in the last batch, and while a sum is in flight.
        """
        since_sent = batch % self.global_skip if self.global_skip else 0
        if since_sent <= self.wait_after(batch - since_sent, batches):  # a sum is in flight
            return True
        return self.local_skip <= 1 or batch % self.local_skip == 0 or batch == batches - 1


BLOCKING = Phase(0, 0, 0)


@checked
class Constant:
    """The same phase in every epoch."""

    def __init__(self, phase: Phase) -> None:
        self.now = phase

    def __str__(self) -> str:
        return f"constant {self.now}"

    def end_epoch(self, loss: float) -> None:
        """The phase stays the same for every loss."""


@checked
class Phases:
    """Warm-up, cycling and cool-down of a training of `epochs` epochs. `now` is the present phase.

    largest     the B with which cycling starts again after B = 1
    threshold   a loss is better when it is below (1 - threshold) times the best so far
    patience    a plateau is more epochs in a row than this without a better loss
    """

    kind = Phase  # what its phases do; `heat.py` has another

    def __init__(
        self,
        epochs: int,
        warmup: int = 4,
        cooldown: int = 4,
        largest: int = 8,
        threshold: float = 0.05,
        patience: int = 2,
    ) -> None:
        lengths = min(warmup, cooldown, patience)
        if min(epochs, largest) < 1 or lengths < 0 or not 0 <= threshold < 1:
            raise ValueError(
                f"DASO: got epochs={epochs}, warmup={warmup}, cooldown={cooldown}, "
                f"largest={largest}, threshold={threshold}, patience={patience}; wanted epochs and "
                "largest >= 1, 0 <= threshold < 1, nothing negative; next: Phases(epochs)"
            )
        self.epochs, self.warmup, self.cooldown, self.largest = epochs, warmup, cooldown, largest
        self.threshold, self.patience = threshold, patience
        self.epoch, self._best, self._worse = 0, math.inf, 0
        self.now = self._first() if self._cycling() else self.kind(0, 0, 0)

    def __str__(self) -> str:
        return (
            f"{self.epochs} epochs, warm-up {self.warmup}, cool-down {self.cooldown}, "
            f"largest B {self.largest}, threshold {self.threshold}, patience {self.patience}"
        )

    def end_epoch(self, loss: float) -> None:
        """An epoch has ended with this mean training loss of all ranks."""
        self.epoch += 1
        plateau = self.epoch >= self.warmup and self._on_plateau(loss)
        if not self._cycling():
            self.now = self.kind(0, 0, 0)
        elif self.now.blocking:
            self.now = self._first()
        elif plateau:
            self.now = self._next()

    def _cycling(self) -> bool:
        return self.warmup <= self.epoch < self.epochs - self.cooldown

    def _first(self) -> Phase:
        return self.kind(min(FIRST_GLOBAL_SKIP, self.largest))

    def _next(self) -> Phase:
        if self.now.global_skip == 1:
            part = max(1, self.largest // SHARE_OF_LARGEST)
            return self.kind(self.largest, part, part)
        half = self.now.global_skip // 2
        local = max(1, self.now.local_skip // 2)
        return self.kind(half, local, max(1, min(self.now.wait - 1, half)))

    def _on_plateau(self, loss: float) -> bool:
        better = loss < (1 - self.threshold) * self._best
        self._best, self._worse = (loss, 0) if better else (self._best, self._worse + 1)
        if self._worse <= self.patience:
            return False
        self._worse = 0
        return True
