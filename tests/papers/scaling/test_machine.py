"""Machine files: what is saved comes back, and nonsense is refused with its reason."""

import json

import pytest

from refgf.papers.scaling.machine import Machine, load, save, to_json
from refgf.papers.scaling.published import MACHINES, SIMULATION, TEN_GIGABIT
from refgf.papers.scaling.workloads import alexnet
from refgf.predict.cost import Line, Link, ring_line

LAYERS = tuple((layer.name, 0.01, 0.02) for layer in alexnet().layers)
WHOLE = Machine(
    "laptop",
    "this test",
    "measured",
    links={"inside": Link(2e-6, 1e-10, 5e-11), "between": Link(5e-5, 8e-9)},
    lines={8: Line(5e-4, 8e-10)},
    errors={"between": (1e-6, 1e-11)},
    workload="AlexNet",
    batch=16,
    layers=LAYERS,
)


def test_round_trip(tmp_path):
    save(WHOLE, tmp_path / "machine.json")
    assert load(tmp_path / "machine.json") == WHOLE


@pytest.mark.parametrize("machine", MACHINES, ids=[machine.name for machine in MACHINES])
def test_published_machines(machine, tmp_path):
    save(machine, tmp_path / "machine.json")
    assert load(tmp_path / "machine.json") == machine
    assert machine.source and machine.label in ("verified", "computed")


def test_the_simulation_s_bandwidth():
    """1.2 / (9 * 2**30 / 8) s a byte: 10 Gbit/s Ethernet at three quarters of its rate."""
    assert SIMULATION.links["between"].beta_s_per_byte == pytest.approx(9.934e-10, rel=1e-3)
    assert SIMULATION.allreduce_s(16) == ring_line(16, SIMULATION.links["between"])
    assert TEN_GIGABIT.allreduce_s(16)(10**6) == pytest.approx(9.081e-4 + 7.396e-4)


def test_layers_give_gradients():
    gradients = WHOLE.gradients()
    count = len(LAYERS)
    assert len(gradients) == 26
    assert gradients[-1][0] == pytest.approx(0.03 * count)
    # half of fc8 is its weight gradient
    assert gradients[1][0] == pytest.approx(0.01 * count + 0.02 / 2, rel=1e-3)


def test_unknown_layers_count_with_the_layer_before_them():
    extra = [(name + suffix, *times) for name, *times in LAYERS for suffix in ("", ".relu")]
    machine = Machine("m", "s", "measured", workload="AlexNet", batch=16, layers=tuple(extra))
    assert machine.gradients()[-1][0] == pytest.approx(0.06 * len(LAYERS))
    *others, (name, forward_s, backward_s) = LAYERS
    apart = Machine(
        "m", "s", "measured", workload="AlexNet", batch=16, layers=(*LAYERS, ("softmax", 0.0, 0.05))
    )
    together = (*others, (name, forward_s, backward_s + 0.05))
    assert (
        apart.gradients()
        == Machine("m", "s", "measured", workload="AlexNet", batch=16, layers=together).gradients()
    )


def wrong(change):
    data = json.loads(json.dumps(to_json(WHOLE)))
    change(data)
    return data


NONSENSE = {
    "alpha_s = -1e-06": lambda d: d["links"]["between"].update(alpha_s=-1e-6),
    "beta_s_per_byte = 0": lambda d: d["links"]["between"].update(beta_s_per_byte=0),
    "alpha_s = 50": lambda d: d["links"]["between"].update(alpha_s=50),  # microseconds
    "beta_s_per_byte = 1.25": lambda d: d["links"]["between"].update(beta_s_per_byte=1.25),  # GB/s
    "alpha_s = nan": lambda d: d["links"]["between"].update(alpha_s=float("nan")),
    "alpha_s = '5e-5'": lambda d: d["links"]["between"].update(alpha_s="5e-5"),
    "alpha_s = True": lambda d: d["links"]["between"].update(alpha_s=True),
    "b_s_per_byte = 0.0": lambda d: d["allreduce"]["8"].update(b_s_per_byte=0.0),
    "alpha_us": lambda d: d["links"].update(between={"alpha_us": 50, "beta_s_per_byte": 8e-9}),
    "units": lambda d: d.update(units={"time": "ms", "size": "bytes"}),
    r"no \['units'\]": lambda d: d.pop("units"),
    r"no times of the layers \['conv3'": lambda d: d.update(
        layers=[x for x in d["layers"] if x["name"] != "conv3"]
    ),
    "layers of type dict": lambda d: d.update(layers={}) or d.update(layers={"conv1": 1}),
    "links of type list": lambda d: d.update(links=[]),
    "workload 'LeNet'": lambda d: d.update(workload="LeNet"),
    "batch None": lambda d: d.update(batch=None),
    "backward_s = -0.02": lambda d: d["layers"][0].update(backward_s=-0.02),
    "sum to 0": lambda d: [layer.update(backward_s=0) for layer in d["layers"]],
    r"allreduce\['1'\]": lambda d: d["allreduce"].update({"1": {"a_s": 1, "b_s_per_byte": 1e-9}}),
    r"allreduce\['eight'\]": lambda d: d["allreduce"].update(eight=d["allreduce"]["8"]),
    "error of one number": lambda d: d["links"]["inside"].update(alpha_error_s=1e-7),
    "label 'guessed'": lambda d: d.update(label="guessed"),
    "no machine file": lambda d: d.pop("refgf_machine"),
    r"unknown keys \['latency'\]": lambda d: d.update(latency=5e-5),
}


@pytest.mark.parametrize("reason", NONSENSE)
def test_nonsense_is_refused(reason, tmp_path):
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(wrong(NONSENSE[reason])))
    with pytest.raises(ValueError, match=reason) as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"{", b"[1, 2]", b"\xff\xfe\x00", b"null"])
def test_other_files_are_refused(text, tmp_path):
    path = tmp_path / "machine.json"
    path.write_bytes(text)
    with pytest.raises(ValueError, match="machine.json: got no"):
        load(path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/", "/none", "a\0b"])
def test_what_is_no_regular_file_is_refused(path):
    with pytest.raises(ValueError, match="got no JSON .*wanted a file that machine.save wrote"):
        load(path)


@pytest.mark.parametrize("text", ["[" * 99_999, "9" * 5000])
def test_json_that_python_refuses_is_refused(text, tmp_path):
    (tmp_path / "machine.json").write_text(text)
    with pytest.raises(ValueError, match="got no JSON .*wanted a file that machine.save wrote"):
        load(tmp_path / "machine.json")


def test_the_unchanged_file_is_accepted(tmp_path):
    """What `wrong` starts from is right: the refusals above are due to the changes."""
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(wrong(lambda data: None)))
    assert load(path) == WHOLE


def test_nonsense_cannot_be_made_in_memory_either():
    with pytest.raises(ValueError, match="b_s_per_byte = -1"):
        Machine("m", "s", "measured", lines={4: Line(0.0, -1)})


def test_sizes_it_does_not_know():
    with pytest.raises(ValueError, match=r"got 32 ranks; wanted one of \[2, 4, 8, 16\]"):
        TEN_GIGABIT.allreduce_s(32)
    with pytest.raises(ValueError, match="no layer times"):
        TEN_GIGABIT.gradients()
