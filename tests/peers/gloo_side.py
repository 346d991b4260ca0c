"""gloo's allreduce, through torch.distributed, among the same ranks as the others: called in turn with them, no copy.

    gloo = gloo_allreduce(comm)     # on every rank; None on all of them if PyTorch is missing on any
    gloo(x)                         # x float32 or float64, flat: summed over all ranks, in place

Ranks find each other through a file that all of them see, and talk over the loopback, or over the node's own link on the
emulated cluster. gloo's threads sleep between calls, so they take nothing from the other sides.
"""

import atexit
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable


def gloo_allreduce(comm) -> Callable | None:
    """Collective. One torch thread a rank, as the other sides have."""
    if not all(comm.allgather(importlib.util.find_spec("torch") is not None)):
        return None
    import torch
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "eth0" if "REFGF_CLUSTER" in os.environ else "lo"
    torch.set_num_threads(1)
    folder = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=comm.rank, world_size=comm.size)
    comm.Barrier()
    if comm.rank == 0:
        shutil.rmtree(folder)
    atexit.register(dist.destroy_process_group)
    return lambda x: dist.all_reduce(torch.from_numpy(x))
