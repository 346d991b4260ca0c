"""The black box is torch.distributed over gloo, in a process of its own per rank."""

import contextlib
import importlib.util
import subprocess
from typing import Any

import numpy as np

from refgf.oracle.foreign.gloo import GlooRanks
from refgf.oracle.foreign.messages import pack, unpack

START_S = 120.0


class GlooSum:
    """p processes that sum; close() ends them."""

    def __init__(self, collective: str, p: int, dtype: str, timeout_s: float = 60.0):
        if importlib.util.find_spec("torch") is None:
            raise ValueError(
                "reveal: got --torch gloo without PyTorch; wanted it in this environment; next: "
                "pip install torch"
            )
        self.collective, self.dtype, self.timeout_s = collective, dtype, START_S
        quiet = {"stdout": subprocess.DEVNULL}
        self.ranks = GlooRanks("refgf.oracle.reveal.gloo", (p,), "refgf-reveal-", **quiet)
        try:
            [self.answer(rank) for rank in range(p)]
        except BaseException:
            self.close()
            raise
        self.timeout_s = timeout_s

    def __call__(self, xs: list[np.ndarray]) -> list[np.ndarray]:
        for pipe, x in zip(self.ranks.pipes, xs):
            request = {"x": x, "dtype": self.dtype, "collective": self.collective}
            with contextlib.suppress(OSError):  # its process has ended: `answer` says so
                pipe.send_bytes(pack(request))
        rows = [self.answer(rank)["sum"] for rank in range(len(xs))]
        return rows if self.collective == "allreduce" else [np.concatenate(rows)]

    def answer(self, rank: int) -> dict[str, Any]:
        try:
            if not self.ranks.pipes[rank].poll(self.timeout_s):
                raise ValueError(
                    f"reveal: rank {rank} did not answer within {self.timeout_s:g} s; wanted the "
                    "sum; next: fewer ranks or elements"
                )
            answer = unpack(self.ranks.pipes[rank].recv_bytes())
        except (EOFError, OSError):
            answer = {"error": "its process ended"}
        if "error" in answer:
            raise ValueError(
                f"reveal: {self.collective} over gloo on rank {rank}: {answer['error']}; wanted a "
                "sum; next: another --dtype, or a newer PyTorch"
            )
        return answer

    def close(self) -> None:
        self.ranks.close()


# -- in the processes


def prepare() -> None:
    import torch.distributed  # noqa: F401


def begin() -> None:
    """Nothing is left to do."""


def answer(request: dict[str, Any], rank: int, size: int, store: str) -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    x = torch.from_numpy(request["x"].copy()).to(getattr(torch, request["dtype"]))
    try:
        if request["collective"] == "allreduce":
            dist.all_reduce(x)
        else:
            slices = [part.clone() for part in x.tensor_split(size)]
            x = torch.empty_like(slices[rank])
            dist.reduce_scatter(x, slices)
        return {"sum": x.double().numpy()}
    except RuntimeError as error:
        return {"error": str(error).splitlines()[0][:200]}
