"""The words of the lessons: units, where the ranks are, the docstring before and after a run."""

import math

import refgf.launch as launch
from kit.regime import environment
from refgf.comm.topology import nodes


FACTOR = 2  # errors above it are printed as factors: a percentage of a short prediction hides them


def before_and_after(doc: str) -> tuple[str, str]:
    """The docstring's text to print before the run (question to prediction), and after it."""
    before, title, change = doc[doc.index("QUESTION") :].partition("NOW CHANGE SOMETHING")
    return before.strip(), f"{title}{change.rstrip()}"


def question(doc: str) -> str:
    """The docstring's QUESTION, without its title, in one line."""
    return " ".join(doc[doc.index("QUESTION") :].partition("IDEA")[0].split()[1:])


def place(comm, options) -> str:
    """Where the ranks are, and which links connect them. Collective."""
    groups = nodes(comm)
    per_node = "/".join(str(n) for n in sorted({len(group) for group in groups}))
    plural = "s" * (len(groups) > 1), "s" * (per_node != "1")
    spread = f"{len(groups)} node{plural[0]} x {per_node} rank{plural[1]}"
    if options.link:
        return (
            f"one machine that WAITS like a link of {options.link} for each rank "
            "(not a measured network)"
        )
    if getattr(options, "like", None) not in (None, "this-machine") and not environment():
        return f"{spread}; links like {options.like} are WAITED for (not a measured network)"
    if options.threads:
        return "threads of one process, no MPI"
    if cluster := environment():
        slow = "".join(f", {name} of {rate}" for name, rate in cluster["slow"].items())
        latency = f", latency {cluster['latency']}" if cluster["latency_s"] else ""
        mtu = f", MTU {cluster['mtu']}" if cluster["mtu"] != 1500 else ""
        return f"emulated cluster, {spread}, links of {cluster['rate']}{slow}{latency}{mtu}"
    return f"shared memory of one machine, {launch.job.cores} cores" if len(groups) == 1 else spread


def count(number: int, what: str) -> str:
    """(1, 'call') -> '1 call', (2, 'call') -> '2 calls'."""
    return f"{number} {what}{'s' * (number != 1)}"


def number_of_ranks(number: int) -> str:
    return count(number, "rank")


def link_probed(row: dict) -> str:
    """Describe a row of `refgf.cluster.probe`."""
    return f"link probed: {row['raw'] / 1e6:.4g} MB/s of TCP"


def number_of_bytes(n: float) -> str:
    """1536 -> '1.5 KiB'."""
    if math.isinf(n):
        return "inf"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.4g} {unit}"
        n /= 1024


def threshold(theta: float) -> str:
    """65536 -> '64 KiB', and 65537 -> '65,537 bytes': the short form would round."""
    divisor = next((unit for unit in (2**30, 2**20, 2**10) if theta >= unit), 1)
    short = math.isinf(theta) or round(theta / divisor, 2) * divisor == theta
    return number_of_bytes(theta) if short else f"{theta:,.0f} bytes"


def seconds(t: float) -> str:
    """0.00213 -> '2.13 ms'."""
    for unit, scale in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if abs(t) >= 0.9995 * scale or unit == "us":  # which rounds up to three digits
            return f"{t / scale:.3g} {unit}"


def percent(share: float) -> str:
    """0.873 -> '87 %'."""
    return f"{100 * share:.3g} %"


def times(factor: float) -> str:
    """1.82 -> '1.82 x', 1653 -> '1,650 x'."""
    return f"{float(f'{factor:.3g}'):,.10g} x"


def errors_in_words(pairs) -> str:
    """The relative errors of predictions. pairs: [(predicted_s, measured_s)]"""
    pairs = list(pairs)
    errors = [abs(predicted_s / measured_s - 1) for predicted_s, measured_s in pairs]
    largest = max(pairs, key=lambda pair: factor_off(*pair))
    if factor_off(*largest) <= FACTOR:
        said = f"mean error {sum(errors) / len(errors):.0%}, largest error {max(errors):.0%}"
    else:
        near = sum(factor_off(*pair) <= FACTOR for pair in pairs)
        said = f"largest error {off_by(*largest)}, {near} within a factor of {FACTOR}"
    return f"predicted against measured: {said} ({len(errors)} times)"


def off_by(predicted: float, measured: float) -> str:
    """How far a prediction is off: 4 %, and above a factor of two 8.2 x, whichever is larger."""
    factor = factor_off(predicted, measured)
    if factor <= FACTOR:
        return f"{abs(predicted / measured - 1):.0%}"
    return f"{factor:.2g} x" if factor < 100 else f"{factor:,.0f} x"


def factor_off(predicted: float, measured: float) -> float:
    """The larger number over the smaller; infinity where one of them is not above 0."""
    if predicted == measured:
        return 1.0
    low, high = sorted((predicted, measured))
    return high / low if low > 0 else math.inf
