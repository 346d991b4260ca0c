"""What nccl-tests and the OSU benchmarks print, for any T(bytes)."""

SIZES = [1 << bit for bit in range(3, 28)]


def nccl(size, line, ranks_listed=True, unit="(us)", factor=None, a_host=4, sizes=SIZES):
    """What all_reduce_perf prints: two decimals, out of place and in place."""
    head = ["# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor)", "#"]
    if ranks_listed:
        head += [
            f"#  Rank {r:2} Group  0 Pid 77 on node{r // a_host} device {r % a_host} [0x00] V100"
            for r in range(size)
        ]
    head += [
        "#       size         count      type   redop    root     time   algbw   busbw #wrong",
        f"#        (B)    (elements)                               {unit}  (GB/s)  (GB/s)       ",
    ]
    rows = []
    for nbytes in sizes:
        seconds = line(nbytes)
        algbw = nbytes / seconds / 1e9
        busbw = algbw * (factor or 2 * (size - 1) / size)
        half = f"{1e6 * seconds:9.2f} {algbw:7.2f} {busbw:7.2f}      0"
        rows.append(f"{nbytes:12} {nbytes // 4:12}     float     sum      -1 {half} {half}")
    return "\n".join([*head, *rows, "# Out of bounds values : 0 OK", "# Avg bus bandwidth : 3.1"])


def osu(title, line, unit="Latency (us)"):
    rows = [f"{nbytes:<10} {1e6 * line(nbytes):20.2f}" for nbytes in [0, *SIZES]]
    return "\n".join(
        [f"# OSU MPI {title} v7.4", "# Datatype: MPI_CHAR.", f"# Size    {unit}", *rows]
    )
