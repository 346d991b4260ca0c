"""Reads what nccl-tests and the OSU benchmarks print: sizes and times, and a line through them.

    all_reduce_perf     bytes, time in us, algbw and busbw in GB/s, out of place and in place
    osu_latency         size in bytes, one-way time in us: the link of two ranks. It is a ping-pong,
                        one message at a time. A ring's ranks send and receive at once, which takes
                        longer
    osu_allreduce       size in bytes, average time in us; it does not print the number of ranks

busbw / algbw of an allreduce is 2 (p-1) / p (nccl-tests, doc/PERFORMANCE.md: verified), so the
number of ranks follows from the table, and a table of another collective is noticed. The header
lists the GPUs with their hosts, k on each. A ring over hosts is as fast as its slowest link, so
beta is that of a node's link, unless the links inside are as slow. alpha is the mean of the hops
inside and between nodes, because the latencies of all hops add up (verified: the latencies in
NCCL's tuning.cc); --inside says what those inside take. Without it a hop between nodes takes 1 to k
mean hops if one inside takes no longer, and the geometric mean of both is planned with. (NCCL's
constants for k = 8: 1.5 to 2.5.) On one host no link between nodes was measured, and the text is
refused.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace
from math import sqrt
from statistics import median
from typing import Any

from refgf.predict.cost import Line, Link
from refgf.predict.fit import Fit, fit_line

US = 1e-6
TITLE = (
    r"OSU MPI(-\w+)? (Allreduce )?Latency Test"  # MPI-CUDA, too; not MPI_Put, Multi, Non-blocking
)
NOISY = 0.2  # relative; times farther from the fitted line are named in a warning
AVOIDED = 1024  # bytes: below, protocols differ from those of gradients
TAG = r"^(\[\d+,\d+\]<std\w+>:| *\d+: )"  # mpirun --tag-output, horovodrun; srun --label
REPAIR = "0; next: repair that system, then run all_reduce_perf again"
MOST_FIRST = 1 << 20  # bytes: times of larger messages say little about alpha (chosen)


@dataclass(frozen=True)
class Measured:
    """What a text says.

    size         the ranks of an allreduce, 0 for a link
    per_host     of these on each host, 0: unknown
    notes        what the numbers do not say, a sentence each
    alpha_known  False if its two standard errors exceed it, or if all messages are large
    """

    title: str
    size: int
    fit: Fit
    per_host: int = 0
    notes: tuple[str, ...] = ()
    alpha_known: bool = True

    @property
    def link(self) -> Link:
        """The link whose ring takes the fitted time: a = 2 (p-1) alpha, b = 2 (p-1)/p beta."""
        if not self.size:
            return self.fit.link
        steps = 2 * (self.size - 1)
        return Link(self.fit.a_s / steps, self.fit.b_s_per_byte * self.size / steps)

    @property
    def between(self) -> Link:
        """The link between nodes, whose latency is 1 to per_host times that of the mean hop."""
        return replace(self.link, alpha_s=self.middle * self.link.alpha_s)

    @property
    def middle(self) -> float:
        return sqrt(max(1, self.per_host))

    @property
    def line(self) -> Line:
        return self.fit.line

    def errors(self) -> tuple[float, float]:
        """(alpha_error_s, beta_error_s_per_byte)."""
        steps = 2 * (self.size - 1) if self.size else 1
        scale = self.size / steps if self.size else 1
        return self.fit.a_error_s / steps, self.fit.b_error_s_per_byte * scale


def read(text: str, path: str, ranks: int | None = None) -> Measured:
    """ranks: of an OSU allreduce, which does not print them."""
    text = re.sub(TAG, "", text, flags=re.M)
    if "OSU MPI" in text:
        return read_osu(text, path, ranks)
    if "algbw" in text and "busbw" in text:
        return read_nccl(text, path, ranks)
    refuse(path, "another text", "a machine file, or what all_reduce_perf or osu_latency printed")


def read_nccl(text: str, path: str, ranks: int | None) -> Measured:
    points, ratios = [], []
    unit = re.search(r"^#\s+\(B\).*?\((\w+)\)\s+\((\w+/s)\)", text, re.M)
    if unit and (unit[1], unit[2]) != ("us", "GB/s"):
        refuse(path, f"times in {unit[1]}, rates in {unit[2]}", "us and GB/s, as nccl-tests prints")
    runs = len(re.findall(r"^#\s+Rank\s+0\s", text, re.M))
    if runs > 1:
        refuse(path, f"{runs} runs of nccl-tests in one file", "one; next: divide it, a file a run")
    failed = re.search(r"^# *(Out of bounds values *: *(?!0\b)\d+.*?) *$", text, re.M)
    if failed:
        refuse(path, f"{failed[1]!r}, an allreduce with wrong sums", REPAIR)
    for words in rows(text):
        # size, count, type, redop, root, then time, algbw, busbw, #wrong, twice
        numbers = [float(word) for word in words[5:] if re.fullmatch(r"[\d.e+-]+", word)]
        if len(words) < 8 or len(numbers) < 3:
            continue
        wrong = [
            each for each in words[8:13:4] if each not in ("0", "N/A")
        ]  # out of place, in place
        if wrong and "#wrong" in text:
            got = f"#wrong = {wrong[0]} at {words[0]} bytes, an allreduce with wrong sums"
            refuse(path, got, REPAIR)
        if words[3] == "none":
            refuse(path, "redop none, no sum", "an allreduce; next: run all_reduce_perf")
        points.append((float(words[0]), US * numbers[0]))
        if numbers[2] > 0.05:  # two decimals are printed: smaller rates say nothing
            ratios.append((numbers[2], 1e9 * numbers[2] * US * numbers[0] / float(words[0])))
    listed = len(re.findall(r"^#\s+Rank\s+\d+", text, re.M))
    if ranks and listed and ranks != listed:
        refuse(
            path,
            f"--measured-ranks {ranks}, and a list of {listed} ranks",
            "their number; next: leave --measured-ranks out",
        )
    size = ranks or listed or ranks_of(ratios)
    if size < 2:
        refuse(path, "no number of ranks", "an allreduce of 2 or more; next: --measured-ranks P")
    wanted = 2 * (size - 1) / size
    if ratios and abs(max(ratios)[1] / wanted - 1) > 0.02:
        got = f"busbw / algbw = {max(ratios)[1]:.3g} on {size} ranks"
        refuse(path, got, f"{wanted:.3g}, that of an allreduce; next: run all_reduce_perf")
    hosts = hosts_of(text, path)
    title = f"nccl-tests, allreduce on {size} GPUs" + (f" of {hosts} hosts" if hosts else "")
    found = Measured(title, size, per_host=size // hosts if hosts else 0, **fitted(points, path))
    if hosts == 1:
        refuse_one_host(found, path)
    if not hosts:
        return alone(found, "GPU")
    return replace(found, notes=(mixed(found), *found.notes)) if found.per_host > 1 else found


def mixed(found: Measured) -> str:
    """What a ring over hosts of several GPUs does not say of the links inside and between them."""
    k, us = found.per_host, 1e6 * found.link.alpha_s
    rate = 8e-9 / found.link.beta_s_per_byte
    return (
        f"WARNING: {us:.3g} us are the mean hop of a ring with {k} GPUs a host. If a hop inside "
        f"takes no longer than one between nodes, this takes {us:.3g} to {k * us:.3g} us: the "
        f"intervals hold both. {rate:.3g} Gbit/s are the rate of its slowest link, inside or "
        "between. The rows with two levels, top-k and DASO assume it for both, and no interval "
        "holds one much faster. Add --inside."
    )


def hosts_of(text: str, path: str) -> int:
    """The hosts of the list of GPUs, each of which has as many; 0: no list."""
    found = Counter(re.findall(r"^#\s+Rank\s+\d+.*?\son\s+(\S+)\s+device", text, re.M))
    each = sorted(set(found.values()))
    if len(each) > 1:
        got = f"{found.total()} GPUs on {len(found)} hosts, {each[0]} to {each[-1]} on each"
        wanted = "as many on each host, because the plan has full nodes"
        refuse(path, got, f"{wanted}; next: run all_reduce_perf on {each[0]} GPUs of each")
    return len(found)


def alone(found: Measured, rank: str) -> Measured:
    """An allreduce without its hosts."""
    said = f"The text lists no hosts: taken as one {rank} on each."
    return replace(found, per_host=1, notes=(said, *found.notes))


def refuse_one_host(found: Measured, path: str) -> None:
    link = found.link
    inside = f"{1e6 * link.alpha_s:.3g}us {8e-9 / link.beta_s_per_byte:.3g}gbit"
    refuse(
        path,
        f"{found.size} GPUs on one host, so the link inside a node",
        "a link between nodes; next: run all_reduce_perf on 2 or more hosts, pass that text, and "
        f"add --inside {inside}",
    )


def ranks_of(ratios: list[tuple[float, float]]) -> int:
    """p from busbw / algbw = 2 (p-1) / p, taken where the rate has most digits; 0: unknown."""
    if not ratios:
        return 0
    ratio = max(ratios)[1]
    found = 2 / (2 - ratio) if 0.9 < ratio < 1.99 else 0.0
    error = found**2 / 2 * ratio * 0.005 / max(ratios)[0]  # busbw is rounded to 0.01
    return round(found) if error < 0.4 else 0


def read_osu(text: str, path: str, ranks: int | None) -> Measured:
    title = re.search(r"OSU MPI[^\n]*", text)[0]
    points = [(float(words[0]), US * float(words[1])) for words in rows(text) if len(words) >= 2]
    if "MB/s" in text:
        refuse(path, f"{title!r}, rates in MB/s", "times in us; next: run osu_latency")
    kind = re.match(TITLE, title)
    if not kind:
        refuse(path, repr(title), "osu_latency between two nodes, or osu_allreduce")
    if kind[2]:
        if not ranks or ranks < 2:
            given = "without its number of ranks" if ranks is None else f"--measured-ranks {ranks}"
            refuse(path, f"{title!r}, {given}", "2 or more; next: --measured-ranks P")
        return alone(Measured(f"{title}, {ranks} ranks", ranks, **fitted(points, path)), "rank")
    one_way = "osu_latency is a ping-pong, one message at a time: a ring's exchange takes longer."
    if ranks is not None:
        refuse(path, f"--measured-ranks {ranks}, of two ranks' latency", "none; next: leave it out")
    found = Measured(title, 0, **fitted(points, path))
    return replace(found, notes=(one_way, *found.notes))


def rows(text: str) -> list[list[str]]:
    """The words of each line that begins with a number."""
    found = (line.split() for line in text.splitlines())
    return [words for words in found if words and re.fullmatch(r"\d+", words[0])]


def fitted(points: list[tuple[float, float]], path: str) -> dict[str, Any]:
    """fit, notes and alpha_known of `Measured`: one point for each size from AVOIDED bytes up."""
    by_size = {}
    for nbytes, seconds in points:
        by_size.setdefault(nbytes, []).append(seconds)
    points = [(nbytes, median(seconds)) for nbytes, seconds in sorted(by_size.items())]
    large = [point for point in points if point[0] >= AVOIDED]
    if len(large) < 2 or large[-1][0] < 100 * large[0][0]:
        got = f"{len(large)} sizes of {AVOIDED} bytes and more"
        refuse(path, got, "1 KiB to at least 1 MiB, in bytes; next: run it with -b 1K -e 64M -f 2")
    if not 0 < large[-1][1] < 100:
        refuse(path, f"{large[-1][1]:.3g} s for {large[-1][0]:g} bytes", "microseconds")
    fit = fit_line(large)
    known = is_known(fit.a_s, fit.a_error_s) and large[0][0] <= MOST_FIRST
    notes = warnings(large, fit)
    if not known:
        got = (
            f"{1e6 * fit.a_s:.3g} us +- {1e6 * fit.a_error_s:.3g}, from {large[0][0]:,.0f} bytes up"
        )
        notes = (f"WARNING: alpha is not known: {got}. Run it with -b 1K -e 64M -f 2.", *notes)
    return {"fit": fit, "notes": notes, "alpha_known": known}


def is_known(alpha_s: float, error_s: float) -> bool:
    return 2 * error_s <= alpha_s


def warnings(points: list[tuple[float, float]], fit: Fit) -> tuple[str, ...]:
    """Names the sizes whose times are more than NOISY from the line, the worst three."""
    errors = {nbytes: abs(fit.line(nbytes) / seconds - 1) for nbytes, seconds in points}
    far = sorted((n for n in errors if errors[n] > NOISY), key=errors.get, reverse=True)
    if not far:
        return ()
    worst = ", ".join(f"{nbytes:,.0f} bytes by {100 * errors[nbytes]:.0f} %" for nbytes in far[:3])
    return (
        f"WARNING: {len(far)} of {len(points)} times are more than {100 * NOISY:.0f} % from the "
        f"line: {worst}. The intervals are widened to the largest; measure again.",
    )


def refuse(path: str, got: str, wanted: str) -> None:
    if "next: " not in wanted:
        wanted += "; next: python -m refgf.predict measure on two nodes, or osu_latency"
    raise ValueError(f"plan --machine {path}: got {got}; wanted {wanted}")
