"""Traces of torch.profiler, written by hand: one for each thing that a step may hold.

TRACES    {name: (events, step)}, right and wrong ones
"""

READY = "torch::autograd::AccumulateGrad"
WEIGHT, BIAS, BATCH = [64, 64], [64], [32, 8, 64]
OLD = {"cpu_op": "Operator", "kernel": "Kernel", "cuda_runtime": "Runtime"}  # torch 1.8
OLD |= {"user_annotation": "Operator"}


def event(name, ts, dur, cat="cpu_op", **args):
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "cat": cat, "args": args}


def gradient(ts, *shape, dur=10):
    return event(READY, ts, dur, **{"Input Dims": [list(shape)]})


def mark(number, ts, dur):
    return event(f"ProfilerStep#{number}", ts, dur, "user_annotation")


def forward(ts, dur=5):
    return event("aten::mm", ts, dur, **{"Sequence number": 1, "Fwd thread id": 0})


def operator(name, ts, *shapes, **args):
    return event(name, ts, 1, **{"Input Dims": list(shapes)}, **args)


STEP = [
    mark(3, 1000, 1000),
    event("aten::mm", 1000, 400),
    gradient(1490, 10),
    gradient(1590, 4, 25),
    event("Optimizer.step#SGD.step", 1700, 200),
]
LATER = [mark(4, 2000, 500), gradient(2090, 7)]
TWO_PASSES = [
    mark(3, 1000, 1000),
    *(forward(at) for at in (1100, 1300)),
    *(gradient(at, n) for at, n in ((1200, 10), (1250, 7), (1400, 10), (1450, 7))),
]
ENGINE = "autograd::engine::evaluate_function: "
RECOMPUTED = event(f"{ENGINE}CheckpointFunctionBackward", 1290, 50)
HALF = event(READY, 1600, 10, **{"Input Dims": [[4]], "Input type": ["c10::Half"]})
FIRST = [mark(0, 0, 2000), gradient(1000, 10), mark(1, 2000, 2000), gradient(3000, 10)]
UNMARKED = [event("PyTorch Profiler (0)", 0, 9000, "Trace"), forward(5000), gradient(7000, 10)]


def sleeping(first_ms):
    """A step of 42 ms that computes 1 ms from here on."""
    at = 1000 * first_ms
    later = [gradient(at + 900, 10), event("aten::add_", at + 950, 50)]
    return [mark(3, 0, 42_000), event("aten::mm", at, 500), *later]


def steps(*factors):
    """Steps 2, 3, ... of a CPU, each so many times 1000 us long."""
    found = []
    for number, factor in enumerate(factors, 2):
        start = 10_000 * (number - 2)
        found += [
            mark(number, start, 1000 * factor),
            event("aten::mm", start, 400 * factor),
            gradient(start + 490 * factor, 10, dur=10 * factor),
            event("Optimizer.step#SGD.step", start + 700 * factor, 200 * factor),
        ]
    return found


def in_another_unit(factor):
    return [mark(1, 0, 23_000 * factor), gradient(20_000 * factor, 10, dur=10 * factor)]


def lagging_kernels():
    """Kernels lag behind their launches, even beyond the step's mark."""
    launches = [(1, 1100, 1300, 200), (2, 1400, 1500, 300), (3, 1550, 2600, 400)]
    found = [mark(1, 1000, 1500), gradient(1450, 10), gradient(1580, 20)]
    for number, launch, at, dur in launches:
        found.append(event("cudaLaunchKernel", launch, 5, "cuda_runtime", correlation=number))
        found.append(event("gemm", at, dur, "kernel", correlation=number))
    return found


def gpu_steps(load_ms=0, behind_ms=0):
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


def ddp_step(sum_us=500, name="ncclDevKernel_AllReduce_Sum_f32"):
    """A GPU computes 400 and 200 us, while a sum begins, and 100 us after both."""
    last = max(1600, 1400 + sum_us)
    kernels = [("gemm", 1000, 400), ("gemm", 1400, 200), (name, 1400, sum_us), ("add", last, 100)]
    found = [
        mark(3, 1000, last - 900),
        gradient(1390, 10),
        gradient(1550, 20),
        event("c10d::allreduce_", 1401, 5, **{"Input Dims": [[[30]], [], []]}),
        event("Optimizer.step#SGD.step", 1600, 50),
    ]
    for number, (kernel, at, dur) in enumerate(kernels):
        ours, launch = {"correlation": number}, (1000, 1450, 1402, 1610)[number]
        found.append(event("cudaLaunchKernel", launch, 5, "cuda_runtime", **ours))
        found.append(event(kernel, at, dur, "kernel", **ours))
    return found


def other_sum():
    return [event("c10d::allreduce_", 1100, 5, **{"Input Dims": [[[9000]], [], []]})]


def unmarked(events):
    return [each for each in events if not each["name"].startswith("ProfilerStep")]


def with_copies(events):
    """A copy in each step that overtakes a GPU that lags behind: its stream is free."""
    found = list(events)
    starts = [each["ts"] for each in events if each["name"].startswith("ProfilerStep")]
    for at, start in enumerate(starts):
        found.append(event("cudaMemcpyAsync", start + 10, 5, "cuda_runtime", correlation=90 + at))
        copy = event("Memcpy HtoD", start + 20, 50, "gpu_memcpy", correlation=90 + at)
        found.append(copy | {"tid": 9})
    return found


def with_side_stream(events, kind, ms, in_backward):
    """Each step of `gpu_steps` has a backward of 20 us, and work on another stream from 60 us on.

    in_backward: whether that is launched in the backward, or behind it.
    """
    found = list(events)
    starts = [each["ts"] for each in events if each["name"].startswith("ProfilerStep")]
    for at, start in enumerate(starts):
        ours, launch = {"correlation": 80 + at}, start + (5 if in_backward else 30)
        found.append(event(f"{ENGINE}MmBackward0", start, 20))
        found.append(event("cudaLaunchKernel", launch, 2, "cuda_runtime", **ours))
        found.append(event("aside", start + 60, 1000 * ms, kind, **ours) | {"tid": 20})
    return found


def of_torch_1_8(events):
    """The same events with the names of kinds that torch 1.8 writes."""
    return [each | {"cat": OLD.get(each["cat"], each["cat"])} for each in events]


def without_correlations(events):
    return [each | {"args": {}} if each["cat"] == "kernel" else each for each in events]


def optimizer(ts, *shapes):
    """SGD with momentum: one multiplication and two additions for each parameter."""
    found = [event("Optimizer.step#SGD.step", ts, 90, "user_annotation")]
    for at, shape in enumerate(shapes):
        found.append(operator("aten::mul_", ts + 3 * at, shape, []))
        found += [operator("aten::add_", ts + 3 * at + add, shape, shape) for add in (1, 2)]
    return found


def fused(ts, *shapes):
    """The fused AdamW: a list of all parameters, and a list of steps without a shape."""
    return [
        event("Optimizer.step#AdamW.step", ts, 90, "user_annotation"),
        operator("aten::_foreach_add_", ts, [[] for _ in shapes], []),
        operator("aten::_fused_adamw_", ts + 2, list(shapes), list(shapes)),
    ]


def segment(ts, number, batch, *gradients):
    """A reentrant segment: its forward, and the backward in which its leaves accumulate."""
    ahead = {"Sequence number": number, "Fwd thread id": 0}
    backward = {"Sequence number": number, "Fwd thread id": 1}
    name = "CheckpointFunction"
    return [
        operator(name, 10 + number, [], batch, **ahead),
        event(f"{name}Backward", ts, 50, **backward),
        *(gradient(ts + 2 + 2 * at, *shape, dur=1) for at, shape in enumerate(gradients)),
    ]


def leaves(*shapes):
    """Gradients of these shapes, one after the other, in step 3."""
    grads = (gradient(100 + 10 * at, *shape, dur=1) for at, shape in enumerate(shapes))
    return [mark(3, 0, 2000), *grads]


def segments(*groups):
    return [mark(3, 0, 2000), *(each for group in groups for each in group)]


TWO_SEGMENTS = [
    *segment(100, 1, BATCH, BIAS, WEIGHT, BATCH),
    *segment(200, 2, BATCH, BIAS, WEIGHT, BATCH),
]
PAIRS = (BIAS, WEIGHT, BIAS, WEIGHT)
UPDATED = (WEIGHT, BIAS, WEIGHT, BIAS)
DECAY = [operator("aten::add", 380 + at, WEIGHT, WEIGHT) for at in range(2)]

TRACES = {
    "a step on a CPU": (STEP, None),
    "waiting before forward": (sleeping(40), None),
    "waiting after the optimiser": (sleeping(0), None),
    "four steps, the second of them": (steps(9.0, 1.0, 1.2, 0.8), 3),
    "float16": ([*STEP, HALF], None),
    "nanoseconds": (in_another_unit(1e-3), None),
    "seconds": (in_another_unit(1e3), None),
    "the first step of a run": (FIRST, 0),
    "the second step of a run": (FIRST, 1),
    "no marks": (UNMARKED, None),
    "a scalar": ([mark(1, 0, 100), gradient(10)], None),
    "the last of two steps": (STEP + LATER, None),
    "the first of two steps": (STEP + LATER, 3),
    "a step that is not there": (STEP + LATER, 9),
    "kernels that lag behind": (lagging_kernels(), None),
    "kernels without correlations": (without_correlations(gpu_steps()), None),
    "the optimiser of the step before on the GPU": (
        [*STEP, event("Optimizer.step#SGD.step", 1450, 50, "gpu_user_annotation")],
        None,
    ),
    **{f"a GPU that waits for data, step {n}": (gpu_steps(load_ms=40), n) for n in (2, 3, 4)},
    **{f"a busy GPU, step {n}": (gpu_steps(), n) for n in (2, 3, 4)},
    **{f"a GPU 30 ms behind, step {n}": (gpu_steps(behind_ms=30), n) for n in (2, 3, 4)},
    **{f"copies overtake, step {n}": (with_copies(gpu_steps(0, 30)), n) for n in (2, 3, 4)},
    "torch 1.8": (of_torch_1_8(gpu_steps(load_ms=40)), 3),
    "two backward passes": (TWO_PASSES, None),
    "backward that recomputes": ([*TWO_PASSES, RECOMPUTED], None),
    "passes of other sizes": ([*TWO_PASSES, forward(1460), gradient(1470, 3)], None),
    "an input's gradient": (leaves(BIAS, WEIGHT, BATCH) + optimizer(300, WEIGHT, BIAS), None),
    "an input's gradient, fused": (leaves(BIAS, WEIGHT, BATCH) + fused(300, WEIGHT, BIAS), None),
    "parameters only": (leaves(*PAIRS) + optimizer(300, *UPDATED), None),
    "decay of some": (leaves(*PAIRS) + optimizer(300, *UPDATED) + DECAY, None),
    "segments": (segments(TWO_SEGMENTS), None),
    "segments and an optimiser": (segments(TWO_SEGMENTS, optimizer(300, *UPDATED)), None),
    "a segment's input like a weight": (
        segments(segment(100, 1, WEIGHT, WEIGHT, BIAS, WEIGHT), optimizer(300, WEIGHT, BIAS)),
        None,
    ),
    "a segment without its input": (
        segments(segment(100, 1, WEIGHT, BIAS, WEIGHT), optimizer(300, WEIGHT, BIAS)),
        None,
    ),
    "an input like a weight": (leaves(BIAS, WEIGHT, WEIGHT) + optimizer(300, WEIGHT, BIAS), None),
    "an optimiser without tensors": (leaves(BIAS, WEIGHT, [9], BATCH) + optimizer(300), None),
    "an optimiser of others": (leaves(BIAS, WEIGHT, [9], BATCH) + optimizer(300, [7, 7]), None),
    "an optimiser of a few": (leaves(BIAS, WEIGHT, [9], BATCH) + optimizer(300, BIAS), None),
    "no backward": ([mark(1, 0, 100), event("aten::mm", 1, 5)], None),
    "sparse gradients": ([*STEP, event("aten::embedding_sparse_backward", 1480, 5)], None),
    "a filtered backward": ([mark(1, 0, 100), event(ENGINE + READY, 10, 5)], None),
    "no backward in the last step": ([*STEP, mark(4, 5000, 100)], None),
    "steps that overlap": ([*STEP, mark(4, 1900, 900)], None),
    "a gradient after the optimiser": ([*STEP, gradient(1950, 5)], None),
    "no Input Dims": ([mark(1, 0, 100), event(READY, 10, 5)], None),
    "empty Input Dims": ([mark(1, 0, 100), event(READY, 10, 5, **{"Input Dims": []})], None),
    "another unit of a gradient": ([mark(1, 1000, 1000), gradient(1.5, 10)], None),
    "another unit of one gradient": ([*STEP, gradient(1.55, 10)], None),
    "an exchange": ([*STEP, event("ncclDevKernel_AllReduce", 1600, 9, "kernel")], None),
    "a DDP step": (ddp_step(), None),
    "a DDP step with another sum": ([*ddp_step(), *other_sum()], None),
    "an exchange of experts": (ddp_step(name="ncclDevKernel_SendRecv"), None),
    "no marks, three optimiser's steps": (unmarked(steps(9.0, 1.0, 1.2)), None),
    "a time that is a word": ([mark(1, 0, 100), event(READY, "now", 1)], None),
    "no events": ([], None),
}
