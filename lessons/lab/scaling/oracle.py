"""The ring of lesson 08 against the definition on fewer ranks, and its formula on more."""

import kit
from kit.oracle import agreed, require_bits, require_sent, vectors
from lab.scaling import rank_subset
from lab.scaling.points import sizes
from refgf.comm import ring
from refgf.comm.schedule import collective
from refgf.oracle.definitions import ring_allreduce, ring_traffic
from refgf.papers.scaling.simulate import from_schedules
from refgf.predict.cost import Link, ring_allreduce_s


def check(run: kit.Run) -> None:
    """The ring on fewer ranks is as defined; its formula is its schedule's time. Collective."""
    run.section("The oracle")
    for p in sizes(run.size):
        rank_subset.first(run, p, check_subset)
    link = Link(3e-5, 8e-9, 2e-10)
    for p in run.quick((1, 2, 3, 8), range(1, 33)):
        schedules = [ring.allreduce(r, p, 1000) for r in range(p)]
        if abs(ring_allreduce_s(p, 1000, 4, link) - from_schedules(schedules, 4, link)) > 1e-12:
            raise AssertionError(f"ring on {p} ranks: got a formula that differs from the schedule")
    agreed(run, "the formula of the ring is the time of its schedule, uneven slices included")


def check_subset(run: kit.Run) -> None:
    """The ring on these ranks gives the definition's bits and sends the definition's messages."""
    p, rank = run.size, run.rank
    for n in (0, p - 1, 1000):
        xs = vectors(run, n, n)
        x = run.array(xs[rank].copy())
        run.comm.reset()
        collective(run.comm, ring.allreduce)(x)
        place = f"ring allreduce of {n} elements on rank {rank} of {p}"
        require_bits(place, x, ring_allreduce(xs)[rank])
        messages, elements = ring_traffic(n, p, rank)
        require_sent(place, (run.comm.messages, run.comm.bytes), (messages, 4 * elements))
    agreed(run, f"ring on {p} ranks, n = 0, p-1, 1000: bits, messages and bytes as defined")
