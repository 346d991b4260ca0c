"""The answer of `plan`: a dictionary for --json, and the same as text of at most 100 columns."""

from collections.abc import Callable
from dataclasses import replace
from math import ceil, log2
from textwrap import wrap
from typing import Any

from refgf.plan import buckets, judged, nccl
from refgf.plan.measurements import MOST
from refgf.plan.question import FLOAT32, NCCL, Question, in_gap, ranges, slowest
from refgf.plan.systems import CSC_PERCENT, DASO_EVERY, DASO_WAIT, SYSTEMS, TOPK_DENSITY
from refgf.plan.uncertainty import curve, planned
from refgf.predict.cost import Link

LARGEST, COLUMNS = 4096, 100
MOST_GIB = 8  # of a message that nccl-tests is advised to send (chosen)
MEASURE = {
    "alpha": "measure",
    "beta": "measure or all_reduce_perf",
    "hops": "--inside",
    "inside": "--inside",
    "ring": "all_reduce_perf",
    "tcp": "all_reduce_perf on as many nodes",
    "sizes": "the sizes that the warning names",
    "missed": "a measured step on as many ranks",
    "overlap": "a trace with and without exchange, and --overlap",
    "pace": "a torch.profiler trace as --model",
}
MEANING = {
    "alpha": "s a message",
    "beta": "s a byte",
    "hops": "s a message between nodes",
    "inside": "s a message and a byte inside a node",
    "ring": "s of latency a step of the flat ring",
    "tcp": "s a byte between nodes over TCP",
    "sizes": "s of the call that is farthest from the measured sizes",
    "missed": "what no formula has, of the whole step",
    "overlap": "speed of backward during a call",
    "pace": "s of computing",
}


def answer(question: Question, on: Callable[[int], Question] | None = None) -> dict[str, Any]:
    """Everything that the text says, in seconds and bytes; a missing system is null.

    on: the question on other ranks, if more of it changes than their number.
    """
    question.require_inside()
    on = on or (lambda size: replace(question, size=size))
    systems = {}
    advised = question.fabric.alpha_known and question.size > 1
    for name, system in SYSTEMS.items():
        found = planned(name, question)
        systems[name] = found and {
            "step_s": found.step_s,
            "low_s": found.low_s,
            "high_s": found.high_s,
            "efficiency_percent": 100 * question.step.compute_s / found.step_s,
            "widths": found.widths,
            "widest_input": found.widest,
            "theta_bytes": system.best_theta(question) if advised else None,
            "memory_bytes": float(system.bytes_per_rank(question)),
            "room": question.fabric.room(system.bytes_per_rank(question)),
        }
    link, step = question.fabric.between, question.step
    return {
        "refgf_plan": 1,
        "label": "predicted",
        "units": {"time": "s", "size": "bytes"},
        "model": {"name": step.name, "source": step.source, "gradients": len(step.ready)}
        | {"elements": step.elements, "compute_s": step.compute_s, "batch": step.batch}
        | {"measured": step.measured, "notes": list(step.notes)},
        "network": {"name": question.fabric.name, "source": question.fabric.source}
        | costs(link)
        | {"rate_known": question.fabric.rate_known}
        | {"inside_known": question.fabric.inside is not None}
        | {"inside": costs(question.inside) | {"source": question.fabric.inside_source}}
        | {"notes": network_notes(question), "measured": question.measured},
        "ranges": {name: list(both) for name, both in ranges(question).items()},
        "ranks": question.size,
        "ranks_per_node": question.per_node,
        "overlap": question.overlap,
        "allreduce": question.allreduce,
        "systems": systems,
        "refgf": buckets.of_theta(question) if advised else None,
        "pytorch": buckets.of_ddp(question) if advised else None,
        "horovod": buckets.of_horovod(question) if advised else None,
        "efficiency_percent": curve(on, sizes(question.ranks_per_node)),
        "on_a_real_cluster": judged.steps(),
    }


def costs(link: Link) -> dict[str, float]:
    return {"alpha_s": link.alpha_s, "beta_s_per_byte": link.beta_s_per_byte}


def network_notes(question: Question) -> list[str]:
    """What the reader should know of the network and of options without an effect."""
    fabric, k = question.fabric, question.per_node
    used = {"between": question.nodes > 1, "inside": k > 1}
    doubts = [said for which, said in fabric.doubts.items() if used[which]]
    found = [*question.text_notes, *doubts, *question.unmodelled.notes]
    on, left, by = fabric.lines_per_node, "", "the fitted link"
    if question.planned_nccl:
        link, (least, most) = fabric.nccl.between, nccl.fitted(*fabric.nccl_times)[1]
        by = "NCCL's model with the links that fit best"
        nvlink = " and, not known, an NVLink inside one, which limits no rate (--inside)"
        nvlink = nvlink if fabric.inside is None and k > 1 else ""
        found.append(
            f"The measured times are {least:.2f} to {most:.2f} times those of NCCL's model with "
            f"{in_words(costs(link), fabric.rate_known)} between nodes{nvlink}."
        )
    if question.measured:
        found.append("A call of a measured size takes the text's time and scatter, of one run.")
    if question.allreduce != NCCL:
        left = " What published steps took longer than formulas is left out (--allreduce nccl)."
    if on not in (0, k) and question.size > 1:
        found.append(
            f"The allreduce was measured with {on} a node and is predicted with {k}, by {by}. "
            f"The measured times are used for --ranks {' or '.join(map(str, fabric.lines))} "
            f"--ranks-per-node {on}."
        )
        if question.nodes > 1:
            found.append(
                f"WARNING: with {k} a node there may be {'more' if on < k else 'fewer'} adapters "
                f"than with the {on} that were measured: the interval of beta holds an adapter for "
                f"each. Better: the text of an allreduce with {k} a node."
            )
    elif question.extrapolated:
        measured = " and ".join(map(str, sorted(fabric.lines)))
        found.append(
            f"Measured on {measured} ranks, predicted for {question.size} by {by}: the "
            "intervals are at least the chosen ones, and have no contention of more nodes, but "
            f"less of fewer.{left}"
        )
        if question.planned_nccl and measured == "2":
            found[-1] = f"WARNING: {found[-1]} On 2 ranks a ring and a tree are the same, so the "
            found[-1] += "text does not say which more ranks use. Measure on 4 or more."
    if question.two_levels and fabric.inside is None and fabric.ring_hop is None:
        found.append(
            "WARNING: the link between nodes stands for that inside a node. The intervals hold one "
            f"that is up to {MOST:g} times as fast, but none that is slower. Add --inside."
        )
    found += [outside(question)] if question.outside or question.gaps else []
    if question.pays_slowest_hop:
        mean_us, most_us = 1e6 * question.mean_alpha_s, 1e6 * slowest(*question.links).alpha_s
        found.append(
            f"A step of the flat ring waits for its slowest hop, {most_us:.3g} us of latency. "
            f"NCCL's ranks do not wait for each other and pay the mean hop, {mean_us:.3g} us: the "
            "intervals hold both."
        )
    if question.ranks_per_node > question.size:
        found.append(
            f"--ranks-per-node {question.ranks_per_node} is more than --ranks {question.size}: "
            "all ranks are on one node."
        )
    if k == 1 and fabric.inside_source == "--inside" and fabric.ring_hop is None:
        found.append("--inside has no effect with 1 rank a node: add --ranks-per-node.")
    return found


def outside(question: Question) -> str:
    """A warning of calls that are shorter or longer than all that the text has, or in a gap."""
    (least, *_, most), whole = question.sizes, FLOAT32 * question.step.elements
    largest = FLOAT32 * max(elements for _, elements in question.step.ready)
    said = "".join(in_gap(*each) for each in question.gaps)
    if whole > most:
        said += f" The longest measured message has {most:,.0f} bytes. A call may have {whole:,}, "
        said += f"all gradients, or {largest:,}, the largest one."
    if question.outside and question.outside[0] < least:
        said += f" The shortest measured message has {least:,.0f} bytes, and the smallest gradient "
        said += f"{question.outside[0]:,}."
    low, high = ranges(question)["sizes"]
    end = min(MOST_GIB, 1 << max(0, ceil(log2(whole / (1 << 30)))))
    again = f"all_reduce_perf with -b 4 -e {end}G -f 2"
    if question.fabric.name.startswith("OSU"):
        again = f"osu_allreduce with -m 4:{end << 30} -M {end << 31}"
    return (
        f"WARNING:{said} Such calls are planned from the nearest sizes. The intervals hold "
        f"{low:.2g} to {high:.2g} times the time of the farthest. Run {again}."
    )


def sizes(ranks_per_node: int) -> list[int]:
    """1, 2, 4, ... 4096; full nodes only where a node does not hold a power of two."""
    if ranks_per_node & (ranks_per_node - 1) == 0:
        return [1 << bit for bit in range(LARGEST.bit_length())]
    doubled = [ranks_per_node << bit for bit in range(LARGEST.bit_length())]
    return [1, *(size for size in doubled if size <= LARGEST)]


def text(found: dict[str, Any]) -> str:
    model, network = found["model"], found["network"]
    each = "ranks" if found["ranks"] > 1 else "rank"
    ranks = f"{found['ranks']} {each}, {found['ranks_per_node']} on a node (--ranks-per-node)"
    each = f"a batch of {model['batch']} on each, " if model["batch"] else ""
    flat = "allreduce as measured" if network["measured"] else found["allreduce"]
    link = in_words(network, network["rate_known"])
    tensors = "1 tensor" if model["gradients"] == 1 else f"{model['gradients']} tensors"
    head = [
        f"{model['name']}: {model['elements']:,} gradients in {tensors}, "
        f"{1e3 * model['compute_s']:.1f} ms a step without exchange ({model['source']})",
        *model["notes"],
        f"{network['name']}: {link} between nodes ({network['source']})",
        *inside_lines(found),
        *network["notes"],
        f"Predicted for {ranks}, {each}flat {flat};",
        f"calls run during backward, which keeps {kept(found)} % of its speed (--overlap)",
    ]
    lines = [
        *(part for line in head for part in wrap(line, COLUMNS, subsequent_indent="    ")),
        "",
        *step_table(found),
        "",
        *bucket_lines(found),
        "",
        *efficiency_table(found["efficiency_percent"]),
    ]
    return "\n".join(lines + notes(found))


def kept(found: dict[str, Any]) -> str:
    """The share of its speed that backward keeps, or its range, in percent."""
    most = 100 * found["overlap"]
    least = most * found["ranges"].get("overlap", [1.0, 1.0])[1]
    return f"{most:.0f}" if least == most else f"{least:.0f} to {most:.0f}"


def in_words(link: dict[str, Any], known: bool = True) -> str:
    rate = 8e-9 / link["beta_s_per_byte"]
    said = f"{rate:.3g}" if rate < 1000 else f"{rate:,.0f}"
    return f"{1e6 * link['alpha_s']:,.4g} us and {'' if known else 'at least '}{said} Gbit/s"


def inside_lines(found: dict[str, Any]) -> list[str]:
    """The link that ranks of a node use among themselves."""
    network = found["network"]
    if found["ranks_per_node"] == 1:
        return []
    if not network["inside_known"]:
        same = network["inside"]["alpha_s"] == network["alpha_s"]
        link = "link between nodes" if same else "mean hop of the measured ring"
        return [f"inside a node: not known, so the {link} stands for it (--inside)"]
    source = network["inside"]["source"] or "no source"
    return [f"inside a node: {in_words(network['inside'])} ({source})"]


def step_table(found: dict[str, Any]) -> list[str]:
    lines = [
        "system         step ms     lowest .. highest   efficiency   widest input   memory MB"
        "   theta MB"
    ]
    for name, row in found["systems"].items():
        if row is None:
            lines.append(f"{name:<12} needs more than one rank a node and more than one node")
            continue
        low, high = 1e3 * row["low_s"], 1e3 * row["high_s"]
        lines.append(
            f"{name:<12} {1e3 * row['step_s']:9.1f} {low:10.1f} .. {high:<7.1f}"
            f"{row['efficiency_percent']:11.1f} %   {row['widest_input']:<12}"
            f"{1e-6 * row['memory_bytes']:12.0f}   {megabytes(row['theta_bytes']):>8}"
        )
        lines += [f"{'':<13}{row['room']}"] * bool(row["room"])
    return lines


def megabytes(theta: int | None) -> str:
    return "-" if theta is None else f"{1e-6 * theta:.4g}"


def bucket_lines(found: dict[str, Any]) -> list[str]:
    ddp, horovod, ours = found["pytorch"], found["horovod"], found["refgf"]
    if ours is None and found["ranks"] == 1:
        return ["No theta and no bucket is advised: one rank exchanges nothing."]
    if ours is None:
        return ["No theta and no bucket is advised: alpha, which decides them, is not known."]
    lines = [theta_line(ours), f"             {flat_in_words(ours)}", ddp_line(ddp), fused(horovod)]
    ddp_s = ddp["default_step_s"] if ddp["keep_default"] else ddp["step_s"]
    others = {"PyTorch DDP": ddp_s, "Horovod": horovod["step_s"]}
    faster = [name for name, s in others.items() if s < (1 - buckets.EQUAL) * ours["step_s"]]
    if faster:
        why = "faster than the best theta, which is one size for all calls"
        lines.append(f"             {' and '.join(faster)}: {why}")
    return lines


def theta_line(ours: dict[str, Any]) -> str:
    """A call waits for theta bytes. Of equally short steps the thetas, not one of them."""
    eager_ms, ties, all_bytes = 1e3 * ours["sweep"][0], ours["ties"], ours["all_bytes"]
    step = f"{1e3 * ours['step_s']:.1f} ms a step"
    if len(ties) == len(ours["sweep"]):
        return f"refgf        any Theta, a tie: {step}"
    best = f"Theta({ours['theta_bytes']})"
    if ours["theta_bytes"] == all_bytes:
        best += ", one call"
    elif len(ties) > 1:
        best = f"Theta({ties[0]}) to Theta({ties[-1]}), a tie"
    eager = f" (eager: {eager_ms:.1f} ms)" if ties[0] else ""
    return f"refgf        {best}: {step}{eager}"


def ddp_line(ddp: dict[str, Any]) -> str:
    """The best bucket, or the default where no bucket beats it by more than FLAT."""
    best = f"bucket_cap_mb={ddp['bucket_cap_mb']}: {1e3 * ddp['step_s']:.1f} ms"
    default = f"default, 1 then 25: {1e3 * ddp['default_step_s']:.1f} ms"
    if ddp["keep_default"]:
        return f"PyTorch DDP  keep the {default} a step ({gain(ddp)})"
    return f"PyTorch DDP  {best} a step ({default})"


def fused(horovod: dict[str, Any]) -> str:
    """Horovod's best threshold, or its default where none beats it by more than FLAT."""
    default = f"default, 128 MiB: {1e3 * horovod['default_step_s']:.1f} ms"
    if horovod["keep_default"]:
        return f"Horovod      keep the {default} a step ({gain(horovod)})"
    best = f"HOROVOD_FUSION_THRESHOLD={horovod['fusion_threshold_bytes']}"
    return f"Horovod      {best}: {1e3 * horovod['step_s']:.1f} ms a step ({default})"


def gain(found: dict[str, Any]) -> str:
    """What the best size gains over the default that is kept."""
    best_s = min(found["sweep"].values())
    if found["default_step_s"] <= (1 + buckets.EQUAL) * best_s:
        return "no size that was tried is faster"
    share = f"{100 * (found['default_step_s'] / best_s - 1):.1f} %"
    return f"the best size is {share} faster"


def flat_in_words(ours: dict[str, Any]) -> str:
    """The thetas around the best whose steps are at most FLAT longer. Theta: bytes of a call."""
    near, slower = ours["near"], f"{100 * buckets.FLAT:g} % slower"
    if len(near) == 1:
        return f"a call waits for theta bytes; those tried next to it are more than {slower}"
    return f"a call waits for theta bytes; {near[0]:,} to {near[-1]:,} are at most {slower}"


def efficiency_table(curves: dict[str, dict[int, float | None]]) -> list[str]:
    lines = ["Scaling efficiency in percent, T(exchange off) / T(exchange on)"]
    wide = {name: max(8, len(name) + 2) for name in curves}
    lines.append(" ranks" + "".join(f"{name:>{wide[name]}}" for name in curves))
    for size in next(iter(curves.values())):
        row = {name: curves[name][size] for name in curves}
        cells = {name: "-" if value is None else f"{value:.1f}" for name, value in row.items()}
        lines.append(f"{size:>6}" + "".join(f"{cells[name]:>{wide[name]}}" for name in row))
    if None in curves["eager"].values():
        lines.append("No eager: ranks of one node, whose link is not known (--inside).")
    return lines


def left_out(found: dict[str, Any]) -> list[str]:
    if "missed" in found["ranges"]:
        return [
            "No formula has these, so missed stands for them, on any number of ranks: casts,",
            "choosing chunks and top-k, contention, stragglers, loading of data.",
        ]
    return [
        "Not included, so efficiencies are mostly too high: casts, choosing chunks and top-k,",
        "contention, stragglers, and what TCP adds to alpha and beta (--simulate: calibrated TCP).",
    ]


def on_real_clusters(found: dict[str, Any]) -> list[str]:
    if "missed" in found["ranges"]:
        return ["How right such intervals are on published steps: refgf predict score."]
    return [
        "{published}: {slower_than_predicted} of {steps} took longer than these formulas say, "
        "{inside_the_interval} were".format_map(found["on_a_real_cluster"]),
        "inside an interval of alpha, beta and pace (docs/scale.md has such comparisons).",
    ]


def notes(found: dict[str, Any]) -> list[str]:
    widest = {row["widest_input"] for row in found["systems"].values() if row} - {"none"}
    least = f"{100 * buckets.FLAT:g} %"
    lines = [
        "",
        "theta is the best of each row, in MB on the wire; DASO's is of the sums in a node.",
        "An interval keeps the calls of the row's step: theta is not chosen again at its ends.",
        f"A default is kept unless a size is more than {least} faster: time per call that no input",
        "explains would hide less.",
        "half, CSC and hierarchy16 send float16.",
        f"CSC: {CSC_PERCENT:g} % of the chunks and a call of their norms, in the flat ring. "
        f"top-k: {100 * TOPK_DENSITY:g} %, after backward.",
        f"DASO: a sum between nodes every {DASO_EVERY} batches (B), used {DASO_WAIT} later (W).",
        *left_out(found),
        "Memory of a rank: weights, gradients and momentum (float32, 12 bytes a parameter), and",
        "what the system adds: float16 gradients, residual, scratch. Activations are left out.",
        *on_real_clusters(found),
    ]
    for name, (low, high) in sorted(found["ranges"].items()):
        least, most = sorted((low, high))  # less overlap is slower
        said = f"{name}, {MEANING[name]}: {least:.2f} to {most:.2f} times the value"
        narrowed = name not in widest or (name == "pace" and found["model"]["measured"])
        by = MEASURE[name]
        if name == "hops" and found["network"]["inside_known"]:
            by = "all_reduce_perf with one GPU a host"
        said = said if narrowed else f"{said}; narrow it with {by}"
        lines += wrap(said, COLUMNS, subsequent_indent="    ")
    return lines
