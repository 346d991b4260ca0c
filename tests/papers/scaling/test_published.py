"""Every published constant next to the literal of its source: file and line in public code.

published.py keeps four significant digits, so each literal is rounded to four before it is
compared. Where the source writes a product, so does the literal.
"""

import numpy as np
import pytest

from lab.performance import bottleneck_study
from refgf.cluster import like
from refgf.papers.scaling import published
from refgf.papers.scaling.headlines import (
    ALPHA,
    IMPLIED_RATE,
    JIA_ALPHA,
    RESNET_RATE,
    SCALE,
    V100_RATE,
)
from refgf.papers.scaling.published import INFINIBAND, MACHINES
from refgf.papers.scaling.rows import ROWS
from refgf.papers.scaling.workloads import WORKLOADS
from refgf.predict.cost import Line, Link

MGWFBP = "HKBU-HPML/MG-WFBP, distributed_optimizer.py"
BENCHMARKS = "HKBU-HPML/ddl-benchmarks, mgwfbp/hv_distributed_optimizer.py"
SAME_NODE = {2: (2.554691138304671e-06, 9.837548167872609e-11, 170)}
SAME_NODE |= {4: (4.204298980348825e-05, 2.0589360830118177e-10, 169)}
TRIPLED = 0.00023583677659915685 * 3  # BENCHMARKS, line 229: 16 GPUs on 56 Gbit/s
# machine: (file, {GPUs: (a, b, line of the file)}); both tables of MG-WFBP have the same 2 and 4
LINES = {
    "INFINIBAND": (
        MGWFBP,
        SAME_NODE
        | {
            16: (0.00023583677659915685, 4.0594787739537565e-10, 167),
            8: (9.75367204301171e-05, 3.0568230536676206e-10, 168),
        },
    ),
    "TEN_GIGABIT": (
        MGWFBP,
        SAME_NODE
        | {
            16: (0.0009080981007148093, 7.395651186836712e-10, 173),
            8: (0.0005230272768511732, 8.570746975492128e-10, 174),
        },
    ),
    "INFINIBAND_EXTENDED": (
        BENCHMARKS,
        {
            64: (0.00080632079996292579, 1.8 * 3.2713239529771973e-10, 227),
            32: (0.00040632079996292579, 1.5 * 3.2713239529771973e-10, 228),
        },
    ),
    "INFINIBAND_LATER": (BENCHMARKS, {16: (TRIPLED, 4.0594787739537565e-10, 229)}),
    "TEN_GIGABIT_EXTENDED": (
        BENCHMARKS,
        {
            64: (0.0023476410788581382 * 3, 9.643300782166769e-10, 235),
            32: (0.0013476410788581382 * 3, 8.643300782166769e-10, 236),
        },
    ),
}
# hclhkbu/B-Caffe, scripts/gmwfbp.py: B in line 14, alpha, beta and gamma in lines 37 to 39
B = 9.0 * 1024 * 1024 * 1024.0 / 8
SIMULATION = Link(45.25 * 1e-6, 1 / B * 1.2, 1.0 / (16.0 * 1e9 * 4) * 160)
# hpca-uji/PyDTNN, pydtnn/parser.py, lines 158, 160 and 161; performance_models.py divides bits by
# network_bw and elements, here of 4 bytes, by cpu_speed
CPU_SPEED, NETWORK_BW, NETWORK_LAT = 4e12, 1e9, 0.5e-6
PYDTNN = Link(NETWORK_LAT, 8 / NETWORK_BW, 1 / CPU_SPEED / 4)
# hclhkbu/B-Caffe, logdata/allreduce2.log and allreduce8.log: 121 sizes, 8192 to 499,712 bytes in
# steps of 4096. {nodes: (sum of the times in us, sum of bytes x time)}, enough for a straight line
LOGS = {2: (63954.35, 20429147914.24), 8: (190497.72, 54355133808.64)}

# LambdaColdStorage/lambda-tensorflow-benchmark, tf-train-throughput-fp32.csv and -fp16.csv, rows of
# "V100 32GB,1": images per second in columns alexnet and resnet50
LAMBDA = {"alexnet": (5132, 9319), "resnet50": (432, 1276)}


def four_digits(number: float) -> float:
    return float(f"{number:.3e}")


@pytest.mark.parametrize("name", LINES)
def test_lines(name):
    source, literals = LINES[name]
    machine = getattr(published, name)
    found = {p: Line(four_digits(a_s), four_digits(b)) for p, (a_s, b, _) in literals.items()}
    assert machine.lines == found and machine.label == "verified"
    assert all(part in machine.source for part in source.split(", "))


def test_links():
    assert vars(published.SIMULATION.links["between"]) == pytest.approx(vars(SIMULATION))
    assert "hclhkbu/B-Caffe, scripts/gmwfbp.py" in published.SIMULATION.source
    assert vars(published.PYDTNN.links["between"]) == pytest.approx(vars(PYDTNN))
    assert "pydtnn/parser.py" in published.PYDTNN.source


@pytest.mark.parametrize("nodes", LOGS)
def test_the_line_through_a_log(nodes):
    """Least squares from the sums: the slope, then the latency at the mean size."""
    sizes = np.arange(8192, 499_712 + 1, 4096.0)
    times_us, products = LOGS[nodes]
    mean_us = times_us / len(sizes)
    slope = (products - times_us * sizes.mean()) / (len(sizes) * sizes.var())
    line = published.K80.lines[nodes]
    assert len(sizes) == 121
    assert line.a_s * 1e6 == pytest.approx(mean_us - slope * sizes.mean(), rel=2e-3)
    assert line.b_s_per_byte * 1e6 == pytest.approx(slope, rel=2e-3)
    assert published.K80.label == "computed"
    assert "hclhkbu/B-Caffe, logdata/allreduce{2,8}.log" in published.K80.source


def test_no_machine_is_left_out():
    checked = [*LINES, "SIMULATION", "PYDTNN", "K80"]
    assert {id(machine) for machine in MACHINES} == {id(getattr(published, n)) for n in checked}


def test_latencies_of_one_message():
    """2(p-1) latencies on p = 16; the authors' later code writes three times as much.

    The 5 us have no source, so the input as a whole is unverified.
    """
    assert ALPHA.values == pytest.approx((5e-6, INFINIBAND.lines[16].a_s / 30), rel=0.006)
    assert ALPHA.label == JIA_ALPHA.label == "unverified"
    assert JIA_ALPHA.values == (*ALPHA.values, pytest.approx(TRIPLED / 30, rel=1e-3))


def test_the_emulated_clusters_have_the_same_numbers():
    """Latency, rates and peaks that other files repeat: a machine file cannot compute them."""
    fast, slow = (like.load(name) for name in ("v100-56gbit", "mgwfbp-10gbe"))
    assert fast.latency_s == bottleneck_study.ALPHA_S == max(ALPHA.values)
    assert slow.latency_s == pytest.approx(published.TEN_GIGABIT.lines[16].a_s / 30, rel=0.01)
    peaks = bottleneck_study.V100.flops, bottleneck_study.V100.bandwidth
    assert peaks == (bottleneck_study.BASE["flops"], bottleneck_study.BASE["memory"])
    row = next(r for r in ROWS if (r.network, r.link, r.itemsize) == ("ResNet-152", "56Gb IB", 2))
    flops = [WORKLOADS[name]().step_flops for name in ("ResNet-152", "ResNet-50")]
    resnet = row.batch / row.compute_s * flops[0] / flops[1]
    for each in (fast, slow):
        assert each.steps["alexnet"] == (128, *IMPLIED_RATE.values)
        assert each.steps["resnet50"] == (64, pytest.approx(resnet, rel=0.01))


def test_rates_of_one_gpu():
    assert V100_RATE.values == tuple(SCALE * rate for rate in LAMBDA["alexnet"])
    assert RESNET_RATE.values == LAMBDA["resnet50"]
