"""Lesson 01: ring allreduce, and alpha and beta of this machine.

    mpiexec -n 8 python lessons/01_ring_allreduce.py            (--quick, --full, --plot, --threads
    8, --link 1gbit,50us)

QUESTION    p ranks hold a vector each, and all need the sum. How long does that take, and what does
            it depend on?
IDEA        Cut the vector into p slices and let every slice travel round a ring twice: once to be
            summed, once to be handed out. Every rank sends to one neighbour only, and never more
            than twice the vector. (refgf/comm/ring.py)
PREDICTION  A message of m bytes takes alpha + beta m. The ring takes 2(p-1) messages of n/p
            elements, one after another:

                T(n) = 2(p-1) alpha  +  2 (p-1)/p  4n beta          float32: 4n bytes

            Short vectors pay for the number of messages, long ones for the bytes. Between them lies
            the size at which half of the bandwidth is reached; gradients of single layers are often
            below it. That is what GradientFlow's lazy allreduce is about (lesson 03).

Before you run it, write down: how much longer does the sum of 64 MiB take than that of 1 KiB?
65,536 times?

This is weak scaling: each rank brings a vector of n elements, whatever p is.

WHAT YOU SHOULD SEE    A flat line (latency), then a slope (bandwidth). Where MPI's own Allreduce
                       picks another algorithm
            for short vectors it is faster there. With more ranks than cores every message also
            waits for a core, so alpha among p busy ranks is not that between two: both are
            measured, and the prediction uses the busy one. Ranks of one node need no messages at
            all: each reads what the others wrote (refgf/engine/shared.py).

NOW CHANGE SOMETHING    (solutions: lessons/solutions/01_ring_allreduce.py)
    1. Let the ring turn the other way. Which ranks are added in which order now? Do the bits
    change? 2. Someone sends the whole vector p-1 times round the ring. Which check of this lesson
    catches it: values or bytes? 3. For which p do ring and direct (refgf/comm/direct.py) always
    give the same bits? Why?
"""

import refgf.launch  # noqa: F401  before MPI starts

import numpy as np

import kit
from kit import call_times
from refgf.comm import direct, ring
from refgf.comm.replay import check, replay
from refgf.comm.schedule import NOTHING, Step, collective
from refgf.engine.node_memory import share_memory
from refgf.engine.shared import SharedMemory
from refgf.comm.slices import length, slices
from refgf.oracle.definitions import exact_sum, ring_allreduce, same_bits, summation_bound
from refgf.predict.cost import Link, bus_bandwidth, ring_allreduce_s
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
    others = {
        place: c for place, c in run.earlier().get("curves", {}).items() if place != run.place
    }
    shared = [place for place in others if place.startswith("shared memory")]
    beside = {
        place: others[place] for place in (shared or list(others))[-1:]
    }  # else the last run's that was elsewhere
    return {
        "curves": beside | {run.place: curve | {"ranks": run.size, "options": vars(run.options)}}
    }


def show_schedule(run: kit.Run) -> None:
    """The schedule of every rank as a table: rows are steps, columns ranks."""
    p = min(run.size, 8)
    schedules = [ring.allreduce(rank, p, p) for rank in range(p)]
    messages = [[step for step in schedule if step.send_to is not None] for schedule in schedules]
    run.say(
        f"Slice that each of {p} ranks sends to its right neighbour, step by step; + is added there, = is copied:"
    )
    rows = [
        [step]
        + [
            f"{messages[rank][step].send.start}{'+' if messages[rank][step].op == 'add' else '='}"
            for rank in range(p)
        ]
        for step in range(len(messages[0]))
    ]
    run.table(["step"] + [f"rank {rank}" for rank in range(p)], rows)


def check_against_oracle(run: kit.Run) -> None:
    """Bits equal to the definition, messages and bytes equal to the formula, on awkward sizes."""
    p, rank = run.size, run.rank
    run.section("The oracle")
    for n in (0, 1, p - 1, p + 1, 1000):
        everybody = [
            np.random.default_rng([n, r]).standard_normal(n).astype(FLOAT) for r in range(p)
        ]
        x = everybody[rank].copy()
        run.comm.reset()
        collective(run.comm, ring.allreduce)(x)
        if not same_bits(x, ring_allreduce(everybody)[rank]):
            raise AssertionError(f"rank {rank}: the ring differs from its definition for n = {n}")
        if not (
            np.abs(x.astype(np.float64) - exact_sum(everybody)) <= summation_bound(everybody)
        ).all():
            raise AssertionError(
                f"rank {rank}: the ring is further from the exact sum than rounding allows, n = {n}"
            )
        parts = slices(n, p)
        elements = (
            2 * n - length(parts[(rank + 1) % p]) - length(parts[(rank + 2) % p]) if p > 1 else 0
        )
        if (run.comm.messages, run.comm.bytes) != (2 * (p - 1), elements * ITEMSIZE):
            raise AssertionError(
                f"rank {rank}: sent {run.comm.messages} messages, {run.comm.bytes} bytes for n = {n}"
            )
    run.say(
        f"bits as defined, and 2(p-1) = {2 * (p - 1)} messages with 2n - |slice r+1| - |slice r+2| elements, "
        "for n = 0, 1, p-1, p+1, 1000"
    )


def show_blocked_sends(run: kit.Run) -> None:
    """Send first, receive then: works while MPI buffers small messages, and hangs when it stops
    doing so.
    """
    run.section("What if everybody sends first?")
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
        told = str(error)
        run.say(told if len(told) < 600 else told[:260] + " ... " + told[told.index("; wanted") :])
    check([ring.allreduce(r, p, 4) for r in range(p)])
    run.say("The ring's Sendrecv posts both at once: the same check passes.")


def show_order_of_summation(run: kit.Run) -> None:
    """The sum of the same numbers, in the order that p and the algorithm imply."""
    run.section(
        "Why the bits change with p and with the algorithm (ranks replayed in this process)"
    )
    numbers = (
        np.random.default_rng(1).standard_normal((12, 64)).astype(FLOAT)
    )  # 12 contributions of 64 elements
    rows = []
    for p in (1, 2, 3, 4, 6):
        xs = [
            numbers[r::p].sum(axis=0, dtype=FLOAT) for r in range(p)
        ]  # each rank adds its own first
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
        "The same 12 numbers per element, the last element's bits in hexadecimal. Float addition rounds each time, so the"
    )
    run.say(
        "order is part of the answer: p and the algorithm decide it. All ranks of one run hold the same bits."
    )


def measure_link(run: kit.Run) -> dict:
    """alpha and beta twice: ping-pong of two ranks while the others idle, and all ranks talking to
    their neighbours.
    """
    run.section("alpha and beta of this machine")
    sizes = run.quick([64, 65536], [64, 4096, 65536, 1 << 20, 4 << 20])
    if run.size == 1:
        run.say("one rank sends nothing; alpha and beta are left at zero")
        return {"pair": Link(0, 0), "busy": Link(0, 0)}
    links = {}
    for name, step in (("pair", ping_pong), ("busy", neighbours)):
        points = [(nbytes, step(run, nbytes, run.quick(5, 20))) for nbytes in sizes]
        links[name] = fit_line(points).link
    run.table(
        ["", "alpha", "1 / beta"],
        [
            [told, kit.seconds(links[name].alpha_s), bandwidth(links[name].beta_s_per_byte)]
            for name, told in (
                ("pair", "ping-pong of ranks 0 and p-1"),
                ("busy", "all ranks at once, round the ring"),
            )
        ],
    )
    return links


def bandwidth(beta_s_per_byte: float) -> str:
    return (
        f"{1e-9 / beta_s_per_byte:.3g} GB/s"
        if beta_s_per_byte
        else "too fast to see at these sizes"
    )


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
    """One Sendrecv of every rank with its neighbours, averaged over eight in a row, in seconds."""
    outgoing, incoming = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    right, left = (run.rank + 1) % run.size, (run.rank - 1) % run.size

    def eight():
        for _ in range(8):
            run.comm.Sendrecv(outgoing, right, 0, incoming, left, 0)

    return run.time(eight, repeats, warmup=3).median_s / 8


def measure_allreduce(run: kit.Run, link: dict) -> dict:
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
                own or "-",
                times.get("no messages", "-"),
                f"{t / own.median_s:.2f}" if own else "-",
                f"{nbytes / t / 1e9:.3g}",
                f"{bus_bandwidth(run.size, nbytes, t) / 1e9:.3g}",
            ]
        )
    run.table(
        [
            "bytes",
            "ring",
            "predicted",
            "MPI's own",
            "no messages",
            "ring / own",
            "algbw GB/s",
            "busbw GB/s",
        ],
        rows,
    )
    run.say(
        "algorithm bandwidth = bytes / time; bus bandwidth = 2(p-1)/p of it: what each rank's link carried one way."
    )
    run.say("Times are the slowest rank's, median [lowest..highest] of the repeats.")
    if "no messages" in algorithms:
        algorithms["no messages"].close()
    return {"points": points, **{name: vars(fitted) for name, fitted in link.items()}}


def without_messages(run: kit.Run) -> SharedMemory:
    """The allreduce through shared memory, after a look at its bits: those of `direct`."""
    allreduce = SharedMemory(run.comm)
    for n in (0, 1, run.size + 1, 100_000):
        everybody = [
            np.random.default_rng([n, r]).standard_normal(n).astype(FLOAT) for r in range(run.size)
        ]
        x = everybody[run.rank].copy()
        allreduce(x)
        if not same_bits(
            x,
            replay([direct.allreduce(r, run.size, n) for r in range(run.size)], everybody)[
                run.rank
            ],
        ):
            raise AssertionError(
                f"rank {run.rank}: shared memory: not the bits of direct for n = {n}"
            )
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
    figure.suptitle(
        "Lesson 01: the time of a ring allreduce. Where is it latency, where bandwidth?"
    )
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    return figure


if __name__ == "__main__":
    kit.Lesson(__file__, __doc__, probe=True).main(measure, draw)
