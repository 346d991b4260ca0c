"""What the processes of `oracle step` do: p ranks, and one more that trains alone."""

import contextlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from refgf.oracle.step.collectives import calls_file

WANTED = ("model", "batch", "loss", "train")
modules: dict[str, tuple[bytes, ModuleType]] = {}  # with the text that was run


def subject(source: str) -> Any:
    """What holds the four functions: the file, or with FILE.py:NAME that attribute of it."""
    path, _, name = source.partition(":")
    text = Path(path).read_bytes()
    if path not in modules or modules[path][0] != text:
        spec = importlib.util.spec_from_file_location("refgf_judged_step", path)
        module = importlib.util.module_from_spec(spec)
        modules[path] = text, module
        sys.modules[spec.name] = module
        sys.path.insert(0, str(Path(path).resolve().parent))
        sys.argv = [path]  # as if it were run without options
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del modules[path]
            raise
    module = modules[path][1]
    found = getattr(module, name, None) if name else module
    missing = [wanted for wanted in WANTED if not callable(getattr(found, wanted, None))]
    if missing:
        raise ValueError(
            f"{source} has no function {missing[0]}; wanted model(), batch(seed), "
            "loss(model, batch) and train(model, batches, rank, size); "
            "next: help(refgf.oracle.step) shows an example"
        )
    return found


def built(source: str, request: dict) -> tuple[Any, Any, list[Any]]:
    """(the judged functions, a model, the global batch of each step)"""
    import torch

    judged = subject(source)
    torch.manual_seed(0)
    model = judged.model()
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"model() returned {type(model).__name__}; wanted a torch.nn.Module")
    lazy = torch.nn.parameter.UninitializedTensorMixin
    if any(isinstance(t, lazy) for t in (*model.parameters(), *model.buffers())):
        raise ValueError(
            "model() returned lazy layers without parameters; wanted their shapes; next: let "
            "model() call it once, on a batch"
        )
    return judged, model, [judged.batch(seed) for seed in request["seeds"]]


def run(request: dict, rank: int, size: int) -> dict[str, Any]:
    """Record the judged training on this rank."""
    from refgf.oracle.step.calls import CallLog
    from refgf.oracle.step.normalisation import whole_batch_statistics
    from refgf.oracle.step.record import Recorder, recorded

    judged, model, batches = built(request["source"], request)
    recorder = Recorder(model, request.get("forced"), request.get("noise"))
    log = CallLog(request["calls"], request["source"]) if size > 1 else contextlib.nullcontext()
    whole = request.get("batch_norm") == "whole"
    with log, whole_batch_statistics(size) if whole else contextlib.nullcontext():
        recorder.log = log if size > 1 else None
        recorded(recorder, lambda it: judged.train(model, it, rank, size), batches)
    require_judged(recorder, len(batches), whole)
    sharded = any(hasattr(p, "placements") for p in model.parameters())
    if sharded and size > 1 and not gloo_averages(size):
        raise ValueError(
            "this PyTorch's gloo sums where FSDP asks it for a mean, so that every gradient of a "
            "sharded model is p times what it should be on the CPU, and right on GPUs; wanted a "
            "gloo that averages (pytorch/pytorch issue 162338); next: a newer PyTorch"
        )
    return recorder.result()


def require_judged(recorder: Any, batches: int, whole: bool) -> None:
    """Raises ValueError for a training that cannot be judged."""
    if recorder.batch + 1 != batches or not recorder.steps:
        got = f"train took {recorder.batch + 1} of {batches} batches"
        raise ValueError(f"{got}; wanted a loop over all of `batches`")
    if recorder.refused:
        raise ValueError(
            f"{recorder.refused}, so that there is no one gradient to judge; wanted gradients at "
            "the batch's parameters, then optimizer.step(); next: judge the same loop with "
            "torch.optim.SGD and its plain step() in its place"
        )
    if not any(step["used"] or step["changed"] for step in recorder.steps):
        if recorder.infinite_scaled():
            raise ValueError(
                "a GradScaler skipped every step of the optimizer, because scaled gradients were "
                "infinite; wanted finite ones; next: a smaller init_scale"
            )
        raise ValueError(
            "train made no step of an optimizer with the model's parameters; wanted one of "
            "torch.optim; next: optimizer.step() in the loop over batches"
        )
    if recorder.own_statistics and not whole:
        raise ValueError(
            f"the model normalises by the statistics of each rank's own samples "
            f"({recorder.own_statistics}), so that p ranks compute another function than one; "
            "wanted none of these layers in training mode; next: --batch-norm whole, which judges "
            "with the statistics of all ranks' samples, nn.GroupNorm, or .eval() on them"
        )
    if recorder.own_statistics and any(len(step["local"]) > 1 for step in recorder.steps):
        raise ValueError(
            f"several backward calls make one step, and {recorder.own_statistics} normalises each "
            "micro-batch by its own statistics, as no whole batch does; wanted one backward call "
            "for each step; next: judge the loop without accumulation"
        )


def gloo_averages(size: int) -> bool:
    """Is the mean of ones 1? On every rank at the same time."""
    import torch
    import torch.distributed as dist

    mean = torch.zeros(1)
    try:
        dist.reduce_scatter_tensor(mean, torch.ones(size), op=dist.ReduceOp.AVG)
    except RuntimeError:  # it says that it cannot: then FSDP sums, and divides by itself
        return True
    return mean.item() == 1


def reference(request: dict) -> dict[str, Any]:
    """Exact gradients at the parameters that p ranks had, and their steps replayed on one rank."""
    from refgf.oracle.spec.floats import UNIT_ROUNDOFF
    from refgf.oracle.step.normalisation import whole_batch_statistics
    from refgf.oracle.step.reference import counts, distinct, exact_gradients

    judged, model, batches = built(request["source"], request)
    unit, steps = UNIT_ROUNDOFF[request["coarsest"]], []
    replay = run(request, 0, 1)
    whole = request.get("batch_norm") == "whole"
    for forced, own in zip(request["forced"], replay["steps"]):
        batch = batches[own["batch"]]
        state = {key: own[key] for key in ("trained", "eval", "attributes", "turn")} | forced
        state["natural"] = own["state"]
        shapes = {n: a.shape for n, a in own["state"].items()}
        here = {n: a for n, a in forced["state"].items() if a.shape == shapes.get(n, a.shape)}
        state["state"] = own["state"] | here  # one of each rank's own samples has another shape
        with whole_batch_statistics(1) if whole else contextlib.nullcontext():
            steps.append(exact_gradients(model, batch, judged.loss, state, unit))
        steps[-1] |= {"counts": counts(batch), "distinct": distinct(batch)}
    for own in replay["steps"]:
        del own["attributes"]
    return {"exact": steps, "replay": replay["steps"]}


def free(request: dict) -> list[list[dict]]:
    """Parameters after each step on one rank, whose gradients are its own, changed a little."""
    found = []
    for noise in request["noises"]:
        steps = run(request | {"noise": noise}, 0, 1)["steps"]
        found.append([step["after"] for step in steps])
    return found


def samples(request: dict) -> dict[str, Any]:
    """The gradient of each sample of one batch, at the parameters that p ranks had."""
    from refgf.oracle.step.reference import sample_gradients

    judged, model, (batch,) = built(request["source"], request)
    return sample_gradients(model, batch, judged.loss, request, request["tensors"])


def described(error: BaseException, source: str) -> str:
    """The sentence for an exception in the judged file, with its line."""
    path = source.partition(":")[0]
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    place = f" in line {frames[-1].lineno} of {path}" if frames else ""
    if isinstance(error, ValueError) and not frames:
        return str(error)
    norm = "; next: --batch-norm whole" if "SyncBatchNorm" in str(error) else ""
    return f"{type(error).__name__}{place}: {str(error)[:300]}{norm}"


def prepare() -> None:
    """Before the forks: none of PyTorch's threads has started."""
    import torch._dynamo
    import torch.distributed.fsdp  # noqa: F401


def begin() -> None:
    import torch.distributed as dist

    from refgf.oracle.step.watch import watch

    watch()
    dist.init_process_group = dist.destroy_process_group = lambda *args, **kwargs: None


def answer(request: dict, rank: int, size: int, store: str) -> dict[str, Any]:
    """Of the process of a rank, or of the one that trains alone."""
    request["calls"] = calls_file(store, rank)
    try:
        if "tensors" in request:
            return samples(request)
        if "noises" in request:
            return {"free": free(request)}
        return reference(request) if "coarsest" in request else run(request, rank, size)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return {"error": described(error, request["source"])}
