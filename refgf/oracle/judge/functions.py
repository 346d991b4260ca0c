"""How each judged function is called with a case, and what becomes of its result.

    CALLS["ring_allreduce"].run(module, case)  ->  {"out.x": array (p, n)}

`module` is anything that has functions of the names and arguments in SPEC.md: the definitions, a definition with a
seeded mistake, or somebody's implementation. One array per rank becomes one array with a first axis `rank`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from refgf.oracle.definitions import CSCSettings, DASOSettings, chunk_bounds
from refgf.oracle.judge.peer_functions import PEERS


@dataclass(frozen=True)
class Call:
    """run(module, case) -> {"out.NAME": array}; axes: what each output's indices mean; also: what else it calls."""

    run: Callable
    axes: dict
    also: tuple = ()


def plain(name, inputs, arguments, **axes):
    """A function whose arguments are arrays of the case, then named settings; it returns what `axes` lists."""

    def run(module, case):
        result = getattr(module, name)(*(case[f"in.{i}"] for i in inputs), **{a: case.arguments[a] for a in arguments})
        return named(axes, result if len(axes) > 1 else [result])

    return Call(run, axes)


def named(axes, values):
    return {f"out.{name}": np.asarray(value) for name, value in zip(axes, values)}


def pairs(values):
    """A list of (start, stop), possibly empty, as an array (k, 2)."""
    return np.array(values, np.int64).reshape(len(values), 2)


def over_ranks(name, *arguments):
    """An allreduce: a list of p arrays in, a list of p arrays out."""

    def run(module, case):
        settings = {a: case.arguments[a] for a in arguments}
        result = {"out.x": np.stack(getattr(module, name)([x.copy() for x in case["in.x"]], **settings))}
        states = getattr(module, name.replace("allreduce", "states"), None)
        if states and states is not getattr(module, name) and "state.x" in case.tensors:
            result["state.x"] = np.stack([np.stack(xs) for xs in states([x.copy() for x in case["in.x"]], **settings)])
        return result

    return Call(run, {"x": ("rank", "element")}, (name.replace("allreduce", "states"),))


def traffic(name):
    def run(module, case):
        n, p = case.arguments["n"], case.arguments["p"]
        return {"out.traffic": np.array([getattr(module, name)(n, p, r) for r in range(p)], np.int64)}

    return Call(run, {"traffic": ("rank", "messages, elements")})


def bounds_of(name, *arguments, axis):
    def run(module, case):
        return {"out.bounds": pairs(getattr(module, name)(*(case.arguments[a] for a in arguments)))}

    return Call(run, {"bounds": (axis, "start, stop")})


def lazy_calls(module, case):
    a = case.arguments
    return {"out.calls": pairs(module.lazy_calls(case["in.sizes"].tolist(), a["itemsize"], number(a["theta_bytes"])))}


def lazy_allreduce(module, case):
    a = case.arguments
    xs, sizes = [x.copy() for x in case["in.x"]], case["in.sizes"].tolist()
    return {"out.x": np.stack(module.lazy_allreduce(xs, sizes, number(a["theta_bytes"]), a["wire"], a["order"]))}


def merged_allreduce(module, case):
    a, xs = case.arguments, [x.copy() for x in case["in.x"]]
    return {"out.x": np.stack(module.merged_allreduce(xs, case["in.sizes"].tolist(), a["counts"], a["wire"], a["order"]))}


def number(value):
    """JSON has no infinity."""
    return float("inf") if value == "inf" else value


def scale_run(module, case):
    scale, good, scales = case.arguments["scale"], 0, []
    for finite in case["in.finite"]:
        scale, good = module.next_scale(scale, good, bool(finite), case.arguments["interval"])
        scales.append(scale)
    return {"out.scale": np.array(scales, np.float64)}


def scaled_run(module, case):
    a = case.arguments
    settings = [a[k] for k in ("rate", "momentum", "scale", "interval", "wire")]
    steps = module.scaled_run(case["in.w"].copy(), [list(gs) for gs in case["in.g"]], *settings)
    return {"out.w": np.stack([step["w"] for step in steps]), **per_step(steps, "scale", "finite")}


def scaled_lars_run(module, case):
    a = case.arguments
    settings = {k: a[k] for k in ("rate", "momentum", "trust", "scale", "interval", "decay", "wire")}
    settings |= {"sizes": case["in.sizes"].tolist(), "decayed": case["in.decayed"].astype(bool)}
    steps = module.scaled_lars_run(case["in.w"].copy(), [list(gs) for gs in case["in.g"]], **settings)
    return {"out.w": np.stack([step["w"] for step in steps]), **per_step(steps, "scale", "finite")}


def lars_partial_squares(module, case):
    """-> (p, 2, L), the shares of all ranks."""
    p, sizes, decayed = case.arguments["p"], case["in.sizes"].tolist(), case["in.decayed"].astype(bool)
    arrays, by = (case["in.w"], case["in.g"], sizes), case.arguments["by"]
    return {"out.squares": np.stack([module.lars_partial_squares(*arrays, r, p, by, decayed) for r in range(p)])}


def per_step(steps, *names):
    types = {"scale": np.float64, "finite": np.uint8}
    return {f"out.{name}": np.array([step[name] for step in steps], types[name]) for name in names}


def optimizer(name, *arguments, tensors=()):
    """Steps of momentum SGD or LARS from w and v = 0: in.g (T, n) -> w and v after each step."""

    def run(module, case):
        w, ws, vs = case["in.w"].copy(), [], []
        v, settings = np.zeros_like(w), {a: case.arguments[a] for a in arguments}
        for name_of_tensor in tensors:
            values = case.tensors.get(f"in.{name_of_tensor}")
            settings[name_of_tensor] = values if values is None or name_of_tensor != "sizes" else values.tolist()
        if settings.get("decayed") is not None:
            settings["decayed"] = settings["decayed"].astype(bool)
        for g in case["in.g"]:
            w, v = getattr(module, name)(w, v, g, **settings)
            ws.append(w.copy())
            vs.append(v.copy())
        return {"out.w": np.stack(ws), "out.v": np.stack(vs)}

    return Call(run, {"w": ("step", "element"), "v": ("step", "element")})


def decayed_gradient(module, case):
    decayed = case["in.decayed"].astype(bool)
    return {"out.g": module.decayed_gradient(case["in.w"], case["in.g"], case.arguments["decay"], decayed)}


def csc_settings(case):
    a = case.arguments
    given = {k: number(a[k]) for k in CSCSettings.__dataclass_fields__ if k in a}
    decayed = case.tensors.get("in.decayed")
    return CSCSettings(tuple(case["in.sizes"].tolist()), decayed=None if decayed is None else tuple(decayed), **given)


def csc_run(module, case, lists=None):
    """-> w, what is kept, which chunks were sent (1 or 0), per step and rank; scale and finite per step."""
    s, gs = csc_settings(case), [list(step) for step in case["in.g"]]
    more = {} if lists is None else {"lists": lists}
    steps = module.csc_run(case["in.w"].copy(), gs, s, [tuple(pair) for pair in case.arguments["percents"]], **more)
    chunks = len(chunk_bounds(len(case["in.w"]), s.chunk))
    result = {"out.w": np.array([step["w"] for step in steps]), **per_step(steps, "scale", "finite")}
    result["out.chosen"] = np.array([[mask(c, chunks) for c in step["chosen"]] for step in steps])
    for name in steps[0]["kept"][0]:
        result[f"out.{name}"] = np.array([[kept[name] for kept in step["kept"]] for step in steps])
    return result


def mask(chosen, chunks):
    return np.array([chosen is None or c in chosen for c in range(chunks)], np.uint8)


def daso_settings(case):
    fields = [name for name in DASOSettings.__dataclass_fields__ if name in case.arguments]
    return DASOSettings(**{name: case.arguments[name] for name in fields})


def daso_run(module, case):
    """-> parameters and velocity per batch and rank."""
    phases, gs = [tuple(phase) for phase in case.arguments["phases"]], [list(step) for step in case["in.g"]]
    states = module.daso_run(case["in.w"].copy(), gs, daso_settings(case), phases)
    return {f"out.{name}": np.array([state[name] for state in states]) for name in "wv"}


def daso_phases(module, case):
    settings = {name: case.arguments[name] for name in ("epochs", "warmup", "cooldown", "largest")}
    return {"out.phases": np.array(module.daso_phases(case["in.losses"].tolist(), **settings), np.int64)}


def daso_traffic(module, case):
    a = case.arguments
    settings = [a[name] for name in ("n", "p", "nodes", "batches")]
    return {"out.traffic": np.array(module.daso_traffic(*settings, tuple(a["phase"]), a["chunk"]), np.int64)}


def importance(module, case):
    return {"out.importance": module.importance(list(case["in.x"]), case.arguments["chunk"])}


def max_pool(module, case):
    """Forward, and backward through the places that forward found."""
    x, window = case["in.x"], (case.arguments["window"], case.arguments["stride"])
    y, where = module.max_pool(x, *window)
    return {"out.y": y, "out.dx": module.max_pool_backward(x, where, case["in.dy"])}


def alexnet_step(module, case):
    tensors = [case[f"in.tensor{i:02}"] for i in range(26)]
    loss, gradients = module.alexnet_step(case["in.images"], case["in.labels"], tensors, case.arguments["global_batch"])
    return {"out.loss": np.float64(loss), **{f"out.gradient{i:02}": g for i, g in enumerate(gradients)}}


def alexnet_rounding(module, case):
    tensors, spread = ([case[f"in.{kind}{i:02}"] for i in range(16)] for kind in ("tensor", "spread"))
    settings = [case.arguments[name] for name in ("global_batch", "unit")]
    result = module.alexnet_rounding(case["in.images"], case["in.labels"], tensors, *settings, spread)
    named = {f"out.gradient{i:02}": g for i, g in enumerate(result.gradients)}
    return {**named, **{f"out.bound{i:02}": b for i, b in enumerate(result.bounds)}}


def momentum_rounding(module, case):
    apart = tuple(case[f"in.{name}_apart"] for name in "wvg")
    settings = [case.arguments[name] for name in ("rate", "momentum", "decay", "unit")]
    w, v = module.momentum_rounding(case["in.w"], case["in.v"], case["in.g"], apart, *settings)
    return {"out.w_apart": w, "out.v_apart": v}


SUMS = ("ring_allreduce", "direct_allreduce")  # plain sums over ranks: what the profiles `sum` and `agreement` apply to
IMAGE = ("image", "row", "column", "channel")
WEIGHT = ("row", "column", "channel", "output")
CSC_AXES = {name: ("step", "rank", "element") for name in ("w", "u", "v", "h")}
CSC_AXES |= {"chosen": ("step", "rank", "chunk"), "scale": ("step",), "finite": ("step",)}
CALLS = {
    "slice_bounds": bounds_of("slice_bounds", "n", "p", axis="slice"),
    "ring_allreduce": over_ranks("ring_allreduce", "wire"),
    "ring_traffic": traffic("ring_traffic"),
    "direct_allreduce": over_ranks("direct_allreduce", "wire"),
    "direct_traffic": traffic("direct_traffic"),
    "agree": plain("agree", ["x"], [], agree=()),
    "exact_sum": plain("exact_sum", ["x"], [], sum=("element",)),
    "summation_bound": plain("summation_bound", ["x"], ["wire"], bound=("element",)),
    "lazy_calls": Call(lazy_calls, {"calls": ("call", "start, stop")}),
    "lazy_allreduce": Call(lazy_allreduce, {"x": ("rank", "element")}),
    "merged_allreduce": Call(merged_allreduce, {"x": ("rank", "element")}),
    "on_wire": plain("on_wire", ["x"], ["wire"], x=("element",)),
    "bfloat16_bits": plain("bfloat16_bits", ["x"], [], bits=("element",)),
    "underflow_share": plain("underflow_share", ["x"], ["wire"], share=()),
    "scaled_allreduce": over_ranks("scaled_allreduce", "scale", "wire"),
    "all_finite": plain("all_finite", ["x"], [], finite=()),
    "next_scale": Call(scale_run, {"scale": ("step",)}),
    "working_copy": plain("working_copy", ["w"], ["wire"], w=("element",)),
    "scaled_run": Call(scaled_run, {"w": ("step", "element"), "scale": ("step",), "finite": ("step",)}),
    "decayed_gradient": Call(decayed_gradient, {"g": ("element",)}),
    "momentum_step": optimizer("momentum_step", "rate", "momentum", "decay", tensors=["decayed"]),
    "lars_step": optimizer("lars_step", "rate", "momentum", "trust", "decay", tensors=["sizes", "decayed"]),
    "lars_ratio": plain("lars_ratio", ["w", "g"], ["trust", "decay"], ratio=()),
    "warmup_rate": plain("warmup_rate", [], ["step", "warmup_steps", "base_rate", "batch_factor"], rate=()),
    "polynomial_rate": plain("polynomial_rate", [], ["step", "steps", "rate", "power"], rate=()),
    "accumulated": Call(lambda module, case: {"out.x": module.accumulated(list(case["in.x"]))}, {"x": ("element",)}),
    "lars_partial_squares": Call(lars_partial_squares, {"squares": ("rank", "w, g", "tensor")}),
    "scaled_lars_run": Call(scaled_lars_run, {"w": ("step", "element"), "scale": ("step",), "finite": ("step",)}),
    "chunk_bounds": bounds_of("chunk_bounds", "n", "chunk", axis="chunk"),
    "importance": Call(importance, {"importance": ("chunk",)}),
    "choose": plain("choose", ["values"], ["percent"], chosen=("place",)),
    "percent_of_step": plain(
        "percent_of_step", [], ["step", "steps_per_epoch", "warmup_percents", "percent"], percent=(), dense=()
    ),
    "csc_payload_bytes": plain("csc_payload_bytes", [], ["chosen", "n", "chunk", "dtype", "wire"], bytes=()),
    "csc_run": Call(csc_run, CSC_AXES),
    "daso_merge": plain("daso_merge", ["w", "total"], ["nodes", "waited"], w=("element",)),
    "daso_phases": Call(daso_phases, {"phases": ("epoch", "B, L, W")}),
    "daso_traffic": Call(daso_traffic, {"traffic": ("rank", "messages, bytes")}),
    "daso_run": Call(daso_run, {name: ("step", "rank", "element") for name in "wv"}),
    "conv": plain("conv", ["x", "w", "b"], ["stride", "pad"], y=IMAGE),
    "conv_backward": plain("conv_backward", ["x", "w", "dy"], ["stride", "pad"], dx=IMAGE, dw=WEIGHT, db=("output",)),
    "max_pool": Call(max_pool, {"y": IMAGE, "dx": IMAGE}, ("max_pool_backward",)),
    "relu": plain("relu", ["x"], [], y=("element",)),
    "batch_norm": plain("batch_norm", ["x", "gamma", "beta"], [], y=IMAGE),
    "batch_norm_backward": plain(
        "batch_norm_backward", ["x", "gamma", "dy"], [], dx=IMAGE, dgamma=("channel",), dbeta=("channel",)
    ),
    "local_response_norm": plain("local_response_norm", ["x"], [], y=IMAGE),
    "fully_connected": plain("fully_connected", ["x", "w", "b"], [], y=("image", "output")),
    "dropout": plain("dropout", ["x", "kept"], ["rate"], y=("element",)),
    "softmax_cross_entropy": plain(
        "softmax_cross_entropy", ["logits", "labels"], ["global_batch"], loss=(), dlogits=("image", "output")
    ),
    "alexnet_step": Call(alexnet_step, {"loss": ()}),
    "alexnet_rounding": Call(alexnet_rounding, {}),
    "momentum_rounding": Call(momentum_rounding, {"w_apart": ("element",), "v_apart": ("element",)}),
}
CALLS |= {name: Call(run, axes) for name, (run, axes) in PEERS.items()}
