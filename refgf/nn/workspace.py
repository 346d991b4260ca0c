"""Where the layers' temporaries live, and how the images of a batch are cut into blocks and shared between threads.

A layer walks over its batch in blocks of a few images, so that what it writes for one block (the strips of a
convolution, a mask) is read again while it is still in the processor's cache. A GPU wants the opposite, one kernel over
everything: there a block is the whole batch.

Memory is asked for once and used in every step: a fresh array of this size costs as much in page faults as filling it.
"""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np

CACHE_BYTES = 5 << 20  # temporaries of one block; above a core's own L2, below its share of L3


def resized(store, key, shape, dtype, xp):
    """Uninitialised memory of this shape: one flat buffer per key and dtype in `store`, replaced when too small."""
    size, key = math.prod(shape), (key, np.dtype(dtype))
    if key not in store or store[key].size < size:
        store[key] = xp.empty(size, dtype)
    return store[key][:size].reshape(shape)


class Workspace:
    """Scratch memory, blocks and threads that all layers of one network share.

    threads: the images of a batch are shared between so many Python threads (NumPy and its BLAS release the
    interpreter's lock while they compute); BLAS itself should then use one thread (OPENBLAS_NUM_THREADS=1). Which
    thread gets which images depends only on the batch size, so the same number of threads gives the same bits.
    """

    def __init__(self, xp=np, dtype=np.float32, threads=1, images_per_block=None):
        if threads < 1 or (threads > 1 and xp is not np):
            raise ValueError(f"Workspace: got threads={threads} on {xp.__name__}, wanted 1, or more on the CPU")
        if images_per_block is not None and images_per_block < 1:
            raise ValueError(f"Workspace: got images_per_block={images_per_block}, wanted at least 1, or None")
        self.xp, self.dtype, self.threads, self.images_per_block = xp, np.dtype(dtype), threads, images_per_block
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None
        self._buffers = {}
        self._turn = 0

    def scratch(self, name, shape, worker=0, dtype=None):
        """Memory for a temporary; one buffer per name and worker, which the next user of that name overwrites."""
        return resized(self._buffers, (name, worker), shape, dtype or self.dtype, self.xp)

    def gradient(self, shape):
        """Memory for the gradient of a layer's input. Two buffers take turns, so the last one is still whole."""
        self._turn = 1 - self._turn
        return self.scratch(f"gradient {self._turn}", shape)

    def share(self, work, n):
        """Call work(worker, part) at the same time with parts (slices) that cover range(n); not with empty parts."""
        bounds = [-(-n * worker // self.threads) for worker in range(self.threads + 1)]  # rounded up: worker 0 has one
        parts = [slice(start, stop) for start, stop in zip(bounds, bounds[1:])]
        waiting = [self._pool.submit(work, w, part) for w, part in enumerate(parts) if w and part.stop > part.start]
        try:
            if n:
                work(0, parts[0])
        finally:
            for future in waiting:
                future.result()

    def blocks(self, part, bytes_per_image):
        """Cut the slice `part` of the batch into slices of images whose temporaries fit the cache."""
        if self.images_per_block is not None:
            count = self.images_per_block
        elif self.xp is np:
            count = max(1, CACHE_BYTES // bytes_per_image)
        else:
            count = max(1, part.stop - part.start)
        return [slice(start, min(start + count, part.stop)) for start in range(part.start, part.stop, count)]

    def sum_over_blocks(self, compute, n, bytes_per_image, total):
        """total <- sum over blocks of what compute(worker, block, out) writes to out; zero for an empty batch.

        Each worker adds up its own blocks, worker 0 directly in `total`; then the workers' sums are added in order.
        """
        sums = [total] + [self.scratch("sum", total.shape, worker, total.dtype) for worker in range(1, self.threads)]
        started = [False] * self.threads

        def work(worker, part):
            for block in self.blocks(part, bytes_per_image):
                if not started[worker]:
                    compute(worker, block, sums[worker])
                    started[worker] = True
                else:
                    term = self.scratch("term", total.shape, worker, total.dtype)
                    compute(worker, block, term)
                    sums[worker] += term

        self.share(work, n)
        if not started[0]:
            total[...] = 0
        for worker in range(1, self.threads):
            if started[worker]:
                total += sums[worker]
