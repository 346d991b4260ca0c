"""What a `GradientFlow` is made with: right on each rank, and the same on all."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from refgf.exchange.chunk_choice import Density
from refgf.torch.optimizers import compared, takeable
from refgf.torch.pool import FlatPool, learnable
from refgf.torch.residual import FORMS
from refgf.torch.wrong import require

LARGEST_CHUNK = 32_768  # elements: GradientFlow's 32K (stated)
WIRES = (torch.float16, torch.bfloat16, torch.float32, None)


@dataclass(frozen=True)
class Warmup:
    """Densities before the final one: `percents`, each for `steps` steps of the optimiser."""

    percents: Sequence[float] = ()
    steps: int = 1

    def __post_init__(self) -> None:
        numbers: Any = isinstance(self.percents, Sequence) and [*self.percents, self.steps]
        right = numbers and all(isinstance(number, Real) for number in numbers)
        require(right, f"{self}", "numbers in a sequence", "Warmup((100, 25), steps=500)")


@dataclass(frozen=True)
class Chunks:
    """What is sent whole or not at all.

    size         elements of a chunk; None: a thousandth of all, at most 32,768
    after        rank chunks by what they would keep, not by what they would send
    dense_every  every so many steps all of them are sent; infinity: never
    """

    size: int | None = None
    after: bool = False
    dense_every: float = math.inf


A_THOUSAND = Chunks()


class FlowSettings:
    """What this rank gives, made into a pool, its densities and what is taken.

    flow    a `GradientFlow` with its arguments
    Errors: ValueError for what cannot work. Nothing is changed, so other ranks may still refuse.
    """

    def __init__(self, flow: Any, density: float, warmup: Warmup | None) -> None:
        model, form, wire, chunks = flow.model, flow.form, flow.wire, flow.chunks
        is_ddp = isinstance(model, DistributedDataParallel)
        wrap = "DistributedDataParallel(network); FSDP has no such hook"
        require(is_ddp, f"a {type(model).__name__}", "a model in DDP", wrap)
        require(form in FORMS, f"form={form!r}", f"one of {', '.join(FORMS)}", "form='dgc'")
        require(wire in WIRES, f"wire={wire}", "a type of 16 or 32 bits", "wire=torch.float16")
        for name, value, kind in (
            ("optimizer", flow.optimizer, torch.optim.Optimizer),
            ("density", density, Real),
            ("warmup", warmup, Warmup | None),
            ("chunks", chunks, Chunks),
            ("scaler", flow.scaler, torch.amp.GradScaler | None),
        ):
            word = getattr(kind, "__name__", kind)
            require(isinstance(value, kind), f"{name}={value!r}", f"{word}", "docs/torch.md")
        masks_all = form == "dgc_masked" and density == 100
        got = "form='dgc_masked' at a density of 100, which drops all momentum"
        require(not masks_all, got, "less than 100", "form='dgc'")
        network = learnable(model)
        frozen = "requires_grad_(True) before DDP for what is to learn"
        require(bool(network), "no parameter that learns", "one at least", frozen)
        size, n = chunks.size, sum(p.numel() for _, p in network)
        if size is None:
            size = max(1, min(LARGEST_CHUNK, n // 1000))
        whole = isinstance(size, Integral) and isinstance(chunks.dense_every, Real)
        right = whole and min(size, chunks.dense_every) >= 1
        require(right, f"{chunks}", "whole numbers of at least 1", "Chunks(size=32768)")
        embeddings = torch.nn.Embedding | torch.nn.EmbeddingBag
        modules = [(n, m) for n, m in model.module.named_modules() if isinstance(m, embeddings)]
        learned = {id(parameter) for _, parameter in network}
        modules = [(n, m) for n, m in modules if id(m.weight) in learned]  # none that is frozen
        sparse = [name or "the network" for name, module in modules if module.sparse]
        got = f"{sparse[:3]} with sparse gradients"
        require(not sparse, got, "dense ones", "Embedding(..., sparse=False)")
        wide = [n for n, p in network if p.dtype not in WIRES]
        got = f"{wide[:3]} in float64 or complex"
        require(not wide, got, "real numbers of 32 or 16 bits", "model.float()")
        percents, steps = (warmup.percents, warmup.steps) if warmup else ((), 1)
        self.flow, self.density = flow, Density(density, tuple(percents), steps)
        self.pool = FlatPool(network, min(size, max(1, n)))
        self.taken = takeable(flow.optimizer, form, self.pool)

    def compared(self) -> dict[str, Any]:
        """What must be the same on all ranks, by what it is called in a sentence."""
        flow, pool, scaler = self.flow, self.pool, self.flow.scaler
        settings = {"density": self.density.percent, "form": flow.form, "wire": str(flow.wire)}
        settings["warmup"] = (self.density.warmup, self.density.steps_per_epoch)
        settings |= {f"{name} of Chunks": value for name, value in vars(flow.chunks).items()}
        settings |= {"scaler": scaler and str(scaler.state_dict())}
        for index, (name, p) in enumerate(zip(pool.names, pool.parameters)):
            settings[f"parameter {index} of the pool"] = f"{name} {tuple(p.shape)} {p.dtype}"
        for name in ("bucket_bytes_cap", "find_unused_parameters", "static_graph"):
            settings[f"DDP's {name}"] = getattr(flow.model, name, None)
        settings["the sum of the weights' bits"] = pool.bits()
        return settings | compared(flow.optimizer, pool)
