"""Lesson 16's idea, and its step on ranks, against the definitions of ZeRO-1."""

import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest

from docs.tools import gains
from kit import virtual
from lab.sharding import claims, oracle, predicted, training
from refgf.cluster import like as clusters
from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.nn.alexnet import AlexNet
from refgf.oracle.definitions import zero_run, zero_slice
from refgf.papers.resnet50.resnet50 import ResNet50
from refgf.training.sgd import MomentumSGD
from refgf.training.step import replica, train_step

LESSON = gains.module_of(gains.ROOT / "lessons" / "16_sharding.py")
RANKS, SIZES = (1, 2, 3, 5, 7, 8), (0, 1, 3, 29, 1000)


@pytest.mark.parametrize("p, n", list(itertools.product(RANKS, SIZES)))
def test_weights_and_velocities_are_as_defined(p, n):
    random = np.random.default_rng([p, n])
    w, gs = (random.standard_normal(shape).astype(np.float32) for shape in (n, (3, p, n)))
    bounds = [zero_slice(n, p, rank) for rank in range(p)]
    assert [LESSON.own_slice(n, p, rank) for rank in range(p)] == [slice(*b) for b in bounds]
    velocities = [np.zeros(stop - start, np.float32) for start, stop in bounds]
    for gradients, wanted in zip(gs, zero_run(w, [list(step) for step in gs], 0.1, 0.9)):
        w, velocities = LESSON.sharded_step(w, velocities, list(gradients), 0.1)
        assert w.tobytes() == wanted["w"][0].tobytes()
        for v, whole, (start, stop) in zip(velocities, wanted["v"], bounds):
            assert v.tobytes() == whole[start:stop].tobytes()


@pytest.mark.parametrize("network, blocks", [("alexnet", 2), ("resnet50", 16 + 2)])
def test_a_unit_is_a_layer_or_a_block(network, blocks):
    """As many as there are products, each with its normalization; together the whole network."""
    like, shapes = clusters.load(predicted.CLUSTER), virtual.FULL[network]()
    products = [layer for layer in shapes.layers if layer.kind in ("conv", "fc")]
    _, step_s = like.step_s(network)
    for wrapped, count in ((predicted.LAYERS, len(products)), (predicted.LARGER, blocks)):
        units = predicted.units_of(like, network, predicted.UNITS[network][wrapped])
        assert len(units) == count and sum(unit.elements for unit in units) == shapes.parameters
        assert sum(unit.forward_s + unit.backward_s for unit in units) == pytest.approx(step_s)
        if wrapped == predicted.LAYERS:
            more = [unit.elements - layer.parameters for unit, layer in zip(units, products)]
            norms = [layer.parameters for layer in shapes.layers if layer.kind == "norm"]
            assert more == norms + [0] * (len(products) - len(norms))


def test_at_its_peak_a_rank_of_fsdp_has_its_slices_two_units_and_gradients_twice():
    """AlexNet's largest are fc6 and fc7: 9216 x 4096 and 4096 x 4096 weights, 4096 biases each."""
    n, fc6, fc7 = virtual.FULL["alexnet"]().parameters, 9217 * 4096, 4097 * 4096
    for p in (1, 3, 8):
        held = predicted.peak_share("alexnet", predicted.LAYERS, p) * 3 * n
        assert held == pytest.approx(3 * n / p + fc6 + fc7 + 2 * fc6)


def test_the_peak_of_zero3_is_that_of_the_page():
    """Four buffers of the largest layer, counted; of each layer's size: two for each neighbour."""
    found = gains.figure("16_sharding")
    n, layers = found["training"]["elements"], found["training"]["layers"]
    near = max(a + b for a, b in itertools.pairwise(layers))
    kept = 4 * 3 * n / found["ranks"]
    assert claims.at_peak(found) == pytest.approx(kept + 4 * 4 * max(layers), rel=1e-4)
    assert claims.at_own_size(found) == pytest.approx(kept + 4 * 2 * near, rel=1e-4)
    lines = re.findall(r"\(2 \+ s\) n.*", LESSON.__doc__)
    assert [line[9:].strip() for line in lines] == ["", "/p + 4 L", "/p + N + 2 L", "/p + 2 N"]


@pytest.mark.parametrize("network", [AlexNet, ResNet50])
def test_outputs_of_layers_are_as_many_bytes_as_the_formula_says(network):
    model = replica(network(3, image_size=67, width=1 / 8), MomentumSGD, seed=1)
    images, labels = np.ones((5, 67, 67, 3), np.float32), np.zeros(5, int)
    train_step(model, virtual.NoExchange(), images, labels, 5, 0.1)
    found = training.outputs(model.network, 5)
    assert 1 <= found["counted"] / found["formula"] < 1.02


def test_the_answer_of_a_busy_machine_compares_no_times():
    result = gains.figure("16_sharding")
    assert "times a ring's" in claims.answer(result)
    said = claims.answer(result | {"load": {"busy": True}})
    assert "times" not in said and said.startswith("25 % less; steps are not compared")


def checked(comm, shard):
    """The lesson's oracle on one rank, for every size."""
    run = SimpleNamespace(
        comm=TracedComm(comm),
        rank=comm.Get_rank(),
        size=comm.Get_size(),
        xp=np,
        array=np.asarray,
    )
    for n in SIZES:
        oracle.one(run, n, shard, LESSON.zero_step)


@pytest.mark.parametrize("p", RANKS)
def test_a_step_on_ranks_is_as_defined(p):
    threads.run(p, checked, LESSON.shard)


def test_flags_of_decay_that_are_not_cut_are_noticed():
    def uncut(comm, model):
        flags = [spec.decay for spec in model.parameters.specs for _ in range(spec.shape[0])]

        def of_slice(own):
            specs = [SimpleNamespace(shape=(1,), decay=d) for d in flags[: own.stop - own.start]]
            return oracle.MomentumSGD(specs, model.parameters.flat[own], 0.9, oracle.DECAY)

        return LESSON.ZeRO1(comm, model.parameters.flat, of_slice)

    with pytest.raises(AssertionError, match="weights"):
        threads.run(3, checked, uncut)
