"""Images per second and core: this project's loader and torchvision-style Pillow code.

    REFGF_TEST_IMAGES=<folder with cifar10/ and imagenet-sample/> python tests/speed/loader_speed.py

Both sides open, decode, make RGB, resize the shorter side, cut out the centre and normalise to a
float32 batch, one thread each, nothing cached between rounds. The baseline does it as torchvision's
usual transforms do: every JPEG decoded at full size, a tensor (C, H, W) an image, then stacked;
with PyTorch's tensors where it is installed, else with NumPy's. Without REFGF_TEST_IMAGES
photographs of 500 x 375 and 32 x 32 are generated (noise on a gradient: they decode more slowly
than most real ones). The sides alternate; the ratio is the median over rounds, with its range.

Then: does the loader keep ahead of the network, with one core for both? The rate of AlexNet's
forward and backward (with minimal filtering, batch 16, one thread) gives the share of a rank's time
that is loading.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.speed import benchmark
import numpy as np
from tests.speed.nn_speed import refgf_side
from PIL import Image
from threadpoolctl import threadpool_limits

from refgf.machine.folders import NORMALISATION, image_folder

ROUNDS = 7
IMAGES = 100
# folder, image_size, generated width and height
CASES = ("imagenet-sample", 227, (500, 375)), ("cifar10", 67, (32, 32))
NETWORK_BATCH, NETWORK_STEPS = 16, 3
MEAN, STD = NORMALISATION[3]


def main(arguments: list[str] | None = None) -> dict:
    """Print a table; return the numbers, and write them to the file named first, if any."""
    arguments = sys.argv[1:] if arguments is None else arguments
    baseline, baseline_name = _baseline()
    results = {"baseline": baseline_name, "images": IMAGES, "rounds": ROUNDS, "cases": {}}
    how = f"{IMAGES} images, median of {ROUNDS} rounds"
    print(f"decode + resize + normalise, images/s on one core, {how}")
    print(f"{'images':<28}{'refgf':>8}{baseline_name:>22}{'ratio':>8}   range")
    with tempfile.TemporaryDirectory() as scratch:
        for name, image_size, shape in CASES:
            where, path = _images(name, shape, Path(scratch))
            train, _ = image_folder(path, image_size, memory_limit_bytes=0)
            indices = np.arange(0, train.size, max(1, train.size // IMAGES))[:IMAGES]
            paths = [train.fetch.files.paths[i] for i in train.fetch.members[indices]]
            sides = lambda: train.load(indices), lambda: baseline(paths, image_size)  # noqa: B023
            title = f"{where} to {image_size}"
            case = {"name": title} | _summary(*_alternate(*sides), len(indices))
            results["cases"][title] = case
            print(
                f"{title:<28}{case['refgf']:>8.0f}{case['baseline']:>22.0f}{case['ratio']:>8.2f}   "
                f"{case['ratio_min']:.2f} to {case['ratio_max']:.2f}"
            )
    results["network"] = loading_share(next(iter(results["cases"].values()))["refgf"])
    if arguments:
        Path(arguments[0]).write_text(json.dumps(results, indent=1) + "\n")
    return results


def loading_share(loader: float) -> dict:
    """Images per second of loader and network; the share of one core that loading takes."""
    step, _ = refgf_side(NETWORK_BATCH, 1, "batch", minimal=True)
    with threadpool_limits(1):
        times, _ = _alternate(step, lambda: None, NETWORK_STEPS)
    network = NETWORK_BATCH / statistics.median(times)
    share = network / (network + loader)
    behind = "" if loader >= network else ": it falls behind"
    print(
        f"on one core AlexNet with minimal filtering takes {network:.1f} images/s, the loader "
        f"makes {loader:.0f}, {loader / network:.2f} times as many{behind}; on one core for both "
        f"loading takes {100 * share:.0f} % of the time"
    )
    return {"network": network, "loader": loader, "share": share}


def _baseline():
    try:
        import torch
    except ImportError:
        return _numpy_batch, "Pillow and NumPy"
    torch.set_num_threads(1)
    return _torch_batch, "Pillow and PyTorch"


def _pillow(path: str, image_size: int) -> Image.Image:
    with open(path, "rb") as file:
        image = Image.open(file).convert("RGB")
    scale = image_size / min(image.size)
    width, height = (max(image_size, int(side * scale)) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - image_size) / 2), round((height - image_size) / 2)
    return image.crop((left, top, left + image_size, top + image_size))


def _torch_batch(paths: list[str], image_size: int):
    import torch

    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    tensors = []
    for path in paths:
        pixels = torch.from_numpy(np.array(_pillow(path, image_size)))  # (H, W, C) uint8
        pixels = pixels.permute(2, 0, 1).contiguous().to(torch.float32).div(255)  # (C, H, W)
        tensors.append(pixels.sub_(mean).div_(std))
    return torch.stack(tensors)  # (N, C, H, W)


def _numpy_batch(paths: list[str], image_size: int) -> np.ndarray:
    mean, std = np.float32(MEAN).reshape(3, 1, 1), np.float32(STD).reshape(3, 1, 1)
    arrays = []
    for path in paths:
        pixels = np.asarray(_pillow(path, image_size)).transpose(2, 0, 1)  # (H, W, C) -> (C, H, W)
        pixels = pixels.astype(np.float32, order="C")
        pixels /= 255
        pixels -= mean
        pixels /= std
        arrays.append(pixels)
    return np.stack(arrays)  # (N, C, H, W)


def _images(name: str, shape: tuple[int, int], scratch: Path) -> tuple[str, Path]:
    real = Path(os.environ.get("REFGF_TEST_IMAGES", ""), name)
    if os.environ.get("REFGF_TEST_IMAGES") and real.is_dir():
        return name, real
    rng = np.random.default_rng(0)
    width, height = shape
    ramp = np.linspace(0, 200, width)[None, :, None] * np.linspace(0.2, 1, height)[:, None, None]
    for i in range(IMAGES):
        file = scratch / f"{width}x{height}" / "train" / f"class{i % 2}" / f"{i}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((ramp + rng.integers(0, 55, (height, width, 3))).astype(np.uint8)).save(
            file, quality=90
        )
    return f"generated {width}x{height}", scratch / f"{width}x{height}"


def _alternate(ours, theirs, rounds: int = ROUNDS) -> tuple[list[float], list[float]]:
    """Seconds of each round and side, after one round that does not count."""
    times = ([], [])
    for round_number in range(rounds + 1):
        for side, call in enumerate((ours, theirs)):
            start = time.perf_counter()
            call()
            if round_number:
                times[side].append(time.perf_counter() - start)
    return times


def _summary(ours: list[float], theirs: list[float], images: int) -> dict:
    ratios = [b / a for a, b in zip(ours, theirs)]
    return {
        "refgf": images / statistics.median(ours),
        "baseline": images / statistics.median(theirs),
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "wanted": ["at least", 1.0],
    }


if __name__ == "__main__":
    benchmark.begin()
    main()
