"""Published headlines as predictions from independent inputs. Nothing here is measured.

Each published number stands here once. headline_steps.py computes the predictions, and
confronted.py puts them into one table with the numbers that cannot be predicted.

The single-GPU rates are independent of the headlines: tf_cnn_benchmarks on one V100, and the peak
of a P40. The rate that two headlines of GradientFlow imply together (`IMPLIED_RATE`) is
calibration: a prediction from it is no result.

The abstract of GradientFlow says 512 GPUs. That they are V100 stands in the press (`GPU`).
"""

from dataclasses import replace

from refgf.papers.scaling.headline_steps import (
    IMAGES,
    P40_FLOPS,
    gradientflow_gain,
    gradientflow_minutes,
    gradientflow_throughput,
    jia_gain,
    jia_minutes,
    open_source_throughput,
    tf_cnn_alexnet,
)
from refgf.papers.scaling.interval import Headline, Input
from refgf.papers.scaling.published import INFINIBAND
from refgf.papers.scaling.workloads import alexnet

# ---- one GPU ----

GPU = "the 512 GPUs are V100: The Register, March 2019 (copy: dataemia.com); the abstract: GPUs"
LAMBDA = (
    "LambdaColdStorage/lambda-tensorflow-benchmark, tf-train-throughput-fp{32,16}.csv, one V100 "
    "32 GB"
)
SCALE = tf_cnn_alexnet().step_flops / alexnet().step_flops  # 0.74
V100_RATE = Input(
    "rate",
    (5132 * SCALE, 9319 * SCALE),
    "images/s",
    "computed",
    f"{LAMBDA}: 5132 in float32 and 9319 in float16 at batches of 1536 and 3072, times the flops "
    f"of that AlexNet over those of the paper's; {GPU}",
)
SMALL_BATCH = Input(
    "small_batch", (1.0, 0.7), "", "inferred", "rate at 128 images over the rate at 1536 and more"
)
RESNET_RATE = Input(
    "rate",
    (432.0, 1276.0),
    "images/s",
    "verified",
    f"{LAMBDA}: 432 in float32 and 1276 in float16 at batches of 192 and 384; {GPU}",
)

# ---- links ----

ALPHA = Input(
    "alpha_s",
    (5.0e-6, 7.9e-6),
    "s",
    "computed",
    "latencies of 64 GPUs on EFA, 630 us / 126, and of MG-WFBP's 16 on InfiniBand, 235.8 us / 30",
)
JIA_ALPHA = replace(
    ALPHA,
    values=(*ALPHA.values, 3 * INFINIBAND.lines[16].a_s / 30),
    source=f"{ALPHA.source}; three times the latter, as in the same authors' later code "
    "(ddl-benchmarks); the network of Jia et al. is not stated",
)
BANDWIDTH = Input(
    "bandwidth",
    (4.6e9, 7.0e9),
    "B/s",
    "computed",
    "MG-WFBP's fitted b of 16 GPUs on 56 Gbit/s; 56 Gbit/s as stated",
)
SLOW_BANDWIDTH = replace(
    BANDWIDTH,
    values=(7.0e9, 1.25e9),
    label="inferred",
    source="56 Gbit/s as stated; TCP over it may reach 10 Gbit/s",
)

# ---- GradientFlow ----

PAPER, JIA_PAPER = "GradientFlow (Sun et al. 2019)", "Jia et al. 2018, abstract (GTC 2019, S9146)"
JOURNAL = "GradientFlow, IEEE Trans. Big Data 8(2), 2022, 10.1109/TBDATA.2019.2957478, abstract"
SPEEDUP, MINUTES = 410.2, 1.5  # stated; of AlexNet on 512 GPUs, over one GPU and of 95 epochs
JIA_ALEXNET_MINUTES = 4.0  # stated: "within 4 minutes"; the record that GradientFlow broke
GRADIENTFLOW = "GradientFlow, AlexNet: throughput of 512 GPUs over one GPU"
IMPLIED_RATE = Input(
    "rate",
    (float(round(95 * IMAGES / (60 * MINUTES) / SPEEDUP)),),
    "images/s",
    "computed",
    f"95 epochs in {60 * MINUTES:g} s at {SPEEDUP}",
    GRADIENTFLOW,
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
FLOW = (V100_RATE, SMALL_BATCH, ALPHA, BANDWIDTH, BATCH, PERCENT, SELECTION)
RESNET_FLOW = (
    Input("network", ("ResNet-50",), "", "stated", JOURNAL),
    RESNET_RATE,
    ALPHA,
    BANDWIDTH,
    BATCH,
    replace(PERCENT, values=(10.0, 100.0), label="inferred", source="sparse or dense: not stated"),
    SELECTION,
)
RECORD = Input("record_minutes", (JIA_ALEXNET_MINUTES,), "minutes", "stated", JIA_PAPER)
OPEN_SOURCE = (
    V100_RATE,
    SMALL_BATCH,
    ALPHA,
    SLOW_BANDWIDTH,
    BATCH,
    Input("algorithm", ("ring", "tree"), "", "inferred", "neither is stated"),
    Input("overlap", (True, False), "", "inferred", "neither is stated"),
)

# ---- Jia et al. ----

JIA = (
    Input(
        "efficiency",
        (0.6, 0.3),
        "",
        "inferred",
        f"fraction of a P40's {P40_FLOPS / 1e12:g} Tflop/s (verified: Dell's white paper)",
    ),
    JIA_ALPHA,
    Input(
        "bandwidth",
        (5.0e9, 12.5e9),
        "B/s",
        "unverified",
        "the cluster's network is not stated: 40 to 100 Gbit/s",
    ),
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
ON_1024 = Input("batch", (64,), "images a GPU", "computed", "64k on 1024 GPUs (stated: up to 64k)")
ON_2048 = replace(ON_1024, values=(32,), source="64k on 2048 GPUs (stated: up to 64k)")


def jia_inputs(network: str, batch: Input, **others: int) -> tuple[Input, ...]:
    """The inputs of a prediction of Jia et al.; others: what their abstract states."""
    stated = {"network": network} | others
    given = [Input(name, (value,), "", "stated", JIA_PAPER) for name, value in stated.items()]
    return *given, batch, *JIA


def jia_headline(network: str, times: float) -> Headline:
    name = f"Jia et al., {network}: step with NCCL over theirs on 1024 P40, at most"
    return Headline(name, times, "x", "stated", JIA_PAPER, jia_inputs(network, ON_1024), jia_gain)


HEADLINES = (
    Headline(GRADIENTFLOW, SPEEDUP, "x", "stated", PAPER, FLOW, gradientflow_throughput),
    Headline(
        "GradientFlow, AlexNet: 95 epochs on 512 GPUs",
        MINUTES,
        "minutes",
        "stated",
        PAPER,
        FLOW,
        gradientflow_minutes,
    ),
    Headline(
        "open-source systems: throughput of 64 GPUs over one GPU",
        2.5,
        "x",
        "stated",
        PAPER,
        OPEN_SOURCE,
        open_source_throughput,
    ),
    jia_headline("AlexNet", 3.0),
    jia_headline("ResNet-50", 11.0),
    Headline(
        "GradientFlow, ResNet-50: throughput of 512 GPUs over one GPU",
        434.1,
        "x",
        "stated",
        JOURNAL,
        RESNET_FLOW,
        gradientflow_throughput,
    ),
    Headline(
        "GradientFlow, AlexNet: the time of the record before over its own",
        2.6,
        "x",
        "verified",
        "a press report of 2019; the two times have the ratio 2.67",
        (RECORD, *FLOW),
        gradientflow_gain,
    ),
    Headline(
        "Jia et al., ResNet-50: 90 epochs on 2048 P40",
        6.6,
        "minutes",
        "stated",
        JIA_PAPER,
        jia_inputs("ResNet-50", ON_2048, size=2048, epochs=90),
        jia_minutes,
    ),
    Headline(
        "Jia et al., AlexNet: 95 epochs on 1024 P40",
        JIA_ALEXNET_MINUTES,
        "minutes",
        "stated",
        JIA_PAPER,
        jia_inputs("AlexNet", ON_1024, size=1024, epochs=95),
        jia_minutes,
    ),
)
