"""One allreduce by three models: closed form, SimGrid's fair links, SimGrid's calibrated TCP.

    found = models.compare(run)      on rank 0

A ring has 2(p-1) steps, and in each of them all p ranks send a p-th of the vector to the next one.
So SimGrid sends the messages of the first STEPS steps one by one, and its time is multiplied by
2(p-1) / STEPS. On 64 ranks this is the time of all steps to a thousandth (tests).
"""

from dataclasses import replace
from functools import cache

import kit
from refgf.comm.schedule import Schedule, Step
from refgf.comm.slices import slices
from refgf.plan import fabric, inputs, platforms, replay
from refgf.plan.systems import FLOAT32
from refgf.predict.cost import ring_allreduce_s

NETWORK, CLUSTER, FAT_TREE = "resnet50", "v100-56gbit", "fat-tree:2"
FORM, CONTENTION, TCP = "closed form", "contention", "calibrated TCP"
MODELS = {CONTENTION: "contention", TCP: "smpi"}  # names of refgf/plan/replay.py
IN_ORDER, ROUND_ROBIN = "in the order of the nodes", "round robin over the switches"
FAR = [1 << bit for bit in range(2, 13)]
STEPS = 4  # of a ring, sent by SimGrid


def compare(run: kit.Run) -> dict:
    """{"elements", "compute_s", "closed_s", "links", "tree", "missing"}; seconds of an allreduce.

    closed_s  {ranks: seconds}; the keys are strings, as in JSON
    links     {model: {ranks: seconds}}: a network with a link of its own for each node
    tree      {placement: {ranks: seconds}}: a fat tree with half as many links up, contention
    missing   why there is no `links` and no `tree`; empty if there are
    """
    network = fabric.load(CLUSTER)
    step, link = inputs.read_model(NETWORK, network, None, None), network.between
    found = {"elements": step.elements, "compute_s": step.compute_s, "missing": ""}
    form = {str(p): ring_allreduce_s(p, step.elements, FLOAT32, link) for p in FAR}
    found |= {"closed_s": form, "links": {}, "tree": {}}
    run.section("PREDICTED: one allreduce by three models")
    if not replay.installed():
        found["missing"] = f"SimGrid is not installed; {replay.INSTALL}"
    else:
        try:
            found |= simulated(run, step.elements, link)
        except (ValueError, OSError) as error:
            found["missing"] = str(error)
    report(run, found)
    return found


def simulated(run: kit.Run, elements: int, link) -> dict:
    def seconds(name: str, p: int, model: str, scattered: bool = False) -> float:
        platform = platforms.build(name, p, 1, link, link, True)
        if scattered:
            platform = replace(platform, hosts=round_robin(platform.hosts))
        first_s = replay.simulate(first_steps, elements, platform, link.gamma_s_per_byte, model)
        return first_s * 2 * (p - 1) / STEPS

    few, tree = run.quick([4], FAR[::2], FAR), run.quick([32], FAR[3:9:2], FAR[3:9])
    return {
        "links": {
            title: {str(p): seconds("one-link", p, model) for p in few}
            for title, model in MODELS.items()
        },
        "tree": {
            title: {str(p): seconds(FAT_TREE, p, "contention", scattered) for p in tree}
            for title, scattered in ((IN_ORDER, False), (ROUND_ROBIN, True))
        },
    }


def first_steps(rank: int, size: int, n: int) -> Schedule:
    """The first STEPS steps of a ring (refgf/comm/ring.py)."""
    parts = all_slices(n, size)
    right, left = (rank + 1) % size, (rank - 1) % size
    return [
        Step(right, parts[(rank - k) % size], left, parts[(rank - k - 1) % size], "add")
        for k in range(STEPS)
    ]


all_slices = cache(slices)


def round_robin(hosts: list[str]) -> list[str]:
    """The next rank sits below the next switch: 0, 16, 32, ..., 1, 17, ..."""
    leaf = platforms.leaf_size(len(hosts), FAT_TREE)
    return [host for first in range(leaf) for host in hosts[first::leaf]]


def report(run: kit.Run, found: dict) -> None:
    run.say(
        f"ring allreduce of ResNet-50's {found['elements']:,} float32 gradients, {CLUSTER}, ms;"
    )
    run.say(f"a step without exchange takes {1e3 * found['compute_s']:.0f} ms")
    if found["missing"]:
        run.tell(f"only the closed form: {found['missing']}")
    columns = {FORM: found["closed_s"]} | found["links"]
    columns |= {f"tree, {name.partition(' ')[0]}": row for name, row in found["tree"].items()}
    cells = [
        [p, *(f"{1e3 * row[p]:.1f}" if p in row else "" for row in columns.values())]
        for p in found["closed_s"]
    ]
    run.table(["ranks", *columns], cells)
    if found["tree"]:
        run.say(f"tree: {FAT_TREE}, contention. In the order of the nodes one message leaves each")
        run.say("switch. Round robin, every node's message does, over half as many links.")
