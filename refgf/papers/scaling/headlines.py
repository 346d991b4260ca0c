"""Published headlines as predictions from independent inputs. Nothing here is measured.

Each published number stands here once. headline_steps.py computes the predictions, and
confronted.py puts them into one table with the numbers that cannot be predicted.

The single-GPU rates are independent of the headlines: tf_cnn_benchmarks on one V100, and the peak
of a P40. The rate that two headlines of GradientFlow imply together (`IMPLIED_RATE`) is
calibration: a prediction from it is no result.

The abstract of GradientFlow gives the number of GPUs. That they are V100 stands in a news article
(`GPU`). Chunks, the 10 % and the 2.6 x stand in another one (`ARTICLE`), not in the abstract.
"""

from dataclasses import replace

from refgf.papers.scaling.headline_steps import (
    FLOW_EPOCHS,
    FLOW_GPUS,
    IMAGES,
    JIA_GPUS,
    OPEN_SOURCE_GPUS,
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
from refgf.papers.scaling.published import INFINIBAND, INFINIBAND_LATER
from refgf.papers.scaling.workloads import alexnet

# ---- one GPU ----

GPU = "that the GPUs are V100: a news article (The Register, March 2019; copy: dataemia.com)"
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

LATENCIES = 2 * (16 - 1)  # of a ring over 16 GPUs, which MG-WFBP's lines hold
ALPHA = Input(
    "alpha_s",
    (5.0e-6, round(INFINIBAND.lines[16].a_s / LATENCIES, 7)),
    "s",
    "unverified",
    "5 us: general knowledge of such networks; the other end is computed from MG-WFBP's 16 GPUs on "
    f"InfiniBand, {1e6 * INFINIBAND.lines[16].a_s:.1f} us / {LATENCIES}",
)
JIA_ALPHA = replace(
    ALPHA,
    values=(*ALPHA.values, INFINIBAND_LATER.lines[16].a_s / LATENCIES),
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

PAPER, JIA_PAPER = (
    "GradientFlow (Sun et al. 2019)",
    "Jia et al. 2018, abstract (number of GPUs of AlexNet's run: text of GTC 2019, S9146)",
)
ARTICLE = "a press article of 2019 on the paper (its text is at hand, its publisher is not)"
JOURNAL = (
    "GradientFlow, IEEE Trans. Big Data 8(2), 2022, 10.1109/TBDATA.2019.2957478, abstract (peeref)"
)
SPEEDUP, MINUTES = 410.2, 1.5  # stated; of AlexNet on FLOW_GPUS: over one GPU, of FLOW_EPOCHS
JIA_ALEXNET_MINUTES = 4.0  # stated as an upper bound; the record that GradientFlow broke
JIA_RUNS = {"ResNet-50": (2048, 90), "AlexNet": (JIA_GPUS, 95)}  # P40, epochs (stated)
GRADIENTFLOW = f"GradientFlow, AlexNet: throughput of {FLOW_GPUS} GPUs over one GPU"
IMPLIED_RATE = Input(
    "rate",
    (float(round(FLOW_EPOCHS * IMAGES / (60 * MINUTES) / SPEEDUP)),),
    "images/s",
    "computed",
    f"{FLOW_EPOCHS} epochs in {60 * MINUTES:g} s at {SPEEDUP}",
    GRADIENTFLOW,
)
BATCH = Input(
    "batch",
    (128,),
    "images a GPU",
    "unverified",
    f"65,536 on {FLOW_GPUS} GPUs, from memory of the paper",
)
PERCENT = Input(
    "percent",
    (10.0, 100.0),
    "% of chunks",
    "inferred",
    f"10 % is the example of {ARTICLE}; that the headlines have CSC, and with which share, is not "
    "stated: sparse or dense",
)
EXAMPLE = replace(PERCENT, values=PERCENT.values[:1])  # what the article's example would give
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
    replace(SMALL_BATCH, source="rate at 128 images over the rate at 192 and more; as AlexNet's"),
    ALPHA,
    BANDWIDTH,
    BATCH,
    PERCENT,
    SELECTION,
)
RECORD = Input(
    "record_minutes", (JIA_ALEXNET_MINUTES,), "minutes", "stated", f"{JIA_PAPER}, an upper bound"
)
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
JIA_BATCH = 65_536  # "up to 64k" (stated)


def jia_inputs(network: str, gpus: int, **others: int) -> tuple[Input, ...]:
    """The inputs of a prediction of Jia et al.; others: what their abstract states."""
    stated = {"network": network} | others
    given = [Input(name, (value,), "", "stated", JIA_PAPER) for name, value in stated.items()]
    source = f"64k on {gpus} GPUs (stated: up to 64k)"
    batch = Input("batch", (JIA_BATCH // gpus,), "images a GPU", "computed", source)
    return *given, batch, *JIA


def jia_headline(network: str, times: float) -> Headline:
    name = f"Jia et al., {network}: step with NCCL over theirs on {JIA_GPUS} P40, at most"
    return Headline(name, times, "x", "stated", JIA_PAPER, jia_inputs(network, JIA_GPUS), jia_gain)


def jia_run(network: str, minutes: float, bound: str = "") -> Headline:
    """bound: ", at most" where the abstract gives an upper bound."""
    gpus, epochs = JIA_RUNS[network]
    name = f"Jia et al., {network}: {epochs} epochs on {gpus} P40{bound}"
    inputs = jia_inputs(network, gpus, size=gpus, epochs=epochs)
    return Headline(name, minutes, "minutes", "stated", JIA_PAPER, inputs, jia_minutes)


HEADLINES = (
    Headline(GRADIENTFLOW, SPEEDUP, "x", "stated", PAPER, FLOW, gradientflow_throughput),
    Headline(
        f"GradientFlow, AlexNet: {FLOW_EPOCHS} epochs on {FLOW_GPUS} GPUs",
        MINUTES,
        "minutes",
        "stated",
        PAPER,
        FLOW,
        gradientflow_minutes,
    ),
    Headline(
        f"open-source systems: throughput of {OPEN_SOURCE_GPUS} GPUs over one GPU",
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
        f"GradientFlow, ResNet-50: throughput of {FLOW_GPUS} GPUs over one GPU",
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
        "stated",
        ARTICLE,
        (RECORD, *FLOW),
        gradientflow_gain,
    ),
    jia_run("ResNet-50", 6.6),
    jia_run("AlexNet", JIA_ALEXNET_MINUTES, ", at most"),
)
