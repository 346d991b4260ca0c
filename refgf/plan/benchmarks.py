"""Reads what nccl-tests and the OSU benchmarks print: sizes and times of one table.

    all_reduce_perf     bytes, time in us, algbw and busbw in GB/s, out of place and in place
    osu_latency         size in bytes, one-way time in us: the link of two ranks. It is a ping-pong,
                        one message at a time. A ring's ranks send and receive at once, which takes
                        up to twice as long: a warning, and the intervals hold it
    osu_allreduce       size in bytes, average time in us; it prints neither ranks nor hosts

A text with several tables needs a choice (--measured-table). Each row of nccl-tests must agree with
itself: size is count times the bytes of its type, and size / time is algbw, to the digits that are
printed. busbw / algbw of an allreduce is 2 (p-1) / p (nccl-tests, doc/PERFORMANCE.md: verified), so
the number of ranks follows from the table, and a table of another collective is noticed.

The list of devices says which GPUs are on which host. Where it is missing or was shortened,
--measured-hosts says it, because a link inside a node cannot be told from one between nodes.

Over two hosts NCCL sends through trees: n bytes on a node's link where a ring sends 2 (p-1) / p n,
and about half as many hops. With more hosts it may take twice as long, and the intervals hold that.
algorithms.py reads what a log says of NCCL's choice.
An MPI library sums small messages in log2 p steps, so a hop may take 2 (p-1) / log2 p times what
the ring's formula makes of them; the interval of alpha holds that, too.
"""

import re
from dataclasses import dataclass, replace
from math import ceil, inf, log2
from typing import Any

from refgf.plan import texts
from refgf.plan.algorithms import algorithms_of, limits, named, of_nccl, settings
from refgf.plan.measurements import (
    AVOIDED,
    BOTH_WAYS,
    MOST,
    NOISY,
    US,
    Measured,
    doubts,
    fitted,
    held,
    refuse,
    refuse_one_host,
    require_possible,
    uneven,
)
from refgf.plan.texts import LATENCY, Table, number

OSU_TIME = r"(Avg )?Lat(ency)? ?\((\w+)\)"
TYPES = {1: "int8 uint8 char f8e4m3 f8e5m2 fp8_e4m3 fp8_e5m2", 2: "half bfloat16 float16"}
TYPES |= {4: "float int int32 uint32 float32", 8: "double int64 uint64 float64"}
ROUNDED = 1e-9  # relative error of these computations
ITEMSIZE = {name: nbytes for nbytes, names in TYPES.items() for name in names.split()}
DEVICE = r"\bRank\s+(\d+)\s(?:\s*Group\s+(\d+))?.*?\son\s+(\S+)\s+device\s+(\d+)\s*(\[\S+\])?"


@dataclass(frozen=True)
class Stated:
    """What the user says of a text: its ranks and hosts, and which of its tables is meant."""

    ranks: int | None = None
    hosts: int | None = None
    table: str | None = None


NOTHING = Stated()


def read(text: str, path: str, stated: Stated = NOTHING) -> Measured:
    """The one table of the text, or the one that is chosen. ValueError says what is wrong in it."""
    table = chosen(texts.tables(text), text, path, stated.table)
    first = " ".join(table.broken[0].split())[:60] if table.broken else ""
    if first and sum(int((row.get("size") or row["Size"])[0]) >= AVOIDED for row in table.rows) < 2:
        if table.lacks_operation:
            refuse(path, "rows without redop, no sum", "an allreduce; next: run all_reduce_perf")
        got = f"{len(table.broken)} lines under the header in line {table.line} that are no whole "
        wanted = "rows with all cells, whole bytes without commas and units, behind what stands in "
        wanted += "front of the header; next: pass the "
        refuse(path, f"{got}rows, such as {first!r}", wanted + "text as the benchmark prints it")
    found = (read_nccl if table.tool == "nccl" else read_osu)(table, path, stated)
    require_possible(found, path)
    if found.size and found.size == found.per_host:
        refuse_one_host(found, path)
    if table.broken:
        count = len(table.broken)
        said = f"WARNING: {count} lines of the table are no whole rows and are left out: {first!r}"
        found = replace(found, notes=(said, *found.notes))
    return replace(found, notes=(*doubts(found), *found.notes))


def chosen(found: list[Table], text: str, path: str, which: str | None) -> Table:
    """The only table, or that of this number or name."""
    if not found:
        title = texts.TITLE.search(text)
        got = f"{title[0][:60]!r} without a table of sizes" if title else "another text"
        if "busbw" in text or re.search(DEVICE, text):
            got = "nccl-tests without the header of its table (size, time, algbw, busbw)"
        if re.match(r"\s*\{", text):
            got = "JSON"
        refuse(path, got, "a machine file, or what all_reduce_perf or osu_latency printed")
    names = [str(table) for table in found]
    listed = "; ".join(f"{at}: {name}" for at, name in enumerate(names[:9], 1))
    fits = [at for at, table in enumerate(found, 1) if not table.other_collective]
    if which is None:
        if len(found) == 1:
            return found[0]
        if not fits:
            wanted = "an allreduce; next: run all_reduce_perf or osu_allreduce"
            refuse(path, f"{len(found)} tables, none of an allreduce ({listed})", wanted)
        wanted = f"one; next: --measured-table {fits[0]}, a number or a name of these"
        refuse(path, f"{len(found)} tables ({listed})", wanted)
    if re.fullmatch(r"[0-9]+", which):
        fitting = [table for at, table in enumerate(found, 1) if at == int(which)]
    else:
        fitting = [table for table in found if which.lower() in str(table).lower()]
    if len(fitting) != 1:
        refuse(path, f"--measured-table {which}, {len(fitting)} of the tables", f"one of {listed}")
    return fitting[0]


def read_nccl(table: Table, path: str, stated: Stated) -> Measured:
    require_allreduce(table, path)
    require_right_sums(table, path)
    points, ratio = checked(table, path)
    size, per_host = placed(table, ratio, path, stated)
    hosts = size // per_host
    title = f"nccl-tests, allreduce on {size} GPUs of {hosts} hosts"
    if hosts == 1:
        title = f"nccl-tests, {size} GPUs of one host"
    pairs = in_place(table)
    found = Measured(title, size, per_host=per_host, **fitted(points, path, pairs))
    notes = (*found.notes, *settings(table.before))
    if table.in_place:
        notes = (*notes, "Only its in-place columns have times, and they are used.")
    notes = (*notes, *other_in_place(pairs), *limits(table.before))
    own = not named(table.before)
    return of_nccl(replace(found, notes=notes), *algorithms_of(table), own_choice=own)


def in_place(table: Table) -> list[tuple[int, float]]:
    """[(bytes, time in place / time out of place)] of rows that have both."""
    rows = ((int(r["size"][0]), [number(word)[0] for word in r["time"]]) for r in table.rows)
    each = ((n, *times) for n, times in rows if len(times) > 1 and min(times) > 0)
    return [(n, again / once) for n, once, again in each if n >= AVOIDED]


def other_in_place(pairs: list[tuple[int, float]]) -> tuple[str, ...]:
    """A warning where sums in place, as PyTorch's and Horovod's are, take other times."""
    count = sum(not 1 - NOISY < share < 1 + NOISY for _, share in pairs)
    if not count:
        return ()
    nbytes, share = max(pairs, key=lambda pair: max(pair[1], 1 / pair[1]))
    said = f"WARNING: {count} of {len(pairs)} times in place, as PyTorch and Horovod sum, are more "
    said += f"than {100 * NOISY:.0f} % from those out of place, which are used: {nbytes:,} bytes "
    return (
        said + f"take {share:.2g} times as long. An interval may not hold that. Measure again.",
    )


def require_allreduce(table: Table, path: str) -> None:
    """Another collective has another name, no operation, or a root."""
    again = "an allreduce; next: run all_reduce_perf"
    if got := table.other_collective:
        refuse(path, got, again)
    row = table.rows[0] if table.rows else {}
    if not re.fullmatch("-?[0-9]+", root := row.get("root", ["-1"])[0]):
        got, wanted = f"{root!r} in the column root", "-1, and no label of a launcher in it"
        refuse(path, got, f"{wanted}; next: remove these labels from all rows")
    if root != "-1":
        refuse(path, f"root {root}, a collective with a root", again)
    units = re.findall(r"\(([munp]?s|\w+/s)\)", "\n".join(table.after.splitlines()[1:4]))
    if wrong := [unit for unit in units if unit not in ("us", "GB/s")]:
        refuse(path, f"a column in {wrong[0]}", "us and GB/s, as nccl-tests prints")
    counts = {table.columns.count(name) for name in ("time", "algbw", "busbw")}
    if len(counts) > 1 or 0 in counts:
        has = f"the columns {' '.join(table.columns)}"
        wanted = "time, algbw and busbw of each measurement, by which its rows are checked"
        refuse(path, has, f"{wanted}; next: pass the text as all_reduce_perf prints it")


def require_right_sums(table: Table, path: str) -> None:
    repair = "0; next: repair that system, then run all_reduce_perf again"
    failed = re.search(r"Out of bounds values *: *(?!0\b)\d+.*?(?= *$)", table.after, re.M)
    if failed:
        refuse(path, f"{failed[0]!r}, an allreduce with wrong sums", repair)
    for row in table.rows:
        for name in ("wrong", "error"):
            most = 0.1 if name == "error" else 0.0  # the error of a float16 sum is below (chosen)
            for cell in row.get(name, ()):
                if cell != "N/A" and not 0 <= number(cell)[0] <= most:
                    got = f"{name} = {cell} at {row['size'][0]} bytes, an allreduce with wrong sums"
                    refuse(path, got.replace("wrong =", "#wrong ="), repair)


def checked(table: Table, path: str) -> tuple[list[tuple[float, float]], tuple[float, float]]:
    """([(bytes, seconds)], (least, most) busbw / algbw), from rows that agree with themselves.

    A printed number stands for all that round to it.
    """
    points, least, most = [], 0.0, inf
    for row in table.rows:
        line = repr(" ".join(cell for cells in row.values() for cell in cells)[:70])
        nbytes = size_of(row, line, path)
        times = {at: number(word) for at, word in enumerate(row["time"]) if word != "N/A"}
        if not nbytes or not times:
            continue
        at = min(times)
        (time, half), (rate, half_rate), (bus, half_bus) = (
            number(row[name][at]) for name in ("time", "algbw", "busbw")
        )
        whole = all(0 < value < inf for value, _ in times.values())
        if not (whole and 0 <= rate < inf and 0 <= bus < inf):
            refuse(path, f"the row {line}", "numbers in time, algbw, busbw")
        low, high = (1e-3 * nbytes / (time + sign * half) for sign in (1, -1))
        if rate + half_rate < low * (1 - ROUNDED) or rate - half_rate > high * (1 + ROUNDED):
            got = f"{nbytes} bytes in {row['time'][at]} us, {1e-3 * nbytes / time:.4g} GB/s, next "
            got += f"to algbw = {row['algbw'][at]}"
            wanted = "the same rate, by which columns and units are known; next: pass the text as "
            refuse(path, got, wanted + "all_reduce_perf prints it")
        points.append((nbytes, US * time))
        if rate > half_rate:
            least = max(least, (bus - half_bus) / (rate + half_rate) * (1 - ROUNDED))
            most = min(most, (bus + half_bus) / (rate - half_rate) * (1 + ROUNDED))
    if least > most:
        refuse(path, "busbw / algbw not the same in all rows", "one allreduce; next: divide it")
    require_repeats_alike(points, path)
    return points, (least, most)


def size_of(row: dict[str, list[str]], line: str, path: str) -> int:
    """The bytes of a row, which are those of its elements."""
    whole = [word for word in (row["size"][0], *row.get("count", ())) if word.isdecimal()]
    if len(whole) < 1 + ("count" in row):
        refuse(path, f"the row {line}", "whole numbers in size and count")
    kind = row.get("type", [""])[0]
    nbytes, itemsize = int(whole[0]), ITEMSIZE.get(kind)
    if kind and not itemsize:
        got, wanted = f"type {kind} in {line}", "a type of nccl-tests, by which sizes are checked"
        refuse(path, got, f"{wanted}; next: run all_reduce_perf with -d float")
    if itemsize and "count" in row and int(whole[1]) * itemsize != nbytes:
        got = f"{nbytes} bytes of {whole[1]} {kind} in {line}"
        wanted = f"{int(whole[1]) * itemsize} bytes, as an allreduce has"
        refuse(path, got, f"{wanted}; next: pass whole lines of all_reduce_perf")
    return nbytes


def require_repeats_alike(points: list[tuple[float, float]], path: str) -> None:
    """Cycles (-N) measure a size again. Two texts that were joined have other times for it."""
    first = {}
    for nbytes, seconds in points:
        before = first.setdefault(nbytes, seconds)
        if not 1 - NOISY < seconds / before < 1 + NOISY:
            got = f"{nbytes} bytes in {1e6 * before:.4g} us and in {1e6 * seconds:.4g} us"
            refuse(path, got, "one measurement under a header; next: divide it, a file a run")


def placed(table: Table, ratio: tuple[float, float], path: str, stated: Stated) -> tuple[int, int]:
    """(ranks, ranks of each host), from the list of devices, from busbw / algbw, or as stated."""
    listed = re.findall(DEVICE, table.before)
    ranks = sorted(int(rank) for rank, *_ in listed)
    if len(groups := {group for _, group, *_ in listed}) > 1:
        got, wanted = f"{len(ranks)} ranks in {len(groups)} groups", "one allreduce of all"
        refuse(path, got, f"{wanted}; next: run all_reduce_perf without NCCL_TESTS_SPLIT")
    whole = bool(ranks) and ranks == list(range(len(ranks))) and agrees(len(ranks), ratio)
    size = stated.ranks or (len(ranks) if whole else ranks_of(ratio))
    if stated.ranks and whole and stated.ranks != len(ranks):
        got = f"--measured-ranks {stated.ranks}, and a list of {len(ranks)} ranks"
        refuse(path, got, "their number; next: leave --measured-ranks out")
    said = f"busbw / algbw = {ratio[0]:.4g}" + (f" to {ratio[1]:.4g}" if ratio[1] < 2 else "")
    if ratio[1] < 1 or (size > 1 and not agrees(size, ratio)):
        wanted = f"{2 * (size - 1) / size:.4g}, that of an allreduce on {size}" if size > 1 else "1"
        refuse(path, said, f"{wanted} or more; next: run all_reduce_perf on 2 or more ranks")
    why = "no list of devices"
    if listed:
        why = f"a list of the ranks {', '.join(map(str, ranks[:8]))}, which was shortened"
        if ranks == list(range(len(ranks))):
            why = f"a list of {len(ranks)} ranks, and {said}, that of more or fewer ranks"
    if size < 2:
        wanted = "the ranks of the allreduce and their hosts"
        refuse(path, why, f"{wanted}; next: --measured-ranks P --measured-hosts H")
    hosts = {}
    for _, _, host, at, bus in listed:
        hosts.setdefault(host, []).append((at, bus))
    if not whole:
        if listed and ranks[-1] >= size:
            got = f"a list that has rank {ranks[-1]}, and {said}, that of {size} ranks"
            refuse(path, got, "one run; next: pass the text as all_reduce_perf prints it")
        each = on_each(size, stated.hosts, why, path)
        if listed and (len(hosts) > size // each or max(map(len, hosts.values())) > each):
            got = f"--measured-hosts {stated.hosts}, and a list with {len(hosts)} of them"
            refuse(path, got, "hosts and GPUs of a host as in the list; next: correct it")
        return size, each
    if any(len(set(gpus)) < len(gpus) for gpus in hosts.values()):
        why = "a list that has a GPU of a host twice, as hosts of one name do"
        return size, on_each(size, stated.hosts, why, path)
    if stated.hosts not in (None, len(hosts)):
        got = f"--measured-hosts {stated.hosts}, and a list of {len(hosts)} hosts"
        refuse(path, got, "their number; next: leave --measured-hosts out")
    each = sorted({len(gpus) for gpus in hosts.values()})
    if len(each) > 1:
        got = f"{size} GPUs on {len(hosts)} hosts, {each[0]} to {each[-1]} on each"
        wanted = "as many on each host, because the plan has full nodes"
        refuse(path, got, f"{wanted}; next: run all_reduce_perf on {each[0]} GPUs of each")
    return size, each[0]


def agrees(size: int, ratio: tuple[float, float]) -> bool:
    return ratio[0] <= 2 * (size - 1) / size <= ratio[1]


def ranks_of(ratio: tuple[float, float]) -> int:
    """p of busbw / algbw = 2 (p-1) / p where one number fits; 0: unknown."""
    least, most = (2 / (2 - each) if each < 2 else inf for each in ratio)
    if not 0 < least <= most < inf:
        return 0
    return ceil(least) if ceil(least) <= most < ceil(least) + 1 and ceil(least) > 1 else 0


def on_each(size: int, hosts: int | None, why: str, path: str) -> int:
    """The ranks of each of the hosts that the user states."""
    if hosts is None:
        wanted = (
            f"the hosts of its {size} ranks, because a link inside a node is none between nodes"
        )
        refuse(path, why, f"{wanted}; next: --measured-hosts H")
    if hosts < 1 or size % hosts:
        got = f"--measured-hosts {hosts} for {size} ranks"
        refuse(path, got, "as many ranks on each host; next: correct it")
    return size // hosts


def read_osu(table: Table, path: str, stated: Stated) -> Measured:
    title = table.title
    if not title:
        refuse(path, f"a table without its title in line {table.line}", "its lines from '# OSU' on")
    kind = re.match(LATENCY, title)
    if any("/s" in name for name in table.columns):
        refuse(path, f"{title!r}, rates", "times in us; next: run osu_latency")
    if not kind:
        refuse(path, repr(title), "osu_latency between two nodes, or osu_allreduce")
    times = [name for name in table.columns if re.fullmatch(OSU_TIME, name)]
    if len(times) != 1 or not times[0].endswith("(us)"):
        got = f"the columns {', '.join(table.columns)}"
        refuse(path, got, "Size and one of latencies in us; next: run it without changes")
    if any(cell.lower() == "fail" for row in table.rows for cell in row.get("Validation", ())):
        refuse(path, "Validation Fail", "right results; next: repair that system")
    points = [(int(row["Size"][0]), US * number(row[times[0]][0])[0]) for row in table.rows]
    for (one, _), (other, seconds) in zip([(-1, 0.0), *points], points):
        if not seconds > 0:
            got = f"{other} bytes without a time above 0 in the column {times[0]}"
            refuse(path, got, "a number; next: pass whole lines of the benchmark")
        if other <= one or (one > 0 and log2(other / one) % 1):
            got = f"the size {other} after {one}, under one header"
            refuse(path, got, "sizes that double, as OSU's do; next: pass one table, its own rows")
    if not kind[1]:
        return osu_link(title, fitted(points, path), path, stated)
    ranks, why = stated.ranks, f"{title!r}, which prints neither ranks nor hosts"
    if not ranks or ranks < 2:
        why = why if ranks is None else f"{title!r}, --measured-ranks {ranks}"
        wanted = "2 or more ranks, and their hosts; next: --measured-ranks P --measured-hosts H"
        refuse(path, why, wanted)
    per_host = on_each(ranks, stated.hosts, why, path)
    most = times[0].replace("Avg", "Max")
    title = f"{title}, {ranks} ranks of {ranks // per_host} hosts"
    found = Measured(title, ranks, per_host=per_host, **fitted(points, path))
    longest = [number(row[most][0])[0] for row in table.rows if most in row]
    shares = [US * most_us / seconds for most_us, (_, seconds) in zip(longest, points)]
    found = replace(found, notes=(*found.notes, *uneven(shares)))
    if "CCL" in table.title:
        return of_nccl(found, "", "")
    steps = 2 * (ranks - 1) / ceil(log2(ranks))
    if steps > 1:
        said = "WARNING: " * (steps > MOST)
        said += f"An MPI library may sum small messages in {ceil(log2(ranks))} steps, not in a "
        said += f"ring's {2 * (ranks - 1)}: {held(steps)}. Other numbers of ranks "
        said += "are planned with the fitted line as a ring's."
        notes = (*found.notes, said)
        found = replace(found, slower={"alpha": steps}, notes=notes)
        found = replace(found, elsewhere=(*found.elsewhere, said))
    return found


def osu_link(title: str, fit: dict[str, Any], path: str, stated: Stated) -> Measured:
    if stated.ranks is not None:
        got = f"--measured-ranks {stated.ranks}, of two ranks' latency"
        refuse(path, got, "none; next: leave it out")
    if stated.hosts not in (None, 2):
        got = f"--measured-hosts {stated.hosts}, of a link between nodes"
        refuse(path, got, "2 hosts; next: run osu_latency between two of them")
    said = "WARNING: osu_latency is a ping-pong, one message at a time. The ranks of an allreduce "
    said += f"send and receive at once, which takes up to {BOTH_WAYS:g} times as long: the "
    said += "intervals hold that, but no other algorithm and no adding. Better: run osu_allreduce "
    said += "on as many ranks as you plan for (--measured-ranks, --measured-hosts)."
    if stated.hosts is None:
        said += " It does not print its hosts: taken as two."
    return Measured(title, 0, **(fit | {"notes": (*fit["notes"], said)}))
