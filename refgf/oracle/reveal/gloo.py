"""The black box is torch.distributed over gloo, in a process of its own per rank."""

import contextlib
import importlib.util
import os
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from refgf.oracle.judge import scratch

ROOT = Path(__file__).resolve().parents[3]
START_S = 120.0


class GlooSum:
    """p processes that sum; close() ends them."""

    def __init__(self, collective: str, p: int, dtype: str, timeout_s: float = 60.0):
        if importlib.util.find_spec("torch") is None:
            raise ValueError(
                "reveal: got --torch gloo without PyTorch; wanted it in this environment; next: "
                "pip install torch"
            )
        self.p, self.timeout_s, self.pipes, self.processes = p, START_S, [], []
        self.collective = collective
        self.open = contextlib.ExitStack()
        store = str(Path(self.open.enter_context(scratch.folder("refgf-reveal-")), "store"))
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
        for rank in range(p):
            pipe, remote = Pipe()
            words = [str(remote.fileno()), store, str(rank), str(p), dtype, collective]
            command = [sys.executable, "-P", "-m", "refgf.oracle.reveal.gloo", *words]
            quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
            started = subprocess.Popen(
                command, env=environment, pass_fds=[remote.fileno()], **quiet
            )
            self.pipes.append(pipe)
            self.processes.append(started)
            remote.close()
        try:
            [self.answer(rank) for rank in range(p)]
        except BaseException:
            self.close()
            raise
        self.timeout_s = timeout_s

    def __call__(self, xs: list[np.ndarray]) -> list[np.ndarray]:
        for pipe, x in zip(self.pipes, xs):
            with contextlib.suppress(OSError):  # its process has ended: `answer` says so
                pipe.send(x)
        rows = [self.answer(rank) for rank in range(self.p)]
        return rows if self.collective == "allreduce" else [np.concatenate(rows)]

    def answer(self, rank: int) -> np.ndarray:
        try:
            if not self.pipes[rank].poll(self.timeout_s):
                raise ValueError(
                    f"reveal: rank {rank} did not answer within {self.timeout_s:g} s; wanted the "
                    "sum; next: fewer ranks or elements"
                )
            answer = self.pipes[rank].recv()
        except (EOFError, OSError):
            answer = "its process ended"
        if isinstance(answer, str):
            raise ValueError(
                f"reveal: {self.collective} over gloo on rank {rank}: {answer}; wanted a sum; "
                "next: another --dtype, or a newer PyTorch"
            )
        return answer

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.kill()
            process.wait()
        self.open.close()


def serve(pipe: Connection, store: str, rank: int, p: int, dtype: str, collective: str) -> None:
    """Sum what arrives until the other side closes the pipe."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=p)
    pipe.send(np.empty(0))
    while True:
        try:
            x = torch.from_numpy(pipe.recv()).to(getattr(torch, dtype))
        except EOFError:
            return
        try:
            if collective == "allreduce":
                dist.all_reduce(x)
            else:
                slices = [part.clone() for part in x.tensor_split(p)]
                x = torch.empty_like(slices[rank])
                dist.reduce_scatter(x, slices)
            pipe.send(x.double().numpy())
        except RuntimeError as error:
            pipe.send(str(error).splitlines()[0][:200])


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), sys.argv[2], *map(int, sys.argv[3:5]), *sys.argv[5:])
