"""Two trainings for docs/tools/torch_study.py, small enough for a core a rank.

    cnn           ResNet-18 with a quarter of its channels, 0.70 million parameters, on
                  scikit-learn's digits (8 x 8, 1,437 to train, 360 to test); SGD, momentum 0.9
    transformer   two layers of width 64, 0.12 million parameters, predicts the next character of
                  Python's documentation (pydoc_data.topics, which comes with Python); AdamW

Every rank takes its share of one global batch, so the number of ranks changes no hyperparameter.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from docs.tools.torch_hooks import attach, bucket_mb
from refgf.torch.example import digits

# of ResNet-18, 64 images: ResNet-50's of refgf/cluster/machines (930/s) times the ratio of flops
COMPUTE_S = 64 / 930 * 1.82 / 4.09
CHANNELS = (16, 32, 64, 128)
CONTEXT, WIDTH, HEADS, LAYERS, CHARACTERS = 32, 64, 4, 2, 96


class Block(nn.Module):
    """ResNet's basic block: two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs) for _ in range(2))
        same = inputs == outputs and stride == 1
        around = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.around = nn.Identity() if same else nn.Sequential(around, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(y)) + self.around(x))


def resnet18(channels: tuple[int, ...] = CHANNELS, inputs: int = 1, classes: int = 10) -> nn.Module:
    """For small images: a 3 x 3 convolution first, and no pooling. (N, inputs, H, W) -> (N, 10)"""
    layers: list[nn.Module] = [nn.Conv2d(inputs, channels[0], 3, 1, 1, bias=False)]
    layers += [nn.BatchNorm2d(channels[0]), nn.ReLU()]
    before = channels[0]
    for width in channels:
        layers += [Block(before, width, 1 if width == before else 2), Block(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


class Transformer(nn.Module):
    """Predicts each next character. (N, T) -> (N, T, CHARACTERS)"""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(CONTEXT, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.last = nn.Linear(WIDTH, CHARACTERS)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        y = self.characters(x) + self.places[: x.shape[1]]
        return self.last(self.layers(y, mask=mask, is_causal=True))


def characters() -> Tensor:
    """Python's documentation, ASCII only: 32 to 126 are 1 to 95, a line's end is 0. (n,)"""
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics))
    codes = [ord(c) - 31 if 32 <= ord(c) < 127 else 0 for c in text]
    return torch.tensor(codes)


@dataclass(frozen=True)
class Task:
    """data gives (inputs, targets) to train and to test."""

    network: Callable[[], nn.Module]
    optimizer: Callable[[nn.Module], torch.optim.Optimizer]
    data: Callable[[], tuple[Tensor, Tensor, Tensor, Tensor]]
    batch: int
    epochs: int
    epoch: int  # steps


def images() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x, y = digits()
    return x[:-360], y[:-360], x[-360:], y[-360:]


def sentences() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Every CONTEXT characters and the ones after each; the last 256 such pieces are the test."""
    text = characters()
    count = (len(text) - 1) // CONTEXT
    x, y = (text[i : i + count * CONTEXT].view(count, CONTEXT) for i in (0, 1))
    return x[:-256], y[:-256], x[-256:], y[-256:]


TASKS = {
    "cnn": Task(
        resnet18,
        lambda m: torch.optim.SGD(m.parameters(), 0.05, momentum=0.9, weight_decay=5e-4),
        images,
        batch=64,
        epochs=15,
        epoch=22,
    ),
    "transformer": Task(
        Transformer,
        lambda m: torch.optim.AdamW(m.parameters(), 3e-3),
        sentences,
        batch=32,
        epochs=15,
        epoch=30,
    ),
}


def train(name: str, row: str, seed: int) -> dict[str, Any]:
    """Percent of right answers after each epoch, and elements sent a step if CSC says so."""
    task, rank, size = TASKS[name], dist.get_rank(), dist.get_world_size()
    x, y, test_x, test_y = task.data()
    torch.manual_seed(seed)
    model = DistributedDataParallel(task.network(), bucket_cap_mb=bucket_mb(row))
    optimizer = task.optimizer(model)
    n = sum(p.numel() for p in model.parameters())
    attach(row, model, optimizer, chunk=max(1, n // 1000), epoch=task.epoch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, task.epochs * task.epoch)
    generator, right = torch.Generator().manual_seed(seed), []
    for _ in range(task.epochs):
        for _ in range(task.epoch):
            chosen = torch.randint(len(x), (task.batch,), generator=generator)[rank::size]
            optimizer.zero_grad()
            output = model(x[chosen])  # (N, classes) or (N, T, classes)
            loss = functional.cross_entropy(output.flatten(0, -2), y[chosen].flatten())
            loss.backward()
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.no_grad():
            found = model.module(test_x).argmax(-1)
        model.train()
        right.append(100 * (found == test_y).double().mean().item())
    return {"right": right, "parameters": n}
