"""Times of lesson 01: alpha and beta of messages, then the sum against the size of the vector."""

from functools import partial

import numpy as np

import kit
from kit import call_times
from lab.ring import oracle
from lab.ring.yours import NAIVE, OWN, RING, SHARED, TREE, YOUR_RING
from lab.two_ranks.naive import through_rank_0
from refgf.comm import tree
from refgf.comm.schedule import Allreduce, collective
from refgf.comm.slices import slices
from refgf.engine.node_memory import share_memory
from refgf.engine.shared import SharedMemory
from refgf.predict.cost import Link, largest_slice, ring_allreduce_s
from refgf.predict.fit import bus_bandwidth, fit_line

ITEMSIZE = 4  # bytes of a float32
IN_A_ROW = 8  # messages to the neighbour
NAIVE_BYTES = 4 << 20  # at most, because rank 0 takes p times as long as the ring
LONG = 1 << 20, 4 << 20  # bytes of messages that reach a link's rate


def measure(run: kit.Run, allreduce: Allreduce) -> dict:
    """{"curves": {place: curve}}: this run's, and of the last run's at most one of another place.

    That one is the curve in shared memory, if there is one: the figure shows both.
    """
    links = measure_links(run, allreduce)
    curve = measure_sums(run, allreduce, links)
    earlier = run.earlier().get("curves", {})
    places = [place for place in earlier if place != run.place]
    shared = [place for place in places if place.startswith("shared memory")]
    compared = {place: earlier[place] for place in (shared or places)[-1:]}
    curve |= {"ranks": run.size, "options": vars(run.options)}
    where = {"where": "the ranks and links above each panel"} if compared else {}
    return {"curves": compared | {run.place: curve}} | where


# ---- messages ----


def measure_links(run: kit.Run, ring: Allreduce) -> dict[str, Link]:
    """alpha and beta twice: between two ranks, and on all ranks at once.

    alpha is the time of an empty message; on all ranks, of a step of the ring of an empty vector,
    which includes a rank's wait for a core. beta is fitted to LONG messages only, because shorter
    ones use the credit of an idle link.
    """
    run.section("alpha and beta of this machine")
    if run.size == 1:
        run.say("One rank sends nothing: alpha and beta remain zero.")
        return {"pair": Link(0, 0), "busy": Link(0, 0)}
    repeats, links = run.quick(5, 20), {}
    alphas_s = {"pair": ping_pong(run, 0, repeats), "busy": empty_step(run, ring, repeats)}
    for name, message in (("pair", ping_pong), ("busy", neighbours)):
        long = [(nbytes, message(run, nbytes, repeats)) for nbytes in run.quick(LONG[:1], LONG)]
        links[name] = fit_line([(0, alphas_s[name]), *long]).link
    titles = {"pair": "ping-pong of ranks 0 and p-1", "busy": "all ranks at once, round the ring"}
    rows = [
        [titles[name], kit.seconds(link.alpha_s), bandwidth(link.beta_s_per_byte)]
        for name, link in links.items()
    ]
    run.table(["", "alpha", "1 / beta"], rows)
    run.say("alpha is the time of an empty message: between all ranks, of a step of the ring of an")
    run.say("empty vector. beta is of long messages: an idle link may send short ones faster.")
    return links


def bandwidth(beta_s_per_byte: float) -> str:
    fast = "too fast to measure at these sizes"
    return f"{1e-9 / beta_s_per_byte:.3g} GB/s" if beta_s_per_byte else fast


def empty_step(run: kit.Run, ring: Allreduce, repeats: int) -> float:
    """One of the 2(p-1) steps of the ring of an empty vector, in seconds."""
    x = run.xp.zeros(0, np.float32)
    return run.time(partial(ring, x), repeats, warmup=3).median_s / (2 * (run.size - 1))


def ping_pong(run: kit.Run, nbytes: int, repeats: int) -> float:
    """Half of a round trip between rank 0 and the last rank, in seconds."""
    buffer = np.zeros(nbytes, np.uint8)
    last = run.size - 1

    def there_and_back():
        if run.rank == 0:
            run.comm.Send(buffer, last)
            run.comm.Recv(buffer, last)
        elif run.rank == last:
            run.comm.Recv(buffer, 0)
            run.comm.Send(buffer, 0)

    return run.time(there_and_back, repeats, warmup=3).median_s / 2


def neighbours(run: kit.Run, nbytes: int, repeats: int) -> float:
    """One Sendrecv of every rank with its neighbours, the mean of several in a row, in seconds."""
    outgoing, incoming = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    right, left = (run.rank + 1) % run.size, (run.rank - 1) % run.size

    def in_a_row():
        for _ in range(IN_A_ROW):
            run.comm.Sendrecv(outgoing, right, 0, incoming, left, 0)

    return run.time(in_a_row, repeats, warmup=3).median_s / IN_A_ROW


# ---- sums ----


def measure_sums(run: kit.Run, ring: Allreduce, links: dict[str, Link]) -> dict:
    """Time the ring, what has fewer steps, the naive sum, and shared memory for each size."""
    run.section("The measurement")
    own = run.mpi_allreduce()  # does not wait for links
    algorithms = {RING: ring, OWN if own else TREE: own or collective(run.comm, tree.allreduce)}
    if run.size > 1 and not run.on_gpu:  # it sends arrays of the host
        algorithms[NAIVE] = partial(through_rank_0, run.comm)
    if share_memory(run.comm) and not run.on_gpu:
        algorithms[SHARED] = SharedMemory(run.comm)
        oracle.check_shared_memory(run, algorithms[SHARED])
    if run.mine and "allreduce" in run.mine:
        algorithms[YOUR_RING] = partial(run.mine["allreduce"], run.comm)
    points = []
    for exponent in run.quick(range(10, 19, 4), range(10, 27, 2), range(10, 29, 2)):
        nbytes = 1 << exponent
        n = nbytes // ITEMSIZE
        times = {
            name: call_times.measure(run, allreduce, [n], run.quick(2, 5))[n]
            for name, allreduce in algorithms.items()
            if name != NAIVE or nbytes <= NAIVE_BYTES
        }
        predicted_s = ring_allreduce_s(run.size, n, ITEMSIZE, links["busy"])
        points.append({"bytes": nbytes, "predicted_s": predicted_s, "measured": times})
    show_sums(run, points)
    adding = measure_additions(run, points[-1]["bytes"] // ITEMSIZE)
    run.say(f"Not in the prediction: additions. By themselves, for the longest vector: {adding}.")
    if SHARED in algorithms:
        algorithms[SHARED].close()
    sent = {}
    if YOUR_RING in algorithms:
        run.comm.reset()
        algorithms[YOUR_RING](run.xp.zeros(n, np.float32))
        sent["messages"] = run.comm.messages
    found = {name: vars(link) for name, link in links.items()}
    return {"points": points, **sent, **found, "adding": adding}


def measure_additions(run: kit.Run, n: int) -> kit.Timing:
    """A rank's p-1 additions of slices in a ring of n elements, on all ranks at once."""
    x, received = run.xp.zeros(n, np.float32), run.xp.zeros(largest_slice(n, run.size), np.float32)

    def add():
        for part in slices(n, run.size)[1:]:
            x[part] += received[: part.stop - part.start]

    return run.time(add, run.quick(2, 5))


def show_sums(run: kit.Run, points: list[dict]) -> None:
    rows, others = [], [name for name in points[0]["measured"] if name != RING]
    for point in points:
        times, nbytes = point["measured"], point["bytes"]
        ring_s = times[RING].median_s
        rows.append(
            [
                kit.number_of_bytes(nbytes),
                times[RING],
                kit.seconds(point["predicted_s"]) if run.size > 1 else "-",
                *(kit.seconds(times[name].median_s) if name in times else "-" for name in others),
                f"{bus_bandwidth(run.size, nbytes, ring_s) / 1e9:.3g}",
            ]
        )
    run.table(["bytes", RING, "predicted", *others, "busbw GB/s"], rows)
    run.say("Times are those of the slowest rank: the median of the repeats, [lowest..highest].")
    run.say("busbw is the ring's bus bandwidth, 2(p-1)/p bytes / time: the rate at which each")
    run.say("rank's link carries bytes in one direction. rank 0: it receives all, adds, sends all.")
