"""Overlap: a communication thread sums gradients while the main thread computes the next ones.

    main thread     backward 8 | backward 7 | backward 6 | ... | wait
    queue                     \\ sum 8       \\ sum 7
    communication               | allreduce 8 | allreduce 7 | ...

Non-blocking MPI calls make no progress by themselves, so a thread that makes blocking ones is the simplest thing that
really overlaps; mpi4py releases the interpreter lock while it waits. The thread must be the only user of its
communicator: give its `allreduce` a `comm.Dup()`. Cost: two queue operations per call; no copy.
"""

import queue
import threading
import time
from collections.abc import Callable


class CommunicationThread:
    """Turns an `Allreduce` into an asynchronous one: calling it only queues the array.

    An exception in the thread is raised again by `wait`, and ends the job at once where `refgf.launch` installed its
    hooks (`on_error` is called with the exception first). `busy_s` is the time spent inside `allreduce` since the last
    `wait`.
    """

    def __init__(self, allreduce: Callable, on_error: Callable[[BaseException], None] | None = None) -> None:
        self._allreduce, self._on_error = allreduce, on_error
        self._queue = queue.SimpleQueue()
        self._idle = threading.Condition()
        self._pending = 0
        self._error = None
        self.busy_s = 0.0
        self._thread = threading.Thread(target=self._work, name="communication", daemon=True)
        self._thread.start()

    def __call__(self, x) -> None:
        """Queue x, which belongs to the thread until `wait` returns."""
        with self._idle:
            self._pending += 1
        self._queue.put(x)

    def wait(self) -> float:
        """Return when all queued sums are finished; the result is the seconds the thread was busy with them."""
        with self._idle:
            self._idle.wait_for(lambda: self._pending == 0 or self._error)
            if self._error:
                raise self._error
            busy_s, self.busy_s = self.busy_s, 0.0
        return busy_s

    def close(self) -> None:
        """End the thread after what is queued."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (x := self._queue.get()) is not None:
            start_s = time.perf_counter()
            try:
                self._allreduce(x)
            except BaseException as error:  # the main thread may wait for ever otherwise
                with self._idle:
                    self._error = error
                    self._idle.notify_all()
                if self._on_error:
                    self._on_error(error)
                return
            with self._idle:
                self.busy_s += time.perf_counter() - start_s
                self._pending -= 1
                self._idle.notify_all()
