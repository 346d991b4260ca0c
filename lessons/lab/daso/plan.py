"""The plan of an epoch of DASO: who sends, and when a sum is received."""

import kit
from refgf.papers.daso.phases import Phase


def show(run: kit.Run, nodes, phase: Phase, per_epoch: int = 10) -> None:
    """Print what happens in each batch of an epoch."""
    run.section(f"One epoch of {per_epoch} batches with B = {phase.global_skip}, W = {phase.wait}")
    rows, due = [], {}
    for b in range(per_epoch):
        group, received = phase.sender(b, per_epoch, len(nodes[0])), due.pop(b, "")
        if group is not None:
            waited = phase.wait_after(b, per_epoch)
            due[b + waited] = f"of batch {b}, own weight {2 * waited} of {2 * waited + len(nodes)}"
            received = received if waited else "immediately: equal parameters on all ranks"
        averaged = "yes" if phase.averages(b, per_epoch) else "no"
        rows.append([b, averaged, "" if group is None else f"group {group}", received])
    run.table(["batch", "averaged in the node", "parameters sent by", "received"], rows)
