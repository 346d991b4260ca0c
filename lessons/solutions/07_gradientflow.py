"""Solutions of lesson 07: GradientFlow.            python lessons/solutions/07_gradientflow.py"""

from dataclasses import replace

from refgf.predict.cost import Link, ring_line
from refgf.papers.scaling.systems import System, step
from refgf.papers.scaling.workloads import alexnet

RANKS, FORWARD_S, BACKWARD_S = (
    4,
    0.3,
    0.6,
)  # 16 images on one core each: about what lesson 02 measures
WORKLOAD = alexnet()
READY = WORKLOAD.gradients(BACKWARD_S, FORWARD_S, itemsize=1)
NOTHING_ON = System("ring", itemsize=4, threshold_bytes=0, overlap=False)
PARTS = {
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
    """1. What a part gains depends on what is left to gain: CSC first saves most of the float32 bytes, and float16 after
    it halves only what is left."""
    gains = []
    for order in (["float16", "overlap", "lazy", "CSC"], ["CSC", "overlap", "lazy", "float16"]):
        system, told, gain = NOTHING_ON, [], {}
        for name in order:
            before, system = seconds(system, GIGABIT), replace(system, **PARTS[name])
            gain[name] = before - seconds(system, GIGABIT)
            told.append(f"{name} {gain[name]:+.3f}")
        print(
            f"1. gained, seconds a step: {', '.join(told)}; in all {seconds(system, GIGABIT):.3f} s a step"
        )
        gains.append(gain)
    assert gains[0]["float16"] > gains[1]["float16"] and gains[0]["CSC"] < gains[1]["CSC"]


def leave_one_out() -> None:
    """2. At 1 Gbit/s hardly laziness, whose 26 start-ups are nothing beside 62 million gradients; in shared memory CSC:
    choosing and packing takes longer than the bytes it saves. So says the model, with a core for each rank. Where ranks share
    cores look at the lesson's table: there laziness counts, and overlap and float16 are what one can leave out."""
    everything = replace(NOTHING_ON, **{k: v for part in PARTS.values() for k, v in part.items()})
    for name, link in (("1 Gbit/s", GIGABIT), ("shared memory", MEMORY)):
        lost = {}
        for left_out in PARTS:
            rest = [part for part in PARTS if part != left_out]
            system = replace(NOTHING_ON, **{k: v for part in rest for k, v in PARTS[part].items()})
            lost[left_out] = seconds(system, link) - seconds(everything, link)
        print(
            f"2. {name}: without it a step is longer by: "
            + ", ".join(f"{k} {v:+.3f} s" for k, v in lost.items())
        )
        if name == "shared memory":
            assert lost["CSC"] < 0
        else:
            assert abs(lost["lazy"]) < lost["CSC"]


def wanted_bandwidth() -> None:
    """3. All float16 bytes must fit into what backward still does after the first gradient: 2 (p-1)/p * 2 n * beta <=
    that time. The forward pass hides nothing, and the last layers' gradients have no time left at all."""
    window_s = READY[-1][0] - READY[0][0]
    share = 2 * (RANKS - 1) / RANKS
    wanted = share * 2 * WORKLOAD.parameters / window_s  # bytes/s
    print(
        f"3. at least {8e-9 * wanted:.1f} Gbit/s for {share * 2 * WORKLOAD.parameters / 1e6:.0f} MB in {window_s:.2f} s"
    )
    dense = replace(NOTHING_ON, **PARTS["float16"], **PARTS["overlap"], **PARTS["lazy"])
    compute_s = READY[-1][0]
    for factor in (0.5, 1, 2, 4):
        link = Link(50e-6, 1 / (factor * wanted))
        print(
            f"   {8e-9 * factor * wanted:5.1f} Gbit/s: {seconds(dense, link) / compute_s:.2f} x the time of computing"
        )
    assert seconds(dense, Link(50e-6, 1 / (0.5 * wanted))) > 1.3 * compute_s
    assert seconds(dense, Link(50e-6, 1 / (4 * wanted))) < 1.1 * compute_s


if __name__ == "__main__":
    another_order()
    leave_one_out()
    wanted_bandwidth()
