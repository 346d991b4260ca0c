"""Which allreduce is fastest for this size? Chosen from alpha and beta, never hidden.

    algorithm = BySize(alpha_s=20e-6, beta_s_per_byte=0.3e-9, itemsize=4)
    allreduce = collective(comm, algorithm)         like any other algorithm
    algorithm.chosen                                {n: name} of every size it has been asked for
    algorithm.explain(8, 1000)                      all candidates with their times, the chosen one first

The candidates, on p = 2**R + e ranks, N bytes; a message of m bytes takes alpha + beta m, adding m bytes gamma m:

    recursive doubling    (R + 2x) alpha + (R + 2x) beta N               + (R + x) gamma N            x = 1 if e > 0
    halving-doubling     (2R + 2x) alpha + (2(q-1)/q + 2x) beta N + ((q-1)/q + x) gamma N            q = 2**R
    ring                  2(p-1) alpha + 2(p-1)/p beta N          + (p-1)/p gamma N

These are the forms of the literature (Thakur, Rabenseifner, Gropp 2005) for slices of equal length; the schedules' own
counts are in their modules. All ranks must be handed the same numbers: measure on one rank and broadcast them.
"""

from dataclasses import dataclass

from refgf.comm import doubling, ring
from refgf.comm.schedule import Algorithm, Schedule

CANDIDATES: dict[str, Algorithm] = {
    "recursive doubling": doubling.recursive_doubling,
    "halving-doubling": doubling.halving_doubling,
    "ring": ring.allreduce,
}


@dataclass(frozen=True)
class Terms:
    """Time = messages * alpha + (sent * beta + added * gamma) * bytes, one after the other on the slowest rank."""

    messages: float
    sent: float
    added: float

    def seconds(self, nbytes: float, alpha_s: float, beta_s_per_byte: float, gamma_s_per_byte: float = 0.0) -> float:
        return self.messages * alpha_s + (self.sent * beta_s_per_byte + self.added * gamma_s_per_byte) * nbytes


def terms(name: str, size: int) -> Terms:
    """The line of the table above that belongs to `name`."""
    rounds = size.bit_length() - 1
    extra = int(size > 2**rounds)
    if name == "recursive doubling":
        return Terms(rounds + 2 * extra, rounds + 2 * extra, rounds + extra)
    if name == "halving-doubling":
        share = 1 - 1 / 2**rounds
        return Terms(2 * rounds + 2 * extra, 2 * share + 2 * extra, share + extra)
    if name == "ring":
        return Terms(2 * (size - 1), 2 * (size - 1) / size, (size - 1) / size)
    raise ValueError(f"select: got algorithm {name!r}; wanted one of {', '.join(CANDIDATES)}")


class BySize:
    """An `Algorithm` that is the fastest candidate for each n; `always` names one to use whatever the size."""

    __name__ = "BySize"

    def __init__(
        self,
        alpha_s: float,
        beta_s_per_byte: float,
        itemsize: int,
        gamma_s_per_byte: float = 0.0,
        always: str | None = None,
    ) -> None:
        if not (alpha_s >= 0 and beta_s_per_byte >= 0 and gamma_s_per_byte >= 0 and itemsize > 0):
            raise ValueError(
                f"BySize: got alpha {alpha_s} s, beta {beta_s_per_byte} s/byte, gamma {gamma_s_per_byte} s/byte, "
                f"itemsize {itemsize}; wanted times >= 0 and the bytes a number takes on the wire; next: measure again"
            )
        if always is not None:
            terms(always, 1)  # refuses an unknown name
        self.alpha_s, self.beta_s_per_byte, self.gamma_s_per_byte = alpha_s, beta_s_per_byte, gamma_s_per_byte
        self.itemsize, self.always = itemsize, always
        self.chosen = {}  # n -> name

    def __call__(self, rank: int, size: int, n: int) -> Schedule:
        self.chosen[n] = self.choose(size, n)
        return CANDIDATES[self.chosen[n]](rank, size, n)

    def choose(self, size: int, n: int) -> str:
        """The name of the algorithm for n elements; of equally fast ones the first in CANDIDATES."""
        return self.always or min(CANDIDATES, key=lambda name: self.seconds(name, size, n))

    def seconds(self, name: str, size: int, n: int) -> float:
        """What `name` should take."""
        link = self.alpha_s, self.beta_s_per_byte, self.gamma_s_per_byte
        return terms(name, size).seconds(n * self.itemsize, *link)

    def explain(self, size: int, n: int) -> str:
        """One line: what was chosen for n elements, and what the others would take."""
        chosen = self.choose(size, n)
        order = sorted(CANDIDATES, key=lambda name: (name != chosen, self.seconds(name, size, n)))
        told = ", ".join(f"{name} {1e3 * self.seconds(name, size, n):.3g} ms" for name in order)
        reason = "as asked" if self.always else "fastest"
        return f"{n * self.itemsize} B on {size} ranks: {chosen} ({reason}); predicted: {told}"


def crossover_bytes(short: tuple[float, float], long: tuple[float, float]) -> float:
    """Where two lines a_s + b_s_per_byte * bytes cross: below it `short` is the faster; infinity if it always is.

    short, long: (a_s, b_s_per_byte). 0 if `short` is never faster.
    """
    (a_short, b_short), (a_long, b_long) = short, long
    if b_short <= b_long:
        return float("inf") if a_short <= a_long else 0.0
    return max(0.0, (a_long - a_short) / (b_short - b_long))
