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
from collections.abc import Iterable, Iterator
from typing import Any

ITEM, END, ERROR = "item", "end", "error"


class Prefetch:
    """An iterator over `source` that loads up to `depth` items ahead. depth 0: no thread.

    waited_s   seconds spent in waiting for items so far; with depth 0 that is the loading itself

    An exception in `source` is raised where its item would have come. `close`, or the end of the
    with block, ends the thread when it has loaded its current item. Memory: `depth` items more.
    """

    def __init__(self, source: Iterable, depth: int = 1) -> None:
        if depth < 0:
            raise ValueError(f"Prefetch: got depth={depth}; wanted 0 or more; next: depth=1")
        self.waited_s, self._source, self._thread, self._closed = 0.0, iter(source), None, False
        if depth:
            self._room, self._loaded = threading.Semaphore(depth), queue.SimpleQueue()
            self._thread = threading.Thread(target=self._load, name="prefetch", daemon=True)
            self._thread.start()

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
        self._closed, self._source = True, iter(())
        if self._thread:
            self._room.release()
            self._thread.join()
            self._thread = None

    def __enter__(self) -> "Prefetch":
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def _taken(self) -> Any:
        kind, item = self._loaded.get()
        if kind == ITEM:
            self._room.release()
            return item
        self._loaded.put((kind, item))  # the next call ends in the same way
        raise StopIteration if kind == END else item

    def _load(self) -> None:
        source = self._source
        try:
            while self._room.acquire() and not self._closed:
                self._loaded.put((ITEM, next(source)))
        except StopIteration:
            self._loaded.put((END, None))
        except BaseException as error:
            self._loaded.put((ERROR, error))
