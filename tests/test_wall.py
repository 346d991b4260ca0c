"""The wall: nothing in the core imports what is behind it, and the core trains without it."""

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE = ("ops.py", "device.py", "streams.py", "comm", "nn", "exchange", "training", "predict")
RUN_BY_ALL = ("__init__.py", "__main__.py", "program.py")  # of any import of refgf, or of none
FILES = [path.relative_to(ROOT / "refgf") for path in sorted((ROOT / "refgf").rglob("*.py"))]
PARTS = {file.parts[0] for file in FILES}
BEHIND = sorted(part.removesuffix(".py") for part in PARTS - {*CORE, *RUN_BY_ALL})
ALLOWED = {  # a part of refgf: the others that it may import, besides EVERYBODY
    "comm": [],
    "nn": [],
    "predict": [],
    "exchange": ["comm.slices"],
    "training": ["comm", "exchange", "nn"],
    "ops.py": [],
    "device.py": [],
    "streams.py": [],
    "oracle": [],
    "oracle/schedules": ["comm", "papers.jia", "predict.cost"],  # exports them; judges foreign ones
    "oracle/foreign": ["machine.threads"],  # foreign code runs on the lessons' ranks
    "oracle/grade": ["machine.threads"],  # which the judge keeps, and students' processes ask
    "oracle/reveal": ["advice"],
    "torch": ["exchange.chunk_choice", "predict"],  # densities, the size of buckets; no MPI
    "course": ["oracle"],
    "cluster": ["machine.units"],
    "papers": [
        *("comm", "exchange", "nn", "training", "predict", "machine.regular_files", "arguments")
    ],
    "engine": ["comm", "exchange", "nn", "training", "predict"],
    "machine": ["comm", "nn", "training", "predict", "advice", "arguments"],
    "launch": ["engine", "interrupt"],
    "doctor": ["launch", "engine", "advice"],
    "plan": ["advice", "comm", "predict", "papers", "cluster.like", "machine", "launch"],
    "site": ["comm", "predict", "papers", "oracle", "cluster.like", "advice"],
    "advice.py": [],
    "arguments.py": [],
    "interrupt.py": [],
    "__main__.py": ["advice", "program"],
    "__init__.py": ["program"],
    "program.py": [],
}
EVERYBODY = ["ops", "device", "streams", "program"]
OUTSIDE = {  # library: which parts of refgf may import it
    "mpi4py": ("launch", "doctor", "advice.py", "device.py", "engine", "cluster/probe.py"),
    "cupy": ("device.py", "engine"),
    "numba": ("engine",),
}


@cache
def sources():
    """[(part of refgf, path, imported names)] of every file."""
    return [(place.parts[0], place, list(imported(ROOT / "refgf" / place))) for place in FILES]


def imported(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                yield name if is_module(name) else node.module


@cache
def is_module(name):
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def test_every_part_has_a_row():
    """Otherwise a new one could import anything."""
    assert {name for name in ALLOWED if "/" not in name} == PARTS


def within(name, places):
    return any(name == place or name.startswith(place + ".") for place in places)


def test_imports_go_one_way():
    wrong = []
    for part, place, names in sources():
        for name in names:
            top, _, rest = name.partition(".")
            if top in OUTSIDE and not str(place).startswith(OUTSIDE[top]):
                wrong.append(f"{place} imports {name}")
            if top in ("kit", "lab", "lessons") or name == "refgf":
                wrong.append(f"{place} imports {name}")
            own = ".".join(place.parts[:2]) if part == "papers" else part
            allowed = [own, *EVERYBODY, *ALLOWED.get(part, [])]
            allowed += ALLOWED.get("/".join(place.parts[:2]), [])
            allowed += ["interrupt"] * (place.name == "__main__.py")
            if top == "refgf" and not within(rest, allowed):
                wrong.append(f"{place} imports {name}")
    assert not wrong


def test_there_are_no_import_cycles():
    graph = {}
    for _, place, names in sources():
        module = ".".join(("refgf", *place.with_suffix("").parts)).removesuffix(".__init__")
        graph[module] = {name for name in names if name.startswith("refgf.")}
    done, path = set(), []

    def visit(module):
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module in done or module not in graph:
            return
        path.append(module)
        for name in graph[module]:
            visit(name)
        done.add(path.pop())

    for module in graph:
        visit(module)


PROGRAM = """
import importlib.abc, sys, threading

class Wall(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if {wall} and name.startswith("refgf.") and name.split(".")[1] in {behind}:
            raise ImportError(name + " is behind the wall")

sys.meta_path.insert(0, Wall())
import hashlib
from functools import partial
import numpy as np
from sklearn.datasets import load_digits
if {engine}:
    import refgf.engine
from refgf.exchange.csc import CSCSettings
from refgf.exchange.lazy import Theta
from refgf.exchange.precision import LossScale
from refgf.nn.alexnet import AlexNet
from refgf.training.data import Dataset, batches
from refgf.training.gradientflow import GradientFlow
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica


def new_world():
    return {{"lock": threading.Lock(), "mail": {{}}, "cv": threading.Condition()}}


class Comm:
    # ranks as threads; a barrier around every message keeps it small
    def __init__(self, rank, size, world):
        self.rank, self.size, self.world = rank, size, world
    def Get_rank(self): return self.rank
    def Get_size(self): return self.size
    def Dup(self):
        number = self.made = getattr(self, "made", 0) + 1
        with self.world["lock"]:
            world = self.world.setdefault(number, new_world())
        return Comm(self.rank, self.size, world)
    def Free(self): pass
    def Send(self, buf, dest, tag=0):
        with self.world["cv"]:
            self.world["mail"].setdefault((self.rank, dest), []).append(buf.copy())
            self.world["cv"].notify_all()
    def Recv(self, buf, source, tag=0):
        key = source, self.rank
        with self.world["cv"]:
            self.world["cv"].wait_for(lambda: self.world["mail"].get(key))
            buf[...] = self.world["mail"][key].pop(0)
    def Sendrecv(self, sendbuf, dest, sendtag=0, recvbuf=None, source=None, recvtag=0):
        self.Send(sendbuf, dest)
        self.Recv(recvbuf, source)


def digits():
    small = load_digits()
    large = np.kron(small.images * 15, np.ones((9, 9)))[:, :67, :67, None].astype(np.uint8)
    names = tuple("0123456789")
    fetch = large.__getitem__
    return Dataset(fetch, small.target.astype(np.int64), names, 67, 1, (0.3,), (0.4,))


def train(comm, found):
    data = digits()
    network = AlexNet(10, 67, width=1 / 16, channels=1)
    network.dropout_rng = np.random.default_rng(comm.rank)
    optimizer = partial(MomentumSGD, momentum=0.9, weight_decay=5e-4)
    model = replica(network, optimizer, half_weights=True, loss_scale=LossScale(2.0**10, True))
    stack = dict(wire=np.float16, grouping=Theta(20_000), overlap=True)
    with GradientFlow(comm, model, csc=CSCSettings(20, chunk=500), **stack) as flow:
        for step, shard in zip(range(4), batches(data, 24, 0, 1, comm.rank, comm.size)):
            flow.step(*shard, rate=0.01)
        found[comm.rank] = flow.require_same_parameters()


for size in (1, 3):
    world, found = new_world(), [None] * size
    comms = [Comm(rank, size, world) for rank in range(size)]
    ranks = [threading.Thread(target=train, args=(comm, found)) for comm in comms]
    [rank.start() for rank in ranks]
    [rank.join() for rank in ranks]
    assert len(set(found)) == 1 and found[0]
    print(found[0])
"""


def hashes(wall, engine):
    program = PROGRAM.format(wall=wall, engine=engine, behind=BEHIND)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


def test_the_core_trains_alone_to_the_same_bits():
    """The whole stack on 1 and on 3 ranks, with nothing behind the wall, and with the engine."""
    alone = hashes(wall=True, engine=False)
    assert len(alone) == 2 and alone[0] != alone[1]
    assert hashes(wall=False, engine=True) == alone


def test_the_wall_holds():
    """Otherwise the test above would prove nothing."""
    with pytest.raises(AssertionError, match="refgf.engine is behind the wall"):
        hashes(wall=True, engine=True)
