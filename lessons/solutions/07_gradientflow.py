"""Solutions of lesson 07: GradientFlow.

python lessons/solutions/07_gradientflow.py
"""

from dataclasses import replace

from refgf.cluster.like import load
from refgf.predict.cost import Link, ring_line
from refgf.papers.scaling.systems import System, step
from refgf.papers.scaling.workloads import alexnet

LIKE, RANKS = load("v100-56gbit"), 4  # as in the lesson
WORKLOAD, (_, STEP_S) = alexnet(), LIKE.step_s("alexnet")
FORWARD_S = STEP_S * WORKLOAD.forward_flops / WORKLOAD.step_flops
BACKWARD_S = STEP_S - FORWARD_S
READY = WORKLOAD.gradients(BACKWARD_S, FORWARD_S, itemsize=1)
NOTHING_ON = System("ring", itemsize=4, threshold_bytes=0, overlap=False)
TECHNIQUES = {
    "float16": {"itemsize": 2},
    "overlap": {"overlap": True},
    "lazy": {"threshold_bytes": 2**22},
    "CSC": {"percent": 10.0, "selection_s": 0.001},
}
INFINIBAND = Link(LIKE.latency_s, 1 / LIKE.rate)
FAST = Link(LIKE.latency_s, 1 / (20 * LIKE.rate))  # NVLink's order of magnitude


def seconds(system: System, link: Link) -> float:
    return step(READY, system, ring_line(RANKS, link)).step_s


def another_order() -> None:
    """1. What a technique gains depends on what is left to gain. CSC first saves most of the
    float32 bytes, and float16 after it halves only the rest."""
    gains = []
    for order in (["float16", "overlap", "lazy", "CSC"], ["CSC", "overlap", "lazy", "float16"]):
        system, gain = NOTHING_ON, {}
        for name in order:
            before_s, system = seconds(system, INFINIBAND), replace(system, **TECHNIQUES[name])
            gain[name] = before_s - seconds(system, INFINIBAND)
        gained = ", ".join(f"{name} {1e3 * gain_s:+.1f}" for name, gain_s in gain.items())
        print(f"1. gained, ms per step: {gained}; the step {1e3 * seconds(system, INFINIBAND):.1f}")
        gains.append(gain)
    assert gains[0]["float16"] > gains[1]["float16"] and gains[0]["CSC"] < gains[1]["CSC"]


def leave_one_out() -> None:
    """2. Once CSC and overlap are on, float16 and lazy allreduce: a tenth of the float32 bytes
    hides behind backward as well, and 26 latencies of microseconds are nothing next to them.
    On links 20 times as fast CSC, too: its choice (1 ms, assumed) takes longer than its bytes.
    By itself each gains something: what can be left out depends on what is on."""
    everything = with_techniques(TECHNIQUES)
    for name, link in (("56 Gbit/s", INFINIBAND), ("1120 Gbit/s", FAST)):
        lost = {}
        for left_out in TECHNIQUES:
            system = with_techniques([each for each in TECHNIQUES if each != left_out])
            lost[left_out] = seconds(system, link) - seconds(everything, link)
        longer = ", ".join(f"{each} {1e3 * lost_s:+.2f}" for each, lost_s in lost.items())
        print(f"2. {name}: step longer, in ms, without {longer}")
        if link is FAST:
            assert lost["CSC"] < 0
        else:
            assert all(abs(lost[name]) < 0.01 * lost["overlap"] for name in ("float16", "lazy"))


def with_techniques(names) -> System:
    arguments = {}
    for name in names:
        arguments |= TECHNIQUES[name]
    return replace(NOTHING_ON, **arguments)


def wanted_bandwidth() -> None:
    """3. All float16 bytes must fit into the time of backward after the first gradient:
    2 (p-1)/p * 2 n * beta <= that time. The forward pass hides nothing, and the gradients that come
    last have no time left at all."""
    window_s = READY[-1][0] - READY[0][0]
    share = 2 * (RANKS - 1) / RANKS
    wanted = share * 2 * WORKLOAD.parameters / window_s  # bytes/s
    megabytes = share * 2 * WORKLOAD.parameters / 1e6
    needs = f"{megabytes:.0f} MB in {1e3 * window_s:.1f} ms"
    print(f"3. at least {8e-9 * wanted:.1f} Gbit/s for {needs}")
    dense = with_techniques(["float16", "overlap", "lazy"])
    compute_s = READY[-1][0]
    for factor in (0.5, 1, 2, 4):
        link = Link(LIKE.latency_s, 1 / (factor * wanted))
        ratio = seconds(dense, link) / compute_s
        print(f"   {8e-9 * factor * wanted:5.1f} Gbit/s: {ratio:.2f} x the time of computing")
    assert seconds(dense, Link(LIKE.latency_s, 1 / (0.5 * wanted))) > 1.3 * compute_s
    assert seconds(dense, Link(LIKE.latency_s, 1 / (4 * wanted))) < 1.1 * compute_s


if __name__ == "__main__":
    another_order()
    leave_one_out()
    wanted_bandwidth()
