"""Calls that are longer or shorter than all that a text measured, and rings behind two hosts.

The texts are public ones of which rows are left out: their first lines say where they stand.
"""

import pytest

from refgf.plan import fabric, report
from refgf.plan.benchmarks import Stated
from refgf.plan.measurements import AVOIDED, SHORTER, BeyondSizes
from refgf.plan.question import NCCL, Question, ranges
from refgf.plan.step_times import StepTimes
from refgf.plan.uncertainty import planned
from refgf.predict.cost import Line
from tests.support.text_cases import RECORDED

EIGHT, TWO, CUDA = "nccl_polaris_8x4.txt", "nccl_polaris_2x4.txt", "osu_cuda_4x8.txt"
US, ALONE_S = 1e-6, 1e-9


def rows(name):
    """The lines of a recorded text, and {bytes: seconds} of its rows."""
    lines = (RECORDED / name).read_text().splitlines()
    found = [line.split() for line in lines if not line.startswith("#")]
    return lines, {int(row[0]): US * float(row[5]) for row in found}


def cut(path, least=0, most=1 << 40):
    """The 8 x 4 GPUs' text without shorter and longer calls."""
    lines, _ = rows(EIGHT)
    kept = [at for at in lines if at.startswith("#") or least <= int(at.split()[0]) <= most]
    path.write_text("\n".join(kept))
    return fabric.load(str(path), Stated(32, 8))


def one_call(network, size, k, nbytes, allreduce=NCCL):
    step = StepTimes("one call", "this test", ((ALONE_S, nbytes // 4),))
    return Question(step, network, size, k, allreduce=allreduce)


def held(question, seconds):
    found = planned("eager", question)
    return found.low_s <= ALONE_S + seconds <= found.high_s


@pytest.mark.parametrize("most", [1 << bit for bit in (20, 22, 24, 26, 27, 28)])
def test_longer_calls_than_the_longest_measured_lie_in_the_interval(tmp_path, most):
    """The whole text's times, from its shorter calls alone; it has times that fall, too."""
    network, (_, times) = cut(tmp_path / "text.txt", most=most), rows(EIGHT)
    longer = {nbytes: seconds for nbytes, seconds in times.items() if nbytes > most}
    found = [held(one_call(network, 32, 4, nbytes), each) for nbytes, each in longer.items()]
    assert sum(found) >= 0.8 * len(found) > 0
    for nbytes in longer:
        said = report.outside(one_call(network, 32, 4, nbytes))
        assert f"The longest measured message has {most:,} bytes" in said and f"{nbytes:,}" in said
        assert "-b 4 -e 1G -f 2" in said and said.startswith("WARNING: ")


@pytest.mark.parametrize("least", [1 << bit for bit in (12, 16, 20, 23)])
def test_shorter_calls_than_the_shortest_measured_lie_in_the_interval(tmp_path, least):
    network, (_, times) = cut(tmp_path / "text.txt", least=least), rows(EIGHT)
    shorter = {nbytes: seconds for nbytes, seconds in times.items() if nbytes < least}
    found = [held(one_call(network, 32, 4, nbytes), each) for nbytes, each in shorter.items()]
    assert sum(found) >= 0.9 * len(found) > 0
    said = report.outside(one_call(network, 32, 4, AVOIDED))
    assert f"The shortest measured message has {least:,} bytes, and the smallest" in said


@pytest.mark.parametrize("least", [1 << bit for bit in (3, 5, 8, 9, 10)])
def test_a_text_from_a_kibibyte_on_says_little_of_shorter_calls(tmp_path, least):
    """Latencies scatter: a shorter call may take half as long, and half as long again."""
    kept, last = tmp_path / "text.txt", 1 << 26
    network = text_of(kept, grown(1 << bit for bit in range(least.bit_length() - 1, 27)))
    asked = one_call(network, 16, 8, least // 2)
    first_s = US * grown([least])[least]
    assert held(asked, 0.5 * first_s) and held(asked, 1.5 * first_s)
    said = next(at for at in report.network_notes(asked) if "Such calls" in at)
    assert f"WARNING: The shortest measured message has {least:,} bytes" in said
    assert not one_call(network, 16, 8, least).outside
    empty = StepTimes("an empty gradient", "this test", ((ALONE_S, 0), (ALONE_S, last // 4)))
    assert not Question(empty, network, 16, 8).outside


def test_measured_sizes_are_neither_wider_nor_warned_of(tmp_path):
    whole, short = cut(tmp_path / "whole.txt"), cut(tmp_path / "short.txt", most=1 << 26)
    for nbytes in (1024, 1 << 20, 1 << 26):
        both = [one_call(network, 32, 4, nbytes) for network in (whole, short)]
        assert not any("sizes" in ranges(each) or each.outside for each in both)
        assert both[0].flat(nbytes) == pytest.approx(both[1].flat(nbytes), rel=1e-3)
        assert not any("Such calls" in said for said in report.network_notes(both[0]))
    beyond = one_call(short, 32, 4, 1 << 27)
    assert "sizes" in ranges(beyond) and any("longest" in at for at in report.network_notes(beyond))
    inside = one_call(fabric.with_inside(short, "3us", "2400gbit", "this test"), 4, 4, 1 << 27)
    assert not inside.outside  # one host's link is given, and no text's


@pytest.mark.parametrize("nbytes", [0, 1, 1024, 3000, 4096, 1 << 20, 3 << 20, 1 << 30])
def test_a_time_grows_between_the_ends(nbytes):
    """The ends are those of the docstring, and the middle is between them."""
    line, sizes = Line(1e-4, 1e-9), (4096, 1 << 20)
    low_s, middle_s, high_s = (BeyondSizes(line, sizes, bend)(nbytes) for bend in (0.5, 1.0, 2.0))
    assert low_s <= middle_s <= high_s
    least, most = sizes
    if nbytes > most:
        share = nbytes / most
        assert (low_s, high_s) == pytest.approx((line(most), share * line(most)))
    elif nbytes < least:
        share = min(SHORTER[0], max(nbytes, AVOIDED) / least)
        assert (low_s, high_s) == pytest.approx((share * line(least), SHORTER[1] * line(least)))
    else:
        assert low_s == high_s == line(nbytes)


def test_a_long_call_says_more_of_longer_ones():
    line, r = Line(1e-4, 1e-9), 8
    ends = BeyondSizes(line, (1024, 64 << 20)).ends(r * (64 << 20))
    assert ends == pytest.approx((r**0.6 * line(64 << 20), r * line(64 << 20)))


def test_an_osu_text_is_told_how_osu_sends_longer_messages():
    network = fabric.load(str(RECORDED / CUDA), Stated(32, 4))
    said = report.outside(one_call(network, 32, 8, 1 << 22, "ring"))
    assert "osu_allreduce with -m 4:1073741824 -M" in said


@pytest.mark.parametrize(
    "nbytes, us", [(1024, 498.76), (65536, 953.37), (262144, 1564.88), (1048576, 4232.94)]
)
def test_mpi_over_cuda_may_double_as_mpi_does(nbytes, us):
    """From 32 GPUs' sums to those that 256 took, in the same study."""
    network = fabric.load(str(RECORDED / CUDA), Stated(32, 4))
    assert "may sum small messages in 5 steps" in " ".join(network.notes)
    assert held(one_call(network, 256, 8, nbytes, "ring"), US * us)


@pytest.mark.parametrize("nbytes, us", [(1 << 26, 3706.4), (1 << 28, 14603), (1 << 30, 57658)])
def test_more_hosts_may_be_no_slower_than_two(nbytes, us):
    """Two hosts of 4 GPUs, and what 8 took on the same day: NCCL's model is up to 3 x too slow."""
    network = fabric.load(str(RECORDED / TWO), Stated(8, 2))
    assert "or no longer than these two" in " ".join(network.notes)
    question = one_call(network, 32, 4, nbytes)
    assert question.planned_nccl and held(question, US * us)


def text_of(path, times_us):
    """An osu_allreduce of 16 ranks on 2 hosts that took these times, made by hand."""
    rows = [f"{nbytes:<10} {each:15.6f}" for nbytes, each in times_us.items()]
    head = ["# OSU MPI Allreduce Latency Test v5.8", "# Size       Avg Latency(us)"]
    path.write_text("\n".join([*head, *rows, ""]))
    return fabric.load(str(path), Stated(16, 2))


def grown(sizes):
    """20 us of latency and 1 ns a byte."""
    return {nbytes: 20 + 1e-3 * nbytes for nbytes in sizes}


def test_a_gap_between_measured_sizes_is_wide_and_named(tmp_path):
    """Every third row: the interval holds the times of both neighbours."""
    times = grown(1 << bit for bit in range(10, 29, 3))
    network = text_of(tmp_path / "every_third.txt", times)
    asked = one_call(network, 16, 8, 1 << 20)
    assert asked.gaps == [(1 << 19, 1 << 22, 1 << 20, 1 << 20)]
    assert all(held(asked, US * times[neighbour]) for neighbour in (1 << 19, 1 << 22))
    said = next(at for at in report.network_notes(asked) if "No size between" in at)
    assert said.startswith("WARNING: No size between 524,288 and 4,194,304 bytes was measured.")
    assert "Calls may have 1,048,576 bytes." in said
    assert not one_call(network, 16, 8, 1 << 22).gaps  # this size is measured


def test_sizes_that_double_have_no_gap_and_those_that_quadruple_have(tmp_path):
    for step in (1, 2):
        network = text_of(tmp_path / f"{step}.txt", grown(1 << bit for bit in range(10, 27, step)))
        asked = one_call(network, 16, 8, (1 << 19) + 4)
        assert bool(asked.gaps) == ("sizes" in ranges(asked)) == (step == 2)


def test_each_second_row_of_a_text_that_is_left_out_is_held_or_warned_of(tmp_path):
    """Short calls, too. In this text 128 KiB take four times as long as 64 KiB."""
    lines, times = rows(TWO)
    left_out = sorted(times)[1::2]
    kept = [at for at in lines if at.startswith("#") or int(at.split()[0]) not in left_out]
    (tmp_path / "half.txt").write_text("\n".join(kept))
    network = fabric.load(str(tmp_path / "half.txt"), Stated(8, 2))
    asked = [one_call(network, 8, 4, nbytes) for nbytes in left_out[:-1]]
    assert all(report.outside(each).startswith("WARNING: No size between") for each in asked)
    assert sum(held(each, times[n]) for each, n in zip(asked, left_out)) >= len(asked) - 2


def test_a_slow_first_row_is_no_floor_of_longer_calls(tmp_path):
    times = grown(1 << bit for bit in range(10, 27)) | {1024: 400.0}
    network = text_of(tmp_path / "slow_first.txt", times)
    for nbytes in (1024, 4096, 8192, 1 << 20):
        call = one_call(network, 16, 8, nbytes).flat(nbytes)
        assert call == pytest.approx(US * times[nbytes])


def test_measured_sizes_below_a_kibibyte_take_their_own_times(tmp_path):
    times = grown(1 << bit for bit in range(10, 27)) | {4: 3.0, 64: 5.0}
    network = text_of(tmp_path / "short.txt", dict(sorted(times.items())))
    for nbytes in (4, 64, 1024):
        asked = one_call(network, 16, 8, nbytes)
        assert asked.flat(nbytes) == pytest.approx(US * times[nbytes]) and not asked.outside
