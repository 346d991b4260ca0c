"""The size of DDP's buckets: its `bucket_cap_mb` is lazy allreduce's theta.

A prediction of `refgf.predict`: a ring on one link, all weight matrices take backward equally long,
casts and packing take no time. `refgf predict plan` asks a profile of the network, without CSC.
"""

from itertools import accumulate

import torch

from refgf.predict.cost import Link, ring_line
from refgf.predict.timeline import lazy, predict
from refgf.torch.flow import GradientFlow

MIB = 2**20
TRIED = (1, 2, 5, 10, 25, 50, 100, 200, 500, 1000)  # MiB; 25 is DDP's own


def bucket_advice(
    flow: GradientFlow, *, backward_s: float, gbit: float, latency_s: float = 5e-5
) -> str:
    """A sentence with the bucket_cap_mb whose step is predicted to end first.

    backward_s  of one rank that sends nothing
    gbit        a second, of a rank's link; latency_s: of a message
    """
    ends_s = predicted(flow, backward_s, Link(latency_s, 8e-9 / gbit))
    best = min(TRIED, key=lambda mib: ends_s[mib])  # of equal ones the smallest
    return (
        f"DDP's bucket_cap_mb is lazy allreduce: {best} is predicted to be best, "
        f"{1e3 * ends_s[best]:.1f} ms from the start of backward (25: {1e3 * ends_s[25]:.1f} ms)"
    )


def predicted(flow: GradientFlow, backward_s: float, link: Link) -> dict[int, float]:
    """{MiB: seconds from the start of backward until the last bucket has arrived}."""
    parameters, width = flow.pool.parameters, (flow.wire or torch.float32).itemsize
    work = list(accumulate(float(p.dim() > 1) for p in parameters))
    ready_s = [backward_s * done / (work[-1] or 1) for done in work]
    share = flow.density.percent / 100
    held = [(s, p.numel() * p.element_size()) for s, p in zip(ready_s, parameters)]
    sent = [(s, share * p.numel() * width) for s, p in zip(ready_s, parameters)]
    line = ring_line(flow.size, link)
    groups = {mib: lazy(held, mib * MIB - 1) for mib in TRIED}
    return {mib: predict(sent, groups[mib], line, True, backward_s).step_s for mib in TRIED}
