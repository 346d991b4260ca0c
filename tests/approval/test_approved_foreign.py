"""What is said of other people's code must not change while the house is rebuilt.

Judged here: training steps, allreduces, modules, and plans with one thing changed in each.
"""

import copy
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from refgf.oracle.__main__ import main
from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules import msccl, mscclpp
from refgf.oracle.schedules.own import own_plan
from refgf.oracle.schedules.verdict import as_lines, judge
from tests.approval.test_approved import answered, approved  # noqa: F401  fixtures
from tests.support import faults
from tests.support.reveal_boxes import (
    AT_ONCE,
    BOXES,
    WRONG,
    by_exclusive_or,
    in_rank_order,
    one,
    printed,
    sums,
    then,
)
from tests.support.schedule_cases import LINK, changed, xml

pytestmark = pytest.mark.long


def rounded(text):
    """Three digits of each number, which other processors and versions of PyTorch share."""
    return re.sub(r"-?\d*\.?\d+e-?\d+|-?\d+\.\d{2,}", lambda m: f"{float(m[0]):.3g}", text)


# -- training steps

FEW = (  # of right loops with state, one of each kind
    *("spectral_norm", "running_normaliser", "reduced_in_step", "flat_shards", "codebook"),
    *("adversaries_in_turn", "batch_norm", "signs_of_a_sum_inside", "steps_inside_backward"),
)


@pytest.fixture(scope="module")
def running():
    pytest.importorskip("torch", reason="PyTorch is an extra")
    from refgf.oracle.step.ranks import Ranks

    with Ranks(3, 120.0) as ranks:
        yield ranks


def verdicts(running, module, names, batch_norm):
    """A verdict, with what a program reads of it; or the sentence why there is none."""
    from refgf.oracle.step.judging import judge as judge_step

    for name in names:
        try:
            norm = batch_norm(name)
            verdict = judge_step(f"{module.__file__}:{name}", running, batch_norm=norm)
            text = "\n".join([str(verdict), *(str((f.stage, f.names)) for f in verdict.findings)])
        except ValueError as error:
            text = str(error)
        yield rounded(f"== {name}\n{text}").replace(module.__file__, "FILE")


def test_steps_that_are_wrong(running, approved):  # noqa: F811
    from tests.support.step import mistakes as step_mistakes

    norm = {n: getattr(m, "batch_norm", "refuse") for n, m in step_mistakes.MISTAKES.items()}
    assert "\n".join(verdicts(running, step_mistakes, norm, norm.get)) == approved


def test_steps_that_are_right(running, approved):  # noqa: F811
    from tests.support.step import right as step_right
    from tests.support.step import turns as step_turns

    norm = {name: step_turns.LOOPS[name].batch_norm for name in FEW}
    drawn = [f"set_up_{number}" for number in range(8)]
    found = [*verdicts(running, step_turns, norm, norm.get)]
    found += verdicts(running, step_right, drawn, lambda name: "refuse")
    assert "\n".join(found) == approved


REFUSED = {
    "dropout": ("nn.Dropout(0.1)", "loop(net, batches, rank, size, loss)"),
    "batch_norm": ("nn.BatchNorm1d(3)", "loop(net, batches, rank, size, loss)"),
    "no_step": ("nn.Tanh()", "[loss(net, pair).backward() for pair in batches]"),
    "an_error": ("nn.Tanh()", "raise KeyError(size)"),
    "an_error_on_one_rank": ("nn.Tanh()", "loop(net, batches, rank, size, loss) if rank else 1/0"),
    "an_exit": ("nn.Tanh()", "os._exit(3) if rank == 1 else loop(net, batches, rank, size, loss)"),
    "other_calls": ("nn.Tanh()", "dist.barrier() if rank else dist.all_reduce(torch.ones(2))"),
    "one_batch": ("nn.Tanh()", "next(iter(batches))"),
}


def test_steps_that_cannot_be_judged(approved, tmp_path, monkeypatch, capsys):  # noqa: F811
    """What the command says, and its exit code; the same ranks train all of them."""
    pytest.importorskip("torch", reason="PyTorch is an extra")
    from refgf.oracle.step import judging
    from refgf.oracle.step.ranks import Ranks
    from tests.support.step.subject import subject

    found, judge_step = [], judging.judge
    with Ranks(2, 120.0) as two:
        monkeypatch.setattr(judging, "judge", lambda file, *_: judge_step(file, two))
        for name, (layer, train) in REFUSED.items():
            head = f"def model():\n    return nn.Sequential(nn.Linear(6, 3), {layer})\n"
            path = subject(tmp_path, f"    {train}\n", f"{name}.py", head)
            code, text = main(["step", str(path)]), "".join(capsys.readouterr())
            text = f"{text}exit code {code}\n".replace(str(tmp_path), "FOLDER")
            found.append(re.sub(r"step, on rank \d", "step, on rank R", text))  # that answers first
    assert "\n".join(found) == approved


# -- allreduces as black boxes


def test_orders_of_black_boxes(approved):  # noqa: F811
    boxes = {name: (box, 4, 200 if "compensated" in name else 40) for name, box in BOXES.items()}
    boxes |= {f"exclusive or, {p} ranks": (by_exclusive_or, p, 9) for p in (4, 6)}
    for name, change in WRONG.items():
        for how, box in (("", sums([(0, 200, in_rank_order(4))])), (", at once", AT_ONCE)):
            boxes[f"{name}{how}"] = then(change, box), 4, 200
    found = {name: one(*given) for name, given in boxes.items()}
    lines = [f"== {name}\n{printed(of)}\nright: {of.right}" for name, of in found.items()]
    assert "\n".join(lines) == approved


def mean(xs):
    return [total / np.float32(4) for total in faults.right(xs)]


def finite_only(xs):
    if not all(np.isfinite(x).all() for x in xs):
        raise ValueError("no such numbers")
    return faults.right(xs)


def test_orders_of_faults(approved):  # noqa: F811
    """Of faults.py, what public reports describe: special numbers lost, other slice bounds."""
    names = ["right", "saturates", "nan_to_zero", "infinity_clipped", "denormals_flushed"]
    cases = [(getattr(faults, name), 4, 24, "float32") for name in names]
    cases += [(faults.right, 4, 24, dtype) for dtype in ("float16", "float64")]
    cases += [(faults.saturates, 4, 24, dtype) for dtype in ("float16", "float64")]
    cases += [(box, 4, 24, "float32") for box in (mean, finite_only)]
    cases += [(faults.other_bounds, p, 103, "float32") for p in (4, 5, 7)]
    cases += [(other_bounds_backwards, p, 103, "float32") for p in (4, 5, 7)]
    found = []
    for function, p, n, dtype in cases:
        box = of_type(function, dtype)
        found.append(
            f"== {function.__name__}, {p} ranks, {dtype}\n{printed(one(box, p, n, dtype))}"
        )
    assert "\n".join(found) == approved


def other_bounds_backwards(xs):
    return faults.other_bounds(xs[::-1])


def of_type(function, dtype):
    def box(xs):
        return [row.astype(np.float64) for row in function([x.astype(dtype) for x in xs])]

    return box


def test_reveal_of_faults(approved, answered):  # noqa: F811
    names = ["big_endian", "aliased", "in_place", "two_types"]
    file = ["reveal", "--python", faults.__file__, "--sizes", "24", "--function"]
    assert "\n".join(answered(*file, name) for name in names) == approved


ALLREDUCES = """
import os
import numpy as np
def fold(xs):
    total = xs[0].copy()
    for x in xs[1:]:
        total += x
    return [total.copy() for _ in xs]
def ranks(comm, x):
    total, got = x.copy(), np.empty_like(x)
    for k in range(1, comm.Get_size()):
        to, source = ((comm.Get_rank() + s) % comm.Get_size() for s in (k, -k))
        comm.Sendrecv(x, to, 0, got, source, 0)
        total += got
    x[...] = total
def one_waits(comm, x):
    if comm.Get_rank():
        comm.Recv(x, 0, 0)
def half(xs):
    return [sum(x.astype(np.float16) for x in xs).astype(x.dtype) for x in xs]
def in_place(xs):
    for x in xs[1:]:
        xs[0] += x
    return [xs[0].copy() for _ in xs]
def nothing(xs):
    pass
def raises(xs):
    raise KeyError("x")
def short(xs):
    return [x[:1] for x in xs]
def wider(xs):
    return [x.astype(np.float64) for x in fold(xs)]
def exits(xs):
    os._exit(3)
def aborts(xs):
    print("before \\x1b[2J the end")
    os.abort()
def reduce_scatter(xs):
    return np.array_split(fold(xs)[0], len(xs))
def one_array(xs):
    return np.add.reduce(xs)
def left_in_place(xs):
    total = one_array(xs)
    for x in xs:
        x[...] = total
def left_on_rank_0(xs):
    xs[0][...] = one_array(xs)
calls = []
def the_third_call(xs):
    calls.append(1)
    return 1 / 0 if len(calls) == 3 else fold(xs)
def own_first(xs):
    return [fold(xs[r:] + xs[:r])[0] for r in range(len(xs))]
"""


def test_reveal_of_modules(approved, answered, tmp_path):  # noqa: F811
    (tmp_path / "mine.py").write_text(ALLREDUCES)
    names = re.findall(r"def (\w+)", ALLREDUCES)
    sizes = ["--sizes", "1", "9", "--ranks", "3"]
    given = [("mine.py", name) for name in names]
    given += [("refgf.oracle.definitions", f"{name}_allreduce") for name in ("ring", "direct")]
    found = [
        answered("reveal", "--python", file, "--function", name, *sizes, folder=tmp_path)
        for file, name in given
    ]
    assert without_frames("\n".join(found)) == approved


def without_frames(text):
    """Python's report of a crash, without addresses and line numbers of ours."""
    return re.sub(r".*(File \"CHECKOUT|Current thread|Extension modules).*\n", "", text)


# -- modules

MODULES = {
    "right": "from refgf.oracle.definitions import *",
    "plain": "import numpy as np\ndef allreduce(xs):\n    return [np.sum(xs, axis=0)] * len(xs)",
    "backwards": "def direct_allreduce(xs, wire=None):\n    total = xs[-1]\n"
    "    for x in xs[-2::-1]:\n        total = total + x\n    return [total] * len(xs)",
    "by_messages": "import warnings\nwarnings.simplefilter('ignore')\n"
    + ALLREDUCES.replace("def ranks", "def allreduce"),
    "raises": "def slice_bounds(n, p):\n    return [n / (p - p)]\n",
    "exits": "import sys\ndef slice_bounds(n, p):\n    sys.exit(3)\n"
    "def ring_allreduce(xs, wire=None):\n    import os\n    os._exit(4)\n",
    "crashes": "import os\nprint('here')\ndef slice_bounds(n, p):\n    os.abort()\n",
    "cannot_be_imported": "import nowhere_at_all\n",
    "ends_at_import": "import os\nos._exit(7)\n",
    "odd": "def slice_bounds(n, p):\n    return 'abc'\n"
    "def gradient_bytes(*a, **k):\n    raise NotImplementedError\n",
}


@pytest.mark.parametrize("name", MODULES)
def test_verify_of_modules(name, approved, answered, tmp_path):  # noqa: F811
    (tmp_path / f"{name}.py").write_text(MODULES[name])
    words = "verify", "--python", f"./{name}.py", "--seed", 1
    text = without_frames(answered(*words, folder=tmp_path))
    assert re.sub(r"\d+\.\d+ s\b", "TIME s", text) == approved


# -- plans

OTHER = {"type": "cpy", "srcbuf": "s", "dstbuf": "o", "srcoff": "1", "dstoff": "2", "cnt": "2"}
OTHER |= {"hasdep": "1", "depid": "0", "deps": "0", "send": "2", "recv": "-1", "chan": "1"}
OTHER |= {"i_chunks": "1", "inplace": "0", "coll": "allgather", "nchunksperloop": "7", "id": "9"}


def said_of(plan):
    """The verdict of bytes, or of a plan; or the sentence why there is none."""
    try:
        plan = plan()
        return "\n".join(as_lines("x", plan, judge(plan, LINK, 1024)))
    except BadFile as error:
        return str(error)


@pytest.mark.parametrize("name", ["ring", "direct"])
def test_changed_xml(name, approved):  # noqa: F811
    """Each attribute of a plan changed, and each element left out."""
    whole, found = xml(3, name), []
    for number, element in enumerate(whole.iter()):
        for key in sorted(OTHER.keys() & element.attrib.keys()):
            root = copy.deepcopy(whole)
            [*root.iter()][number].set(key, OTHER[key])
            text = said_of(lambda root=root: msccl.parse("x", ET.tostring(root)))
            found.append(f"== {element.tag} {number}: {key}\n{text}")
    for parent, inside in enumerate(whole.iter()):
        for number in range(len(inside)):
            root = copy.deepcopy(whole)
            del [*root.iter()][parent][number]
            text = said_of(lambda root=root: msccl.parse("x", ET.tostring(root)))
            found.append(f"== {inside.tag} {parent} without child {number}\n{text}")
    assert "\n".join(found) == approved


def test_changed_json(approved):  # noqa: F811
    """Each value of a plan of MSCCL++ changed, and each op left out."""
    whole, found = json.loads(mscclpp.dump(own_plan("ring", 3, "mscclpp-json", 3))), []

    def walk(node, path=()):
        for key, value in [*(node.items() if isinstance(node, dict) else enumerate(node))]:
            yield (*path, key), value
            if isinstance(value, dict | list):
                yield from walk(value, (*path, key))

    for path, value in walk(whole):
        if isinstance(value, dict | list) and path[-2:-1] != ("ops",):
            continue
        if "ops" in path and path[path.index("ops") + 1] > 9:
            continue  # the first ten ops of each thread block
        for other in (None, "get", value + 1 if type(value) is int else "s"):
            top = copy.deepcopy(whole)
            holder = top
            for key in path[:-1]:
                holder = holder[key]
            if isinstance(value, dict):
                del holder[path[-1]]
            else:
                holder[path[-1]] = other
            text = said_of(lambda top=top: mscclpp.parse("x", json.dumps(top).encode()))
            found.append(f"== {'/'.join(map(str, path))}: {other!r}\n{text}")
    assert "\n".join(found) == approved


@pytest.mark.parametrize("form", ["chakra", "mscclpp-json", "msccl-xml"])
def test_changed_plans(form, approved):  # noqa: F811
    """Each step of a plan with another op, other memory, or without its messages."""
    plan, found = own_plan("ring", 3, form, 3), []
    for rank, steps in enumerate(plan.ranks):
        for index, step in enumerate(steps):
            changes = {"writes": ()}, {"reads": step.reads[1:]}, {"sends": ()}, {"receives": ()}
            spans = tuple(replace(span, start=(span.start + 1) % 3) for span in step.writes)
            for change in (*changes, {"writes": spans}, {"after": ()}, {"chunks": 7}):
                if getattr(step, [*change][0]) != [*change.values()][0]:
                    text = said_of(lambda c=change, r=rank, i=index: changed(plan, r, i, **c))
                    found.append(f"== rank {rank}, step {index}: {[*change][0]}\n{text}")
    assert "\n".join(found) == approved
