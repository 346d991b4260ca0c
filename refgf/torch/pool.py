"""The parameters that DDP reduces, laid out as one flat pool that is cut into chunks.

    pool     | fc.bias | fc.weight          | ... | conv.weight |      last parameter first
    chunks   | 0            | 1            | 2            | 3  0|      the last one is padded

The order is that of `named_parameters`, reversed. It depends neither on DDP's buckets nor on their
number, which DDP changes after the first step, so chunks and residuals outlive both.
"""

import bisect
import itertools
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

Segment = tuple[int, Tensor]  # where in the pool, and what stands there (k,)


class FlatPool:
    """Where each parameter and each chunk lies.

    named  (name, parameter) of all that need a gradient
    chunk  elements of a chunk; n is the number of elements, C that of chunks
    """

    def __init__(self, named: Iterable[tuple[str, Tensor]], chunk: int) -> None:
        pairs = list(named)[::-1]
        self.names = [name for name, _ in pairs]
        self.parameters = [parameter for _, parameter in pairs]
        sizes = [parameter.numel() for parameter in self.parameters]
        self.starts = [0, *itertools.accumulate(sizes)]
        self.types = [parameter.dtype for parameter in self.parameters]
        self.place = {id(p): index for index, p in enumerate(self.parameters)}
        self.n, self.chunk = self.starts[-1], chunk
        self.count = -(-self.n // chunk)
        self.device = self.parameters[0].device
        lengths = [min(chunk, self.n - first) for first in range(0, self.n, chunk)]
        self.lengths = torch.tensor(lengths, dtype=torch.float64, device=self.device)  # (C,)
        self.parts = [0] * self.count  # of how many parameters each chunk has elements
        for number in itertools.chain.from_iterable(map(self.chunks_of, range(len(pairs)))):
            self.parts[number] += 1

    def zeros(self) -> Tensor:
        """An array over the pool, padded to whole chunks. -> (C, chunk)"""
        return torch.zeros(self.count, self.chunk, device=self.device)

    def part(self, index: int) -> slice:
        """The elements of parameter number `index`."""
        return slice(self.starts[index], self.starts[index + 1])

    def chunks_of(self, index: int) -> range:
        """The chunks that parameter number `index` has elements in."""
        first, stop = self.starts[index], self.starts[index + 1]
        return range(first // self.chunk, -(-stop // self.chunk) if stop > first else 0)

    def bits(self) -> int:
        """The sum of all parameters' bits as integers: exact, so other weights have another one."""
        whole = {2: torch.int16, 4: torch.int32}
        flat = (p.detach().reshape(-1) for p in self.parameters)
        return sum(int(x.view(whole[x.element_size()]).sum()) for x in flat)

    def index(self, numbers: list[int]) -> Tensor:
        """Chunks on the device. From pinned memory, so that the host does not wait for the copy."""
        pinned = self.device.type == "cuda"
        found = torch.tensor(numbers, dtype=torch.long, pin_memory=pinned)
        return found.to(self.device, non_blocking=True)

    def packed(self, rows: Tensor, numbers: list[int]) -> Tensor:
        """The chunks of these ascending numbers behind each other, without padding. -> (k,)

        A view of rows, and no copy, where they are one run.
        """
        first, last = numbers[0], numbers[-1]
        if last - first + 1 == len(numbers):
            return rows.view(-1)[first * self.chunk : min(self.n, (last + 1) * self.chunk)]
        padding = self.count * self.chunk - self.n if last == self.count - 1 else 0
        return rows.index_select(0, self.index(numbers)).view(-1)[
            : len(numbers) * self.chunk - padding
        ]

    def segments(self, numbers: list[int], packed: Tensor) -> Iterator[Segment]:
        """What `packed` holds, chunks that follow each other joined."""
        at = 0
        for first, last in runs(numbers):
            start, stop = first * self.chunk, min(self.n, (last + 1) * self.chunk)
            yield start, packed[at : at + stop - start]
            at += stop - start

    def decayed(self, start: int, k: int, decay: list[float]) -> Tensor:
        """The weights start.. of the pool, each times its parameter's decay. -> (k,)"""
        stop, out = start + k, torch.zeros(k, device=self.device)
        for index in range(bisect.bisect_right(self.starts, start) - 1, len(self.names)):
            part = self.part(index)
            low, high = max(part.start, start), min(part.stop, stop)
            if part.start >= stop:
                break
            if low < high and decay[index]:
                weights = self.parameters[index].detach().reshape(-1)
                piece = weights[low - part.start : high - part.start]
                torch.mul(piece, decay[index], out=out[low - start : high - start])
        return out

    def named(self, rows: Tensor) -> dict[str, Tensor]:
        """Copies of an array over the pool, by parameter and in its shape."""
        flat = rows.view(-1)
        return {
            name: flat[self.part(index)].view(parameter.shape).clone()
            for index, (name, parameter) in enumerate(zip(self.names, self.parameters))
        }

    def flat(self, arrays: dict[str, Tensor]) -> Tensor:
        """The inverse of `named`. -> (C, chunk)"""
        rows = self.zeros()
        for index, name in enumerate(self.names):
            rows.view(-1)[self.part(index)] = arrays[name].reshape(-1).to(rows)
        return rows


def learnable(model: DistributedDataParallel) -> list[tuple[str, Tensor]]:
    """The parameters that need a gradient. torch.compile's prefix is no part of a name."""
    named, ignored = model.module.named_parameters(), model.parameters_to_ignore
    learned = [(name, p) for name, p in named if p.requires_grad and name not in ignored]
    return [(name.replace("_orig_mod.", ""), p) for name, p in learned]


def l1_norms(rows: Tensor, out: Tensor) -> None:
    """out (k,) float64, of rows (k, chunk). On a CPU in blocks that its cache holds."""
    step = max(1, 2**16 // rows.shape[1]) if rows.device.type == "cpu" else len(rows)
    for block, norms in zip(rows.split(step), out.split(step)):
        torch.sum(block.abs(), 1, dtype=torch.float64, out=norms)


def finite(x: Tensor) -> Tensor:
    """Is all of x (k,) finite? bool; reads x once, where isfinite() writes four arrays."""
    return torch.stack(torch.aminmax(x)).isfinite().all()


def runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of each run of ascending numbers that follow each other."""
    for _, run in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield members[0], members[-1]


def write(segments: list[Segment], start: int, out: Tensor, keep: Tensor, other: Tensor) -> None:
    """out (k,), elements start.. of a pool, takes what ascending segments hold of it; else 0.

    If keep (bool) is False, `other` in place of what they hold.
    """
    done = 0
    begin = max(0, bisect.bisect_right(segments, start, key=lambda segment: segment[0]) - 1)
    for first, values in segments[begin:]:
        if first >= start + out.numel():
            break
        low, high = max(first, start), min(first + values.numel(), start + out.numel())
        if low < high:
            out[done : low - start].zero_()
            held, done = values[low - first : high - first], high - start
            torch.where(keep, held, other, out=out[low - start : done])
    out[done:].zero_()
