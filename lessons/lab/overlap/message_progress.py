"""How far a message gets while the program sleeps, and who makes it progress.

    start     sleep, longer than the message takes     wait
    |-------|~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~|--------|
                                                     what is left of the message

    progressed = 1 - wait / time of the blocking call

The MPI standard promises progress only inside MPI calls. What a library does in the meantime is its
own choice, so the result names the MPI. Every rank sends to its right neighbour.
"""

import threading
import time
from collections.abc import Callable

import numpy as np

import kit

POLL_S = 1e-3
THREAD = "blocking call in a thread"
NON_BLOCKING = "non-blocking call"
POLLED = "non-blocking call, polled every ms"


def measure(run: kit.Run) -> dict:
    """{"mpi", "bytes", "sleep_s", "blocking", "left": {way: Timing}, "progressed": {way: shares}}.

    {} without MPI, on one rank, and where links are waited for: only a blocking call waits.
    """
    waited = run.regime.waited
    if run.size == 1 or run.options.threads or (waited and waited.beta_s_per_byte):
        run.say("\nWhich calls progress while the program sleeps is not measured here;")
        run.say("wanted 2 MPI ranks or more, and real links; next:")
        run.say("mpiexec -n 2 python lessons/04_overlap.py --like this-machine")
        return {}
    run.section("Which calls progress while the program sleeps?")
    run.opaque = True  # these messages are not counted
    neighbours = Neighbours(run)
    blocking = run.time(neighbours.exchange, run.quick(2, 3))
    sleep_s = max(run.quick(0.02, 0.1), 1.25 * blocking.high_s)
    starts = {
        NON_BLOCKING: neighbours.non_blocking,
        POLLED: neighbours.polled,
        THREAD: neighbours.in_thread,
    }
    repeats = run.quick(2, 3, 7)
    left = {way: waits(run, start, sleep_s, repeats) for way, start in starts.items()}
    found = {
        "mpi": library(),
        "bytes": neighbours.send.nbytes,
        "sleep_s": sleep_s,
        "blocking": blocking,
        "left": left,
        "progressed": {way: progressed(wait, blocking) for way, wait in left.items()},
    }
    show(run, found)
    return found


class Neighbours:
    """A message to the right and one from the left, in three ways.

    Each way starts both and returns (poll, wait).
    """

    def __init__(self, run: kit.Run) -> None:
        n = run.quick(1 << 16, 1 << 21)
        self.send, self.receive = np.ones(n), np.zeros(n)  # float64: 16 MiB
        self.right, self.left = (run.rank + 1) % run.size, (run.rank - 1) % run.size
        self.comm, self.private = run.plain, run.plain.Dup()

    def exchange(self, comm=None) -> None:
        """The blocking call."""
        comm = comm or self.comm
        comm.Sendrecv(self.send, self.right, 0, self.receive, self.left, 0)

    def polled(self) -> tuple[Callable, Callable]:
        requests = [
            self.comm.Irecv(self.receive, self.left),
            self.comm.Isend(self.send, self.right),
        ]
        return each(requests, "Test"), each(requests, "Wait")

    def non_blocking(self) -> tuple[Callable, Callable]:
        _, wait = self.polled()
        return lambda: None, wait

    def in_thread(self) -> tuple[Callable, Callable]:
        thread = threading.Thread(target=self.exchange, args=(self.private,))
        thread.start()
        return lambda: None, thread.join


def each(requests: list, method: str) -> Callable:
    return lambda: [getattr(request, method)() for request in requests]


def waits(run: kit.Run, start: Callable, sleep_s: float, repeats: int) -> kit.Timing:
    """The Timing of what is left to wait for after sleep_s. The first repeat is a warm-up."""
    mine = []
    for _ in range(1 + repeats):
        run.plain.Barrier()
        poll, wait = start()
        end_s = time.perf_counter() + sleep_s
        while time.perf_counter() < end_s:
            time.sleep(POLL_S)
            poll()
        start_s = time.perf_counter()
        wait()
        mine.append(time.perf_counter() - start_s)
    return run.slowest(mine[1:])


def progressed(wait: kit.Timing, blocking: kit.Timing) -> dict:
    """Shares of the message that the sleep hid: {"median_s", "low_s", "high_s"}, as claims take."""
    shares = {"median_s": wait.median_s, "low_s": wait.high_s, "high_s": wait.low_s}
    return {key: max(0.0, 1 - t / blocking.median_s) for key, t in shares.items()}


def library() -> str:
    """The MPI that runs: 'MPICH Version: 5.0.2'."""
    from mpi4py import MPI

    return " ".join(MPI.Get_library_version().splitlines()[0].split(",")[0].split())


def show(run: kit.Run, found: dict) -> None:
    share = {way: f"{100 * each['median_s']:.0f} %" for way, each in found["progressed"].items()}
    run.table(
        ["", f"left after a sleep of {kit.seconds(found['sleep_s'])}", "progressed"],
        [[way, wait, share[way]] for way, wait in found["left"].items()],
    )
    run.say(
        f"{found['mpi']}; {kit.number_of_bytes(found['bytes'])} to the neighbour; "
        f"the blocking call takes {found['blocking']}."
    )
    run.say(
        f"In this run a non-blocking call progressed by {share[NON_BLOCKING]} during the sleep, "
        f"a thread's by {share[THREAD]}."
    )
