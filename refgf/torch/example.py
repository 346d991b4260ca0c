"""Trains a small network on handwritten digits with CSC, and resumes where it was stopped.

    torchrun --nproc-per-node 4 -m refgf.torch.example --density 10 --epochs 8
    torchrun --nproc-per-node 4 -m refgf.torch.example --hook default       DDP alone, to compare
    torchrun --nproc-per-node 4 -m refgf.torch.example --folder run         a second time: resumes

Each rank saves its own file, because each has a residual of its own, into a folder of this epoch: a
rank that is killed while it saves leaves the epoch before. Any number of ranks resumes. The data
are scikit-learn's.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from refgf.torch import Chunks, GradientFlow, Warmup

BATCH, RATE = 64, 0.05


def network(seed: int) -> nn.Module:
    """A convolutional network of 0.29 million parameters for images of 8 x 8 pixels."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),  # (N, 64, 4, 4) -> (N, 1024)
        nn.Linear(1024, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images (1797, 1, 8, 8) and labels (1797,), in an order that mixes the writers."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images = torch.tensor(data.images[order] / 16, dtype=torch.float32)
    return images[:, None], torch.tensor(data.target[order])


def save(folder: Path, epoch: int, saved: dict[str, Any]) -> None:
    """One file a rank. The folder gets its name when all of them are there. Collective."""
    rank, part = dist.get_rank(), folder / f"part-{epoch}"
    if rank == 0:
        shutil.rmtree(part, ignore_errors=True)  # of a run that was killed
        part.mkdir(parents=True)
    dist.barrier()
    torch.save(saved, part / f"rank{rank}.pt")
    dist.barrier()
    if rank == 0:
        part.rename(folder / f"epoch-{epoch}")
        shutil.rmtree(folder / f"epoch-{epoch - 2}", ignore_errors=True)
    dist.barrier()


def saved_last(folder: Path) -> list[Path]:
    """The files of the last epoch that all ranks have saved, in their order."""
    epochs = sorted(folder.glob("epoch-*"), key=lambda path: int(path.name.split("-")[1]))
    count = len(list(epochs[-1].glob("rank*.pt"))) if epochs else 0
    return [epochs[-1] / f"rank{rank}.pt" for rank in range(count)]


def train(arguments: argparse.Namespace) -> list[float]:
    """Accuracy in percent after each epoch, on the last 360 images."""
    rank, size = dist.get_rank(), dist.get_world_size()
    images, labels = digits()
    train_images, train_labels = images[:-360], labels[:-360]
    steps = len(train_images) // BATCH
    model = DistributedDataParallel(network(arguments.seed))
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=0.9, weight_decay=5e-4)
    flow, first, accuracies = None, 0, []
    if arguments.hook == "csc":
        warmup = Warmup(tuple(arguments.warmup), steps)
        wire = torch.float16 if arguments.half else None
        options = {"density": arguments.density, "warmup": warmup, "form": arguments.form}
        flow = GradientFlow(model, optimizer, wire=wire, chunks=Chunks(arguments.chunk), **options)
    folder = Path(arguments.folder) if arguments.folder else None
    if found := folder and saved_last(folder):
        states = [torch.load(path) for path in found]
        mine = states[rank % len(states)]
        model.module.load_state_dict(mine["model"])
        first, accuracies = mine["epoch"], mine["accuracies"]
        optimizer.load_state_dict(mine["optimizer"])
        if flow:
            every = [state["flow"] for state in states]
            flow.load_state_dict(every[rank] if len(states) == size else every)
        if rank == 0:
            print(f"goes on after epoch {first}, saved by {len(states)} ranks", flush=True)
    for epoch in range(first, arguments.epochs):
        order = torch.randperm(
            len(train_images),
            generator=torch.Generator().manual_seed(1000 * arguments.seed + epoch),
        )
        for step in range(steps):
            chosen = order[step * BATCH : (step + 1) * BATCH][rank::size]
            optimizer.zero_grad()
            functional.cross_entropy(model(train_images[chosen]), train_labels[chosen]).backward()
            optimizer.step()
        with torch.no_grad():
            found = model.module(images[-360:]).argmax(1)
        accuracies.append(100 * (found == labels[-360:]).float().mean().item())
        if rank == 0:
            print(f"epoch {epoch + 1}: {accuracies[-1]:.1f} % right", flush=True)
        if folder:
            saved = {"model": model.module.state_dict(), "epoch": epoch + 1}
            saved |= {"accuracies": accuracies, "optimizer": optimizer.state_dict()}
            save(folder, epoch + 1, saved | {"flow": flow.state_dict() if flow else None})
    if rank == 0:
        print(f"done: {accuracies[-1]:.1f} % right after {len(accuracies)} epochs", flush=True)
    return accuracies


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="torchrun -m refgf.torch.example", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--hook", choices=("csc", "default"), default="csc")
    parser.add_argument("--density", type=float, default=10.0, help="percent (default: 10)")
    parser.add_argument("--form", default="dgc", help="momentum correction (default: dgc)")
    parser.add_argument(
        "--warmup", type=float, nargs="*", default=[100, 25], help="percent an epoch"
    )
    parser.add_argument("--chunk", type=int, help="elements (default: a thousandth of all)")
    parser.add_argument("--half", action="store_true", help="float16 on the wire")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="where checkpoints lie (default: none are written)")
    return parser.parse_args(words)


def main(words: list[str]) -> None:
    arguments = parsed(words)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        train(arguments)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
