"""Lesson 15's steps of several ranks: the composition against the timeline of refgf.predict."""

import pytest

from lab.performance import claims, composed_steps
from refgf import launch
from refgf.predict.cost import Link, ring_line
from refgf.predict.timeline import eager, predict

SECONDS = [[0.002, 0.0], [0.003, 0.009], [0.0, 0.0], [0.001, 0.004]]  # forward, backward
ELEMENTS, LINK, UPDATE_S = [100, 9000, 40, 70_000], (2e-5, 3e-8), 0.0007
LAYERS = {"seconds": {"model": SECONDS}, "elements": ELEMENTS, "update_s": UPDATE_S}


def timeline_s(p, crowd):
    """Seconds of the step, written with the other recurrence."""
    forward_s = crowd * sum(forward for forward, _ in SECONDS)
    ready, clock_s = [], forward_s
    for (_, backward), n in zip(reversed(SECONDS), reversed(ELEMENTS)):
        clock_s += crowd * backward
        ready.append((clock_s, 4 * n))
    found = predict(ready, eager(ready), ring_line(p, Link(*LINK)), False, clock_s)
    return found.step_s + crowd * UPDATE_S


@pytest.mark.parametrize(
    "p, cores, crowd", [(2, 8, 1), (2, 2, 1), (4, 2, 2), (8, 2, 4), (3, 2, 1.5)]
)
def test_rings_after_backward_are_the_timelines(monkeypatch, p, cores, crowd):
    job = launch.Job("Hydra", p, 0, p, 0, p, cores)
    monkeypatch.setattr(launch, "job", job)
    layers = LAYERS | {"processors": cores}
    found = composed_steps.predicted(p, layers, "model", LINK)
    assert found["one after another"] == pytest.approx(timeline_s(p, crowd), rel=1e-12)


def test_ranks_on_other_machines_take_no_cores(monkeypatch):
    layers, times = LAYERS | {"processors": 2}, []
    for on_machine in (8, 2):
        monkeypatch.setattr(launch, "job", launch.Job("Slurm", 8, 0, 2, 0, on_machine, 2))
        found = composed_steps.predicted(8, layers, "model", LINK)
        times.append(found["one after another"] - found["rings"])
    assert times[0] == pytest.approx(4 * times[1])


def test_the_screen_shows_the_largest_composed_step():
    step = {"batch": 20, "measured": {"fc6": [0.4, 0.6]}, "rest_s": 9.0}
    step |= {"roofline": {"fc6": [1.0, 1.0]}, "perceptrons": {"fc6": [0.5, 0.6]}}
    kernel = {"measured_s": 1.0, "roofline": 1.2, "perceptrons": 1.1}
    result = {"kernels": [kernel], "steps": [step]}
    old = [row.what for row in claims.rows(result)]
    assert old[-2:] == ["all layers at 20 images, roofline", "all layers at 20 images, perceptrons"]
    assert claims.rows(result)[-1].cells()[1:] == ["1 s", "1.1 s", "10%"]  # without the rest
    timing = {"median_s": 0.5, "low_s": 0.4, "high_s": 0.6}
    result["composed"] = [
        {
            "ranks": p,
            "measured_s": {"one after another": timing},
            "predicted_s": {"perceptrons": {"one after another": 0.45}},
        }
        for p in (2, 8)
    ]
    rows = claims.rows(result)
    assert len(rows) <= 5
    assert rows[-1].cells() == ["step of 8 ranks, perceptrons and rings", "500 ms", "450 ms", "10%"]


@pytest.mark.parametrize("rest_s, short", [(0.0, 0.0), (40.0, 0.5), (10.0, 0.2)])
def test_measured_layers_predict_all_but_what_is_no_layer(rest_s, short):
    """Four ranks on two cores: layers twice as long, rings of 5 s, and a rest that no model has."""
    layers = {"measured": [[3.0, 4.0], [3.0, 5.0]], "roofline": [[3.0, 9.0], [2.0, 4.0]]}
    layers |= {"perceptrons": [[2.0, 4.0], [3.0, 4.0]]}
    step = {m: dict(zip(("conv1", "fc6"), times, strict=True)) for m, times in layers.items()}
    sums_s = {m: 2.0 * sum(map(sum, times)) + 10.0 for m, times in layers.items()}
    composed = {
        "measured_s": {"one after another": {"median_s": sums_s["measured"] + rest_s}},
        "predicted_s": {m: {"one after another": s} for m, s in sums_s.items()},
    }
    steps = [{"batch": 5}, {"batch": 10} | step]
    found = claims.shortfall_with_measured_layers({"steps": steps, "composed": [composed]})
    assert found == pytest.approx(short)


@pytest.mark.parametrize("roofline_s, wanted", [(12.0, [0.2]), (8.0, [-0.2])])
def test_an_error_of_all_layers_keeps_its_sign(roofline_s, wanted):
    step = {"measured": {"fc6": [4.0, 6.0]}, "roofline": {"fc6": [2.0, roofline_s - 2.0]}}
    assert claims.layer_errors({"steps": [step]}, "roofline") == pytest.approx(wanted)
