"""Layers, and whole steps of AlexNet and ResNet-50 (N)."""

from typing import Any

import numpy as np

from refgf.oracle.judge.functions.before import JudgedFunction, Outputs, array_function
from refgf.oracle.spec.case import Case

IMAGE = ("image", "row", "column", "channel")
WEIGHT = ("row", "column", "channel", "output")


def max_pool(module: Any, case: Case) -> Outputs:
    """Forward, and backward to the maxima that forward found."""
    x, window = case["in.x"], (case.arguments["window"], case.arguments["stride"])
    y, where = module.max_pool(x, *window)
    return {"out.y": y, "out.dx": module.max_pool_backward(x, where, case["in.dy"])}


def training_step(name: str, count: int) -> JudgedFunction:
    """Loss and gradients of a network of `count` tensors, numbered with as many digits."""
    numbers = [str(i).zfill(len(str(count))) for i in range(count)]

    def run(module: Any, case: Case) -> Outputs:
        tensors = [case[f"in.tensor{i}"] for i in numbers]
        arguments = case["in.images"], case["in.labels"], tensors, case.arguments["global_batch"]
        loss, gradients = getattr(module, name)(*arguments)
        named = {f"out.gradient{i}": g for i, g in zip(numbers, gradients)}
        return {"out.loss": np.float64(loss), **named}

    return JudgedFunction(run, {"loss": ()})


def alexnet_rounding(module: Any, case: Case) -> Outputs:
    tensors, spread = (
        [case[f"in.{kind}{i:02}"] for i in range(16)] for kind in ("tensor", "spread")
    )
    settings = [case.arguments[name] for name in ("global_batch", "unit")]
    result = module.alexnet_rounding(
        case["in.images"], case["in.labels"], tensors, *settings, spread
    )
    gradients = {f"out.gradient{i:02}": g for i, g in enumerate(result.gradients)}
    return gradients | {f"out.bound{i:02}": b for i, b in enumerate(result.bounds)}


NORM_GRADIENTS = {"dx": IMAGE, "dgamma": ("channel",), "dbeta": ("channel",)}
CONV_GRADIENTS = {"dx": IMAGE, "dw": WEIGHT, "db": ("output",)}
CROSS_ENTROPY = {"loss": (), "dlogits": ("image", "output")}
FUNCTIONS = {
    "conv": array_function("conv", ["x", "w", "b"], ["stride", "pad"], y=IMAGE),
    "conv_backward": array_function(
        "conv_backward", ["x", "w", "dy"], ["stride", "pad"], **CONV_GRADIENTS
    ),
    "max_pool": JudgedFunction(max_pool, {"y": IMAGE, "dx": IMAGE}, ("max_pool_backward",)),
    "relu": array_function("relu", ["x"], [], y=("element",)),
    "batch_norm": array_function("batch_norm", ["x", "gamma", "beta"], [], y=IMAGE),
    "batch_norm_backward": array_function(
        "batch_norm_backward", ["x", "gamma", "dy"], [], **NORM_GRADIENTS
    ),
    "local_response_norm": array_function("local_response_norm", ["x"], [], y=IMAGE),
    "fully_connected": array_function(
        "fully_connected", ["x", "w", "b"], [], y=("image", "output")
    ),
    "dropout": array_function("dropout", ["x", "kept"], ["rate"], y=("element",)),
    "softmax_cross_entropy": array_function(
        "softmax_cross_entropy", ["logits", "labels"], ["global_batch"], **CROSS_ENTROPY
    ),
    "alexnet_step": training_step("alexnet_step", 26),
    "alexnet_rounding": JudgedFunction(alexnet_rounding, {}),
    "resnet50_step": training_step("resnet50_step", 161),
}
