"""refgf.torch against the definitions, C1 to C12 and C14: golden cases, fresh and drawn ones.

One process a rank of gloo serves all cases; a case of p ranks runs in the group of the first p.
"""

import re
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as multiprocessing  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from refgf.exchange.chunk_choice import Density  # noqa: E402
from refgf.oracle.judge.implementations import PythonModule, Result  # noqa: E402
from refgf.oracle.spec.csc.cases import run_case  # noqa: E402
from refgf.oracle.spec.csc.residual import FORMS  # noqa: E402
from refgf.oracle.spec.csc.step import (  # noqa: E402
    csc_payload_bytes,
    csc_percents,
    csc_settings,
    mask,
)
from refgf.torch import Chunks, GradientFlow, flow  # noqa: E402
from refgf.torch.pool import FlatPool, l1_norms  # noqa: E402
from tests.support.conforms import conforms, require  # noqa: E402
from tests.support.gloo import HOW  # noqa: E402
from tests.support.own import joined, ranks_of  # noqa: E402

MOST_RANKS = 5
WIRES = {None: None, "float16": torch.float16, "bfloat16": torch.bfloat16}


class Alone:
    """What needs no ranks."""

    @staticmethod
    def chunk_bounds(n, chunk):
        pool = FlatPool([("p", torch.empty(n))], chunk)
        return [(c * chunk, c * chunk + int(size)) for c, size in enumerate(pool.lengths)]

    @staticmethod
    def importance(per_rank, chunk):
        pool = FlatPool([("p", torch.empty(len(per_rank[0])))], chunk)
        norms = torch.zeros(len(per_rank), pool.count, dtype=torch.float64)
        for x, row in zip(per_rank, norms):
            l1_norms(pool.flat({"p": torch.tensor(x)}), row)
        return (norms.sum(0) / pool.lengths).numpy()

    @staticmethod
    def choose(values, percent):
        return flow.choose(torch.tensor(values), percent).tolist()

    @staticmethod
    def percent_of_step(step, steps_per_epoch, warmup_percents, percent):
        return Density(percent, tuple(warmup_percents), steps_per_epoch).at(step)


def test_chunks_importance_choice_and_density_are_as_defined():
    conforms(PythonModule(Alone), "chunk_bounds importance choose percent_of_step")


def test_the_pages_command_advises_a_size_of_buckets():
    """refgf predict plan ..., as docs/torch.md has it."""
    page = Path("docs/torch.md").read_text()
    (words,) = re.findall(r"`refgf (predict plan [^`]+)`", page)
    command = [sys.executable, "-m", "refgf", *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert re.search(r"\nPyTorch DDP  \S.* ms a step", done.stdout), done.stdout + done.stderr


class Prescribed(nn.Module):
    """Its gradients are given. The pool begins with the last parameter."""

    def __init__(self, w, sizes):
        super().__init__()
        parts = np.split(w, np.cumsum(sizes)[:-1])[::-1]
        self.p = nn.ParameterList(nn.Parameter(torch.tensor(part)) for part in parts)

    def forward(self, g):
        parts = g.split([p.numel() for p in self.p][::-1])[::-1]
        return sum((p * part).sum() for p, part in zip(self.p, parts, strict=True))


@dataclass(frozen=True)
class Listed:
    """Densities as a case lists them."""

    percents: list

    def at(self, step):
        return self.percents[step]


def run_on_rank(case, rank, group):
    """csc_run: gradients times p, since DDP divides their sum by p."""
    s, p, n = csc_settings(case), ranks_of(case), len(case["in.w"])
    model = DistributedDataParallel(Prescribed(case["in.w"], s.sizes), process_group=group)
    decayed = s.decayed or [True] * len(s.sizes)
    groups = [
        {"params": [parameter], "weight_decay": s.decay if one else 0.0}
        for parameter, one in zip(reversed(list(model.module.p)), decayed)
    ]
    optimizer = torch.optim.SGD(groups, lr=s.rate, momentum=s.momentum)
    scaler = None  # it halves a scale of 1 too, which the definition does not
    if "scale" in case.arguments:
        scaler = torch.amp.GradScaler("cpu", init_scale=s.scale, growth_interval=s.scale_interval)
    options = {"wire": WIRES[s.wire], "chunks": Chunks(s.chunk, s.after), "form": s.form}
    own = GradientFlow(model, optimizer, scaler=scaler, **options)
    own.density = Listed(csc_percents(case))
    rows, C = [], own.pool.count
    for step in case["in.g"]:
        chosen, sizes = own.chosen, []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dist, "all_reduce", counted(dist.all_reduce, sizes))
            own.step(model(torch.tensor(step[rank]) * p))
        assert sum(sizes) == csc_payload_bytes(chosen, n, s.chunk, wire=s.wire)
        w = [parameter.detach().reshape(-1) for parameter in reversed(list(model.module.p))]
        factor = np.float32(s.momentum if s.form == "history" else 1)  # it multiplies when it adds
        kept = own.residual.state.items()
        rows.append(
            {
                "out.w": torch.cat(w).numpy().copy(),
                "out.chosen": mask(chosen, C),
                **{f"out.{name}": factor * x.view(-1)[:n].numpy() for name, x in kept},
                "out.scale": np.float64(scaler.get_scale() if scaler else 1),
                "out.finite": np.uint8(own.accepted),
            }
        )
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def counted(all_reduce, sizes):
    def counting(tensor, *args, **kwargs):
        sizes.append(tensor.numel() * tensor.element_size())
        return all_reduce(tensor, *args, **kwargs)

    return counting


def serve(rank, folder, inboxes, outbox):
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=MOST_RANKS)
    groups = [dist.new_group(range(p)) for p in range(1, MOST_RANKS + 1)]
    while (case := inboxes[rank].get()) is not None:
        try:
            outbox.put((rank, run_on_rank(case, rank, groups[ranks_of(case) - 1])))
        except Exception:
            outbox.put((rank, traceback.format_exc()))


class OnGloo:
    """csc_run by `GradientFlow`, as an implementation of `verify`."""

    def __init__(self, inboxes, outbox):
        self.inboxes, self.outbox = inboxes, outbox

    def provides(self, case):
        """What GradientFlow has not is left out: LARS (C13, C15), and theta and orders of sums,
        which are DDP's and its backend's. So are numbers that torch rounds as it does: it adds a
        product with one rounding, and p times g is exact for few bits only.
        """
        a = case.arguments
        lazy, lars = str(a.get("theta_bytes", "inf")) != "inf", a.get("trust") is not None
        runs = case.function == "csc_run" and ranks_of(case) <= MOST_RANKS
        return runs and bool(a.get("exact_norms", True)) and not lazy and not lars

    def run(self, case):
        p = ranks_of(case)
        for inbox in self.inboxes[:p]:
            inbox.put(case)
        found = dict(self.outbox.get(timeout=400) for _ in range(p))
        wrong = [text for text in found.values() if isinstance(text, str)]
        return Result(error=wrong[0]) if wrong else Result(joined([found[r] for r in range(p)]))


@pytest.fixture(scope="module")
def on_gloo():
    context = multiprocessing.get_context(HOW)
    inboxes, outbox = [context.SimpleQueue() for _ in range(MOST_RANKS)], context.Queue()
    with tempfile.TemporaryDirectory(prefix="refgf-gloo-") as folder:
        ranks = multiprocessing.start_processes(
            serve, (folder, inboxes, outbox), MOST_RANKS, join=False, start_method=HOW
        )
        yield OnGloo(inboxes, outbox)
        for inbox in inboxes:
            inbox.put(None)
        ranks.join()


def test_runs_are_as_defined(on_gloo):
    conforms(on_gloo, "csc_run", drawn=1)


@pytest.mark.parametrize("seed", range(12))
def test_drawn_runs_are_as_defined(on_gloo, seed):
    """Few bits: decay on 1, 2 and 4 ranks only. Tensors without elements, and a network of them."""
    rng = np.random.default_rng(seed)
    form, p = FORMS[seed % 4], int(rng.integers(1, MOST_RANKS + 1))
    sizes = rng.integers(0, (1, 2, 9)[seed % 3], 7).tolist()
    settings = {"sizes": sizes, "chunk": int(rng.integers(1, 9)), "after": bool(seed % 2)}
    if p in (1, 2, 4):
        settings["decay"] = 0.25
    plan = (int(rng.integers(1, 100)), (100, 50)[: seed % 3], 2)
    case = run_case(f"drawn-{seed}", "", p=p, steps=4, plan=plan, form=form, **settings)
    assert on_gloo.provides(case)
    require(on_gloo, case)
