"""PowerSGD as a compressor: the factors of all matrices of a call in two allreduces.

    exchange = functools.partial(PowerSGD, shapes=[s.shape for s in model.gradients.specs], rank=2)
    GradientFlow(comm, model, allreduce=exchange, grouping=Theta(2**20), overlap=True)

    first      P of every matrix, and the tensors that are not compressed    k1 elements
    second     Q of every matrix                                             k2

`low_rank.py` is the naive form and says what is computed; `factor_elements` there says which
tensors are compressed. Sums are formed in the allreduce's order, so their bits depend on theta.

Cost per rank and call: two allreduces, of k1 and of k2 elements of the gradients' type (float32 if
that is float16); one of no elements is left out. With the ring: 4(p-1) messages, and about
2 (k1 + k2) (p-1)/p elements, which do not grow with p. Memory: two arrays (n,) and all Q twice.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import numpy as np

from refgf.arguments import checked, require
from refgf.comm.arguments import Comm
from refgf.comm.ring import ring_allreduce
from refgf.device import Array
from refgf.exchange.compressor import Compressor
from refgf.papers.powersgd.low_rank import factor_elements, kept_where_zero, orthogonal


@checked
class PowerSGD(Compressor):
    """Made by GradientFlow. NumPy only. A call must hold whole tensors, as those of theta do.

    shapes       of the pool's tensors, in order
    rank         r, of every matrix
    feedback     False: what was not sent is dropped
    seed         of the first Q, standard normal; the same on all ranks
    allreduce    made with the communicator: sums the factors

    Errors: ValueError for any wire type, and unless the shapes have the pool's length.
    """

    def __init__(
        self,
        comm: Comm,
        wire=None,
        *,
        shapes: Sequence[Sequence[int]],
        rank: int = 2,
        feedback: bool = True,
        seed: int = 0,
        allreduce: Callable = ring_allreduce,
    ) -> None:
        name = f"PowerSGD on rank {comm.Get_rank()}"
        require(wire is None, name, f"wire {wire}", "None: the factors' own type", "wire=None")
        require(rank > 0, name, f"rank={rank}", "at least 1", "rank=2")
        self.rank, self.feedback, self._seed, self._name = rank, feedback, seed, name
        self._allreduce = allreduce(comm)
        self._shapes = [tuple(shape) for shape in shapes]
        self._bounds = list(pairwise(accumulate(map(_elements, self._shapes), initial=0)))

    def start(self, gradients: Array) -> None:
        n = self._bounds[-1][1] if self._bounds else 0
        got, wanted = f"shapes of {n} elements", f"the pool's {gradients.size}"
        require(n == gradients.size, self._name, got, wanted, "[s.shape for s in pool.specs]")
        dtype = np.result_type(gradients.dtype, np.float32)
        self._error, self._after = np.zeros((2, n), dtype)  # as accepted, and after this step
        ends = accumulate((factor_elements(s, self.rank)[1] for s in self._shapes), initial=0)
        self._places = [slice(*ends) for ends in pairwise(ends)]  # of each tensor's Q in all Q
        count = self._places[-1].stop if self._places else 0
        self._q = np.random.default_rng(self._seed).standard_normal(count).astype(dtype)
        self._q_after = self._q.copy()

    def sum(self, x: Array, elements: slice) -> None:
        accumulated = x + self._error[elements]
        self._after[elements], whole, matrices = 0, [], []
        for (start, stop), shape, place in zip(self._bounds, self._shapes, self._places):
            if elements.start <= start < stop <= elements.stop:
                part = slice(start - elements.start, stop - elements.start)
                if place.stop > place.start:
                    m = accumulated[part].reshape(-1, shape[-1])
                    q = self._q[place].reshape(shape[-1], self.rank)
                    matrices.append((m, q, part, place, self._after[start:stop]))
                else:
                    whole.append(part)
        sent = [*(m @ q for m, q, *_ in matrices), *(accumulated[part] for part in whole)]
        sums = self._summed(sent)
        for part, total in zip(whole, sums[len(matrices) :]):
            x[part] = total
        bases = [orthogonal(p) for p in sums[: len(matrices)]]
        own = [m.T @ p for (m, *_), p in zip(matrices, bases)]
        for (m, q, part, place, error), p, mine, total in zip(
            matrices, bases, own, self._summed(own)
        ):
            x[part] = (p @ total.T).reshape(-1)
            self._q_after[place] = kept_where_zero(total, q).reshape(-1)
            error[...] = (m - p @ mine.T).reshape(-1)

    def _summed(self, arrays: list[Array]) -> list[Array]:
        """The sums over ranks of these arrays, in one allreduce."""
        if not sum(a.size for a in arrays):
            return arrays
        flat = np.concatenate([a.reshape(-1) for a in arrays])
        self._allreduce(flat)
        ends = pairwise(accumulate((a.size for a in arrays), initial=0))
        return [flat[i:j].reshape(a.shape) for (i, j), a in zip(ends, arrays)]

    def end(self, accepted: bool) -> None:
        if accepted:
            self._q[...] = self._q_after
            if self.feedback:
                self._error[...] = self._after

    @property
    def state(self) -> dict:
        return {"error": self._error, "q": self._q}


def _elements(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape))
