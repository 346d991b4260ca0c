"""The answer of `plan`: a dictionary for --json, and the same as text of at most 100 columns."""

from itertools import takewhile
from typing import Any

from refgf.plan import buckets, memory
from refgf.plan.systems import (
    CSC_PERCENT,
    DASO_EVERY,
    DASO_WAIT,
    SYSTEMS,
    TOPK_DENSITY,
    Question,
)
from refgf.plan.uncertainty import curve, planned, ranges

LARGEST = 4096
FLAT = 0.02  # relative; steps so close to the best are said to be as good
MEASURE = {
    "alpha": "measure or osu_latency",
    "beta": "measure or all_reduce_perf",
    "pace": "a torch.profiler trace as --model",
}
MEANING = {
    "alpha": "s a message",
    "beta": "s a byte",
    "pace": "s of computing",
}


def answer(question: Question) -> dict[str, Any]:
    """Everything that the text says, in seconds and bytes; a missing system is null."""
    bytes_per_rank, systems = memory.per_rank(question), {}
    for name in SYSTEMS:
        found = planned(name, question)
        systems[name] = found and {
            "step_s": found.step_s,
            "low_s": found.low_s,
            "high_s": found.high_s,
            "efficiency_percent": 100 * question.step.compute_s / found.step_s,
            "widths": found.widths,
            "widest_input": found.widest,
            "memory_bytes": bytes_per_rank[name],
        }
    link, step = question.fabric.between, question.step
    return {
        "refgf_plan": 1,
        "label": "predicted",
        "units": {"time": "s", "size": "bytes"},
        "model": {"name": step.name, "source": step.source, "gradients": len(step.ready)}
        | {"elements": step.elements, "compute_s": step.compute_s, "batch": step.batch},
        "network": {"name": question.fabric.name, "source": question.fabric.source}
        | {"alpha_s": link.alpha_s, "beta_s_per_byte": link.beta_s_per_byte}
        | {"inside_known": question.fabric.inside is not None},
        "ranges": {name: list(both) for name, both in ranges(question).items()},
        "ranks": question.size,
        "ranks_per_node": question.per_node,
        "overlap": question.overlap,
        "allreduce": question.allreduce,
        "systems": systems,
        "refgf": buckets.of_theta(question),
        "pytorch": buckets.of_ddp(question),
        "horovod": buckets.of_horovod(question),
        "efficiency_percent": curve(question, sizes(question.ranks_per_node)),
    }


def sizes(ranks_per_node: int) -> list[int]:
    """1, 2, 4, ... 4096; full nodes only where a node does not hold a power of two."""
    if ranks_per_node & (ranks_per_node - 1) == 0:
        return [1 << bit for bit in range(LARGEST.bit_length())]
    doubled = [ranks_per_node << bit for bit in range(LARGEST.bit_length())]
    return [1, *(size for size in doubled if size <= LARGEST)]


def text(found: dict[str, Any]) -> str:
    model, network = found["model"], found["network"]
    ranks = f"{found['ranks']} ranks, {found['ranks_per_node']} on a node (--ranks-per-node)"
    each = f"a batch of {model['batch']} on each, " if model["batch"] else ""
    lines = [
        f"{model['name']}: {model['elements']:,} gradients in {model['gradients']} tensors, "
        f"{1e3 * model['compute_s']:.1f} ms a step without exchange ({model['source']})",
        f"{network['name']}: {1e6 * network['alpha_s']:,.4g} us and "
        f"{8e-9 / network['beta_s_per_byte']:.3g} Gbit/s between nodes ({network['source']})",
        f"Predicted for {ranks}, {each}flat {found['allreduce']};",
        f"calls run during backward, which keeps {100 * found['overlap']:.0f} % of its speed "
        "(--overlap)",
        "",
        *step_table(found),
        "",
        *bucket_lines(found),
        "",
        *efficiency_table(found["efficiency_percent"]),
    ]
    return "\n".join(lines + notes(found))


def step_table(found: dict[str, Any]) -> list[str]:
    lines = ["system         step ms     lowest .. highest   efficiency   widest input   memory MB"]
    for name, row in found["systems"].items():
        if row is None:
            lines.append(f"{name:<12} needs more than one rank a node and more than one node")
            continue
        low, high = 1e3 * row["low_s"], 1e3 * row["high_s"]
        lines.append(
            f"{name:<12} {1e3 * row['step_s']:9.1f} {low:10.1f} .. {high:<7.1f}"
            f"{row['efficiency_percent']:11.1f} %   {row['widest_input']:<12}"
            f"{1e-6 * row['memory_bytes']:12.0f}"
        )
    return lines


def bucket_lines(found: dict[str, Any]) -> list[str]:
    ddp, horovod, ours = found["pytorch"], found["horovod"], found["refgf"]
    return [
        f"refgf        Theta({ours['theta_bytes']}): {1e3 * ours['step_s']:.1f} ms a step "
        f"(one call for each gradient: {1e3 * ours['sweep'][0]:.1f} ms)",
        f"             a call waits for theta bytes; {flat_in_words(ours)}",
        ddp_line(ddp),
        f"Horovod      HOROVOD_FUSION_THRESHOLD={horovod['fusion_threshold_bytes']}: "
        f"{1e3 * horovod['step_s']:.1f} ms a step "
        f"(default, 128 MiB: {1e3 * horovod['default_step_s']:.1f} ms)",
    ]


def ddp_line(ddp: dict[str, Any]) -> str:
    """The best bucket, or the default where no bucket beats it."""
    best = f"bucket_cap_mb={ddp['bucket_cap_mb']}: {1e3 * ddp['step_s']:.1f} ms"
    default = f"default, 1 then 25: {1e3 * ddp['default_step_s']:.1f} ms"
    if ddp["default_step_s"] <= ddp["step_s"]:
        return f"PyTorch DDP  keep the {default} a step ({best})"
    return f"PyTorch DDP  {best} a step ({default})"


def flat_in_words(ours: dict[str, Any]) -> str:
    """The thetas around the best whose steps are at most FLAT longer."""
    thetas, sweep = list(ours["sweep"]), ours["sweep"]
    at = thetas.index(ours["theta_bytes"])
    near = [sweep[theta] <= (1 + FLAT) * ours["step_s"] for theta in thetas]
    low = at - len([*takewhile(bool, near[:at][::-1])])
    high = at + len([*takewhile(bool, near[at + 1 :])])
    return f"{thetas[low]:,} to {thetas[high]:,} are at most {100 * FLAT:g} % slower"


def efficiency_table(curves: dict[str, dict[int, float | None]]) -> list[str]:
    lines = ["Scaling efficiency in percent, T(exchange off) / T(exchange on)"]
    wide = {name: max(8, len(name) + 2) for name in curves}
    lines.append(" ranks" + "".join(f"{name:>{wide[name]}}" for name in curves))
    for size in next(iter(curves.values())):
        row = {name: curves[name][size] for name in curves}
        cells = {name: "-" if value is None else f"{value:.1f}" for name, value in row.items()}
        lines.append(f"{size:>6}" + "".join(f"{cells[name]:>{wide[name]}}" for name in row))
    return lines


def notes(found: dict[str, Any]) -> list[str]:
    widest = {row["widest_input"] for row in found["systems"].values() if row} - {"none"}
    lines = [
        "",
        "theta is the best of each row. half, CSC and hierarchy16 send float16.",
        f"CSC: {CSC_PERCENT:g} % of the chunks and a call of their norms, in the flat ring. "
        f"top-k: {100 * TOPK_DENSITY:g} %, after backward.",
        f"DASO: a sum between nodes every {DASO_EVERY} batches (B), used {DASO_WAIT} later (W).",
        "Not included, so efficiencies are upper bounds: casts, choosing chunks and top-k,",
        "contention, stragglers, and what TCP adds to alpha and beta (--simulate: calibrated TCP).",
    ]
    if not found["network"]["inside_known"] and found["ranks_per_node"] > 1:
        lines.append("No link inside a node is known; the link between nodes stands for it.")
    for name in sorted(widest):
        low, high = found["ranges"][name]
        lines.append(
            f"{name}, {MEANING[name]}: {low:.2f} to {high:.2f} times the value; "
            f"narrow it with {MEASURE[name]}"
        )
    return lines
