"""`torch_ddp` without processes: judging one bucket, and what a hook may return."""

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is an extra")

from refgf.oracle import buckets, torch_ddp  # noqa: E402  it needs torch

XS = [
    np.array(row, np.float32)
    for row in ([1, np.inf, np.nan, 3, -np.inf], [2, 1, 1, np.inf, 5], [3, 2, 2, -np.inf, 4])
]


def judged(after, xs=XS, last=False, wire=None):
    with np.errstate(invalid="ignore"):
        return torch_ddp.Mean(wire).judge(torch_ddp.Bucket(0, 0, last, [], xs, after))


def mean(xs):
    with np.errstate(invalid="ignore"):
        return sum(xs) / np.float32(len(xs))


@pytest.mark.parametrize("wire", [None, "float16"])
def test_a_right_mean_of_infinities_and_nan_is_right(wire):
    assert judged([mean(XS)] * 3, wire=wire).failure is None and judged([mean(XS)] * 3).note is None


@pytest.mark.parametrize(
    ("element", "value"), [(0, 7.0), (1, 1.0), (2, 1.0), (3, np.inf), (4, np.inf)]
)
def test_a_wrong_mean_next_to_infinities_is_caught(element, value):
    wrong = mean(XS)
    wrong[element] = value
    assert f"element {element}: got" in judged([wrong] * 3).failure


def test_ranks_that_differ_next_to_a_nan_are_located():
    other = mean(XS)
    other[4] = 1
    assert (
        "rank 1 holds other bits than rank 0 at element 4"
        in judged([mean(XS), other, mean(XS)]).failure
    )


@pytest.mark.parametrize("divided", [False, True])
def test_a_forgotten_last_bucket_is_named(divided):
    xs = [np.arange(5, dtype=np.float32) + 7 * r for r in range(3)]
    after = [x / np.float32(3) if divided else x for x in xs]
    assert judged(after, xs, last=True).looks[0] == "last bucket forgotten"
    assert "last bucket forgotten" not in judged(after, xs).looks


def done(value):
    future = torch.futures.Future()
    future.set_result(value)
    return future


@pytest.mark.parametrize(
    ("returns", "got"),
    [
        (lambda x: x, "returned no Future"),
        (lambda x: done(x[:-1]), "returned a tensor of 3"),
        (lambda x: done(None), "returned no Future"),
        (lambda x: done(x.double()), "returned no Future"),
    ],
)
def test_a_hook_that_returns_something_else_is_named(monkeypatch, returns, got):
    monkeypatch.setattr(
        torch_ddp, "gather_arrays", lambda tensor: [tensor.detach().numpy().copy()] * 2
    )
    monkeypatch.setattr(torch_ddp, "of_all_ranks", lambda number: [number] * 2)
    x = torch.ones(4)
    bucket = SimpleNamespace(
        buffer=lambda: x, parameters=lambda: [x], is_last=lambda: True, index=lambda: 5
    )

    def mine(state, bucket):
        return returns(bucket.buffer())

    with pytest.raises(ValueError, match="DDP hook checked mine, step 0, bucket 5, rank 0: " + got):
        torch_ddp.checked(mine)(None, bucket)


@pytest.mark.parametrize("wire", [None, "float16", "bfloat16"])
@pytest.mark.parametrize("seed", range(6))
def test_the_fast_judgement_is_the_definitions(wire, seed):
    """Near each bound, with zeros, denormal, huge and infinite numbers; divided, and lost ranks."""
    drawn = np.random.default_rng(seed)
    exponents = drawn.integers(-44, 37, 500) if seed % 2 else np.zeros(500)
    xs = [(drawn.normal(size=500) * 10.0**exponents).astype(np.float32) for _ in range(3 + seed)]
    for x in xs:
        x[drawn.integers(0, 500, 9)] = drawn.choice([0, np.inf, -np.inf, np.nan, 3e38], 9)
    with np.errstate(all="ignore"):
        for divisor in (1, 3, len(xs)):
            scale = len(xs) / divisor if divisor != 1 else 1.0
            scaled = [np.float32(scale) * x if scale != 1 else x for x in xs]
            wanted, bound = buckets.exact_sum(xs) / divisor, buckets.mean_bound(scaled, wire)
            for times in (0.3, 0.6, 0.99, 1.01):
                value = wanted + times * bound * drawn.choice([-1, 1], 500)
                found = buckets.first_off(value, xs, divisor, scale, wire)
                assert found == buckets.first_outside(value, wanted, bound)
