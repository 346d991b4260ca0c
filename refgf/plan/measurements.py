"""What a measured table says: a line through its times, the link of it, and what may be wrong.

A ring over hosts is as fast as its slowest link, so beta is that of a node's link, unless the links
inside are as slow. alpha is the mean of the hops inside and between nodes, because the latencies of
all hops add up (verified: the latencies in NCCL's tuning.cc); --inside says what those inside take.
Without it a hop between nodes takes 1 to k mean hops if one inside takes no longer, and the
geometric mean of both is planned with. (NCCL's constants for k = 8: 1.5 to 2.5.)

On one host no link between nodes was measured, and the text is refused. So is a link that does not
exist: above 20 Tbit/s, or below 0.1 us. A tree has fewer hops than a ring, and longer ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, inf, log, log2, sqrt
from statistics import fmean, median
from typing import Any, NoReturn

from refgf.predict.cost import Link
from refgf.predict.fit import Curve, Fit, fit_line
from refgf.predict.timeline import CallTime

US = 1e-6
NOISY = 0.2  # relative; times farther from the fitted line are named in a warning
GIVEN = 0.05  # relative error of a given rate that its interval holds (fabric.CHOSEN)
MOST_OVER = 1.1  # of the line's rate / that of the longest message; beyond, warned of (chosen)
LONG, LONG_POWER = 64 << 20, 0.6  # bytes from which a time grows at least so (`BeyondSizes`)
SHORTER = 0.5, 1.5  # times that of the shortest measured call (`BeyondSizes`)
GAP = 3  # times the size before: a curve between them would be a guess (chosen)
AVOIDED = 1024  # bytes: below, protocols differ from those of gradients
MOST_FIRST = 1 << 20  # bytes: times of larger messages say little about alpha (chosen)
MOST_RATE, LEAST_ALPHA_S = 20e12 / 8, 0.1e-6  # bytes/s and s that no link beats (chosen)
FAST_RATE, SHORT_S = 1e12 / 8, 0.6e-6  # of one GPU's share of a network: beyond, doubted (chosen)
NETWORK_S = 1e-6  # no message between nodes takes less in MPI: below, doubted (chosen)
BOTH_WAYS = 2.0  # times a ping-pong's: at most, if a link sends and receives by turns
PAIR, NEIGHBOURS = sqrt(2), 1.25  # deviations of one time in that of two, and of three (`scatter`)
UNEVEN = 5  # times the average of the ranks (chosen)
RUN = 0.08  # relative deviation of whole runs (chosen; second runs: docs/predict.md)
FEW = 4  # distances: fewer say nothing alone (chosen)
MOST = 10.0  # times the value; a fit of two points has no error (chosen)
SLOW_RATE, LONG_S = 0.5e9 / 8, 500e-6  # below, and above: doubted, too


@dataclass(frozen=True)
class Times:
    """T(bytes) as measured, straight between two sizes.

    alpha multiplies the time of a message of AVOIDED bytes, beta what others take longer.
    """

    curve: Curve
    alpha: float = 1.0
    beta: float = 1.0

    @property
    def a_s(self) -> float:
        return self.alpha * self.curve(0)

    def __call__(self, nbytes: float) -> float:
        seconds, first_s = self.curve(nbytes), self.curve(AVOIDED)
        return self.alpha * min(first_s, seconds) + self.beta * max(0.0, seconds - first_s)

    def scaled(self, alpha: float, beta: float) -> "Times":
        return replace(self, alpha=alpha * self.alpha, beta=beta * self.beta)


@dataclass(frozen=True)
class BeyondSizes:
    """T(bytes) of calls that may be longer or shorter than all of which `call` knows, or between.

    sizes   bytes of these, rising
    bend    below 1: the shortest time, above: the longest, 1: `call`'s, or the nearer one of both

    With more bytes neither the time falls nor the rate. So r times the bytes of the nearest call
    that was measured take 1 to r times its time. If it has LONG bytes or more, they take at least
    r ** LONG_POWER times. 41 public texts of NCCL were cut at 1 to 256 MiB: 94 to 100 % of the
    times of longer calls lie between these ends or within 5 % of them. They were cut at 2 KiB to
    64 MiB: 88 to 100 % of those of shorter calls do. Latencies scatter, so shorter calls may take
    SHORTER times as long, too: 96 % of public texts' that were cut at 8 to 1024 bytes do.
    In a gap (`gaps`) a call may take the time of
    either neighbour, because nobody saw where between them the algorithm changes.
    """

    call: CallTime
    sizes: tuple[float, ...]
    bend: float = 1.0

    @property
    def a_s(self) -> float:
        return self(0.0)

    def __call__(self, nbytes: float) -> float:
        least_s, most_s = self.ends(nbytes)
        if self.bend == 1:
            return min(most_s, max(least_s, self.call(nbytes)))
        return least_s if self.bend < 1 else most_s

    def ends(self, nbytes: float) -> tuple[float, float]:
        """(least, most) seconds, which are those of `call` within its sizes."""
        least, most = self.sizes[0], self.sizes[-1]
        for both in gaps(self.sizes):
            if both[0] < nbytes < both[1]:
                low_s, high_s = map(self.call, both)
                return min(low_s, high_s), max(low_s, high_s)
        if least <= nbytes <= most:
            return (self.call(nbytes),) * 2
        nearest = min(most, max(least, nbytes))
        share, nearest_s = max(AVOIDED, nbytes) / nearest, self.call(nearest)
        shares = 1.0, share
        if nbytes < least:
            shares = min(share, SHORTER[0]), SHORTER[1]
        elif nearest >= LONG:
            shares = share**LONG_POWER, share
        return shares[0] * nearest_s, shares[1] * nearest_s


def gaps(sizes: Sequence[float]) -> list[tuple[float, float]]:
    """The neighbours that are GAP times apart and more."""
    return [both for both in pairwise(sizes) if both[1] >= GAP * both[0]]


@dataclass(frozen=True)
class Measured:
    """What a table says.

    size         the ranks of an allreduce, 0 for a link
    per_host     of these on each host
    notes        what the numbers do not say, a sentence each
    elsewhere    those of the notes that warn of other ranks than these
    alpha_known  False if its two standard errors exceed it, or if all messages are large
    spread       the lowest and the highest of the times, as factors of the line's
    times        the times themselves, by size
    short        those below AVOIDED bytes, to which no line is fitted
    slower       {"alpha" | "beta": how many times as much it may be on other ranks than these}
    faster       how many times as little NCCL's may be there
    own_choice   did NCCL choose the algorithm itself?
    least_s      the shortest time of all sizes
    scatter      {"alpha" | "beta": standard deviation of a single time, relative}
    """

    title: str
    size: int
    fit: Fit
    per_host: int = 0
    notes: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    alpha_known: bool = True
    spread: tuple[float, float] = (1.0, 1.0)
    times: tuple[tuple[float, float], ...] = ()
    short: tuple[tuple[float, float], ...] = ()
    slower: dict[str, float] = field(default_factory=dict)
    own_choice: bool = False
    faster: float = 1.0
    least_s: float = inf
    scatter: dict[str, float] = field(default_factory=dict)

    @property
    def link(self) -> Link:
        """The link whose ring takes the fitted time: a = 2 (p-1) alpha, b = 2 (p-1)/p beta."""
        if not self.size:
            return self.fit.link
        steps = 2 * (self.size - 1)
        return Link(self.fit.a_s / steps, self.fit.b_s_per_byte * self.size / steps)

    @property
    def hop(self) -> Link:
        """The link with the longest latency that a hop of this allreduce may have had."""
        return replace(self.link, alpha_s=self.slower.get("alpha", 1.0) * self.link.alpha_s)

    @property
    def between(self) -> Link:
        """The link between nodes, whose latency is 1 to per_host times that of the mean hop."""
        return replace(self.link, alpha_s=self.middle * self.link.alpha_s)

    @property
    def middle(self) -> float:
        return sqrt(max(1, self.per_host))

    @property
    def curve(self) -> Curve:
        """The times. What is shorter than all of them is on the way from the line's latency."""
        least, first_s = self.times[0]
        start = ((0.0, min(first_s, self.fit.a_s)),) if least > AVOIDED else ()
        return Curve((*(self.short or start), *self.times))

    @property
    def over(self) -> float:
        """How many times as long a byte of the longest message takes as one of the line does."""
        nbytes, seconds = self.times[-1]
        return seconds / nbytes / self.fit.b_s_per_byte

    def errors(self) -> tuple[float, float]:
        """(alpha_error_s, beta_error_s_per_byte)."""
        steps = 2 * (self.size - 1) if self.size else 1
        scale = self.size / steps if self.size else 1
        return self.fit.a_error_s / steps, self.fit.b_error_s_per_byte * scale


def mixed(found: Measured) -> str:
    """What a ring over hosts of several GPUs does not say of the links inside and between them."""
    k, us = found.per_host, 1e6 * found.link.alpha_s
    rate = 8e-9 / found.link.beta_s_per_byte
    return (
        f"WARNING: {us:.3g} us are the mean hop of a ring with {k} ranks a host. If a hop inside "
        f"takes no longer than one between nodes, this takes {us:.3g} to {k * us:.3g} us: the "
        f"intervals hold both. {rate:.3g} Gbit/s are the rate of its slowest link, inside or "
        "between. The rows with two levels, top-k and DASO assume it for both: their intervals "
        f"hold a link inside that is {MOST:g} times as fast, but none between nodes. Add --inside."
    )


def in_words(link: Link) -> str:
    rate = 8e-9 / link.beta_s_per_byte if link.beta_s_per_byte else inf
    return f"{1e6 * link.alpha_s:.4g}us {rate:.4g}gbit"


def require_possible(found: Measured, path: str) -> None:
    """ValueError for a link that does not exist."""
    link = found.hop
    if link.beta_s_per_byte * MOST_RATE < 1:
        got = f"a link of {in_words(link)}"
        refuse(path, got, "at most 20 Tbit/s, as links have; next: pass the text as it was printed")
    if found.alpha_known and link.alpha_s < LEAST_ALPHA_S:
        got = f"a hop of {1e6 * link.alpha_s:.2g} us"
        if found.size:
            hops = ceil(2 * (found.size - 1) / found.slower.get("alpha", 1.0))
            got += f", if this allreduce on {found.size} ranks has {hops} of them"
        wanted = "at least 0.1 us, as links have; next: measure the link with osu_latency, or the "
        refuse(path, got, wanted + "ring with NCCL_ALGO=Ring")


def held(factor: float) -> str:
    """Does the interval of alpha hold a ring with so many times the latency?"""
    if factor <= MOST:
        return "the intervals hold both"
    return f"the interval of alpha ends at {MOST:g} times, so other ranks may take longer"


def odd(link: Link) -> tuple[str, ...]:
    """A warning of a link that may have another unit."""
    slow = link.beta_s_per_byte * SLOW_RATE > 1 or link.alpha_s > LONG_S
    fast = link.beta_s_per_byte * MOST_RATE < 1 or link.alpha_s < LEAST_ALPHA_S
    if not slow and not fast:
        return ()
    said = "is slow for a cluster" if slow else "is faster than links are"
    return (f"WARNING: {in_words(link)} {said}. Are its units right?",)


def doubts(found: Measured) -> tuple[str, ...]:
    """A link that is faster than networks are was probably measured inside a node."""
    link, k = found.link, max(1, found.per_host)
    if found.alpha_known and (said := odd(found.hop)):
        return said
    nodes = found.size // k or 2
    if found.least_s < NETWORK_S * ceil(log2(nodes)):
        least = f"{1e6 * found.least_s:.2g} us"
        said = f"WARNING: its shortest message took {least}. Between {nodes} nodes that takes "
        said += f"{1e6 * NETWORK_S * ceil(log2(nodes)):.2g} us or more. Was it shared memory, "
        return (said + "inside a node? Then it belongs to --inside: run it on several nodes.",)
    if found.over > MOST_OVER and found.fit.largest_error <= NOISY:  # else `warnings` says more
        rate = 8e-9 / link.beta_s_per_byte
        said = f"The line's {rate:.4g} Gbit/s are more than its longest message had, "
        return (f"{said}{rate / found.over:.4g}. The interval of beta holds these.",)
    short = found.alpha_known and k == 1 and link.alpha_s < SHORT_S
    if not short and link.beta_s_per_byte * FAST_RATE * k >= 1:
        return ()
    each = "one rank" if k == 1 else f"{k} ranks"
    said = f"WARNING: {in_words(link)} is faster than a network with {each} a host is today. Is it "
    return (said + "the link inside a node? Then it belongs to --inside.",)


def refuse_one_host(found: Measured, path: str) -> NoReturn:
    far = found.fit.largest_error
    said = f". WARNING: that line is up to {100 * far:.0f} % from these times, and its intervals "
    said += "do not hold that"
    refuse(
        path,
        f"{found.size} ranks on one host, so the link inside a node",
        "a link between nodes; next: run all_reduce_perf on 2 or more hosts, pass that text, and "
        f"add --inside {in_words(found.link)}{said * (far > GIVEN)}",
    )


def fitted(
    points: list[tuple[float, float]], path: str, pairs: Sequence[tuple[int, float]] = ()
) -> dict[str, Any]:
    """Fields of `Measured`, from AVOIDED bytes up. pairs: (bytes, second time / the first)."""
    large = sorted(point for point in points if point[0] >= AVOIDED)
    sizes = {nbytes for nbytes, _ in large}
    if len(sizes) < 2 or large[-1][0] < 100 * large[0][0]:
        got = f"{len(sizes)} sizes of {AVOIDED} bytes and more"
        got += f", {large[0][0]:,} to {large[-1][0]:,} bytes" if large else ""
        wanted = "a largest one 100 times the smallest; next: run it with -b 4 -e 1G -f 2"
        refuse(path, got, wanted)
    if not 0 < large[-1][1] < 100:
        refuse(path, f"{large[-1][1]:.3g} s for {large[-1][0]:g} bytes", "microseconds")
    fit = fit_line(large)
    if not fit.b_s_per_byte:
        refuse(path, "times that do not grow with the size", "a rate; next: measure again")
    known = is_known(fit.a_s, fit.a_error_s) and large[0][0] <= MOST_FIRST
    ratios = [seconds / fit.line(nbytes) for nbytes, seconds in large]
    notes = warnings(large, fit)
    # Own ranks: 1 in 30 times of second runs was outside with one of both, 1 in 22 with none
    elsewhere = () if all(falls_and_jumps(large)) else notes  # and 1 in 8 with both
    if not known:
        got = (
            f"{1e6 * fit.a_s:.3g} us +- {1e6 * fit.a_error_s:.3g}, from {large[0][0]:,.0f} bytes up"
        )
        notes = (f"WARNING: alpha is not known: {got}. Run it with -b 4 -e 1G -f 2.", *notes)
    spread = min(1.0, *ratios), max(1.0, *ratios)
    times, short = (medians(points, of) for of in (sizes, {n for n, _ in points} - sizes))
    found = {"fit": fit, "notes": notes, "alpha_known": known, "spread": spread}
    found["elsewhere"] = elsewhere
    found["least_s"] = min(seconds for _, seconds in points)
    found["short"] = tuple(short)
    return found | {"times": tuple(times), "scatter": scatter(times, pairs)}


def medians(points: list[tuple[float, float]], sizes: set[float]) -> list[tuple[float, float]]:
    return sorted((n, median(s for m, s in points if m == n)) for n in sizes)


def scatter(
    times: list[tuple[float, float]], pairs: Sequence[tuple[int, float]]
) -> dict[str, float]:
    """`Measured.scatter`: alpha's of times below twice the shortest one, beta's of all longer ones.

    A size that was measured twice says it. Where none was, each time says it by its distance from
    the straight line between its neighbours, on which a line's times are. Of a distance more than
    NOISY counts. Neighbours do not show what shifts a whole run, so then it is RUN at least.
    """
    far, share = [(nbytes, log(ratio)) for nbytes, ratio in pairs], PAIR
    if not far:
        share, three = NEIGHBOURS, zip(times, times[1:], times[2:])
        far = [(n, log(s / Curve((low, high))(n))) for low, (n, s), high in three]
    seconds, twice_s = dict(times), 2 * min(s for _, s in times)
    found = {}
    for name in ("alpha", "beta") if far else ():
        own = [x for n, x in far if (seconds[n] < twice_s) == (name == "alpha")]
        own = own if len(own) >= FEW else [x for _, x in far]
        single = sqrt(fmean(min(NOISY, abs(x)) ** 2 for x in own)) / share
        found[name] = single if pairs else max(RUN, single)
    return found


def is_known(alpha_s: float, error_s: float) -> bool:
    return 2 * error_s <= alpha_s


def warnings(points: list[tuple[float, float]], fit: Fit) -> tuple[str, ...]:
    """Names the sizes whose times are more than NOISY from the line, the worst three.

    Another protocol for longer messages is no noise: intervals hold it. It is a warning where more
    bytes take less time, or have a lower rate than fewer (`falls_and_jumps`).
    """
    errors = [(abs(fit.line(nbytes) / seconds - 1), nbytes) for nbytes, seconds in points]
    far = sorted((pair for pair in errors if pair[0] > NOISY), reverse=True)
    if not far:
        return ()
    worst = ", ".join(f"{nbytes:,.0f} bytes by {100 * error:.0f} %" for error, nbytes in far[:3])
    noise = any(falls_and_jumps(points))
    again = " Measure again." if noise else " Protocols for short and long messages do that."
    return (
        f"{'WARNING: ' * noise}{len(far)} of {len(points)} times are more than {100 * NOISY:.0f} % "
        f"from the line: {worst}. Where these ranks are planned, the times are used. A ring on "
        f"others is planned with the line, and its intervals are widened to the largest.{again}",
    )


def falls_and_jumps(points: list[tuple[float, float]]) -> tuple[bool, bool]:
    """Is there a size that takes less time than a shorter one; one with a lower rate? By NOISY."""
    steps = [(t / before, n / fewer) for (fewer, before), (n, t) in pairwise(sorted(points))]
    falls = any(more * (1 + NOISY) < 1 for more, _ in steps)
    return falls, any(more > (1 + NOISY) * bytes for more, bytes in steps)


def uneven(shares: list[float]) -> tuple[str, ...]:
    """A warning where a rank took far longer than the average. shares: its time / that of all."""
    count = sum(share > UNEVEN for share in shares)
    if not count:
        return ()
    said = f"WARNING: in {count} of {len(shares)} sizes a rank took more than {UNEVEN} times the "
    said += f"average of all ranks, up to {max(shares):.0f} times. The average is planned with. "
    return (said + "Measure again.",)


def refuse(path: str, got: str, wanted: str) -> NoReturn:
    if "next: " not in wanted:
        wanted += "; next: python -m refgf.predict measure on two nodes, or osu_latency"
    raise ValueError(f"plan --machine {path}: got {got}; wanted {wanted}")
