"""Full-size AlexNet, forward and backward in float32: this project and PyTorch on the CPU.

    python tests/speed/nn_speed.py [results.json]

Each side is a process of its own, so that each peak memory is its own, and they alternate step by
step, so that a noisy machine favours none. All have the same number of threads: here Python threads
that share the images, each with one BLAS thread; there PyTorch's own, eager, channels last, its
fastest layout here, its gradients set to None between steps. Dropout everywhere, no optimiser.
Without PyTorch only this project's sides are measured.

The bar is on refgf with minimal filtering: fewer operations, larger rounding errors. The default,
plain, is a direct convolution like PyTorch's. It has no bar, because the processor decides whether
OpenBLAS's products are as fast as PyTorch's (on an AMD Zen 5 they were, on an Intel Xeon of 2023 or
later they were not).

ratio      PyTorch's time of a step over this project's (above 1: this project is faster), median
           over steps, with range
cpu        the same ratio of processor seconds, which depends less on what else the machine does
plain      the default: images/s, ratio, of matmul, peak
of matmul  operations by the definition a second of processor time, over the rate at which this
           side's own BLAS multiplies 2048 x 2048 matrices (printed below). Minimal filtering does
           fewer operations than the definition counts
memory     peak memory over PyTorch's: wanted at most 1
"""

import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.speed import benchmark
from tests.speed.kernels import of_numpy, of_torch

CASES = [(16, 1, "none"), (64, 2, "none"), (16, 1, "batch")]  # batch, threads, normalization
SIDES = ("refgf", "plain", "torch")
STEPS = 7
CLASSES, IMAGE_SIZE = 1000, 227


def main(arguments: list[str] | None = None) -> dict:
    """Print a table; return the numbers, and write them to the file named first, if any."""
    arguments = sys.argv[1:] if arguments is None else arguments
    results = {"steps": STEPS, "cases": []}
    print("AlexNet 227 x 227, forward and backward, images/s, median of", STEPS, "steps")
    print(
        f"{'batch':>5} {'threads':>7} {'normalization':>13} "
        f"{'refgf':>7} {'plain':>7} {'torch':>7} {'ratio':>6}   "
        f"{'range':<13} {'cpu':>5} {'plain':>5} {'of matmul: refgf':>16} {'plain':>6} {'torch':>6} "
        f"{'peak MiB: refgf':>15} {'plain':>6} {'torch':>6}"
    )
    for batch, threads, normalization in CASES:
        case = measure(batch, threads, normalization)
        results["cases"].append(case)
        print(row(case), flush=True)
    ours = results["cases"][0]["refgf"]
    print(
        "BLAS of refgf:",
        "; ".join(ours["blas"]) + ("; max-pooling by Numba" if ours["numba"] else "; no Numba"),
    )
    if theirs := results["cases"][0]["torch"]:
        rates = [1e-9 * side["matmul_flops_per_cpu_second"] for side in (ours, theirs)]
        told = "refgf's BLAS {:.0f}, PyTorch's {:.0f}".format(*rates)
        print(f"a product of 2048 x 2048, GFLOP/s of one core: {told}")
        print("kernels of PyTorch:", "; ".join(theirs["kernels"]))
    if "OPENBLAS_CORETYPE" in os.environ:
        print("OPENBLAS_CORETYPE is set: OpenBLAS would choose other kernels for this processor")
    if arguments:
        Path(arguments[0]).write_text(json.dumps(results, indent=1) + "\n")
    return results


def row(case):
    ours, plain, theirs = (case[name] for name in SIDES)
    versus = f"{'-':>7} {'-':>6}   {'no PyTorch':<13} {'-':>5} {'-':>5}"
    torch_share = torch_mib = "-"
    if theirs:
        spread = f"{case['ratio_min']:.2f} to {case['ratio_max']:.2f}"
        versus = (
            f"{theirs['images_per_s']:>7.1f} {case['ratio']:>6.2f}   {spread:<13} "
            f"{case['cpu_ratio']:>5.2f} {case['by_default']['ratio']:>5.2f}"
        )
        torch_share, torch_mib = f"{theirs['of_matmul']:.2f}", f"{theirs['peak_mib']:.0f}"
    setting = f"{case['batch']:>5} {case['threads']:>7} {case['normalization']:>13}"
    rates = f"{ours['images_per_s']:>7.1f} {plain['images_per_s']:>7.1f}"
    shares = f"{ours['of_matmul']:>16.2f} {plain['of_matmul']:>6.2f} {torch_share:>6}"
    peaks = f"{ours['peak_mib']:>15.0f} {plain['peak_mib']:>6.0f} {torch_mib:>6}"
    return f"{setting} {rates} {versus} {shares} {peaks}"


def measure(batch, threads, normalization):
    """All sides, step by step in turn; the first step warms up."""
    sides = {name: start(name, batch, threads, normalization) for name in SIDES}
    seconds = {name: [] for name, side in sides.items() if side}
    for step in range(STEPS + 1):
        for name in seconds:
            value = ask(sides[name], "step")
            if step:
                seconds[name].append(value)
    case = {"batch": batch, "threads": threads, "normalization": normalization, "torch": None}
    for name in seconds:
        wall, cpu = zip(*seconds[name])
        case[name] = ask(sides[name], "end") | {"seconds": wall, "cpu_seconds": cpu}
        case[name]["images_per_s"] = batch / statistics.median(wall)
        sides[name].wait()
    ours, plain, theirs = (case[name] for name in SIDES)
    for side in filter(None, (ours, plain, theirs)):
        flops_per_cpu_second = (
            ours["flops_per_image"] * batch / statistics.median(side["cpu_seconds"])
        )
        side["of_matmul"] = flops_per_cpu_second / side["matmul_flops_per_cpu_second"]
    if theirs:
        ratios = [t / s for s, t in zip(ours["seconds"], theirs["seconds"])]
        by_default = [t / s for s, t in zip(plain["seconds"], theirs["seconds"])]
        setting = f"batch {batch}, {threads} threads, normalization {normalization}"
        case |= spread_of(ratios) | {
            "name": f"AlexNet with minimal filtering, {setting}",
            "wanted": ["at least", 1.0],
        }
        case["by_default"] = spread_of(by_default) | {"name": f"AlexNet by default, {setting}"}
        for key, side in (("memory", ours), ("memory by default", plain)):
            case[key] = spread_of([side["peak_mib"] / theirs["peak_mib"]])
            case[key] |= {
                "name": f"AlexNet: {key}, peak over PyTorch's, {setting}",
                "wanted": ["at most", 1.0],
            }
        case["cpu_ratio"] = statistics.median(
            t / s for s, t in zip(ours["cpu_seconds"], theirs["cpu_seconds"])
        )
    return case


def spread_of(ratios):
    return {"ratio": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios)}


def start(side, batch, threads, normalization):
    """A process that answers "step" with [seconds, processor seconds], "end" with a dictionary.

    None where PyTorch is missing.
    """
    blas = str(threads) if side == "torch" else "1"
    environment = os.environ | {
        "OMP_NUM_THREADS": blas,
        "OPENBLAS_NUM_THREADS": blas,
        "MKL_NUM_THREADS": blas,
    }
    command = [sys.executable, __file__, "--side", side, str(batch), str(threads), normalization]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=benchmark.tied(),
    )
    return process if ask(process, "start") == "ready" else None


def ask(process, question):
    process.stdin.write(question + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError(
            f"{process.args}: got exit code {process.wait()}; wanted an answer to {question!r}"
        )
    return json.loads(answer)


# ---- in the process of one side ----


def serve(side, batch, threads, normalization):
    def answer(value):
        print(json.dumps(value), flush=True)

    sys.stdin.readline()
    if side == "torch" and importlib.util.find_spec("torch") is None:
        return answer("missing")
    if side == "torch":
        step, describe = torch_side(batch, threads, normalization)
    else:
        step, describe = refgf_side(batch, threads, normalization, minimal=side == "refgf")
    answer("ready")
    while sys.stdin.readline() == "step\n":
        before = time.perf_counter(), time.process_time()
        step()
        answer([time.perf_counter() - before[0], time.process_time() - before[1]])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # before describe needs more
    answer({"peak_mib": peak, **describe()})


def refgf_side(batch, threads, normalization, minimal):
    import numpy as np

    from refgf.engine.minimal import minimal_filtering
    from refgf.engine.threaded import ThreadedWorkspace
    from refgf.nn.alexnet import AlexNet
    from refgf.nn.conv import Convolution

    space, kind = ThreadedWorkspace(threads), minimal_filtering if minimal else Convolution
    network = AlexNet(
        CLASSES, IMAGE_SIZE, normalization=normalization, workspace=space, convolution=kind
    )
    network.bind(
        *([np.zeros(spec.shape, np.float32) for spec in network.tensors] for _ in range(2))
    )
    network.initialize(1)
    x = np.random.default_rng(0).standard_normal((batch, *network.image_shape), dtype=np.float32)
    labels = np.arange(batch) % CLASSES

    def step():
        network.loss(x, labels, batch)
        network.backward(lambda i: None)
        network.accept()

    def describe():
        flops = sum(sum(layer.flops(1)) for layer in network.layers)
        numba = "numba" in sys.modules  # imported by fused.py, if it is installed
        return {
            "blas": of_numpy(),
            "numba": numba,
            "flops_per_image": flops,
            "matmul_flops_per_cpu_second": matmul_rate(np),
        }

    return step, describe


def matmul_rate(library, n=2048):
    """numpy's or torch's: flop/s of processor time, the best of five products."""
    a = library.ones((n, n), dtype=library.float32)
    out, seconds = library.empty_like(a), []
    for _ in range(5):
        before = time.process_time()
        library.matmul(a, a, out=out)
        seconds.append(time.process_time() - before)
    return 2 * n**3 / min(seconds)


def torch_side(batch, threads, normalization):
    import torch

    from tests.baselines.test_nn_torch import torch_alexnet

    from refgf.nn.alexnet import AlexNet

    torch.set_num_threads(threads)
    model = torch_alexnet(AlexNet(CLASSES, IMAGE_SIZE, normalization=normalization)).float()
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(batch, 3, IMAGE_SIZE, IMAGE_SIZE).to(memory_format=torch.channels_last)
    labels = torch.arange(batch) % CLASSES

    def step():
        model.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), labels).backward()

    def describe():
        return {
            "kernels": of_torch(),
            "threads": torch.get_num_threads(),
            "matmul_flops_per_cpu_second": matmul_rate(torch),
        }

    return step, describe


if __name__ == "__main__":
    if "--side" in sys.argv:
        side, batch, threads, normalization = sys.argv[sys.argv.index("--side") + 1 :]
        serve(side, int(batch), int(threads), normalization)
    else:
        benchmark.begin()
        main()
