"""Texts of benchmarks with known links: each is read right, or refused with a true reason.

No text gives a wrong number without a warning, however it was cut, mixed or pasted. The sentences
are approved in tests/approval.
"""

import re
from itertools import product
from random import Random

import pytest

from refgf.plan import algorithms, fabric, report
from refgf.plan.benchmarks import Stated
from refgf.plan.measurements import RUN
from refgf.plan.question import Question, ranges, varied
from refgf.plan.step_times import StepTimes
from refgf.predict.cost import Line, Link, ring_line
from tests.support.benchmark_texts import LAST, SIZES, TAGS, nccl, osu, tagged
from tests.support.text_cases import (
    ALLREDUCE,
    FAST,
    LATENCY,
    RECORDED,
    SLOW,
    latency,
    ring,
)

FULL = ("Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations")
TAILS = ("Latency (us)", "P50 Tail Lat(us)", "P99 Tail Lat(us)")
COLUMNS = [FULL, TAILS, ("Latency (us)", "Validation")]
COLUMNS += [("Latency (us)",), ("Avg Latency(us)",), ("Avg Lat(us)",)]


def load(folder, text, stated=None, encoding="utf-8"):
    path = folder / "log.txt"
    path.write_bytes(text.encode(encoding))
    return fabric.load(str(path), stated or Stated())


def holds(found, link):
    """Is this the hop that was measured, within the intervals?"""
    hop = found.ring_hop or found.between
    factors = {"alpha": link.alpha_s / (hop.alpha_s or 1e-12)}
    factors["beta"] = link.beta_s_per_byte / hop.beta_s_per_byte
    return all(found.ranges[name][0] <= x <= found.ranges[name][1] for name, x in factors.items())


@pytest.mark.parametrize("version, tag", list(product(LAST, TAGS)))
def test_what_stands_in_front_of_lines_is_no_part_of_them(tmp_path, version, tag):
    """NCCL's tables are read as without it, hosts and failed values included."""
    text = ring(6, 2, version=version)
    found = load(tmp_path, tagged(text, TAGS[tag]))
    assert found == load(tmp_path, text) and holds(found, SLOW)
    assert found.name == "nccl-tests, allreduce on 6 GPUs of 3 hosts"
    for change, said in (
        (("node1", "node0"), "GPU of a host twice"),
        (("0 OK", "5 FAILED"), "5 FAILED"),
    ):
        with pytest.raises(ValueError, match=said):
            load(tmp_path, tagged(text.replace(*change), TAGS[tag]))


@pytest.mark.parametrize("tag", TAGS)
def test_the_same_for_osu(tmp_path, tag):
    text = "14 more processes have sent help message\n" + latency()
    found = load(tmp_path, tagged(text, TAGS[tag]))
    assert found == load(tmp_path, text) and holds(found, SLOW)
    assert (found.notes, found.lines) == (found.notes[-1:], {})


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig"])
def test_other_encodings_and_line_ends(tmp_path, encoding):
    text = ring(6, 1).replace("\n", "\r\n")
    assert holds(load(tmp_path, text, encoding=encoding), SLOW)


@pytest.mark.parametrize("tag", ["[1,0]<stdout>:", "[0]", "0:"])
def test_a_launcher_s_tag_may_touch_a_cell_of_a_row(tmp_path, tag):
    """-1[1,0]<stdout>: 85.14, as Open MPI's, MPICH's and Slurm's launchers write it."""
    text = tagged(re.sub("(-1) ", rf"\g<1>{tag} ", ring(6, 3)), tag)
    assert text.count(f"-1{tag} ") == len(SIZES)
    assert load(tmp_path, text) == load(tmp_path, ring(6, 3))


def test_a_root_that_is_no_number_is_refused_as_such(tmp_path):
    """Without the same tag in the header."""
    text = re.sub("(-1) ", r"\g<1>[1,0]<stdout>: ", ring(6, 3))
    with pytest.raises(ValueError, match="column root; wanted -1, and no label of a launcher"):
        load(tmp_path, text)


def test_a_type_without_a_known_size_is_refused(tmp_path):
    with pytest.raises(ValueError, match="got type f32x in .*; next: run all_reduce_perf with -d"):
        load(tmp_path, ring(6, 3).replace(" float ", " f32x "))


@pytest.mark.parametrize(
    "said, warned",
    [
        ("warmup iters: 5 iters: 20 agg iters: 1", []),
        ("warmup iters: 1 iters: 10 agg iters: 1", []),
        ("warmup iters: 0 iters: 20 agg iters: 1", ["no warm-up"]),
        ("warmup iters: 0 iters: 1 agg iters: 1", ["no warm-up", "one call of each size"]),
        ("iters: 20 agg iters: 1 validation: 1 graph: 0", []),
        ("iters: 20 agg iters: 1 validation: 1 graph: 3", ["the calls were replayed 3 times"]),
    ],
)
def test_times_of_one_call_or_of_a_first_one_are_warned_of(tmp_path, said, warned):
    found = load(tmp_path, ring(6, 3).replace("iters: 20", said))
    for words in ("no warm-up", "one call of each size", "the calls were replayed 3 times"):
        assert any(f"WARNING: {words}" in note for note in found.notes) == (words in warned)


@pytest.mark.parametrize("word", ["0.00", "nan", "inf", "-59.1", "10,989", "10.989,0"])
@pytest.mark.parametrize("column", [0, 1])
def test_a_row_without_a_time_in_one_of_its_columns_is_refused(tmp_path, column, word):
    """The other column's time would stand for it in silence. N/A says that it was not measured."""
    lines = ring(6, 3).splitlines()
    cells = lines[-9].split()
    cells[(5, 9)[column]] = word
    with pytest.raises(ValueError, match="wanted numbers in time, algbw, busbw"):
        load(tmp_path, "\n".join([*lines[:-9], " ".join(cells), *lines[-8:]]))


@pytest.mark.parametrize("after", ["", "export NCCL_ALGO=Ring\n"])
def test_a_setting_before_another_run_s_rows_is_none_of_the_next(tmp_path, after):
    """A page quotes two commands, and a few rows of the first table without their header."""
    rows = [line for line in ring(12, 4).splitlines() if not line.startswith("#")]
    first = "\n".join(["mpirun -x NCCL_ALGO=Ring all_reduce_perf -G 1", *rows[-2:]])
    found = load(tmp_path, f"{first}\n{after}{ring(6, 3, before=())}")
    assert found.lines_per_node == 3 and bool(found.nccl_times) is not bool(after)


def test_a_list_with_a_higher_rank_than_the_table_s_is_of_another_run(tmp_path):
    with pytest.raises(
        ValueError, match="rank 11, and busbw / algbw = .*, that of 6 ranks; wanted"
    ):
        load(tmp_path, ring(6, 3, listed=[11]), Stated(None, 2))


def test_a_log_that_begins_with_a_dictionary_is_no_machine_file(tmp_path):
    """A launcher of Python prints its settings first."""
    assert load(tmp_path, "{'NUM_GPUS': 6}\n" + ring(6, 3)) == load(tmp_path, ring(6, 3))


def test_open_mpi_tags_the_parts_of_a_line(tmp_path):
    tag = "[1,0]<stdout>:"
    text = tagged(re.sub("(-1 )", rf"\1{tag}", ring(6, 3)), tag)
    assert text.count(f"-1 {tag}") == len(SIZES) and holds(load(tmp_path, text), SLOW)


@pytest.mark.parametrize("size, k", [(2, 1), (3, 1), (5, 1), (6, 3), (7, 1), (48, 8), (1000, 8)])
@pytest.mark.parametrize("link", [SLOW, FAST], ids=["slow", "fast"])
def test_all_numbers_of_ranks(tmp_path, size, k, link):
    """With its list; without it; with a shortened one."""
    found = load(tmp_path, ring(size, k, link))
    assert holds(found, link) and list(found.lines) == [size] and found.lines_per_node == k
    stated = Stated(size if size > 7 else None, size // k)
    assert load(tmp_path, ring(size, k, link, listed=False), stated) == found
    if size > 3:
        short = ring(size, k, link, listed=(0, size - 1))
        assert load(tmp_path, short, stated) == found
        with pytest.raises(ValueError, match=rf"ranks 0, {size - 1}, which .*--measured-"):
            load(tmp_path, short)
    if 3 < size < 1000:
        with pytest.raises(ValueError, match="a list of 2 ranks, and busbw / algbw.*hosts"):
            load(tmp_path, ring(size, k, link, listed=(0, 1)))


@pytest.mark.parametrize("title, columns", list(product([LATENCY, ALLREDUCE], COLUMNS)))
@pytest.mark.parametrize("kind", ["MPI", "MPI-CUDA", "MPI-NCCL", "NCCL"])
def test_osu(tmp_path, title, columns, kind):
    line = SLOW.message_s if title == LATENCY else ring_line(12, SLOW)
    text = osu(title.replace("MPI", kind), line, columns)
    if title == ALLREDUCE:
        with pytest.raises(ValueError, match="neither ranks nor hosts.*--measured-hosts H"):
            load(tmp_path, text)
        with pytest.raises(ValueError, match="the hosts of its 12 ranks"):
            load(tmp_path, text, Stated(12))
        found = load(tmp_path, text, Stated(12, 3))
        assert found.lines_per_node == 4
        assert (found.ranges["alpha"][1] > 5) == ("CCL" not in kind)  # 4 steps, not 22
    else:
        found = load(tmp_path, text)
        assert "ping-pong" in found.notes[-1]
    assert holds(found, SLOW)


def test_a_hop_of_many_ranks_that_does_not_exist_is_no_link(tmp_path):
    """384 ranks sum 8 bytes within 24 us, which MPI may do in 9 steps; not within 0.8 us."""
    for hosts in (4, 384):
        with pytest.raises(ValueError, match=r"0\.08\d us, if this .* on 384 ranks has 9 of them"):
            load(tmp_path, osu(ALLREDUCE, Line(0.8e-6, 2e-10)), Stated(384, hosts))
        found = load(tmp_path, osu(ALLREDUCE, Line(24e-6, 2e-10)), Stated(384, hosts))
        assert any("WARNING: An MPI library may sum small mess" in note for note in found.notes)
        assert any("ends at 10 times" in note for note in found.notes)


def test_a_tree_on_many_ranks_is_planned_from_and_a_ring_of_such_hops_is_refused(tmp_path):
    """4 bytes on 2160 ranks in 415 us: 26 hops of 16 us, or 4318 of 0.096 us."""
    line = Line(415e-6, 8.7e-11)
    found = load(tmp_path, nccl(2160, line, a_host=4, before=[]))
    assert found.lines[2160](1 << 20) == pytest.approx(line(1 << 20), rel=1e-3)
    assert any("ends at 10 times" in note for note in found.notes)
    with pytest.raises(ValueError, match="0.096 us, if this allreduce on 2160 ranks has 4318 of"):
        load(tmp_path, nccl(2160, line, a_host=4))


@pytest.mark.parametrize(
    "title, stated, us, warned",
    [
        (LATENCY, {}, 0.29, True),  # ofiwg/libfabric's provider of shared memory
        (LATENCY, {}, 1.2, False),
        (ALLREDUCE, {"ranks": 8, "hosts": 8}, 2.7, True),  # 3 messages, one after another
        (ALLREDUCE, {"ranks": 8, "hosts": 8}, 3.3, False),
    ],
)
def test_shared_memory_is_no_link_between_nodes(tmp_path, title, stated, us, warned):
    """Long messages have the latency of a network there, short ones have not."""
    text = osu(title, lambda n: 1e-6 * us + (4e-6 + n * 1.3e-10) * (n > 1024))
    found = load(tmp_path, text, Stated(**stated))
    assert any("WARNING: its shortest message" in note for note in found.notes) == warned


@pytest.mark.parametrize("hosts", [2, 4])
def test_from_two_hosts_the_interval_holds_what_four_measured(hosts):
    """Trees on two hosts: 57 GB/s; a ring on four: 29.5 GB/s."""
    two, four = (
        fabric.load(str(RECORDED / name))
        for name in ("nccl_tree_2x8_p4d_like.txt", "nccl_ring_4x8_p4d_like.txt")
    )
    assert holds(two, four.ring_hop) and not holds(four, two.ring_hop)
    assert any("on 2 hosts, where NCCL sends through trees" in note for note in two.notes)
    assert not any("2 hosts" in note for note in four.notes)
    assert two.scaled(beta=2.0).lines[16](1e9) < 1.1 * two.lines[16](1e9)


def logged(short: str, long: str) -> str:
    """The text of two hosts with a line of NCCL's for each call: long from 1 MiB on."""
    found = []
    for line in (RECORDED / "nccl_tree_2x8_p4d_like.txt").read_text().splitlines():
        words = line.split()
        if len(words) > 9 and words[0].isdigit():
            chosen = f"{words[0]} Bytes -> Algo {short if int(words[0]) < 1 << 20 else long}"
            found += [f"node0:77:77 [0] NCCL INFO {chosen} proto 2 time 9.9"] * 2
            found += ["node0:77:77 [0] NCCL INFO AllGather: 1048576 Bytes -> Algo 6 proto 2"]
        found.append(line)
    return "\n".join(found)


@pytest.mark.parametrize(
    "short, long, alpha, beta",
    [("1", "1", 1, 1), ("0", "0", 15 / 8, 15 / 8), ("0", "1", 15 / 8, 1), ("0", "4", 15 / 8, 2)],
)
def test_the_algorithms_of_a_log_narrow_what_two_hosts_widen(tmp_path, short, long, alpha, beta):
    """A tree sends n bytes on a node's link where a ring of 16 sends 15 / 8 n."""
    unknown = load(tmp_path, (RECORDED / "nccl_tree_2x8_p4d_like.txt").read_text())
    found = load(tmp_path, logged(short, long))
    widths = [found.ranges[name][1] for name in ("alpha", "beta")]
    assert widths == pytest.approx([1.05 * alpha, 1.05 * beta], rel=0.02)
    assert all(width <= unknown.ranges[n][1] for width, n in zip(widths, ("alpha", "beta")))
    assert any("summed through tree" in note for note in found.notes) == (short == "0")


def test_algorithms_by_name_by_number_and_in_a_column_are_the_same(tmp_path):
    """The column is that of rccl-tests -M."""
    found = []
    for line in (RECORDED / "nccl_tree_2x8_p4d_like.txt").read_text().splitlines():
        words = line.split()
        more = "algo proto nchannels" if "busbw" in words else ""
        if len(words) > 9 and words[0].isdigit():
            more = "TREE LL 64" if int(words[0]) < 1 << 20 else "RING SIMPLE 64"
        found.append(f"{line} {more}")
    texts = logged("TREE", "RING"), logged("0", "1"), "\n".join(found)
    first, *others = (load(tmp_path, text) for text in texts)
    assert all(each.ranges == first.ranges and each.notes == first.notes for each in others)


@pytest.mark.parametrize("said, factor", [("", 15 / 4), ("Ring", 1), ("Tree", 15 / 4)])
def test_what_may_have_been_a_tree_holds_its_hops(tmp_path, said, factor):
    """A tree on 16 hosts has 8 hops where a ring has 30, and looks like a ring of faster ones."""
    before = [f"node0:77:77 [0] NCCL INFO NCCL_ALGO set by environment to {said}"] * bool(said)
    tree = Line(8 * SLOW.alpha_s, 2 * 15 / 16 * SLOW.beta_s_per_byte)
    found = load(tmp_path, nccl(16, tree, a_host=1, before=before))
    assert holds(found, SLOW) == (factor > 1) == any("a ring has 30" in n for n in found.notes)
    assert found.ranges["alpha"][1] >= factor


@pytest.mark.parametrize(
    "value, name",
    [
        ("Ring", "ring"),
        ("^Tree", "ring"),
        ("^Ring,NVLS", "tree"),
        ("allreduce:Ring", "ring"),
        ('"Tree;allreduce:ring;broadcast:tree"', "ring"),
        ("tree;broadcast:ring", "tree"),
        ("broadcast:ring", ""),
        ("Ring,Tree", ""),
        ("^NVLS", ""),
        ("^Ring,Tree", ""),
        ("NVLS,NVLSTree", "nvls"),
    ],
)
def test_lists_of_algorithms_name_one_or_leave_the_choice(tmp_path, value, name):
    text = nccl(16, ring_line(16, SLOW), a_host=4, before=[f"export NCCL_ALGO={value}"])
    assert algorithms.named(text) == name
    found = load(tmp_path, text)
    assert (found.nccl_times is None) == bool(name)
    assert ("summed through" in " ".join(found.notes)) == (name not in ("ring", ""))


@pytest.mark.parametrize(
    "said, limits",
    [
        ("NCCL_PROTO=LL", "NCCL_PROTO=LL"),
        ("mpirun -x NCCL_MAX_NCHANNELS=1 -x NCCL_IB_DISABLE=1 ./all_reduce_perf", None),
        ("node0:7:7 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.", "NCCL_P2P_DISABLE=1"),
        ("NCCL_IB_DISABLE=0 NCCL_IB_HCA=mlx5 NCCL_DEBUG=INFO", ""),
        ("node0:7:7 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 0.", ""),
    ],
)
def test_what_was_switched_off_or_limited_is_warned_of(tmp_path, said, limits):
    found = load(tmp_path, nccl(16, ring_line(16, SLOW), a_host=4, before=["NCCL_ALGO=Ring", said]))
    both = "NCCL_MAX_NCHANNELS=1, NCCL_IB_DISABLE=1"
    warned = [note for note in found.notes if "same settings" in note]
    assert len(warned) == (limits != "")
    assert all(f"WARNING: measured with {both if limits is None else limits}" in n for n in warned)


def test_noise_of_single_times_stays_within_the_intervals(tmp_path):
    """8 % of each: of 60 texts at most 2 are outside."""
    outside, line = 0, ring_line(7, SLOW)
    for seed in range(60):
        noise = Random(seed)
        text = nccl(7, lambda n, draw=noise.gauss: line(n) * draw(1, 0.08), a_host=1)
        outside += not holds(load(tmp_path, text), SLOW)
    assert outside <= 2


def test_times_far_below_the_line_are_within_the_intervals(tmp_path):
    """One of 399: the standard errors do not reach so far."""
    sizes, line = range(2000, 401_000, 1000), ring_line(8, SLOW)
    text = nccl(8, lambda n: line(n) / (4 if n == 300_000 else 1), a_host=1, sizes=sizes)
    found = load(tmp_path, text)
    assert found.ranges["beta"][0] < 0.3 and "300,000 bytes by" in found.notes[0]


@pytest.mark.parametrize("alpha, beta", [(1.0, 1.0), (1.3, 1.35), (1.3, 1.9), (2.0, 2.0)])
def test_the_interval_of_a_ping_pong_holds_an_exchange_both_ways(tmp_path, alpha, beta):
    """Up to twice as long; warned of, with what to run instead."""
    found = load(tmp_path, latency())
    assert holds(found, Link(alpha * SLOW.alpha_s, beta * SLOW.beta_s_per_byte))
    assert not holds(found, Link(SLOW.alpha_s, 2.5 * SLOW.beta_s_per_byte))
    assert "WARNING: osu_latency is a ping-pong" in found.notes[-1]
    assert "run osu_allreduce" in found.notes[-1]


def measured_s(found, ranks, nbytes):
    """(lowest, highest) time of a call on the measured ranks."""
    step = StepTimes("one call", "this test", ((1e-9, nbytes // 4),))
    asked = Question(step, found, ranks)
    both = [ranges(asked)[name] for name in ("alpha", "beta")]
    ends = zip(*both)
    return [varied(asked, alpha=a, beta=b).flat(nbytes) for a, b in ends]


@pytest.mark.parametrize("noise", [0.0, 0.03, 0.05, 0.08])
@pytest.mark.parametrize("ranks, columns", [(2, 2), (5, 2), (5, 1), (7, 2), (16, 1)])
def test_the_interval_on_measured_ranks_is_that_of_a_single_time(tmp_path, ranks, columns, noise):
    """A ring, as NCCL_ALGO or osu_allreduce measures it; each time is off by so much.

    The scatter is that of both columns, or of a single one against its neighbours. Outside are 4 %
    of the calls at most; with +-5 % instead, more than twice as many.
    """
    line, outside, sizes = ring_line(ranks, SLOW), 0, [1 << bit for bit in range(10, 28)]
    for seed in range(10):
        draw, first = Random(seed).gauss, {}

        def once(n, draw=draw, first=first):
            first[n] = line(n) * (1 + draw(0, noise))
            return first[n]

        def again(n, draw=draw, first=first):
            return line(n) * (1 + draw(0, noise)) / first[n]

        if columns == 1:
            found = load(tmp_path, osu(ALLREDUCE, once, sizes=sizes), Stated(ranks, ranks))
        else:
            found = load(tmp_path, nccl(ranks, once, a_host=1, sizes=sizes, slower=again))
        for n in sizes:
            low_s, high_s = measured_s(found, ranks, n)
            outside += not low_s <= line(n) <= high_s
            assert high_s / low_s < 1.11 + 18 * (max(RUN, noise) if columns == 1 else noise)
    assert outside <= 0.04 * 10 * len(sizes)


def test_one_size_that_is_off_does_not_widen_all_others(tmp_path):
    """It is warned of: a deviation counts as 20 % at most."""
    line = ring_line(5, SLOW)
    found = load(tmp_path, nccl(5, line, a_host=1, slower=lambda n: 3 if n == 4096 else 1))
    assert "1 of 18 times in place" in " ".join(found.notes)
    low_s, high_s = measured_s(found, 5, 1 << 26)
    assert 0.94 < low_s / line(1 << 26) < high_s / line(1 << 26) < 1.06


def test_of_several_tables_without_an_allreduce_none_is_advised(tmp_path):
    gathers = osu("OSU MPI Allgather Latency Test", ring_line(4, SLOW))
    with pytest.raises(ValueError, match="2 tables, none of an allreduce .*osu_allreduce$"):
        load(tmp_path, gathers + "\n" + gathers)
    mixed = gathers + "\n" + osu(ALLREDUCE, ring_line(4, SLOW))
    with pytest.raises(ValueError, match="next: --measured-table 2, a number"):
        load(tmp_path, mixed)


@pytest.mark.parametrize("written", [lambda n: f"{n:,}", lambda n: f"{n // 1024}K"])
def test_sizes_with_commas_or_units_are_said_to_be_unread(tmp_path, written):
    text = "\n".join(
        re.sub(r"^\s*(\d+)", lambda at: written(int(at[1])), line)
        if line[:1] in " 123456789"
        else line
        for line in nccl(4, ring_line(4, SLOW), a_host=1).splitlines()
    )
    with pytest.raises(ValueError, match="no whole rows, such as .*whole bytes without commas"):
        load(tmp_path, text)


@pytest.mark.parametrize("times, warned", [(40, True), (2, False)])
def test_a_rank_that_took_far_longer_than_the_others_is_warned_of(tmp_path, times, warned):
    text = osu(ALLREDUCE, ring_line(4, SLOW), columns=FULL)
    rows = [line.split() for line in text.splitlines() if line[:1].isdigit()]
    rows[3][3] = f"{times * float(rows[3][1]):.2f}"
    head = [line for line in text.splitlines() if not line[:1].isdigit()]
    found = load(tmp_path, "\n".join([*head, *map("  ".join, rows)]), Stated(4, 4))
    said = "in 1 of 25 sizes a rank took more than 5 times the average of all ranks, up to 40 times"
    assert (f"WARNING: {said}" in " ".join(found.notes)) is warned


@pytest.mark.parametrize("factor, warned", [(1.0, False), (0.5, False), (3.0, True)])
def test_far_from_the_line_is_no_warning_where_the_times_are_used(tmp_path, factor, warned):
    """An allreduce that falls once, as with another algorithm; a row that stands out."""

    def seconds(n):
        start, rate = 3e-5 + 1e-9 * n, 3e-4 + 1e-10 * n
        line_s = min(start, rate)
        return line_s * (factor if factor > 1 and n == 1 << 20 or factor < 1 and n > 1 << 22 else 1)

    found = load(tmp_path, osu(ALLREDUCE, seconds), Stated(4, 4))
    step = StepTimes("one call", "this test", ((1e-9, 1 << 18),))
    own, more = (report.network_notes(Question(step, found, size)) for size in (4, 64))
    far = [next(n for n in notes if "from the line" in n) for notes in (own, more)]
    assert far[0].startswith("WARNING") is warned
    assert far[1].startswith("WARNING") is (factor != 1)
