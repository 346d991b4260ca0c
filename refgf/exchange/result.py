"""What all exchanges have in common: how a step ends, and how it is observed.

An *exchange* is what gradients pass through (`interfaces.py`). A step is accepted if all sums are
finite on every rank, with CSC also the gradients that are not sent. Else it changes no weight,
residual, velocity or running statistics: only the loss scale, counts and dropout's generator.
"""

import contextlib
from dataclasses import dataclass
from typing import Any, NoReturn

from refgf.device import Allreduce


@dataclass(frozen=True)
class StepResult:
    """What `finish` returns.

    accepted  may the parameters change? The same on every rank
    sent      slices of the gradient pool that hold sums (ascending); None: all of it
    waited    for each slice of `sent`: after how many steps it was sent again (for LARS's decay)
    """

    accepted: bool = True
    sent: list[slice] | None = None
    waited: list[int] | None = None


class Unobserved:
    """The observer that records nothing; `refgf.machine.timeline.Timeline` is one that does."""

    def span(self, lane: str, name: str) -> contextlib.AbstractContextManager[None]:
        """with observe.span("compute", "FORWARD"): ..."""
        return contextlib.nullcontext()

    def watched(self, allreduce: Allreduce, itemsize: int | None = None) -> Allreduce:
        """The same Allreduce, each call recorded. itemsize: bytes of one number on the wire."""
        return allreduce


UNOBSERVED = Unobserved()


class Closed:
    """Takes the place of what `close` has freed."""

    def __init__(self, owner: str) -> None:
        self.owner = owner

    def _refuse(self, *_: Any) -> NoReturn:
        raise ValueError(
            f"{self.owner}: got a call after close; wanted it before; next: make a new one, or "
            "indent the call into the `with` block"
        )

    __getattr__ = __getitem__ = __call__ = _refuse  # any other attribute, an index, a loop, a call
