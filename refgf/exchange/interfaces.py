"""What you may replace by your own: an exchange, a rule of grouping, an optimiser."""

from collections.abc import Callable, Sequence
from typing import Protocol

from numpy.typing import DTypeLike

from refgf.device import Array
from refgf.exchange.result import StepResult

Zeros = Callable[[int, DTypeLike], Array]  # numpy.zeros, or another that allocates a pool
Parts = Sequence[slice] | None  # `StepResult.sent`
Waits = Sequence[int] | None  # `StepResult.waited`


class Exchange(Protocol):
    def ready(self, index: int) -> None:
        """Gradient number `index` is final. They come in the order of the pool."""

    def finish(self) -> StepResult:
        """All gradients are announced. Returns when their sums are in the pool."""


class Grouping(Protocol):
    def is_complete(self, waiting_bytes: int, last: int) -> bool:
        """Is a group of so many bytes, whose last gradient is number `last`, to be sent now?"""

    def check(self, count: int) -> None:
        """A rule that names gradients raises ValueError unless it fits `count` of them."""


class Optimizer(Protocol):
    @property
    def settings(self) -> dict[str, float]: ...  # what all ranks must agree on
    @property
    def state(self) -> dict[str, Array]: ...  # this rank's arrays for a checkpoint

    def step(self, gradients: Array, rate: float, sent: Parts, waited: Waits) -> None:
        """One update of the flat parameters from gradients (n,)."""

    def split(self, before: bool) -> tuple["Optimizer", float, float]:
        """(another one to use with CSC, CSC's momentum, CSC's decay); before: see BEFORE."""
