"""Networks: state, gradients against central differences, announcements, and bad input."""

import numpy as np
import pytest

from refgf.nn.alexnet import AlexNet
from tests.support.differences import LIMIT, STEP, central_difference, workspace
from tests.support.networks import NORMALIZATIONS, batch, bound, small, small_resnet50

# images_per_block, threads
SPLITS = [
    ("batch", (None, 1)),
    ("batch", (2, 2)),
    ("local", (2, 1)),
    ("none", (None, 2)),
]

# ---- state ----


def test_initialize_is_the_same_for_every_type_and_rank():
    _, wide, _ = small()
    _, again, _ = small()
    _, narrow, _ = small(space=workspace(dtype=np.float32))
    for a, b, c in zip(wide, again, narrow):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    network = AlexNet(7, 71, width=1 / 64, workspace=workspace())
    parameters, _ = bound(network, seed=4)
    assert any((a != b).any() for a, b in zip(parameters, wide))


def test_initial_weights_have_the_variance_of_he():
    network = AlexNet(50, 67, width=1 / 4)
    parameters, _ = bound(network)
    for spec, parameter in zip(network.tensors, parameters):
        if spec.decay and spec.size > 10000:
            inputs = spec.size // spec.shape[-1]
            spread = 5 * (2 / spec.size) ** 0.5  # five standard deviations of a sample variance
            assert abs(parameter.var() * inputs / 2 - 1) < spread, spec.name


def test_running_statistics_wait_for_accept():
    network, *_ = small()
    assert len(network.running) == 10
    before = [array.copy() for array in network.running]
    network.loss(*batch(network, 3), 3)
    network.backward(lambda i: None)
    assert all((a == b).all() for a, b in zip(network.running, before))
    network.accept()
    assert all((a != b).any() for a, b in zip(network.running, before))
    before = [array.copy() for array in network.running]
    network.loss(*batch(network, 0), 3)
    network.backward(lambda i: None)
    network.accept()
    assert all((a == b).all() for a, b in zip(network.running, before))
    network.running[0][...] = 5  # averaging over ranks works in place
    assert (network.normalizations[0].running_mean == 5).all()


def test_predict_has_no_dropout_and_depends_on_no_other_image():
    network, *_ = small(dropout=0.5)
    x, _ = batch(network, 5)
    logits = network.predict(x)
    assert logits.shape == (5, 7)
    np.testing.assert_allclose(
        network.predict(x[2:3]), logits[2:3], rtol=0, atol=1e-12 * np.abs(logits).max()
    )
    assert network.predict(x[:0]).shape == (0, 7)


def test_dropout_rng_decides_the_masks():
    network, *_ = small("none", dropout=0.5)
    losses = []
    for seed in (1, 1, 2):
        network.dropout_rng = np.random.default_rng(seed)
        losses.append(network.loss(*batch(network, 5), 5))
    assert losses[0] == losses[1] != losses[2]


# ---- bad input ----


def test_bind_says_which_array_is_wrong():
    network, parameters, gradients = small()
    with pytest.raises(ValueError, match="bind: gradients: got 25 arrays; wanted 26; next: "):
        network.bind(parameters, gradients[:-1])
    with pytest.raises(ValueError, match="fc8.bias"):
        network.bind(parameters[::-1], gradients)
    with pytest.raises(ValueError, match="float32.*fc8.bias.*wanted.*float64.*next: "):
        network.bind(parameters, [gradient.astype(np.float32) for gradient in gradients])
    with pytest.raises(ValueError, match="contiguous False; wanted"):
        network.bind(parameters, [np.asfortranarray(gradient) for gradient in gradients])


def test_use_before_bind_and_backward_without_loss():
    network = AlexNet(7, 71, width=1 / 64)
    for call in (lambda: network.initialize(1), lambda: network.predict(batch(network, 1)[0])):
        with pytest.raises(ValueError, match="bind"):
            call()
    network, *_ = small()
    with pytest.raises(ValueError, match="AlexNet.backward: got no loss; wanted .* next: "):
        network.backward(lambda i: None)
    network.loss(*batch(network, 2), 2)
    network.backward(lambda i: None)
    with pytest.raises(ValueError, match="AlexNet.backward: got no loss; wanted .* next: "):
        network.backward(lambda i: None)


def test_images_and_labels():
    network, *_ = small()
    x, labels = batch(network, 3)
    wrong_images = [(x[:, :-1], labels, 3), (x[..., 0], labels, 3)]
    wrong_labels = [
        (x, labels[:2], 3),
        (x, labels + 7, 3),
        (x, labels - 7, 3),
        (x, labels.astype(float), 3),
    ]
    wrong_batch = [(x, labels, 2), (x[:0], labels[:0], 0)]
    for arguments in wrong_images + wrong_labels + wrong_batch:
        with pytest.raises(ValueError, match="AlexNet.*got .* wanted .* next: "):
            network.loss(*arguments)


# ---- gradients ----


@pytest.mark.parametrize("normalization,split", SPLITS)
def test_gradients_against_central_differences(normalization, split):
    """24 entries of every tensor, and its slope along a random direction in all entries."""
    network, parameters, gradients = small(normalization, space=workspace(*split))
    rng = np.random.default_rng(5)
    for spec, parameter in zip(network.tensors, parameters):
        if not spec.decay:
            parameter += 0.1 * rng.standard_normal(spec.shape)
    x, labels = batch(network, 5)
    function = lambda: network.loss(x, labels, 8)  # noqa: E731
    function()
    network.backward(lambda i: None)
    norms = {
        spec.name: np.linalg.norm(gradient) for spec, gradient in zip(network.tensors, gradients)
    }
    for spec, parameter, gradient in zip(network.tensors, parameters, gradients):
        layer = spec.name.split(".")[0]
        weight = norms.get(f"{layer}.weight", norms.get(f"{layer}.gamma"))
        limit = LIMIT * max(norms[spec.name], weight)
        places = rng.choice(spec.size, min(24, spec.size), replace=False)
        error = np.linalg.norm(
            central_difference(function, parameter, places) - gradient.reshape(-1)[places]
        )
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
        assert np.linalg.norm(gradients[f"conv{n}.bias"]) <= LIMIT * np.linalg.norm(
            gradients[f"conv{n}.weight"]
        )


@pytest.mark.parametrize("normalization", ["local", "none"])
def test_uneven_shards_add_up_to_the_batch(normalization):
    """Sums of at most 5 * 15 * 15 terms in another order.

    The error is below 1125 * 1.1e-16 = 1.3e-13 of the sum of the terms' absolute values, which is
    below 1000 times the sum itself here.
    """
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


def announced(kind, n, overwrite):
    """([(number, gradient as announced)], the gradients after backward)."""
    space, seen = workspace(dtype=np.float32), []
    if kind == "ResNet-50":
        network, pool = small_resnet50(space)
        gradients = pool.views
    else:
        network, _, gradients = small(kind, space=space)

    def on_ready(i):
        seen.append((i, gradients[i].copy()))
        if overwrite:
            gradients[i][...] = np.nan

    network.loss(*batch(network, n), 4)
    network.backward(on_ready)
    return seen, gradients


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("kind", [*NORMALIZATIONS, "ResNet-50"])
def test_gradients_are_announced_in_order_final_and_not_read_again(kind, n):
    """An announced gradient belongs to the exchange, which may overwrite it at once."""
    (seen, _), (_, wanted) = (announced(kind, n, overwrite) for overwrite in (True, False))
    assert [i for i, _ in seen] == list(range(len(wanted)))
    for (_, then), after in zip(seen, wanted, strict=True):
        assert np.isfinite(then).all() and np.array_equal(then, after)
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
    views = [
        pool[end - spec.size : end].reshape(spec.shape) for spec, end in zip(network.tensors, ends)
    ]
    network.bind(parameters, views)
    network.loss(*batch(network, 3), 3)
    network.backward(lambda i: None)
    bound_now = [gradient for layer in reversed(network.layers) for gradient in layer.gradients]
    assert all(np.shares_memory(gradient, pool) for gradient in bound_now)
    assert np.isfinite(pool).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_step_repeated_gives_the_same_bits_after_other_batches(threads):
    network, _, gradients = small(dropout=0.5, space=workspace(None, threads, np.float32))

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
    assert seen == [(name, "forward") for name in names] + [
        (name, "backward") for name in reversed(names)
    ]
