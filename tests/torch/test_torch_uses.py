"""Loops as people write them: at 100 % CSC is dense training, whatever else the loop does."""

import contextlib
import gc
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from refgf.torch import Chunks, GradientFlow  # noqa: E402
from refgf.torch.backward import Backward  # noqa: E402
from refgf.torch.example import parsed, train  # noqa: E402
from tests.support.gloo import on_gloo  # noqa: E402

STEPS = 6


class Net(nn.Module):
    """A convolution, a normalisation, an embedding, a tied layer, one that is frozen or unused."""

    def __init__(
        self, unused=False, frozen=False, tied=False, batch=False, again=False, last=False
    ):
        super().__init__()
        torch.manual_seed(3)
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.deep = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4) if batch else nn.GroupNorm(2, 4)
        self.again = again
        self.embedding = nn.Embedding(10, 8)
        self.first = nn.Linear(4 * 16 + 8, 16)
        self.second = nn.Linear(16, 16)
        self.spare = nn.Linear(16, 16)
        self.last = nn.Linear(16, 10)
        self.uses_spare = not unused
        if frozen:
            self.second.requires_grad_(False)
        if tied:
            self.second.weight = self.spare.weight
        if last:  # strides of channels last, and of a transposed matrix
            self.to(memory_format=torch.channels_last)
            self.first.weight.data = self.first.weight.data.t().contiguous().t()

    def forward(self, x, number):
        y = functional.relu(self.norm(self.deep(self.conv(x)))).flatten(1)
        y = functional.relu(self.first(torch.cat([y, self.embedding(number)], 1)))
        y = checkpoint(self.second, y, use_reentrant=False) if self.again else self.second(y)
        y = functional.relu(y)
        if self.uses_spare or number[0] % 2 == 0:
            y = functional.relu(self.spare(y)) if self.uses_spare else y + 0 * self.spare(y)
        return self.last(y)


def batch(rank, step):
    generator = torch.Generator().manual_seed(100 * step + rank)
    images = torch.randn(4, 1, 4, 4, generator=generator)
    return images, torch.randint(10, (4,), generator=generator)


def loss_of(model, rank, step):
    images, numbers = batch(rank, step)
    return functional.cross_entropy(model(images, numbers), numbers)


def loop(model, optimizer, rank, flow=None):
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()


def last_later(model, optimizer, rank, flow=None):
    """DDP has made its buckets when the memory format changes, and keeps their strides."""
    model.module.to(memory_format=torch.channels_last)
    loop(model, optimizer, rank)


def accumulating(model, optimizer, rank, flow=None):
    for step in range(STEPS):
        for part in range(3):
            with model.no_sync() if part < 2 else contextlib.nullcontext():
                loss_of(model, rank, 3 * step + part).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def scheduled_by(schedule_of):
    def train(model, optimizer, rank, flow=None):
        schedule = schedule_of(optimizer)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            optimizer.step()
            schedule.step()

    return train


def halved(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)


def cycled(optimizer):
    more = {"total_steps": 10, "cycle_momentum": False}
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, **more)


def with_closure(model, optimizer, rank, flow=None):
    """As Lightning calls it."""
    for step in range(STEPS):

        def closure(step=step):
            optimizer.zero_grad()
            loss = loss_of(model, rank, step)
            loss.backward()
            return loss

        optimizer.step(closure)
    assert flow is None or flow.state_dict()["steps"] == STEPS


def validated(model, optimizer, rank, flow=None):
    average = torch.optim.swa_utils.AveragedModel(model.module)
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        loss_of(model, rank, step).backward()
        optimizer.step()
        average.update_parameters(model.module)
        model.eval()
        with torch.no_grad():
            loss_of(model.module, rank, step)
        model.train()


def unscaled(model, optimizer, rank, flow=None):
    """A GradScaler that is switched off."""
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for step in range(STEPS):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, rank, step)).backward()
        scaler.step(optimizer)
        scaler.update()


def compiled(model, optimizer, rank, flow=None):
    loop(torch.compile(model, backend="eager"), optimizer, rank)


def dense_first(model, optimizer, rank, flow=None):
    """GradientFlow is made anew in the middle, with the velocity that is there."""
    for step in range(STEPS):
        if step == 2 and flow:
            flow.close()
            options = {"density": 100, "chunks": Chunks(7), "form": flow.form}
            model = DistributedDataParallel(model.module)
            GradientFlow(model, optimizer, **options)
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()


def dense_last(model, optimizer, rank, flow=None):
    """It is closed in the middle, and hands the velocity back."""
    for step in range(STEPS):
        if step == 3 and flow:
            flow.close()
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()


def clipped(model, optimizer, rank, flow=None):
    """No more than is sent: the norm is never reached, so nothing changes."""
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1e6)
        optimizer.step()


def by_step(model, optimizer, rank, flow=None):
    for step in range(STEPS):
        loss = loss_of(model, rank, step)
        if flow:
            flow.step(loss)
        else:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, "momentum": 0.9} | options)


def in_groups(model):
    biases = [p for p in model.parameters() if p.ndim < 2]
    others = [p for p in model.parameters() if p.ndim >= 2]
    groups = [
        {"params": biases, "momentum": 0.5},
        {"params": others, "weight_decay": 0.01, "lr": 0.05},
    ]
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def sharded(model):
    return ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)


RIGHT = {  # name: (network's options, DDP's options, optimiser, loop, form)
    "usual": ({}, {}, sgd, loop, "dgc"),
    "decay": ({}, {}, lambda m: sgd(m, weight_decay=0.01), loop, "dgc"),
    "history": ({}, {}, lambda m: sgd(m, weight_decay=0.01), loop, "history"),
    "none": ({}, {}, lambda m: sgd(m, weight_decay=0.01), loop, "none"),
    "AdamW": ({}, {}, lambda m: torch.optim.AdamW(m.parameters(), 0.01), loop, "none"),
    "nesterov": ({}, {}, lambda m: sgd(m, nesterov=True), loop, "none"),
    "groups": ({}, {}, in_groups, loop, "dgc"),
    "accumulation": ({}, {}, sgd, accumulating, "dgc"),
    "schedule": ({}, {}, sgd, scheduled_by(halved), "dgc"),
    "one cycle": ({}, {}, sgd, scheduled_by(cycled), "dgc"),
    "closure": ({}, {}, sgd, with_closure, "dgc"),
    "closed": ({}, {}, sgd, dense_last, "dgc"),
    "closed, decay": ({}, {}, lambda m: sgd(m, weight_decay=0.01), dense_last, "dgc"),
    "closed, history": ({}, {}, sgd, dense_last, "history"),
    "made anew": ({}, {}, sgd, dense_first, "dgc"),
    "made anew, none": ({}, {}, sgd, dense_first, "none"),
    "validation and an average": ({}, {}, sgd, validated, "dgc"),
    "scaler off": ({}, {}, sgd, unscaled, "dgc"),
    "compiled": ({}, {}, sgd, compiled, "dgc"),
    "clipped": ({}, {}, sgd, clipped, "dgc"),
    "batch normalisation": ({"batch": True}, {}, sgd, loop, "dgc"),
    "checkpointing": ({"again": True}, {}, sgd, loop, "dgc"),
    "ZeRO-1": ({}, {}, sharded, loop, "none"),
    "fused": ({}, {}, lambda m: sgd(m, fused=True), loop, "dgc"),
    "accumulation in views": ({}, {"gradient_as_bucket_view": True}, sgd, accumulating, "history"),
    "flow.step": ({}, {}, sgd, by_step, "dgc"),
    "frozen": ({"frozen": True}, {}, sgd, loop, "dgc"),
    "tied": ({"tied": True}, {}, sgd, loop, "dgc"),
    "static graph": ({}, {"static_graph": True}, sgd, loop, "dgc"),
    "channels last": ({"last": True}, {}, lambda m: sgd(m, weight_decay=0.1), loop, "dgc"),
    "channels last, history": ({"last": True}, {}, sgd, dense_last, "history"),
    "channels last, fused": ({"last": True}, {}, lambda m: sgd(m, fused=True), dense_last, "dgc"),
    "channels last in views": (
        {"last": True},
        {"gradient_as_bucket_view": True},
        lambda m: sgd(m, weight_decay=0.1),
        loop,
        "none",
    ),
    "channels last later": ({}, {"gradient_as_bucket_view": True}, sgd, last_later, "dgc"),
    "views": ({}, {"gradient_as_bucket_view": True}, sgd, loop, "dgc"),
    "small buckets": ({}, {"bucket_cap_mb": 1e-4}, sgd, loop, "dgc"),
    "unused on a rank": ({"unused": True}, {"find_unused_parameters": True}, sgd, loop, "dgc"),
}


def weights_of(rank, names):
    """{name: (weights with DDP alone, weights with GradientFlow)}"""
    found = {}
    for name in names:
        network, ddp, optimizer_of, train, form = RIGHT[name]
        both = []
        for ours in (False, True):
            model = DistributedDataParallel(Net(**network), **ddp)
            optimizer = optimizer_of(model)
            flow = None
            if ours:
                flow = GradientFlow(model, optimizer, density=100, chunks=Chunks(16), form=form)
            train(model, optimizer, rank, flow)
            both.append(torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
        found[name] = both
    return found


@pytest.fixture(scope="module")
def trained():
    return on_gloo(2, weights_of, [name for name in RIGHT if name != "compiled"])


@pytest.mark.long
def test_a_compiled_model():
    (dense, ours), _ = (found["compiled"] for found in on_gloo(2, weights_of, ["compiled"]))
    assert (dense - ours).abs().max().item() < STEPS * 40 * 2.0**-24


@pytest.mark.parametrize("name", [name for name in RIGHT if name != "compiled"])
def test_at_a_density_of_100_it_is_dense_training(trained, name):
    for rank in range(2):
        dense, ours = trained[rank][name]
        # u and v are rounded where the velocity was: some units of the last place a step
        assert (dense - ours).abs().max().item() < STEPS * 40 * 2.0**-24


@pytest.mark.long
def test_refgf_step_says_that_it_is_right():
    file = Path(__file__).parent / "step_loop.py"
    command = [sys.executable, "-m", "refgf.oracle", "step", str(file), "--ranks", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "\nright: equal within rounding" in done.stdout, done.stdout


def half_and_scaled(rank, _):
    """16-bit wires, and an overflow on one rank with and without a GradScaler."""
    found = {}
    for wire in (torch.float16, torch.bfloat16):
        model = DistributedDataParallel(Net())
        optimizer = sgd(model)
        GradientFlow(model, optimizer, density=30, chunks=Chunks(16), wire=wire)
        loop(model, optimizer, rank)
        found[str(wire)] = parameters(model)
    for scaled in (False, True):
        model = DistributedDataParallel(Net())
        optimizer = sgd(model)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10) if scaled else None
        flow = GradientFlow(model, optimizer, density=30, chunks=Chunks(16), scaler=scaler)
        before = []
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = loss_of(model, rank, step)
            loss = loss * float("inf") if step == 3 and rank == 1 else loss
            before.append(parameters(model))
            if scaled:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                optimizer.step()
            assert flow.accepted == (step != 3)
        assert torch.equal(before[3], before[4])
        found[f"scaled {scaled}"] = parameters(model)
        assert not scaled or scaler.get_scale() == 2.0**9
    return found


def parameters(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).clone()


@pytest.mark.filterwarnings("ignore")
def test_wires_and_a_scaler_leave_all_ranks_alike():
    first, second = on_gloo(2, half_and_scaled, None)
    for name, weights in first.items():
        assert torch.equal(weights, second[name]), name
        assert weights.isfinite().all()
    assert torch.equal(first["scaled False"], first["scaled True"])  # powers of two are exact


def example(rank, folder, epochs):
    return train(parsed(["--folder", folder, "--epochs", str(epochs)]))


@pytest.mark.long
def test_the_example_resumes_on_other_ranks_and_after_a_kill(tmp_path):
    """What a killed run leaves: the folder of an epoch that not all ranks have saved."""
    pytest.importorskip("sklearn")
    folder = str(tmp_path / "run")
    first = on_gloo(2, example, folder, 1)[0]
    (tmp_path / "run" / "part-2").mkdir()
    (tmp_path / "run" / "part-2" / "rank2.pt").write_bytes(b"torn")
    again = on_gloo(3, example, folder, 2)[0]
    assert again[:1] == first and len(again) == 2
    assert on_gloo(1, example, folder, 2)[0] == again


def leaves_early(rank):
    """All that has the group goes while gloo's thread is still in what the hook left with it."""

    def late(self, arrived, original=Backward._arrived):
        original(self, arrived)
        time.sleep(0.5)

    Backward._arrived, group = late, torch.distributed.new_group()
    model = DistributedDataParallel(Net(), process_group=group)
    optimizer = sgd(model)
    flow = GradientFlow(model, optimizer, density=30, chunks=Chunks(16))
    time.sleep(0.5 * rank)  # else all has arrived at once, and no thread has to wait
    loss_of(model, rank, 0).backward()
    optimizer.step()
    flow.close(momentum=False)
    torch.distributed.destroy_process_group(group)
    del model, optimizer, flow, group
    gc.collect()
    time.sleep(1)
    return rank


def test_the_group_does_not_end_in_its_own_thread():
    """It would wait for itself: an abort of the process, seen on busy cores."""
    assert on_gloo(2, leaves_early) == [0, 1]
