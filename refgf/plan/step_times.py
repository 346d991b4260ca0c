"""What one training step computes: the gradients, when each is ready, and what follows backward."""

from dataclasses import dataclass

from refgf.papers.scaling.scaling import ready_of
from refgf.papers.scaling.workloads import WORKLOADS
from refgf.plan.decoders import units
from refgf.plan.published import NETWORKS

MOST_RATE = 1e9  # samples/s of one rank (chosen)
LEAST_FLOPS, MOST_FLOPS = 1e9, 1e15  # flop/s of one rank: beyond, doubted (chosen)


@dataclass(frozen=True)
class StepTimes:
    """One step of one rank without exchange.

    ready     ((ready_s, elements), ...) in the order of generation
    after_s   what follows backward: optimiser, data
    batch     samples of a rank; 0: unknown
    notes     what the numbers do not say, a sentence each
    measured  False if the ready times are a rate's, divided among the layers by flops
    scatter   the shortest and the longest step that were measured, as factors of this one
    units     gradients of each unit of FSDP, in their order; (): the network says none
    shapes    of the gradients, in their order; (): unknown
    """

    name: str
    source: str
    ready: tuple[tuple[float, int], ...]
    after_s: float = 0.0
    batch: int = 0
    measured: bool = True
    notes: tuple[str, ...] = ()
    scatter: tuple[float, float] = (1.0, 1.0)
    units: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()

    @property
    def compute_s(self) -> float:
        return self.ready[-1][0] + self.after_s

    @property
    def elements(self) -> int:
        return sum(elements for _, elements in self.ready)

    def scaled(self, factor: float) -> "StepTimes":
        """The same step on a rank that takes `factor` times as long."""
        ready = tuple((factor * ready_s, elements) for ready_s, elements in self.ready)
        changes = {"ready": ready, "after_s": factor * self.after_s}
        return StepTimes(**vars(self) | changes)


def workload_name(text: str) -> str | None:
    """The workload that is meant by `resnet50`, `ResNet-50` or `bert`; None for anything else.

    ValueError for the beginning of several names.
    """
    wanted = plain(text)
    if exact := [name for name in NETWORKS if plain(name) == wanted]:
        return exact[0]
    found = [name for name in WORKLOADS if wanted and plain(name).startswith(wanted)]
    if len(found) > 1:
        names = " or ".join(plain(name) for name in found)
        raise ValueError(
            f"plan --model: got {text}, the beginning of {len(found)} networks; wanted one of "
            f"them; next: {names}"
        )
    return found[0] if found else None


def plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def of_workload(text: str, batch: int | None, rate: float | None, source: str) -> StepTimes:
    """A workload at `batch` samples a step and `rate` samples per second of one rank."""
    name = workload_name(text)
    given = {"batch": (batch, "samples a step"), "rate": (rate, "samples per second")}
    if (batch is not None and batch < 1) or (rate is not None and not 0 < rate <= MOST_RATE):
        got = [f"--{option} {value}" for option, (value, _) in given.items() if value is not None]
        raise ValueError(
            f"plan --model {text}: got {' '.join(got)}; wanted at least 1 sample a step, and more "
            f"than 0 to {MOST_RATE:,.0f} samples/s; next: time a step on one rank without exchange"
        )
    if missing := [option for option, (value, _) in given.items() if value is None]:
        wanted = " and ".join(given[option][1] for option in missing)
        add = " ".join(f"--{option} {option[0].upper()}" for option in missing)
        raise ValueError(
            f"plan --model {text}: got no {' and '.join(missing)} of one rank; wanted {wanted}; "
            f"next: time a step on one rank without exchange, and add {add}"
        )
    workload = NETWORKS[name]()
    ready, notes = tuple(ready_of(workload, batch, rate)), ()
    if not LEAST_FLOPS <= (flops := rate * workload.step_flops) <= MOST_FLOPS:
        said = f"WARNING: {flops:.2g} flop/s, if a rank computes {rate:g} samples/s of {name}. "
        notes = (said + "Is --rate that of one rank, in samples/s?",)
    own = {"measured": False, "notes": notes, "units": units(workload)}
    own["shapes"] = tuple(tensor.shape for tensor in workload.tensors)
    return StepTimes(name, source, ready, batch=batch, **own)
