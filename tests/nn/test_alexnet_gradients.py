import numpy as np
import pytest
from differences import LIMIT, STEP, central_difference
from networks import NORMALIZATIONS, batch, small

SPLITS = [("batch", (None, 1)), ("batch", (2, 2)), ("local", (2, 1)), ("none", (None, 2))]  # images_per_block, threads


@pytest.mark.parametrize("normalization,split", SPLITS)
def test_gradients_against_central_differences(normalization, split):
    """24 entries of every tensor, and for each tensor the slope along one random direction, which meets all entries."""
    network, parameters, gradients = small(normalization, images_per_block=split[0], threads=split[1])
    rng = np.random.default_rng(5)
    for spec, parameter in zip(network.tensors, parameters):
        if not spec.decay:
            parameter += 0.1 * rng.standard_normal(spec.shape)
    x, labels = batch(network, 5)
    function = lambda: network.loss(x, labels, 8)  # noqa: E731
    function()
    network.backward(lambda i: None)
    norms = {spec.name: np.linalg.norm(gradient) for spec, gradient in zip(network.tensors, gradients)}
    for spec, parameter, gradient in zip(network.tensors, parameters, gradients):
        layer = spec.name.split(".")[0]
        weight = norms.get(f"{layer}.weight", norms.get(f"{layer}.gamma"))
        limit = LIMIT * max(norms[spec.name], weight)
        places = rng.choice(spec.size, min(24, spec.size), replace=False)
        error = np.linalg.norm(central_difference(function, parameter, places) - gradient.reshape(-1)[places])
        assert error <= limit, f"{spec.name}: |difference| {error:.1e}, wanted at most {limit:.1e}"
        direction = rng.standard_normal(spec.shape)
        direction /= np.linalg.norm(direction)
        error = abs(slope(function, parameter, direction) - np.sum(gradient * direction))
        assert error <= limit, f"{spec.name}: along a line {error:.1e}, wanted at most {limit:.1e}"


def slope(function, parameter, direction):
    before = parameter.copy()
    parameter += STEP * direction
    above = function()
    parameter[...] = before - STEP * direction
    below = function()
    parameter[...] = before
    return (above - below) / (2 * STEP)


def test_the_bias_before_batch_normalisation_has_gradient_zero():
    network, _, gradients = small("batch")
    network.loss(*batch(network, 5), 5)
    network.backward(lambda i: None)
    gradients = {spec.name: gradient for spec, gradient in zip(network.tensors, gradients)}
    for n in range(1, 6):
        assert np.linalg.norm(gradients[f"conv{n}.bias"]) <= LIMIT * np.linalg.norm(gradients[f"conv{n}.weight"])


@pytest.mark.parametrize("normalization", ["local", "none"])
def test_uneven_shards_add_up_to_the_batch(normalization):
    """Sums in another order, of 5 * 15 * 15 terms at most: an error below 1125 * 1.1e-16 = 1.3e-13 of the sum of their
    sizes, which is below 1000 times the sum itself here."""
    network, _, gradients = small(normalization)
    x, labels = batch(network, 5)
    whole = network.loss(x, labels, 5)
    network.backward(lambda i: None)
    expected = [gradient.copy() for gradient in gradients]
    loss, sums = 0, [0] * len(gradients)
    for shard in (slice(0, 3), slice(3, 3), slice(3, 5)):
        loss += network.loss(x[shard], labels[shard], 5)
        network.backward(lambda i: None)
        sums = [total + gradient for total, gradient in zip(sums, gradients)]
    assert abs(loss - whole) <= 1e-13 * whole
    for spec, total, want in zip(network.tensors, sums, expected):
        assert np.linalg.norm(total - want) <= 2e-10 * np.linalg.norm(want), spec.name


# ---- announcements and places ----


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_gradients_are_final_when_announced_and_in_order(normalization, n):
    network, _, gradients = small(normalization)
    announced = []
    network.loss(*batch(network, n), 4)
    network.backward(lambda i: announced.append((i, gradients[i].copy())))
    assert [i for i, _ in announced] == list(range(len(gradients)))
    for i, then in announced:
        assert np.isfinite(then).all()
        np.testing.assert_array_equal(then, gradients[i])
        assert n or not then.any()  # no images: zero


def test_later_gradients_are_not_there_yet():
    """Announced one by one, not all at the end: what is not announced is still nan."""
    network, _, gradients = small()
    network.loss(*batch(network, 3), 3)

    def on_ready(i):
        later = [gradient for spec, gradient in zip(network.tensors[i + 1 :], gradients[i + 1 :])]
        assert all(np.isnan(gradient).all() for gradient in later)

    network.backward(on_ready)


def test_gradients_are_written_in_place():
    network, parameters, _ = small()
    pool = np.full(sum(spec.size for spec in network.tensors), np.nan)
    ends = np.cumsum([spec.size for spec in network.tensors])
    views = [pool[end - spec.size : end].reshape(spec.shape) for spec, end in zip(network.tensors, ends)]
    network.bind(parameters, views)
    network.loss(*batch(network, 3), 3)
    network.backward(lambda i: None)
    bound_now = [gradient for layer in reversed(network.layers) for gradient in layer.gradients]
    assert all(np.shares_memory(gradient, pool) for gradient in bound_now)
    assert np.isfinite(pool).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_repeated_gives_the_same_bits_after_other_batches(threads):
    network, _, gradients = small(dtype=np.float32, threads=threads, dropout=0.5)

    def step(n):
        network.dropout_rng = np.random.default_rng(1)
        loss = network.loss(*batch(network, n), 9)
        network.backward(lambda i: None)
        return loss, [gradient.tobytes() for gradient in gradients]

    first = step(5)
    step(9), step(0), step(2)
    network.predict(batch(network, 4)[0])
    assert step(5) == first


def test_observe():
    network, *_ = small()
    names, seen = [layer.name for layer in network.layers], []
    network.loss(*batch(network, 2), 2, observe=lambda *event: seen.append(event))
    network.backward(lambda i: None, observe=lambda *event: seen.append(event))
    assert seen == [(name, "forward") for name in names] + [(name, "backward") for name in reversed(names)]


# ---- seeded wrong variants ----


def test_announcing_before_writing_goes_red():
    network, _, gradients = small()
    network.loss(*batch(network, 3), 3)
    layer = network.layers[0]
    right = layer.backward

    def wrong(dy, ready):
        ready(0), ready(1)
        return right(dy, lambda k: None)

    layer.backward = wrong
    announced = []
    network.backward(lambda i: announced.append((i, gradients[i].copy())))
    with pytest.raises(AssertionError):
        for i, then in announced:
            np.testing.assert_array_equal(then, gradients[i])
