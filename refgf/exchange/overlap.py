"""Overlap: a communication thread sums gradients while the main thread computes the next ones.

    main thread     backward 8 | backward 7 | backward 6 | ... | wait
    queue                     \\ sum 8       \\ sum 7
    communication               | allreduce 8 | allreduce 7 | ...

Non-blocking MPI calls make no progress by themselves, so a thread that makes blocking ones is the simplest thing that
really overlaps; mpi4py releases the interpreter lock while it waits. The thread must be the only user of its
communicator: give its `allreduce` a `comm.Dup()`. Cost: two queue operations per call; no copy.

On a GPU backward only queues kernels: an array may be announced before it is computed. So each array is queued with an
event of the stream that produces it, and the thread selects the array's device and waits for that event, on a stream of
its own (`refgf/device.py`; not yet run on a GPU).
"""

import queue
import sys
import threading
import time
from collections.abc import Callable

from refgf.device import follow, mark, synchronize


class CommunicationThread:
    """Turns an `Allreduce` into an asynchronous one: calling it only queues the array. `run` queues other work as well;
    allreduce None: only that.

    ValueError where MPI runs and was started for a single thread: it may hang, or send other bytes.
    An exception in the thread goes to `threading.excepthook`, which ends the job where `refgf.launch` is loaded, and is
    raised by `wait` too.
    """

    def __init__(self, allreduce: Callable | None, name: str = "communication") -> None:
        require_threads(name)
        self._allreduce = allreduce
        self._queue = queue.SimpleQueue()
        self._idle = threading.Condition()
        self._pending = 0
        self._error = None
        self._busy_s = 0.0
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def __call__(self, x) -> None:
        """Queue x, which belongs to the thread until `wait` returns."""
        self.run(self._allreduce, x)

    def run(self, work: Callable, x) -> None:
        """Queue work(x): the thread calls it when x is computed, after all that was queued before."""
        with self._idle:
            self._pending += 1
        self._queue.put((work, x, mark(x)))

    def wait(self) -> float:
        """Return when all that was queued is finished; the result is the seconds the thread was busy with it."""
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
            except BaseException as error:  # the main thread may wait for ever otherwise
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
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized() or mpi.Query_thread() == mpi.THREAD_MULTIPLE:
        return
    levels = {mpi.THREAD_SINGLE: "single", mpi.THREAD_FUNNELED: "funneled", mpi.THREAD_SERIALIZED: "serialized"}
    raise ValueError(
        f"thread {name!r} on rank {mpi.COMM_WORLD.rank}: got MPI at thread level {levels[mpi.Query_thread()]}; wanted "
        "multiple, as two threads call it; next: unset MPI4PY_RC_THREAD_LEVEL, or python -m refgf.doctor"
    )
