"""Lesson 07 on this machine as it is: real computing, real links, the stack technique by technique.

    result = stack_here.measure(run, data, stacks)

Eight ranks compute on a few cores, so what takes the processor is paid for in computing. The step
is predicted from inputs that are measured separately (kit/step_times.py, kit/call_times.py):

- the step and its gradients, in time since the *first* rank started;
- calls of eight sizes in a row, as each technique makes them;
- how much later a call ends when ranks come to it from computing;
- the share of its speed that computing keeps during a call;
- what choosing chunks adds to a step in which no gradient is sent.

Not an input: a rank has no core at the moment at which its message arrives.
"""

import numpy as np

import kit
from kit import calls, flow, images, step_times
from kit.calls import Kind
from refgf.comm.native import mpi_allreduce
from refgf.papers.scaling.systems import System
from refgf.papers.scaling.systems import step as predicted_step

HALF, LATER = np.float16, "float16, overlap"
DENSITY = 10.0  # percent of the chunks


def measure(run: kit.Run, data, stacks: dict) -> dict:
    """The rows of the stack on this machine, as lab/ladder.py returns those of a cluster."""
    count = run.quick(4, 12, 30)
    timing, ready_s = flow.without_exchange(run, data, images.steps(run, data, count))
    sizes = [spec.size for spec in images.network(run, data).tensors]
    n = sum(sizes)
    run.section(f"{images.in_words(run)}: {n:,} gradients, computed for real")
    found = calls.measure(run, data, kinds_of(run))
    share = found[LATER].kept_share
    run.say(f"a step without any exchange, update included: {timing}")
    run.say(f"during a call computing keeps {share:.0%} of its speed")
    short = "; ".join(f"{name} {kit.seconds(call.seconds(0))}" for name, call in found.items())
    run.say(f"a short call: {short}")
    rows = []
    for name, arguments in stacks.items():
        run.opaque = run.opaque or arguments["allreduce"] is mpi_allreduce
        call, csc = found[kind_of(arguments)], arguments.get("csc")
        with flow.new(run, data, **arguments) as stack:
            step = flow.time_steps(run, stack, images.steps(run, data, count))
            number, busy_s = len(stack.calls), stack.communication_s
            batches = images.steps(run, data, count)
            compute_s = call.compute_s
            selection_s = calls.selection_s(run, stack, batches, compute_s) if stack.csc else 0.0
            chunk = stack.csc.settings.chunk if stack.csc else 1
        system = System(
            name,
            itemsize=2 if arguments.get("wire") else 4,
            threshold_bytes=arguments["grouping"].threshold_bytes,
            percent=DENSITY if csc else None,
            chunk=chunk,
            overlap=call.kept_share,
            selection_s=selection_s,
            norms_s=0.0,
        )
        ready = list(zip(step_times.rescaled(ready_s, timing, call.compute_s), sizes))
        predicted = predicted_step(ready, system, call.seconds, call.compute_s)
        rows.append(
            {
                "name": name,
                "step": step,
                "predicted_s": predicted.step_s,
                "calls": number,
                "communication_s": busy_s,
                "own_share": None,
            }
        )
    run.table(
        ["", "calls", "step", "predicted", "error", "scaling efficiency"],
        [
            [
                r["name"],
                r["calls"],
                r["step"],
                kit.seconds(r["predicted_s"]),
                f"{100 * (r['predicted_s'] / r['step'].median_s - 1):+.0f} %",
                f"{100 * timing.median_s / r['step'].median_s:.0f} %",
            ]
            for r in rows
        ],
    )
    run.say(kit.errors_in_words([(row["predicted_s"], row["step"].median_s) for row in rows]))
    return {"rows": rows, "alone": timing, "elements": n, "kept_share": share}


def kinds_of(run: kit.Run) -> dict[str, Kind]:
    """The kinds of allreduce in these stacks."""
    own = {"MPI": Kind(mpi_allreduce)} if run.mpi_allreduce() is not None else {}
    return own | {
        "float32": Kind(),
        "float16": Kind(wire=HALF),
        LATER: Kind(wire=HALF, overlap=True),
    }


def kind_of(arguments: dict) -> str:
    """Which of `kinds_of` makes the calls of this stack."""
    if arguments["allreduce"] is mpi_allreduce:
        return "MPI"
    if not arguments.get("wire"):
        return "float32"
    return LATER if arguments.get("overlap") else "float16"
