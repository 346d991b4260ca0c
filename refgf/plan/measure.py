"""`python -m refgf.predict measure`: a machine file from messages on at most 2 nodes.

    mpiexec -n 2 --host one,two python -m refgf.predict measure --out mine.json     between nodes
    mpiexec -n 3 ...             two ranks on the first node: the link inside a node as well
    python -m refgf.cluster run --nodes 2 --rate 250mbit -- python -m refgf.predict measure \\
        --out mine.json                                             between two emulated nodes

Two ranks exchange messages as the ranks of a ring do: both send and receive at once, call after
call without a pause. A ping-pong would flatter the link twice: only one direction is busy, and a
shaped link collects credit in every pause. Each coefficient is measured where it decides:

    alpha    messages of at most 1 KiB          beta    messages of 1 MiB and 4 MiB
    gamma    time per byte of adding float32 vectors with NumPy

The whole measurement is repeated in ROUNDS rounds over some seconds, large messages first in every
second one. After LIMIT_S seconds no further round begins, once there are LEAST_ROUNDS. A round
sends 32 MiB each way, so a link of 100 Mbit/s takes 20 s, and one of 10 Mbit/s 80 s. Values are
medians of the rounds. Errors are standard deviations of the rounds, from their quartiles: one
disturbed round says nothing, and neither does one disturbed repeat in a round.
"""

import platform
import statistics
import time
from math import floor, log10
from typing import Any

import numpy as np

from refgf.advice import mpi
from refgf.papers.scaling.machine import Machine, save
from refgf.predict.cost import Line, Link
from refgf.predict.fit import Fit

SMALL = {64: 100, 256: 100, 1024: 100}  # {bytes: exchanges in a repeat}
LARGE = {1 << 20: 4, 1 << 22: 1}
MOST_NODES = 2
ROUNDS, ROUND_S = 10, 0.5  # a round begins at the earliest so long after the one before it
LIMIT_S, LEAST_ROUNDS = 20.0, 3
REPEATS = 3
UNSURE = 1 / 3  # of the value: an error above it is warned of
SUM_ELEMENTS = 1 << 20


def world() -> Any:
    """The communicator of all ranks."""
    import refgf.launch  # noqa: F401  must come before MPI starts

    return started()


def started() -> Any:
    return mpi("predict measure").COMM_WORLD


def write(comm: Any, path: str) -> None:
    """Measure, and save the machine file from rank 0."""
    found = measure(comm)
    if found is not None:
        save(found, path)
        said = (
            f"{name} {in_words(link, found.errors[name])}" for name, link in found.links.items()
        )
        print(f"{path}: " + "; ".join(said))
        if found.links.get("inside") == found.links["between"]:
            print("all ranks were on one node: its link stands for the one between nodes, too")
        for warning in doubts(found):
            print(warning)


def in_words(link: Link, errors: tuple[float, float]) -> str:
    rate = 8e-9 / link.beta_s_per_byte
    rate_error = rate * errors[1] / link.beta_s_per_byte
    alpha = with_error(1e6 * link.alpha_s, 1e6 * errors[0])
    return f"{alpha} us, {with_error(rate, rate_error)} Gbit/s"


def with_error(value: float, error: float) -> str:
    """Both to the decimal place of the error's first digit: 7.2 +- 0.4."""
    if not error > 0:
        return f"{value:,.4g} +- 0"
    place = -floor(log10(error))
    return " +- ".join(f"{round(each, place):,.{max(0, place)}f}" for each in (value, error))


def doubts(found: Machine) -> list[str]:
    """The warnings of its links. One link that stands for both is warned of once."""
    links = {link: name for name, link in reversed(found.links.items()) if name in found.errors}
    return [
        warning
        for link, name in links.items()
        for warning in warnings(name, link, found.errors[name])
    ]


def warnings(name: str, link: Link, errors: tuple[float, float]) -> list[str]:
    """A sentence for each coefficient whose error is above UNSURE of its value."""
    values = {"latency": link.alpha_s, "rate": link.beta_s_per_byte}
    return [
        f"WARNING: {name}, {kind}: its error is {100 * error / value:.0f} % of it; next: "
        "measure again, on idle nodes"
        for (kind, value), error in zip(values.items(), errors)
        if value and error > UNSURE * value
    ]


def measure(comm: Any) -> Machine | None:
    """The machine, on rank 0; None on the others. Collective over an mpi4py communicator."""
    names = comm.allgather(platform.node())
    nodes = list(dict.fromkeys(names))
    if comm.Get_size() < 2 or len(nodes) > MOST_NODES:
        got = f"{comm.Get_size()} ranks on {len(nodes)} nodes"
        raise ValueError(
            f"measure on rank {comm.Get_rank()}: got {got}; wanted 2 or more ranks on at most "
            f"{MOST_NODES} nodes; next: mpiexec -n 2 refgf predict measure --out mine.json"
        )
    pairs = {}
    if len(nodes) == 2:
        pairs["between"] = (0, names.index(nodes[1]))
    together = [rank for rank, name in enumerate(names) if name == nodes[0]]
    if len(together) > 1:
        pairs["inside"] = (together[0], together[1])
    fits = {name: fit_pair(comm, *pair) for name, pair in pairs.items()}
    if comm.Get_rank():
        return None
    gamma = sum_s_per_byte()
    links = {name: Link(fit.a_s, fit.b_s_per_byte, gamma) for name, fit in fits.items()}
    if "between" not in links:  # all ranks on one node: the only link there is
        links, fits = ({"between": each["inside"]} | each for each in (links, fits))
    errors = {name: (fits[name].a_error_s, fits[name].b_error_s_per_byte) for name in links}
    source = f"refgf.predict measure, {len(nodes)} node(s), {time.strftime('%Y-%m-%d')}"
    return Machine(" and ".join(nodes), source, "measured", links, {}, errors)


def fit_pair(comm: Any, a: int, b: int) -> Fit | None:
    """alpha and beta between two ranks; all ranks get them."""
    fit = None
    if comm.Get_rank() in (a, b):
        other = b if comm.Get_rank() == a else a
        fit = fitted(rounds_s(comm, other))
    return comm.bcast(fit, root=a)


def rounds_s(comm: Any, other: int) -> list[dict[int, list[float]]]:
    """Of each round {bytes: seconds of each repeat}."""
    both, found, begin_s = SMALL | LARGE, [], time.perf_counter()
    while len(found) < ROUNDS:
        start_s = time.perf_counter()
        order = sorted(both, reverse=len(found) % 2 == 1)
        found.append({size: exchanges_s(comm, other, size, both[size]) for size in order})
        if len(found) >= LEAST_ROUNDS and longest_s(comm, other, begin_s) > LIMIT_S:
            break
        if len(found) < ROUNDS:
            time.sleep(max(0.0, start_s + ROUND_S - time.perf_counter()))
    return found


def longest_s(comm: Any, other: int, begin_s: float) -> float:
    """Seconds since begin_s on the slower of both ranks, so that they agree on another round."""
    mine, theirs = np.array([time.perf_counter() - begin_s]), np.empty(1)
    comm.Sendrecv(mine, other, 0, theirs, other, 0)
    return max(mine[0], theirs[0])


def exchanges_s(comm: Any, other: int, nbytes: int, count: int) -> list[float]:
    """Seconds of one exchange in each of REPEATS rows of `count`, after a row that is not timed."""
    out, into, times_s = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8), []
    for _ in range(REPEATS + 1):
        start_s = time.perf_counter()
        for _ in range(count):
            comm.Sendrecv(out, other, 0, into, other, 0)
        times_s.append((time.perf_counter() - start_s) / count)
    return times_s[1:]


def fitted(rounds: list[dict[int, list[float]]]) -> Fit:
    """The median line of the rounds, and how far their coefficients spread."""
    lines = [line_of(times_s) for times_s in rounds]
    alphas, betas = [line.a_s for line in lines], [line.b_s_per_byte for line in lines]
    beta = max(statistics.median(betas), 1e-14)  # the least that a machine file takes
    line = Line(statistics.median(alphas), beta)
    largest = max(
        abs(line(size) / statistics.median(times_s) - 1)
        for each in rounds
        for size, times_s in each.items()
    )
    errors = spread(alphas), spread(betas)
    points = sum(len(times_s) for each in rounds for times_s in each.values())
    return Fit(line.a_s, beta, *errors, largest, points)


def line_of(times_s: dict[int, list[float]]) -> Line:
    """{bytes: seconds of each repeat} as a line: beta of the LARGE messages, alpha of the SMALL."""
    alpha_s = statistics.median(seconds for size in SMALL for seconds in times_s[size])
    betas = [(seconds - alpha_s) / size for size in LARGE for seconds in times_s[size]]
    return Line(alpha_s, statistics.median(betas))


def spread(values: list[float]) -> float:
    """The standard deviation of normal values with these quartiles."""
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 1.35


def sum_s_per_byte() -> float:
    a, b = np.zeros(SUM_ELEMENTS, np.float32), np.ones(SUM_ELEMENTS, np.float32)
    times_s = []
    for _ in range(REPEATS):
        start_s = time.perf_counter()
        np.add(a, b, out=a)
        times_s.append(time.perf_counter() - start_s)
    return statistics.median(times_s) / a.nbytes
