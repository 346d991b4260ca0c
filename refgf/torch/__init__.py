"""GradientFlow for PyTorch: coarse-grained sparse communication (CSC) as a DDP hook.

    from refgf.torch import GradientFlow, Warmup

    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    flow = GradientFlow(model, optimizer, density=10, warmup=Warmup((100, 25), steps=500))
    for images, labels in batches:                    # the loop stays as it is
        optimizer.zero_grad()
        loss(model(images), labels).backward()        # sends the chosen chunks during backward
        optimizer.step()                              # momentum and decay happened before
    flow.close()

What it is and when to use it: docs/torch.md. The same technique to read is refgf/exchange/csc.py;
`refgf.oracle.torch_hooks.CSCHook` is the naive form of this hook. DDP's `bucket_cap_mb` is lazy
allreduce's theta: `print(bucket_advice(flow, backward_s=0.1, gbit=10))` advises one. FSDP has no
such hook.
"""

from refgf.torch.buckets import bucket_advice
from refgf.torch.flow import GradientFlow
from refgf.torch.settings import Chunks, Warmup

__all__ = ["Chunks", "GradientFlow", "Warmup", "bucket_advice"]
