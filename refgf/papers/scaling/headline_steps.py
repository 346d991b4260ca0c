"""The steps behind the papers' headlines: pure arithmetic, without any published result.

    gradientflow_step        a step of GradientFlow; *_throughput and *_minutes are made of it
    open_source_throughput   a step of the systems that the GradientFlow paper starts from
    jia_steps                a step of Jia et al. and of NCCL; jia_gain and jia_minutes

headlines.py holds their inputs with sources. "Throughput over one GPU" is p times the scaling
efficiency; the papers call it speedup.
"""

from functools import cache
from math import inf

from refgf.papers.scaling.collectives import LINES, hierarchical_s
from refgf.papers.scaling.scaling import Cluster, best_theta_step, ready_of
from refgf.papers.scaling.shapes import Builder, Workload
from refgf.papers.scaling.systems import System, scaling_efficiency, time_to_train
from refgf.papers.scaling.workloads import WORKLOADS, alexnet
from refgf.predict.cost import Link, ring_line
from refgf.predict.timeline import PredictedStep, eager, one_call, predict

IMAGES = 1_281_167  # ImageNet-1k, training
P40_FLOPS = 11.8e12  # float32, per second (verified: Dell's white paper)
FLOW_GPUS, FLOW_EPOCHS = 512, 95  # stated; of AlexNet (and 512 of ResNet-50)
OPEN_SOURCE_GPUS = 64  # stated
JIA_GPUS = 1024  # stated: P40, of the comparison with NCCL


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


@cache  # three headlines ask for the same steps
def gradientflow_step(
    size: int, percent: float, selection_s: float, network: str = "AlexNet", **cluster: float
) -> PredictedStep:
    """A step on `size` GPUs: ring, float16, overlap, CSC, and lazy allreduce with the best theta.

    cluster: fields of scaling.Cluster. The paper's theta is not known.
    """
    system = System("GradientFlow", 2, inf, percent=percent, selection_s=selection_s)
    ranks = Cluster(**cluster)
    ready = ready_of(WORKLOADS[network](), ranks.batch, ranks.rate * ranks.small_batch)
    return best_theta_step(ready, system, ranks.allreduce_s(size))


def gradientflow_throughput(**inputs: float) -> float:
    return over_one_gpu(FLOW_GPUS, gradientflow_step(FLOW_GPUS, **inputs))


def gradientflow_minutes(**inputs: float) -> float:
    """All epochs. Not included: evaluation, starting the job, reading the images."""
    step_s = gradientflow_step(FLOW_GPUS, **inputs).step_s
    return time_to_train(step_s, IMAGES, FLOW_EPOCHS, inputs["batch"], FLOW_GPUS) / 60


def gradientflow_gain(record_minutes: float, **inputs: float) -> float:
    """A record over the minutes of GradientFlow."""
    return record_minutes / gradientflow_minutes(**inputs)


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
    """Float32, one call per tensor. Systems, network and allreduce are not known."""
    gradients = alexnet().step_gradients(batch / (rate * small_batch))
    line = LINES[algorithm](OPEN_SOURCE_GPUS, Link(alpha_s, 1 / bandwidth))
    return over_one_gpu(OPEN_SOURCE_GPUS, predict(gradients, eager(gradients), line, overlap))


def jia_steps(
    size: int,
    network: str,
    efficiency: float,
    alpha_s: float,
    bandwidth: float,
    batch: int,
    ranks_per_node: int,
    itemsize: int,
) -> tuple[float, float]:
    """(seconds with one ring call per tensor, seconds of Jia et al.) of a step on `size` P40.

    Theirs is modelled as one fused call or one per tensor, by ring or hierarchical, whichever is
    faster (chosen: by the review in kuizhiqing/papers theirs fuses up to a theta, which is not
    known). Both overlap.
    """
    workload = WORKLOADS[network]()
    compute_s = batch * workload.step_flops / (efficiency * P40_FLOPS)
    gradients = workload.step_gradients(compute_s, itemsize)
    between, inside = Link(alpha_s, 1 / bandwidth), Link(alpha_s, 1e-10)
    ring, k = ring_line(size, between), ranks_per_node

    def hybrid(nbytes: float) -> float:
        elements = nbytes // itemsize
        return min(ring(nbytes), hierarchical_s(size // k, k, elements, itemsize, inside, between))

    fused = [one_call(gradients), eager(gradients)]
    theirs_s = min(predict(gradients, groups, hybrid).step_s for groups in fused)
    return predict(gradients, eager(gradients), ring).step_s, theirs_s


def jia_gain(**inputs) -> float:
    """Step with NCCL over the step of Jia et al. on JIA_GPUS P40."""
    nccl_s, theirs_s = jia_steps(JIA_GPUS, **inputs)
    return nccl_s / theirs_s


def jia_minutes(size: int, epochs: int, **inputs) -> float:
    """Not included: evaluation, starting the job, reading the images."""
    _, theirs_s = jia_steps(size, **inputs)
    return time_to_train(theirs_s, IMAGES, epochs, inputs["batch"], size) / 60
