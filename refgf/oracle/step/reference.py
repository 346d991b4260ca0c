"""The reference of one step: `loss` of the whole batch in float64, and how far rounding may go.

A sum of K products, in any order, errs by about sqrt(K) u of their magnitude (Higham and Mary 2019,
"A new approach to probabilistic rounding error analysis"), so an operation's result is exact for
inputs that are off by a factor 1 + delta, |delta| <= sqrt(K) u. Here float64 evaluates forward and
backward once exactly and SAMPLES times with every input of every operation multiplied by 1 +-
delta, random signs:

    delta = ROUNDINGS u + sqrt(K) u_32        u: unit roundoff of the coarsest type of the step
                                              u_32: 16-bit products are summed in float32
                                              K: elements of the largest input, at least the sum's

That carries the roundings through this very network, where a formula would have to know it. The
largest change of any element, times SAFETY, bounds the rounding of a tensor's gradient. Sums of
gradients over m backward calls and p ranks come on top:

    bound = SAFETY max|changed - exact| + (m + p + ROUNDINGS) u sum of the magnitudes added

In 16 bits that is wide, but roundings of many elements do not all point the same way. So the
factor of a tensor, <gradient, exact> / <exact, exact>, has a bound of its own, from its change in
the same samples. It finds a wrong factor that is smaller than the noise of single elements.

SAMPLES, SAFETY and ROUNDINGS are chosen: 200 right steps of random shape pass, and no mistake that
the tests rebuild is as small.
"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from refgf.oracle.spec.floats import UNIT_ROUNDOFF
from refgf.oracle.step.compared import alike, factor
from refgf.oracle.step.state import array_of, put

FLOAT64 = (
    "the reference runs `loss` and the model in float64; next: make constants of that type, as "
    "with .to(x.dtype)"
)
SAMPLES, ROUNDINGS, SAFETY = 3, 4, 4.0
MOST_SAMPLES, MOST_NUMBERS = 256, 1 << 22  # whose gradients are computed one by one: 32 MiB
IGNORED = -100  # PyTorch's label of a token that has no loss


class InFloat64(TorchDispatchMode):
    """Constants of the judged code that are in float32 become float64 in every operation."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        written = [a.alias_info is not None and a.alias_info.is_write for a in _arguments(func)]
        args = tuple(arg if out else widened(arg) for arg, out in zip(args, written))
        return self.compute(func, args, kwargs or {})

    def compute(self, func: Any, args: tuple, kwargs: dict) -> Any:
        return func(*args, **kwargs)


def _arguments(func: Any) -> list[Any]:
    return func._schema.arguments


def widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype == torch.float32 and not value.is_sparse:
        return value.double()
    return type(value)(map(widened, value)) if isinstance(value, (list, tuple)) else value


class Rounded(InFloat64):
    """Every floating-point input of every operation is off by up to delta."""

    def __init__(self, unit: float, seed: int):
        super().__init__()
        self.unit, self.signs = unit, torch.Generator().manual_seed(seed)

    def compute(self, func: Any, args: tuple, kwargs: dict) -> Any:
        aliases = any(argument.alias_info for argument in _arguments(func))
        if aliases or any(out.alias_info for out in func._schema.returns):
            return func(*args, **kwargs)  # a view, or in place: nothing is rounded
        floats = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
        terms = max((a.numel() for a in floats), default=1)
        delta = ROUNDINGS * self.unit + terms**0.5 * UNIT_ROUNDOFF["float32"]
        return func(*[self._changed(a, delta) for a in args], **kwargs)

    def _changed(self, value: Any, delta: float) -> Any:
        if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
            return value
        if value.is_sparse:  # its values were rounded where they were computed
            return value
        signs = torch.randint(0, 2, value.shape, generator=self.signs, dtype=value.dtype) * 2 - 1
        return value * (1 + delta * signs)


def changed(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A batch with each of its tensors changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: changed(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [changed(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def in_float64(value: Any) -> Any:
    """A batch with its floating-point tensors in float64."""
    return changed(value, lambda t: t.double() if t.is_floating_point() else t)


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [t for v in items for t in tensors(v)] if isinstance(items, (list, tuple, dict)) else []


def counts(batch: Any) -> dict[str, int]:
    """{what: how many} in a batch, by which a gradient may be off."""
    found = {}
    for tensor in tensors(batch):
        if tensor.ndim:
            found.setdefault("samples", len(tensor))
        if not tensor.is_floating_point() and tensor.ndim:
            found["tokens"] = int((tensor != IGNORED).sum())
    return found


def distinct(batch: Any) -> bool:
    """Is each sample of the batch another one? False where its tensors have different lengths."""
    found = [t.detach().flatten(1).double() if t.ndim > 1 else t.double() for t in tensors(batch)]
    if not found or any(t.ndim == 0 or len(t) != len(found[0]) for t in found):
        return False
    rows = torch.cat([t.reshape(len(t), -1) for t in found], 1)
    return len(torch.unique(rows, dim=0)) == len(rows)


def at_step(
    model: torch.nn.Module, step: dict[str, Any]
) -> tuple[torch.nn.Module, dict[str, torch.nn.Parameter]]:
    """(a copy in float64 in the state of this step, the parameters that are trained in it)

    step: as in record.py; before: arrays of all parameters.
    """
    exact = copy.deepcopy(model).double()
    if any(t.is_meta for t in (*exact.parameters(), *exact.buffers())):
        exact = exact.to_empty(device="cpu")
    named = dict(exact.named_parameters())
    other = sorted(step["before"].keys() - named.keys())
    if other:
        raise ValueError(
            f"train adds or renames parameters of the model ({other[0]}); wanted those of model(); "
            "next: change the model there"
        )
    with torch.no_grad():
        for name, array in step["before"].items():
            named[name].copy_(torch.tensor(array))
    put_state(exact, step, step["state"])
    for name, p in named.items():
        p.requires_grad_(name in step["trained"])
    for name, module in exact.named_modules():
        module.training = name not in step["eval"]
    return exact, {name: named[name] for name in step["trained"]}


def put_state(model: torch.nn.Module, step: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Buffers that the model has, in its own types, and attributes: a forward may change both."""
    for name, module in model.named_modules():
        for key, value in step.get("attributes", {}).get(name, {}).items():
            setattr(module, key, in_float64(value))
    for name, tensor in model.named_buffers(remove_duplicate=False):
        if name in arrays and arrays[name].shape == array_of(tensor).shape:
            put(tensor, arrays[name])


def sample_gradients(
    model: torch.nn.Module,
    batch: Any,
    loss: Callable,
    step: dict[str, Any],
    names: list[str],
) -> dict[str, Any]:
    """The gradient of `loss` of each sample alone, in float64; {} where samples are not seen.

    rows (samples, elements): of these tensors every stride-th element. numbers: which samples; one
    whose labels are all ignored has no gradient.
    """
    found = [t for t in tensors(batch) if t.ndim]
    length = len(found[0]) if found else 0
    if not 2 <= length <= MOST_SAMPLES or any(len(t) != length for t in found):
        return {}
    exact, named = at_step(model, step)
    batch, rows, numbers = in_float64(batch), [], []
    stride = -(-length * sum(named[name].numel() for name in names) // MOST_NUMBERS)
    for number in range(length):
        exact.zero_grad(set_to_none=True)
        one = changed(batch, lambda t, i=number: t[i : i + 1] if t.ndim else t)
        try:
            with InFloat64():
                of_this_turn(loss(exact, one), step["turn"]).backward()
        except Exception:  # the judged code wants more than one sample
            return {}
        zero = [torch.zeros_like(p) if p.grad is None else p.grad for p in map(named.get, names)]
        row = torch.cat([g.detach().to_dense().flatten() for g in zero])[::stride].numpy()
        if np.isfinite(row).all() and row.any():
            rows.append(row.copy())
            numbers.append(number)
    return {"rows": np.array(rows), "numbers": numbers, "stride": stride} if rows else {}


def exact_gradients(
    model: torch.nn.Module, batch: Any, loss: Callable, step: dict[str, Any], unit: float
) -> dict[str, Any]:
    """{what: {tensor: ...}}: gradients of `loss`, rounding of their elements, of their factors.

    moved: how far a gradient is another one with one rank's own buffers (natural) in their place;
    inside: with those of the step's last forward.
    """
    exact, named = at_step(model, step)
    batch = in_float64(batch)

    def gradients(mode: TorchDispatchMode) -> dict[str, np.ndarray]:
        exact.zero_grad(set_to_none=True)
        with mode:
            value = of_this_turn(loss(exact, batch), step["turn"])
            if named:
                value.backward()
        zero = {n: p if p.grad is None else p.grad for n, p in named.items()}
        return {
            n: t.detach().to_dense().numpy().copy() * (named[n].grad is not None)
            for n, t in zero.items()
        }

    def moved(buffers: dict[str, np.ndarray]) -> dict[str, float]:
        """By other buffers; those that are alike but for roundings are not other ones."""
        exact.load_state_dict(state)
        put_state(exact, step, step["state"] | buffers)
        return {
            t: float(np.abs(g - right[t]).max(initial=0.0))
            for t, g in gradients(InFloat64()).items()
        }

    state = copy.deepcopy(exact.state_dict())  # statistics of normalisation change in forward
    drawn = torch.get_rng_state()
    right, largest = in_words(lambda: gradients(InFloat64())), dict.fromkeys(named, 0.0)
    if not torch.equal(drawn, torch.get_rng_state()):
        raise ValueError(
            "loss(model, batch) draws random numbers, other ones on each rank and in each call, so "
            "that no difference could be told from them; wanted none; next: dropout with p = 0 in "
            "model(), or .eval() on it in train"
        )
    factors = dict.fromkeys(named, 0.0)
    for seed in range(SAMPLES):
        exact.load_state_dict(state)
        put_state(exact, step, step["state"])
        for name, array in gradients(Rounded(unit, seed)).items():
            change = np.abs(array - right[name]).max(initial=0.0)
            largest[name] = max(largest[name], SAFETY * float(change))
            change = abs(factor(array, right[name]) - 1)
            factors[name] = max(factors[name], SAFETY * change)
    found = {"gradients": right, "rounding": largest, "factors": factors}
    found["inside"] = moved(step["last"]) if step["last"] else {}  # as spectral norm's buffers do
    apart = {n: a for n, a in step["natural"].items() if not alike(a, step["state"].get(n, a))}
    return found | {"apart": sorted(apart), "moved": moved(apart) if apart else {}}


def of_this_turn(value: Any, turn: int) -> torch.Tensor:
    """`loss` may return a loss for each step that optimizers make in turn."""
    if isinstance(value, (list, tuple)) and value:
        value = value[turn % len(value)]
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        raise ValueError(
            "loss: wanted a tensor of one number, the mean over the whole batch; where optimizers "
            "make steps in turn on one batch, one for each"
        )
    return value


def in_words(compute: Callable[[], Any]) -> Any:
    """What the reference asks of the judged code, where PyTorch only says which types it got."""
    try:
        return compute()
    except RuntimeError as error:
        if any(word in str(error) for word in ("dtype", "Double", "double", "Float")):
            error.args = (f"{error}; {FLOAT64}",)
        raise
