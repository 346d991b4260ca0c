"""Solutions of lesson 07: GradientFlow.

python lessons/solutions/07_gradientflow.py
"""

from dataclasses import replace

from refgf.predict.cost import Link, ring_line
from refgf.papers.scaling.systems import System, step
from refgf.papers.scaling.workloads import alexnet

# 16 images on one core each: about what lesson 02 measures
RANKS, FORWARD_S, BACKWARD_S = 4, 0.3, 0.6
WORKLOAD = alexnet()
READY = WORKLOAD.gradients(BACKWARD_S, FORWARD_S, itemsize=1)
NOTHING_ON = System("ring", itemsize=4, threshold_bytes=0, overlap=False)
TECHNIQUES = {
    "float16": {"itemsize": 2},
    "overlap": {"overlap": True},
    "lazy": {"threshold_bytes": 2**22},
    "CSC": {"percent": 10.0, "selection_s": 0.1},
}
GIGABIT = Link(alpha_s=50e-6, beta_s_per_byte=8e-9)
MEMORY = Link(alpha_s=5e-6, beta_s_per_byte=0.2e-9)


def seconds(system: System, link: Link) -> float:
    return step(READY, system, ring_line(RANKS, link)).step_s


def another_order() -> None:
    """1. What a technique gains depends on what is left to gain. CSC first saves most of the
    float32 bytes, and float16 after it halves only the rest."""
    gains = []
    for order in (["float16", "overlap", "lazy", "CSC"], ["CSC", "overlap", "lazy", "float16"]):
        system, gain = NOTHING_ON, {}
        for name in order:
            before_s, system = seconds(system, GIGABIT), replace(system, **TECHNIQUES[name])
            gain[name] = before_s - seconds(system, GIGABIT)
        gained = ", ".join(f"{name} {gain_s:+.3f}" for name, gain_s in gain.items())
        print(f"1. gained, s per step: {gained}; the step {seconds(system, GIGABIT):.3f}")
        gains.append(gain)
    assert gains[0]["float16"] > gains[1]["float16"] and gains[0]["CSC"] < gains[1]["CSC"]


def leave_one_out() -> None:
    """2. At 1 Gbit/s lazy allreduce: 26 latencies are nothing next to 62 million gradients. In
    shared memory CSC: choosing and packing take longer than the bytes that they save. The model
    assumes a core for each rank. Where ranks share cores, see the lesson's table: there lazy
    allreduce counts, and overlap and float16 can be left out."""
    everything = with_techniques(TECHNIQUES)
    for name, link in (("1 Gbit/s", GIGABIT), ("shared memory", MEMORY)):
        lost = {}
        for left_out in TECHNIQUES:
            system = with_techniques([each for each in TECHNIQUES if each != left_out])
            lost[left_out] = seconds(system, link) - seconds(everything, link)
        longer = ", ".join(f"{technique} {lost_s:+.3f}" for technique, lost_s in lost.items())
        print(f"2. {name}: step longer, in s, without {longer}")
        if name == "shared memory":
            assert lost["CSC"] < 0
        else:
            assert abs(lost["lazy"]) < lost["CSC"]


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
    print(f"3. at least {8e-9 * wanted:.1f} Gbit/s for {megabytes:.0f} MB in {window_s:.2f} s")
    dense = with_techniques(["float16", "overlap", "lazy"])
    compute_s = READY[-1][0]
    for factor in (0.5, 1, 2, 4):
        link = Link(50e-6, 1 / (factor * wanted))
        ratio = seconds(dense, link) / compute_s
        print(f"   {8e-9 * factor * wanted:5.1f} Gbit/s: {ratio:.2f} x the time of computing")
    assert seconds(dense, Link(50e-6, 1 / (0.5 * wanted))) > 1.3 * compute_s
    assert seconds(dense, Link(50e-6, 1 / (4 * wanted))) < 1.1 * compute_s


if __name__ == "__main__":
    another_order()
    leave_one_out()
    wanted_bandwidth()
