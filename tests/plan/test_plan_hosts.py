"""nccl-tests over hosts of several GPUs: what its ring says of the links inside and between."""

import re
from dataclasses import replace

import pytest

from refgf.plan import fabric, report
from refgf.plan.question import NCCL, Question, ranges
from refgf.plan.step_times import StepTimes
from refgf.plan.systems import SYSTEMS
from refgf.plan.uncertainty import planned
from refgf.predict.cost import Line, Link, ring_line
from tests.support.benchmark_texts import nccl

pytestmark = pytest.mark.usefixtures("short_table")

FAST = Link(5e-6, 4e-11)


def test_nccl_tests_on_hosts_of_8_gpus(tmp_path):
    """Its line is used for ranks that are placed like that; what alpha is a mean of is said."""
    path = tmp_path / "nccl.txt"
    line = Line(1e-3, 1e-9)
    path.write_text(nccl(16, line, a_host=8))
    found = fabric.load(str(path))
    assert found.name == "nccl-tests, allreduce on 16 GPUs of 2 hosts" and found.lines_per_node == 8
    assert "are the mean hop of a ring with 8 ranks a host" in found.notes[0]
    step = StepTimes("small", "this test", ((1.0, 1000),))
    placed, alone = (Question(step, found, 16, k) for k in (8, 1))
    assert placed.measured and placed.flat.a_s == pytest.approx(1e-3, rel=0.02)
    assert not alone.measured
    as_measured = "A call of a measured size takes the text's time and scatter, of one run."
    as_notes = [said.removeprefix("WARNING: ") for said in found.notes]  # the interval holds them
    assert report.network_notes(placed) == [*as_notes, as_measured]
    assert report.network_notes(alone)[: len(found.notes)] == list(found.notes)
    said = "measured with 8 a node and is predicted with 1, by the fitted link"
    assert said in report.network_notes(alone)[-2]
    path.write_text(nccl(16, line, a_host=1))
    assert fabric.load(str(path)).notes == ()


def of_8_gpus_a_host(tmp_path):
    """4 hosts: a hop between them takes 10 us, one inside 1 us."""
    path = tmp_path / "nccl.txt"
    path.write_text(nccl(32, ring_line(32, Link((10e-6 + 7 * 1e-6) / 8, 4e-11)), a_host=8))
    return fabric.load(str(path))


def test_hops_inside_do_not_make_the_link_between_nodes_faster(tmp_path):
    """k mean = (k-1) inside + between. The measured ring stays; two levels get slower."""
    mixed = of_8_gpus_a_host(tmp_path)
    found = fabric.with_inside(mixed, "1us", "2400gbit", "--inside")
    assert mixed.ring_hop.alpha_s == pytest.approx(2.125e-6, rel=1e-2)
    assert found.between.alpha_s == pytest.approx(10e-6, rel=2e-2) and "hops" not in found.ranges
    assert "Less 7 hops inside, one between nodes takes 10" in found.notes[0]
    assert "One of blocking steps (refgf's) waits for the slowest hop" in found.notes[0]
    step = StepTimes("small", "this test", ((1e-4, 1000), (2e-4, 1000)))
    before, after = (Question(step, each, 4096, 8) for each in (mixed, found))
    assert after.flat(1e6) == pytest.approx(before.flat(1e6))
    mean = replace(mixed, between=mixed.ring_hop)  # too fast: most of its hops were inside
    assert SYSTEMS["hierarchy"].step_s(after) > 3 * SYSTEMS["hierarchy"].step_s(
        replace(before, fabric=mean)
    )
    assert SYSTEMS["hierarchy"].step_s(after) < 2 * SYSTEMS["hierarchy"].step_s(before)
    alone = Question(step, found, 4096)  # one rank a node: all hops are between nodes
    assert alone.flat.a_s == pytest.approx(2 * 4095 * found.between.alpha_s)
    (hop,) = Question(step, found, 4096, 4).hops
    assert hop.alpha_s == pytest.approx((10e-6 + 3e-6) / 4, rel=2e-2)
    assert report.network_notes(alone)[0] == found.notes[0]


def test_without_inside_the_interval_holds_the_slowest_hop_between_nodes(tmp_path):
    mixed = of_8_gpus_a_host(tmp_path)
    mean_s, (low, high) = mixed.ring_hop.alpha_s, mixed.ranges["hops"]
    ends_s = [factor * mixed.between.alpha_s for factor in (low, high)]
    assert ends_s == pytest.approx([mean_s, 8 * mean_s]) and low * high == pytest.approx(1)
    assert (
        "If a hop inside takes no longer than one between nodes, this takes 2.13 to 17 us"
        in (mixed.notes[0])
    )
    step = StepTimes("small", "this test", ((1e-4, 1000), (2e-4, 1000)))
    asked = Question(step, mixed, 4096, 8)
    slowest = SYSTEMS["hierarchy"].step_s(replace(asked, fabric=mixed.scaled(hops=high)))
    found = planned("hierarchy", asked)
    assert found.widest == "hops" and found.high_s >= slowest > 2 * found.step_s
    assert found.low_s < found.step_s / 2
    assert planned("eager", asked).widths["hops"] == 0  # that ring was measured
    said = report.text(report.answer(asked))
    assert "narrow it with --inside" in said
    assert "inside a node: not known, so the mean hop of the measured ring stands" in said


def ring_of(tmp_path, between, inside, k, hosts=16):
    """A ring that pays the mean latency of its hops and the rate of the slower link."""
    mean_s = ((k - 1) * inside.alpha_s + between.alpha_s) / k
    hop = Link(mean_s, max(between.beta_s_per_byte, inside.beta_s_per_byte))
    path = tmp_path / "ring.txt"
    path.write_text(nccl(k * hosts, ring_line(k * hosts, hop), a_host=k))
    return fabric.load(str(path))


def with_link(given, link):
    rate = f"{8e-9 / link.beta_s_per_byte:g}gbit"
    return fabric.with_inside(given, f"{1e6 * link.alpha_s:g}us", rate, "--inside")


SMALL = StepTimes("small", "this test", ((1e-3, 4_000_000), (2e-3, 1000)))


@pytest.mark.parametrize("k", [4, 8])
def test_a_hop_inside_may_be_slower_than_one_between_nodes(tmp_path, k):
    """20 us between, 40 us inside: the mean is less than 40 us, and nothing is wrong.

    A few percent of the mean are most of the difference, so its interval is wide.
    """
    between, inside = Link(20e-6, 8e-10), Link(40e-6, 1e-11)
    found = with_link(ring_of(tmp_path, between, inside, k), inside)
    assert found.between.alpha_s == pytest.approx(between.alpha_s, rel=0.05)
    assert not any("WARNING" in note for note in found.notes)
    low, high = found.ranges["hops"]
    least = fabric.LEAST * k * found.ring_hop.alpha_s / between.alpha_s
    assert high - 1 >= 0.9 * least and 1 - low >= 0.9 * min(0.9, least)
    asked = Question(SMALL, found, 512, k)
    said = report.text(report.answer(asked))
    assert "Gbit/s between nodes" in said and "us and at least" not in said
    links = replace(asked, fabric=fabric.Fabric("net", "this test", between, inside))
    for system in ("hierarchy", "hierarchy16", "DASO"):
        ours, true = (planned(system, each) for each in (asked, links))
        assert ours.low_s <= true.high_s and true.low_s <= ours.high_s


def test_hops_that_cannot_both_be_are_doubted(tmp_path):
    """8 mean hops of 2.125 us take less than 7 inside of 5 us."""
    found = fabric.with_inside(of_8_gpus_a_host(tmp_path), "5us", "800gbit", "--inside")
    assert found.between.alpha_s == 5e-6
    assert "2.13 us are the mean hop of the measured ring, too short for 7 hops" in found.notes[0]
    assert found.notes[0].startswith("WARNING") and "One is wrong" in found.notes[0]


def test_an_inside_slower_than_the_measured_ring_is_doubted(tmp_path):
    """All bytes of a ring cross the links inside, so none of them is slower than the ring."""
    mixed = of_8_gpus_a_host(tmp_path)  # 200 Gbit/s
    found = fabric.with_inside(mixed, "1us", "40gbit", "--inside")
    (said,) = (note for note in found.notes if "--inside has 40 Gbit/s" in note)
    assert said.startswith("WARNING") and "the measured ring sent 200 Gbit/s" in said
    assert "One is wrong" in said
    assert len(fabric.with_inside(mixed, "1us", "240gbit", "--inside").notes) == len(mixed.notes)


def test_a_ring_as_slow_as_its_links_inside_does_not_say_the_rate_between_nodes(tmp_path):
    """100 Gbit/s between, 20 Gbit/s inside: the ring shows the latter, and that is said."""
    between, inside = Link(20e-6, 8e-11), Link(3e-6, 4e-10)
    mixed = ring_of(tmp_path, between, inside, 8)
    found = with_link(mixed, inside)
    (said,) = (note for note in found.notes if "WARNING" in note)
    assert "the link between nodes has at least this rate" in said
    assert "all_reduce_perf with one GPU a host" in said and "One is wrong" not in said
    for given in (mixed, found):  # without --inside it is not known, either
        asked = Question(SMALL, given, 512, 8)
        answer = report.answer(asked)
        assert answer["network"]["rate_known"] is False
        assert "us and at least 20 Gbit/s between nodes" in report.text(answer)
    fast = with_link(ring_of(tmp_path, inside, between, 8), between)
    assert fast.rate_known and "WARNING" not in " ".join(fast.notes)
    assert " 20 Gbit/s between" in report.text(report.answer(Question(SMALL, fast, 512, 8)))


def test_without_inside_its_rate_is_not_known(tmp_path):
    """10 Gbit/s between and 800 inside: rows with two levels assume 10 for both, as is said."""
    (said,) = ring_of(tmp_path, Link(20e-6, 8e-10), Link(3e-6, 1e-11), 8).notes
    assert "10 Gbit/s are the rate of its slowest link, inside or between" in said
    assert "two levels, top-k and DASO assume it for both" in said and "Add --inside" in said


def test_nccl_tests_on_one_host_measures_no_link_between_nodes(tmp_path):
    path = tmp_path / "nccl.txt"
    path.write_text(nccl(8, ring_line(8, FAST), a_host=8))
    with pytest.raises(ValueError, match="8 ranks on one host, so the link inside a node") as error:
        fabric.load(str(path))
    assert str(error.value).endswith("pass that text, and add --inside 5us 200gbit")


@pytest.mark.parametrize("inside", ["1us 3200gbit", "0.5us 900gbit", "2us 400gbit"])
def test_without_inside_rows_with_two_levels_hold_one_that_is_faster(tmp_path, inside):
    """Between nodes 400 Gbit/s."""
    mixed = ring_of(tmp_path, Link(5e-6, 2e-11), Link(1e-6, 2.5e-12), 8)
    step = StepTimes("small", "this test", ((1e-3, 1 << 20), (2e-3, 1 << 22)))
    known = Question(step, fabric.with_inside(mixed, *inside.split(), "--inside"), 128, 8)
    for name in ("hierarchy", "hierarchy16", "DASO"):
        found = planned(name, Question(step, mixed, 128, 8))
        assert found.low_s <= SYSTEMS[name].step_s(known) <= found.high_s
    assert "inside" not in ranges(known)


def one_call(found, size, k, nbytes, allreduce="ring"):
    """(lowest, highest) seconds of one call after a step that takes no time."""
    step = StepTimes("one call", "this test", ((1e-9, nbytes // 4),))
    done = planned("eager", Question(step, found, size, k, allreduce=allreduce))
    return done.low_s, done.high_s


@pytest.mark.parametrize("size, k", [(32, 4), (8, 1), (6, 2)])
@pytest.mark.parametrize("more", [2, 16])
def test_a_tree_that_the_text_does_not_name_is_in_the_interval_of_more_ranks(
    tmp_path, size, k, more
):
    """4 KiB through a chain of k and a tree over the hosts: k - 1 + ceil(log2 hosts) hops, x 2."""
    path = tmp_path / "nccl.txt"

    def tree_s(ranks, nbytes):
        return 2 * (k - 1 + (ranks // k - 1).bit_length()) * 5e-6 + 1e-10 * nbytes

    path.write_text(nccl(size, lambda n: tree_s(size, n), a_host=k, before=()))
    found = fabric.load(str(path))
    low_s, high_s = one_call(found, more * size, k, 4096)
    assert low_s <= tree_s(more * size, 4096) <= high_s
    assert "NCCL's choice is planned on other ranks" in " ".join(found.notes)


@pytest.mark.parametrize("size, k", [(32, 8), (8, 1), (6, 2)])
def test_a_ring_that_was_forced_unseen_is_held_as_a_ring_and_warned_of(tmp_path, size, k):
    """4 KiB through 2 (p-1) hops on 16 times the ranks."""
    path = tmp_path / "nccl.txt"
    path.write_text(nccl(size, ring_line(size, FAST), a_host=k, before=()))
    found, more = fabric.load(str(path)), 16 * size
    low_s, high_s = one_call(found, more, k, 4096)
    assert low_s <= ring_line(more, FAST)(4096) <= high_s
    assert one_call(found, more, k, 4096, NCCL)[1] < ring_line(more, FAST)(4096)
    (said,) = (n for n in found.notes if "no interval of NCCL's choice holds it" in n)
    assert said.startswith("WARNING") and "plan with --allreduce ring" in said


def test_fewer_hosts_may_have_less_contention_and_more_ranks_a_host_more_adapters(tmp_path):
    """Half of the cost a byte on 2 of 32 hosts; an eighth with 8 adapters for 8 ranks."""
    path, link = tmp_path / "nccl.txt", Link(5e-6, 1e-10)
    path.write_text(nccl(32, ring_line(32, link), a_host=1))
    found, nbytes = fabric.load(str(path)), 1 << 27
    low_s, high_s = one_call(found, 2, 1, nbytes)
    alone_s = ring_line(2, Link(5e-6, 0.5e-10))(nbytes)
    assert low_s <= alone_s < high_s
    assert low_s > 0.9 * alone_s
    path.write_text(nccl(10, ring_line(10, link), a_host=1))
    found = fabric.load(str(path))
    each_s = ring_line(80, Link(5e-6, 1e-10 / 8))(nbytes)
    asked = Question(StepTimes("one", "this test", ((1e-9, nbytes // 4),)), found, 80, 8)
    assert planned("eager", asked).low_s <= each_s
    assert "WARNING: with 8 a node there may be more adapters than with the 1" in " ".join(
        report.network_notes(asked)
    )
    fewer = Question(asked.step, found, 20, 1)
    assert "WARNING" not in " ".join(report.network_notes(fewer))


def test_fewer_ranks_a_host_may_have_fewer_adapters_whose_rate_the_link_inside_hides(tmp_path):
    """80 ranks of 10 hosts, as fast as the link inside: one of each host has an eighth of it."""
    path, link, nbytes = tmp_path / "nccl.txt", Link(5e-6, 3e-12), 1 << 28
    path.write_text(nccl(80, ring_line(80, link), a_host=8, before=()))
    rate = f"{8e-9 / 5e-12:.0f}gbit"  # slower than the ring was
    found = fabric.with_inside(fabric.load(str(path)), "3us", rate, "--inside")
    step = StepTimes("one", "this test", ((1e-9, nbytes // 4),))
    asked = Question(step, found, 10, 1, allreduce=NCCL)
    done = planned("eager", asked)
    assert asked.planned_nccl
    assert done.low_s <= ring_line(10, Link(5e-6, 8 * 3e-12))(nbytes) <= done.high_s
    assert found.nccl.between.beta_s_per_byte > 1e-12
    said = " ".join(report.network_notes(asked))
    assert "WARNING: with 1 a node there may be fewer adapters than with the 8" in said
    assert re.search(r"and at least [0-9,]+ Gbit/s between nodes", said)


@pytest.mark.parametrize("factor, warned", [(1.6, True), (0.5, True), (1.1, False)])
def test_times_in_place_that_are_others_are_warned_of(tmp_path, factor, warned):
    path = tmp_path / "nccl.txt"
    path.write_text(nccl(8, Line(1e-4, 1e-9), a_host=1, slower=factor))
    notes = " ".join(fabric.load(str(path)).notes)
    assert ("times in place, as PyTorch and Horovod sum" in notes) is warned
    assert not warned or f"take {factor:.2g} times as long" in notes


def test_measured_times_have_no_error_of_a_line(tmp_path):
    """Times that no line comes near are planned with themselves, as measured."""
    path = tmp_path / "nccl.txt"
    path.write_text(nccl(16, lambda n: 1e-4 + 1e-10 * n * (4 if n > 1 << 22 else 1), a_host=1))
    found = fabric.load(str(path))
    low_s, high_s = one_call(found, 16, 1, 1 << 26)
    measured_s = 1e-4 + 4e-10 * (1 << 26)
    assert 0.9 * measured_s < low_s < measured_s < high_s < 1.7 * measured_s  # overlap: 1 / 0.7
