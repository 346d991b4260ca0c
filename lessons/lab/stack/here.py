"""Lesson 07's bars on this machine as it is: real computing, real links.

    here = this_machine.measure(run, data, stacks)

Eight ranks compute on a few cores, so what takes the processor is paid for in computing. The step
is predicted from inputs that are measured separately (kit/step_times.py, kit/call_times.py):

- the step and its gradients, in time since the *first* rank started;
- calls of eight sizes in a row, as each technique makes them;
- how much later a call ends when ranks come to it from computing;
- the share of its speed that computing keeps during a call;
- what choosing chunks adds to a step in which no gradient is sent.

Not an input: a rank has no core at the moment at which its message arrives.
"""

import kit
from kit import calls, flow, images, step_times
from lab.stack.bars import DENSITY, OVERLAP, kind_of
from refgf.papers.scaling.systems import System
from refgf.papers.scaling.systems import step as predicted_step


def measure(run: kit.Run, data, stacks: dict) -> dict:
    """The rows of the stack on this machine, as lab/stack/ladder.py returns them of a cluster."""
    count = run.quick(4, 12, 30)
    timing, ready_s = flow.without_exchange(run, data, images.steps(run, data, count))
    sizes = [spec.size for spec in images.network(run, data).tensors]
    n = sum(sizes)
    run.section(f"{images.in_words(run)}, computed for real")
    kinds = {name: kind_of(arguments) for name, arguments in stacks.items()}
    found = calls.measure(run, data, {kind: kind for kind in kinds.values()})
    share = found[kinds[OVERLAP]].kept_share
    run.say(f"a step without any exchange, update included: {timing}")
    run.say(f"during a call computing keeps {share:.0%} of its speed")
    short = {name: kit.seconds(found[kind].seconds(0)) for name, kind in kinds.items()}
    run.say(f"a short call: {'; '.join(map(' '.join, short.items()))}")
    rows = []
    for name, arguments in stacks.items():
        run.opaque = run.opaque or arguments["allreduce"] is kit.mpi_allreduce
        call, csc = found[kinds[name]], arguments.get("csc")
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
    return {"rows": rows, "alone": timing, "elements": n, "kept_share": share}
