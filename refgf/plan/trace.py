"""A trace of torch.profiler as one object: its events by what they are, read from JSON once.

    trace = Trace.read(data, path)      the whole file; ValueError says what is wrong in it
    trace["grads"]                      a name of KINDS; each list in the file's order
    trace.within(mark)                  the events that begin in this one

Times are microseconds, as Kineto's `ts` and `dur` are.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any

from refgf.plan.sizes import refuse

STEP = "ProfilerStep#"
READY = "torch::autograd::AccumulateGrad"
EXCHANGES = ("nccl", "c10d::", "gloo:", "ncclkernel", "horovod")
ON_GPU = "gpu_user_annotation"  # Kineto repeats annotations on the GPU's rows, which lag behind
OLD_KINDS = {"Operator": "cpu_op", "Kernel": "kernel", "Runtime": "cuda_runtime"}  # torch 1.8
OLD_KINDS |= {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}
BY_OPTIMIZER = "between optimiser's steps"  # the kind of a mark that the trace does not have
GPU_KINDS = ("kernel", "gpu_memcpy", "gpu_memset")


def is_exchange(event: "ProfiledEvent") -> bool:
    return event.name.lower().startswith(EXCHANGES)


KINDS = {  # what an event may be: one may be several of these
    "events": lambda e: True,
    "marks": lambda e: e.name.startswith(STEP) and e.kind == "user_annotation",
    "grads": lambda e: e.name == READY,  # a gradient is final
    "optimizers": lambda e: e.name.startswith("Optimizer.step#") and e.kind != ON_GPU,
    "loads": lambda e: e.name.startswith("enumerate(DataLoader)") and e.kind != ON_GPU,
    "exchanges": is_exchange,
    "sums": lambda e: is_exchange(e) and (e.kind == "kernel" or e.name.startswith("gloo:")),
    "operators": lambda e: e.kind == "cpu_op" and not is_exchange(e),
    "forwards": lambda e: e.sequence is not None and e.args.get("Fwd thread id") == 0,
    "backwards": lambda e: e.sequence is not None and e.args.get("Fwd thread id") != 0,
    "engine": lambda e: e.name.startswith("autograd::engine::evaluate_function"),
    "launches": lambda e: e.kind in ("cuda_runtime", "cuda_driver"),
    "kernels": lambda e: e.kind in GPU_KINDS and not is_exchange(e),
}

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ProfiledEvent:
    """Something that took time. args: what the profiler says of it. No two events are equal."""

    name: str
    kind: str
    start: float
    end: float
    args: dict[str, Any]
    stream: tuple[str, str] = ("", "")

    def begins(self, other: "ProfiledEvent") -> bool:
        """Does the other event begin in this one?"""
        return self.start <= other.start <= self.end

    @property
    def correlation(self) -> str:
        """A kernel and its launch have the same."""
        return str(self.args.get("correlation"))

    @property
    def sequence(self) -> int | None:
        """A forward operator and its backward have the same."""
        return self.args.get("Sequence number")

    @property
    def inputs(self) -> list[Any]:
        """The shapes of its arguments."""
        found = self.args.get("Input Dims", self.args.get("Input dims"))  # torch 1.8: dims
        return found if isinstance(found, list) else []

    @property
    def shape(self) -> Shape | None:
        """Of its first argument: of AccumulateGrad the gradient's. None: not recorded."""
        first = self.inputs[0] if self.inputs else None
        whole = isinstance(first, list) and all(isinstance(n, int) and n >= 0 for n in first)
        return tuple(first) if whole else None


Events = list[ProfiledEvent]


class Trace(dict[str, Events]):
    """{a name of KINDS: its events} of a file, or of a step in it."""

    def __init__(self, path: str, events: Events) -> None:
        super().__init__({kind: [e for e in events if is_one(e)] for kind, is_one in KINDS.items()})
        self.path = path

    @classmethod
    def read(cls, data: Any, path: str) -> "Trace":
        """data: the value of `traceEvents`. ValueError for steps that overlap."""
        if not isinstance(data, list):
            refuse(
                path, "traceEvents that is no list", "a trace of torch.profiler", "export it again"
            )
        found = (each for each in data if isinstance(each, dict) and each.get("ph") == "X")
        trace = cls(path, [event_of(each, path) for each in found])
        trace["marks"] = sorted(trace["marks"] or by_optimizer(trace), key=lambda mark: mark.start)
        for one, other in pairwise(trace["marks"]):
            if other.start < one.end:
                got = f"{one.name} and {other.name}, which overlap in time"
                once = "trace one rank; call profiler.step() once"
                refuse(path, got, "one step after the other", once)
        return trace

    def within(self, mark: ProfiledEvent) -> "Trace":
        return Trace(self.path, [event for event in self["events"] if mark.begins(event)])


def by_optimizer(trace: Trace) -> Events:
    """Marks of a trace that has none: from the end of one Optimizer.step to the end of the next.

    Of several optimisers the one that ends the trace. Work before its first step may be start-up.
    """
    last = max(trace["optimizers"], key=lambda event: event.end, default=None)
    ends = sorted(each.end for each in trace["optimizers"] if last and each.name == last.name)
    pairs = enumerate(pairwise(ends), 1)
    return [ProfiledEvent(f"{STEP}{n}", BY_OPTIMIZER, *both, {}) for n, both in pairs]


def event_of(raw: dict[str, Any], path: str) -> ProfiledEvent:
    """ValueError for a time that is none."""
    name, kind, args = str(raw.get("name")), str(raw.get("cat")), raw.get("args")
    times = [raw.get("ts"), raw.get("dur")]
    if not all(isinstance(t, int | float) and isfinite(t) for t in times) or times[1] < 0:
        got = f"event {name[:40]!r} with ts, dur = {times}"
        refuse(path, got, "microseconds", "export the trace again")
    kind = "user_annotation" if name.startswith(STEP) and kind == "Operator" else kind
    about = OLD_KINDS.get(kind, kind), times[0], sum(times), args if isinstance(args, dict) else {}
    return ProfiledEvent(name, *about, (str(raw.get("pid")), str(raw.get("tid"))))
