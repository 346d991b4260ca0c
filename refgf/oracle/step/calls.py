"""Writes down which collective operations a rank calls, also those of DDP and FSDP.

A line of JSON for each, before the call, because its process may end in it. collectives.py reads
them.
"""

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from refgf.oracle.step import record
from refgf.oracle.step.collectives import BACKWARD

MOST = 10_000  # lines
ONE_TO_ONE = ("send", "recv_", "recv_any_source_", "wait_tensor")
SAME_LENGTH = ("allreduce", "all_reduce", "broadcast", "reduce_", "reduce")  # on every rank


class CallLog(TorchDispatchMode):
    """Collective calls of this thread, and of its backward. path: where they are written."""

    def __init__(self, path: str, source: str):
        super().__init__()
        self.source, self.count = source.partition(":")[0], 0
        self.file = open(path, "wb", buffering=0)  # noqa: SIM115 closed in __exit__

    def __exit__(self, *failure: Any) -> None:
        super().__exit__(*failure)
        self.file.close()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if DTensor in types:
            return NotImplemented  # its own dispatch comes first, and ends in calls
        collective = getattr(func, "namespace", "") in ("c10d", "_c10d_functional")
        if collective and func._opname not in ONE_TO_ONE and self.count < MOST:
            self.count += 1
            self.file.write(json.dumps(self._described(func, args)).encode() + b"\n")
        return func(*args, **(kwargs or {}))

    def note_backward(self) -> None:
        """So that a rank without one in some step is named."""
        if self.count < MOST:
            step = record.current.batch if record.current else 0
            call = {"operation": BACKWARD, "of": "", "group": "", "ranks": [], "step": step}
            self.file.write(json.dumps(call | {"line": 0}).encode() + b"\n")

    def _described(self, func: Any, args: tuple) -> dict[str, Any]:
        named = {own.name: value for own, value in zip(func._schema.arguments, args)}
        group = named.get("process_group", named.get("group_name"))
        if isinstance(group, torch.ScriptObject):
            group = dist.ProcessGroup.unbox(group)
        if isinstance(group, str):
            group = dist.distributed_c10d._resolve_process_group(group)
        ranks = dist.get_process_group_ranks(group) if group else list(range(dist.get_world_size()))
        tensors = torch.utils._pytree.tree_leaves(args)
        tensors = [t for t in tensors if isinstance(t, torch.Tensor)]
        if not func._opname.startswith(SAME_LENGTH):
            tensors = []
        kinds = {str(t.dtype).removeprefix("torch.") for t in tensors}
        return {
            "operation": func._opname.strip("_"),
            "of": f"{sum(t.numel() for t in tensors)} {'/'.join(sorted(kinds))}" if tensors else "",
            "group": f"{group.group_name if group else ''} {ranks}",
            "ranks": ranks,
            "step": max(0, record.current.batch) if record.current else 0,
            "line": self._line(),
        }

    def _line(self) -> int:
        """Of the judged file; 0 where none of its functions is being run."""
        frame = sys._getframe(1)
        while frame and frame.f_code.co_filename != self.source:
            frame = frame.f_back
        return frame.f_lineno if frame else 0
