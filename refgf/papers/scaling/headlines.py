"""Published headlines as predictions: 410.2 on 512 GPUs, 1.5 minutes, 2.5 on 64, Jia's 3x and 11x.

Nothing is measured here. The single-GPU rates are independent of the headlines: tf_cnn_benchmarks
on one V100, and the peak of a P40. The rate that 410.2 and 1.5 minutes imply together, 3297
images/s (`IMPLIED_RATE`), is calibration: a prediction from it is no result.

"Throughput over one GPU" is p times the scaling efficiency; the papers call it speedup.
"""

from math import inf

from refgf.papers.scaling.collectives import LINES, hierarchical_s
from refgf.papers.scaling.interval import Headline, Input
from refgf.papers.scaling.scaling import best_theta_step, ready_of
from refgf.papers.scaling.shapes import Builder, Workload
from refgf.papers.scaling.systems import System, scaling_efficiency, time_to_train
from refgf.papers.scaling.workloads import WORKLOADS, alexnet
from refgf.predict.cost import Link, ring_line
from refgf.predict.timeline import PredictedStep, eager, one_call, predict

IMAGES = 1_281_167  # ImageNet-1k, training
LAMBDA = (
    "LambdaColdStorage/lambda-tensorflow-benchmark, tf-train-throughput-fp{32,16}.csv, one V100 "
    "32 GB"
)
GRADIENTFLOW = "throughput of GradientFlow on 512 V100 over one V100"


def tf_cnn_alexnet() -> Workload:
    """The AlexNet of tf_cnn_benchmarks: fewer filters at first, no normalisation.

    (verified: its alexnet_model.py)
    """
    net = Builder("AlexNet of tf_cnn_benchmarks", 227, 227, 3)
    convolutions = [(64, 11, 4, 0), (192, 5, 1, 2), (384, 3, 1, 1)]
    for number, (filters, kernel, stride, pad) in enumerate(convolutions, 1):
        net.conv(f"conv{number}", filters, kernel, stride, pad)
        if number < 3:
            net.pool(f"pool{number}", 3, 2)
    net.conv("conv4", 384, 3, 1, 1)
    net.conv("conv5", 256, 3, 1, 1)
    net.pool("pool5", 3, 2)
    for name, features in [("fc6", 4096), ("fc7", 4096), ("fc8", 1000)]:
        net.fc(name, features)
    return net.workload()


SCALE = tf_cnn_alexnet().step_flops / alexnet().step_flops  # 0.74
V100_RATE = Input(
    "rate",
    (5132 * SCALE, 9319 * SCALE),
    "images/s",
    "computed",
    f"{LAMBDA}: 5132 in float32 and 9319 in float16 at batches of 1536 and 3072, times the flops "
    "of that AlexNet over those of the paper's",
)
SMALL_BATCH = Input(
    "small_batch", (1.0, 0.7), "", "inferred", "rate at 128 images over the rate at 1536 and more"
)
IMPLIED_RATE = Input(
    "rate", (3297.0,), "images/s", "computed", "95 epochs in 90 s at 410.2", GRADIENTFLOW
)
ALPHA = Input(
    "alpha_s",
    (5.0e-6, 7.9e-6),
    "s",
    "computed",
    "latencies of 64 GPUs on EFA, 630 us / 126, and of MG-WFBP's 16 on InfiniBand, 235.8 us / 30",
)
BANDWIDTH = Input(
    "bandwidth",
    (4.6e9, 7.0e9),
    "B/s",
    "computed",
    "MG-WFBP's fitted b of 16 GPUs on 56 Gbit/s; 56 Gbit/s as stated",
)
BATCH = Input(
    "batch", (128,), "images a GPU", "unverified", "65,536 on 512 GPUs, from memory of the paper"
)
PERCENT = Input("percent", (10.0,), "% of chunks", "stated", "GradientFlow: e.g. 10 %")
SELECTION = Input(
    "selection_s",
    (0.0, 2e-3),
    "s",
    "inferred",
    "125 to 500 MB read at a V100's memory bandwidth, twice",
)


def gradientflow_step(
    size: int,
    rate: float,
    small_batch: float,
    alpha_s: float,
    bandwidth: float,
    batch: int,
    percent: float,
    selection_s: float,
) -> PredictedStep:
    """A step on `size` GPUs: ring, float16, overlap, CSC, and lazy allreduce with the best theta.

    The paper's theta is not known.
    """
    system = System("GradientFlow", 2, inf, percent=percent, selection_s=selection_s)
    ready, link = ready_of(alexnet(), batch, rate * small_batch), Link(alpha_s, 1 / bandwidth)
    return best_theta_step(ready, system, ring_line(size, link))


def gradientflow_throughput(**inputs: float) -> float:
    return over_one_gpu(512, gradientflow_step(512, **inputs))


def gradientflow_minutes(**inputs: float) -> float:
    """95 epochs. Not included: evaluation, starting the job, reading the images."""
    step_s = gradientflow_step(512, **inputs).step_s
    return time_to_train(step_s, IMAGES, 95, inputs["batch"], 512) / 60


def over_one_gpu(size: int, step: PredictedStep) -> float:
    """Throughput of `size` GPUs over that of one."""
    return size * scaling_efficiency(step) / 100


def open_source_throughput(
    rate: float,
    small_batch: float,
    alpha_s: float,
    bandwidth: float,
    batch: int,
    algorithm: str,
    overlap: bool,
) -> float:
    """64 GPUs, float32, one call per tensor. Systems, network and allreduce are not known."""
    network, compute_s = alexnet(), batch / (rate * small_batch)
    forward_s = compute_s * network.forward_flops / network.step_flops
    gradients = network.gradients(compute_s - forward_s, forward_s)
    line = LINES[algorithm](64, Link(alpha_s, 1 / bandwidth))
    return over_one_gpu(64, predict(gradients, eager(gradients), line, overlap))


def jia_gain(
    network: str,
    efficiency: float,
    alpha_s: float,
    bandwidth: float,
    batch: int,
    ranks_per_node: int,
    itemsize: int,
) -> float:
    """Step of 1024 P40 with one ring call per tensor over the step of Jia et al.

    Theirs has one fused call or one per tensor, by ring or hierarchical, whichever is faster. Both
    overlap.
    """
    workload = WORKLOADS[network]()
    compute_s = batch * workload.step_flops / (efficiency * 11.8e12)
    forward_s = compute_s * workload.forward_flops / workload.step_flops
    gradients = workload.gradients(compute_s - forward_s, forward_s, itemsize)
    between, inside = Link(alpha_s, 1 / bandwidth), Link(alpha_s, 1e-10)
    ring, k = ring_line(1024, between), ranks_per_node

    def hybrid(nbytes: float) -> float:
        elements = nbytes // itemsize
        return min(ring(nbytes), hierarchical_s(1024 // k, k, elements, itemsize, inside, between))

    fused = [one_call(gradients), eager(gradients)]
    theirs_s = min(predict(gradients, groups, hybrid).step_s for groups in fused)
    return predict(gradients, eager(gradients), ring).step_s / theirs_s


SLOW_BANDWIDTH = Input(
    "bandwidth",
    (7.0e9, 1.25e9),
    "B/s",
    "inferred",
    "56 Gbit/s as stated; TCP over it may reach 10 Gbit/s",
)
FLOW = (V100_RATE, SMALL_BATCH, ALPHA, BANDWIDTH, BATCH, PERCENT, SELECTION)
OPEN_SOURCE = (
    V100_RATE,
    SMALL_BATCH,
    ALPHA,
    SLOW_BANDWIDTH,
    BATCH,
    Input("algorithm", ("ring", "tree"), "", "inferred", "neither is stated"),
    Input("overlap", (True, False), "", "inferred", "neither is stated"),
)
JIA = (
    Input(
        "efficiency",
        (0.6, 0.3),
        "",
        "inferred",
        "fraction of a P40's 11.8 Tflop/s (verified: Dell's white paper)",
    ),
    ALPHA,
    Input(
        "bandwidth",
        (5.0e9, 12.5e9),
        "B/s",
        "unverified",
        "the cluster's network is not stated: 40 to 100 Gbit/s",
    ),
    Input("batch", (64,), "images a GPU", "computed", "64k on 1024 GPUs (stated: up to 64k)"),
    Input(
        "ranks_per_node",
        (8, 16),
        "",
        "inferred",
        "groups; the steps 2046 -> 186 have 16 (unverified)",
    ),
    Input(
        "itemsize",
        (2, 4),
        "bytes",
        "inferred",
        "mixed precision is stated, the type on the wire is not",
    ),
)
PAPER, JIA_PAPER = "GradientFlow (Sun et al. 2019)", "Jia et al. 2018"


def jia_headline(network: str, times: float) -> Headline:
    name = f"{network} of Jia et al. on 1024 P40 against NCCL, at most"
    inputs = Input("network", (network,), "", "stated", JIA_PAPER), *JIA
    return Headline(name, times, "x", "stated", JIA_PAPER, inputs, jia_gain)


HEADLINES = (
    Headline(GRADIENTFLOW, 410.2, "x", "stated", PAPER, FLOW, gradientflow_throughput),
    Headline(
        "95 epochs of AlexNet on 512 V100",
        1.5,
        "minutes",
        "stated",
        PAPER,
        FLOW,
        gradientflow_minutes,
    ),
    Headline(
        "throughput of open-source systems on 64 GPUs over one GPU",
        2.5,
        "x",
        "stated",
        PAPER,
        OPEN_SOURCE,
        open_source_throughput,
    ),
    jia_headline("AlexNet", 3.0),
    jia_headline("ResNet-50", 11.0),
)
