"""Published steps of FSDP, predicted from the step on fewer GPUs: a part of `refgf predict score`.

No source states the rate of one GPU of such a network, which it does not hold. What is stated is
the rate on `base` GPUs. A rank computes as long as makes plan predict that step; with it plan
predicts the steps on more GPUs. None of these rows calibrates anything. A file has

    name, address, date, measured, [why]    as refgf/plan/published
    tokens, per_node    of a sequence; GPUs of a node
    [[series]]          name, network, node, batch (sequences a GPU), rates {GPUs: tokens/s a GPU};
                        gather, reduce (bytes a number: 2, 4), reshard (true)
"""

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from refgf.plan import decoders, published, sharding
from refgf.plan.calibration import calibrated
from refgf.plan.fabric import of_node
from refgf.plan.question import NCCL, Question, ranges, varied
from refgf.plan.sharding import GATHER, REDUCE, Queue, Sharded
from refgf.plan.step_times import StepTimes

FOLDER = Path(published.__file__).parent / "sharded"
CLOSE = 1e-6  # of the step on `base` GPUs


@dataclass(frozen=True)
class ShardedRow:
    """One measured step on `ranks` GPUs, and the one on `base` GPUs from which it is predicted."""

    name: str
    network: str
    node: str
    per_node: int
    ranks: int
    step_s: float
    base: int
    base_s: float
    gather: int
    reduce: int
    reshard: bool
    address: str

    @property
    def gpu(self) -> str:
        return self.name.split(", ")[1]


@cache
def rows() -> tuple[ShardedRow, ...]:
    found = []
    for path in sorted(FOLDER.glob("*.toml")):
        data = tomllib.loads(path.read_text())
        for series in data["series"]:
            steps = {
                int(p): series["batch"] * data["tokens"] / rate
                for p, rate in series["rates"].items()
            }
            base = min(steps)
            shared = {key: series[key] for key in ("network", "node")}
            shared |= {"per_node": data["per_node"], "base": base, "base_s": steps.pop(base)}
            shared |= {"gather": series.get("gather", 2), "reduce": series.get("reduce", 4)}
            shared |= {"reshard": series.get("reshard", True), "address": data["address"]}
            for ranks, step_s in steps.items():
                name = f"{series['name']}, {ranks} GPUs from {base}"
                found.append(ShardedRow(name=name, ranks=ranks, step_s=step_s, **shared))
    return tuple(found)


def question_of(row: ShardedRow, ranks: int, compute_s: float) -> Question:
    workload = decoders.NETWORKS[row.network]()
    ready = tuple(workload.step_gradients(compute_s, itemsize=1))
    step = StepTimes(row.network, row.address, ready, units=decoders.units(workload))
    return calibrated(Question(step, of_node(row.node), ranks, row.per_node, 1.0, NCCL))


def step_of(row: ShardedRow, asked: Question) -> float:
    """Seconds of a step. Of what is outside the blocks PyTorch has one unit, and here are two."""
    half, sizes = sharding.half_s(asked), {GATHER: row.gather, REDUCE: row.reduce}
    seconds = {kind: lambda n, size=size: half(size * n) for kind, size in sizes.items()}
    found = sharding.fsdp_of(asked, Sharded(), Queue(seconds, 1), reshard=row.reshard)
    return asked.unmodelled.factor * found


@cache
def computing_s(base_row: ShardedRow) -> float:
    """What a rank computes if plan is right on `base` GPUs."""
    compute_s = base_row.base_s
    for _ in range(50):
        found = step_of(base_row, question_of(base_row, base_row.base, compute_s))
        if abs(found / base_row.base_s - 1) < CLOSE:
            break
        compute_s *= base_row.base_s / found
    return compute_s


def predicted(row: ShardedRow) -> tuple[float, float, float]:
    """(step, lowest, highest) in seconds. The pace has no range: the step on `base` is measured."""
    alike = replace(row, name="", ranks=row.base, step_s=row.base_s)
    asked = question_of(row, row.ranks, computing_s(alike))
    inputs: dict[str, Any] = {
        key: both for key, both in ranges(asked).items() if key not in ("pace", "ring")
    }
    ends = [varied(asked, **{key: both[end] for key, both in inputs.items()}) for end in (0, 1)]
    step_s, low_s, high_s = (step_of(row, each) for each in (asked, *ends))
    return step_s, low_s, high_s
