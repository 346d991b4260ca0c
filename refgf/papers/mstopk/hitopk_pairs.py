"""HiTopKComm that gathers pairs in the node too: its fourth step as public code has it.

    1 reduce-scatter in the node     each rank owns the node's sum of one slice      as in HiTopK
    2 top-k of that slice            k values and k indices
    3 allgather between nodes        m k pairs of the slice
    4 allgather in the node          all g m k pairs: every rank adds up all slices itself

HiTopK adds up before step 4 and then sends dense slices. The sums are formed in the same order, so
the bits are equal. With values of 4 bytes, step 4 sends fewer bytes here if 2 m k is less than the
length of a slice, that is below a density of 50/m %. It needs one more round of g-1 messages.

Source: the class DDPAllgatherTwolayer of a compression library on BytePS, which its users select as
`hitopkcomm` (read, not copied). It is not the authors' code; what they do in step 4 is unverified.
That code sends short tensors, and those that g does not divide, through a plain allreduce.
"""

from collections.abc import Callable

from refgf.arguments import checked
from refgf.comm.slices import slices
from refgf.papers.mstopk.topk import HiTopK, exact_top_k, sum_sparse


@checked
class HiTopKPairs(HiTopK):
    """HiTopKComm with pairs, an Allreduce for one array of n elements, m nodes of g ranks each.

    ranks_per_node    g; it must divide n, because rows of one length are gathered
    spread            y (q,) -> (g, q), row i from the node's rank i (`gather.allgather`)

    The other arguments are those of HiTopK. Cost per rank and call, k elements of a slice:
    3(g-1) + 2(m-1) messages; in the node n - n/g elements, (g-1) m k values and as many indices of
    4 bytes; between nodes (m-1) k values and indices. Memory: 2 g m k received.
    """

    def __init__(
        self,
        n: int,
        percent: float,
        ranks_per_node: int,
        reduce_scatter: Callable,
        allgather: Callable,
        spread: Callable,
        select: Callable = exact_top_k,
    ) -> None:
        if ranks_per_node < 1 or n % ranks_per_node:
            raise ValueError(
                f"HiTopKPairs: got {n} elements for {ranks_per_node} ranks per node; wanted a "
                "multiple, so that all slices are equally long; next: HiTopK, which takes any n"
            )
        super().__init__(n, percent, reduce_scatter, allgather, spread, select)
        self.ranks_per_node = ranks_per_node

    def _complete(self, x, own: slice, values, indices) -> None:
        """Gather the pairs (m, k) of all slices, and add up each slice."""
        g, shape = self.ranks_per_node, values.shape
        rows = self._spread(values.reshape(-1)), self._spread(indices.reshape(-1))
        parts = slices(self.n, g)
        for i, (slice_values, slice_indices) in enumerate(zip(*rows)):
            part = parts[(i + 1) % g]  # rank i of a node owns slice i+1
            sum_sparse(x[part], slice_values.reshape(shape), slice_indices.reshape(shape))
