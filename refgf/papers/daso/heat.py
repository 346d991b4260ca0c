"""DASO's form `heat`: what the authors' public code does, where `phases.py` is what it describes.

    with DASO(comm, model, topology.nodes(comm), HeatPhases(epochs), batches) as daso: ...

    B = 2, W = 1 (after the first plateau)    0        1        2        3        4
    described                                 send 0   receive  send 1   receive  send 0
    heat                                      send 0            send 1            send 0
                                                                receive 0         receive 1

A sum whose receipt would fall in the batch before a sending is received at the sending, and near an
epoch's end the wait is cut short or missed. Each sending spreads the parameters of the group before
in the nodes again. A late sum and the parameters are divided before they are added. Blocking phases
compute in bfloat16.

Source: Heat, `heat/optim/dp_optimizer.py`, run event by event. Statements A13 to A20 of
oracle/SPEC.md. The broadcast that the last batch of an epoch replaces is left out here; Heat sends
it. Choose this form to reproduce runs of Heat; nothing else speaks for it.
"""

import math
from dataclasses import dataclass, replace

from refgf.arguments import checked
from refgf.device import Array
from refgf.papers.daso.bfloat16 import round_to_bfloat16
from refgf.papers.daso.merge import heat_merge
from refgf.papers.daso.phases import FIRST_GLOBAL_SKIP, Phase, Phases


@checked
@dataclass(frozen=True)
class HeatPhase(Phase):
    """As `Phase`, but W may exceed B: a sum is received when the next is sent, at the latest."""

    fewest_nodes = 1
    merge = staticmethod(heat_merge)

    @property
    def longest_wait(self) -> float:
        return math.inf if self.global_skip else 0

    def received_in(self, batch: int, batches: int) -> int:
        """At the next sending, or earlier, where the wait that this batch would have is over."""
        skip, last = self.global_skip, batches - 1
        at_sending = min(batch - batch % skip + skip, last)
        for at in range(batch + 1, at_sending):
            if at - batch == min(self.wait, last - at) and (at + 1) % skip:
                return at
        return at_sending

    def spreads_again(self, batch: int, batches: int, groups: int) -> int | None:
        """At a sending with W > 0, the group before the sending one."""
        number = self.sender(batch, batches, groups)
        return None if batch == 0 or number is None or not self.wait else (number - 1) % groups

    def round(self, w: Array, wire: str | None) -> None:
        """Parameters of a blocking sum, before it and after the division, become bfloat16."""
        if wire:
            round_to_bfloat16(w)

    def averages(self, batch: int, batches: int) -> bool:
        """In every L-th batch, the last one, and from a sending until a batch switches it off.

        That is the batch in which the wait is over, or a multiple of L after it.
        """
        last, every = batches - 1, self.local_skip
        since_sent = batch % self.global_skip if self.global_skip else 0
        if every <= 1 or since_sent <= 1 or batch % every == 0 or batch == last:
            return True
        sent = batch - since_sent
        for before in range(sent + 1, batch):
            over = before - sent - min(self.wait, last - before)
            if over == 0 or (over > 0 and before % every == 0):
                return False
        return True


@checked
class HeatPhases(Phases):
    """As `Phases`, with `HeatPhase`s; without warm-up it blocks in every epoch."""

    kind = HeatPhase

    def __init__(self, epochs: int, warmup: int = 4, cooldown: int = 4, largest: int = 8) -> None:
        if largest < FIRST_GLOBAL_SKIP:
            raise ValueError(
                f"DASO: got largest={largest} for the form of Heat; wanted at least 4, because "
                "below 4 Heat's L and W become 0; next: Phases(epochs, largest=...)"
            )
        super().__init__(epochs, warmup, cooldown, largest)

    def __str__(self) -> str:
        return f"{super().__str__()}, as Heat"

    def _cycling(self) -> bool:
        return self.warmup > 0 and super()._cycling()

    def _next(self) -> Phase:
        after = super()._next()
        return replace(after, wait=max(1, self.now.wait - 1)) if self.now.global_skip > 1 else after
