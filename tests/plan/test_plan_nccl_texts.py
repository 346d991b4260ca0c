"""Texts of NCCL's times: planned as NCCL chooses, on their own ranks with the times themselves."""

from functools import partial

import pytest

from refgf.papers.scaling.machine import Machine, save
from refgf.plan import __main__ as command
from refgf.plan import benchmarks, fabric, nccl, report
from refgf.plan.nccl import Nccl
from refgf.plan.question import NCCL, Question, ranges
from refgf.plan.step_times import StepTimes
from refgf.plan.uncertainty import planned
from refgf.predict.cost import Link, ring_line
from tests.support import benchmark_texts
from tests.support.text_cases import RECORDED

pytestmark = pytest.mark.usefixtures("short_table")

RING = ring_line(8, Link(10e-6, 1e-10))
STEP = StepTimes("one call", "this test", ((1e-9, 1 << 20),))


def loaded(tmp_path, size, line, a_host, **options):
    path = tmp_path / "text.txt"
    path.write_text(benchmark_texts.nccl(size, line, a_host=a_host, **options))
    return str(path), fabric.load(str(path))


def asked_of(path, ranks, k, *more):
    words = ["plan", "--model", "resnet50", "--batch", "64", "--rate", "360", *more]
    words += ["--machine", path] * bool(path) + ["--ranks", str(ranks), "--ranks-per-node", str(k)]
    given = command.parser().parse_args(words)
    network = command.network_of(given, command.Stated())
    if given.inside:
        network = fabric.with_inside(network, *given.inside, "--inside")
    step = command.inputs.read_model(given.model, network, given.batch, given.rate)
    return command.asked_of(given, step, network, ranks)


@pytest.mark.parametrize(
    "before, named",
    [
        ((), NCCL),
        (("NCCL_ALGO=Ring",), "ring"),
        (("NCCL_ALGO set by environment to Tree",), "ring"),
    ],
)
def test_nccl_s_own_choice_is_planned_unless_the_text_names_one(tmp_path, before, named):
    path, _ = loaded(tmp_path, 8, RING, 1, before=before)
    asked = asked_of(path, 16, 1)
    assert asked.allreduce == named and ("missed" in ranges(asked)) is (named == NCCL)
    assert asked_of(path, 16, 1, "--allreduce", "ring").allreduce == "ring"


@pytest.mark.parametrize("a_host, before", [(1, ()), (4, ("NCCL_ALGO=Ring",))])
def test_one_node_needs_its_own_link_which_a_text_of_several_does_not_have(
    tmp_path, a_host, before
):
    """A PCIe inside would be 10 times slower than an NVLink, and the text looks the same."""
    path, _ = loaded(tmp_path, 8, RING, a_host, before=before)
    on = partial(asked_of, path, k=4)
    with pytest.raises(ValueError, match="nothing of the link inside a node; .* add --inside"):
        report.answer(on(4))
    curves = report.curve(on, [1, 2, 3, 4, 8])
    for found in curves.values():
        assert found[1] == 100 and {found[size] for size in (2, 3, 4)} == {None}
    assert curves["eager"][8]
    assert report.efficiency_table(curves)[-1].startswith("No eager: ranks of one node")
    given = asked_of(path, 4, 4, "--inside", "3us", "80gbit")
    assert report.answer(given)["systems"]["eager"]["low_s"] > 0


@pytest.mark.parametrize("share, far", [(1.0, False), (0.98, False), (0.7, True)])
def test_the_line_of_one_host_s_times_says_how_far_it_is_from_them(tmp_path, share, far):
    """Given as --inside it has the interval of a number, which public texts' times are beyond."""
    with pytest.raises(ValueError, match="ranks on one host.* add --inside .*us .*gbit") as refused:
        loaded(tmp_path, 8, lambda nbytes: RING(nbytes) * (share if nbytes > 1 << 20 else 1.0), 8)
    assert ("% from these times, and its intervals" in str(refused.value)) is far


@pytest.mark.parametrize("k", [2, 7])
@pytest.mark.parametrize("source", ["--between", "osu_latency", "a machine file"])
def test_a_link_between_nodes_is_none_inside_one(tmp_path, source, k):
    """One box is refused. Of two the intervals hold a faster link inside, and a warning says so."""
    path, link, more = tmp_path / "network", Link(5e-6, 4e-11), ()
    if source == "osu_latency":
        path.write_text(benchmark_texts.osu("OSU MPI Latency Test", link.message_s))
    elif source == "--between":
        path, more = "", ("--between", "5us", "200gbit")
    else:
        save(Machine("lab", "a test", "measured", {"between": link}), path)
    with pytest.raises(ValueError, match="nothing of the link inside a node; .* add --inside"):
        report.answer(asked_of(str(path), k, k, *more))
    unknown = asked_of(str(path), 2 * k, k, *more)
    notes = " ".join(report.network_notes(unknown))
    assert "WARNING: the link between nodes stands for that inside a node." in notes
    found = planned("hierarchy", unknown)
    fast = asked_of(str(path), 2 * k, k, *more, "--inside", "0.5us", "2000gbit")
    assert found.low_s <= planned("hierarchy", fast).step_s < found.step_s
    assert "stands for" not in " ".join(report.network_notes(fast))


@pytest.mark.parametrize("text", ["old_2x8", "old_16x1", "ring_4x8_p4d_like", "tree_then_ring_8x1"])
def test_right_texts_have_no_warning_on_their_own_ranks(text):
    network = fabric.load(str(RECORDED / f"nccl_{text}.txt"))
    k = network.lines_per_node
    (size,) = network.lines
    own, more = (report.network_notes(Question(STEP, network, p, k)) for p in (size, 4 * size))
    assert "WARNING" not in " ".join(own) and "WARNING" in " ".join(more)


def test_that_an_nvlink_inside_is_assumed_is_said(tmp_path):
    path, _ = loaded(tmp_path, 8, RING, 4, before=())
    words = "an NVLink inside one, which limits no rate (--inside)"
    assert words in " ".join(report.network_notes(asked_of(path, 16, 4)))
    for known in (asked_of(path, 16, 4, "--inside", "3us", "960gbit"), asked_of(path, 16, 1)):
        assert words not in " ".join(report.network_notes(known))


def test_a_measured_link_and_an_assumed_one_do_not_contradict_each_other(tmp_path):
    """16 GPUs, 8 a node, 80 Gbit/s measured and 100 assumed: both points in both intervals."""
    path, _ = loaded(tmp_path, 8, RING, 1, before=())
    inside = "--inside", "3us", "960gbit"
    both = [
        asked_of(path, 16, 8, *inside),
        asked_of(None, 16, 8, *inside, "--between", "5us", "100gbit"),
    ]
    found = [planned("theta", each) for each in both]
    assert both[0].unmodelled.most == both[1].unmodelled.most > 1
    for one, other in (found, found[::-1]):
        assert one.low_s < other.step_s < one.high_s


@pytest.mark.parametrize("size, k", [(8, 4), (6, 2), (7, 1)])
def test_a_call_of_a_measured_size_takes_the_time_of_the_text(tmp_path, size, k):
    """On the measured ranks, placed alike; whatever line comes near."""

    def uneven_s(n):
        return 2e-5 + 1e-10 * n * (1.15 if n.bit_length() % 2 else 0.95)

    _, found = loaded(tmp_path, size, uneven_s, k, before=())
    for allreduce in (NCCL, "ring"):
        call = Question(STEP, found, size, k, allreduce=allreduce).flat
        for n in (1 << bit for bit in range(10, 27)):
            assert call(n) == pytest.approx(uneven_s(n), rel=2e-3)


@pytest.mark.parametrize("nodes, k", [(2, 4), (8, 4), (10, 1), (5, 3)])
def test_the_fit_finds_the_links_of_its_own_times(nodes, k):
    """Of NCCL's model with an NVLink whose latency is as far from NCCL's as that between nodes."""
    own = Nccl(nodes, k, Link(2 * 3.4e-6, 1 / 40e9), Link(2 * 14e-6, 1 / 10e9))
    times = tuple((float(1 << bit), own(1 << bit)) for bit in range(10, 31))
    found, (least, most) = nccl.fitted(times, nodes, k, None)
    assert 0.98 < least <= most < 1.02
    for more in (2, 16):
        for n in (1 << 12, 1 << 22, 1 << 28):
            there = [Nccl(more * nodes, k, each.inside, each.between)(n) for each in (found, own)]
            assert there[0] == pytest.approx(there[1], rel=0.05)


@pytest.mark.parametrize("size, k", [(32, 4), (8, 1), (6, 2)])
@pytest.mark.parametrize("more", [2, 16])
def test_a_tree_on_more_hosts_lies_in_the_interval(tmp_path, size, k, more):
    """Up and down a chain of k and a tree over the hosts, of 4 KiB and 64 MiB."""

    def tree_s(ranks, n):
        return 2 * (k - 1 + (ranks // k - 1).bit_length()) * 5e-6 + 1e-10 * n

    _, found = loaded(tmp_path, size, lambda n: tree_s(size, n), k, before=())
    for n in (4096, 1 << 26):
        step = StepTimes("one call", "this test", ((1e-9, n // 4),))
        asked = Question(step, found, more * size, k, allreduce=NCCL)
        done = planned("eager", asked)
        assert asked.planned_nccl and done.low_s <= tree_s(more * size, n) <= done.high_s


@pytest.mark.parametrize("size, k, other", [(10, 1, 8), (80, 8, 1)])
def test_adapters_may_grow_with_the_ranks_of_a_node(tmp_path, size, k, other):
    """An adapter for each rank: 10 hosts, 1 or 8 ranks on each, planned with 8 or 1; 128 MiB."""

    def own_s(k, n):
        return ring_line(10 * k, Link(5e-6, 1e-10 / k))(n)

    _, found = loaded(tmp_path, size, lambda n: own_s(k, n), k, before=())
    step = StepTimes("one call", "this test", ((1e-9, 1 << 25),))
    done = planned("eager", Question(step, found, 10 * other, other, allreduce=NCCL))
    assert done.low_s <= own_s(other, 1 << 27) <= done.high_s


def test_shorter_messages_than_the_text_s_are_on_the_way_from_the_line(tmp_path):
    """16 MiB and more: a call of 1 KiB does not take what 16 MiB take, and 16 MiB do."""
    line = ring_line(4, Link(50e-6, 1e-9))
    _, found = loaded(tmp_path, 4, line, 1, before=(), sizes=[1 << bit for bit in range(20, 28)])
    call = found.lines[4]
    assert call(1024) < 1.5 * line(1024) and call(1 << 20) == pytest.approx(line(1 << 20), rel=1e-3)


def test_a_rate_that_no_message_had_is_doubted(tmp_path):
    """A text of 2 GPUs whose line has more Gbit/s than its longest message: 8 n / T."""
    found = fabric.load(str(RECORDED / "nccl_flat_rate_2x1.txt"))
    had = 8e-9 * 134_217_728 / 5881.04e-6
    assert any(f"more than its longest message had, {had:.4g}" in note for note in found.notes)
    assert 8e-9 / found.between.beta_s_per_byte / found.ranges["beta"][1] < 1.001 * had
    _, straight = loaded(tmp_path, 2, ring_line(2, Link(10e-6, 1e-10)), 1)
    assert not any("longest message" in note for note in straight.notes)


def test_a_tree_that_the_log_names_lies_in_the_interval_of_more_hosts():
    """8 hosts, a tree below 512 KiB: 2 x 3 hops of 7 us. On 64 hosts it has 2 x 6 hops."""
    found = fabric.load(str(RECORDED / "nccl_tree_then_ring_8x1.txt"))
    step = StepTimes("one call", "this test", ((1e-9, 1024),))
    done = planned("eager", Question(step, found, 64, allreduce=NCCL))
    assert done.low_s <= 2 * 6 * 7e-6 + 4e-10 * 4096 <= done.high_s
    assert done.high_s < 10 * done.step_s


@pytest.mark.parametrize(
    "words, said",
    [
        (("0us", "25gbit"), "0us 25gbit is faster than links are"),
        (("5ms", "25gbit"), "5000us 25gbit is slow for a cluster"),
        (("5us", "0.1gbit"), "5us 0.1gbit is slow for a cluster"),
        (("5us", "25gbit"), ""),
    ],
)
def test_a_link_in_another_unit_is_doubted(words, said):
    notes = fabric.with_between(None, *words, "--between").notes
    assert said in " ".join(notes) and bool(notes) is bool(said)
    assert fabric.with_inside(fabric.of_node("dgx1-v100"), *words, "--inside").notes == notes


@pytest.mark.parametrize("rate, doubted", [(360, False), (360_000, True), (0.01, True)])
def test_a_rate_that_no_gpu_computes_is_doubted(rate, doubted):
    notes = command.step_times.of_workload("resnet50", 64, rate, "this test").notes
    assert ("flop/s" in " ".join(notes)) is doubted


@pytest.mark.parametrize("size, named, warned", [(2, "", True), (4, "", False), (2, "Ring", False)])
def test_two_ranks_do_not_say_what_more_ranks_use(tmp_path, size, named, warned):
    """A ring and a tree are the same on two. On these two themselves nothing is unknown."""
    before = (f"NCCL_ALGO={named}",) * bool(named)
    path, _ = loaded(tmp_path, size, ring_line(size, Link(9e-6, 1e-10)), 1, before=before)
    for ranks in (size, 32):
        notes = " ".join(report.network_notes(asked_of(path, ranks, 1)))
        assert ("a ring and a tree are the same" in notes) is (warned and ranks == 32)


def test_an_old_alltoall_is_refused_for_what_it_is():
    """Its rows leave the column redop empty (form of superbenchmark's alltoall.log)."""
    head = (
        "# size count type redop time algbw busbw error time algbw busbw error\n"
        "# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)\n"
    )
    rows = "".join(
        f"{n} {n // 4} float 20.00 {n / 2e4:.2f} {n / 2e4:.2f} N/A 20.00 {n / 2e4:.2f} 0 N/A\n"
        for n in (1024, 1 << 20)
    )
    with pytest.raises(ValueError, match="rows without redop, no sum; wanted an allreduce"):
        benchmarks.read(head + rows, "alltoall.log")
