"""What a model's gradient depends on besides parameters: buffers, and attributes of its modules.

    buffers      spectral norm's vectors, codebooks, routing biases, running statistics. Forced in
                 the replay and the reference to what p ranks had, as parameters are
    attributes   numbers and plain tensors, as a temperature that the loop lowers. The reference
                 takes those of the replay: one rank's own

Both are read where the outermost module that holds them first runs in a step: DDP has broadcast
buffers by then, and the loop may have set them since it took the batch.
"""

from typing import Any

import numpy as np
import torch

State = dict[str, np.ndarray]


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """A copy in NumPy; 16-bit types become float32, which holds them exactly."""
    kept = tensor.detach()
    kept = kept.to_local() if hasattr(kept, "placements") else kept
    kept = kept.to_dense() if kept.is_sparse else kept
    kept = torch.view_as_real(kept.resolve_conj()) if kept.is_complex() else kept
    return (kept.float() if kept.dtype in (torch.bfloat16, torch.float16) else kept).numpy().copy()


def put(tensor: torch.Tensor, array: np.ndarray) -> None:
    """Copy in place, but where it is that already: a graph may have saved the tensor."""
    if np.array_equal(array_of(tensor), array, equal_nan=array.dtype.kind == "f"):
        return
    with torch.no_grad():
        value = torch.tensor(array)
        tensor.copy_(torch.view_as_complex(value) if tensor.is_complex() else value)


def buffers_of(module: torch.nn.Module, prefix: str = "") -> dict[str, torch.Tensor]:
    """{name: buffer}, but those that are not there yet."""
    found = dict(module.named_buffers(prefix, remove_duplicate=False))
    return {name: t for name, t in found.items() if not t.is_meta and not hasattr(t, "placements")}


def saved_buffers(model: torch.nn.Module) -> list[str]:
    """Names of those that a checkpoint holds."""
    return [name for name, _ in model.named_buffers() if name in model.state_dict()]


def attributes_of(model: torch.nn.Module) -> dict[str, dict[str, Any]]:
    """{module: {attribute: a number or a tensor without a graph}}"""

    def plain(value: Any) -> bool:
        if isinstance(value, torch.Tensor):
            kept = isinstance(value, torch.nn.Parameter) or value.requires_grad
            return not (kept or hasattr(value, "placements"))
        return type(value) in (bool, int, float)

    return {
        name: {
            key: value.clone() if isinstance(value, torch.Tensor) else value
            for key, value in vars(module).items()
            if key != "training" and plain(value)
        }
        for name, module in model.named_modules()
    }


class ModelState:
    """Buffers at the beginning of a step's first forward, recorded or forced.

    found: what was there, in a replay before it was forced; last: at the last forward.
    """

    def __init__(self, model: torch.nn.Module, forced: State | None):
        self.model, self.forced = model, forced or {}
        self.names = {id(module): name for name, module in model.named_modules()}
        self.outermost: set[int] = set()
        self.covered: set[int] = set()  # those and what is inside them
        self.taken: set[str] = set()  # buffers of modules that have run
        self.placed: set[str] = set()  # buffers that were forced
        self.found: State = {}
        self.last: State = {}
        self.attributes = attributes_of(model)
        self._take(buffers_of(model), force=False)

    def _take(self, buffers: dict[str, torch.Tensor], force: bool) -> None:
        for name, tensor in buffers.items():
            now, wanted = array_of(tensor), self.forced.get(name)
            if name not in self.placed or not np.array_equal(now, wanted):
                self.found[name] = now
            if force and wanted is not None and wanted.shape == now.shape:
                self.placed.add(name)
                put(tensor, wanted)

    def forward_begins(self, module: torch.nn.Module) -> None:
        """module: of the model."""
        if id(module) in self.outermost:
            buffers = buffers_of(module, self.names[id(module)])
            self.last |= {name: array_of(t) for name, t in buffers.items()}
        elif id(module) not in self.covered:
            buffers = buffers_of(module, self.names[id(module)])
            if not self.outermost:
                self.attributes = attributes_of(self.model)
                self._take(buffers_of(self.model), force=False)
            self._take({n: t for n, t in buffers.items() if n not in self.taken}, force=True)
            self.taken |= buffers.keys()
            self.outermost.add(id(module))
            self.covered |= {id(inside) for inside in module.modules()}

    def changed_inside(self) -> State:
        """Buffers that are other ones at the last forward than at the first."""
        first = self.found | self.forced
        return {n: a for n, a in self.last.items() if not np.array_equal(a, first[n])}
