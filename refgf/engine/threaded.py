"""A workspace whose threads share the images of a batch.

    network = AlexNet(1000, workspace=ThreadedWorkspace(2))

NumPy and BLAS release the GIL while they compute. BLAS itself should then use one thread
(OPENBLAS_NUM_THREADS=1).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from refgf.nn.workspace import Array, Workspace


class ThreadedWorkspace(Workspace):
    """A Workspace with `threads` workers, for NumPy arrays.

    The images of a worker depend on the batch size only, so the same number of threads gives the
    same bits. Another number adds the workers' sums in another order.
    """

    def __init__(self, threads: int, dtype=np.float32, images_per_block: int | None = None) -> None:
        if threads < 1:
            raise ValueError(f"ThreadedWorkspace: got {threads} threads; wanted 1 or more; next: 1")
        super().__init__(np, dtype, images_per_block)
        self.threads = threads
        self._pool = ThreadPoolExecutor(max(1, threads - 1))  # starts a thread when it has work

    def share(self, work: Callable, n: int) -> None:
        """Call work(worker, span) concurrently with non-empty slices that cover range(n)."""
        spans = self.spans(n)
        pending = [
            self._pool.submit(work, worker, span)
            for worker, span in enumerate(spans)
            if worker and span.stop > span.start
        ]
        try:
            super().share(work, spans[0].stop)
        finally:
            for future in pending:
                future.result()

    def spans(self, n: int) -> list[slice]:
        """One slice of range(n) per worker. Worker 0 has elements if any has."""
        bounds = [-(-n * worker // self.threads) for worker in range(self.threads + 1)]
        return [slice(*ends) for ends in zip(bounds, bounds[1:])]

    def sum_over_blocks(self, compute: Callable, n: int, bytes_per_image: int, out: Array) -> None:
        """Each worker adds its own blocks, worker 0 in `out`; then the sums are added."""
        sums = [out] + [
            self.scratch("sum", out.shape, worker, out.dtype) for worker in range(1, self.threads)
        ]

        def work(worker, span):
            blocks = self.image_blocks(span, bytes_per_image)
            self.sum_of_worker(compute, worker, blocks, sums[worker])

        self.share(work, n)
        if not n:
            out[...] = 0
        for total, span in zip(sums[1:], self.spans(n)[1:]):
            if span.stop > span.start:
                out += total
