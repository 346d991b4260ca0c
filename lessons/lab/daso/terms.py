"""The terms of lesson 13's prediction: how long the processors work, and how long the link does.

The link's share follows from the cluster's description. The processor's share of a sum over nodes
is measured without a network (`InstantComm`), and what happens inside a node is measured there.
"""

import numpy as np

import kit
from lab.daso.rare import DILOCO, rare
from lab.daso.scene import Scene, place_of
from refgf import ops
from refgf.comm import ring, tree
from refgf.comm.compose import on_ranks
from refgf.comm.schedule import collective, execute
from refgf.comm.slices import chunks, slices
from refgf.machine.accelerator import InstantComm
from refgf.papers.daso.bfloat16 import ring_on_ranks
from refgf.papers.daso.daso import CHUNK_ELEMENTS, DASO, merge
from refgf.papers.daso.phases import BLOCKING, Constant
from refgf.papers.jia.hierarchical import two_level_ring
from refgf.predict import timeline
from refgf.predict.cost import Line


def measure_terms(run: kit.Run, scene: Scene) -> dict[str, dict[str, float]]:
    """{name: {"work": seconds of the processors, "link": seconds of the link}}.

    compute, node, spread, merge, sum, sum bfloat16, all, all float16, latency: see the lesson.
    inner, outer: DiLoCo's mean in a node with its scaling, and its outer step without the sum.
    """
    repeats, place = run.quick(2, 3, 7), place_of(run, scene)
    between = InstantComm(run.rank, run.size) if scene.link else ops.background(scene.comm)
    group = [node[place] for node in scene.nodes]

    def median_s(function) -> float:
        w[:] = 2.0**-10  # repeated sums must not overflow
        return time_without_spinning(run, function, repeats).median_s

    def sums(wire):
        call = ring_on_ranks(between, group, wire) if place == 0 else lambda x: None
        return lambda: [call(w[part]) for part in chunks(w.size, CHUNK_ELEMENTS)]

    def merges() -> None:
        if place == 0:
            sent = w.copy()
            ops.unscale(sent, 1)
            merge(w, sent, len(scene.nodes), 1)

    with rare(ops.background(run.native), scene.model(), scene.nodes, DILOCO, False) as stack:
        w = stack.model.parameters.flat
        inner_s, outer_s = median_s(stack.finish), median_s(lambda: outer(stack))
    with DASO(scene.comm, scene.model(), scene.nodes, Constant(BLOCKING), 1) as stack:
        w = stack.model.parameters.flat
        work = {
            "compute": scene.alone.median_s,
            "node": median_s(stack.finish),
            "spread": median_s(lambda: stack.spread(0)),
            "merge": median_s(merges),
            "sum": median_s(sums(None)),
            "sum bfloat16": median_s(sums("bfloat16")),
            "all": median_s(all_gradients(run, scene, between, w, None)),
            "all float16": median_s(all_gradients(run, scene, between, w, np.float16)),
            "latency": 0.0,
            "inner": inner_s,
            "outer": outer_s,
        }
    link = link_terms(scene, w.size)
    return {name: {"work": s, "link": link.get(name, 0.0)} for name, s in work.items()}


def outer(stack) -> None:
    """An outer step that is due."""
    stack.inner = 1
    stack.synchronise()


def time_without_spinning(run: kit.Run, function, repeats: int) -> kit.Timing:
    """As `run.time`, but a rank that has finished sleeps, because others need its core."""
    mine, sleeping = [], collective(ops.background(run.native), tree.allreduce)
    for _ in range(1 + repeats):
        mine.append(run.timed(function))
        sleeping(np.zeros(1))
    return run.slowest(mine[1:])


def link_terms(scene: Scene, n: int) -> dict[str, float]:
    """What each term waits for the link; {} if it is unknown.

    A ring over m nodes sends 2(m-1)/m of its bytes. One rank of a node sums all parameters; all
    gradients are summed by the k ranks of a node, n/k by each.
    """
    if not scene.link:
        return {}
    m, share = len(scene.nodes), scene.sharing / len(scene.nodes[0])

    def ring_s(nbytes: float) -> float:
        return 2 * (m - 1) * (scene.link.alpha_s + nbytes / m * scene.link.beta_s_per_byte)

    return {
        "sum": ring_s(4 * n),
        "sum bfloat16": ring_s(2 * n),
        "all": ring_s(4 * n * share),
        "all float16": ring_s(2 * n * share),
        "latency": ring_s(0),
    }


def all_gradients(run: kit.Run, scene: Scene, between, w, wire):
    """A function: the work of the two-level ring, in the node and then over the nodes."""
    comm, scratch = ops.background(scene.comm), {}
    if not scene.link:
        call = collective(comm, two_level_ring(scene.nodes), wire)
        return lambda: call(w)
    i = next(i for i, node in enumerate(scene.nodes) if run.rank in node)
    j, k, m = place_of(run, scene), len(scene.nodes[i]), len(scene.nodes)
    own = slices(w.size, k)[(j + 1) % k]
    owners = [node[j] for node in scene.nodes]
    inside = on_ranks(scene.nodes[i], ring.allreduce(j, k, w.size))
    over = on_ranks(owners, ring.allreduce(i, m, own.stop - own.start), own.start)

    def both() -> None:
        execute(comm, inside, w, wire, scratch)
        execute(between, over, w, wire, scratch)

    return both


def synchronous_s(scene: Scene, terms: dict, settings: dict) -> float | None:
    """The predicted step of a baseline, by the timeline of lesson 04; None: unknown."""
    overlap = bool(settings.get("overlap"))
    if scene.ready is None:
        return None if overlap else terms["compute"] + terms["all"]
    itemsize = np.dtype(settings.get("wire") or np.float32).itemsize
    ready, slept_s = scene.ready
    gradients = [(ready_s, itemsize * n) for ready_s, n in ready]
    nbytes = sum(size for _, size in gradients)
    a_s = terms["latency"]
    line = Line(a_s, (terms["all float16" if itemsize == 2 else "all"] - a_s) / nbytes)
    groups = timeline.lazy(gradients, scene.theta)
    step = timeline.predict(gradients, groups, line, overlap, slept_s)
    return step.step_s + terms["compute"] - slept_s
