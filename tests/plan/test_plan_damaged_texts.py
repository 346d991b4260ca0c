"""Texts of benchmarks that were cut, mixed, retyped: no wrong number passes without a warning."""

import re
from random import Random

import pytest

from refgf.plan import fabric
from refgf.plan.benchmarks import Stated
from refgf.predict.cost import Link, ring_line
from tests.support.benchmark_texts import LAST, TAGS, nccl, osu, tagged

ALWAYS = ("mean hop of a ring", "measured on 2 hosts")  # warnings that right texts have, too


def is_row(line):
    return re.match(r"\s*\d", line)


def columns(change):
    """A mutation of the words of the rows, of the header, or of both."""

    def mutated(random, lines):
        which, at = random.choice(["rows", "header", "both"]), random.sample(range(12), 2)
        found = []
        for line in lines:
            header = "size " in line or "# Size" in line
            if (is_row(line) and which != "header") or (header and which != "rows"):
                words = line.replace("#", "# ", 1).split() if header else line.split()
                first = [words.pop(0)] if header else []
                change(words, *at)
                line = " ".join(first + words)
            found.append(line)
        return found

    return mutated


def dropped(words, at, _):
    del words[at : at + 1]


def swapped(words, at, other):
    if max(at, other) < len(words):
        words[at], words[other] = words[other], words[at]


def shuffled(random, lines):
    rows = [line for line in lines if is_row(line)]
    random.shuffle(rows)
    return [rows.pop() if is_row(line) else line for line in lines]


def clipped(random, lines):
    size, front, share = random.randrange(1, 30), random.random() < 0.5, random.random()
    return [
        line if random.random() < share else line[size:] if front else line[:-size]
        for line in lines
    ]


def retyped(random, lines):
    found = list(lines)
    for _ in range(random.choice([1, 5])):
        at = random.randrange(len(found))
        if line := found[at]:
            here = random.randrange(len(line))
            found[at] = line[:here] + random.choice("0123456789.- ") + line[here + 1 :]
    return found


def in_another_unit(random, lines):
    """Of the times, or of all numbers with a point."""
    factor, count = random.choice([1e-3, 1e3]), random.choice([0, 1])
    return [
        re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]) * factor:.2f}", line, count=count)
        if is_row(line)
        else line
        for line in lines
    ]


def renamed_unit(random, lines):
    old, new = random.choice([("us", "ms"), ("us", "s"), ("GB/s", "MB/s"), ("GB/s", "Gb/s")])
    return [line.replace(f"({old})", f"({new})") for line in lines]


def wrapped(random, lines):
    width = random.choice([72, 80, 100])
    return [line[at : at + width] for line in lines for at in range(0, len(line) or 1, width)]


MUTATIONS = {
    "columns dropped": columns(dropped),
    "columns swapped": columns(swapped),
    "lines lost": lambda random, lines: [line for line in lines if random.random() > 0.2],
    "begin lost": lambda random, lines: lines[random.randrange(len(lines)) :],
    "end lost": lambda random, lines: lines[: random.randrange(len(lines))],
    "a part twice": lambda random, lines: lines + lines[random.randrange(len(lines)) :],
    "lines shuffled": lambda random, lines: random.sample(lines, len(lines)),
    "rows shuffled": shuffled,
    "lines clipped": clipped,
    "signs retyped": retyped,
    "times in another unit": in_another_unit,
    "units renamed": renamed_unit,
    "lines wrapped": wrapped,
    "blanks squeezed": lambda _, lines: [" ".join(line.split()) for line in lines],
    "no hash": lambda _, lines: [line.replace("#", "") for line in lines],
    "decimal commas": lambda _, lines: [re.sub(r"(\d)\.(\d)", r"\1,\2", line) for line in lines],
}


def drawn(random):
    """(a text, the link, ranks, ranks of a host) of any tool."""
    alpha_s, beta = random.choice([1.3e-6, 5e-6, 2e-5, 1e-4]), random.choice([2e-11, 1e-10, 8e-10])
    link, tool = Link(alpha_s, beta), random.choice(["nccl", "nccl", "allreduce", "latency"])
    if tool == "latency":
        return osu("OSU MPI Latency Test", link.message_s), link, 0, 0
    size, k = random.choice([(2, 1), (3, 1), (6, 3), (16, 8), (7, 1), (10, 5), (8, 8), (64, 8)])
    if tool == "allreduce":
        return osu("OSU MPI Allreduce Latency Test", ring_line(size, link)), link, size, k
    options = {"version": random.choice(list(LAST)), "listed": random.random() < 0.8}
    options |= {"dtype": random.choice(["float", "half"]), "slower": random.choice([1.0, 1.4])}
    return nccl(size, ring_line(size, link), a_host=k, **options), link, size, k


def is_right(found, link, size, k):
    hop = found.ring_hop or found.between
    factors = {"alpha": link.alpha_s / (hop.alpha_s or 1e-12)}
    factors["beta"] = link.beta_s_per_byte / hop.beta_s_per_byte
    within = (found.ranges[name][0] <= x <= found.ranges[name][1] for name, x in factors.items())
    return all(within) and list(found.lines) == [size] * bool(size) and found.lines_per_node == k


@pytest.mark.parametrize("name", MUTATIONS)
@pytest.mark.parametrize("seed", range(12))
def test_no_wrong_number_passes_without_a_warning(tmp_path, name, seed):
    """Alone, behind a tag, after another mutation, and with a second text behind it."""
    random, path = Random(f"{name} {seed}"), tmp_path / "text.txt"
    text, *truth = drawn(random)
    truths = [truth]
    if seed % 4 == 3:
        second, *truth = drawn(random)
        text, truths = f"{text}\n{second}", [*truths, truth]
    lines = text.split("\n")
    if seed % 3 == 2:
        lines = MUTATIONS[random.choice(list(MUTATIONS))](random, lines) or [""]
    lines = MUTATIONS[name](random, lines) or [""]
    path.write_text(tagged("\n".join(lines), random.choice(list(TAGS.values()))))
    _, size, k = truths[0]
    stated = Stated(size, size // k) if size and "OSU" in text else Stated()
    try:
        found = fabric.load(str(path), stated)
    except ValueError as error:
        assert re.match("plan --machine .*: got .*; wanted .*; next: ", str(error))
        return
    warned = [n for n in found.notes if "WARNING" in n and not any(each in n for each in ALWAYS)]
    assert warned or any(is_right(found, *truth) for truth in truths), (found.name, lines)


@pytest.mark.parametrize("size", [3, 6000, 98304])
def test_a_row_between_the_sizes_that_osu_doubles_is_refused(tmp_path, size):
    """6,000 bytes in 3 us moved alpha out of its interval without a warning."""
    sizes = sorted([size, 1, 4, 4096, 8192, 65536, 131072])
    text = osu("OSU MPI Latency Test", Link(2e-6, 1e-10).message_s, sizes=sizes)
    (tmp_path / "text.txt").write_text(text)
    with pytest.raises(ValueError, match="wanted sizes that double"):
        fabric.load(str(tmp_path / "text.txt"), Stated())
