"""The two inputs of a plan together: what a step computes, and what the network costs."""

from dataclasses import replace
from pathlib import Path

from refgf.plan import ddp, profile, sizes, step_times
from refgf.plan.fabric import Fabric
from refgf.plan.step_times import StepTimes


def read_model(
    text: str | list[str],
    fabric: Fabric,
    batch: int | None,
    rate: float | None,
    step: int | None = None,
) -> StepTimes:
    """--model: a workload's name, a trace, or a list of gradients; the content says which.

    text: several files are those of the ranks of one job.
    batch, rate: of a workload; by default what the machine's file has for it, layer times first.
    """
    if isinstance(text, list) and len(text) > 1:
        if len(set(text)) < len(text) or not all(Path(path).is_file() for path in text):
            raise ValueError(
                f"plan --model: got {' '.join(text)[:80]}; wanted one network, or a different "
                "trace of each rank; next: --model rank0.json rank1.json"
            )
        refuse_unused(text[0], {"--batch": batch, "--rate": rate}, "has its own times")
        return ddp.together([read_file(path, step, last=True) for path in text])
    text = text[0] if isinstance(text, list) else text
    name = None if Path(text).is_file() else step_times.workload_name(text)
    if name is None:
        if Path(text).is_file():
            refuse_unused(text, {"--batch": batch, "--rate": rate}, "has its own times")
        return read_file(text, step)
    refuse_unused(text, {"--step": step}, "is no trace with steps")
    given = fabric.machine
    if batch is rate is None and given is not None and given.layers and given.workload == name:
        ready = tuple(given.gradients(itemsize=1))
        return StepTimes(name, f"layer times of {given.name}", ready, 0.0, given.batch)
    known = {step_times.workload_name(key): pace for key, pace in fabric.steps.items()}
    source = "--batch and --rate"
    if batch is rate is None and name in known:
        (batch, rate), source = known[name], fabric.name
    found = step_times.of_workload(name, batch, rate, source)
    for key, results in fabric.circles.items() if source == fabric.name else ():
        if step_times.workload_name(key) == name:
            said = f"WARNING: {source} has its rate from {results}: no prediction of these is a "
            found = replace(found, notes=(f"{said}result, but a circle. Better: --batch --rate.",))
    return found


def refuse_unused(text: str, options: dict[str, float | None], why: str) -> None:
    """ValueError for an option that would say nothing about this model."""
    given = " and ".join(name for name, value in options.items() if value is not None)
    if given:
        raise ValueError(
            f"plan --model {text}: got {given}; wanted none, because it {why}; next: leave it out"
        )


def read_file(path: str, step: int | None, last: bool = False) -> StepTimes:
    """last: the last step of a trace, not that of median length: ranks have to take one step."""
    if not Path(path).exists() and not Path(path).suffix:
        names = ", ".join(step_times.plain(name) for name in step_times.NETWORKS)
        raise ValueError(
            f"plan --model: got {path[:80]!r}; wanted one of {names}, or a file that exists; next: "
            "--model resnet50"
        )
    content = sizes.content(path)
    if Path(path).suffix.lower() == ".csv":
        refuse_unused(path, {"--step": step}, "is no trace with steps")
        return sizes.from_csv(content, path)
    data = sizes.parse(content, path)
    if isinstance(data, list) and data and isinstance(data[0], dict) and "ph" in data[0]:
        data = {"traceEvents": data}  # torch 1.8
    if isinstance(data, dict) and "traceEvents" in data:
        return profile.from_trace(data, path, step, last)
    refuse_unused(path, {"--step": step}, "is no trace with steps")
    return sizes.from_json(data, path)
