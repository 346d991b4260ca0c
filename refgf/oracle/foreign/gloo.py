"""Ranks of PyTorch over gloo, each a process, all from one that has imported PyTorch.

    judge ---- GlooRanks ----> this module (a template), with a server
                                   fork --> rank 0 ... rank p-1     one gloo group of p
                                   fork --> rank 0                  a group of its own, and so on

Each has a pipe to the judge, and answers requests until the judge closes it. A keeper ends what
they start in a session of its own, and everything if the judge is killed.
"""

import contextlib
import importlib
import os
import socket
import sys
import time
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

from refgf.oracle.foreign import orphans, scratch
from refgf.oracle.foreign.messages import pack, unpack
from refgf.oracle.foreign.process import Program
from refgf.oracle.foreign.report import exit_name

ROOT = Path(__file__).resolve().parents[3]
GRACE_S = 0.5  # in which the exit code of a process is written


class GlooRanks:
    """groups: how many ranks each has; pipes: one to each rank, which first sends {"error"} or {}.

    server: a module with prepare(), called once before the forks; begin(), called in each rank's
    group; and answer(request, rank, size, store). options: of Popen.
    """

    def __init__(self, server: str, groups: tuple[int, ...], prefix: str, **options: Any):
        self.open = contextlib.ExitStack()
        self.store = str(Path(self.open.enter_context(scratch.folder(prefix)), "store"))
        self.pipes, remote = zip(*(Pipe() for _ in range(sum(groups))))
        files = [pipe.fileno() for pipe in remote]
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        environment |= {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}  # gloo, on the CPU
        if sys.platform.startswith("linux"):
            environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
        words = [str(os.getpid()), server, ",".join(map(str, groups)), self.store, *map(str, files)]
        command = [sys.executable, "-P", "-m", "refgf.oracle.foreign.gloo", *words]
        self.process = Program(command, env=environment, pass_fds=files, **options)
        for pipe in remote:
            pipe.close()

    def how_it_ended(self, number: int) -> str:
        """Of the process of a pipe: its parent hears it a little later."""
        file, stop_s = exit_file(self.store, number), time.monotonic() + GRACE_S
        while time.monotonic() < stop_s:
            with contextlib.suppress(OSError, ValueError):
                return f"its process ended with {exit_name(int(file.read_text()))}"
            time.sleep(GRACE_S / 50)
        return "its process ended"

    def close(self) -> None:
        """End all processes."""
        self.process.end()
        for pipe in self.pipes:
            pipe.close()
        orphans.end_children()
        self.open.close()


def exit_file(store: str, number: int) -> Path:
    """Where the exit code of a process is written when it ends."""
    return Path(f"{store}.exit{number}")


# -- in the processes


def torchrun_variables(rank: int, size: int, port: int) -> dict[str, str]:
    """What torchrun sets for one node. Accelerate and others read them."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank, "GROUP_RANK": 0}
    numbers |= {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "ROLE_WORLD_SIZE": size}
    numbers |= {"GROUP_WORLD_SIZE": 1, "MASTER_PORT": port}
    numbers |= {"TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0}
    texts = {"MASTER_ADDR": "127.0.0.1", "ROLE_NAME": "default", "TORCHELASTIC_RUN_ID": "refgf"}
    return texts | {name: str(number) for name, number in numbers.items()}


def serve(server: ModuleType, pipe: Connection, rank: int, size: int, store: str) -> None:
    """Answer requests as rank `rank` of `size`, whose file of the group's store this is."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    server.begin()
    pipe.send_bytes(pack({}))
    while True:
        try:
            request = unpack(pipe.recv_bytes())
        except EOFError:
            os._exit(0)  # the judge is done; gloo's threads need no farewell
        pipe.send_bytes(pack(server.answer(request, rank, size, store)))


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for own in sockets:
            own.bind(("127.0.0.1", 0))
        return [own.getsockname()[1] for own in sockets]


def main(judge: str, name: str, groups: str, store: str, *files: str) -> None:
    """Fork a process for each pipe. judge: its process number."""
    orphans.keep(int(judge))
    server, pipes = importlib.import_module(name), [Connection(int(file)) for file in files]
    try:
        server.prepare()
    except ImportError as error:
        for pipe in pipes:
            pipe.send_bytes(pack({"error": f"PyTorch cannot be imported ({error})"}))
        return
    sys.path.insert(0, ".")  # only now: a file there may have the name of one that PyTorch imports
    sizes, children = [int(size) for size in groups.split(",")], {}
    places = [(rank, size, group) for group, size in enumerate(sizes) for rank in range(size)]
    ports = free_ports(len(sizes))
    for number, (pipe, (rank, size, group)) in enumerate(zip(pipes, places)):
        child = os.fork()
        if child:
            children[child] = number
            continue
        orphans.die_with_parent()
        for other in pipes:
            if other is not pipe:
                other.close()
        os.environ |= torchrun_variables(rank, size, ports[group])
        try:
            serve(server, pipe, rank, size, f"{store}.{group}" if group else store)
        except BaseException as error:
            with contextlib.suppress(OSError):
                pipe.send_bytes(pack({"error": f"no process group: {error}"}))
        finally:
            os._exit(1)
    for pipe in pipes:
        pipe.close()
    with contextlib.suppress(ChildProcessError):
        while True:
            child, status = os.wait()
            code = str(os.waitstatus_to_exitcode(status))
            exit_file(store, children[child]).write_text(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
