"""The advised size of DDP's buckets, against numbers by hand and DDP's own buckets."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from refgf.predict.cost import Link  # noqa: E402
from refgf.torch import GradientFlow, bucket_advice  # noqa: E402
from refgf.torch.buckets import TRIED, predicted  # noqa: E402
from tests.support.gloo import on_gloo  # noqa: E402

WIDTH = 512  # a matrix is 1 MiB
LAYERS = 4


def network():
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))


def flow_of(density, wire=None):
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return GradientFlow(model, optimizer, density=density, wire=wire)


def advised(rank):
    """What is predicted for 4 matrices, one every 10 ms, and the sentences."""
    dense, tenth = flow_of(100), flow_of(10, torch.float16)
    slow, late = Link(0.0, 1e-8), Link(0.1, 0.0)
    given = {"backward_s": 0.04, "gbit": 0.8}
    return {
        "dense": predicted(dense, 0.04, slow),
        "tenth": predicted(tenth, 0.04, slow),
        "late": predicted(dense, 0.04, late),
        "slow": bucket_advice(dense, latency_s=0.0, **given),
        "of all": bucket_advice(dense, latency_s=0.1, **given),
    }


def test_the_advice_by_hand():
    """Two ranks send half of the bytes twice: 1 MiB takes 2 ** 20 * 1e-8 s, 10.5 ms."""
    found, _ = on_gloo(2, advised)
    mib_s = 2**20 * 1e-8
    dense = {mib: 0.04 + 4 * mib_s for mib in TRIED}  # all in one bucket
    dense |= {1: 0.01 + 4 * mib_s, 2: 0.02 + 4 * mib_s}  # the link is busy from its first bucket on
    assert found["dense"] == pytest.approx(dense)
    assert found["tenth"][1] == pytest.approx(0.04 + mib_s / 20)  # the last; half as wide
    assert found["tenth"][25] == pytest.approx(0.04 + 4 * mib_s / 20)
    assert found["late"] == pytest.approx({mib: 0.24 for mib in TRIED} | {1: 0.81, 2: 0.42})
    assert "bucket_cap_mb is lazy allreduce: 1 is predicted to be best, 51.9 ms" in found["slow"]
    assert "(25: 81.9 ms)" in found["slow"]
    assert ": 5 is predicted to be best" in found["of all"]


def buckets_of_ddp(rank):
    """How many DDP makes of each size, once it has rebuilt them."""
    found = {}
    for mib in (1, 2, 5):
        model, seen = DistributedDataParallel(network(), bucket_cap_mb=mib), []

        def hook(state, bucket, seen=seen):
            seen.append(bucket.buffer().numel())
            return allreduce_hook(None, bucket)

        model.register_comm_hook(None, hook)
        for _ in range(2):
            seen.clear()
            model(torch.ones(1, WIDTH)).sum().backward()
        found[mib] = [n // WIDTH**2 for n in seen]
    return found


def test_ddp_cuts_its_buckets_there():
    assert on_gloo(1, buckets_of_ddp) == [{1: [1, 1, 1, 1], 2: [2, 2], 5: [4]}]
