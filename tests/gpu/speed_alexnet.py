"""AlexNet forward and backward on a GPU, batch 128, float32 and float16: this project and PyTorch.

    python tests/gpu/speed_alexnet.py [results.json]

Sides alternate; each step ends when the GPU has finished it. PyTorch runs channels last, in float16
its weights are float16 too; in float32 it may not round products to TF32, its default for
convolutions, as CuPy does not. No dropout and no optimiser on either side. Without PyTorch for CUDA
only this project's side is measured. Not yet run on a GPU.
"""

import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import refgf.engine  # noqa: F401  the CUDA kernels
from refgf import device
from refgf.exchange.pool import Pool
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace

# test_nn_torch has the same network from PyTorch's layers
sys.path.append(str(Path(__file__).resolve().parents[1] / "baselines"))

BATCH, STEPS, CLASSES, IMAGE_SIZE = 128, 10, 1000, 227
WANTED = 0.5  # of PyTorch's images per second, float16


def main(arguments: list[str] | None = None) -> dict:
    """Print the rates; return the numbers, and write them to the file named first, if any."""
    arguments, results = sys.argv[1:] if arguments is None else arguments, {}
    print(
        f"AlexNet {IMAGE_SIZE} x {IMAGE_SIZE}, batch {BATCH}, forward and backward, images/s, "
        f"median of {STEPS} steps"
    )
    for dtype in ("float32", "float16"):
        sides = {"refgf": refgf_side(dtype), "torch": torch_side(dtype)}
        seconds = alternate({name: step for name, step in sides.items() if step})
        results[dtype] = {"seconds": seconds} | (
            {"wanted": ["at least", WANTED]} if dtype == "float16" else {}
        )
        rates = {name: BATCH / statistics.median(times) for name, times in seconds.items()}
        told = ", ".join(
            f"{name} {rates[name]:.0f} [{BATCH / max(times):.0f}..{BATCH / min(times):.0f}]"
            for name, times in seconds.items()
        )
        ratios = [theirs / ours for ours, theirs in zip(seconds["refgf"], seconds.get("torch", []))]
        if ratios:
            results[dtype] |= {
                "ratio": statistics.median(ratios),
                "ratio_min": min(ratios),
                "ratio_max": max(ratios),
            }
        against = f"ratio {statistics.median(ratios):.2f}" if ratios else "no PyTorch for CUDA"
        print(f"{dtype}: {told}; {against}")
    if arguments:
        Path(arguments[0]).write_text(json.dumps(results, indent=1) + "\n")
    return results


def refgf_side(dtype: str, batch: int = BATCH, image_size: int = IMAGE_SIZE, width: float = 1.0):
    """A step on the GPU, with the GPU's work finished when it returns."""
    xp = device.module("gpu")
    network = AlexNet(CLASSES, image_size, width, dropout=0.0, workspace=Workspace(xp, dtype))
    pools = [Pool(network.tensors, network.dtype, xp.zeros) for _ in range(2)]
    network.bind(*(pool.views for pool in pools))
    network.initialize(0)
    images = xp.asarray(
        np.random.default_rng(0).standard_normal((batch, *network.image_shape), np.float32),
        network.dtype,
    )
    labels = np.arange(batch) % CLASSES

    def step() -> None:
        network.loss(images, labels, batch)
        network.backward(lambda i: None)
        network.accept()
        device.synchronize(pools[1].flat)

    return step


def torch_side(dtype: str):
    try:
        import torch
        from test_nn_torch import torch_alexnet
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    # TF32 exists for float32 only
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    kind = getattr(torch, dtype)
    model = torch_alexnet(AlexNet(CLASSES, IMAGE_SIZE, dropout=0.0)).to("cuda", kind)
    model = model.to(memory_format=torch.channels_last)
    images = torch.randn(BATCH, 3, IMAGE_SIZE, IMAGE_SIZE, device="cuda", dtype=kind)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.arange(BATCH, device="cuda") % CLASSES

    def step() -> None:
        model.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        torch.cuda.synchronize()

    return step


def alternate(sides: dict) -> dict[str, list[float]]:
    """Seconds of each side and step, after three that compile kernels and fill memory pools."""
    seconds = {name: [] for name in sides}
    for _ in range(3 + STEPS):
        for name, step in sides.items():
            start_s = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start_s)
    return {name: times[3:] for name, times in seconds.items()}


if __name__ == "__main__":
    main()
