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

Errors are standard deviations of repeats, from their quartiles: one disturbed repeat says nothing.
"""

import platform
import statistics
import time
from typing import Any

import numpy as np

from refgf.papers.scaling.machine import Machine, save
from refgf.predict.cost import Line, Link
from refgf.predict.fit import Fit

SMALL = {64: 50, 256: 50, 1024: 50}  # {bytes: exchanges in a repeat}
LARGE = {1 << 20: 4, 1 << 22: 1}
MOST_NODES = 2
REPEATS = 7
SUM_ELEMENTS = 1 << 20


def world() -> Any:
    """The communicator of all ranks."""
    import refgf.launch  # noqa: F401  must come before MPI starts

    return started()


def started() -> Any:
    from mpi4py import MPI

    return MPI.COMM_WORLD


def write(comm: Any, path: str) -> None:
    """Measure, and save the machine file from rank 0."""
    found = measure(comm)
    if found is not None:
        save(found, path)
        print(f"{path}: " + "; ".join(f"{name} {said(link)}" for name, link in found.links.items()))
        if "inside" in found.links and found.links["inside"] == found.links["between"]:
            print("all ranks were on one node: its link stands for the one between nodes, too")


def said(link: Link) -> str:
    return f"{1e6 * link.alpha_s:,.4g} us, {8e-9 / link.beta_s_per_byte:.4g} Gbit/s"


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
        both = SMALL | LARGE
        fit = fitted({size: exchanges_s(comm, other, size, both[size]) for size in both})
    return comm.bcast(fit, root=a)


def exchanges_s(comm: Any, other: int, nbytes: int, count: int) -> list[float]:
    """Seconds of one exchange in each of REPEATS rows of `count`, after a row that is not timed."""
    out, into, times_s = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8), []
    for _ in range(REPEATS + 1):
        start_s = time.perf_counter()
        for _ in range(count):
            comm.Sendrecv(out, other, 0, into, other, 0)
        times_s.append((time.perf_counter() - start_s) / count)
    return times_s[1:]


def fitted(times_s: dict[int, list[float]]) -> Fit:
    """{bytes: seconds of each repeat} as a line: beta of the LARGE messages, alpha of the SMALL."""
    alphas = [seconds for size in SMALL for seconds in times_s[size]]
    alpha_s = statistics.median(alphas)
    betas = [(seconds - alpha_s) / size for size in LARGE for seconds in times_s[size]]
    beta = max(statistics.median(betas), 1e-14)  # the least that a machine file takes
    line = Line(alpha_s, beta)
    largest = max(abs(line(m) / statistics.median(each) - 1) for m, each in times_s.items())
    errors = spread(alphas), spread(betas)
    return Fit(alpha_s, beta, *errors, largest, len(alphas) + len(betas))


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
