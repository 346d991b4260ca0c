"""What plan says of a published row, from its stated and assumed inputs alone.

One call for each 25 MiB of gradients (PyTorch's default; Horovod's fusion is larger) during
backward, summed by NCCL's model over the links of the row's node. With accumulated gradients the
calls begin in the last of the accumulated steps.
"""

from dataclasses import replace
from functools import cache

from refgf.papers.scaling.scaling import ready_of
from refgf.plan.buckets import DDP_DEFAULT_MIB, MIB
from refgf.plan.fabric import Fabric, of_node, with_between
from refgf.plan.published import ETHERNET, NETWORKS, ScalingRow
from refgf.plan.question import NCCL, Question
from refgf.plan.step_times import StepTimes
from refgf.plan.systems import SYSTEMS
from refgf.plan.thetas import sent
from refgf.plan.uncertainty import PlannedStep, planned
from refgf.predict.timeline import lazy

LATENCY = {True: "30us", False: "14us"}  # of TCP (mgwfbp-10gbe's), and NCCL's of a network
SYSTEM = {4: "theta", 2: "half"}  # by bytes a gradient; their calls are the row's, not the best


def step_of(row: ScalingRow) -> StepTimes:
    """The ready times of the last of the accumulated steps."""
    before_s = row.compute_s * (1 - 1 / row.accumulate)
    ready = computed(row.network, row.batch, row.single)
    late = tuple((before_s + ready_s, elements) for ready_s, elements in ready)
    return StepTimes(row.network, row.source, late, batch=row.batch, measured=False)


@cache
def computed(network: str, batch: int, single: float) -> tuple[tuple[float, int], ...]:
    return tuple(ready_of(NETWORKS[network](), batch, single))


def fabric_of(row: ScalingRow) -> Fabric:
    node = of_node(row.node)
    if row.between is None:
        return node
    return with_between(node, LATENCY[row.fabric == ETHERNET], row.between, "published")


def question_of(row: ScalingRow) -> Question:
    step = step_of(row)
    gradients, _ = sent(step.ready, row.wire)
    groups = lazy(gradients, DDP_DEFAULT_MIB * MIB)
    return Question(step, fabric_of(row), row.ranks, row.per_node, 1.0, NCCL, groups)


def formula_s(row: ScalingRow, slower: float = 1.0) -> float:
    """The step by the formulas; slower: of the time per byte between nodes."""
    asked = question_of(row)
    asked = replace(asked, fabric=asked.fabric.scaled(tcp=slower))
    return SYSTEMS[SYSTEM[row.wire]].step_s(asked)


def predicted(row: ScalingRow, asked: Question) -> PlannedStep:
    return planned(SYSTEM[row.wire], asked)
