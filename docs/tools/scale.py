"""Writes docs/scale.md: what 10,000 ranks would cost, from the formulas of refgf/plan alone.

    python docs/tools/scale.py     after a change of the predictor (`make figures` does it, too)

Every number on the page is computed here, or was measured (scale_judged.py). A sentence that
compares is chosen by the numbers.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import NormalDist

from docs.tools import scale_judged
from refgf.papers.scaling.benchmark_rows import NETWORKS as BENCHMARK
from refgf.plan import fabric, systems, uncertainty
from refgf.plan.fabric import Fabric
from refgf.plan.question import Question
from refgf.plan.step_times import StepTimes, of_workload
from refgf.plan.systems import FLOAT32, SYSTEMS
from refgf.predict.cost import Link

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
RANKS, PER_NODE = 10_000, 8
FEWER = (64, 256, 1024)
INSIDE = Link(5e-6, 1 / 100e9)  # between the GPUs of a node (chosen)
CHOSEN = "rate chosen, latency chosen"
FASTEST = Fabric("200 Gbit/s", CHOSEN, Link(5e-6, 1 / 25e9), INSIDE, inside_source=CHOSEN)
SPREAD = 0.03  # standard deviation of a rank's computing (chosen)
BUFFER = 32e6  # bytes a switch holds for one port (chosen)
TIMEOUT_S = 0.2  # TCP_RTO_MIN of Linux (verified: include/net/tcp.h)
FULL = ("eager", "theta", "merged", "hierarchy")  # sum all gradients in each step, in float32
EVERY_STEP = (*FULL, "half", "hierarchy16")


def networks() -> list[Fabric]:
    return [*(fabric.load(name) for name in ("mgwfbp-10gbe", "v100-56gbit")), FASTEST]


def models() -> list[StepTimes]:
    steps = fabric.load("v100-56gbit").steps
    found = [
        of_workload(name, *steps[name.lower().replace("-", "")], "refgf/cluster/machines")
        for name in ("AlexNet", "ResNet-50")
    ]
    bert = BENCHMARK["BERT-Large"]
    return [*found, of_workload("BERT-Large", bert.batch, bert.single, "ddl-benchmarks")]


def pace(step: StepTimes) -> str:
    """What repeats a step with `plan`: BERT-Large, --batch 8 --rate 49."""
    return f"{step.name}, `--batch {step.batch} --rate {step.batch / step.compute_s:.5g}`"


def cell(step_s: float | None, compute_s: float) -> str:
    return "" if step_s is None else f"{ms(step_s)} ({100 * compute_s / step_s:.0f} %)"


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.0f} ms"


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def steps_of(model: StepTimes, asked: list[Question]) -> str:
    """A row for each system: predicted step and efficiency on each network, memory."""
    rows = []
    for name, system in SYSTEMS.items():
        cells = [cell(system.step_s(question), model.compute_s) for question in asked]
        nbytes = max(system.bytes_per_rank(question) for question in asked)
        rows.append([name, *cells, f"{nbytes / 1e9:,.1f} GB"])
    header = ["predicted", *(question.fabric.name for question in asked), "memory a rank"]
    count = f"{model.elements / 1e6:.0f} million gradients in {len(model.ready)} tensors"
    title = f"**{model.name}**, {count}; a step computes {ms(model.compute_s)}."
    return f"{title}\n\n{table(header, rows)}"


def latency_and_bytes(model: StepTimes, question: Question) -> tuple[float, float]:
    """Seconds of one ring allreduce of all gradients: its latencies, and its bytes."""
    line = question.flat
    return line.a_s, line.b_s_per_byte * FLOAT32 * model.elements


def breaks_first(every: dict[str, list[Question]], steps: list[StepTimes]) -> str:
    """What is larger in one ring of all gradients, the latencies or the bytes."""
    rows = []
    for step in steps:
        cells = []
        for question in every[step.name]:
            alpha_s, beta_s = latency_and_bytes(step, question)
            larger = "latency" if alpha_s > beta_s else "bytes"
            cells.append(f"{ms(alpha_s)} + {ms(beta_s)}: {larger}")
        rows.append([step.name, *cells])
    header = ["predicted: latencies + bytes", *(each.name for each in networks())]
    return table(header, rows)


def larger(every: dict[str, list[Question]], steps: list[StepTimes]) -> str:
    """Which networks wait for latencies, and which for bytes, as a sentence."""
    places = {"Latencies": [], "Bytes": []}
    for step in steps:
        for question in every[step.name]:
            alpha_s, beta_s = latency_and_bytes(step, question)
            places["Latencies" if alpha_s > beta_s else "Bytes"].append(step.name)
    said = []
    for what, names in places.items():
        if names:
            counted = (f"{name} ({names.count(name)} of 3 links)" for name in dict.fromkeys(names))
            said.append(f"{what} are the larger term of {', '.join(counted)}.")
    return " ".join(said)


def power_of_two(question: Question) -> str:
    """The step by halving-doubling on the largest power of two."""
    size = 1 << (RANKS.bit_length() - 1)
    asked = replace(question, size=size, ranks_per_node=1, allreduce="halving-doubling")
    step_s = SYSTEMS["theta"].step_s(asked)
    return f"{size:,} ranks {ms(step_s)} for {question.step.name} on {question.fabric.name}"


def slowest() -> float:
    """How many times as long the slowest of RANKS computes (Blom's estimate, normal times)."""
    return 1 + SPREAD * NormalDist().inv_cdf((RANKS - 0.375) / (RANKS + 0.25))


def fastest(question: Question, names: tuple[str, ...]) -> str:
    """The fastest of these systems with its interval; of equals the first."""
    name, _ = fastest_of(question, names)
    planned = uncertainty.planned(name, question)
    compute_s = question.step.compute_s
    low, high = f"{1e3 * planned.low_s:,.0f}", f"{1e3 * planned.high_s:,.0f}"
    return f"{name}: {cell(planned.step_s, compute_s)}, {low} to {high}"


def fastest_of(question: Question, names: tuple[str, ...]) -> tuple[str, float]:
    """(name, seconds of a step)."""
    found = {name: SYSTEMS[name].step_s(question) for name in names}
    name = min(names, key=lambda each: found[each] or float("inf"))
    return name, found[name]


def instead(every: dict[str, list[Question]]) -> str:
    rows = []
    for name, asked in every.items():
        for question in asked:
            flat = replace(question, ranks_per_node=1, allreduce="halving-doubling")
            rows.append(
                [
                    f"{name}, {question.fabric.name}",
                    fastest(question, FULL),
                    fastest(question, EVERY_STEP),
                    cell(SYSTEMS["theta"].step_s(flat), question.step.compute_s),
                ]
            )
    header = ["predicted", "float32", "float16 allowed", "theta, halving-doubling, 1 rank a node"]
    return table(header, rows)


def fewer(every: dict[str, list[Question]]) -> str:
    """The fastest system that may send float16, on fewer ranks."""
    rows = []
    for name, asked in every.items():
        for question in asked:
            found = [fastest(replace(question, size=size), EVERY_STEP) for size in FEWER]
            rows.append([f"{name}, {question.fabric.name}", *found])
    return table(["predicted", *(f"{size:,} ranks" for size in FEWER)], rows)


def page() -> str:
    found, asked = models(), {}
    for model in found:
        ask = partial(Question, model)
        asked[model.name] = [ask(each, RANKS, PER_NODE) for each in networks()]
    fill = {
        "ranks": f"{RANKS:,}",
        "nodes": f"{RANKS // PER_NODE:,}",
        "per_node": PER_NODE,
        "links": "\n".join(f"  - {in_words(each)}" for each in networks()),
        "rates": "; ".join(pace(each) for each in found),
        "tables": "\n\n".join(steps_of(model, asked[model.name]) for model in found),
        "terms": breaks_first(asked, found),
        "larger": larger(asked, found),
        "two": power_of_two(asked["BERT-Large"][1]),
        "faster_inside": faster_inside(asked["ResNet-50"][0]),
        "tree": scale_judged.tree(),
        "eager": eager(asked["ResNet-50"][1]),
        "spread": f"{SPREAD:.0%}".replace("%", " %"),
        "slowest": f"{100 * (slowest() - 1):.0f} %",
        "ceiling": f"{100 / slowest():.0f} %",
        "incast": incast(asked, found),
        "times_as_much": f"{PER_NODE * (RANKS - PER_NODE) / (RANKS - 1):.1f}",
        "in_flight": in_flight(found),
        "timeout": ms(TIMEOUT_S),
        "steps_lost": "; ".join(f"{m.name} {TIMEOUT_S / m.compute_s:.1f}" for m in found),
        "memory": pairs(found, asked),
        "instead": instead(asked),
    }
    fill |= {"fewer": fewer(asked), "real": scale_judged.real(table)}
    return TEMPLATE.format_map(fill | scale_judged.words(table))


def in_words(each: Fabric) -> str:
    sources = each.source, each.inside_source
    between, inside = (
        f"{1e6 * link.alpha_s:g} us, {1e-9 / link.beta_s_per_byte:.3g} GB/s ({source})"
        for link, source in zip((each.between, each.inside), sources)
    )
    return f"{each.name}: {between}; inside a node {inside}"


def faster_inside(question: Question) -> str:
    """The same fastest system with the chosen link inside a node."""
    question = replace(question, size=FEWER[1])
    chosen = replace(question, fabric=replace(question.fabric, inside=INSIDE))
    (name, before), (_, after) = (fastest_of(each, EVERY_STEP) for each in (question, chosen))
    compute_s = question.step.compute_s
    return (
        f"{name} of {question.step.name} on {question.size} ranks of {question.fabric.name} takes "
        f"{cell(after, compute_s)}\n  instead of {cell(before, compute_s)}"
    )


def eager(question: Question) -> str:
    calls, alpha_s = len(question.step.ready), question.flat.a_s
    return f"{calls} x {ms(alpha_s)} = {calls * alpha_s:.1f} s"


def incast(every: dict[str, list[Question]], steps: list[StepTimes]) -> str:
    """`direct` of all gradients next to the ring and the fastest in two levels, one call each."""
    rows = []
    for step in steps:
        for question in every[step.name]:
            nbytes = FLOAT32 * step.elements
            each_s = direct_s(question), question.flat(nbytes), systems.fastest(question)(nbytes)
            rows.append([f"{step.name}, {question.fabric.name}", *map(ms, each_s)])
    return table(["predicted, one call", "direct", "ring", "fastest in two levels"], rows)


def direct_s(question: Question) -> float:
    """2(p-1) latencies, and 2 k (p-k) / p vectors through each node's link."""
    p, k, link = question.size, question.per_node, question.fabric.between
    nbytes = FLOAT32 * question.step.elements * 2 * k * (p - k) / p
    return 2 * (p - 1) * link.alpha_s + link.beta_s_per_byte * nbytes


def in_flight(found: list[StepTimes]) -> str:
    """What other nodes have on the way to one node if all ranks send at once."""
    parts = []
    for model in found:
        nbytes = FLOAT32 * model.elements * PER_NODE * (RANKS - PER_NODE) / RANKS
        parts.append(f"{model.name} {nbytes / 1e6:,.0f} MB, {nbytes / BUFFER:.1f} x the buffer")
    return f"{'; '.join(parts)} (a buffer of {BUFFER / 1e6:g} MB, chosen)"


def pairs(found: list[StepTimes], asked: dict[str, list[Question]]) -> str:
    """Bytes of pairs that top-k receives, with these ranks on a node and with one."""
    rows = []
    for model in found:
        question = asked[model.name][0]
        levels, flat = (
            systems.pairs_of_topk(replace(question, ranks_per_node=k)) for k in (PER_NODE, 1)
        )
        sizes = systems.STATE * model.elements, levels, flat
        rows.append([model.name, *(f"{nbytes / 1e9:,.1f} GB" for nbytes in sizes)])
    columns = f"pairs, {PER_NODE} ranks a node", "pairs, 1 rank a node"
    return table(["predicted", "weights, gradients, momentum", *columns], rows)


TEMPLATE = """# {ranks} ranks, predicted

Written by `docs/tools/scale.py`. Every number is **predicted** by the formulas of `refgf/plan`, but
for those of the last section, which are measured. {ranks} ranks are {nodes} nodes of {per_node}.
Weak scaling: each rank brings its own batch.

- Links, latency and rate:
{links}
- What is verified, computed, inferred or stated, and where it comes from: `refgf/cluster/machines`.
  The links inside a node were fitted by MG-WFBP on at most 2 MB; what GPUs and what bus they had
  is not stated. With a link of 5 us and 100 GB/s (`--inside 5us 800gbit`) two levels are faster:
  {faster_inside}.
- Batches, and samples/s of a rank: {rates}.
  AlexNet's and ResNet-50's rates are those of `refgf/cluster/machines`,
  BERT-Large's is a public benchmark's (`refgf/papers/scaling/benchmark_rows.py`), whose table
  does not name its GPU. Profiles in its repository (`horovod/bert.prof`, `horovod/resnet50.prof`)
  name a V100-PCIE-32GB. Its sequences have 64 tokens, by the default of its script
  (`mgwfbp/horovod_mpi_cj.sh`); the time of a step is divided among the layers as for 128.
- The rate of mgwfbp-10gbe is the wire's, which is verified; TCP delivers less. Lesson 08 draws
  Ethernet with the inputs of MG-WFBP's own simulations, which are slower.
- Ready times are a rate's, divided among the layers by flops.
- A step of a flat ring waits for its slowest hop. NCCL's ring pays the mean latency of its hops,
  which the intervals hold, too.
- The ranks of a node share its link. Not included: contention elsewhere, lost messages, stragglers,
  casts, choosing, and what TCP adds to latency and rate. So efficiencies are mostly too high. In
  SimGrid's calibrated TCP a ring of many ranks takes longer than the upper end of an interval here
  (lesson 08 draws by how much). How a system learns is not predicted.
- For other numbers of ranks: `python -m refgf.predict plan` with `--ranks-per-node 8`.

## A step with each system

In brackets: scaling efficiency, T(exchange off) / T(exchange on). Memory leaves out activations.
`theta`, `half`, `CSC`, `hierarchy` and `hierarchy16` have their best theta, which `plan` prints.
`hierarchy` is the fastest allreduce in two levels, `hierarchy16` the same with float16 on the wire.
`CSC` runs in a flat ring and pays its latencies twice, because the norms of its chunks are summed
in a call of their own. `DASO` sums between nodes every fourth batch only, so its steps are not
comparable alone.

{tables}

## What breaks first

**The latency of the ring.** A ring pays 2(p-1) latencies a call. One call of all gradients in
float32 takes, latencies plus bytes:

{terms}

{larger}

Eager exchange pays the latencies for each tensor. ResNet-50 on v100-56gbit: {eager} a step.

**The slowest rank.** If a rank's computing varies by {spread} (standard deviation of a normal
distribution, chosen), the slowest of {ranks} takes {slowest} longer than the mean. No exchange
that waits for all ranks in each step then exceeds {ceiling} of efficiency.

**Incast.** In each round of `direct` the {per_node} ranks of a node send to other nodes at once. So
2 k (p-k) / p vectors cross the node's link, {times_as_much} times as many as in a ring (judged by
SimGrid: `tests/plan/test_plan_wires.py`). One call of all gradients in float32:

{incast}

The rounds leave one message of each rank in flight. If all ranks start all their sends at once,
the messages to one node are {in_flight}.
A switch without flow control drops what its buffer does not hold. A message that only TCP's timeout
recovers costs at least {timeout} (Linux), in steps without exchange: {steps_lost}.
How many messages are lost is in no model here.

**Memory.** Top-k in two levels (HiTopKComm) gathers the pairs of a slice from all nodes, in a flat
ring the pairs of all ranks. So the memory of a rank grows with their number:

{memory}

The residuals of CSC and top-k do not grow with p.

## What to use instead

The fastest system that sums every gradient in every step, with its interval from the inputs'
ranges of alpha, beta, pace and overlap; and lazy allreduce by halving-doubling, whose latencies
grow with log p:

{instead}

The last column has one rank and one link a node: {ranks} links, not {nodes}. {ranks} is no power of
two, so halving-doubling sends the whole vector twice more; it would take on {two}.
Contention between the nodes is in none of these times. On a fat tree with half the links up the
order of the ranks alone makes a ring slower: {tree}
if ranks are dealt round robin over the switches (lesson 08, by SimGrid). A random order can be
worse still, above all with several ranks a node. `plan --simulate --platform fat-tree:2` shows it
in the row "ring, random order".

## Fewer ranks

The fastest of the same systems, float16 allowed, with {per_node} ranks a node:

{fewer}

## How right the formulas are where they can be measured

Calibrated on 2 emulated nodes, then judged on {judged_ranks}, which the calibration had not seen
(`tests/speed/unseen.py`, {judged_date}): {judged_networks}, on {judged_rates}. Their tensors are
smaller, so that the processor is idle, and computing is slept.

{judged}

All {judged_steps} steps: an error of {judged_error} (median), {judged_inside} inside the interval.

The size of buckets that the predictor chooses, against the best one measured: {judged_buckets}.

{judged_ranks} nodes say nothing about contention among {ranks} ranks.

**On real clusters** the formulas are worse. Here they have published inputs only, and are compared
with steps and rates that others have measured. [Results](results.md) has the same numbers:

{real}

Intervals have the ranges of numbers without an error. Where few steps are inside, what the formulas
leave out is larger than these ranges.

These errors come from lines fitted elsewhere, from time per call that no input explains, and from
TCP. Measure your own links and trace your own step before you believe an interval.
"""

if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
    print(PAGE)
