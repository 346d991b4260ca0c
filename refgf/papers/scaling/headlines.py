"""The seeds' headlines as predictions: 410.2 on 512, 1.5 minutes, 2.5 on 64, Jia et al.'s 3x and 11x.

Nothing is measured here. The single-GPU rates are independent of the headlines: tf_cnn_benchmarks on one V100, and the
peak of a P40. The rate that 410.2 and 1.5 minutes imply together, 3297 images/s, is kept apart (`IMPLIED_RATE`): it is
calibration, and a headline predicted from it is no result.
"""

from math import inf

from refgf.papers.scaling.interval import Headline, Input
from refgf.papers.scaling.scaling import best_theta_step, ready_of
from refgf.papers.scaling.shapes import Builder
from refgf.papers.scaling.systems import System, speedup, time_to_train
from refgf.papers.scaling.workloads import WORKLOADS, alexnet
from refgf.predict.cost import LINES, Link, hierarchical_s, ring_line
from refgf.predict.timeline import eager, one_call, predict

IMAGES = 1_281_167  # ImageNet-1k, training
LAMBDA = "LambdaColdStorage/lambda-tensorflow-benchmark, tf-train-throughput-fp{32,16}.csv, one V100 32 GB"


def step_flops(workload):
    return workload.forward_flops + workload.backward_flops


def tf_cnn_alexnet():
    """The AlexNet of tf_cnn_benchmarks (verified: its alexnet_model.py): fewer filters at first, no normalisation."""
    net = Builder("AlexNet of tf_cnn_benchmarks", 227, 227, 3)
    for number, (filters, kernel, stride, pad) in enumerate([(64, 11, 4, 0), (192, 5, 1, 2), (384, 3, 1, 1)], 1):
        net.conv(f"conv{number}", filters, kernel, stride, pad)
        if number < 3:
            net.pool(f"pool{number}", 3, 2)
    net.conv("conv4", 384, 3, 1, 1)
    net.conv("conv5", 256, 3, 1, 1)
    net.pool("pool5", 3, 2)
    for name, features in [("fc6", 4096), ("fc7", 4096), ("fc8", 1000)]:
        net.fc(name, features)
    return net.workload()


SCALE = step_flops(tf_cnn_alexnet()) / step_flops(alexnet())  # 0.74
V100_RATE = Input(
    "rate", (5132 * SCALE, 9319 * SCALE), "images/s", "computed", f"{LAMBDA}: 5132 in float32 and 9319 in float16 at "
    "batches of 1536 and 3072, times the flops of that AlexNet over those of the paper's",
)  # fmt: skip
SMALL_BATCH = Input("small_batch", (1.0, 0.7), "", "inferred", "rate at 128 images over the rate at 1536 and more")
IMPLIED_RATE = Input(
    "rate", (3297.0,), "images/s", "computed", "95 epochs in 90 s at 410.2", "speedup of GradientFlow on 512 V100"
)
ALPHA = Input(
    "alpha_s", (5.0e-6, 7.9e-6), "s", "computed", "start-ups of 64 GPUs on EFA, 630 us / 126, and of MG-WFBP's 16 on "
    "InfiniBand, 235.8 us / 30",
)  # fmt: skip
BANDWIDTH = Input(
    "bandwidth", (4.6e9, 7.0e9), "B/s", "computed", "MG-WFBP's fitted b of 16 GPUs on 56 Gbit/s; 56 Gbit/s as stated"
)
BATCH = Input("batch", (128,), "images a GPU", "unverified", "65,536 on 512 GPUs, from memory of the paper")
PERCENT = Input("percent", (10.0,), "% of chunks", "stated", "seed 002: e.g. 10 %")
SELECTION = Input("selection_s", (0.0, 2e-3), "s", "inferred", "125 to 500 MB read at a V100's memory bandwidth, twice")


def gradientflow_step(size, rate, small_batch, alpha_s, bandwidth, batch, percent, selection_s):
    """Timeline on `size` GPUs: ring, float16, overlap, CSC, and lazy allreduce with the best theta for these inputs
    (the paper's theta is not known)."""
    system = System("GradientFlow", itemsize=2, threshold_bytes=inf, percent=percent, selection_s=selection_s)
    ready, link = ready_of(alexnet(), batch, rate * small_batch), Link(alpha_s, 1 / bandwidth)
    return best_theta_step(ready, system, ring_line(size, link))


def gradientflow_speedup(**inputs):
    return speedup(512, gradientflow_step(512, **inputs))


def gradientflow_minutes(**inputs):
    """95 epochs; evaluation, start and reading of images are not counted."""
    step_s = gradientflow_step(512, **inputs).step_s
    return time_to_train(step_s, IMAGES, 95, inputs["batch"], 512) / 60


def open_source_speedup(rate, small_batch, alpha_s, bandwidth, batch, algorithm, overlap):
    """64 GPUs, float32, one call a tensor. Which systems, which network and which allreduce is not known."""
    network, compute_s = alexnet(), batch / (rate * small_batch)
    forward_s = compute_s * network.forward_flops / step_flops(network)
    gradients = network.gradients(compute_s - forward_s, forward_s)
    line = LINES[algorithm](64, Link(alpha_s, 1 / bandwidth))
    return speedup(64, predict(gradients, eager(gradients), line, overlap))


def jia_speedup(network, efficiency, alpha_s, bandwidth, batch, ranks_per_node, itemsize):
    """Step of 1024 P40 with one ring call a tensor over a step with one fused call, by ring or hierarchical, whichever
    is faster; both overlap."""
    workload = WORKLOADS[network]()
    compute_s = batch * step_flops(workload) / (efficiency * 11.8e12)
    forward_s = compute_s * workload.forward_flops / step_flops(workload)
    gradients = workload.gradients(compute_s - forward_s, forward_s, itemsize)
    between, inside = Link(alpha_s, 1 / bandwidth), Link(alpha_s, 1e-10)
    ring, k = ring_line(1024, between), ranks_per_node

    def hybrid(nbytes):
        return min(ring(nbytes), hierarchical_s(1024 // k, k, nbytes // itemsize, itemsize, inside, between))

    fused = [one_call(gradients), eager(gradients)]
    ours_s = min(predict(gradients, groups, hybrid).step_s for groups in fused)
    return predict(gradients, eager(gradients), ring).step_s / ours_s


JIA_INPUTS = (
    Input("efficiency", (0.6, 0.3), "", "inferred", "share of a P40's 11.8 Tflop/s (verified: Dell's white paper)"),
    ALPHA,
    Input("bandwidth", (5.0e9, 12.5e9), "B/s", "unverified", "the cluster's network is not stated: 40 to 100 Gbit/s"),
    Input("batch", (64,), "images a GPU", "computed", "64k on 1024 GPUs (batch stated: up to 64k)"),
    Input("ranks_per_node", (8, 16), "", "inferred", "groups; the steps 2046 -> 186 have 16 (unverified)"),
    Input("itemsize", (2, 4), "bytes", "inferred", "mixed precision is stated, the type on the wire is not"),
)
SLOW_BANDWIDTH = Input(
    "bandwidth", (7.0e9, 1.25e9), "B/s", "inferred", "56 Gbit/s as stated; TCP over it may reach 10 Gbit/s"
)
FLOW = (V100_RATE, SMALL_BATCH, ALPHA, BANDWIDTH, BATCH, PERCENT, SELECTION)
HEADLINES = (
    Headline(
        "speedup of GradientFlow on 512 V100", 410.2, "x", "stated", "seeds 000 and 002", FLOW, gradientflow_speedup
    ),
    Headline(
        "95 epochs of AlexNet on 512 V100", 1.5, "minutes", "stated", "seeds 000 and 002", FLOW, gradientflow_minutes
    ),
    Headline(
        "speedup of open-source systems on 64 GPUs", 2.5, "x", "stated", "seed 000",
        (V100_RATE, SMALL_BATCH, ALPHA, SLOW_BANDWIDTH, BATCH,
         Input("algorithm", ("ring", "tree"), "", "inferred", "neither is stated"),
         Input("overlap", (True, False), "", "inferred", "neither is stated")),
        open_source_speedup,
    ),
    *(
        Headline(
            f"{network} of Jia et al. on 1024 P40 against NCCL, at most", times, "x", "stated", "seed 001",
            (Input("network", (network,), "", "stated", "seed 001"), *JIA_INPUTS), jia_speedup,
        )
        for network, times in [("AlexNet", 3.0), ("ResNet-50", 11.0)]
    ),
)  # fmt: skip
