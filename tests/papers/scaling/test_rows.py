"""The published rows.

The data against the ratios that were published with it, and the bars of the comparison.
"""

import math

import pytest

from refgf.papers.mgwfbp.merge import greedy_merge
from refgf.papers.scaling.rows import (
    GPUS,
    ROWS,
    calibrated_overheads,
    compare_all,
    gradients_of,
    same_order,
    summary,
)
from refgf.predict.cost import Line
from refgf.predict.timeline import eager, one_call, predict

# seconds in the authors' plotting script, function plot_realdata_comm: compute in float32 and in
# float16, then WFBP, SyncEASGD, MG-WFBP on eth_fp32, eth_fp16, ib_fp32, ib_fp16
SCRIPT = {
    "ResNet-152": (
        (0.883118444, 0.388587889),
        (1.23343938852773, 1.36014631802352, 1.12611348980156),
        (0.757144753582024, 0.636332837191469, 0.62969512705326),
        (1.08207490737751, 1.14349856500806, 1.08926123052581),
        (0.531046268746226, 0.518222719609269, 0.486271295133516),
    ),
    "Inception-v4": (
        (0.61082206, 0.279730928),
        (0.943730968358381, 0.899976457881453, 0.780575902070508),
        (0.591019579388972, 0.477115832605121, 0.423175552678714),
        (0.767364986034143, 0.746227280857805, 0.661337401153554),
        (0.430170979831572, 0.373202685750795, 0.363820604043981),
    ),
    "DenseNet-161": (
        (0.47765481, 0.253018587),
        (0.83238836059332, 0.682584589864119, 0.628013485914495),
        (0.614905695164206, 0.39935562610809, 0.360415335875275),
        (0.601903116710871, 0.596814522380611, 0.527390124793952),
        (0.400008289616235, 0.329964755038104, 0.321050630321988),
    ),
    "DenseNet-201": (
        (0.360877356, 0.215181737),
        (0.7636, 0.51283, 0.4566),
        (0.614204217901379, 0.406464315896478, 0.361810340425332),
        (0.512376011576687, 0.437788525915094, 0.405942742968561),
        (0.397707045163982, 0.354400110781044, 0.331319474344984),
    ),
}


@pytest.mark.parametrize("name", SCRIPT)
def test_times_are_those_of_the_script(name):
    """In milliseconds, as rows.py has them."""
    compute_s, *measured = SCRIPT[name]
    rows = [row for row in ROWS if row.network == name]
    places = [(row.link, row.itemsize) for row in rows]
    assert places == [("10GbE", 4), ("10GbE", 2), ("56Gb IB", 4), ("56Gb IB", 2)]
    for row, times in zip(rows, measured, strict=True):
        assert row.measured_s == tuple(round(t, 3) for t in times)
        assert row.compute_s == round(compute_s[row.itemsize == 2], 3)


def test_compute_times_belong_to_network_and_precision():
    assert len(ROWS) == 16
    assert len({(row.network, row.itemsize, row.compute_s) for row in ROWS}) == 8


def test_bars_from_the_inputs_alone():
    got = summary(compare_all(greedy_merge))
    assert got["orderings"] >= 8 and got["close"] >= 6


def test_one_overhead_a_link_brings_the_times_closer():
    before, after = (
        compare_all(greedy_merge),
        compare_all(greedy_merge, calibrated_overheads(greedy_merge)),
    )
    assert summary(after)["mean_time_error"] < 0.5 * summary(before)["mean_time_error"]
    assert summary(after)["close"] >= summary(before)["close"]
    assert [c.ordering for c in before] == [c.ordering for c in after]


def squared_log_error(link, a_s=0.0, b_s=0.0, step_s=0.0):
    total = 0.0
    for row in ROWS:
        if row.link == link:
            fitted = row.machine.allreduce_s(GPUS)
            line, gradients = Line(fitted.a_s + a_s, fitted.b_s_per_byte + b_s), gradients_of(row)
            for groups, measured in zip(
                (eager(gradients), one_call(gradients), greedy_merge(gradients, fitted)),
                row.measured_s,
            ):
                total += (
                    math.log((predict(gradients, groups, line).step_s + step_s) / measured) ** 2
                )
    return total


@pytest.mark.parametrize("link", ["10GbE", "56Gb IB"])
def test_an_overhead_a_step_fits_better_than_one_a_call_or_a_byte(link):
    a_call = min(squared_log_error(link, a_s=1e-4 * k) for k in range(0, 12, 2))
    a_byte = min(squared_log_error(link, b_s=2e-10 * k) for k in range(0, 14, 2))
    assert squared_log_error(link, step_s=calibrated_overheads(greedy_merge)[link]) < 0.5 * min(
        a_call, a_byte
    )


def test_ties_are_not_right():
    assert not same_order((1.0, 1.0, 0.5), (1.1, 1.0, 0.5))
    assert same_order((1.0, 1.0, 0.5), (1.005, 1.0, 0.5))  # level in the paper: any order will do
    assert not same_order((0.9, 1.0, 0.5), (1.1, 1.0, 0.5))
