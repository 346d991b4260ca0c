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
    compare,
    compare_all,
    gradients_of,
    same_order,
    summary,
)
from refgf.predict.cost import Line
from refgf.predict.timeline import eager, one_call, predict

# MG-WFBP against WFBP and against SyncEASGD as published, row by row: a check of the typing
RATIOS = [
    (1.10, 1.21),
    (1.20, 1.01),
    (0.99, 1.05),
    (1.09, 1.07),
    (1.21, 1.15),
    (1.40, 1.13),
    (1.16, 1.13),
    (1.18, 1.03),
    (1.33, 1.09),
    (1.71, 1.11),
    (1.14, 1.13),
    (1.25, 1.03),
    (1.67, 1.12),
    (1.70, 1.12),
    (1.26, 1.08),
    (1.20, 1.07),
]


@pytest.mark.parametrize("row, ratios", list(zip(ROWS, RATIOS)))
def test_data(row, ratios):
    wfbp, one, merged = row.measured_s
    assert (wfbp / merged, one / merged) == pytest.approx(
        ratios, abs=0.0101
    )  # printed with two digits
    assert row.compute_s < min(row.measured_s)


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


def test_a_row_whose_latency_is_forgotten_loses_its_order():
    """Seeded mistake: a = 0, which removes the reason to merge."""
    row = ROWS[1]
    line, gradients = row.machine.allreduce_s(GPUS), gradients_of(row)
    free = Line(0.0, line.b_s_per_byte)
    wrong = [
        predict(gradients, groups, free).step_s
        for groups in (eager(gradients), one_call(gradients), greedy_merge(gradients, free))
    ]
    assert compare(row, greedy_merge).ordering and not same_order(wrong, row.measured_s)
