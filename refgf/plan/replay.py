"""Runs schedules in SimGrid: an independent simulator judges our closed forms.

A schedule (refgf/comm/schedule.py) becomes a time-independent trace, one file a rank, which SMPI
replays. No data is computed, and additions take gamma per byte:

    0 init
    0 irecv 2 0 4000        from rank 2, tag 0, bytes
    0 isend 1 0 4000
    0 wait 2 0 0            source, destination, tag
    0 wait 0 1 0
    0 compute 1e+05         the addition, in units of a host's speed
    0 finalize

All messages are rendezvous, as in refgf/papers/scaling/simulate.py. Three models:

    off          no contention, a message takes alpha + beta bytes: what the closed forms assume
    contention   the same messages share links fairly
    smpi         SMPI's own factors for TCP (its defaults), with contention and cross traffic

Two rows show what no closed form knows: a ring of ranks that were placed without regard to the
network, and `direct`, in which all ranks of a node send to other nodes at once (incast).

Above ALL_MESSAGES ranks, one a node, SimGrid sends the first STEPS steps of each phase of a ring,
which are alike. Its time is multiplied by (p-1) / STEPS. `direct` is left out there.
"""

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from textwrap import wrap
from typing import Any

from refgf.comm import direct, ring, tree
from refgf.comm.schedule import Algorithm, Schedule, Step
from refgf.comm.slices import slices
from refgf.papers.jia import doubling
from refgf.papers.jia.hierarchical import consecutive_nodes, three_phase, two_level_ring
from refgf.papers.scaling.collectives import (
    LINES,
    halving_doubling_s,
    hierarchical_s,
    recursive_doubling_s,
    tree_s,
)
from refgf.plan import platforms
from refgf.plan.question import Question, ranges, varied
from refgf.plan.systems import FLOAT32, two_level_ring_s
from refgf.predict.cost import Link, ring_allreduce_s

MODELS = ("off", "contention", "smpi")
PLAIN = (  # a message takes alpha + beta bytes, and starts when both ranks are ready
    "network/model:CM02",
    "network/crosstraffic:0",
    "network/TCP-gamma:0",
    "network/weight-S:0",
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "smpi/os:0:0:0",
    "smpi/or:0:0:0",
    "smpi/ois:0:0:0",
)
# SimGrid 3.32's default, Lazy, shared links unfairly in one case of tests/plan/test_plan_wires.py
FAIR = ("network/optim:Full",)
ALWAYS = ("smpi/async-small-thresh:0", "smpi/send-is-detached-thresh:0", "smpi/display-timing:yes")
INSTALL = "next: apt-get install libsimgrid-dev (Debian, Ubuntu), or brew install simgrid (untried)"
RANDOM = "ring, random order"
COLUMNS = (
    "closed form: the formula of that algorithm, as in the plan; of direct that of the ring.",
    "    The ranks of a node that send in a two-level ring share one link between nodes",
    "no contention: a link for each rank. With one rank a node it equals the closed form.",
    "    If ranks share a node, two-level rings, trees and doubling are faster: the first do not",
    "    share a link, and the others' formulas have no node",
    "contention: the same messages share the links of the platform fairly",
    "SMPI's TCP factors: contention, and SimGrid's calibration of latency and rate over TCP",
    "ring, random order: neighbours of the ring are on random nodes",
)
ALL_MESSAGES = 256  # ranks; p ranks of a ring send 2 p (p-1) messages
MOST_RANKS, STEPS = 4096, 4
LONGEST_S = 300.0


def installed() -> bool:
    return shutil.which("smpirun") is not None


def lines(rank: int, steps: Sequence[Step], itemsize: int, gamma_s_per_byte: float) -> list[str]:
    """The trace of one rank."""
    found, buffered = [f"{rank} init"], 0
    for step in steps:
        into, out = step.receive_from, step.send_to
        received = itemsize * (step.receive.stop - step.receive.start)
        if into is not None:
            found.append(f"{rank} irecv {into} 0 {received}")
        if out is not None:
            found.append(f"{rank} isend {out} 0 {itemsize * (step.send.stop - step.send.start)}")
        if into is not None:
            found.append(f"{rank} wait {into} {rank} 0")
        if out is not None:
            found.append(f"{rank} wait {rank} {out} 0")
        if step.op == "buffer":
            buffered += received
        if step.op in ("add", "reduce"):
            added, buffered = (buffered, 0) if step.op == "reduce" else (received, buffered)
            if gamma_s_per_byte and added:
                found.append(f"{rank} compute {platforms.SPEED * gamma_s_per_byte * added:.9g}")
    return [*found, f"{rank} finalize"]


def export(
    folder: Path, algorithm: Algorithm, elements: int, platform: platforms.Platform, gamma: float
) -> None:
    """Write platform.xml, hosts, traces and one trace for each rank into `folder`."""
    size, names = len(platform.hosts), []
    for rank in range(size):
        path = folder / f"rank{rank}.trace"
        path.write_text(
            "\n".join(lines(rank, algorithm(rank, size, elements), FLOAT32, gamma)) + "\n"
        )
        names.append(str(path))
    (folder / "traces").write_text("\n".join(names) + "\n")
    (folder / "platform.xml").write_text(platform.xml)
    (folder / "hosts").write_text("\n".join(platform.hosts) + "\n")


def run(folder: Path, size: int, model: str) -> float:
    """Simulated seconds of an exported collective. model: of MODELS."""
    if not installed():
        raise ValueError(f"plan --simulate: got no smpirun; wanted SimGrid; {INSTALL}")
    settings = {"off": PLAIN, "contention": (*PLAIN, *FAIR), "smpi": FAIR}[model] + ALWAYS
    command = ["smpirun", "-np", str(size), "-platform", "platform.xml", "-hostfile", "hosts"]
    command += ["-replay", "traces", *(f"--cfg={setting}" for setting in settings)]
    code, said = output_of(command, folder, size)
    found = re.search(r"Simulated time: ([\d.e+-]+) seconds", said)
    if code or not found:
        why = next((line for line in said.splitlines() if "CRITICAL" in line), said[-300:])
        raise ValueError(
            f"plan --simulate: got exit code {code} of smpirun ({why.strip()[:200]}); "
            "wanted a simulated time; next: run smpirun -version, and --platform one-link"
        )
    return float(found[1])


def output_of(command: list[str], folder: Path, size: int) -> tuple[int, str]:
    """(exit code, output). smpirun is a shell script: its simulator would outlive it."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=folder, start_new_session=True, **streams) as process:
        try:
            said, _ = process.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise ValueError(
                f"plan --simulate: got no end of SimGrid on {size} ranks in {LONGEST_S:.0f} s; "
                "wanted an earlier one; next: fewer ranks"
            ) from None
        except BaseException:  # Ctrl-C reaches this process only
            with contextlib.suppress(ProcessLookupError):  # it has ended just now
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, said


def simulate(
    algorithm: Algorithm, elements: int, platform: platforms.Platform, gamma: float, model: str
) -> float:
    """Seconds until the last rank has finished."""
    with tempfile.TemporaryDirectory(prefix="refgf-simgrid-") as folder:
        export(Path(folder), algorithm, elements, platform, gamma)
        return run(Path(folder), len(platform.hosts), model)


def first_steps(rank: int, size: int, n: int) -> Schedule:
    """The first STEPS steps of both phases of refgf.comm.ring, all of which take the same time."""
    parts, right, left = all_slices(n, size), (rank + 1) % size, (rank - 1) % size
    return [
        Step(right, parts[(own - k) % size], left, parts[(own - k - 1) % size], op)
        for own, op in ((rank, "add"), (rank + 1, "copy"))
        for k in range(STEPS)
    ]


all_slices = cache(slices)
Form = Callable[[int, int, int, Link], float]  # (size, elements, itemsize, link) -> seconds


def algorithms(question: Question) -> dict[str, tuple[Algorithm, Callable[[int], float]]]:
    """{name: (schedule, closed form of elements)} for the nodes of this question."""
    size, k, nodes = question.size, question.per_node, question.nodes
    fabric = question.fabric
    in_ring = ring.allreduce if size <= ALL_MESSAGES else first_steps
    flat: dict[str, tuple[Algorithm, Form]] = {
        "ring": (in_ring, ring_allreduce_s),
        RANDOM: (in_ring, ring_allreduce_s),
        "direct": (direct.allreduce, ring_allreduce_s),
        "halving-doubling": (doubling.halving_doubling, halving_doubling_s),
        "recursive doubling": (doubling.recursive_doubling, recursive_doubling_s),
        "tree": (tree.allreduce, tree_s),
    }
    if size > ALL_MESSAGES:
        del flat["direct"]
    found = {
        name: (algorithm, partial(slowest_s, form, size, question.links))
        for name, (algorithm, form) in flat.items()
    }
    if k > 1 and nodes > 1:
        placed, inside, between = consecutive_nodes(size, k), question.inside, fabric.between
        shared = replace(between, beta_s_per_byte=k * between.beta_s_per_byte)  # by k rings
        found["three phases"] = (
            three_phase(placed),
            lambda n: hierarchical_s(nodes, k, n, FLOAT32, inside, between),
        )
        found["two-level ring"] = (
            two_level_ring(placed),
            lambda n: two_level_ring_s(nodes, k, n, FLOAT32, inside, shared),
        )
    return found


def slowest_s(form: Form, size: int, links: Sequence[Link], elements: int) -> float:
    """A flat ring whose messages are rendezvous: each of its steps waits for the slowest hop."""
    return max(form(size, elements, FLOAT32, link) for link in links)


def require(question: Question, name: str) -> None:
    """ValueError if this question cannot be simulated here on this platform."""
    if not installed():
        raise ValueError(f"plan --simulate: got no smpirun; wanted SimGrid; {INSTALL}")
    most = MOST_RANKS if question.per_node == 1 else ALL_MESSAGES
    if not 2 <= question.size <= most:
        raise ValueError(
            f"plan --simulate: got --ranks {question.size}, {question.per_node} on a node; wanted "
            f"2 to {MOST_RANKS} with one on a node, 2 to {ALL_MESSAGES} with more; next: --ranks "
            f"{max(2, min(question.size, most))}"
        )
    networks(question, name)


def networks(question: Question, name: str) -> dict[bool, platforms.Platform]:
    """{with contention?: platform}."""
    place = question.nodes, question.per_node, question.fabric.between, question.inside
    return {contention: platforms.build(name, *place, contention) for contention in (False, True)}


def compare(question: Question, name: str = "one-link") -> dict[str, Any]:
    """One allreduce of all gradients in float32: {algorithm: seconds by each model}."""
    require(question, name)
    built, gamma = networks(question, name), question.fabric.between.gamma_s_per_byte
    elements, rows = question.step.elements, {}
    ends = [algorithms(end) for end in interval(question)]
    for title, (algorithm, closed_form) in algorithms(question).items():
        rows[title] = {"closed_form_s": closed_form(elements)}
        if title in planned(question):
            seconds = (end[title][1](elements) for end in ends)
            rows[title] |= dict(zip(("low_s", "high_s"), seconds))
        for model in MODELS:
            platform = built[model != "off"]
            if title == RANDOM:
                platform = replace(platform, hosts=shuffled(platform.hosts))
            seconds = simulate(algorithm, elements, platform, gamma, model)
            if algorithm is first_steps:
                seconds *= (question.size - 1) / STEPS
            rows[title][f"{model}_s"] = seconds
    return {"platform": name, "ranks": question.size, "elements": elements, "allreduce": rows}


def planned(question: Question) -> set[str]:
    """The rows that are an allreduce of the plan, where the ranks are placed like this.

    The ring is not if its time was measured, or its mean hop: the plan has these.
    """
    levels = {"ring", "three phases", "two-level ring"}
    found = levels if question.per_node > 1 else {*LINES}
    same = question.hops == question.links and not question.measured
    return found if same else found - {"ring"}


def interval(question: Question) -> list[Question]:
    """The plan's network with all inputs at their lowest, and at their highest."""
    found = {name: both for name, both in ranges(question).items() if name != "pace"}
    return [varied(question, **{name: both[end] for name, both in found.items()}) for end in (0, 1)]


def shuffled(hosts: list[str]) -> list[str]:
    """The same hosts in the same random order in each call."""
    return random.Random(len(hosts)).sample(hosts, len(hosts))


def announcement(question: Question) -> str:
    asked = algorithms(question)
    return (
        f"SimGrid simulates {len(asked)} algorithms in {len(MODELS)} models on {question.size} "
        "ranks (many ranks: minutes)"
    )


def text(found: dict[str, Any]) -> str:
    lines = [
        f"SimGrid, one allreduce of {found['elements']:,} float32 gradients on {found['ranks']} "
        f"ranks, platform {found['platform']} (ms)",
        "algorithm             closed form   no contention   contention   SMPI's TCP factors",
    ]
    for name, row in found["allreduce"].items():
        ms = [1e3 * row[key] for key in ("closed_form_s", "off_s", "contention_s", "smpi_s")]
        lines.append(f"{name:<20} {ms[0]:12.2f} {ms[1]:15.2f} {ms[2]:12.2f} {ms[3]:20.2f}")
    if found["ranks"] > ALL_MESSAGES:
        lines.append(f"ring: from the first {STEPS} steps of each phase, which are alike")
    if "low_s" not in found["allreduce"]["ring"]:
        lines.append("ring: a formula, while the plan has the ring that was measured")
    return "\n".join([*lines, *COLUMNS, *judgement(found["allreduce"])])


def judgement(rows: dict[str, dict[str, float]]) -> list[str]:
    """Which rows SimGrid's TCP puts outside the plan's interval, and why that may be."""
    outside = [
        f"{name} ({1e3 * row['low_s']:.1f} .. {1e3 * row['high_s']:.1f})"
        for name, row in rows.items()
        if "low_s" in row and not row["low_s"] <= row["smpi_s"] <= row["high_s"]
    ]
    if not outside:
        return []
    said = f"SMPI's TCP is outside the plan's interval of {', '.join(outside)}. The plan's closed "
    said += "forms have no costs of protocol and contention (docs/scale.md): over TCP plan with "
    said += "SimGrid's time. Its factors do not hold for other protocols."
    return wrap(said, 100, subsequent_indent="    ")
