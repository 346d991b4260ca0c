"""Measures how much communication is hidden behind computation, and what hiding it costs.

    separate      |==== compute ====|            |-- communication --|
    no overlap    |==== compute ====|-- communication --|
    overlap       |======= compute =======|--|     computing is slower: the thread needs a core too
                                           waited
                  <-- compute only --><-exposed->

The wait at the end is not enough to judge overlap. A thread that spins takes processor time from
the computation: then no wait remains, yet the step is not shorter. So exposed time is the whole
step minus the step without communication.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class ExposedTime:
    """Times of one step in seconds, of one run on one machine; medians of the slowest rank.

    compute_s        the step with the exchange switched off
    communication_s  the same calls of the exchange, without computation
    together_s       the step with overlap
    sequential_s     the best step without overlap
    waited_s         part of together_s in which the computing thread waited for the last sum
    window_s         part of compute_s after the first gradient; nothing can be hidden before it
    """

    compute_s: float
    communication_s: float
    together_s: float
    sequential_s: float
    waited_s: float = 0.0
    window_s: float = math.inf

    def __post_init__(self) -> None:
        wrong = [name for name, value in self.__dict__.items() if not value >= 0]
        if wrong or not (self.together_s > 0 and self.sequential_s > 0):
            raise ValueError(
                f"ExposedTime: got {self.__dict__}; wanted seconds, the two steps above 0; "
                "next: measure more steps"
            )

    @property
    def exposed_s(self) -> float:
        """The time that communication adds to the step."""
        return max(0.0, self.together_s - self.compute_s)

    @property
    def hideable_s(self) -> float:
        """The most that can be hidden behind the computation after the first gradient."""
        return min(self.communication_s, self.window_s, self.compute_s)

    @property
    def hidden_s(self) -> float:
        """The communication time that does not lengthen the step."""
        return max(0.0, self.communication_s - self.exposed_s)

    @property
    def slowdown(self) -> float:
        """Compute time while the other thread communicates, divided by compute_s."""
        return (self.together_s - self.waited_s) / self.compute_s if self.compute_s else 1.0

    @property
    def pays(self) -> bool:
        """Is the step with overlap faster than the best one without?"""
        return self.together_s < self.sequential_s

    @property
    def hidden_share(self) -> float | None:
        """Hidden fraction of hideable_s; None if overlap does not pay, where it would mislead."""
        if not self.pays or self.hideable_s == 0:
            return None
        return min(1.0, self.hidden_s / self.hideable_s)

    def __str__(self) -> str:
        summary = (
            f"compute only {self.compute_s:.4g} s, "
            f"communication only {self.communication_s:.4g} s, "
            f"together {self.together_s:.4g} s: exposed {self.exposed_s:.4g} s, "
            f"compute {self.slowdown:.2f} x as long"
        )
        if self.hidden_share is not None:
            percent = f"{100 * self.hidden_share:.0f} %"
            return f"{summary}; hidden {percent} of the {self.hideable_s:.4g} s that can be hidden"
        if self.pays:
            return f"{summary}; nothing could be hidden"
        return (
            f"{summary}; overlap does not pay: "
            f"without overlap the step takes {self.sequential_s:.4g} s, which is not slower"
        )
