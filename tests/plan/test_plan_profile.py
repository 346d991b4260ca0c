"""Traces of torch.profiler: ready times on CPU and GPU, and a sentence for each bad trace."""

import json
import time
from dataclasses import replace

import pytest

from refgf.plan import profile
from refgf.plan.fabric import Fabric
from refgf.plan.inputs import read_file
from refgf.plan.question import PACE, Question, ranges
from refgf.predict.cost import Link

READY = "torch::autograd::AccumulateGrad"


def event(name, ts, dur, cat="cpu_op", **args):
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "cat": cat, "args": args}


def gradient(ts, *shape):
    return event(READY, ts, 10, **{"Input Dims": [list(shape)]})


def mark(number, ts, dur):
    return event(f"ProfilerStep#{number}", ts, dur, "user_annotation")


STEP = [
    mark(3, 1000, 1000),
    event("aten::mm", 1000, 400),
    gradient(1490, 10),
    gradient(1590, 4, 25),
    event("Optimizer.step#SGD.step", 1700, 200),
]


def read(events, step=None):
    return profile.from_trace({"traceEvents": events}, "trace.json", step)


def test_cpu_times_are_counted_from_the_start_of_the_step():
    step = read(STEP)
    assert step.ready == (pytest.approx((500e-6, 10)), pytest.approx((600e-6, 100)))
    assert step.after_s == pytest.approx(400e-6)
    assert step.compute_s == pytest.approx(1000e-6)


def test_waiting_in_a_step_counts_wherever_it_is():
    """40 ms of sleep before forward or after the optimiser: the same step."""
    for at, said in ((0, "40.0 before the first operator, 1.0 after"), (1, "0.0 before the first")):
        first = 40_000 * (1 - at)
        events = [
            mark(3, 0, 42_000),
            event("aten::mm", first, 500),
            gradient(first + 900, 10),
            event("aten::add_", first + 950, 50),
        ]
        step = read(events)
        assert step.compute_s == pytest.approx(42e-3)
        assert step.notes[0].startswith("All 42.0 ms of ProfilerStep#3 count. No operator runs in")
        assert said in step.notes[0]


def test_the_pace_holds_all_complete_steps_of_the_trace():
    """Steps of 1000, 1200 and 800 us; the first one, of 9000, may hold start-up."""
    events = []
    for number, factor in ((2, 9.0), (3, 1.0), (4, 1.2), (5, 0.8)):
        start = 10_000 * (number - 2)
        events += [
            mark(number, start, 1000 * factor),
            event("aten::mm", start, 400 * factor),
            event(READY, start + 490 * factor, 10 * factor, **{"Input Dims": [[10]]}),
            event("Optimizer.step#SGD.step", start + 700 * factor, 200 * factor),
        ]
    step = read(events, 3)
    assert step.scatter == (pytest.approx(0.8), pytest.approx(1.2))
    assert step.notes[-1] == (
        "3 complete steps after the first in the trace, 0.8 to 1.2 ms: the interval of pace holds "
        "them."
    )
    asked = Question(step, Fabric("net", "this test", Link(1e-5, 1e-9)), 4)
    assert ranges(asked)["pace"] == step.scatter
    one = replace(asked, step=read(STEP))
    assert ranges(one)["pace"] == PACE[True]


def test_gradients_of_two_bytes_are_said():
    """The rows are for float32 on the wire, whatever the trace's type."""
    half = event(READY, 1600, 10, **{"Input Dims": [[4]], "Input type": ["c10::Half"]})
    assert "gradients of c10::Half" in " ".join(read([*STEP, half]).notes)
    assert "c10::Half" not in " ".join(read(STEP).notes)


@pytest.mark.parametrize(
    "factor, said", [(1e-3, "0.023 ms is very short"), (1, None), (1e3, "23 s is long")]
)
def test_a_file_in_another_unit_is_doubted(factor, said):
    last = event(READY, 20_000 * factor, 10 * factor, **{"Input Dims": [[10]]})
    events = [mark(1, 0, 23_000 * factor), last]
    doubts = [note for note in read(events).notes if note.startswith("WARNING: a step of")]
    assert doubts == (
        [f"WARNING: a step of {said}. Is the unit, microseconds, right?"] if said else []
    )


def test_a_step_that_may_hold_start_up_is_doubted():
    """Step 0 of a run, and a trace without marks, which begins with its first operator."""
    first = [mark(0, 0, 2000), gradient(1000, 10), mark(1, 2000, 2000), gradient(3000, 10)]
    assert "first of the run" in " ".join(read(first, 0).notes)
    assert "first of the run" not in " ".join(read(first, 1).notes)
    whole = [event("PyTorch Profiler (0)", 0, 9000, "Trace"), forward(5000), gradient(7000, 10)]
    assert read(whole).compute_s == pytest.approx(2010e-6)
    said = " ".join(read(whole).notes)
    assert "no ProfilerStep in the trace" in said
    assert "waits before its first event are left out" in said  # those after it count


def test_a_scalar_has_one_element():
    assert read([mark(1, 0, 100), gradient(10)]).ready[0][1] == 1


def test_a_chosen_step():
    later = [mark(4, 2000, 500), gradient(2090, 7)]
    assert read(STEP + later).elements == 7
    assert read(STEP + later, 3).elements == 110
    with pytest.raises(ValueError, match="got no step 9; wanted one of 3, 4"):
        read(STEP + later, 9)


def test_gpu_gradients_are_ready_when_their_kernels_end():
    """Kernels lag behind their launches, even beyond the step's mark; the first begins the step."""
    launches = [(1, 1100, 1300, 200), (2, 1400, 1500, 300), (3, 1550, 2600, 400)]
    events = [
        event("cudaLaunchKernel", at, 5, "cuda_runtime", correlation=i) for i, at, *_ in launches
    ]
    events += [event("gemm", at, dur, "kernel", correlation=i) for i, _, at, dur in launches]
    step = read([mark(1, 1000, 1500), gradient(1450, 10), gradient(1580, 20), *events])
    assert step.ready == (pytest.approx((500e-6, 10)), pytest.approx((1700e-6, 20)))


def test_kernels_without_correlation_numbers_are_no_step_on_a_cpu():
    """Such a trace would end with the CPU's launches, long before the GPU."""
    events = [event | {"args": {}} for event in gpu_steps(0) if event["cat"] == "kernel"]
    others = [event for event in gpu_steps(0) if event["cat"] != "kernel"]
    with pytest.raises(ValueError, match="got 6 GPU events, none with the correlation number"):
        read([*others, *events])


def test_a_gpu_that_lags_behind_repeats_the_optimiser_of_the_step_before():
    """Its annotation on the GPU's rows is in the next step, before some of that step's gradients.

    So it is in a public trace of ResNet-50 (facebookresearch/HolisticTraceAnalysis, ns_resolution).
    """
    late = event("Optimizer.step#SGD.step", 1450, 50, "gpu_user_annotation")
    assert read([*STEP, late]) == read(STEP)


def gpu_steps(load_ms, behind_ms=0):
    """Steps of a GPU that computes 60 ms: 40 until the gradient is final, then 20.

    load_ms: the CPU loads data before each step. behind_ms: the GPU begins so much later.
    """
    events, period = [], 1000 * (load_ms + 60)
    for number in range(3):
        start = 1e6 + number * period
        launch = start + 1000 * load_ms
        kernel = launch + 50 + 1000 * behind_ms
        events += [
            mark(number + 2, start, period - 10),
            event("enumerate(DataLoader)#next", start, 1000 * load_ms, "user_annotation"),
            gradient(launch + 100, 10),
        ]
        for part, at, dur in ((0, kernel, 40_000), (1, kernel + 40_000, 19_900)):
            ours, cuda = {"correlation": 2 * number + part}, "cuda_runtime"
            events.append(event("cudaLaunchKernel", launch + 150 * part, 5, cuda, **ours))
            events.append(event("gemm", at, dur, "kernel", **ours))
    return events


OLD = {"cpu_op": "Operator", "kernel": "Kernel", "cuda_runtime": "Runtime"}


@pytest.mark.parametrize("number", [2, 3])
def test_a_trace_of_torch_1_8_has_other_names_of_kinds(number):
    events = gpu_steps(load_ms=40)
    marks = {"user_annotation": "Operator"}
    old = [each | {"cat": (OLD | marks).get(each["cat"], each["cat"])} for each in events]
    assert {each["cat"] for each in old} == set(OLD.values())
    assert read(old, number) == read(events, number)


@pytest.mark.parametrize("number", [2, 3, 4])
def test_a_gpu_that_waits_for_data_takes_the_whole_period(number):
    step = read(gpu_steps(load_ms=40), number)
    assert step.compute_s == pytest.approx(100e-3, abs=2e-4)
    assert step.ready[0][0] == pytest.approx(80e-3, abs=2e-4)
    assert (
        "40.1 before the first kernel, 0.0 after the last. A DataLoader takes 40" in step.notes[0]
    )
    assert read(gpu_steps(load_ms=0), number).compute_s == pytest.approx(60e-3, abs=2e-4)


@pytest.mark.parametrize("number", [2, 3, 4])
def test_a_gpu_that_lags_behind_does_not_wait(number):
    """Its first kernel was in the queue: the step before, which a trace may lack, was running."""
    step = read(gpu_steps(load_ms=0, behind_ms=30), number)
    assert step.compute_s == pytest.approx(60e-3, abs=2e-4)
    assert step.ready[0][0] == pytest.approx(40e-3, abs=2e-4)


@pytest.mark.parametrize("number", [2, 3, 4])
def test_a_copy_that_overtakes_a_lagging_gpu_begins_no_step(number):
    """Its stream is free. So it is in a public trace of FSDP: steps of 216 ms, 160 ms behind.

    (facebookresearch/HolisticTraceAnalysis, negative_queue_length_values_check)
    """
    events = gpu_steps(load_ms=0, behind_ms=30)
    for at, start in enumerate(e["ts"] for e in gpu_steps(0) if e["name"].startswith("Profiler")):
        events.append(event("cudaMemcpyAsync", start + 10, 5, "cuda_runtime", correlation=90 + at))
        copy = event("Memcpy HtoD", start + 20, 50, "gpu_memcpy", correlation=90 + at)
        events.append(copy | {"tid": 9})
    step = read(events, number)
    assert step.compute_s == pytest.approx(60e-3, abs=2e-4)
    assert step.ready[0][0] == pytest.approx(40e-3, abs=2e-4)
    assert "-" not in step.notes[0]  # no time is negative


def forward(ts, dur=5):
    return event("aten::mm", ts, dur, **{"Sequence number": 1, "Fwd thread id": 0})


TWO_PASSES = [
    mark(3, 1000, 1000),
    *(forward(at) for at in (1100, 1300)),
    *(gradient(at, n) for at, n in ((1200, 10), (1250, 7), (1400, 10), (1450, 7))),
]


def test_accumulated_gradients_are_those_of_the_last_backward():
    """Twice forward and backward in one step: each gradient is sent once."""
    step = read(TWO_PASSES)
    assert step.ready == (pytest.approx((410e-6, 10)), pytest.approx((460e-6, 7)))
    assert "2 backward passes" in step.notes[1]


def test_what_backward_recomputes_is_no_second_forward():
    """Checkpointing computes inside the engine's events; another network has other sizes."""
    engine = event("autograd::engine::evaluate_function: CheckpointFunctionBackward", 1290, 50)
    assert len(read([*TWO_PASSES, engine]).ready) == 4
    assert len(read([*TWO_PASSES, forward(1460), gradient(1470, 3)]).ready) == 5


def test_a_file(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": STEP, "schemaVersion": 1}))
    assert read_file(str(path), None).elements == 110


@pytest.mark.parametrize(
    "events, said",
    [
        ([mark(1, 0, 100), event("aten::mm", 1, 5)], "no backward: none of its 2 events"),
        (
            [*STEP, mark(4, 5000, 100)],
            "got no backward in ProfilerStep#4; wanted a step with loss.backward(); next: --step 3",
        ),
        ([*STEP, mark(4, 1900, 900)], "ProfilerStep#3 and ProfilerStep#4, which overlap in time"),
        ([*STEP, gradient(1950, 5)], "two steps overlapping in ProfilerStep#3: 1 gradients after"),
        ([mark(1, 0, 100), event(READY, 10, 5)], "no sizes: a gradient without Input Dims"),
        ([mark(1, 0, 100), event(READY, 10, 5, **{"Input Dims": []})], "no sizes: a gradient"),
        ([mark(1, 1000, 1000), gradient(1.5, 10)], "mixed units: backward fits the step only"),
        ([*STEP, gradient(1.55, 10)], "mixed units: backward fits the step only"),
        ([*STEP, event("ncclDevKernel_AllReduce", 1600, 9, "kernel")], "1 events of an exchange"),
        ([mark(1, 0, 100), event(READY, "now", 1)], "ts, dur = ['now', 1]; wanted microseconds"),
        ([], "got no ProfilerStep"),
    ],
)
def test_bad_traces(events, said):
    with pytest.raises(
        ValueError, match="plan --model trace.json: got .*; wanted .*; next: "
    ) as error:
        read(events)
    assert said in str(error.value)


@pytest.mark.long
def test_a_real_trace(tmp_path):
    """torch.profiler's own file: as many gradients as parameters, in backward's order."""
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, schedule
    from torch.profiler import profile as profiler

    model = torch.nn.Sequential(
        torch.nn.Linear(300, 400), torch.nn.ReLU(), torch.nn.Linear(400, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    path = str(tmp_path / "trace.json")
    steps = schedule(wait=1, warmup=2, active=1, repeat=1)  # as in profile's docstring
    settings = {"activities": [ProfilerActivity.CPU], "record_shapes": True, "schedule": steps}
    with profiler(**settings) as running:
        for _ in range(9):
            optimizer.zero_grad()
            model(torch.ones(64, 300)).sum().backward()
            optimizer.step()
            time.sleep(0.02)  # the step ends with waiting
            running.step()
    running.export_chrome_trace(path)
    step = read_file(path, None)
    assert [elements for _, elements in step.ready][2:] in ([400, 120_000], [120_000, 400])
    assert sorted(elements for _, elements in step.ready) == [10, 400, 4000, 120_000]
    assert 0 < step.ready[0][0] < step.ready[-1][0] < step.compute_s < 10
    assert step.after_s > 0.02
