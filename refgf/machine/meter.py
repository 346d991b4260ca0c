"""How much of the communication is hidden behind computation, and what hiding it costs.

    alone         |==== compute ====|            |-- communication --|
    no overlap    |==== compute ====|-- communication --|
    overlap       |======= compute =======|--|            slower compute: the thread needs processor time too
                                           waited
                  <---- compute alone -->|<exposed>|

Looking only at the wait at the end flatters: a thread that spins can take its time from the computation, so that nothing
is left to wait for and the step is not a bit shorter. So exposed time is the whole step minus the computation alone.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class ExposedTime:
    """Seconds of one step; all of one run on one machine, medians of the slowest rank.

    compute_s        the step with the exchange switched off
    communication_s  the same calls of the exchange, with nothing to compute
    together_s       the step with overlap
    sequential_s     the best step without overlap
    waited_s         of together_s: how long the computing thread waited for the last sum
    window_s         of compute_s: what follows the first gradient; nothing can be hidden before it
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
            raise ValueError(f"exposed time: got {self.__dict__}; wanted seconds, the two steps above 0")

    @property
    def exposed_s(self) -> float:
        """What communication adds to the step."""
        return max(0.0, self.together_s - self.compute_s)

    @property
    def hideable_s(self) -> float:
        """At most this much can disappear behind the computation that follows the first gradient."""
        return min(self.communication_s, self.window_s, self.compute_s)

    @property
    def hidden_s(self) -> float:
        return max(0.0, self.communication_s - self.exposed_s)

    @property
    def slowdown(self) -> float:
        """How many times as long computation takes while the other thread communicates."""
        return (self.together_s - self.waited_s) / self.compute_s if self.compute_s else 1.0

    @property
    def pays(self) -> bool:
        """Is the step with overlap faster than the best one without?"""
        return self.together_s < self.sequential_s

    @property
    def hidden_share(self) -> float | None:
        """Of what can be hidden, the share that is; None where a share would mislead: overlap does not pay."""
        if not self.pays or self.hideable_s == 0:
            return None
        return min(1.0, self.hidden_s / self.hideable_s)

    def __str__(self) -> str:
        told = (
            f"compute alone {self.compute_s:.4g} s, communication alone {self.communication_s:.4g} s, "
            f"together {self.together_s:.4g} s: exposed {self.exposed_s:.4g} s, compute {self.slowdown:.2f} x as long"
        )
        if self.hidden_share is not None:
            return f"{told}; hidden {100 * self.hidden_share:.0f} % of the {self.hideable_s:.4g} s that can be"
        if self.pays:
            return f"{told}; nothing could be hidden"
        return f"{told}; no share hidden: without overlap the step takes {self.sequential_s:.4g} s, which is not slower"
