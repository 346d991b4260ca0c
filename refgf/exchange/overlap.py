r"""Overlap: a communication thread sums gradients while the main thread computes the next ones.

    main thread     backward 8 | backward 7 | backward 6 | ... | wait
    queue                     \ sum 8       \ sum 7
    communication               | allreduce 8 | allreduce 7 | ...

MPI promises progress of a non-blocking call only inside MPI calls. How much a library makes in
between differs: lesson 04 measures it, for the MPI that runs it. A thread that makes blocking calls
is inside MPI, and mpi4py releases the GIL while it waits. It must be the only user of its
communicator. Cost: two queue operations per call; no copy.

On a GPU backward only queues kernels, so an array may be announced before it is computed. Each
array is queued with an event of the stream that produces it. The thread selects the array's device
and waits for that event, on a stream of its own (`streams.py`).
"""

import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from refgf.device import Array, synchronize
from refgf.streams import follow, mark


class AtOnce:
    """The naive form, without overlap: work is done as soon as it is handed over."""

    def run(self, work: Callable[[Array], object], x: Array) -> None:
        work(x)

    def wait(self) -> float:
        return 0.0  # seconds for which a thread was busy

    def close(self) -> None:
        """There is no thread to end."""


class CommunicationThread:
    """A thread that calls work(x) for each `run(work, x)`, in that order.

    Errors: ValueError where MPI runs and was not started for several threads. An exception in the
    thread goes to `threading.excepthook`, which ends the job where `refgf.launch` is loaded; `wait`
    raises it too.
    """

    def __init__(self, name: str = "communication") -> None:
        require_threads(name)
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._idle = threading.Condition()
        self._pending, self._busy_s = 0, 0.0
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[[Array], object], x: Array) -> None:
        """Queue work(x), to be called once x is computed. Leave x alone until `wait` returns."""
        with self._idle:
            self._pending += 1
        self._queue.put((work, x, mark(x)))

    def wait(self) -> float:
        """Return when everything queued is finished: the seconds that the thread was busy."""
        with self._idle:
            self._idle.wait_for(lambda: self._pending == 0 or self._error)
            if self._error:
                raise self._error
            busy_s, self._busy_s = self._busy_s, 0.0
        return busy_s

    def close(self) -> None:
        """End the thread after what is queued."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                work, x, produced = item
                follow(x, produced)
                start_s = time.perf_counter()
                work(x)
                synchronize(x)  # the caller's stream does not wait for this thread's
            except BaseException as error:  # otherwise the main thread would wait for ever
                with self._idle:
                    self._error = error
                    self._idle.notify_all()
                raise
            with self._idle:
                self._busy_s += time.perf_counter() - start_s
                self._pending -= 1
                self._idle.notify_all()


def require_threads(name: str) -> None:
    """ValueError unless MPI, where it runs, lets every thread call it."""
    mpi = sys.modules.get("mpi4py.MPI")  # importing it would start MPI
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized():
        return
    levels = {mpi.THREAD_SINGLE: "single", mpi.THREAD_FUNNELED: "funneled"}
    if (level := mpi.Query_thread()) != mpi.THREAD_MULTIPLE:
        raise ValueError(
            f"thread {name!r} on rank {mpi.COMM_WORLD.rank}: got MPI at thread level "
            f"{levels.get(level, 'serialized')}; wanted multiple, because two threads call it; "
            "next: unset MPI4PY_RC_THREAD_LEVEL, or python -m refgf.doctor"
        )
