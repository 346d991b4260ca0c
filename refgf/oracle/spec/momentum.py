"""M1 to M5: momentum SGD and LARS on flat arrays.

Every multiplication and every addition is rounded by itself, in the type of the arrays; there is no
fused multiply-add. momentum, rate and decay are rounded to that type before use.
"""

import math
from dataclasses import dataclass

import numpy as np

from refgf.oracle.spec.calls import same_bits
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.statement import FUNCTIONS
from refgf.oracle.spec.variants import variant


def momentum_step(
    w: np.ndarray,
    v: np.ndarray,
    g: np.ndarray,
    rate: float,
    momentum: float,
    decay: float = 0.0,
    decayed: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """M1: v <- m v + (g + decay w);  w <- w - rate v.  -> (w, v)"""
    m, rate = w.dtype.type(momentum), w.dtype.type(rate)
    v = m * v + decayed_gradient(w, g, decay, decayed)
    return w - rate * v, v


def decayed_gradient(
    w: np.ndarray, g: np.ndarray, decay: float, decayed: np.ndarray | None = None
) -> np.ndarray:
    """M2: decay is added where `decayed` is True, not to biases and normalisation.

    decayed: bool (n,), None for everywhere. Elsewhere, and if decay is 0, g keeps its bits: adding
    0 w would turn -0 into +0.
    """
    if decay == 0:
        return g
    with_decay = g + w.dtype.type(decay) * w
    return with_decay if decayed is None else np.where(decayed, with_decay, g)


def warmup_rate(step: int, warmup_steps: int, base_rate: float, batch_factor: float) -> float:
    """M3: linear scaling and gradual warm-up. -> learning rate of this step, counted from 0

    The rate grows by the same increment each step: it is base_rate plus one increment in step 0,
    and batch_factor * base_rate in step `warmup_steps` - 1.
    """
    target = base_rate * batch_factor
    if step + 1 >= warmup_steps:
        return target
    return base_rate + (target - base_rate) * (step + 1) / warmup_steps


def lars_ratio(w: np.ndarray, g: np.ndarray, trust: float, decay: float = 0.0) -> float:
    """M4: trust |w| / (|g| + decay |w|); 1.0 where |w| or the denominator is 0.

    Norms are Euclidean, and all is computed in float64.
    """
    norm_w, norm_g = (math.sqrt(math.fsum(float(e) * float(e) for e in x)) for x in (w, g))
    denominator = norm_g + decay * norm_w
    return trust * norm_w / denominator if norm_w > 0 and denominator > 0 else 1.0


@dataclass(frozen=True)
class LARSSettings:
    """sizes: elements of each tensor; decayed: one bool per tensor, None for all True.

    The last three fields are the loss scale's (P4, P6) and count in scaled_lars_run only.
    """

    sizes: tuple[int, ...]
    rate: float
    momentum: float
    trust: float
    decay: float = 0.0
    decayed: tuple[bool, ...] | None = None
    scale: float = 1.0
    interval: int = 2000
    wire: str | None = "float16"


def lars_step(
    w: np.ndarray, v: np.ndarray, g: np.ndarray, s: LARSSettings
) -> tuple[np.ndarray, np.ndarray]:
    """M5: per tensor, v <- m v + (rate ratio)(g + decay w);  w <- w - v.  -> (w, v)

    rate times ratio is formed in float64 and rounded once. Tensors without decay (biases and
    normalisation) have ratio 1.
    """
    w, v, stop = w.copy(), v.copy(), 0
    for i, size in enumerate(s.sizes):
        tensor, stop = slice(stop, stop + size), stop + size
        adapted = s.decayed is None or s.decayed[i]
        decay = s.decay if adapted else 0.0
        ratio = lars_ratio(w[tensor], g[tensor], s.trust, s.decay) if adapted else 1.0
        rate = w.dtype.type(s.rate * ratio)
        change = rate * decayed_gradient(w[tensor], g[tensor], decay)
        v[tensor] = w.dtype.type(s.momentum) * v[tensor] + change
        w[tensor] = w[tensor] - v[tensor]
    return w, v


def exact_ratios(case: Case) -> bool:
    """Are the results the same with ratios 2^-45 of themselves off? Rates are float32."""
    results = []
    for share in (1 - 2.0**-45, 1 + 2.0**-45):

        def moved(*arguments, share: float = share) -> float:
            return lars_ratio(*arguments) * share

        results.append(FUNCTIONS[case.function].run(variant(lars_ratio=moved), case))
    return all(same_bits(result["out.w"], case["out.w"]) for result in results)
