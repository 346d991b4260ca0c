"""Lesson 01: ring allreduce, and alpha and beta of this machine.

    mpiexec -n 8 python lessons/01_ring_allreduce.py
    options: --quick, --full, --plot, --threads 8, --link 1gbit,50us

QUESTION    Each of p ranks holds a vector, and all ranks need the sum. How long does the sum take,
            and what does that time depend on?
IDEA        Cut the vector into p slices and send every slice round a ring twice: once to reduce it,
            once to distribute the sum. Every rank sends to one neighbour only. No rank sends more
            than twice the vector. (refgf/comm/ring.py)
PREDICTION  A message of m bytes takes alpha + beta m. The ring takes 2(p-1) messages of n/p
            elements, one after another:

                T(n) = 2(p-1) alpha  +  2 (p-1)/p  4n beta          float32: 4n bytes

            Short vectors pay for the number of messages, long ones for the bytes. Between them lies
            the size at which half of the bandwidth is reached. Gradients of single layers are often
            below that size. This is why GradientFlow has lazy allreduce (lesson 03).

Before you run it, write down: how much longer does the sum of 64 MiB take than that of 1 KiB? Is it
65,536 times as long?

This is weak scaling: each rank brings a vector of n elements, whatever p is.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/01_ring_allreduce.py)
    1. Reverse the direction of the ring. In which order are the ranks added now? Do the bits
       change?
    2. A colleague sends the whole vector p-1 times round the ring. Which check of this lesson
       catches the mistake: values or bytes?
    3. For which p do ring and direct (refgf/comm/direct.py) always give the same bits? Why?
"""

import refgf.launch  # noqa: F401  before MPI starts

import textwrap

import numpy as np

import kit
from kit import call_times
from lab.ring_claims import CLAIMS
from refgf.comm import direct, ring
from refgf.comm.replay import check, replay
from refgf.comm.schedule import NOTHING, Step, collective
from refgf.engine.node_memory import share_memory
from refgf.engine.shared import SharedMemory
from refgf.comm.slices import length, slices
from refgf.oracle.definitions import exact_sum, ring_allreduce, same_bits, summation_bound
from refgf.predict.cost import Link, ring_allreduce_s
from refgf.predict.fit import bus_bandwidth
from refgf.predict.fit import fit_line

FLOAT = np.float32
ITEMSIZE = 4


def measure(run: kit.Run) -> dict:
    run.section("One step: who sends what")
    show_schedule(run)
    check_against_oracle(run)
    show_blocked_sends(run)
    show_order_of_summation(run)
    link = measure_link(run)
    curve = measure_allreduce(run, link)
    earlier = run.earlier().get("curves", {})
    places = [place for place in earlier if place != run.place]
    shared = [place for place in places if place.startswith("shared memory")]
    compared = {place: earlier[place] for place in (shared or places)[-1:]}  # at most one
    curve |= {"ranks": run.size, "options": vars(run.options)}
    return {"curves": compared | {run.place: curve}}


def show_schedule(run: kit.Run) -> None:
    """Print the schedule of every rank as a table: rows are steps, columns are ranks."""
    p = min(run.size, 8)
    schedules = [ring.allreduce(rank, p, p) for rank in range(p)]
    messages = [[step for step in schedule if step.send_to is not None] for schedule in schedules]
    run.say(f"The slice that each of {p} ranks sends to its right neighbour in each step.")
    run.say("+ is added there, = is copied:")

    def cell(step: Step) -> str:
        return f"{step.send.start}{'+' if step.op == 'add' else '='}"

    rows = [[i, *(cell(messages[rank][i]) for rank in range(p))] for i in range(len(messages[0]))]
    run.table(["step"] + [f"rank {rank}" for rank in range(p)], rows)


def check_against_oracle(run: kit.Run) -> None:
    """Compare bits with the definition, messages and bytes with the formula, on awkward sizes."""
    p, rank = run.size, run.rank
    run.section("The oracle")
    for n in (0, 1, p - 1, p + 1, 1000):
        xs = vectors(n, p)
        x = xs[rank].copy()
        run.comm.reset()
        collective(run.comm, ring.allreduce)(x)
        where = f"ring allreduce of {n} elements on rank {rank}"
        if not same_bits(x, ring_allreduce(xs)[rank]):
            raise AssertionError(f"{where}: got other bits; wanted those of the definition")
        error = np.abs(x.astype(np.float64) - exact_sum(xs))
        if not (error <= summation_bound(xs)).all():
            raise AssertionError(f"{where}: got an error above the bound on rounding")
        cut = slices(n, p)
        elements = 2 * n - length(cut[(rank + 1) % p]) - length(cut[(rank + 2) % p])
        wanted = (2 * (p - 1), ITEMSIZE * elements) if p > 1 else (0, 0)
        sent = run.comm.messages, run.comm.bytes
        if sent != wanted:
            raise AssertionError(f"{where}: sent (messages, bytes) {sent}; wanted {wanted}")
    run.say("For n = 0, 1, p-1, p+1 and 1000 the bits are as defined.")
    run.say(f"Rank r sends 2(p-1) = {2 * (p - 1)} messages.")
    run.say("They hold 2n - |slice r+1| - |slice r+2| elements.")


def vectors(n: int, p: int) -> list[np.ndarray]:
    """A random vector for each rank."""
    return [np.random.default_rng([n, r]).standard_normal(n).astype(FLOAT) for r in range(p)]


def show_blocked_sends(run: kit.Run) -> None:
    """Show that sending before receiving deadlocks as soon as MPI does not buffer messages."""
    run.section("What if every rank sends first and then receives?")
    p = max(2, run.size)
    everything = slice(0, 4)
    wrong = [
        [
            Step((r + 1) % p, everything, None, NOTHING, "copy"),
            Step(None, NOTHING, (r - 1) % p, everything, "copy"),
        ]
        for r in range(p)
    ]
    try:
        check(wrong)
    except ValueError as error:
        text = str(error)
        if len(text) >= 600:
            text = f"{text[:260]} ... {text[text.index('; wanted') :]}"
        run.say(textwrap.fill(text, 100))
    check([ring.allreduce(r, p, 4) for r in range(p)])
    run.say("The ring's Sendrecv posts both at the same time, so the ring passes the same check.")


def show_order_of_summation(run: kit.Run) -> None:
    """Sum the same numbers in the order that p and the algorithm imply."""
    run.section("Why the bits depend on p and the algorithm (ranks replayed in this process)")
    numbers = np.random.default_rng(1).standard_normal((12, 64)).astype(FLOAT)
    rows = []
    for p in (1, 2, 3, 4, 6):
        xs = [numbers[r::p].sum(axis=0, dtype=FLOAT) for r in range(p)]  # each rank's own sum
        sums = [
            replay([algorithm(r, p, 64) for r in range(p)], xs)[0]
            for algorithm in (ring.allreduce, direct.allreduce)
        ]
        error = np.abs(sums[0] - numbers.astype(np.float64).sum(axis=0)).max()
        rows.append(
            [
                p,
                *(f"{s[63].view(np.uint32):08x}" for s in sums),
                int((sums[0] != sums[1]).sum()),
                f"{error:.1e}",
            ]
        )
    run.table(["p", "ring", "direct", "elements that differ", "largest error of ring"], rows)
    run.say(
        "Each element is the sum of the same 12 numbers. The table shows the last one's bits in"
    )
    run.say(
        "hexadecimal. Every float addition rounds, so the sum depends on the order of addition."
    )
    run.say("p and the algorithm determine this order. All ranks of one run hold the same bits.")


def measure_link(run: kit.Run) -> dict:
    """Measure alpha and beta twice: between two ranks, and between all neighbours at once."""
    run.section("alpha and beta of this machine")
    sizes = run.quick([64, 65536], [64, 4096, 65536, 1 << 20, 4 << 20])
    if run.size == 1:
        run.say("One rank sends nothing: alpha and beta remain zero.")
        return {"pair": Link(0, 0), "busy": Link(0, 0)}
    links = {}
    for name, step in (("pair", ping_pong), ("busy", neighbours)):
        points = [(nbytes, step(run, nbytes, run.quick(5, 20))) for nbytes in sizes]
        links[name] = fit_line(points).link
    run.table(
        ["", "alpha", "1 / beta"],
        [
            [title, kit.seconds(links[name].alpha_s), bandwidth(links[name].beta_s_per_byte)]
            for name, title in (
                ("pair", "ping-pong of ranks 0 and p-1"),
                ("busy", "all ranks at once, round the ring"),
            )
        ],
    )
    return links


def bandwidth(beta_s_per_byte: float) -> str:
    fast = "too fast to measure at these sizes"
    return f"{1e-9 / beta_s_per_byte:.3g} GB/s" if beta_s_per_byte else fast


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
    """One Sendrecv of every rank with its neighbours, the mean of eight in a row, in seconds."""
    outgoing, incoming = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    right, left = (run.rank + 1) % run.size, (run.rank - 1) % run.size

    def eight():
        for _ in range(8):
            run.comm.Sendrecv(outgoing, right, 0, incoming, left, 0)

    return run.time(eight, repeats, warmup=3).median_s / 8


def measure_allreduce(run: kit.Run, link: dict) -> dict:
    """Time the ring, MPI's own Allreduce and shared memory for each size."""
    run.section("The measurement")
    algorithms = {"ring": collective(run.comm, ring.allreduce)}
    if own := run.mpi_allreduce():
        algorithms["MPI's own"] = own
    if share_memory(run.comm):
        algorithms["no messages"] = without_messages(run)
    sizes = [1 << k for k in run.quick(range(10, 19, 4), range(10, 27, 2), range(10, 29, 2))]
    points, rows = [], []
    for nbytes in sizes:
        n = nbytes // ITEMSIZE
        times = {
            name: call_times.measure(run, a, [n], run.quick(2, 5))[n]
            for name, a in algorithms.items()
        }
        predicted_s = ring_allreduce_s(run.size, n, ITEMSIZE, link["busy"])
        points.append({"bytes": nbytes, "predicted_s": predicted_s, "measured": times})
        t = times["ring"].median_s
        own = times.get("MPI's own")
        rows.append(
            [
                kit.number_of_bytes(nbytes),
                times["ring"],
                kit.seconds(predicted_s) if run.size > 1 else "-",
                kit.seconds(own.median_s) if own else "-",
                kit.seconds(times["no messages"].median_s) if "no messages" in times else "-",
                f"{nbytes / t / 1e9:.3g}",
                f"{bus_bandwidth(run.size, nbytes, t) / 1e9:.3g}",
            ]
        )
    header = ["bytes", "ring", "predicted", "MPI's own", "no messages", "algbw GB/s", "busbw GB/s"]
    run.table(header, rows)
    run.say("Times are those of the slowest rank: the median of the repeats, [lowest..highest].")
    run.say(
        "algbw is the algorithm bandwidth, bytes / time. busbw is the bus bandwidth, 2(p-1)/p of"
    )
    run.say("algbw: the rate at which each rank's link carries bytes in one direction.")
    if "no messages" in algorithms:
        algorithms["no messages"].close()
    return {"points": points, **{name: vars(fitted) for name, fitted in link.items()}}


def without_messages(run: kit.Run) -> SharedMemory:
    """The allreduce through shared memory, once its bits are found to be those of `direct`."""
    allreduce = SharedMemory(run.comm)
    for n in (0, 1, run.size + 1, 100_000):
        xs = vectors(n, run.size)
        x = xs[run.rank].copy()
        allreduce(x)
        schedules = [direct.allreduce(r, run.size, n) for r in range(run.size)]
        if not same_bits(x, replay(schedules, xs)[run.rank]):
            where = f"shared-memory allreduce of {n} elements on rank {run.rank}"
            raise AssertionError(f"{where}: got other bits; wanted those of direct")
    return allreduce


def draw(result: dict):
    import matplotlib.pyplot as plt

    curves = result["curves"]
    figure, axes = plt.subplots(
        2, len(curves), figsize=(6.5 * len(curves), 8), squeeze=False, sharey="row"
    )
    for (place, curve), (time_axis, bandwidth_axis) in zip(curves.items(), axes.T):
        points = curve["points"]
        nbytes = [point["bytes"] for point in points]
        for name, marker in (("ring", "o"), ("MPI's own", "s"), ("no messages", "^")):
            times = [point["measured"].get(name) for point in points]
            if times[0]:
                median = [t["median_s"] for t in times]
                spread = [
                    [t["median_s"] - t["low_s"] for t in times],
                    [t["high_s"] - t["median_s"] for t in times],
                ]
                time_axis.errorbar(
                    nbytes, median, spread, marker=marker, capsize=2, label=f"{name}, measured"
                )
                bus = [bus_bandwidth(curve["ranks"], n, t) / 1e9 for n, t in zip(nbytes, median)]
                bandwidth_axis.plot(nbytes, bus, marker=marker, label=f"{name}, measured")
        if curve["ranks"] > 1:
            predicted = [point["predicted_s"] for point in points]
            time_axis.plot(
                nbytes, predicted, "k--", label="ring, predicted: 2(p-1) alpha + 2(p-1)/p 4n beta"
            )
            bus = [bus_bandwidth(curve["ranks"], n, t) / 1e9 for n, t in zip(nbytes, predicted)]
            bandwidth_axis.plot(nbytes, bus, "k--", label="ring, predicted")
        time_axis.set(
            xscale="log", yscale="log", ylabel="seconds", title=f"{curve['ranks']} ranks, {place}"
        )
        time_axis.title.set_fontsize(9)
        bandwidth_axis.set(
            xscale="log", yscale="log", xlabel="bytes per rank", ylabel="bus bandwidth, GB/s"
        )
        for axis in (time_axis, bandwidth_axis):
            axis.set_xscale("log", base=2)
            axis.set_xticks(nbytes[::2], [kit.number_of_bytes(n) for n in nbytes[::2]], fontsize=8)
            axis.legend(fontsize=8)
            axis.grid(alpha=0.3)
    figure.suptitle("Lesson 01: time of a ring allreduce. Where does latency dominate?")
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    return figure


if __name__ == "__main__":
    kit.Lesson(
        __file__,
        __doc__,
        probe=True,
        claims=CLAIMS,
        picture="Time of an allreduce against bytes: ring, prediction and MPI own call.",
    ).main(measure, draw)
