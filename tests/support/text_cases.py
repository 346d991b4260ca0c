"""Texts of benchmarks for `plan --machine`, right and wrong ones, each with what the user states.

TEXTS    {name: (text, {option: value} of Stated)}
"""

import re
from itertools import product, zip_longest
from pathlib import Path

from refgf.predict.cost import Line, Link, ring_line
from tests.support.benchmark_texts import LAST, SIZES, nccl, osu

RECORDED = Path(__file__).parents[1] / "plan" / "benchmarks"
SLOW, FAST = Link(5.3e-6, 1e-10), Link(2.1e-6, 8 / 370e9)
LATENCY, ALLREDUCE = "OSU MPI Latency Test", "OSU MPI Allreduce Latency Test"
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
    "-m 20": {"before": ["# nThread 1 agg iters: 20"]},
    "in place is slower": {"slower": 1.7},
    "NCCL_DEBUG=INFO": {"before": ["node0:41:77 [0] NCCL INFO Using network IB"]},
}


def ring(size, k, link=SLOW, **options):
    return nccl(size, ring_line(size, link), a_host=k, **options)


def latency(link=SLOW, title=LATENCY, **options):
    return osu(title, link.message_s, **options)


def changed(old, new, size=8, **options):
    """A table on nodes of one GPU, with one change."""
    text = ring(size, 1, **options)
    assert old in text
    return text.replace(old, new, 1)


def of_options():
    """{name: text} of each option, as each version prints it."""
    for version, name in product(LAST, OPTIONS):
        given = OPTIONS[name]
        if version == "old" and given.get("checks") is None:
            given = given | {"checks": "5e-07"}
        yield f"{version}, {name}", ring(12, 4, version=version, **given)


def without_last_column(text):
    return "\n".join(line[:-18] if len(line) > 90 else line for line in text.splitlines())


OTHER = ring(4, 1, sizes=[3 << 20]).splitlines()[-4]
PASS = latency(columns=("Latency (us)", "Validation"))
TWO = latency() + latency(FAST, "OSU MPI-CUDA Latency Test")
TWO_RINGS = ring(6, 3) + "\n" + ring(4, 2, FAST)
TWO_TYPES = ring(6, 3) + "\n" + ring(6, 3, FAST, dtype="half").split("(GB/s)")[-1]
SHORT_LIST = ring(6, 3, listed=(0, 1, 3))
CUT_ROWS = re.sub(r"\n( +(?:1024|2048) .*) .*?(?=\n)", r"\n\1", ring(8, 1))


def in_turn(*texts):
    """Lines of each text in turn, behind the number of its rank, as `srun -l` mixes them."""
    labelled = [
        [f"{rank}: {line}" for line in text.splitlines()] for rank, text in enumerate(texts)
    ]
    return "\n".join(line for lines in zip_longest(*labelled) for line in lines if line)


def wrapped(text, width):
    """As a terminal of this width shows it."""
    lines = text.splitlines()
    return "\n".join(
        line[at : at + width] for line in lines for at in range(0, len(line) or 1, width)
    )


def stamped_rows(text):
    """A time before each row, and before nothing else."""
    return re.sub(r"(?m)^(?= *\d)", "2024-07-18 10:31:05 ", text)


TWO_RUNS = in_turn(ring(6, 3), ring(4, 2, FAST))
OTHERS = "\n".join(f"node1: NCCL INFO Channel {channel}/24" for channel in range(60))
HEADER_ALONE = ring(6, 3, FAST).split("(GB/s)")[0] + "(GB/s)\n# killed\n"

TEXTS = {
    **{name: (text, {}) for name, text in of_options()},
    "osu_latency": (latency(), {}),
    "osu_latency, tails": (latency(columns=("Latency (us)", "P50 Tail Lat(us)")), {}),
    "osu_allreduce": (osu(ALLREDUCE, ring_line(12, SLOW)), {}),
    "osu_allreduce, ranks stated": (osu(ALLREDUCE, ring_line(12, SLOW)), {"ranks": 12}),
    "osu_allreduce, hosts": (osu(ALLREDUCE, ring_line(12, SLOW)), {"ranks": 12, "hosts": 3}),
    "osu_allreduce of 5 hosts": (osu(ALLREDUCE, ring_line(12, SLOW)), {"ranks": 12, "hosts": 5}),
    "osu_allreduce of NCCL": (
        osu("OSU NCCL Allreduce Latency Test", ring_line(12, SLOW)),
        {"ranks": 12, "hosts": 3},
    ),
    "osu_allreduce of no ring": (osu(ALLREDUCE, Line(24e-6, 2e-10)), {"ranks": 384, "hosts": 4}),
    "osu_latency, ranks": (latency(), {"ranks": 2}),
    "osu_latency, hosts": (latency(), {"hosts": 2}),
    "osu_latency of one host": (latency(), {"hosts": 1}),
    "two tables": (TWO, {}),
    "two tables, the second": (TWO, {"table": "2"}),
    "two tables, by name": (TWO, {"table": "cuda"}),
    "two tables, both fit": (TWO, {"table": "latency"}),
    "two tables, no third": (TWO, {"table": "3"}),
    "two rings": (TWO_RINGS, {}),
    "two rings, the second": (TWO_RINGS, {"table": "2"}),
    "a ring and OSU": (ring(6, 3) + osu(ALLREDUCE, FAST.message_s), {}),
    "two types": (TWO_TYPES, {}),
    "a table and a title": (latency(FAST) + TWO.partition("Size")[0], {}),
    "no list": (ring(6, 3, listed=False), {}),
    "no list, hosts stated": (ring(6, 3, listed=False), {"hosts": 2}),
    "no list of many ranks": (ring(48, 8, listed=False), {"ranks": 48, "hosts": 6}),
    "a short list": (SHORT_LIST, {}),
    "a short list, hosts": (SHORT_LIST, {"hosts": 2}),
    "a short list, too many hosts": (SHORT_LIST, {"hosts": 6}),
    "a short list, too few hosts": (SHORT_LIST, {"hosts": 1}),
    "a short list, no such hosts": (SHORT_LIST, {"hosts": 4}),
    "a list, other hosts": (ring(6, 3), {"hosts": 3}),
    "a list, other ranks": (ring(6, 3), {"ranks": 12}),
    "hosts of one name": (ring(6, 3).replace("node1", "node0"), {}),
    "one host": (ring(8, 8), {}),
    "a tree, by its name": (ring(16, 1, before=["NCCL_ALGO=Tree"]), {}),
    "a switch that adds": (ring(16, 1, before=["NCCL_ALGO=NVLS"]), {}),
    "two hosts, no ring": (ring(16, 8, before=[]), {}),
    "rates": (latency(title="OSU MPI Bandwidth Test", columns=("Bandwidth (MB/s)",)), {}),
    "multi latency": (latency(title="OSU MPI Multi Latency Test"), {}),
    "non-blocking": (osu("OSU MPI Non-blocking Allreduce Latency Test", Line(1, 1)), {}),
    "one-sided": (latency(title="OSU MPI_Put Latency Test"), {}),
    "a barrier": ("# OSU MPI Barrier Latency Test v7.4\n# Avg Latency(us)\n  5.1\n", {}),
    "osu in ms": (latency(columns=("Latency (ms)",)), {}),
    "a lost title": (latency().replace("OSU", "The"), {}),
    "a lost header and a lost title": (
        latency().replace("# Size", "Sizes") + latency(FAST, ""),
        {},
    ),
    "a failed validation": (PASS.replace("Pass", "Fail", 1), {}),
    "a row after the last": (latency() + "\n8 50.1\n", {}),
    "nccl in ms": (ring(8, 1, unit="(ms)"), {}),
    "a wrong value": (changed("        0\n", "        7\n"), {}),
    "a large error": (ring(8, 1, version="old", checks="1e+00"), {}),
    "failed values": (changed("values : 0 OK", "values : 5 FAILED"), {}),
    "no sum": (ring(8, 1).replace(" sum ", " none "), {}),
    "a root": (ring(8, 1).replace(" -1 ", " 0 "), {}),
    "reduce_perf": (changed("all_reduce_perf", "reduce_perf", version="2.17"), {}),
    "times of the CPU": (ring(8, 1).replace("    time", " cputime"), {}),
    "a column cut off": (without_last_column(ring(8, 1)), {}),
    "two groups": (changed("Group  0", "Group  1"), {}),
    "another ratio": (ring(8, 1, ratio=7 / 8), {}),
    "uneven hosts": (changed("node1 device  0", "node0 device  1", 4), {}),
    "no whole elements": (changed(" 33554432 ", " 33554433 "), {}),
    "a rate that was retyped": (changed(" 5.70 ", " 5.80 "), {}),
    "another run's rows": (changed("# Out", ring(8, 1, Link(8.5e-6, 1e-10))[1900:]), {}),
    "another size's row": (changed("# Out", OTHER + "\n# Out"), {}),
    "times that shrink": (osu(LATENCY, lambda nbytes: 5e-5 - 1e-13 * nbytes), {}),
    "a lost column": (changed("algbw", "rate", version="old").replace("size ", "bytes "), {}),
    "JSON of nccl-tests": ('{"config": {}, "results": []}', {}),
    "a greeting": ("hello", {}),
    "20 Tbit/s": (ring(2, 1, Link(5e-6, 3e-13)), {}),
    "a hop of 0.05 us": (ring(64, 8, Link(5e-8, 1e-10)), {}),
    "a latency of 0.05 us": (latency(Link(5.2e-8, 1e-10)), {}),
    "two rows cut off": (CUT_ROWS, {}),
    "a slow link": (latency(Link(2e-3, 1e-7)), {}),
    "a short latency": (latency(Link(3e-7, 1e-10)), {}),
    "a fast link": (latency(Link(5e-6, 8 / 3e12)), {}),
    "one size far from the line": (
        nccl(16, lambda n: ring_line(16, FAST)(n) * (3 if n == 1 << 20 else 1), a_host=1),
        {},
    ),
    "two runs in turn": (TWO_RUNS, {}),
    "two runs in turn, the second": (TWO_RUNS, {"table": "2"}),
    "a run, and what other ranks say": (in_turn(ring(6, 3), OTHERS), {}),
    "osu, and what other ranks say": (in_turn(latency(), OTHERS), {}),
    "osu, and what a library says": (re.sub(r"(?m)^(1024 )", r"UCX WARN slow\n\1", latency()), {}),
    "a run that was killed, and one": (HEADER_ALONE + ring(6, 3), {}),
    "pairs behind the table": (latency() + "\n\n# steps, loss\n268435456 77\n536870912 12\n", {}),
    "wrapped at 80": (wrapped(ring(6, 3), 80), {}),
    "osu wrapped at 24": (wrapped(latency(), 24), {}),
    "times before the rows": (stamped_rows(ring(6, 3)), {}),
    "osu, times before the rows": (stamped_rows(latency()), {}),
    **{path.stem: (path.read_text(), {}) for path in sorted(RECORDED.glob("*.txt"))},
    "nccl_partial_list, hosts": ((RECORDED / "nccl_partial_list.txt").read_text(), {"hosts": 2}),
    "nccl_nolist_1node, hosts": ((RECORDED / "nccl_nolist_1node.txt").read_text(), {"hosts": 8}),
    "osu_latency_twice, 2": ((RECORDED / "osu_latency_twice.txt").read_text(), {"table": "2"}),
    "osu two sizes of ranks, 2": (
        (RECORDED / "osu_allreduce_two_sizes_of_ranks.txt").read_text(),
        {"table": "2", "ranks": 16, "hosts": 4},
    ),
}
