"""Loads the next batches in a thread while the current one is computed with.

    with Prefetch(batches(train, 256, epoch, seed, comm.rank, comm.size)) as loaded:
        for images, labels, global_batch in loaded:
            flow.step(images, labels, global_batch, rate)
    loaded.waited_s                                 # seconds that the loop waited for a batch

    depth 0   loading  |-- 0 --|            |-- 1 --|            |-- 2 --|
              steps            |---- 0 ----|        |---- 1 ----|        |---- 2 ----|
    depth 1   loading  |-- 0 --||-- 1 --|   |-- 2 --|
              steps            |---- 0 ----||---- 1 ----||---- 2 ----|

The batches, their order and their bits are those of the iterator, so training gives the same
weights. With T_load and T_step a step takes T_load + T_step without a thread and the larger of the
two with it, if both can run: reading and waiting for a store need no core, decoding does. A Python
thread decodes while another one computes, because Pillow and BLAS give up the GIL.

Give it the batches of several epochs in succession (itertools.chain) where the first step of an
epoch should not wait either. The iterator must not call MPI: Prefetch has a thread of its own.
"""

import queue
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from refgf.arguments import checked

ITEM, END, ERROR = "item", "end", "error"


@checked
class Prefetch:
    """An iterator over `source` that loads up to `depth` items ahead. depth 0: no thread.

    waited_s   seconds spent in waiting for items so far; with depth 0 that is the loading itself

    An exception in `source` is raised where its item would have come. `close`, the end of the with
    block, or that of the last reference to this iterator ends the thread when it has loaded its
    current item. Memory: `depth` items more.
    """

    def __init__(self, source: Iterable, depth: int = 1) -> None:
        if depth < 0:
            raise ValueError(f"Prefetch: got depth={depth}; wanted 0 or more; next: depth=1")
        self.waited_s, self._source, self._thread = 0.0, iter(source), None
        if depth:
            self._loading = Loading(self._source, threading.Semaphore(depth))
            thread = threading.Thread(target=self._loading.load, name="prefetch", daemon=True)
            self._thread = thread
            weakref.finalize(self, self._loading.end)  # the thread holds no reference to this
            thread.start()

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        start_s = time.perf_counter()
        try:
            return self._taken() if self._thread else next(self._source)
        finally:
            self.waited_s += time.perf_counter() - start_s

    def close(self) -> None:
        """End the thread. What it has loaded is dropped, and the iterator is at its end."""
        self._source = iter(())
        if self._thread:
            self._loading.end()
            self._thread.join()
            self._thread = None

    def __enter__(self) -> "Prefetch":
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def _taken(self) -> Any:
        kind, item = self._loading.loaded.get()
        if kind == ITEM:
            self._loading.room.release()
            return item
        self._loading.loaded.put((kind, item))  # the next call ends in the same way
        raise StopIteration if kind == END else item


class Loading:
    """What the thread of a `Prefetch` works on."""

    def __init__(self, source: Iterator, room: threading.Semaphore) -> None:
        self.source, self.room, self.loaded, self.ended = source, room, queue.SimpleQueue(), False

    def load(self) -> None:
        try:
            while self.room.acquire() and not self.ended:
                self.loaded.put((ITEM, next(self.source)))
        except StopIteration:
            self.loaded.put((END, None))
        except BaseException as error:
            self.loaded.put((ERROR, error))

    def end(self) -> None:
        """The thread ends when it has loaded its current item."""
        self.ended = True
        self.room.release()
