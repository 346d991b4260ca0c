"""Gradients of inputs in a trace are told apart from those of parameters."""

import pytest

from refgf.plan import profile
from refgf.plan.inputs import read_file

READY = "torch::autograd::AccumulateGrad"
WEIGHT, BIAS, BATCH = [64, 64], [64], [32, 8, 64]


def event(name, ts, dur, cat="cpu_op", **args):
    return {"ph": "X", "name": name, "ts": ts, "dur": dur, "cat": cat, "args": args}


def gradient(ts, shape):
    return event(READY, ts, 1, **{"Input Dims": [shape]})


def operator(name, ts, *shapes, **args):
    return event(name, ts, 1, **{"Input Dims": list(shapes)}, **args)


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
    forward = {"Sequence number": number, "Fwd thread id": 0}
    backward = {"Sequence number": number, "Fwd thread id": 1}
    name = "CheckpointFunction"
    return [
        operator(name, 10 + number, [], batch, **forward),
        event(f"{name}Backward", ts, 50, **backward),
        *(gradient(ts + 2 + 2 * at, shape) for at, shape in enumerate(gradients)),
    ]


def read(*groups):
    mark = event("ProfilerStep#3", 0, 2000, "user_annotation")
    events = [mark, *(each for group in groups for each in group)]
    step = profile.from_trace({"traceEvents": events}, "trace.json")
    return [elements for _, elements in step.ready], " ".join(step.notes)


@pytest.mark.parametrize("updates", [optimizer, fused])
def test_an_input_with_a_gradient_is_no_parameter(updates):
    """AccumulateGrad of the input: no tensor of this shape is updated."""
    grads = [gradient(100, BIAS), gradient(110, WEIGHT), gradient(120, BATCH)]
    elements, notes = read(grads, updates(300, WEIGHT, BIAS))
    assert elements == [64, 4096]
    assert "1 of 3 AccumulateGrad are left out, 16,384 elements" in notes
    assert "WARNING" not in notes


def test_every_parameter_stays():
    grads = [gradient(100 + at, shape) for at, shape in enumerate([BIAS, WEIGHT, BIAS, WEIGHT])]
    elements, notes = read(grads, optimizer(300, WEIGHT, BIAS, WEIGHT, BIAS))
    assert len(elements) == 4 and "left out" not in notes and "parameters()" not in notes


def test_weight_decay_of_some_parameters_drops_no_other():
    """An operator that runs for a subset is not the one for all."""
    grads = [gradient(100 + at, shape) for at, shape in enumerate([BIAS, WEIGHT, BIAS, WEIGHT])]
    decay = [operator("aten::add", 380 + at, WEIGHT, WEIGHT) for at in range(2)]
    elements, _ = read(grads, optimizer(300, WEIGHT, BIAS, WEIGHT, BIAS), decay)
    assert len(elements) == 4


@pytest.mark.parametrize("updates", [(), optimizer(300, WEIGHT, BIAS, WEIGHT, BIAS)])
def test_inputs_of_reentrant_segments_are_no_parameters(updates):
    """With the optimiser or without it: the forward's inputs have their shapes."""
    first = segment(100, 1, BATCH, BIAS, WEIGHT, BATCH)
    second = segment(200, 2, BATCH, BIAS, WEIGHT, BATCH)
    elements, notes = read(first, second, updates)
    assert elements == [64, 4096, 64, 4096]
    assert "2 of 6 AccumulateGrad are left out, 32,768 elements" in notes
    assert ("len(list(model.parameters())) 4?" in notes) == (not updates)


def test_an_input_of_a_segment_with_a_weight_s_shape_is_the_last_of_them():
    updates = optimizer(300, WEIGHT, BIAS)
    segments = segment(100, 1, WEIGHT, WEIGHT, BIAS, WEIGHT)
    elements, notes = read(segments, updates)
    assert elements == [4096, 64] and "WARNING" not in notes
    assert read(segment(100, 1, WEIGHT, BIAS, WEIGHT), updates)[0] == [64, 4096]


def test_an_input_with_a_weight_s_shape_is_doubted():
    grads = [gradient(100, BIAS), gradient(110, WEIGHT), gradient(120, WEIGHT)]
    elements, notes = read(grads, optimizer(300, WEIGHT, BIAS))
    assert len(elements) == 3
    assert "WARNING: 2 gradients of shape [64, 64], but the optimiser updates 1." in notes


@pytest.mark.parametrize("updated", [(), ([7, 7],), (BIAS,)])
def test_an_optimiser_that_shows_no_tensors_or_a_few_drops_none(updated):
    """One that is compiled, or fused outside PyTorch."""
    grads = [gradient(100 + at, shape) for at, shape in enumerate([BIAS, WEIGHT, [9], BATCH])]
    elements, notes = read(grads, optimizer(300, *updated))
    assert len(elements) == 4
    assert "Which tensors the optimiser updates is not in the step" in notes


@pytest.mark.long
@pytest.mark.parametrize("reentrant", [False, True])
def test_real_checkpointing(tmp_path, reentrant):
    torch = pytest.importorskip("torch")
    from torch.profiler import ProfilerActivity, schedule
    from torch.profiler import profile as profiler
    from torch.utils.checkpoint import checkpoint

    blocks = torch.nn.ModuleList([torch.nn.Linear(64, 64) for _ in range(3)])
    optimizer = torch.optim.AdamW(blocks.parameters())
    steps = schedule(wait=1, warmup=2, active=1, repeat=1)
    settings = {"activities": [ProfilerActivity.CPU], "record_shapes": True, "schedule": steps}
    with profiler(**settings) as running:
        for _ in range(5):
            optimizer.zero_grad()
            hidden = torch.ones(32, 64, requires_grad=True)
            for block in blocks:
                hidden = checkpoint(block, hidden, use_reentrant=reentrant)
            hidden.sum().backward()
            optimizer.step()
            running.step()
    path = str(tmp_path / "trace.json")
    running.export_chrome_trace(path)
    step = read_file(path, None)
    assert sorted(elements for _, elements in step.ready) == 3 * [64] + 3 * [4096]
    assert any("left out" in note for note in step.notes)
