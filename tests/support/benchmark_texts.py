"""What nccl-tests and the OSU benchmarks print, for any T(bytes), and what people make of it.

Written from the tools' documentation and the headers of their versions.
"""

SIZES = [1 << bit for bit in range(3, 28)]
BYTES = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "int8": 1}
LAST = {"old": "error", "2.12": "#wrong", "2.17": "#wrong"}  # versions, and their last columns
TAGS = {
    "nothing": "",
    "mpirun --tag-output": "[1,0]<stdout>:",
    "Open MPI 5": "[prterun-node0-4711@1,0]<stdout>: ",
    "mpirun --timestamp-output": "Thu Jul 18 10:31:{0:02} 2024<stdout>:",
    "both": "Thu Jul 18 10:31:{0:02} 2024[1,0]<stdout>:",
    "srun --label": " 0: ",
    "mpiexec -prepend-rank": "[0] ",
    "pod": "pod-0: ",
    "kubectl --prefix": "[pod/nccl-7f9c/main] ",
    "kubectl --timestamps": "2024-07-18T10:31:{0:02}.{1}Z ",
    "docker compose": "nccl-1  | ",
    "journald": "Jul 18 10:31:{0:02} node0 srun[4711]: ",
    "journald, ISO": "2024-07-18T10:31:{0:02}+0200 node0 srun[4711]: ",
    "a logger of Python": "2024-07-18 10:31:{0:02},{1} - nccl - INFO - ",
    "torchrun": "[default0]:",
    "pdsh": "node0: ",
    "Markdown": "    ",
    "a quotation": "> ",
    "a quoted list": "> >   ",
    "cat -n": "{1:6}\t",
    "grep -n": "{1}:",
    "colours": "\x1b[32m",
}


def tagged(text, tag):
    """Each line behind a tag, in which {0} is a second and {1} a growing number."""
    lines = enumerate(text.splitlines(), 1)
    return "".join(f"{tag.format(at % 60, at)}{line}\n" for at, line in lines)


def nccl(size, line, a_host=4, **options):
    """What all_reduce_perf prints: a list of devices, and out of place and in place.

    version   "old" (before the column root), "2.12", or "2.17", which prints its name
    listed    the ranks of the list, or False
    dtype     of the elements
    groups    ("out", "in"), or one of them: the other is blank
    checks    what the last column holds
    ratio     busbw / algbw
    unit      of the times; columns: more of each measurement; timestamp: at the end of a row
    before    lines before the table
    slower    time in place / out of place, or what gives it for the bytes
    """
    given = {"version": "2.12", "listed": True, "dtype": "float", "groups": ("out", "in")}
    given |= {"checks": "0", "ratio": 2 * (size - 1) / size, "unit": "(us)", "columns": ()}
    given |= {
        "timestamp": False,
        "before": ("NCCL_ALGO=Ring",),
        "sizes": SIZES,
        "slower": 1.0,
    } | options
    head = ["# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) iters: 20", "#"]
    if given["version"] == "2.17":
        head = ["# nccl-tests version 2.17.1", "# Collective test starting: all_reduce_perf", *head]
    ranks = range(size) if given["listed"] is True else given["listed"] or ()
    group = "" if given["version"] == "old" else " Group  0"
    head += [*given["before"], "#", "# Using devices"]
    head += [
        f"#  Rank {r:2}{group} Pid {77 + r:6} on {f'node{r // a_host}':>10} device {r % a_host:2} "
        f"[0000:{r % a_host:02x}:00] NVIDIA H100"
        for r in ranks
    ]
    rows = [row(nbytes, line(nbytes), given) for nbytes in given["sizes"]]
    foot = ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 3.1", "#"]
    return "\n".join([*head, "#", *titles(given), *rows, *foot])


def titles(given):
    """The header of a table and its units."""
    first = ["size", "count", "type", "redop"] + ["root"] * (given["version"] != "old")
    names = ["time", "algbw", "busbw", LAST[given["version"]], *given["columns"]]
    units = [given["unit"], "(GB/s)", "(GB/s)", "", *["(us)" for _ in given["columns"]]]
    end = f" {'timestamp':>19}" if given["timestamp"] else ""
    each = ["#   " + "".join(f"{name:>12}" for name in first)]
    each.append("#   " + f"{'(B)':>12}{'(elements)':>12}" + 12 * " " * (len(first) - 2))
    return [
        each[0] + 2 * "".join(f"{name:>9}" for name in names) + end,
        each[1] + 2 * "".join(f"{unit:>9}" for unit in units),
    ]


def row(nbytes, seconds, given):
    first = [nbytes, nbytes // BYTES[given["dtype"]], given["dtype"], "sum"]
    first += ["-1"] * (given["version"] != "old")
    halves = []
    slower = given["slower"](nbytes) if callable(given["slower"]) else given["slower"]
    for group, factor in (("out", 1.0), ("in", slower)):
        rate = nbytes / (factor * seconds) / 1e9
        cells = [digits(1e6 * factor * seconds, 7), digits(rate, 6)]
        cells += [digits(rate * given["ratio"], 6), given["checks"]]
        cells += ["1.25" for _ in given["columns"]]
        half = "".join(f"{cell:>9}" for cell in cells)
        halves.append(half if group in given["groups"] else " " * len(half))
    end = " 2024-07-18 10:31:05" if given["timestamp"] else ""
    return "    " + "".join(f"{cell:>12}" for cell in first) + "".join(halves) + end


def digits(value, width):
    """As many decimals as fit, at most two."""
    found = (f"{value:.{places}f}" for places in (2, 1, 0))
    return next((text for text in found if len(text) <= width), f"{value:.1e}")


def osu(title, line, columns=("Latency (us)",), sizes=SIZES):
    """What a benchmark of OSU prints; its times are those of the first column of latencies."""
    kinds = {"Iterations": "1000", "Validation": "Pass"}
    head = [f"# {title} v7.4", "# Datatype: MPI_CHAR."]
    head.append("# Size   " + "".join(f"{name:>20}" for name in columns))
    rows = []
    for nbytes in sizes:
        cells = [kinds.get(name, f"{1e6 * line(nbytes):.2f}") for name in columns]
        rows.append(f"{nbytes:<10}" + "".join(f"{cell:>20}" for cell in cells))
    return "\n".join(["", *head, *rows])
