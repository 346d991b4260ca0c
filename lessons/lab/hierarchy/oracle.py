"""Lesson 10's algorithms against the definition: bits, the bound of the sum, and messages."""

import numpy as np

import kit
from kit.oracle import agreed, require_bits, require_sent, vectors
from kit.rejected import reject
from refgf.comm.replay import replay
from refgf.comm.schedule import collective
from refgf.comm.slices import length
from refgf.device import to_host
from refgf.oracle.definitions import exact_sum, summation_bound


def check(run: kit.Run, algorithms) -> None:
    """Equal bits on all ranks, those of the replay and within the bound; messages as scheduled.

    Raises AssertionError at the first difference. Collective.
    """
    run.section("The oracle")
    for name, algorithm in algorithms.items():
        for n in (0, 1, run.size - 1, run.size + 1, 1000):
            check_size(run, name, algorithm, n)
    agreed(
        run,
        "every algorithm, vectors of 0, 1, p-1, p+1 and 1000 elements:",
        "    the same bits on all ranks, those of the replayed schedules",
        "    messages and bytes as in the schedules",
    )


def check_size(run: kit.Run, name: str, algorithm, n: int) -> None:
    xs = vectors(run, n, n)
    schedules = [algorithm(r, run.size, n) for r in range(run.size)]
    x = run.array(xs[run.rank].copy())
    run.comm.reset()
    collective(run.comm, algorithm)(x)
    x = to_host(x)
    where = f"{name} on rank {run.rank}, {n} elements"
    for other in replay(schedules, xs):
        require_bits(where, x, other, "the replayed schedules'")
    error = np.abs(x.astype(np.float64) - exact_sum(xs))
    if not (error <= summation_bound(xs)).all():
        reject(f"{where}: got an error above the bound of the summation")
    sends = [step.send for step in schedules[run.rank] if step.send_to is not None]
    wanted = len(sends), x.itemsize * sum(map(length, sends))
    require_sent(where, (run.comm.messages, run.comm.bytes), wanted)
