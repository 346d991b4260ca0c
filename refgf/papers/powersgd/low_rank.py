"""PowerSGD for one matrix, the naive form: two allreduces of thin matrices replace that of M.

    P = sum over ranks of M Q         (rows, r)       the first allreduce
    P <- orthogonal(P)
    Q = sum over ranks of M^T P       (columns, r)    the second
    the sum of M is about P Q^T       this rank's error is M - P (M^T P)^T

For given Q and P both products are linear in M, so sums of products are products of sums: an
allreduce adds them up on the way, and r (rows + columns) elements stand for rows * columns on any
number of ranks. Q of one step starts the next (warm start): steps of a power iteration. P Q^T is
the part of the sum that lies in the r directions of P.

Source: Vogels, Karimireddy, Jaggi 2019, "PowerSGD", algorithm 1, and 2 for the error. What they
leave open is chosen here:
  - Gram-Schmidt in float64. A column of which at most 2^-20 (float32's rounding) lies outside those
    before it becomes 0; another would be noise. A column of Q that would be 0 stays as it was,
    because a direction of zeros never comes back.
  - the error is that of a rank's own product. PyTorch and the authors' code take M less the mean
    over ranks; both errors have the same sum, and only the sum counts.
  - PyTorch orthogonalises Q, too. The directions are the same.
"""

import numpy as np

from refgf.device import Allreduce, Array

SMALL = 2.0**-20  # share of a column


def factor_elements(shape: tuple[int, ...], rank: int) -> tuple[int, int]:
    """Elements of a tensor in the first and in the second allreduce.

    All dimensions but the last are the rows. (n, 0): the factors would be no smaller than its n
    elements, as for every vector, so it is sent as it is.
    """
    columns = shape[-1] if shape else 1
    rows = int(np.prod(shape[:-1]))
    if rank * (rows + columns) < rows * columns:
        return rank * rows, rank * columns
    return rows * columns, 0


def orthogonal(p: Array) -> Array:
    """Columns of p (rows, r) in order, each without those before it, of length 1, or 0."""
    columns: list[Array] = []
    for given in p.T.astype(np.float64):
        rest = given.copy()
        for column in columns:
            rest -= (column @ rest) * column
        length = np.sqrt(rest @ rest)
        # infinity - infinity is no number, which is not <= 0: an infinity stays visible
        nothing = length - SMALL * np.sqrt(given @ given) <= 0
        columns.append(rest * 0 if nothing else rest / length)
    return np.stack(columns, axis=1).astype(p.dtype)


def kept_where_zero(new: Array, old: Array) -> Array:
    """Q (columns, r) for the next step: columns of zeros stay as they were."""
    return np.where((new == 0).all(axis=0), old, new)


def low_rank_sum(m: Array, q: Array, allreduce: Allreduce) -> tuple[Array, Array, Array]:
    """m (rows, columns), q (columns, r): -> (the approximate sum over ranks, the next q, error).

    Cost per rank: an allreduce of r * rows elements, and one of r * columns.
    """
    p = m @ q
    allreduce(p.reshape(-1))
    p = orthogonal(p)
    own = m.T @ p
    total = own.copy()
    allreduce(total.reshape(-1))
    return p @ total.T, kept_where_zero(total, q), m - p @ own.T
