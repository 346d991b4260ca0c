"""N6 to N8: fully connected layers, dropout, the loss."""

import numpy as np

from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, random_source
from refgf.oracle.spec.network.gradients import U, gamma
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

Array = np.ndarray

# ---- N6: fully connected ----


def fully_connected(x: Array, w: Array, b: Array) -> Array:
    """N6: fully connected.

    y = x w + b, (N, D) (D, O) (O,) -> (N, O). Backward: dx = dy w', dw = x' dy, db = sum of dy over
    N.
    """
    return x @ w + b


N6 = Statement("N6", fully_connected)
CONNECTED = JudgedFunction(fully_connected, "N6", {"y": ("image", "output")}, "x w b")


@CONNECTED.bounds
def any_order_of_products(case: Case) -> Given:
    x, w, b = (np.abs(case[f"in.{name}"]) for name in "xwb")
    return {"y": gamma(len(w) + 2) * fully_connected(x, w, b)}


@CONNECTED.fresh
def any_layer(d: Draw) -> Given:
    sizes = (d.p, d.n + 1), (d.n + 1, 3), (3,)
    return {name: d.normal(*size, dtype="float64") for name, size in zip("xwb", sizes)}


@CONNECTED.golden
def head_cases() -> Cases:
    rng = random_source("head")
    x, w, b = (rng.standard_normal(size) for size in ((3, 11), (11, 5), 5))
    yield CONNECTED.within(CONNECTED.case("fully-connected", "N, D and O differ", x=x, w=w, b=b))
    kept, x = (rng.random(9) < 0.5).astype(np.uint8), rng.standard_normal(9)
    case = DROPOUT.case("dropout", "what is kept is scaled up", rate=0.25, x=x, kept=kept)
    case.tensors["bound.y"] = 3 * U * np.abs(case["out.y"])
    yield case


@N6.mistake("no bias")
def no_bias(x, w, b):
    return fully_connected(x, w, np.zeros_like(b))


# ---- N7: dropout ----


def dropout(x: Array, kept: Array, rate: float) -> Array:
    """N7: dropout scales kept values by 1 / (1 - rate) in training.

    Source: usual practice.

    x / (1 - rate) where `kept` is True, else 0; identity in evaluation.
    """
    return np.where(kept, x / (1 - rate), 0)


N7 = Statement("N7", dropout)
N7.given("scaled by 1 / rate instead of 1 / (1 - rate)", rate=lambda rate: 1 - rate)
N7.given("the rate is rounded to float32", rate=lambda rate: float(np.float32(rate)))
DROPOUT = JudgedFunction(dropout, "N7", {"y": ("element",)}, "x kept")


@DROPOUT.golden
def dropout_cases() -> Cases:
    rng = random_source("dropout-0.1")
    x, kept = rng.standard_normal(20), (rng.random(20) < 0.9).astype(np.uint8)
    why = "0.1 as given: of float32's 0.1 the results are out of bounds"
    case = DROPOUT.case("dropout-0.1", why, rate=0.1, x=x, kept=kept)
    case.tensors["bound.y"] = 3 * U * np.abs(case["out.y"])
    yield case


@N7.mistake("kept values are not scaled")
def not_scaled(x, kept, rate):
    return np.where(kept, x, 0)


# ---- N8: the loss ----


def softmax_cross_entropy(logits: Array, labels: Array, global_batch: int) -> tuple[float, Array]:
    """N8: the loss is the sum of this rank's samples' cross-entropies divided by the global batch;
    no samples, loss 0.

    Source: right for uneven shards.

    (N, K). The losses and the gradients of all ranks add up to those of the whole batch. -> (loss,
    dlogits)
    """
    loss, dlogits = 0.0, np.zeros_like(logits)
    for n, label in enumerate(labels):
        shifted = logits[n] - logits[n].max()  # per row, so that nothing overflows
        probabilities = np.exp(shifted) / np.exp(shifted).sum()
        loss += (np.log(np.exp(shifted).sum()) - shifted[label]) / global_batch
        dlogits[n] = probabilities / global_batch
        dlogits[n, label] -= 1 / global_batch
    return float(loss), dlogits


N8 = Statement("N8", softmax_cross_entropy)
LOSS_AXES = {"loss": (), "dlogits": ("image", "output")}
LOSS = JudgedFunction(softmax_cross_entropy, "N8", LOSS_AXES, "logits labels")


@LOSS.golden
def loss_cases() -> Cases:
    logits = np.array([[0.0, 1, 2], [200, 201, 202], [-800, 0, 800], [5, 5, 5]])
    why = (
        "large logits do not overflow, and no row makes another underflow; divided by "
        "the global batch of 7"
    )
    case = LOSS.case("softmax", why, global_batch=7, logits=logits, labels=[2, 0, 0, 1])
    case.tensors["bound.loss"] = 32 * U * case["out.loss"]
    case.tensors["bound.dlogits"] = np.full((4, 3), 32 * U)
    yield case
    none: Given = {"logits": np.zeros((0, 3)), "labels": np.zeros(0, np.int64)}
    yield LOSS.case("softmax-no-samples", "no samples: loss 0", global_batch=7, **none)


@N8.mistake("divided by this rank's samples, not by the global batch")
def local_batch(logits, labels, global_batch):
    return softmax_cross_entropy(logits, labels, max(1, len(labels)))


@N8.mistake("the largest logit of the whole batch is subtracted: small rows underflow")
def largest_of_the_batch(logits, labels, global_batch):
    with np.errstate(all="ignore"):
        shifted, rows = logits - logits.max(initial=-1e300), np.arange(len(labels))
        sums = np.exp(shifted).sum(axis=1)
        loss = (np.log(sums) - shifted[rows, labels]).sum() / global_batch
        dlogits = np.exp(shifted) / sums[:, None]
        dlogits[rows, labels] -= 1
    return float(loss), dlogits / global_batch
