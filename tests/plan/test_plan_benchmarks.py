"""Texts of benchmarks with known links: each is read right, or refused with a true reason.

No text gives a wrong number without a warning, however it was cut, mixed or pasted.
"""

import re
from itertools import product
from pathlib import Path
from random import Random

import pytest

from refgf.plan import fabric
from refgf.plan.benchmarks import Stated
from refgf.predict.cost import Line, Link, ring_line
from tests.support.benchmark_texts import LAST, SIZES, TAGS, nccl, osu, tagged

CASES = Path(__file__).with_name("benchmarks")
SLOW, FAST = Link(5.3e-6, 1e-10), Link(2.1e-6, 8 / 370e9)
LATENCY, ALLREDUCE = "OSU MPI Latency Test", "OSU MPI Allreduce Latency Test"
FULL = ("Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations")
TAILS = ("Latency (us)", "P50 Tail Lat(us)", "P99 Tail Lat(us)")
COLUMNS = [FULL, TAILS, ("Latency (us)", "Validation")]
COLUMNS += [("Latency (us)",), ("Avg Latency(us)",), ("Avg Lat(us)",)]


def ring(size, k, link=SLOW, **options):
    return nccl(size, ring_line(size, link), a_host=k, **options)


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


@pytest.mark.parametrize("version, tag", product(LAST, TAGS))
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
    text = "14 more processes have sent help message\n" + osu(LATENCY, SLOW.message_s)
    found = load(tmp_path, tagged(text, TAGS[tag]))
    assert found == load(tmp_path, text) and holds(found, SLOW)
    assert (found.notes, found.lines) == (found.notes[-1:], {})


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig"])
def test_other_encodings_and_line_ends(tmp_path, encoding):
    text = ring(6, 1).replace("\n", "\r\n")
    assert holds(load(tmp_path, text, encoding=encoding), SLOW)


def test_open_mpi_tags_the_parts_of_a_line(tmp_path):
    tag = "[1,0]<stdout>:"
    text = tagged(re.sub("(-1 )", rf"\1{tag}", ring(6, 3)), tag)
    assert text.count(f"-1 {tag}") == len(SIZES) and holds(load(tmp_path, text), SLOW)


OPTIONS = {
    "-d half": {"dtype": "half"},
    "-d bfloat16": {"dtype": "bfloat16"},
    "-d double": {"dtype": "double"},
    "-c 0": {"checks": "N/A"},
    "in place only": {"groups": ("in",)},
    "out of place only": {"groups": ("out",)},
    "-S": {"timestamp": True},
    "-I 1": {"columns": ("i_min", "i_max", "i_p99", "i_cv%")},
    "-b 0": {"sizes": [0, *SIZES]},
    "-i 1000": {"sizes": range(1000, 400_000, 1000)},
    "-b 1000000 -f 3": {"sizes": [1_000_000 * 3**n for n in range(8)]},
    "-N 2": {"sizes": [*SIZES, *SIZES]},
    "-z": {"before": ["# Blocking Enabled: wait and barrier after each inner iteration (-m) "]},
    "in place is slower": {"slower": 1.7},
    "NCCL_DEBUG=INFO": {"before": ["node0:41:77 [0] NCCL INFO Using network IB"]},
}


@pytest.mark.parametrize("version, option", product(LAST, OPTIONS))
def test_tables_of_all_options(tmp_path, version, option):
    link, given = Link(SLOW.alpha_s, SLOW.beta_s_per_byte), OPTIONS[option]
    if version == "old" and given.get("checks") is None:
        given = given | {"checks": "5e-07"}
    found = load(tmp_path, ring(12, 4, version=version, **given))
    assert holds(found, link) and found.lines_per_node == 4
    assert ("blocking" in " ".join(found.notes)) == (option == "-z")


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


@pytest.mark.parametrize("title, columns", product([LATENCY, ALLREDUCE], COLUMNS))
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
        assert (found.ranges["alpha"][1] > 5) == (kind == "MPI")  # 4 steps, not 22
    else:
        found = load(tmp_path, text)
        assert "ping-pong" in found.notes[-1]
    assert holds(found, SLOW)


def test_a_hop_of_many_ranks_that_does_not_exist_is_no_link(tmp_path):
    """384 ranks sum 8 bytes within 24 us, which is no ring of 766 hops."""
    text = osu(ALLREDUCE, Line(24e-6, 2e-10))
    for hosts in (4, 384):
        with pytest.raises(ValueError, match="0.031 us, if this allreduce on 384 ranks was a ring"):
            load(tmp_path, text, Stated(384, hosts))


TWO = osu(LATENCY, SLOW.message_s) + osu("OSU MPI-CUDA Latency Test", FAST.message_s)


@pytest.mark.parametrize(
    "text, table, said",
    [
        (TWO, None, r"2 tables \(1: OSU MPI Latency Test v7.4, Datatype MPI_CHAR, 25 rows from l"),
        (TWO, "2", FAST),
        (TWO, "cuda", FAST),
        (TWO, "latency", "--measured-table latency, 2 of the tables; wanted one of 1: OSU"),
        (TWO, "3", "--measured-table 3, 0 of the tables"),
        (ring(6, 3) + "\n" + ring(4, 2, FAST), "2", FAST),
        (ring(6, 3) + "\n" + ring(4, 2, FAST), None, "2 tables"),
        (ring(6, 3) + osu(ALLREDUCE, FAST.message_s), None, "2 tables"),
        (ring(6, 3) + "\n" + ring(6, 3, FAST, dtype="half").split("(GB/s)")[-1], None, "half sum"),
        (osu(LATENCY, FAST.message_s) + TWO.partition("Size")[0], None, FAST),
    ],
)
def test_one_table_or_a_choice(tmp_path, text, table, said):
    if isinstance(said, Link):
        assert holds(load(tmp_path, text, Stated(table=table)), said)
    else:
        with pytest.raises(ValueError, match=said):
            load(tmp_path, text, Stated(table=table))


@pytest.mark.parametrize("hosts", [2, 4])
def test_from_two_hosts_the_interval_holds_what_four_measured(hosts):
    """Trees on two hosts: 57 GB/s; a ring on four: 29.5 GB/s."""
    two, four = (
        fabric.load(str(CASES / name))
        for name in ("nccl_tree_2x8_p4d_like.txt", "nccl_ring_4x8_p4d_like.txt")
    )
    assert holds(two, four.ring_hop) and not holds(four, two.ring_hop)
    assert any("on 2 hosts, where NCCL sends through trees" in note for note in two.notes)
    assert not any("2 hosts" in note for note in four.notes)
    assert two.scaled(beta=2.0).lines[16].b_s_per_byte < 1.1 * two.lines[16].b_s_per_byte


@pytest.mark.parametrize("said, factor", [("", 15 / 4), ("Ring", 1), ("Tree", 15 / 4)])
def test_what_may_have_been_a_tree_holds_its_hops(tmp_path, said, factor):
    """A tree on 16 hosts has 8 hops where a ring has 30, and looks like a ring of faster ones."""
    before = [f"node0:77:77 [0] NCCL INFO NCCL_ALGO set by environment to {said}"] * bool(said)
    tree = Line(8 * SLOW.alpha_s, 2 * 15 / 16 * SLOW.beta_s_per_byte)
    found = load(tmp_path, nccl(16, tree, a_host=1, before=before))
    assert holds(found, SLOW) == (factor > 1) == any("a ring has 30" in n for n in found.notes)
    assert found.ranges["alpha"][1] >= factor


CASE = {
    "nccl_old_2x8.txt": Link(5e-6, 1e-10),
    "nccl_old_16x1.txt": Link(5e-6, 1e-10),
    "nccl_old_NA_2x8.txt": Link(5e-6, 1e-10),
    "nccl_old_zero_row.txt": Link(5e-6, 1e-10),
    "nccl_new_2x8_indented.txt": Link(5e-6, 1e-10),
    "nccl_one_host_indented.txt": "8 GPUs on one host",
    "nccl_failed_indented.txt": "5 FAILED",
    "nccl_nolist_1node.txt": "no list of devices; wanted the hosts of its 8 ranks",
    "nccl_partial_list.txt": "the ranks 0, 7, 8, 15, which was shortened",
    "osu_latency_twice.txt": "2 tables",
    "osu_latency_then_allreduce.txt": "2 tables",
    "osu_allreduce_two_sizes_of_ranks.txt": "2 tables",
    "osu_persistent.txt": "got 'OSU MPI Persistent Allreduce Latency Test v7.4'; wanted",
    "osu_small_only.txt": "4 sizes of 1024 bytes and more, 1,024 to 8,192 bytes",
}


@pytest.mark.parametrize("name", CASE)
def test_texts_that_were_read_wrong(name):
    if isinstance(CASE[name], Link):
        assert holds(fabric.load(str(CASES / name)), CASE[name])
    else:
        with pytest.raises(ValueError, match=re.escape(CASE[name])):
            fabric.load(str(CASES / name))


def changed(old, new, size=8, **options):
    """A table on nodes of one GPU, with one change."""
    text = ring(size, 1, **options)
    assert old in text
    return text.replace(old, new, 1)


OTHER = ring(4, 1, sizes=[3 << 20]).splitlines()[-4]
PASS = osu(LATENCY, SLOW.message_s, ("Latency (us)", "Validation"))
ORPHANS = osu(LATENCY, SLOW.message_s).replace("# Size", "Sizes") + osu("", FAST.message_s)
REFUSED = {
    "next: run osu_latency": osu("OSU MPI Bandwidth Test", SLOW.message_s, ("Bandwidth (MB/s)",)),
    "got 'OSU MPI Multi Latency": osu("OSU MPI Multi Latency Test", SLOW.message_s),
    "got 'OSU MPI Non-blocking All": osu("OSU MPI Non-blocking Allreduce Latency Test", Line(1, 1)),
    "got 'OSU MPI_Put Latency Test v7.4": osu("OSU MPI_Put Latency Test", SLOW.message_s),
    "without a table of sizes": "# OSU MPI Barrier Latency Test v7.4\n# Avg Latency(us)\n  5.1\n",
    "columns Size, Latency (ms)": osu(LATENCY, SLOW.message_s, ("Latency (ms)",)),
    "a table without its title in line 4": osu(LATENCY, SLOW.message_s).replace("OSU", "The"),
    "a table without its title in line 32": ORPHANS,  # which lost a header, and the next title
    "Validation Fail": PASS.replace("Pass", "Fail", 1),
    "the size 8 after 134217728, under one header": osu(LATENCY, SLOW.message_s) + "\n8 50.1\n",
    "a column in ms": ring(8, 1, unit="(ms)"),
    "got #wrong = 7 at 8 bytes": changed("        0\n", "        7\n"),
    "got error = 1e+00 at 8": ring(8, 1, version="old", checks="1e+00"),
    "'Out of bounds values : 5 FAILED', an": changed("values : 0 OK", "values : 5 FAILED"),
    "redop none, no sum": ring(8, 1).replace(" sum ", " none "),
    "root 0, a collective with a root": ring(8, 1).replace(" -1 ", " 0 "),
    "reduce_perf, another collective": changed("all_reduce_perf", "reduce_perf", version="2.17"),
    "columns size count type redop root cputime": ring(8, 1).replace("    time", " cputime"),
    "time algbw busbw wrong time algbw; wanted": "\n".join(
        line[:-18] if len(line) > 90 else line for line in ring(8, 1).splitlines()
    ),
    "in 2 groups; wanted one": changed("Group  0", "Group  1"),
    "busbw / algbw = 0.874": ring(8, 1, ratio=7 / 8),
    "as many on each host": changed("node1 device  0", "node0 device  1", 4),
    "33554433 bytes of 8388608 float": changed(" 33554432 ", " 33554433 "),
    "5.696 GB/s, next to algbw = 5.80": changed(" 5.70 ", " 5.80 "),
    "bytes in 74.38 us and in 119.2 us": changed("# Out", ring(8, 1, Link(8.5e-6, 1e-10))[1900:]),
    "busbw / algbw not the same in all rows": changed("# Out", OTHER + "\n# Out"),
    "times that do not grow with the size": osu(LATENCY, lambda nbytes: 5e-5 - 1e-13 * nbytes),
    "the header of its table (size, time": changed("algbw", "rate", version="old").replace(
        "size ", "bytes "
    ),
    "got JSON; wanted a machine file": '{"config": {}, "results": []}',
    "got another text; wanted a machine file": "hello",
    "at most 20 Tbit/s": ring(2, 1, Link(5e-6, 3e-13)),
    "a hop of 0.05 us, if this allreduce on 64": ring(64, 8, Link(5e-8, 1e-10)),
    "a hop of 0.049 us; wanted at least 0.1 us": osu(LATENCY, Link(5.2e-8, 1e-10).message_s),
}


@pytest.mark.parametrize("said", REFUSED)
def test_texts_that_do_not_help(tmp_path, said):
    with pytest.raises(ValueError, match="plan --machine .*: got .*; wanted .*; next: ") as error:
        load(tmp_path, REFUSED[said])
    assert said in str(error.value)


def test_stated_hosts_agree_with_a_shortened_list(tmp_path):
    text = ring(6, 3, listed=(0, 1, 3))
    assert load(tmp_path, text, Stated(hosts=2)).lines_per_node == 3
    for hosts, said in (
        (6, "a list with 2"),
        (1, "a list with 2"),
        (4, "--measured-hosts 4 for 6"),
    ):
        with pytest.raises(ValueError, match=said):
            load(tmp_path, text, Stated(hosts=hosts))


WARNED = {
    "2 lines of the table are no whole rows and are left out: '1024 256 float": re.sub(
        r"\n( +(?:1024|2048) .*) .*?(?=\n)", r"\n\1", ring(8, 1)
    ),
    "is slow for a cluster. Are its times in us": osu(LATENCY, Link(2e-3, 1e-7).message_s),
    "0.297us 79.96gbit is faster than a network with one GPU a host": osu(
        LATENCY, Link(3e-7, 1e-10).message_s
    ),
    "5us 3000gbit is faster than a network": osu(LATENCY, Link(5e-6, 8 / 3e12).message_s),
}


@pytest.mark.parametrize("said", WARNED)
def test_what_is_doubted(tmp_path, said):
    found = load(tmp_path, WARNED[said])
    assert found.notes[0].startswith("WARNING") and said in found.notes[0]


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
