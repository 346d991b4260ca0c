"""Lesson 13's times: batches of synchronous training and of DASO, with the prediction of each.

    found = times.measure(run, data, nodes, PHASES, predicted_s)

A batch is timed inside an epoch, over whole cycles of B batches. The last batch of an epoch is
timed by itself.
"""

import numpy as np

import kit
from kit import virtual
from kit.experiment import say_star, star
from lab.daso.rare import DILOCO, H, rare
from lab.daso.scene import (
    HALF,
    OVERLAPPED,
    SYNCHRONOUS,
    Scene,
    synchronous,
    this_machine,
    virtual_scene,
)
from lab.daso.terms import measure_terms, synchronous_s
from refgf import ops
from refgf.exchange.precision import LossScale
from refgf.papers.daso.daso import DASO
from refgf.papers.daso.phases import Constant

BASELINES = {  # settings of `synchronous`
    SYNCHRONOUS: {},
    OVERLAPPED: {"overlap": True},
    HALF: {"overlap": True, "wire": np.float16, "loss_scale": LossScale(2.0**10)},
}


def measure(run: kit.Run, data, nodes, phases: dict, predicted_s) -> dict:
    """{"rows", "alone", "terms", "like", "dilation"}; all times are this machine's.

    phases       {name: Phase}
    predicted_s  (terms, phase) -> seconds of a batch inside an epoch
    """
    emulated = run.regime.like is not None
    scene = virtual_scene(run, nodes) if emulated else this_machine(run, data, nodes)
    found = measure_scene(run, scene, phases, predicted_s)
    show(run, found, SYNCHRONOUS)
    like = run.regime.like.name if emulated else None
    return found | {"like": like, "dilation": run.regime.dilation}


def measure_scene(run: kit.Run, scene: Scene, phases: dict, predicted_s) -> dict:
    """The baselines and these phases in one scene."""
    terms = measure_terms(run, scene)
    work = {name: term["work"] for name, term in terms.items()}
    total = {name: term["work"] + term["link"] for name, term in terms.items()}
    rows = []
    for name, settings in BASELINES.items():
        with synchronous(scene, **settings) as stack:
            warm_up(run, scene, stack, 1)
            batch = time_cycles(run, scene, stack, 1, run.quick(2, 3, 9))
        kinds = (synchronous_s(scene, each, settings) for each in (total, work))
        rows.append(row_of(name, scene, batch, *kinds))
    for name, phase in phases.items():
        cycle = max(1, phase.global_skip)
        cycles = run.quick(1, max(2, 3 // cycle), max(4, 12 // cycle))
        groups = len(scene.nodes[0])  # they take turns, and each allocates in its first cycle
        batches, constant = cycle * (groups + cycles) + 1, Constant(phase)
        with DASO(scene.comm, scene.model(), scene.nodes, constant, batches) as stack:
            warm_up(run, scene, stack, cycle * groups)
            before_s = stack.waited_s
            batch = time_cycles(run, scene, stack, cycle, cycles)
            waited_s = (stack.waited_s - before_s) / cycles
            last = run.slowest([seconds(run, scene, stack, 1)])
        row = row_of(name, scene, batch, *(predicted_s(each, phase) for each in (total, work)))
        # each sum is waited for by one rank of every node
        by_rank = run.plain.allgather(waited_s)
        row["waited_s"] = max(sum(by_rank[rank] for rank in node) for node in scene.nodes)
        rows.append(row | {"last": last, "phase": [phase.global_skip, phase.wait]})
    comm = scene.comm if scene.link else ops.background(scene.comm)
    with rare(comm, scene.model(), scene.nodes, DILOCO) as stack:
        warm_up(run, scene, stack, H)  # the outer step is not slept
        batch = time_cycles(run, scene, stack, H, run.quick(1, 2, 3))
    rows.append(row_of(DILOCO, scene, batch, *(diloco_s(each) for each in (total, work))))
    return {"rows": rows, "alone": scene.alone, "terms": terms}


def diloco_s(terms: dict[str, float]) -> float:
    """The predicted time of a batch: nothing hides the sum of the H-th one."""
    return terms["compute"] + terms["inner"] + (terms["all"] + terms["outer"]) / H


def warm_up(run: kit.Run, scene: Scene, stack, steps: int) -> None:
    """Steps that are not timed. A virtual accelerator sleeps only in the last.

    The first timed step may receive a sum that the last one has sent.
    """
    network = stack.model.network
    real = getattr(network, "pace", None)
    run.plain.Barrier()
    if real:
        network.pace = real.dilated(virtual.AT_ONCE)
    seconds(run, scene, stack, steps - 1)
    if real:
        network.pace = real
    seconds(run, scene, stack, 1)


def time_cycles(run: kit.Run, scene: Scene, stack, cycle: int, cycles: int) -> kit.Timing:
    """The Timing of a batch: that of a cycle divided by its batches."""
    return run.slowest([seconds(run, scene, stack, cycle) / cycle for _ in range(cycles)])


def seconds(run: kit.Run, scene: Scene, stack, steps: int) -> float:
    """This rank's seconds of so many steps."""
    start_s = run.clock()
    for _ in range(steps):
        stack.step(*next(scene.batches), rate=0.0)
    return run.clock() - start_s


def row_of(name: str, scene: Scene, batch: kit.Timing, predicted_s, work_s) -> dict:
    """A row of the table. own_share: the processor's work, without the update, in the batch."""
    share = None
    if scene.link and work_s is not None:
        share = max(0.0, work_s - scene.alone.median_s) / batch.median_s
    return {"name": name, "batch": batch, "predicted_s": predicted_s, "own_share": share}


def show(run: kit.Run, times: dict, baseline: str) -> None:
    """The table of batch times, in the emulated cluster's time, and the terms."""
    factor, rows = run.regime.dilation, times["rows"]
    base_s = next(row["batch"].median_s for row in rows if row["name"] == baseline)
    virtual_ = run.regime.like is not None
    here = "the small network, on this machine"
    run.section(
        f"Time of a batch: {f'ResNet-50 like {run.regime.like.name}' if virtual_ else here}"
    )
    names = {"node": "l, node", "sum": "G", "sum bfloat16": "G, bfloat16"}
    names |= {"spread": "s, broadcast", "merge": "h, merge", "all": "all gradients"}
    terms = times["terms"]
    run.say(f"c, a batch without exchange: {times['alone'].divided(factor)}; the other terms:")
    run.table(
        ["", *names.values()],
        [
            [kind, *(kit.seconds(terms[name][kind] / factor) for name in names)]
            for kind in ("work", "link")
        ],
    )
    run.say()
    run.table(
        ["", "batch", "predicted", "saved", "waits", "last batch", "here"],
        [
            [
                row["name"] + star(row["own_share"]),
                row["batch"].divided(factor),
                kit.seconds(row["predicted_s"] / factor) if row["predicted_s"] else "-",
                f"{100 * (1 - row['batch'].median_s / base_s):.0f} %",
                kit.seconds(row["waited_s"] / factor) if row.get("phase", [0])[0] else "-",
                kit.seconds(row["last"].median_s / factor) if "last" in row else "-",
                kit.seconds(row["batch"].median_s),
            ]
            for row in rows
        ],
    )
    run.say("saved: against synchronous; waits: for a sum; here: in this machine's time")
    if not virtual_:
        run.say("these ranks compute on the cores that also send, add and merge: both take longer")
    say_star(run, rows, "this batch is the processor's work of the exchange")
    share = 1 - times["alone"].median_s / base_s
    run.say(f"communication is {100 * share:.0f} % of a synchronous step")
    pairs = [(row["predicted_s"], row["batch"].median_s) for row in rows if row["predicted_s"]]
    run.say(kit.errors_in_words(pairs))
