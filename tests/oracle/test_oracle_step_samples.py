"""`oracle step` names a sample that is lost or counted twice, where it can tell samples apart."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is an extra")

from refgf.oracle.step.fits import SampleFit, counts, counts_cause, named
from refgf.oracle.step.judging import judge
from refgf.oracle.step.ranks import Ranks
from tests.support.step.subject import subject

LONG = pytest.mark.long
TRAIN = """\
    own, optimizer = WRAP(net, size), sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        part = share(pair, rank, size)
        if rank == size - 1 and size > 1:
            part = tuple(OTHER for t in part)
        loss(own, part).backward()
        optimizer.step()
"""
FSDP = "def fsdp(net, size):\n    sharded(net, size)\n    return net\n"
PLACES = {"ddp": "", "fsdp": FSDP}
LOST = "lost: weight 0; each other one has weight 1 to 1.091; samples computed: 12 on rank 0, 11 on"
SAID = {
    "t[:-1]": f"all tensors: sample 23 of batch(seed) {LOST} rank 1; next: print which samples",
    "torch.cat([t, t[3:4], t[3:4]])": "sample 15 of batch(seed) counted 3 times, on rank 1",
    "torch.cat([t[:-2], t[3:5]])": "samples 22-23 of batch(seed) lost: weight 0; samples 15-16",
}


def text_of(folder, running, other, wrap="ddp", head=""):
    train = TRAIN.replace("WRAP", wrap).replace("OTHER", other)
    (found,) = judge(subject(folder, train, head=head + PLACES[wrap]), running).findings
    assert found.steps == [0, 1, 2], found
    return str(found)


@pytest.mark.parametrize("other", SAID)
def test_a_lost_or_repeated_sample_is_named(other, two, tmp_path):
    assert SAID[other] in text_of(tmp_path, two, other)


@pytest.mark.parametrize("other", [pytest.param(other, marks=LONG) for other in SAID])
def test_also_where_own_gradients_are_not_seen(other, two, tmp_path):
    said = SAID[other].replace("; samples computed: 12 on rank 0, 11 on rank 1", "")
    assert said.replace(", on rank 1", "") in text_of(tmp_path, two, other, "fsdp")


@LONG
@pytest.mark.parametrize("size", [3, 4])
def test_on_more_ranks(size, tmp_path):
    with Ranks(size) as running:
        assert "sample 23 of batch(seed) lost" in text_of(tmp_path, running, "t[:-1]")


CANNOT = {
    "of equal samples": "batch = lambda seed: tuple(t[:12].repeat_interleave(2, 0)"
    " for t in full_batch(seed))\n",
    "of more samples than elements": "def model():\n    return nn.Linear(6, 3)\n",
    "of a loss of pairs": "def loss(net, pair):\n    out = net(pair[0])\n"
    "    return (out @ out.T).square().mean()\n",
    "of a loss that wants more than one sample": "def loss(net, pair):\n"
    "    assert len(pair[0]) > 1\n    return net(pair[0]).square().mean()\n",
}


@pytest.mark.parametrize("what", CANNOT)
def test_nothing_is_made_up(what, two, tmp_path):
    said = "ranks have other samples than batch(seed), or compute another function than `loss`"
    assert said in text_of(tmp_path, two, "t[:-1]", head=CANNOT[what])


def test_samples_without_a_label_are_left_out(two, tmp_path):
    """The first 12 samples have a label each second time."""
    head = "from tests.support.step.cases import batch\n"
    said = text_of(tmp_path, two, "t[:-1]", head=head)
    assert "sample 23 of batch(seed) lost" in said and "6 on rank 0, 11 on rank 1" in said


# -- the fit


def test_weights_are_fitted_within_their_bound():
    drawn = np.random.default_rng(0)
    rows, bound = drawn.normal(size=(20, 90)), np.full(90, 1e-6)
    fit, right = SampleFit(rows, bound), drawn.integers(0, 3, 20) / 20
    off = np.abs(fit.weights(right @ rows + drawn.choice([-1e-6, 1e-6], 90)) - right)
    assert fit.unique and (off <= fit.error).all() and (fit.error < 1e-5).all()
    assert fit.weights(right @ rows + drawn.normal(size=90)) is None
    assert not SampleFit(rows[:, :39], bound[:39]).unique
    assert not SampleFit(np.repeat(rows[:10], 2, axis=0), bound).unique


def test_counts_are_integers_or_nothing():
    assert counts(np.array([1.2, 0.0, 2.4, 1.2])).tolist() == [1, 0, 2, 1]
    assert counts(np.array([1.0, 1.4])) is None and counts(np.array([1.0, -1.0])) is None
    assert counts(np.zeros(2)).tolist() == [0, 0], "a rank without samples"
    assert counts_cause(np.array([1.1, 1.1]), [0, 1], []) is None
    assert counts_cause(np.array([1.0, 1.4]), [0, 1], []) is None
    text, names, _ = counts_cause(np.array([2, 0.96, 0, 0.96]), [0, 1, 5, 6], [])
    assert names == ["lost", "sample 5", "counted more than once", "sample 0"]
    assert "each other one has weight 0.96;" in text
    assert named([0, 1, 2, 4, 7], np.ones(5, bool)) == "samples 0-2, 4, 7"
