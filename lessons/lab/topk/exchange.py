"""Lesson 12: time and bytes of each exchange of full-size gradients, with predictions.

Two times are measured apart:

    messages   on the cluster; what is sent was chosen before
    own work   the whole exchange without a network, on one core: residual, choice, packing, sums

Prediction of the messages: the formula with the link's latency and rate, plus copies and additions
measured without a network. HiTopKComm in its nodes: 8 times what an eighth of the vector takes.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

import kit
from kit import flow, images, virtual
from kit.experiment import MOST_OWN, star
from lab.topk.choice import heavy_tail, place, time_on_one_rank
from lab.topk.methods import KINDS, Case
from lab.topk.traffic import leaving_at, require_bytes
from refgf.comm import gather
from refgf.comm.topology import nodes as nodes_of
from refgf.machine.accelerator import InstantComm
from refgf.papers.mstopk.cost import gather_s
from refgf.predict.cost import Link, ring_allreduce_s

NETWORK = "alexnet"
PART = 8  # messages inside a node are predicted from a vector this much shorter
PERCENTS = (10.0, 1.0)
MS, MB = 1e3, 1e-6
SHOWN = [("dense ring", 100.0)] + [
    (kind, percent) for percent in PERCENTS for kind in ("CSC", "top-k", "HiTopKComm")
]


# ---- predictions of the messages ----


@dataclass(frozen=True)
class Links:
    """between: of a rank's messages to another node; shared: if all ranks of a node send there."""

    between: Link
    shared: Link
    inside_s: float

    @staticmethod
    def of(run: kit.Run, case: Case, x) -> "Links":
        between = run.regime.goodput() or fitted_link(run, case.n)
        real = len(nodes_of(run.plain)) == len(case.nodes)
        share = len(case.nodes[0]) if real else 1
        shared = Link(between.alpha_s, share * between.beta_s_per_byte)
        node = next(node for node in case.nodes if run.rank in node)
        short, inside_s = x[: case.n // PART], 0.0
        if len(node) > 1:
            phases = gather.reduce_scatter(run.comm, node), gather.allgather_slices(run.comm, node)
            timing = run.time(lambda: [phase(short) for phase in phases], run.quick(2, 3))
            inside_s = PART * timing.median_s
        return Links(between, shared, inside_s)


def fitted_link(run: kit.Run, n: int) -> Link:
    """The link of this machine as it is, fitted to rings that are shorter than the exchange."""
    line = flow.fit_allreduce(run, [256, n // 8, n // 2], repeats=run.quick(2, 5)).line
    steps = max(1, 2 * (run.size - 1))
    return Link(line.a_s / steps, line.b_s_per_byte * run.size / steps)


def network_s(kind: str, p: int, case: Case, links: Links) -> float:
    """The formula of each kind of exchange, without copies and additions."""
    if kind == "dense ring":
        return ring_allreduce_s(p, case.n, 4, links.between)
    if kind == "CSC":
        norms_s = ring_allreduce_s(p, len(case.chunks) + 1, 8, links.between)
        return ring_allreduce_s(p, case.packed, 4, links.between) + norms_s
    if kind == "top-k":
        return gather_s(p, case.k, 4, links.between)
    return links.inside_s + gather_s(len(case.nodes), case.slice_k, 4, links.shared)


# ---- the measurement ----


def measure(run: kit.Run, nodes: list[list[int]], n: int) -> dict:
    """{"rows", "elements", "nodes", "ranks_per_node", "compute_s"}; times are this machine's."""
    run.section(f"The exchange of {n:,} gradients")
    x = run.xp.full(n, 1e-3, np.float32)
    links = Links.of(run, Case(n, 1.0, nodes, run.xp), x)
    formulas = run.plain.bcast(run.on_rank_0(lambda: leaving_at(SHOWN, n, nodes)))
    rows = [measure_row(run, kind, Case(n, d, nodes, run.xp), links, x) for kind, d in SHOWN]
    for row, formula in zip(rows, formulas):
        row["formula"] = formula
        require_bytes(row)
    del x
    cases = [(kind, Case(n, percent, nodes, run.xp)) for kind, percent in SHOWN]
    works = run.plain.bcast(run.on_rank_0(lambda: own_work(run, cases)))
    for row, work in zip(rows, works):
        row["own"] = work
    compute_s = virtual.pace(run, NETWORK).end_s if run.regime.like else 0.0
    for row in rows:
        own_s = {way: timing.median_s for way, timing in row["own"].items()}
        others_s = compute_s + row["messages"].median_s
        row["own_share"] = {way: s / (s + others_s) for way, s in own_s.items()}
    print_rows(run, rows, compute_s)
    return {
        "rows": rows,
        "elements": n,
        "nodes": len(nodes),
        "ranks_per_node": len(nodes[0]),
        "compute_s": compute_s,
    }


def measure_row(run: kit.Run, kind: str, case: Case, links: Links, x) -> dict:
    """Bytes, counted, and the time of the messages, measured and predicted."""
    messages, _ = KINDS[kind]
    x[:] = 1e-3
    send, repeats = messages(run.comm, case, x), run.quick(2, 3, 7)
    run.comm.reset()
    timing = run.time(send, repeats, warmup=0)
    inside, between = (sent // repeats for sent in bytes_of_first_node(run, case.nodes))
    predicted_s = network_s(kind, run.size, case, links)
    if kind != "HiTopKComm":  # its copies and additions are in links.inside_s
        copies = messages(InstantComm(run.rank, run.size), case, x)
        predicted_s += run.time(copies, run.quick(1, 2)).median_s
    return {
        "name": kind,
        "percent": case.percent,
        "inside": inside,
        "between": between,
        "messages": timing,
        "predicted_s": predicted_s,
    }


def bytes_of_first_node(run: kit.Run, nodes: list[list[int]]) -> tuple[int, int]:
    """Bytes that the first node's ranks have sent (inside it, to other nodes). Collective."""
    home = next(node for node in nodes if run.rank in node)
    near = sum(nbytes for peer, (_, nbytes) in run.comm.peers.items() if peer in home)
    sent = run.plain.allgather((near, run.comm.bytes - near))
    return tuple(sum(sent[rank][i] for rank in nodes[0]) for i in (0, 1))


def own_work(run: kit.Run, cases: list[tuple]) -> list[dict[str, kit.Timing]]:
    """{way of choosing: Timing} of each exchange without a network, on this rank."""
    x, works = run.array(heavy_tail(cases[0][1].n)), []
    y = run.xp.empty_like(x)

    def step(exchange) -> None:
        y[:] = x  # one copy, counted as own work
        exchange(y)

    for kind, case in cases:
        works.append({})
        for way, make in KINDS[kind][1].items():
            exchange = make(InstantComm(0, run.size), case)
            works[-1][way] = time_on_one_rank(run, partial(step, exchange), run.quick(1, 2, 5))
    return works


def print_rows(run: kit.Run, rows: list[dict], compute_s: float) -> None:
    factor = run.regime.dilation
    ms = MS / factor
    cells = []
    for row in rows:
        timing = row["messages"]
        times = [timing.median_s, timing.low_s, timing.high_s, row["predicted_s"]]
        middle, low, high, predicted = (f"{ms * t:.3g}" for t in times)
        for way, own in row["own"].items():
            cells.append(
                [
                    label(row, way),
                    f"{MB * row['inside']:,.1f}",
                    f"{MB * row['between']:,.1f}",
                    f"{middle} [{low}..{high}]",
                    predicted,
                    f"{ms * own.median_s:.3g}{star(row['own_share'][way])}",
                    kit.seconds(timing.median_s),
                ]
            )
    header = ["exchange", "MB inside", "outside", "messages, ms", "predicted", "own work, ms"]
    run.table([*header, "here"], cells)
    whose = f"like {run.regime.like.name}" if run.regime.like else "of this machine"
    run.say("MB inside, outside: sent by the first node's ranks to each other, to other nodes")
    run.say(
        f"ms {whose}: this machine's time divided by {factor:.4g}. here: messages, this machine's "
        f"time.\nown work: {place(run)} without a network, choice included."
    )
    if compute_s:
        run.say(
            f"A step computes for {kit.seconds(compute_s / factor)} (slept). "
            f"*: own work above {MOST_OWN:.0%} of the step."
        )
    else:
        run.say(
            f"*: own work above {MOST_OWN:.0%} of messages and own work. Nothing is slept:\n"
            "ranks choose on the cores that also send and compute."
        )
    run.say(kit.errors_in_words([(r["predicted_s"], r["messages"].median_s) for r in rows]))


def label(row: dict, way: str = "") -> str:
    """dense ring; top-k 1 %, exact."""
    if row["name"] == "dense ring":
        return row["name"]
    return f"{row['name']} {row['percent']:g} %{', ' + way if way else ''}"


def elements(run: kit.Run, data) -> int:
    """Gradients of the network: full AlexNet; on this machine as it is, the small one."""
    if run.regime.like is None:
        return images.parameter_count(run, data)
    return sum(tensor.elements for tensor in virtual.workload(run, NETWORK).tensors)
