"""The ring and gloo (torch.distributed): the same sums, within the rounding of any order."""

import subprocess
import sys

import numpy as np
import pytest

from refgf.comm import ring
from refgf.comm.replay import replay
from refgf.oracle.definitions import exact_sum, same_bits, summation_bound

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

RANK = """
import sys
import numpy as np
import torch
import torch.distributed as dist
store, folder, rank, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=size)
for n in map(int, sys.argv[5:]):
    x = torch.from_numpy(np.load(f"{folder}/{n}-{rank}.npy"))
    dist.all_reduce(x)
    np.save(f"{folder}/{n}-{rank}-sum.npy", x.numpy())
dist.destroy_process_group()
"""
SIZES = (1, 7, 1000, 100_003)


def test_gloo_and_the_ring_sum_alike(tmp_path, size=3):
    def of_rank(n, rank):
        return np.random.default_rng([n, rank]).standard_normal(n).astype(np.float32)

    given = {n: [of_rank(n, rank) for rank in range(size)] for n in SIZES}
    for n, xs in given.items():
        for rank, x in enumerate(xs):
            np.save(tmp_path / f"{n}-{rank}.npy", x)
    arguments = [sys.executable, "-c", RANK, str(tmp_path / "store"), str(tmp_path)]
    sizes = [str(size), *map(str, SIZES)]
    ranks = [subprocess.Popen([*arguments, str(rank), *sizes]) for rank in range(size)]
    assert [rank.wait(120) for rank in ranks] == [0] * size
    for n, xs in given.items():
        ours = replay([ring.allreduce(r, size, n) for r in range(size)], xs)[0]
        theirs = [np.load(tmp_path / f"{n}-{rank}-sum.npy") for rank in range(size)]
        assert all(same_bits(other, theirs[0]) for other in theirs)
        for got in (ours, theirs[0]):
            assert (np.abs(got.astype(np.float64) - exact_sum(xs)) <= summation_bound(xs)).all()
        lost = xs[0] + sum(xs[2:])  # without rank 1: the bound must notice
        assert not (np.abs(lost.astype(np.float64) - exact_sum(xs)) <= summation_bound(xs)).all()
