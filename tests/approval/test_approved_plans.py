"""What `plan` and `measure` say of each text, trace and list; and the papers' published tables.

    python -m pytest tests/approval/test_approved_plans.py -m "long or not long" --snapshot-update

Numbers have six digits, which other processors compute alike.
"""

import json
import re
import sys
from dataclasses import fields, is_dataclass
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from docs.tools import gains
from lab.scaling import far, published_tables
from refgf.papers.mgwfbp.merge import greedy_merge
from refgf.papers.scaling import benchmark_rows, confronted, machine, rows
from refgf.papers.scaling.headlines import HEADLINES, IMPLIED_RATE
from refgf.papers.scaling.machine import Machine
from refgf.papers.scaling.published import MACHINES
from refgf.papers.scaling.workloads import PUBLISHED, WORKLOADS
from refgf.plan import __main__ as command
from refgf.plan import fabric, inputs, judged, measure, replay
from refgf.plan.benchmarks import Stated
from refgf.predict.cost import Link
from tests.support.list_cases import LISTS
from tests.support.text_cases import RECORDED, SLOW, TEXTS, nccl, ring_line
from tests.support.trace_cases import TRACES


def plain(value):
    """Values in JSON's types, six digits of a number."""
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return value


def lines(value):
    """One line for each field; fields that are empty are left out."""
    return [f"    {key}: {json.dumps(each)}" for key, each in plain(value).items() if each]


def outcome(read, *given):
    """What is found as lines, or the refusal."""
    try:
        return lines(read(*given))
    except ValueError as error:
        return [f"    {error}"]


def said_of(cases, read, folder):
    """A paragraph for each case; the same as another's is said in a line."""
    found, seen = [], {}
    for name, given in cases.items():
        said = read(name, given)
        first = seen.setdefault(tuple(said), name)
        found += [name, *(said if first == name else [f"    as {first}"]), ""]
    return "\n".join(found).replace(str(folder), "FOLDER")


def test_texts(approved, tmp_path):
    def read(name, given):
        text, stated = given
        path = tmp_path / "log.txt"
        path.write_text(text)
        return outcome(fabric.load, str(path), Stated(**stated))

    assert said_of(TEXTS, read, tmp_path) == approved


def step_of(events, step, folder):
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return outcome(inputs.read_file, str(path), step)


def test_traces(approved, tmp_path):
    assert said_of(TRACES, lambda name, given: step_of(*given, tmp_path), tmp_path) == approved


def damaged(events, seed):
    """The events without some of them, some twice, some at another time or of another kind."""
    random, found = Random(seed), []
    for event in events:
        drawn = random.random()
        if drawn < 0.05:
            continue
        if drawn > 0.97:
            found.append(event)
        if 0.90 < drawn < 0.94 and not isinstance(event["ts"], str):
            event = event | {"ts": event["ts"] + random.choice([-400, -30, 30, 400])}
        if 0.94 < drawn < 0.96:
            event = event | {"args": {}}
        found.append(event)
    random.shuffle(found)
    return found


@pytest.mark.long
def test_damaged_traces(approved, tmp_path):
    cases = {
        f"{name}, seed {seed}": (damaged(events, seed), step)
        for name, (events, step) in TRACES.items()
        if len(events) > 4
        for seed in range(4)
    }
    assert said_of(cases, lambda name, given: step_of(*given, tmp_path), tmp_path) == approved


def test_lists(approved, tmp_path):
    def read(name, text):
        (tmp_path / name).write_text(text)
        return outcome(inputs.read_file, str(tmp_path / name), None)

    assert said_of(LISTS, read, tmp_path) == approved


NCCL = RECORDED / "nccl_ring_4x8_p4d_like.txt"
PLANS = {
    "measured": f"--model bert --batch 8 --rate 60 --machine {NCCL} --ranks 32 --ranks-per-node 8",
    "more nodes": f"--model vgg16 --batch 32 --rate 99 --machine {NCCL} --ranks 256 "
    "--ranks-per-node 8",
    "inside": f"--model resnet50 --batch 64 --rate 930 --machine {NCCL} --ranks 64 "
    "--ranks-per-node 4 --inside 2us 2400gbit",
    "slow inside": f"--model resnet50 --batch 64 --rate 930 --machine {NCCL} --ranks 64 "
    "--ranks-per-node 8 --inside 1us 200gbit",
    "noisy": "--model resnet50 --batch 64 --rate 930 --machine noisy.txt --ranks 16",
    "noisy, more": "--model resnet50 --batch 64 --rate 930 --machine noisy.txt --ranks 48",
    "large only": "--model resnet50 --batch 64 --rate 930 --machine large.txt --ranks 4",
    "layer times": "--model alexnet --machine mine.json --ranks 8",
    "a machine file": "--model resnet152 --batch 8 --rate 50 --machine mine.json --ranks 24 "
    "--ranks-per-node 6 --overlap 0.3",
    "a trace": "--model trace.json --machine mgwfbp-10gbe --ranks 8 --ranks-per-node 2 --step 3",
    "a list": "--model list.csv --machine v100-56gbit --ranks 48 --ranks-per-node 8",
    "one rank": "--model alexnet --machine v100-56gbit --ranks 1",
    "one node": "--model alexnet --machine v100-56gbit --ranks 8 --ranks-per-node 16",
    "placed": "--model alexnet --machine v100-56gbit --ranks 16 --ranks-per-node 4 --overlap 0.5",
    "a small step": "--model list.csv --machine mgwfbp-10gbe --ranks 6 --inside 5us 800gbit",
}


def files(folder):
    """The files that PLANS names."""
    line = ring_line(16, SLOW)
    noisy = nccl(16, lambda n: line(n) * (3 if n == 1 << 20 else 1), a_host=1)
    (folder / "noisy.txt").write_text(noisy)
    noise, large = Random(0), [1 << bit for bit in range(26, 34)]
    few = ring_line(4, Link(20e-6, 1e-9))
    text = nccl(4, lambda n: few(n) * noise.uniform(0.98, 1.02), a_host=1, sizes=large)
    (folder / "large.txt").write_text(text)
    links = {"between": Link(8e-6, 3e-10), "inside": Link(2e-6, 5e-11)}
    layers = tuple(
        (layer.name, 1e-3, 2e-3) for layer in WORKLOADS["AlexNet"]().layers if layer.tensors
    )
    mine = Machine("lab", "a test", "measured", links, errors={"between": (1e-6, 2e-11)})
    step = {"workload": "AlexNet", "batch": 32, "layers": layers}
    machine.save(Machine(**vars(mine) | step), folder / "mine.json")
    events, _ = TRACES["four steps, the second of them"]
    (folder / "trace.json").write_text(json.dumps({"traceEvents": events}))
    rows = [f"{1000 * (n % 7 + 1) ** 4},{0.4 * n + 3}" for n in range(40)]
    (folder / "list.csv").write_text("\n".join(["elements,ready_ms", *rows]))


AS_JSON = ("inside", "a trace", "one rank")
SOON = ("one rank", "a trace", "placed")  # the others take longer
TEXTS_OF_PLANS = [
    pytest.param(name, "text", marks=() if name in SOON else pytest.mark.long) for name in PLANS
]


@pytest.mark.parametrize(
    "name, form",
    [*TEXTS_OF_PLANS, *(pytest.param(n, "json", marks=pytest.mark.long) for n in AS_JSON)],
)
def test_plans_of_files(name, form, approved, tmp_path, monkeypatch, capsys):
    files(tmp_path)
    monkeypatch.chdir(tmp_path)
    as_json = ["--json"] * (form == "json")
    monkeypatch.setattr(sys, "argv", ["refgf predict", "plan", *PLANS[name].split(), *as_json])
    code = command.main()
    said = capsys.readouterr()
    text = said.out
    if form == "json" and not code:
        text = json.dumps(plain(json.loads(text)), indent=1)
    text = f"{text}{said.err}".replace(str(RECORDED), "RECORDED")
    assert form == "json" or max(map(len, text.splitlines())) <= 100
    assert f"{text}exit code {code}\n" == approved


ALEXNET = "--model alexnet --machine v100-56gbit --ranks 4"
REFUSED = (
    "--model alexnet --machine dgx --ranks 4",
    "--model vgg16 --machine v100-56gbit --ranks 4",
    "--model vgg16 --machine v100-56gbit --ranks 4 --rate 9",
    "--model bert --machine v100-56gbit --ranks 4 --batch 0",
    f"{ALEXNET} --batch 256",
    f"{ALEXNET} --batch 8 --rate nan",
    f"{ALEXNET} --batch 8 --rate 1e12",
    "--model resnet --machine v100-56gbit --ranks 4",
    "--model toaster --machine v100-56gbit --ranks 4",
    "--model list.csv --machine v100-56gbit --ranks 4 --batch 8 --rate 9",
    "--model list.csv --machine v100-56gbit --ranks 4 --step 3",
    f"{ALEXNET} --allreduce tree --ranks-per-node 2",
    f"{ALEXNET} --step 3",
    f"{ALEXNET} --platform fat-tree:2",
    f"{ALEXNET} --measured-ranks 8",
    f"{ALEXNET} --ranks-per-node 3",
    f"{ALEXNET} --overlap 2",
    f"{ALEXNET} --allreduce star",
    f"{ALEXNET} --inside 800gbit 5us",
    f"{ALEXNET} --simulate --platform fat-tree:x",
    "--model alexnet --machine v100-56gbit --ranks 0",
    "--model alexnet --machine v100-56gbit --ranks 1 --simulate",
)


def test_refused_commands(approved, tmp_path, monkeypatch, capsys):
    """Each with one sentence and exit code 2, and nothing printed before it."""
    files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(replay, "installed", lambda: True)
    found = []
    for given in REFUSED:
        monkeypatch.setattr(sys, "argv", ["refgf predict", "plan", *given.split()])
        assert command.main() == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.count("\n") == 1
        found += [given, f"    {said.err}"]
    assert "\n".join(found) == approved


@pytest.mark.parametrize("nodes", [1, 2])
def test_measure(nodes, approved, tmp_path, monkeypatch, capsys):
    """A machine file of a link with known times, as rank 0 of two writes it."""

    class Two:
        def Get_rank(self):
            return 0

        def Get_size(self):
            return 2

        def allgather(self, name):
            return ["node0", f"node{nodes - 1}"]

        def bcast(self, value, root):
            return value

    def exchanges_s(comm, other, nbytes, count):
        return [k * (7e-6 + nbytes * 3e-10) for k in next(rounds)]

    rounds = iter([(1.0, 1.01, 0.99), (1.4, 1.0, 1.0), (1.02, 1.02, 1.0)] * 20)
    monkeypatch.setattr(measure, "exchanges_s", exchanges_s)
    monkeypatch.setattr(measure, "longest_s", lambda comm, other, begin_s: 0.0)
    monkeypatch.setattr(measure, "sum_s_per_byte", lambda: 1e-10)
    monkeypatch.setattr(measure, "ROUNDS", 4)
    monkeypatch.setattr(measure, "ROUND_S", 0.0)
    measure.write(Two(), str(tmp_path / "mine.json"))
    written = json.dumps(plain(json.loads((tmp_path / "mine.json").read_text())), indent=1)
    text = capsys.readouterr().out.replace(str(tmp_path), "FOLDER") + written
    assert re.sub(r"\d{4}-\d\d-\d\d", "DATE", text) == approved


# ---- the papers' published numbers ----


def test_published_numbers(approved):
    """Machines, rows, inputs with their sources, and the networks' gradients."""
    found = [f"machine {each.name}" for each in MACHINES]
    found += [json.dumps(machine.to_json(each)) for each in MACHINES]
    found += [json.dumps(plain(row)) for row in rows.ROWS]
    every = (benchmark_rows.NETWORKS, benchmark_rows.K80_NETWORKS)
    for name, network in (pair for networks in every for pair in networks.items()):
        found += [f"{name}: batch {network.batch}, {network.single} on one"]
        found += [f"    {key}: {json.dumps(each)}" for key, each in network.measured.items()]
    for lines_of in (*benchmark_rows.LINES.items(), ("wire", benchmark_rows.WIRE)):
        found += [json.dumps(plain(lines_of))]
    for headline in HEADLINES:
        about = (headline.published, headline.unit, headline.label, headline.source)
        found += [f"{headline.name}: {about}", f"    is a result: {headline.is_result}"]
        found += [f"    {json.dumps(plain(given))}" for given in headline.inputs]
    found += [json.dumps(plain(IMPLIED_RATE))]
    for name, make in WORKLOADS.items():
        network = make()
        sizes = [tensor.elements for tensor in network.tensors]
        flops = network.forward_flops, network.backward_flops
        about = f"{len(network.layers)} layers, {len(sizes)} tensors, {sum(sizes)} parameters"
        found += [f"{name}: {network.sample}, {about}, {flops} flops, {PUBLISHED.get(name)}"]
        found += [f"    {' '.join(map(str, sizes))}"]
    assert "\n".join(found) == approved


def test_errors_of_the_published_rows(approved):
    """Each prediction next to its published row, and README's table."""
    found = [json.dumps(plain(each)) for each in rows.compare_all(greedy_merge)]
    found += [json.dumps(plain(rows.calibrated_overheads(greedy_merge)))]
    found += lines(confronted.on_real_clusters(greedy_merge))
    for connection, given in benchmark_rows.LINES.items():
        found += lines(benchmark_rows.errors(connection, given, greedy_merge))
    found += lines(benchmark_rows.k80_errors(greedy_merge))
    found += [json.dumps(plain(benchmark_rows.gains_on_8_nodes(greedy_merge)))]
    found += [json.dumps(plain((judged.tables(), judged.steps())))]
    for entry in confronted.confronted(gains.figure, greedy_merge):
        found += [f"{entry.name} | {entry.published} | {entry.kind} | {entry.found}"]
    assert "\n".join(found) == approved


class Screen:
    """What a lesson says and tabulates, as lines."""

    verbose, options = True, SimpleNamespace(headlines=False)

    def __init__(self):
        self.lines = []

    def say(self, text=""):
        self.lines.append(text)

    section = say

    def table(self, header, cells):
        self.lines += ["\t".join(map(str, row)) for row in (header, *cells)]

    def quick(self, short, full):
        return short


@pytest.mark.long
def test_tables_of_lesson_08(approved):
    screen, shown = Screen(), []
    found = [published_tables.headlines(screen, shown), published_tables.rows(screen)]
    found += [far.past_the_points(screen, None)["far"]]
    text = "\n".join([*screen.lines, json.dumps(plain(found), default=np.ndarray.tolist)])
    assert text == approved
